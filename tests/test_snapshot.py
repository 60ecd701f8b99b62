"""Pinning one source: snapshot, live files, deletion vectors, and what is damaged or lies elsewhere."""

import datetime as dt
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import fastavro
import pytest

from hypaware_pipeline.cache import snapshot
from hypaware_pipeline.cache.deletion_vectors import deleted_positions
from hypaware_pipeline.cache.layout import SourceLocation, source_locations
from hypaware_pipeline.cache.manifests import ManifestMemory, TablePaths
from hypaware_pipeline.cache.snapshot import DayBounds, SourcePin, pin_source, source_version, table_history
from hypaware_pipeline.errors import SourceUnreadable
from hypaware_pipeline.model import Column, ColumnType, DatasetName
from tests.builders import a_cache

DATA = Path(__file__).parent / "data"


class Source:
    """A copied source whose table can be edited."""

    def __init__(self, tmp_path: Path, cache: str, dataset: str, source: str) -> None:
        self.root = tmp_path / "a moved cache"
        self.directory = self.root / "datasets" / dataset / f"source={source}"
        shutil.copytree(DATA / cache / "datasets" / dataset / f"source={source}", self.directory)
        (self.location,) = source_locations(self.root, DatasetName(dataset))

    @property
    def cursor(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads((self.directory / "cursor.json").read_text())
        return value

    def set_cursor(self, **changes: object) -> None:
        (self.directory / "cursor.json").write_text(json.dumps({**self.cursor, **changes}))

    @property
    def table(self) -> Path:
        return self.directory / self.cursor["tableDir"]

    @property
    def metadata_path(self) -> Path:
        return max(self.table.glob("metadata/v*.metadata.json"), key=lambda path: int(path.name[1:].split(".")[0]))

    @property
    def metadata(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.metadata_path.read_text())
        return value

    def edit_metadata(self, change: Callable[[dict[str, Any]], object]) -> None:
        value = self.metadata
        change(value)
        self.metadata_path.write_text(json.dumps(value))

    @property
    def manifest_list(self) -> Path:
        current = self.metadata["current-snapshot-id"]
        (path,) = self.table.glob(f"metadata/snap-{current}-*.avro")
        return path

    def manifests(self) -> list[Path]:
        return [self.local(record["manifest_path"]) for record in records(self.manifest_list)]

    def local(self, url: str) -> Path:
        return self.table / url.rpartition(f"/{self.table.name}/")[2]

    def edit_entries(self, manifest: Path, change: Callable[[dict[str, Any]], object]) -> None:
        """Change every entry of a manifest, and its length in the manifest list."""
        rewrite(manifest, change)
        size = manifest.stat().st_size
        rewrite(
            self.manifest_list,
            lambda item: item.update(manifest_length=size) if self.local(item["manifest_path"]) == manifest else None,
        )

    def pin(self) -> SourcePin:
        return pin_source(self.location, ManifestMemory(None))


def records(path: Path) -> list[dict[str, Any]]:
    with path.open("rb") as file:
        return [dict(record) for record in fastavro.reader(file)]  # type: ignore[call-overload]


def rewrite(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    with path.open("rb") as file:
        reader = fastavro.reader(file)
        schema, content = reader.writer_schema, list(reader)
    for record in content:
        change(record)  # type: ignore[arg-type]
    with path.open("wb") as file:
        fastavro.writer(file, schema, content)


@pytest.fixture
def logs(tmp_path: Path) -> Source:
    return Source(tmp_path, "lived", "logs", "unknown")


@pytest.fixture
def plain_logs(tmp_path: Path) -> Source:
    return Source(tmp_path, "basic", "logs", "unknown")


def live_rows(pin: SourcePin) -> int:
    return sum(file.rows - (file.deletion.rows if file.deletion else 0) for file in pin.files)


# --- what is pinned -------------------------------------------------------------------------------------------------------------


def test_a_moved_cache_is_pinned_where_it_lies_now(logs: Source) -> None:
    pin = logs.pin()
    assert live_rows(pin) == 178
    assert all(file.path.is_file() and file.path.is_relative_to(logs.table) for file in pin.files)
    assert pin.snapshot_id == 6391709307803114
    assert pin.table_uuid == "aee1ed79-fc2e-46c2-862e-bc846ad1c9fd"
    assert pin.retention_cutoff_ms == 1780401600000


def test_all_snapshots_are_told_with_the_one_before_each(logs: Source) -> None:
    pin = logs.pin()
    told = [(item["snapshot-id"], item.get("parent-snapshot-id"), item["sequence-number"]) for item in logs.metadata["snapshots"]]
    assert [(each.id, each.parent_id, each.sequence_number) for each in pin.snapshots] == told
    assert len(told) > 2
    assert pin.snapshots[-1].id == pin.snapshot_id
    assert table_history(pin.table_dir) == pin.history


def test_the_table_before_the_last_compaction_is_told(logs: Source) -> None:
    assert logs.pin().previous_table == "table"


def test_a_table_that_was_never_compacted_has_none_before_it(plain_logs: Source) -> None:
    assert plain_logs.pin().previous_table is None


def test_a_directory_without_a_table_has_no_history(tmp_path: Path) -> None:
    assert table_history(tmp_path / "nowhere") is None
    (tmp_path / "metadata").mkdir()
    assert table_history(tmp_path) is None


def test_the_deletion_vector_of_a_file_names_its_deleted_rows(logs: Source) -> None:
    (deletion,) = (file.deletion for file in logs.pin().files if file.deletion)
    positions = deleted_positions(deletion)
    assert len(positions) == deletion.rows == 27
    assert positions[0] == 0
    assert positions[-1] == 0x8D


def test_columns_are_those_of_the_table_without_internal_ones(logs: Source) -> None:
    columns = logs.pin().columns
    assert columns[:2] == (Column("serviceName", ColumnType.STRING), Column("timestamp", ColumnType.TIMESTAMP))
    assert Column("body", ColumnType.JSON) in columns
    assert len(columns) == 15


def test_bounds_of_a_timestamp_are_days(plain_logs: Source) -> None:
    pin = plain_logs.pin()
    days = {pin.day_bounds(file, "timestamp") for file in pin.files}
    assert DayBounds((20609, 20609), nulls=False) in days
    assert pin.day_bounds(pin.files[0], "serviceName") is None


def test_rows_were_last_removed_by_the_newest_deletion_or_the_compaction_after_it(logs: Source) -> None:
    deleted_at = dt.datetime.fromtimestamp(1795951643.744, tz=dt.UTC)
    assert logs.pin().removed_at == deleted_at
    compacted_at = deleted_at + dt.timedelta(hours=1)
    logs.set_cursor(compaction={"compactedAt": compacted_at.isoformat()})
    assert logs.pin().removed_at == compacted_at


def test_a_table_that_only_grew_lost_no_rows(plain_logs: Source) -> None:
    assert plain_logs.pin().removed_at is None


def test_the_highest_version_is_read_by_number_and_the_hint_is_not(plain_logs: Source) -> None:
    metadata = plain_logs.table / "metadata"
    (metadata / "v6.metadata.json").rename(metadata / "v10.metadata.json")
    (metadata / "v5.metadata.json").rename(metadata / "v9.metadata.json")
    (metadata / "version-hint.text").write_text("2")
    pin = plain_logs.pin()
    assert pin.metadata_path == metadata / "v10.metadata.json"
    assert live_rows(pin) == 200


def test_a_lost_newest_metadata_file_is_an_error(plain_logs: Source) -> None:
    """The one before it was read in its place: rows of the last flush vanished, purged ones came back, and nothing was said."""
    metadata = plain_logs.table / "metadata"
    newest = max(metadata.glob("v*.metadata.json"))
    newest.unlink()
    with pytest.raises(SourceUnreadable, match=rf"has lost {newest.name}"):
        plain_logs.pin()


@pytest.mark.parametrize("hint", [b"", b"six", b"\xff", b"1" * 5000])
def test_an_illegible_hint_says_nothing(plain_logs: Source, hint: bytes) -> None:
    (plain_logs.table / "metadata" / "version-hint.text").write_bytes(hint)
    assert live_rows(plain_logs.pin()) == 200


def test_of_two_deletion_vectors_of_a_file_the_newer_counts(logs: Source) -> None:
    """The newer one contains the older: applying the older would bring deleted rows back."""
    (manifest,) = (path for path in logs.manifests() if any(item["data_file"]["content"] == 1 for item in records(path)))
    older = manifest.with_name("older-m0.avro")
    shutil.copy(manifest, older)
    rewrite(older, lambda item: item["data_file"].update(record_count=1))
    with logs.manifest_list.open("rb") as file:
        reader = fastavro.reader(file)
        schema, content = reader.writer_schema, [dict(record) for record in reader]  # type: ignore[call-overload]
    (newer,) = (item for item in content if logs.local(item["manifest_path"]) == manifest)
    copied = {
        **newer,
        "manifest_path": newer["manifest_path"].replace(manifest.name, older.name),
        "manifest_length": older.stat().st_size,
        "sequence_number": newer["sequence_number"] - 1,
    }
    for order in ([*content, copied], [copied, *content]):
        with logs.manifest_list.open("wb") as file:
            fastavro.writer(file, schema, order)
        assert live_rows(logs.pin()) == 178


def test_a_deletion_vector_older_than_the_data_file_does_not_apply(logs: Source) -> None:
    rewrite(logs.manifest_list, lambda item: item.update(sequence_number=0) if item["content"] == 1 else None)
    assert live_rows(logs.pin()) == 205


def test_entries_a_manifest_marks_deleted_are_not_live(plain_logs: Source) -> None:
    (manifest, *_) = plain_logs.manifests()
    plain_logs.edit_entries(manifest, lambda item: item.update(status=2))
    rewrite(
        plain_logs.manifest_list,
        lambda item: item.update(added_files_count=0) if plain_logs.local(item["manifest_path"]) == manifest else None,
    )
    assert live_rows(plain_logs.pin()) == 160


def test_a_table_nothing_was_committed_to_is_empty(plain_logs: Source) -> None:
    for absent in (None, -1):
        plain_logs.edit_metadata(lambda value, absent=absent: value.update({"current-snapshot-id": absent}))  # type: ignore[misc]
        pin = plain_logs.pin()
        assert (pin.files, pin.snapshot_id) == ((), None)
        assert len(pin.columns) == 15


def test_a_table_without_the_key_of_snapshots_is_empty(plain_logs: Source) -> None:
    plain_logs.edit_metadata(lambda value: (value.pop("snapshots"), value.pop("current-snapshot-id")))
    assert plain_logs.pin().files == ()


def test_a_source_whose_table_is_not_written_yet_is_empty(plain_logs: Source) -> None:
    shutil.rmtree(plain_logs.table)
    plain_logs.set_cursor(rowCount=0)
    pin = plain_logs.pin()
    assert (pin.files, pin.columns, pin.metadata_path) == ((), (), None)


def test_manifests_are_read_once(logs: Source, tmp_path: Path) -> None:
    first = pin_source(logs.location, ManifestMemory(tmp_path / "memory"))
    for manifest in logs.manifests():
        manifest.unlink()
    assert pin_source(logs.location, ManifestMemory(tmp_path / "memory")) == first


def test_a_flush_reads_its_own_manifest_alone_and_what_was_replaced_is_forgotten(tmp_path: Path) -> None:
    cache, memory = a_cache(tmp_path / "cache").with_day("2026-06-01"), tmp_path / "memory"
    (location,) = source_locations(cache.root, DatasetName("logs"))
    pin_source(location, ManifestMemory(memory))
    (first,) = cache.table_directory().glob("metadata/*-m0.avro")
    cache.with_day("2026-06-02")
    away = first.rename(tmp_path / "away")
    pin = pin_source(location, ManifestMemory(memory))
    assert {pin.day_bounds(file, "timestamp") for file in pin.files} == {
        DayBounds((day, day), nulls=False) for day in (20605, 20606)
    }
    away.rename(first)
    cache.writer.compact("logs", "unknown")
    pin_source(location, ManifestMemory(memory))
    assert first.name not in memory.read_text(errors="replace")


def test_a_damaged_memory_of_manifests_is_read_again(logs: Source, tmp_path: Path) -> None:
    memory = tmp_path / "memory"
    first = pin_source(logs.location, ManifestMemory(memory))
    content = memory.read_bytes()
    for damaged in (b"", content[:-1], content.replace(b"parquet", b"parquex", 1)):
        memory.write_bytes(damaged)
        assert pin_source(logs.location, ManifestMemory(memory)) == first


# --- paths ----------------------------------------------------------------------------------------------------------------------


def rewrite_urls(source: Source, change: Callable[[str], str]) -> None:
    """Change every URL of the table, as if another machine had written it."""

    def in_entry(item: dict[str, Any]) -> None:
        for key in ("file_path", "referenced_data_file"):
            if item["data_file"].get(key):
                item["data_file"][key] = change(item["data_file"][key])

    def in_list(item: dict[str, Any]) -> None:
        item["manifest_length"] = source.local(item["manifest_path"]).stat().st_size
        item["manifest_path"] = change(item["manifest_path"])

    for manifest in source.manifests():
        rewrite(manifest, in_entry)
    rewrite(source.manifest_list, in_list)

    def in_metadata(value: dict[str, Any]) -> None:
        value["location"] = change(value["location"])
        for item in value["snapshots"]:
            item["manifest-list"] = change(item["manifest-list"])

    source.edit_metadata(in_metadata)


@pytest.mark.parametrize("name", ["a 'b' \"c\"", "x,y", "naïve-日本", "50%25", "two\nlines", "table", "100% sure"])
@pytest.mark.parametrize("encode", [quote, str], ids=["encoded", "raw"])
def test_a_hostile_source_name_in_urls_leads_to_its_files(logs: Source, name: str, encode: Callable[[str], str]) -> None:
    rewrite_urls(logs, lambda url: url.replace("source=unknown", encode(f"source={name}")))
    moved = logs.directory.with_name(f"source={name}")
    logs.directory.rename(moved)
    (location,) = source_locations(logs.root, DatasetName("logs"))
    pin = pin_source(location, ManifestMemory(None))
    assert live_rows(pin) == 178
    assert all(file.path.is_file() for file in pin.files)


def test_urls_that_do_not_begin_with_the_tables_own_are_cut_at_its_directory(logs: Source) -> None:
    logs.edit_metadata(lambda value: value.update(location="file:///somewhere/else/entirely"))
    assert live_rows(logs.pin()) == 178


@pytest.mark.parametrize(
    "url",
    [
        "file:///home/hyp/other/data/x.parquet",
        "file:///t/table/../../x.parquet",
        "file:///t/table/%2e%2e/x.parquet",
        "file:///t/table//etc/passwd",
        "file:///t/table/",
        "/etc/passwd",
        "",
    ],
)
def test_nothing_outside_the_table_is_ever_read(url: str) -> None:
    with pytest.raises(SourceUnreadable, match="outside the table"):
        TablePaths(Path("/c/table"), "file:///t/table").name_of(url)


# --- damage ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        *("", "{", '{"format-version": 3}', "[]", "null", '{"current-schema-id": 0, "schemas": 7}'),
        pytest.param("[" * 100_000, id="deep"),
    ],
)
def test_a_torn_newest_metadata_is_an_error_and_no_older_one_is_read(logs: Source, content: str) -> None:
    """An older one would show a table with fewer rows."""
    name = logs.metadata_path.name
    logs.metadata_path.write_text(content)
    with pytest.raises(SourceUnreadable, match=rf"{name}' is torn"):
        logs.pin()


