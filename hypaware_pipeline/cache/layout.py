"""Where the tables of a cache lie: the root, its datasets, their sources, and the table directory each source points to.

Why the cursor alone chooses a table directory: HypAware writes a compacted generation beside the old one before it swaps
`cursor.json`, and leaves the old one behind afterwards. A listing therefore shows directories that are not live yet or not any
more; picking one of them would lose or double rows.

Why a missing cursor beside table directories is an error: HypAware itself reads it as an empty source. Rows are there all the
same, and a reader that believes in the emptiness would delete what it exported.

Why names are not parsed for meaning beyond `<k>=<v>`: dataset and source names are third parties' text. A name can hold quotes,
commas, spaces or line breaks, and a dataset may be called `tables` or `epoch=1`; only a directory *inside a partition* is a
generation.
"""

import datetime as dt
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from hypaware_pipeline.errors import CacheMissing, SourceUnreadable
from hypaware_pipeline.model import DatasetName, SourceName

CURSOR_FILE = "cursor.json"
_DATASETS = "datasets"
_METADATA = "metadata"
_RETIRED = ".retired"
_SKIPPED = frozenset({"_hypaware_spool", _RETIRED})
_GENERATION = re.compile(r"table|table-.*|epoch=.*", re.DOTALL)
_METADATA_SUFFIX = ".metadata.json"
# What a directory's name cannot hold, half a surrogate pair (which JSON can spell) among it.
_UNSAFE_IN_NAME = re.compile(r"[/\\\0\ud800-\udfff]")
# The deepest HypAware ever nested partitions is two; a bound keeps a symbolic link to a parent from being walked for ever.
_MAX_PARTITION_DEPTH = 8

Layout = Literal["source-table", "epoch", "legacy"]


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """One source of a dataset: the directory that holds its cursor, or (legacy) is the table itself."""

    dataset: DatasetName
    source: SourceName
    directory: Path

    def __str__(self) -> str:
        """As messages name it."""
        return f"source '{self.source}' of dataset '{self.dataset}'"


@dataclass(frozen=True, slots=True)
class Cursor:
    """What a source says about itself.

    Attributes:
        layout: Which of HypAware's three layouts the source has.
        table_dir: The live table directory; need not exist.
        rows: HypAware's approximate row count; only its being zero means anything. None when it does not say.
        retention_cutoff_ms: Rows before this instant (UTC, epoch milliseconds) were deleted by retention; None if none ever were.
        compacted_at: When HypAware last wrote the table anew (UTC); None if it never did.
        previous_table: Name of the table directory it then read the rows from; None if it never did, or does not say.
    """

    layout: Layout
    table_dir: Path
    rows: int | None
    retention_cutoff_ms: int | None
    compacted_at: dt.datetime | None
    previous_table: str | None


class CursorMissing(SourceUnreadable):
    """There are table directories and no cursor. A moment after HypAware created the first of them this is how it looks."""


def resolve_root(directory: Path) -> Path:
    """The directory that holds `datasets/`: `directory` itself or its `cache/`.

    Raises:
        CacheMissing: neither holds one, or nobody may look.
    """
    for candidate in (directory, directory / "cache"):
        try:
            if (candidate / _DATASETS).is_dir():
                return candidate
        except OSError as error:
            raise CacheMissing(f"'{candidate}' cannot be read ({error.strerror}); check its permissions") from None
    raise CacheMissing(
        f"no HypAware cache at '{directory}': neither it nor its 'cache' directory holds '{_DATASETS}/'; "
        "set query.cache.dir to the directory that does, or let HypAware record something first"
    )


def dataset_names(root: Path) -> tuple[DatasetName, ...]:
    """Datasets with at least one source, sorted. `root` is what `resolve_root` gave.

    Raises:
        CacheMissing: the root is gone or cannot be listed.
    """
    try:
        entries = [entry for entry in (root / _DATASETS).iterdir() if entry.name not in _SKIPPED and entry.is_dir()]
    except OSError as error:
        raise CacheMissing(
            f"the cache at '{root}' cannot be listed: {error.strerror}; check the path and its permissions"
        ) from None
    return tuple(sorted(DatasetName(_readable(entry.name)) for entry in entries if next(_partitions(entry, 0), None) is not None))


