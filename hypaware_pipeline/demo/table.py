"""One generation of a cache table: its files, and the commits that add data files and deletion vectors.

Why a commit is a function of the metadata it found: it is tried again on the metadata of whoever was faster, as often as it
takes.

Why an older vector's manifest is written again: a data file has one deletion vector at a time. The newer one contains the older
one's positions, and the manifest that listed the older must no longer list it as live.
"""

import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyroaring import BitMap

from hypaware_pipeline.demo import manifests, metadata
from hypaware_pipeline.demo.cursor import Clock, epoch_millis
from hypaware_pipeline.demo.manifests import Record
from hypaware_pipeline.demo.metadata import CommitConflict, Metadata, MetadataStore
from hypaware_pipeline.demo.parquet_files import DataFile, DataFileWriter
from hypaware_pipeline.demo.puffin import read_vector, write_vector
from hypaware_pipeline.demo.table_schema import TableSchema
from hypaware_pipeline.model import Column

_ATTEMPTS: Final = 200
_LONGEST_WAIT_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file of the current snapshot: its record in the manifest, where it lies, and its deleted positions."""

    record: Record
    path: Path
    deleted: BitMap

    @property
    def rows(self) -> int:
        """Rows that are not deleted."""
        return int(self.record["record_count"]) - len(self.deleted)


@dataclass(frozen=True, slots=True)
class _Change:
    """What a commit does: the manifests its snapshot lists besides those it keeps, and its summary's own entries."""

    kept: list[Record]
    added: list[Record]
    operation: str
    summary: dict[str, int]