def test_a_cursor_that_names_a_directory_that_is_gone_is_an_error(logs: Source) -> None:
    """The old generation still lies beside it, and must not be read in its place."""
    assert (logs.directory / "table" / "metadata").is_dir()
    name = logs.table.name
    shutil.rmtree(logs.table)
    with pytest.raises(SourceUnreadable, match=name):
        logs.pin()
    logs.set_cursor(rowCount=0)
    with pytest.raises(SourceUnreadable, match=rf"{name}' is gone"):
        logs.pin()


def test_a_table_whose_metadata_is_gone_is_an_error(plain_logs: Source) -> None:
    shutil.rmtree(plain_logs.table / "metadata")
    with pytest.raises(SourceUnreadable, match="holds no table, though"):
        plain_logs.pin()


def test_metadata_files_under_unknown_names_are_an_error(plain_logs: Source) -> None:
    for path in plain_logs.table.glob("metadata/v*.metadata.json"):
        path.rename(path.with_name(f"00001-{path.name[1:]}"))
    with pytest.raises(SourceUnreadable, match="names this reader does not know"):
        plain_logs.pin()


@pytest.mark.parametrize("content", [b"", b"garbage" * 99, b"Obj\x01", b"\x00" * 4096])
def test_a_garbage_manifest_list_or_manifest_is_named(logs: Source, content: bytes) -> None:
    whole = logs.manifest_list.read_bytes()
    (manifest, *_) = logs.manifests()
    logs.manifest_list.write_bytes(content)
    with pytest.raises(SourceUnreadable, match=logs.manifest_list.name):
        logs.pin()
    logs.manifest_list.write_bytes(whole)
    manifest.write_bytes(content)
    with pytest.raises(SourceUnreadable, match=manifest.name):
        logs.pin()