def source_locations(root: Path, dataset: DatasetName) -> tuple[SourceLocation, ...]:
    """All sources of a dataset, sorted by name; empty when the dataset has none.

    A source is named by the `<x>` of `source=<x>` when that is its only directory level, else by all its levels joined with `,`;
    one at the dataset's own root is called `all`. Where two directories would get one name, those that have it by joining
    carry a short digest of their path.
    """
    top = _directory_of(root, dataset)
    names = _names(directory.relative_to(top).parts for directory in _partitions(top, 0))
    found = {names[segments]: SourceLocation(dataset, names[segments], top.joinpath(*segments)) for segments in names}
    return tuple(found[name] for name in sorted(found))


def migrated_sources(root: Path, dataset: DatasetName) -> frozenset[SourceName]:
    """What the sources were called that HypAware took out of the cache after it had copied their rows into others.

    It moves such a directory into a `.retired/` beside it. A source that is there again under the same name is not among them.
    """
    top = _directory_of(root, dataset)
    partitions = frozenset(_partitions(top, 0))
    live = {directory.relative_to(top).parts for directory in partitions}
    retired = {(*directory.relative_to(top).parts[:-2], directory.name) for directory in _retired(top, partitions, 0)} - live
    names = _names(live | retired)
    return frozenset(names[segments] for segments in retired)


def _names(sources: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], SourceName]:
    """The name of each source of a dataset, by the segments of its path."""
    named: dict[SourceName, tuple[str, ...]] = {}
    joined = []
    for segments in sources:
        if len(segments) == 1 and segments[0].startswith("source="):
            named[SourceName(_readable(segments[0].removeprefix("source=")))] = segments
        else:
            joined.append((SourceName(_readable(",".join(segments)) or "all"), "/".join(segments), segments))
    for name, path, segments in sorted(joined):
        # surrogateescape: a directory name need not be valid UTF-8.
        digest = sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:8]
        named[name if name not in named else SourceName(f"{name}~{digest}")] = segments
    return {segments: name for name, segments in named.items()}


def _readable(name: str) -> str:
    """A directory's name as text that can be shown and kept; bytes of it that are no text are spelled out."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _directory_of(root: Path, dataset: DatasetName) -> Path:
    """Where a dataset lies; only one whose name had to be spelled out is looked for."""
    direct = root / _DATASETS / dataset
    if "\\x" in dataset and not direct.exists():
        return next((entry for entry in (root / _DATASETS).iterdir() if _readable(entry.name) == dataset), direct)
    return direct


def read_cursor(location: SourceLocation) -> Cursor:
    """Read a source's cursor and resolve its live table directory.

    Raises:
        SourceUnreadable: the cursor is missing beside table directories, torn, or says something impossible.
    """
    path = location.directory / CURSOR_FILE
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return _without_cursor(location)
    except OSError as error:
        raise SourceUnreadable(f"{location}: '{path}' cannot be read ({error.strerror}); check it and its permissions") from None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise _bad_cursor(location, "is torn: it is no JSON document") from None
    if not isinstance(value, dict):
        raise _bad_cursor(location, "is torn: it is no JSON object")
    return _parse_cursor(location, value)


def has_metadata(table_dir: Path) -> bool:
    """Whether a directory is an Iceberg table by HypAware's rule: its `metadata/` holds a metadata file."""
    try:
        return any(entry.name.endswith(_METADATA_SUFFIX) for entry in (table_dir / _METADATA).iterdir())
    except OSError:
        return False


def has_generations(directory: Path) -> bool:
    """Whether a partition directory holds table directories of any generation."""
    try:
        return any(_GENERATION.fullmatch(child.name) and child.is_dir() for child in directory.iterdir())
    except OSError:
        return False


