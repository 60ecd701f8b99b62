"""The pin of one source: the exact snapshot, data files and deletion vectors one attempt reads.

Why the highest `v<N>.metadata.json` and never `version-hint.text`: the hint is written afterwards and as best effort; a metadata
file appears by rename and is complete. A torn one is therefore damage, and an older one is never read in its place: it would show
a table with fewer rows, or with rows that were purged. The hint serves to notice that the newest one is gone.

Why an attempt is repeated only when something changed: files vanish when HypAware swaps a generation, and then the cursor or the
newest metadata differ from what they were. If they do not, the file is truly gone, and trying again mends nothing.

Why paths are rebased: metadata holds the absolute URLs of the machine that wrote it. What follows the table's own URL is the
file's name; everything is read below the directory the cursor points to, and nothing else is.
"""

import datetime as dt
import json
import re
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypaware_pipeline.cache.layout import (
    CURSOR_FILE,
    Cursor,
    CursorMissing,
    SourceLocation,
    has_generations,
    has_metadata,
    read_cursor,
)
from hypaware_pipeline.cache.manifests import (
    Entry,
    ManifestMemory,
    PackedBounds,
    TablePaths,
    bounds_of,
    read_entries,
    read_manifest_list,
)
from hypaware_pipeline.errors import SourceUnreadable
from hypaware_pipeline.model import INTERNAL_PREFIX, Column, ColumnType

_METADATA_NAME = re.compile(r"v(\d+)\.metadata\.json")
_HINT_FILE = "version-hint.text"
_HINT_BYTES = 20  # an int64 in decimal; whatever is longer is no version
_ATTEMPTS = 5
# HypAware writes a new source's first rows before its cursor; a moment later the cursor is there.
_CURSOR_WAIT_SECONDS = 0.05

# Iceberg's types as HypAware's. HypAware writes the first seven; the others come from tables of third-party writers.
_TYPES = {
    "string": ColumnType.STRING,
    "int": ColumnType.INT32,
    "long": ColumnType.INT64,
    "double": ColumnType.DOUBLE,
    "boolean": ColumnType.BOOLEAN,
    "timestamptz": ColumnType.TIMESTAMP,
    "variant": ColumnType.JSON,
    "timestamp": ColumnType.TIMESTAMP,
    "timestamp_ns": ColumnType.TIMESTAMP,
    "timestamptz_ns": ColumnType.TIMESTAMP,
    "float": ColumnType.DOUBLE,
    "date": ColumnType.STRING,
}
_REMOVAL_COUNTS = ("added-position-deletes", "added-equality-deletes", "deleted-records")
# The timestamp types whose bounds are microseconds.
_MICROSECOND_TYPES = ("timestamp", "timestamptz")
_MICROSECONDS_PER_DAY = 86_400_000_000


@dataclass(frozen=True, slots=True)
class DeletionRef:
    """A deletion vector: where its blob lies (offset and length in bytes) and how many rows it deletes."""

    table_dir: Path
    name: str
    offset: int
    length: int
    rows: int

    @property
    def path(self) -> Path:
        """The file that holds it."""
        return self.table_dir / self.name

    @property
    def identity(self) -> str:
        """Differs whenever the deleted rows do: HypAware never writes a file name twice."""
        return f"{self.name}:{self.offset}:{self.length}"


@dataclass(frozen=True, slots=True)
class DayBounds:
    """Between which raw days (days since 1970-01-01, both included) a column's values lie, and whether some may be null.

    No day at all: every value is null.
    """

    days: tuple[int, int] | None
    nulls: bool


@dataclass(frozen=True, slots=True)
class DataFile:
    """One immutable data file of a snapshot.

    Attributes:
        name: Path below the table directory.
        rows: Deleted ones included.
        bounds: What its manifest says of its columns of eight bytes.
    """

    table_dir: Path
    name: str
    rows: int
    bytes: int
    deletion: DeletionRef | None
    bounds: PackedBounds

    @property
    def path(self) -> Path:
        """Where it lies now."""
        return self.table_dir / self.name


@dataclass(frozen=True, slots=True)
class SourceVersion:
    """What changes when a source does: its live table, its retention cut-off, the newest metadata file (None: no table yet)."""

    table_dir: Path
    retention_cutoff_ms: int | None
    metadata: str | None


@dataclass(frozen=True, slots=True)
class SnapshotRef:
    """A snapshot of a table, the one it was made from (None: it was the first), and its place among all the table ever had."""

    id: int
    parent_id: int | None
    sequence_number: int


@dataclass(frozen=True, slots=True)
class TableHistory:
    """What a table's metadata says of how it came to be what it is.

    Attributes:
        uuid: Iceberg's id of the table. HypAware gives a new one at every compaction.
        snapshot_id: The current snapshot; None when nothing was ever committed.
        sequence_number: Of the last commit; grows with each.
        snapshots: Those not expired.
    """

    uuid: str
    snapshot_id: int | None
    sequence_number: int
    snapshots: tuple[SnapshotRef, ...]


