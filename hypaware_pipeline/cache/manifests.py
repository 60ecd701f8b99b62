"""Iceberg manifest lists and manifests: which files a snapshot consists of.

Why manifests are remembered: HypAware adds one per flush and never changes one, so a table of thousands of files has hundreds,
and parsing them all again costs seconds on every tick. What was read of them is kept per source, a line of text per manifest, so
that one more flush writes one more line; a lost memory costs a re-read.

Why lengths and counts are checked: HypAware's manifests are uncompressed and carry no checksum. A truncated one that ends between
two blocks would otherwise pass as a table with fewer files.
"""

import io
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import fastavro

from hypaware_pipeline.cache import index_files
from hypaware_pipeline.errors import SourceUnreadable

_FORMAT = "manifests-2"
_DATA, _POSITION_DELETES, _EQUALITY_DELETES = 0, 1, 2
_DELETED = 2
_INT64_BYTES = 8


@dataclass(frozen=True, slots=True)
class Bounds:
    """Smallest and largest non-null value of an 8-byte column in a file (None: no value), and whether nulls may be among them."""

    low: int | None
    high: int | None
    nulls: bool


PackedBounds = str
"""Bounds of columns as they are kept. Hardly any is ever looked at, so none is unpacked before; and of text in thousands of files
Python's garbage collector knows nothing, of lists it does."""


def pack_bounds(bounds: Mapping[int, Bounds]) -> PackedBounds:
    """Bounds by field id as text."""
    return " ".join(f"{field_id}:{_text(each.low)}:{_text(each.high)}:{each.nulls:d}" for field_id, each in bounds.items())


def bounds_of(packed: PackedBounds, field_id: int) -> Bounds | None:
    """The bounds of one column; None when the manifest says nothing of it."""
    for column in packed.split():
        known, low, high, nulls = column.split(":")
        if int(known) == field_id:
            return Bounds(int(low) if low else None, int(high) if high else None, nulls == "1")
    return None


def _text(bound: int | None) -> str:
    return "" if bound is None else str(bound)


@dataclass(frozen=True, slots=True)
class Entry:
    """One live file of a manifest.

    Attributes:
        content: 0 data, 1 position deletes, 2 equality deletes.
        file_format: As the manifest spells it.
        name: Path below the table directory.
        sequence: Data sequence number.
        bounds: Of columns of eight bytes.
        referenced: For deletion vectors: name of the data file the deletions are of.
        offset: For deletion vectors: where the blob begins, in bytes.
        length: For deletion vectors: the blob's bytes.
    """

    content: int
    file_format: str
    name: str
    rows: int
    bytes: int
    sequence: int
    bounds: PackedBounds
    referenced: str | None = None
    offset: int | None = None
    length: int | None = None

    @property
    def is_data(self) -> bool:
        """Rows, as opposed to deletions."""
        return self.content == _DATA

    @property
    def is_deletion_vector(self) -> bool:
        """Deletions as a bitmap of positions, the only kind HypAware writes."""
        return self.content == _POSITION_DELETES and self.file_format.upper() == "PUFFIN"


_ENTRY_FIELDS = tuple(item.name for item in fields(Entry))


@dataclass(frozen=True, slots=True)
class ManifestRef:
    """One manifest of a list: name below the table directory, bytes, sequence number its entries inherit, live entries."""

    name: str
    bytes: int
    sequence: int
    entries: int


@dataclass(frozen=True, slots=True)
class TablePaths:
    """Turns the absolute URLs of the machine that wrote a table into paths below the directory it lies in now.

    `location` is the table's own URL in its metadata.
    """

    table_dir: Path
    location: str

    def name_of(self, url: str) -> str:
        """What follows the table's directory in `url`.

        Raises:
            SourceUnreadable: the URL points outside the table.
        """
        prefix = self.location.rstrip("/") + "/"
        if url.startswith(prefix):
            name = unquote(url[len(prefix) :]) if urlsplit(url).scheme else url[len(prefix) :]
        else:
            _, found, name = unquote(url).rpartition(f"/{self.table_dir.name}/")
            name = name if found else ""
        parts = name.split("/")
        if not name or "\0" in name or any(part in ("", ".", "..") for part in parts):
            raise SourceUnreadable(
                f"table '{self.table_dir}' references '{url}', which lies outside the table; it is not read. "
                "Copy the cache as a whole, from the directory that holds datasets/"
            )
        return name


@dataclass(slots=True)
class ManifestMemory:
    """What was read of one source's manifests, kept in one small file. Without a path it lives as long as the object."""

    path: Path | None
    _known: dict[str, str] = field(default_factory=dict)
    _loaded: bool = False

    def get(self, ref: ManifestRef) -> tuple[Entry, ...] | None:
        """The entries of a manifest, when it was read before."""
        if not self._loaded:
            self._loaded = True
            self._load()
        entries = self._known.get(_name_of(ref))
        return None if entries is None else tuple(Entry(*entry) for entry in json.loads(entries))

    def keep(self, refs: Iterable[ManifestRef], read: Mapping[ManifestRef, tuple[Entry, ...]]) -> None:
        """Remember exactly these manifests, some of which were read just now; older ones are forgotten."""
        known = {_name_of(ref): _entries_text(read[ref]) if ref in read else self._known[_name_of(ref)] for ref in refs}
        if known.keys() == self._known.keys():
            return
        self._known = known
        if self.path is not None:
            lines = "\n".join(f"{name}\t{entries}" for name, entries in known.items())
            index_files.write(self.path, _FORMAT, lines.encode())

    def _load(self) -> None:
        content = index_files.read(self.path, _FORMAT) if self.path is not None else None
        for line in content.decode().splitlines() if content else ():
            name, _, entries = line.partition("\t")
            self._known[name] = entries