def _partitions(directory: Path, depth: int) -> Iterator[Path]:
    """Partition directories at or below `directory`, depth first; the walk stops at each."""
    try:
        entries = sorted(directory.iterdir())
        children = [entry for entry in entries if entry.name not in _SKIPPED and entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError:
        # Nobody knows what lies in a directory that cannot be listed; as a source it is reported, skipped it would be forgotten.
        yield directory
        return
    is_source = any(entry.name == CURSOR_FILE for entry in entries) or has_metadata(directory)
    if is_source or any(_GENERATION.fullmatch(child.name) for child in children):
        yield directory
    elif depth < _MAX_PARTITION_DEPTH:
        for child in children:
            yield from _partitions(child, depth + 1)


def _retired(directory: Path, partitions: frozenset[Path], depth: int) -> Iterator[Path]:
    """Directories in any `.retired/` beside partitions, or where such were; what cannot be listed has none."""
    if directory in partitions or depth > _MAX_PARTITION_DEPTH:
        return
    try:
        children = [entry for entry in directory.iterdir() if entry.is_dir()]
    except OSError:
        return
    if directory.name == _RETIRED:
        yield from children
        return
    for child in children:
        yield from _retired(child, partitions, depth + 1)


def _without_cursor(location: SourceLocation) -> Cursor:
    if has_metadata(location.directory):
        return Cursor("legacy", location.directory, None, None, None, None)
    raise CursorMissing(str(_bad_cursor(location, "is missing beside table directories")))


def _parse_cursor(location: SourceLocation, value: Mapping[str, Any]) -> Cursor:
    epoch = _number(location, value, "epoch") or 0
    rows = _number(location, value, "rowCount")
    cutoff = _number(location, _block(location, value, "retention"), "lastCutoffMs")
    compaction = _block(location, value, "compaction")
    history = (rows, cutoff, _instant(location, compaction, "compactedAt"), _previous_table(location, compaction))
    layout = value.get("layout")
    if layout == "source-table":
        return Cursor("source-table", location.directory / _table_name(location, value), *history)
    if layout not in (None, "epoch"):
        raise _bad_cursor(location, f"names an unknown layout {layout!r} (known: source-table, epoch)")
    # HypAware's rule: before the first flush there is no epoch directory, and an old table may lie in the partition itself.
    in_epoch = epoch > 0 or (rows or 0) > 0
    return Cursor("epoch", location.directory / f"epoch={epoch}" if in_epoch else location.directory, *history)


def _previous_table(location: SourceLocation, compaction: Mapping[str, Any]) -> str | None:
    name = compaction.get("previousTableDir")
    if name is None:
        epoch = _number(location, compaction, "previousEpoch")
        return None if epoch is None else f"epoch={epoch}"
    if not isinstance(name, str):
        raise _bad_cursor(location, f"names {name!r} as the table directory before; it must be the name of a directory")
    return name


def _table_name(location: SourceLocation, value: Mapping[str, Any]) -> str:
    name = value.get("tableDir", "table")
    if not isinstance(name, str) or not name or name in (".", "..") or _UNSAFE_IN_NAME.search(name):
        raise _bad_cursor(location, f"names {name!r} as table directory; it must be the name of a directory beside it")
    return name


def _block(location: SourceLocation, value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    block = value.get(key)
    if block is None:
        return {}
    if not isinstance(block, dict):
        raise _bad_cursor(location, f"is torn: '{key}' is no object")
    return block


def _instant(location: SourceLocation, value: Mapping[str, Any], key: str) -> dt.datetime | None:
    text = value.get(key)
    if text is None:
        return None
    try:
        return dt.datetime.fromisoformat(text).astimezone(dt.UTC)
    except (TypeError, ValueError, OverflowError):
        raise _bad_cursor(location, f"is torn: '{key}' is {text!r}, not an instant") from None


def _number(location: SourceLocation, value: Mapping[str, Any], key: str) -> int | None:
    number = value.get(key)
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not math.isfinite(number):
        raise _bad_cursor(location, f"is torn: '{key}' is {number!r}, not a number")
    # Up, because of the cut-off: an instant it covers in part is not held whole.
    return math.ceil(number)


def _bad_cursor(location: SourceLocation, what: str) -> SourceUnreadable:
    return SourceUnreadable(
        f"{location}: '{location.directory / CURSOR_FILE}' {what}; "
        "start HypAware so that it writes the file anew, or restore it from a backup"
    )