@dataclass(frozen=True, slots=True)
class SourcePin:
    """One source at one snapshot.

    Attributes:
        metadata_path: The metadata file read; None for a source without a table.
        table_uuid: Iceberg's id of the table, empty without one. HypAware gives a new one at every compaction.
        snapshot_id: None when nothing was ever committed.
        columns: The table's columns in order, internal ones left out.
        removed_at: When rows may last have been removed from the table (UTC); None when never as far as its
            snapshots tell. A compaction counts: what it left out, and what was removed just before it, no snapshot tells.
        timestamp_fields: Field ids of the timestamp columns, by name.
        snapshots: All the metadata tells of.
        previous_table: Name of the table directory that the cursor says the live one was compacted from; None when it says none.
    """

    location: SourceLocation
    version: SourceVersion
    metadata_path: Path | None
    table_uuid: str
    snapshot_id: int | None
    sequence_number: int
    columns: tuple[Column, ...]
    files: tuple[DataFile, ...]
    removed_at: dt.datetime | None
    timestamp_fields: Mapping[str, int]
    snapshots: tuple[SnapshotRef, ...] = ()
    previous_table: str | None = None

    @property
    def history(self) -> TableHistory:
        """How the table came to be what it is."""
        return TableHistory(self.table_uuid, self.snapshot_id, self.sequence_number, self.snapshots)

    @property
    def retention_cutoff_ms(self) -> int | None:
        """Rows before this instant were deleted by retention; None when none ever were."""
        return self.version.retention_cutoff_ms

    def day_bounds(self, file: DataFile, column: str) -> DayBounds | None:
        """What the manifest says of a timestamp column of a file; None when it says nothing."""
        field_id = self.timestamp_fields.get(column)
        bounds = bounds_of(file.bounds, field_id) if field_id is not None else None
        if bounds is None:
            return None
        if bounds.low is None or bounds.high is None:
            return DayBounds(None, bounds.nulls)
        return DayBounds((bounds.low // _MICROSECONDS_PER_DAY, bounds.high // _MICROSECONDS_PER_DAY), bounds.nulls)

    @property
    def table_dir(self) -> Path:
        """The live table directory at the time."""
        return self.version.table_dir


def pin_source(location: SourceLocation, memory: ManifestMemory, *, sleep: Callable[[float], None] = time.sleep) -> SourcePin:
    """Pin one source as it is now.

    Raises:
        SourceUnreadable: cursor, metadata or manifests are missing or damaged, or the table holds what cannot be read.
    """
    _wait_for_cursor(location, sleep)
    for _ in range(_ATTEMPTS - 1):
        cursor = read_cursor(location)
        version = _version_of(cursor)
        try:
            return _pin_version(location, cursor, version, memory)
        except SourceUnreadable:
            if source_version(location) == version:
                raise
    cursor = read_cursor(location)
    return _pin_version(location, cursor, _version_of(cursor), memory)


def source_version(location: SourceLocation) -> SourceVersion:
    """What a source is now, for comparison with a pin's.

    Raises:
        SourceUnreadable: the cursor is missing or torn.
    """
    return _version_of(read_cursor(location))


def source_columns(location: SourceLocation) -> tuple[Column, ...]:
    """The columns of a source's live table, internal ones left out; none without a table. Reads its metadata file alone.

    Raises:
        SourceUnreadable: cursor or metadata are missing or damaged, or a column has a type that cannot be exported.
    """
    version = source_version(location)
    if version.metadata is None:
        return ()
    path = version.table_dir / "metadata" / version.metadata
    metadata = _read_metadata(path)
    with _damage_named(path):
        return tuple(_columns(location, _current_fields(metadata)))


def table_history(table_dir: Path) -> TableHistory | None:
    """How the table in a directory came to be what it is; None when the directory holds none. Reads its metadata file alone.

    Raises:
        SourceUnreadable: the metadata is missing in part or damaged.
    """
    newest = _newest_metadata(table_dir)
    return None if newest is None else _history_in(table_dir, newest)


def snapshot_then(table_dir: Path, sequence_number: int) -> int | None:
    """Which snapshot a table had at a sequence number, by its older metadata files; None where they do not tell.

    HypAware deletes none of them while the table is live, also when it expires what they speak of.

    Raises:
        SourceUnreadable: one of them is damaged.
    """
    versions = [name for _, name in sorted(_versions(table_dir).items())]
    at = bisect_left(versions, sequence_number, key=lambda name: _history_in(table_dir, name).sequence_number)
    then = _history_in(table_dir, versions[at]) if at < len(versions) else None
    return then.snapshot_id if then is not None and then.sequence_number == sequence_number else None


def _history_in(table_dir: Path, metadata_name: str) -> TableHistory:
    path = table_dir / "metadata" / metadata_name
    metadata = _read_metadata(path)
    with _damage_named(path):
        return _history(metadata)


def _wait_for_cursor(location: SourceLocation, sleep: Callable[[float], None]) -> None:
    for _ in range(_ATTEMPTS):
        try:
            read_cursor(location)
        except CursorMissing:
            sleep(_CURSOR_WAIT_SECONDS)
        else:
            return


def _version_of(cursor: Cursor) -> SourceVersion:
    return SourceVersion(cursor.table_dir, cursor.retention_cutoff_ms, _newest_metadata(cursor.table_dir))


def _newest_metadata(table_dir: Path) -> str | None:
    hinted = _hinted_version(table_dir)
    versions = _versions(table_dir)
    newest = max(versions, default=0)
    if 0 < newest < hinted:
        raise SourceUnreadable(
            f"'{table_dir}/metadata' has lost v{hinted}.metadata.json, which {_HINT_FILE} names; restore it from a backup. "
            "No older metadata is read in its place"
        )
    return versions[newest] if newest else None


def _versions(table_dir: Path) -> dict[int, str]:
    """The metadata files of a table by version."""
    try:
        names = [entry.name for entry in (table_dir / "metadata").iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise SourceUnreadable(f"'{table_dir}/metadata' cannot be listed ({error.strerror}); check its permissions") from None
    return {int(match[1]): name for name in names if (match := _METADATA_NAME.fullmatch(name))}


def _hinted_version(table_dir: Path) -> int:
    """The version the hint names, 0 without a legible one. Read before a listing, it names none the listing need not have."""
    try:
        text = (table_dir / "metadata" / _HINT_FILE).read_bytes()
        return int(text) if len(text) <= _HINT_BYTES else 0
    except (OSError, ValueError):
        return 0


def _pin_version(location: SourceLocation, cursor: Cursor, version: SourceVersion, memory: ManifestMemory) -> SourcePin:
    if version.metadata is None:
        _ensure_empty(location, cursor)
        return SourcePin(location, version, None, "", None, 0, (), (), cursor.compacted_at, {}, (), cursor.previous_table)
    path = version.table_dir / "metadata" / version.metadata
    metadata = _read_metadata(path)
    with _damage_named(path):
        fields = _current_fields(metadata)
        snapshot = _current_snapshot(metadata)
        history = _history(metadata)
        removals = [*_removals(metadata), *([cursor.compacted_at] if cursor.compacted_at is not None else [])]
        return SourcePin(
            location=location,
            version=version,
            metadata_path=path,
            table_uuid=history.uuid,
            snapshot_id=history.snapshot_id,
            sequence_number=history.sequence_number,
            columns=tuple(_columns(location, fields)),
            files=() if snapshot is None else _files_of(location, version, metadata, snapshot, memory),
            removed_at=max(removals, default=None),
            timestamp_fields={str(item["name"]): int(item["id"]) for item in fields if item["type"] in _MICROSECOND_TYPES},
            snapshots=history.snapshots,
            previous_table=cursor.previous_table,
        )


def _ensure_empty(location: SourceLocation, cursor: Cursor) -> None:
    """A source without a table is empty only if nothing says otherwise."""
    if has_metadata(cursor.table_dir):
        what = "holds metadata files under names this reader does not know (known: v<N>.metadata.json)"
    elif cursor.rows:
        what = f"holds no table, though {CURSOR_FILE} counts {cursor.rows} rows in it"
    elif not cursor.table_dir.exists() and has_generations(location.directory):
        what = f"is gone, though {CURSOR_FILE} names it"
    else:
        return
    raise SourceUnreadable(f"{location}: '{cursor.table_dir}' {what}; restore the directory from a backup")


def _read_metadata(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise SourceUnreadable(f"'{path}' cannot be read ({error.strerror}); restore it from a backup") from None
    except (ValueError, RecursionError):
        raise _damaged(path, "no JSON document") from None


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, OSError) as error:
        raise _damaged(path, f"not the metadata of a table ({type(error).__name__}: {error})") from None


def _damaged(path: Path, what: str) -> SourceUnreadable:
    return SourceUnreadable(f"'{path}' is torn: {what}; restore it from a backup. No older metadata is read in its place")


def _files_of(
    location: SourceLocation,
    version: SourceVersion,
    metadata: Mapping[str, Any],
    snapshot: Mapping[str, Any],
    memory: ManifestMemory,
) -> tuple[DataFile, ...]:
    paths = TablePaths(version.table_dir, str(metadata["location"]))
    refs = read_manifest_list(paths, str(snapshot["manifest-list"]))
    return _live_files(location, paths, read_entries(paths, refs, memory))


def _snapshots(metadata: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """All snapshots; a table nothing was committed to need not have the key."""
    snapshots: Iterable[Mapping[str, Any]] = metadata.get("snapshots", ())
    return snapshots


def _history(metadata: Mapping[str, Any]) -> TableHistory:
    current = _current_snapshot(metadata)
    return TableHistory(
        uuid=str(metadata["table-uuid"]),
        snapshot_id=None if current is None else int(current["snapshot-id"]),
        sequence_number=int(metadata["last-sequence-number"]),
        snapshots=tuple(map(_snapshot_ref, _snapshots(metadata))),
    )


def _snapshot_ref(snapshot: Mapping[str, Any]) -> SnapshotRef:
    parent = snapshot.get("parent-snapshot-id")
    # A table of format version 1 numbers nothing.
    return SnapshotRef(
        int(snapshot["snapshot-id"]), None if parent is None else int(parent), int(snapshot.get("sequence-number", 0))
    )


def _removals(metadata: Mapping[str, Any]) -> Iterator[dt.datetime]:
    """When the snapshots that removed rows were made. A `replace` moves rows between files and removes none."""
    for snapshot in _snapshots(metadata):
        summary = snapshot.get("summary", {})
        removed = any(int(summary.get(key, 0)) for key in _REMOVAL_COUNTS)
        if removed and summary.get("operation") != "replace":
            yield dt.datetime.fromtimestamp(int(snapshot["timestamp-ms"]) / 1000, tz=dt.UTC)


def _current_fields(metadata: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    current = metadata["current-schema-id"]
    schema = next((schema for schema in metadata["schemas"] if schema["schema-id"] == current), None)
    if schema is None:
        raise ValueError(f"current-schema-id {current!r} is not among its schemas")
    return list(schema["fields"])


def _current_snapshot(metadata: Mapping[str, Any]) -> Mapping[str, Any] | None:
    current = metadata.get("current-snapshot-id")
    # Some writers say -1 for a table nothing was committed to.
    if current is None or current == -1:
        return None
    snapshot = next((snapshot for snapshot in _snapshots(metadata) if snapshot["snapshot-id"] == current), None)
    if snapshot is None:
        raise ValueError(f"current-snapshot-id {current!r} is not among its snapshots")
    return snapshot


def _columns(location: SourceLocation, fields: Iterable[Mapping[str, Any]]) -> Iterator[Column]:
    for item in fields:
        name, kind = str(item["name"]), item["type"]
        if name.startswith(INTERNAL_PREFIX):
            continue
        # A nested type is an object that names itself.
        text = kind if isinstance(kind, str) else str(kind["type"])
        if text not in _TYPES:
            raise SourceUnreadable(
                f"{location}: column '{name}' has type {text}, which cannot be exported (known: {', '.join(_TYPES)})"
            )
        yield Column(name, _TYPES[text])


def _live_files(location: SourceLocation, paths: TablePaths, entries: Iterable[Entry]) -> tuple[DataFile, ...]:
    """Data files with the newest deletion vector of each, sorted by name: manifests reorder files, a reader must not notice."""
    data: list[Entry] = []
    deletions: dict[str, Entry] = {}
    for entry in entries:
        if entry.is_data:
            data.append(entry)
        elif entry.is_deletion_vector and entry.referenced is not None:
            known = deletions.get(entry.referenced)
            if known is None or entry.sequence > known.sequence:
                deletions[entry.referenced] = entry
        else:
            raise SourceUnreadable(
                f"{location}: '{paths.table_dir / entry.name}' holds deletions that are no deletion vector of one data file; "
                "HypAware writes none such. Compact the table with HypAware, or with the program that wrote them"
            )
    return tuple(_data_file(paths, entry, deletions.get(entry.name)) for entry in sorted(data, key=lambda item: item.name))


def _data_file(paths: TablePaths, entry: Entry, deletion: Entry | None) -> DataFile:
    if entry.file_format.upper() != "PARQUET":
        raise SourceUnreadable(f"'{paths.table_dir / entry.name}' is {entry.file_format}; only Parquet data files are read")
    # A file written after the deletions has rows they do not know.
    applies = deletion is not None and deletion.sequence >= entry.sequence
    vector = _deletion_ref(paths, deletion) if deletion is not None and applies else None
    return DataFile(paths.table_dir, entry.name, entry.rows, entry.bytes, vector, entry.bounds)


def _deletion_ref(paths: TablePaths, entry: Entry) -> DeletionRef:
    if entry.offset is None or entry.length is None:
        raise SourceUnreadable(
            f"'{paths.table_dir / entry.name}': its manifest does not say where the deletion vector lies in it; compact the table"
        )
    return DeletionRef(paths.table_dir, entry.name, entry.offset, entry.length, entry.rows)
