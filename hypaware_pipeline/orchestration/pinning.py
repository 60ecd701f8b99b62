"""What the runs of a code location are built from, kept for them by Dagster.

Why it is needed: every run builds the definitions anew in its own process. Reading the config file again there means that an
edit between queueing and starting makes the run fail with `Could not find job`, and a file with a typing error fails every run.

Why a private import: `StateBackedComponent` is the only public way to this, and brings a project layout of its own with it. It is
here and nowhere else, and a test reads what is pinned back from a real run.
"""

from collections.abc import Callable

from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType


def pinned_text(key: str, make: Callable[[], str]) -> str:
    """The text pinned under a key when the code location was loaded; made and pinned now if this is that load.

    A server loads its code a second time as if for a run, before anything is pinned; then the text is made as well.
    """
    context = DefinitionsLoadContext.get()
    if context.load_type is DefinitionsLoadType.RECONSTRUCTION and key in context.reconstruction_metadata:
        return str(context.reconstruction_metadata[key])
    text = make()
    context.add_to_pending_reconstruction_metadata(key, text)
    return text