def test_a_manifest_truncated_anywhere_is_noticed(plain_logs: Source) -> None:
    """Cut between two blocks it is valid Avro with fewer files."""
    (manifest, *_) = plain_logs.manifests()
    whole = manifest.read_bytes()
    for length in range(0, len(whole), 97):
        manifest.write_bytes(whole[:length])
        with pytest.raises(SourceUnreadable, match=manifest.name):
            plain_logs.pin()


def test_a_manifest_with_fewer_files_than_its_list_says_is_noticed(plain_logs: Source) -> None:
    (manifest, *_) = plain_logs.manifests()
    plain_logs.edit_entries(manifest, lambda item: item.update(status=2))
    with pytest.raises(SourceUnreadable, match="it names 0 files, the manifest list says 1"):
        plain_logs.pin()


def test_a_manifest_that_is_gone_is_named(logs: Source) -> None:
    (manifest, *_) = logs.manifests()
    manifest.unlink()
    with pytest.raises(SourceUnreadable, match=rf"{manifest.name}' cannot be read"):
        logs.pin()


@pytest.mark.parametrize("change", [{"content": 2}, {"content": 1}, {"content": 1, "file_format": "PUFFIN"}])
def test_deletions_that_are_no_deletion_vector_are_an_error(logs: Source, change: dict[str, Any]) -> None:
    """Ignored, they would bring deleted rows back."""
    logs.edit_entries(logs.manifests()[0], lambda item: item["data_file"].update(change))
    with pytest.raises(SourceUnreadable, match="no deletion vector of one data file"):
        logs.pin()


