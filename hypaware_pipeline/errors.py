"""The failure vocabulary.

Why three answers for a sink: what the engine does next follows from the class of a failure and from nothing else. A sink that
cannot say which of the three it met has a bug, and a bug stops the sink rather than spinning on it.

Why every message names a place and a remedy: the reader is an engineer looking at a red partition in the UI. "What is wrong,
where, what to do" is the whole contract; a secret never appears in any of it.
"""

from collections.abc import Mapping
from typing import Literal


class PipelineError(Exception):
    """Base of every error this project raises on purpose. Its text is fit to be shown to the user."""

    def __str__(self) -> str:
        """The text; bytes of a path that are no text are spelled out, so that any terminal and database takes it."""
        return super().__str__().encode("utf-8", "backslashreplace").decode()


# --- what a sink answers -------------------------------------------------------------------------------------------------------


class SinkError(PipelineError):
    """One of a sink's three answers to a failure."""


class SinkRetryable(SinkError):
    """Not now. Nothing moved; the same batch is tried again after a back-off.

    `retry_after_seconds` is the destination's own wish: never retried sooner.
    """

    def __init__(self, reason: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after_seconds = retry_after_seconds


class SinkRejected(SinkError):
    """These records never, as they stand: they are parked with their reasons and the rest is sent without them.

    `reasons` maps the position of a refused record in the batch to why it was refused.
    """

    def __init__(self, reasons: Mapping[int, str]) -> None:
        super().__init__(f"{len(reasons)} records refused: {next(iter(reasons.values()), 'no record named')}")
        self.reasons = dict(reasons)


class SinkHalted(SinkError):
    """Retrying mends nothing (credentials, a missing bucket, a read-only disk). The sink stops until someone acts."""


class PreconditionFailed(SinkError):
    """A conditional write found something else at the key than the caller expected. Nothing was written."""

    def __init__(self, key: str, expected: str) -> None:
        super().__init__(f"object '{key}' is not as expected ({expected}); nothing was written")
        self.key = key


# --- the cache -----------------------------------------------------------------------------------------------------------------


class CacheError(PipelineError):
    """Something in HypAware's cache cannot be read. Names the dataset, the source and the file."""


class CacheMissing(CacheError):
    """There is no cache at the configured place."""


class SourceUnreadable(CacheError):
    """One source of a dataset cannot be pinned: torn cursor, torn metadata, a directory that is gone, a file that is gone."""


class PinLost(CacheError):
    """What a pin references vanished while it was read (HypAware swapped and removed a generation). Pin again."""


class SpillFailed(PipelineError):
    """Rows could not be put aside on disk while a day was sorted (disk full, not writable).

    Names the directory and the remedy.
    """


# --- configuration and state ---------------------------------------------------------------------------------------------------

ConfigErrorKind = Literal[
    "config_missing",
    "config_unreadable",
    "config_invalid_json",
    "config_invalid_shape",
    "duplicate_plugin",
    "plugin_unknown",
    "manifest_invalid",
    "request_sink_invalid_keys",
    "sink_plugin_unknown",
    "sink_plugin_not_active",
    "sink_pair_incompatible",
    "sink_writer_invalid",
    "sink_destination_invalid",
    "sink_encoder_invalid",
    "sink_capability_missing",
    "sink_schedule_invalid",
    "sink_config_invalid",
    "sink_also_exported_by_hypaware",
    "dataset_unknown",
    "capability_ambiguous",
    "config_section_invalid",
    "name_collision",
]


class ConfigError(PipelineError):
    """One thing wrong with the configuration: its kind, the JSON pointer where it stands, and what to do."""

    def __init__(self, kind: ConfigErrorKind, pointer: str, message: str) -> None:
        super().__init__(f"{pointer or '/'}: {message} [{kind}]")
        self.kind = kind
        self.pointer = pointer
        self.message = message


class ConfigErrors(PipelineError):
    """Everything wrong with a configuration file, reported at once."""

    def __init__(self, path: str, errors: list[ConfigError]) -> None:
        super().__init__(f"{path}: " + "; ".join(str(error) for error in errors))
        self.path = path
        self.errors = errors


class StateUnusable(PipelineError):
    """A directory the program keeps its own state in cannot be made or written. Exit code 2."""


class RunStorageFailed(PipelineError):
    """Dagster's storage did not take what a run had to say. What was exported stands in the ledger."""


class BadRequest(PipelineError):
    """What the caller asked for makes no sense (an unknown sink, a reversed range, a day that is no day). Exit code 2."""


class LedgerError(PipelineError):
    """The ledger could not do what it was asked."""


class LedgerUnreadable(LedgerError):
    """The ledger cannot be opened or read. Nothing is exported on a guess."""


class LedgerWriteFailed(LedgerError):
    """The ledger did not take a write: what was exported is not recorded and will be exported again."""


class CursorSuperseded(LedgerError):
    """A compare-and-set lost: what was to be replaced had been replaced by another. Nothing that the call carried landed."""


class LeaseHeld(PipelineError):
    """Another process may write to this (sink, dataset) now. It is no failure: whoever waits gets the lease when it is free."""

    def __init__(self, sink: str, dataset: str, *, holder: str, since: str, until: str) -> None:
        super().__init__(
            f"{sink}/{dataset} is being written by {holder}, since {since}; let it end and export again. If it died, its lease "
            f"can be taken after {until}"
        )
        self.holder = holder
        self.since = since
        self.until = until


class LeaseLost(PipelineError):
    """The lease that was held is another's by now: this process was stopped, or cut off, for longer than it lasts.

    Nothing more may be written with it.
    """

    def __init__(self, sink: str, dataset: str) -> None:
        super().__init__(
            f"{sink}/{dataset}: this export lost the right to write, because it did not renew its lease in time (the machine "
            "slept, or the ledger could not be reached); it wrote nothing after that. Whoever took over exports the day, or "
            "export it again"
        )


# --- the engine ----------------------------------------------------------------------------------------------------------------


class BalanceBroken(PipelineError):
    """Rows in, rows out and rows parked do not add up. The partition fails with the numbers; nothing is recorded."""


class SyncStalled(PipelineError):
    """Days of a (sink, dataset) were given up after so many attempts without progress."""

    def __init__(self, sink: str, dataset: str, *, restarts: int, reason: str) -> None:
        how = f"after {restarts} attempts without progress" if restarts else "at once, since trying again mends nothing"
        super().__init__(
            f"{sink}/{dataset} was given up {how}: {reason}; mend the cause. Every scheduled tick tries one of its days, and "
            f"`hypaware-pipeline resume {sink}` has all of them tried at once"
        )
        self.sink = sink
        self.dataset = dataset
        self.restarts = restarts
        self.reason = reason


class ExportEnded(PipelineError):
    """The export was told to end. The day at hand is as it was before."""