class Table:
    """A generation directory `table` or `table-<ms>`."""

    def __init__(self, directory: Path, *, clock: Clock, rng: random.Random) -> None:
        self._directory = directory
        self._clock = clock
        self._rng = rng
        self._store = MetadataStore(directory / "metadata", f"file://{directory}")
        self._last_list: tuple[str, list[Record]] = ("", [])

    @classmethod
    def create(cls, directory: Path, head: manifests.TableHead, *, location: str, clock: Clock, rng: random.Random) -> "Table":
        """Make an empty table that says it lies at `location`."""
        (directory / "metadata").mkdir(parents=True)
        (directory / "data").mkdir()
        table = cls(directory, clock=clock, rng=rng)
        table._store.commit(1, metadata.create(location, str(table.new_uuid()), head, epoch_millis(clock())), table._unique())
        return table

    @property
    def schema(self) -> TableSchema:
        """The columns new files are written with."""
        return metadata.current_schema(self._store.latest()[1])

    @property
    def head(self) -> manifests.TableHead:
        """Schema and partition columns."""
        return metadata.table_head(self._store.latest()[1])

    @property
    def snapshot_id(self) -> int | None:
        """The current snapshot."""
        return self._store.latest()[1].get("current-snapshot-id")

    def new_uuid(self) -> uuid.UUID:
        """A random UUID from this writer's randomness."""
        return uuid.UUID(int=self._rng.getrandbits(128), version=4)

    def evolve(self, columns: Sequence[Column]) -> None:
        """Add those of `columns` the table lacks, in a commit of metadata only."""

        def change(found: Metadata) -> Metadata | None:
            schema = metadata.current_schema(found)
            if {column.name for column in columns} <= schema.names:
                return None
            evolved = schema.evolved(columns, last_column_id=found["last-column-id"])
            return metadata.with_schema(found, evolved, epoch_millis(self._clock()))

        self._commit(change)

    def new_file(self, partition: dict[str, str | None]) -> DataFileWriter:
        """Begin a data file of this table; nothing refers to it before `append`."""
        return DataFileWriter(self._directory / "data", self.schema, partition, name=self.new_uuid())

    def append(self, files: Sequence[DataFile]) -> None:
        """Commit data files."""
        snapshot_id = self._new_snapshot_id()
        location, head = self._store.latest()[1]["location"], self.head
        entries = [manifests.data_entry(snapshot_id, file, f"{location}/data/{file.path.name}") for file in files]
        manifest = self._write_manifest("m0", head, "data", snapshot_id, entries)
        summary = {
            "added-data-files": len(files),
            "added-records": sum(file.rows for file in files),
            "added-files-size": sum(file.size for file in files),
            "changed-partition-count": len({tuple(file.partition.values()) for file in files}),
        }
        self._commit_snapshot(snapshot_id, lambda found: _Change(self._listed(found), [manifest], "append", summary))

    def delete(self, positions: Mapping[str, BitMap]) -> None:
        """Commit deleted positions by data file URL, in addition to those deleted before."""
        snapshot_id = self._new_snapshot_id()
        self._commit_snapshot(snapshot_id, lambda found: self._delete_change(found, snapshot_id, positions))

    def expire_snapshots(self, keep: int) -> None:
        """Forget all but the newest `keep` snapshots, as HypAware's maintenance does: no file is deleted."""

        def change(found: Metadata) -> Metadata | None:
            expired = {snapshot["snapshot-id"] for snapshot in found.get("snapshots", [])[:-keep]}
            return metadata.without_snapshots(found, expired, epoch_millis(self._clock())) if expired else None

        self._commit(change)

    def live_files(self) -> list[LiveFile]:
        """The data files of the current snapshot."""
        listed = self._listed(self._store.latest()[1])
        vectors = {entry["data_file"]["referenced_data_file"]: entry["data_file"] for _, entry in self._live(listed, "deletes")}
        return [
            LiveFile(
                entry["data_file"], self._local(entry["data_file"]), self._positions(vectors.get(entry["data_file"]["file_path"]))
            )
            for _, entry in self._live(listed, "data")
        ]

    # --- deletes ------------------------------------------------------------------------------------------------------------

    def _delete_change(self, found: Metadata, snapshot_id: int, positions: Mapping[str, BitMap]) -> _Change:
        listed = self._listed(found)
        location, head = found["location"], self.head
        old = {entry["data_file"]["referenced_data_file"]: entry["data_file"] for _, entry in self._live(listed, "deletes")}
        data_files = {entry["data_file"]["file_path"]: entry["data_file"] for _, entry in self._live(listed, "data")}
        entries = []
        for url, added in positions.items():
            name = f"{self.new_uuid()}-deletes.puffin"
            place = write_vector(self._directory / "data" / name, url, self._positions(old.get(url)) | added)
            entries.append(manifests.vector_entry(snapshot_id, f"{location}/data/{name}", place, data_files[url]))
        superseded = [old[url] for url in positions if url in old]
        kept = self._without_vectors(listed, head, snapshot_id, {record["file_path"] for record in superseded})
        summary = {
            "added-delete-files": len(entries),
            "added-dvs": len(entries),
            "added-position-deletes": sum(entry["data_file"]["record_count"] for entry in entries),
            "added-files-size": sum(entry["data_file"]["file_size_in_bytes"] for entry in entries),
            "changed-partition-count": len({tuple(entry["data_file"]["partition"].values()) for entry in entries}),
        }
        if superseded:
            summary |= {
                "removed-delete-files": len(superseded),
                "removed-dvs": len(superseded),
                "removed-position-deletes": sum(record["record_count"] for record in superseded),
                "removed-files-size": sum(record["file_size_in_bytes"] for record in superseded),
            }
        return _Change(kept, [self._write_manifest("m0", head, "deletes", snapshot_id, entries)], "delete", summary)

    def _without_vectors(self, listed: list[Record], head: manifests.TableHead, snapshot_id: int, gone: set[str]) -> list[Record]:
        """The manifests of a snapshot, those that list a superseded vector written again without it."""
        kept = []
        for manifest in listed:
            entries = [entry for _, entry in self._live([manifest], "deletes")] if manifest["content"] else []
            if not any(entry["data_file"]["file_path"] in gone for entry in entries):
                kept.append(manifest)
                continue
            rest = [
                {**entry, "status": manifests.STATUS_EXISTING} for entry in entries if entry["data_file"]["file_path"] not in gone
            ]
            if rest:
                rewritten = self._write_manifest(f"r{len(kept)}", head, "deletes", snapshot_id, rest)
                kept.append({**rewritten, "min_sequence_number": min(entry["sequence_number"] for entry in rest)})
        return kept

    def _positions(self, vector: Record | None) -> BitMap:
        if vector is None:
            return BitMap()
        return read_vector(self._local(vector), vector["content_offset"], vector["content_size_in_bytes"])

    # --- reading what is there ----------------------------------------------------------------------------------------------

    def _listed(self, found: Metadata) -> list[Record]:
        """The manifests of the current snapshot. Those of the last commit are remembered: the list of a long history is long."""
        snapshot = metadata.current_snapshot(found)
        if snapshot is None:
            return []
        url = snapshot["manifest-list"]
        if url != self._last_list[0]:
            self._last_list = (url, manifests.read_records(self._metadata_file(url)))
        return self._last_list[1]

    def _live(self, listed: Sequence[Record], content: manifests.Content) -> Iterator[tuple[Record, Record]]:
        """The live entries of manifests of one kind, with what they inherit, each with its manifest."""
        wanted = manifests.CONTENT_DATA if content == "data" else manifests.CONTENT_DELETES
        for manifest in listed:
            if manifest["content"] != wanted:
                continue
            for entry in manifests.read_records(self._metadata_file(manifest["manifest_path"])):
                if entry["status"] != manifests.STATUS_DELETED:
                    for key in ("sequence_number", "file_sequence_number"):
                        entry[key] = manifest["sequence_number"] if entry[key] is None else entry[key]
                    yield manifest, entry

    def _metadata_file(self, url: str) -> Path:
        # By name: the cache may have been moved since.
        return self._directory / "metadata" / url.rsplit("/", 1)[1]

    def _local(self, record: Record) -> Path:
        return self._directory / "data" / str(record["file_path"]).rsplit("/", 1)[1]

    # --- commits ------------------------------------------------------------------------------------------------------------

    def _write_manifest(
        self, suffix: str, head: manifests.TableHead, content: manifests.Content, snapshot_id: int, entries: Sequence[Record]
    ) -> Record:
        name = f"{self.new_uuid()}-{suffix}.avro"
        url = f"{self._store.latest()[1]['location']}/metadata/{name}"
        return manifests.write_manifest(self._directory / "metadata" / name, url, head, content, snapshot_id, entries)

    def _commit_snapshot(self, snapshot_id: int, change: Callable[[Metadata], _Change]) -> None:
        def next_metadata(found: Metadata) -> Metadata:
            made = change(found)
            sequence_number = found["last-sequence-number"] + 1
            name = f"snap-{snapshot_id}-1-{self.new_uuid()}.avro"
            placed = [_placed(manifest, sequence_number, found["next-row-id"]) for manifest in made.added]
            kept = [_placed(manifest, sequence_number, None) for manifest in made.kept]
            listed = [*kept, *placed]
            manifests.write_manifest_list(self._directory / "metadata" / name, snapshot_id, sequence_number, listed)
            self._last_list = (f"{found['location']}/metadata/{name}", listed)
            snapshot = {
                "snapshot-id": snapshot_id,
                "sequence-number": sequence_number,
                "timestamp-ms": epoch_millis(self._clock()),
                "manifest-list": self._last_list[0],
                "summary": _summary(made, metadata.current_snapshot(found)),
            }
            return metadata.with_snapshot(found, snapshot)

        self._commit(next_metadata)

    def _commit(self, change: Callable[[Metadata], Metadata | None]) -> None:
        for _ in range(_ATTEMPTS):
            version, found = self._store.latest()
            changed = change(found)
            if changed is None:
                return
            try:
                self._store.commit(version + 1, changed, self._unique())
            except CommitConflict:
                time.sleep(self._rng.random() * _LONGEST_WAIT_SECONDS)
            else:
                return
        raise TimeoutError(f"{self._directory}: other writers were faster {_ATTEMPTS} times")

    def _new_snapshot_id(self) -> int:
        return self._rng.getrandbits(53)

    def _unique(self) -> str:
        return f"{epoch_millis(self._clock())}.{self._rng.getrandbits(40):x}"