def test_a_data_file_that_is_no_parquet_is_an_error(logs: Source) -> None:
    logs.edit_entries(logs.manifests()[0], lambda item: item["data_file"].update(file_format="ORC"))
    with pytest.raises(SourceUnreadable, match="only Parquet"):
        logs.pin()


@pytest.mark.parametrize(
    "kind", ["geometry", "uuid", {"type": "list", "element-id": 9, "element": "int", "element-required": True}]
)
def test_a_column_of_a_type_that_cannot_be_exported_is_named(logs: Source, kind: object) -> None:
    logs.edit_metadata(lambda value: value["schemas"][0]["fields"][0].update(type=kind))
    with pytest.raises(SourceUnreadable, match="column 'serviceName' has type"):
        logs.pin()


@pytest.mark.parametrize(
    "damage",
    [
        lambda blob: blob[:0],
        lambda blob: blob[:40],
        lambda blob: b"\x00" * len(blob),
        lambda blob: blob[:30] + bytes([blob[30] ^ 1]) + blob[31:],
    ],
    ids=["empty", "truncated", "zeroed", "one bit"],
)
def test_a_damaged_deletion_vector_is_never_applied(logs: Source, damage: Callable[[bytes], bytes]) -> None:
    (deletion,) = (file.deletion for file in logs.pin().files if file.deletion)
    deletion.path.write_bytes(damage(deletion.path.read_bytes()))
    with pytest.raises(SourceUnreadable, match=rf"{deletion.path.name}' is damaged"):
        deleted_positions(deletion)