def _name_of(ref: ManifestRef) -> str:
    """By size and name, as JSON: without a tab or a line break."""
    return json.dumps([ref.bytes, ref.name])


def _entries_text(entries: Iterable[Entry]) -> str:
    return json.dumps([[getattr(entry, name) for name in _ENTRY_FIELDS] for entry in entries], separators=(",", ":"))


def read_manifest_list(paths: TablePaths, url: str) -> tuple[ManifestRef, ...]:
    """The manifests of a snapshot.

    Raises:
        SourceUnreadable: the file is missing, damaged or references something outside the table.
    """
    path = paths.table_dir / paths.name_of(url)
    content = _read_bytes(path)
    with _damage_named(path):
        return tuple(
            ManifestRef(
                name=paths.name_of(record["manifest_path"]),
                bytes=int(record["manifest_length"]),
                sequence=int(record["sequence_number"]),
                entries=int(record["added_files_count"]) + int(record["existing_files_count"]),
            )
            for record in _records(content)
        )


def read_entries(paths: TablePaths, refs: Iterable[ManifestRef], memory: ManifestMemory) -> Iterator[Entry]:
    """All live entries of these manifests.

    Raises:
        SourceUnreadable: a manifest is missing or damaged.
    """
    refs = tuple(refs)
    read = {}
    for ref in refs:
        entries = memory.get(ref)
        if entries is None:
            entries = read[ref] = _read_manifest(paths, ref)
        yield from entries
    memory.keep(refs, read)


def _read_manifest(paths: TablePaths, ref: ManifestRef) -> tuple[Entry, ...]:
    path = paths.table_dir / ref.name
    content = _read_bytes(path)
    with _damage_named(path):
        if len(content) != ref.bytes:
            raise ValueError(f"it has {len(content)} bytes, the manifest list says {ref.bytes}")
        entries = tuple(_entry(paths, ref, record) for record in _records(content) if record["status"] != _DELETED)
        if len(entries) != ref.entries:
            raise ValueError(f"it names {len(entries)} files, the manifest list says {ref.entries}")
    return entries


def _records(content: bytes) -> Iterator[Any]:
    return iter(fastavro.reader(io.BytesIO(content)))


def _entry(paths: TablePaths, ref: ManifestRef, record: Mapping[str, Any]) -> Entry:
    file = record["data_file"]
    referenced = file.get("referenced_data_file")
    sequence = record["sequence_number"]
    return Entry(
        content=int(file.get("content", _DATA)),
        file_format=str(file["file_format"]),
        name=paths.name_of(file["file_path"]),
        rows=int(file["record_count"]),
        bytes=int(file["file_size_in_bytes"]),
        # A new entry does not know its number yet and inherits the one its manifest was committed with.
        sequence=ref.sequence if sequence is None else int(sequence),
        bounds=_bounds(file),
        referenced=None if referenced is None else paths.name_of(referenced),
        offset=file.get("content_offset"),
        length=file.get("content_size_in_bytes"),
    )


def _bounds(file: Mapping[str, Any]) -> PackedBounds:
    """Bounds of the columns of eight bytes: all a reader that prunes by time needs, at a fraction of the memory."""
    low, high, nulls = (_by_field(file.get(key)) for key in ("lower_bounds", "upper_bounds", "null_value_counts"))
    bounds = {field_id: Bounds(None, None, nulls=True) for field_id, count in nulls.items() if count == file["record_count"]}
    for field_id in low.keys() & high.keys() - bounds.keys():
        if len(low[field_id]) == len(high[field_id]) == _INT64_BYTES:
            bounds[field_id] = Bounds(_int64(low[field_id]), _int64(high[field_id]), nulls=nulls.get(field_id) != 0)
    return pack_bounds(bounds)


def _by_field(pairs: Iterable[Mapping[str, Any]] | None) -> dict[int, Any]:
    return {pair["key"]: pair["value"] for pair in pairs or ()}


def _int64(value: bytes) -> int:
    return int.from_bytes(value, "little", signed=True)


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SourceUnreadable(
            f"'{path}' cannot be read ({error.strerror}); restore it, or let HypAware compact the table"
        ) from None


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    try:
        yield
    except SourceUnreadable:
        raise
    # A decoder given garbage may raise anything at all; whatever it is, the file is damaged.
    except Exception as error:
        raise SourceUnreadable(
            f"'{path}' is damaged ({type(error).__name__}: {error}); restore it, or let HypAware compact the table"
        ) from None