def _placed(manifest: Record, sequence_number: int, next_row_id: int | None) -> Record:
    """A manifest's entry in the list of the commit that wrote it; one that was listed before is as it was."""
    if "sequence_number" in manifest:
        return manifest
    placed = {"min_sequence_number": sequence_number, **manifest, "sequence_number": sequence_number}
    if manifest["content"] == manifests.CONTENT_DATA:
        placed["first_row_id"] = next_row_id
    return placed


def _summary(change: _Change, parent: Metadata | None) -> dict[str, str]:
    """A snapshot's summary: what it did, and the totals after it. HypAware does not lower `total-records` by deletions."""
    before: Mapping[str, Any] = parent["summary"] if parent else {}
    done = change.summary

    def total(name: str, added: str, removed: str) -> int:
        return int(before.get(name, 0)) + done.get(added, 0) - done.get(removed, 0)

    totals = {
        "total-records": total("total-records", "added-records", "deleted-records"),
        "total-files-size": total("total-files-size", "added-files-size", "removed-files-size"),
        "total-data-files": total("total-data-files", "added-data-files", "deleted-data-files"),
        "total-delete-files": total("total-delete-files", "added-delete-files", "removed-delete-files"),
        "total-position-deletes": total("total-position-deletes", "added-position-deletes", "removed-position-deletes"),
        "total-equality-deletes": 0,
    }
    return {"operation": change.operation, **{key: str(value) for key, value in {**done, **totals}.items()}}