def test_a_deletion_vector_that_deletes_another_number_of_rows_is_damage(logs: Source) -> None:
    (manifest,) = (path for path in logs.manifests() if any(item["data_file"]["content"] == 1 for item in records(path)))
    logs.edit_entries(manifest, lambda item: item["data_file"].update(record_count=26))
    (deletion,) = (file.deletion for file in logs.pin().files if file.deletion)
    with pytest.raises(SourceUnreadable, match="it deletes 27 rows, its manifest says 26"):
        deleted_positions(deletion)


# --- HypAware at work meanwhile -------------------------------------------------------------------------------------------------


def test_a_swap_between_cursor_and_metadata_is_followed(logs: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """The generation the cursor named is gone when it is read; the source has been compacted, not lost."""
    read = snapshot._read_metadata
    old, new = logs.table, logs.directory / "table-1999999999999"

    def swapped_first(path: Path) -> Any:
        if old.exists():
            old.rename(new)
            logs.set_cursor(tableDir=new.name)
        return read(path)

    monkeypatch.setattr(snapshot, "_read_metadata", swapped_first)
    pin = logs.pin()
    assert pin.table_dir == new
    assert live_rows(pin) == 178


def test_a_source_that_never_stops_changing_is_given_up(logs: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    generation = iter(range(1, 100))

    def always_swapped(path: Path) -> Any:
        new = logs.directory / f"table-{next(generation)}"
        logs.table.rename(new)
        logs.set_cursor(tableDir=new.name)
        raise SourceUnreadable(f"'{path}' is gone")

    monkeypatch.setattr(snapshot, "_read_metadata", always_swapped)
    with pytest.raises(SourceUnreadable, match="is gone"):
        logs.pin()


def test_a_cursor_that_follows_its_first_table_is_waited_for(logs: Source) -> None:
    """HypAware commits a new source's first rows before it writes the cursor."""
    cursor = logs.cursor
    (logs.directory / "cursor.json").unlink()
    pin = pin_source(
        logs.location,
        ManifestMemory(None),
        sleep=lambda _: (logs.directory / "cursor.json").write_text(json.dumps(cursor)) and None,
    )
    assert live_rows(pin) == 178


def test_a_cursor_that_never_comes_is_an_error(logs: Source) -> None:
    (logs.directory / "cursor.json").unlink()
    slept: list[float] = []
    with pytest.raises(SourceUnreadable, match="is missing beside table directories"):
        pin_source(logs.location, ManifestMemory(None), sleep=slept.append)
    assert 0 < sum(slept) < 1


def test_a_version_changes_with_table_retention_and_flush_and_with_nothing_else(logs: Source) -> None:
    before = source_version(logs.location)
    logs.set_cursor(rowCount=9999)
    assert source_version(logs.location) == before
    shutil.copy(logs.metadata_path, logs.metadata_path.with_name("v77.metadata.json"))
    flushed = source_version(logs.location)
    assert flushed != before
    logs.set_cursor(retention={"lastCutoffMs": 1})
    assert source_version(logs.location) != flushed


def test_a_legacy_table_lies_in_the_partition_directory(logs: Source) -> None:
    directory = logs.root / "datasets" / "old" / "date=2026-06-02"
    directory.parent.mkdir()
    logs.table.rename(directory)
    (location,) = source_locations(logs.root, DatasetName("old"))
    assert location == SourceLocation(DatasetName("old"), location.source, directory)
    assert live_rows(pin_source(location, ManifestMemory(None))) == 178


def test_an_epoch_table_lies_in_its_epoch(logs: Source) -> None:
    logs.table.rename(logs.directory / "epoch=4")
    (logs.directory / "cursor.json").write_text(json.dumps({"epoch": 4, "rowCount": 178, "compaction": None}))
    assert live_rows(logs.pin()) == 178
