"""Plugins that come from other packages, by entry point.

Why only plugins that a config names are looked for: the packages of an environment are many, and whatever one of them does when
it is imported would be done to every Dagster process.

Why a name that two packages claim is nobody's: which of them was installed first decides nothing.
"""

from importlib.metadata import entry_points

from hypaware_pipeline.errors import ConfigErrorKind
from hypaware_pipeline.plugins.manifest import Plugin, manifest_problems

GROUP = "hypaware_pipeline.plugins"
"""Of the entry points. The name of one is the plugin's name, its object a `Plugin`."""


class Unusable(Exception):
    """A plugin is installed and cannot be used. `kind` is that of the error of a sink that names it."""

    def __init__(self, kind: ConfigErrorKind, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


def find_installed(name: str) -> Plugin | None:
    """The plugin some installed package has under this name; None if none has.

    Raises:
        Unusable: several have, its module cannot be imported, or what is there is no sound plugin.
    """
    found = tuple(entry_points(group=GROUP, name=name))
    if not found:
        return None
    if len(found) > 1:
        packages = " and ".join(sorted(entry.dist.name if entry.dist else entry.value for entry in found))
        raise Unusable("manifest_invalid", f"plugin '{name}' comes with {packages}; uninstall all but one of them")
    (entry,) = found
    try:
        plugin = entry.load()
    except (Exception, SystemExit) as error:  # a foreign module may raise anything when it is imported
        reason = f"plugin '{name}' cannot be imported from {entry.value}: {type(error).__name__}: {error}"
        raise Unusable("sink_plugin_not_active", reason) from error
    problems = "; ".join(manifest_problems(plugin, name))
    if problems or not isinstance(plugin, Plugin):
        raise Unusable("manifest_invalid", f"plugin '{name}', {entry.value}: {problems}")
    return plugin
