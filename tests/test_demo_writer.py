"""The writer is proved from two sides: it writes what HypAware wrote, and readers that are not ours read what it writes."""

import datetime as dt
import gzip
import hashlib
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import load_file_io
from pyiceberg.table import StaticTable
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.puffin import PuffinFile

from hypaware_pipeline.demo import mishaps
from hypaware_pipeline.demo.bulk import conversation_table, log_table
from hypaware_pipeline.demo.generate import demo_cache
from hypaware_pipeline.demo.parquet_files import DataFileWriter, read_data_file
from hypaware_pipeline.demo.puffin import read_vector, write_vector
from hypaware_pipeline.demo.table_schema import TableSchema, declared_columns
from hypaware_pipeline.demo.variant_encoding import BigInt, encode_values
from hypaware_pipeline.demo.writer import CacheWriter
from hypaware_pipeline.model import Column, ColumnType
from tests.builders import CacheBuilder, a_cache, a_log, a_message

DATA = Path(__file__).parent / "data"
MIDNIGHT = dt.datetime(2026, 6, 3, tzinfo=dt.UTC)


# --- readers that are not ours --------------------------------------------------------------------------------------------------


def planned(table: Path) -> list[tuple[Path, list[int]]]:
    """What pyiceberg plans for a table: data files, each with its deleted positions. The type it does not know is swapped."""
    path = table / "metadata" / f"v{(table / 'metadata' / 'version-hint.text').read_text()}.metadata.json"
    parsed = TableMetadataUtil.parse_raw(path.read_text().replace('"variant"', '"binary"'))
    known = StaticTable(("t",), parsed, str(path), load_file_io(), NoopCatalog("none"))
    plan = []
    for task in known.scan().plan_files():
        puffins = [PuffinFile(Path(file.file_path.removeprefix("file://")).read_bytes()) for file in task.delete_files]
        vectors = [vector for puffin in puffins for vector in deletion_vectors_from_puffin_file(puffin)]
        # It plans every vector of a partition for each of its files.
        vectors = [vector for vector in vectors if vector.referenced_data_file == task.file.file_path]
        assert len(vectors) <= 1
        deleted = [position for vector in vectors for position in vector.to_vector().to_pylist()]
        plan.append((Path(task.file.file_path.removeprefix("file://")), deleted))
    return plan


def rows_of(table: Path) -> list[dict[str, Any]]:
    """The live rows by pyiceberg's plan and DuckDB's Parquet reader; VARIANT columns as parsed JSON."""
    rows = []
    for path, deleted in planned(table):
        with duckdb.connect() as connection:
            read = f"read_parquet('{path}', hive_partitioning = false)"
            described = connection.sql(f"DESCRIBE SELECT * FROM {read}").fetchall()
            variants = [name for name, kind, *_ in described if kind == "VARIANT"]
            replaced = ", ".join(f'"{name}"::JSON::VARCHAR AS "{name}"' for name in variants)
            select = f"SELECT * REPLACE ({replaced}) FROM {read}" if replaced else f"FROM {read}"
            found = connection.sql(select).to_arrow_table().to_pylist()
        for position in sorted(set(range(len(found))) - set(deleted)):
            row = found[position]
            rows.append({**row, **{name: json.loads(row[name]) for name in variants if row[name] is not None}})
    return rows


def seqs_of(cache: CacheBuilder, dataset: str = "logs", source: str = "unknown") -> list[int]:
    return [row["_hyp_ingest_seq"] for row in rows_of(cache.table_directory(dataset, source))]


def avro(path: Path) -> tuple[dict[str, str], Any, list[Any]]:
    """The metadata of an Avro file but its schema, the schema, the records."""
    with path.open("rb") as file:
        reader = fastavro.reader(file)
        schema = json.loads(reader.metadata["avro.schema"])
        return {key: value for key, value in reader.metadata.items() if key != "avro.schema"}, schema, list(reader)


# --- as HypAware writes ---------------------------------------------------------------------------------------------------------


def real_tables() -> Iterator[Path]:
    for cache in ("basic", "lived"):
        yield from sorted(path.parent for path in (DATA / cache).glob("datasets/*/source=*/table*/metadata"))


def a_table_like(real: Path, root: Path) -> CacheBuilder:
    """Our cache with the same operations in the last commits: two flushes, a deletion."""
    dataset = real.parent.parent.name
    make = a_message if dataset == "ai_gateway_messages" else a_log
    rows = [make("2026-06-01", number) for number in range(4)]
    cache = a_cache(root).with_rows(dataset, rows).with_rows(dataset, rows)
    cache.writer.delete(dataset, "unknown", pc.field("_hyp_ingest_seq") == 2)
    return cache


def shape(value: Any) -> Any:
    """A JSON document with its leaves replaced by their types."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


GATEWAY = "datasets/ai_gateway_messages/source=claude/table"
LIVED_LOGS = "datasets/logs/source=unknown/table-1795951642174"


@pytest.mark.parametrize("real", [f"lived/{GATEWAY}", f"lived/{LIVED_LOGS}"])
def test_table_metadata_has_the_keys_types_and_order_of_the_real_one(real: str, tmp_path: Path) -> None:
    cache = a_table_like(DATA / real, tmp_path)
    ours = cache.metadata(Path(real).parts[2])
    theirs = [json.loads(path.read_text()) for path in sorted((DATA / real / "metadata").glob("v*.json"))]

    first = next(document for document in theirs if "snapshots" not in document)
    assert shape(ours[0]) == shape(first)
    assert list(ours[0]) == list(first)
    last = max(theirs, key=lambda document: document["last-sequence-number"])
    assert list(ours[-1]) == list(last)
    assert shape({**ours[-1], "snapshots": None}) == shape({**last, "snapshots": None})
    for operation in ("append", "delete"):
        snapshots = [
            next(s for s in document["snapshots"] if s["summary"]["operation"] == operation and "parent-snapshot-id" in s)
            for document in (ours[-1], last)
        ]
        assert shape(snapshots[0]) == shape(snapshots[1])
        assert list(snapshots[0]["summary"]) == list(snapshots[1]["summary"])


@pytest.mark.parametrize("dataset", ["ai_gateway_messages", "logs", "traces", "metrics"])
def test_a_new_table_has_the_schema_and_partitioning_of_the_real_one(dataset: str, tmp_path: Path) -> None:
    real = next((DATA / "basic/datasets" / dataset).glob("source=*/table/metadata/v1.metadata.json"))
    theirs = json.loads(real.read_text())
    row = a_message("2026-06-01") if dataset == "ai_gateway_messages" else {"serviceName": "web"}

    ours = a_cache(tmp_path).with_rows(dataset, [row]).metadata(dataset)[0]

    # The first flush of the real table of conversations brought fewer columns than are declared today.
    names = [field["name"] for field in theirs["schemas"][0]["fields"]]
    assert [(f["name"], f["type"], f["required"]) for f in ours["schemas"][0]["fields"] if f["name"] in names] == [
        (f["name"], f["type"], f["required"]) for f in theirs["schemas"][0]["fields"]
    ]
    assert [field["id"] for field in ours["schemas"][0]["fields"]] == list(range(1, len(ours["schemas"][0]["fields"]) + 1))
    assert [(f["name"], f["field-id"], f["transform"]) for f in ours["partition-specs"][0]["fields"]] == [
        (f["name"], f["field-id"], f["transform"]) for f in theirs["partition-specs"][0]["fields"]
    ]
    assert ours["last-partition-id"] == theirs["last-partition-id"]


@pytest.mark.parametrize("real", [f"lived/{GATEWAY}", f"lived/{LIVED_LOGS}"])
def test_manifests_and_manifest_lists_have_the_avro_schemas_of_the_real_ones(real: str, tmp_path: Path) -> None:
    def described(table: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for path in sorted((table / "metadata").glob("*.avro")):
            metadata, schema, records = avro(path)
            kind = metadata.get("content", "list")
            found[kind] = (sorted(metadata), schema)
            for record in records:
                described = record.get("data_file", record)
                key = f"nothing in {kind} of {described['content']}"
                found[key] = found.get(key, set()) | {name for name, value in described.items() if value is None}
        return found

    cache = a_table_like(DATA / real, tmp_path)

    assert described(cache.table_directory(Path(real).parts[2])) == described(DATA / real)


@pytest.mark.parametrize("dataset", ["ai_gateway_messages", "logs", "traces", "metrics"])
def test_data_files_have_the_parquet_schema_of_the_real_ones(dataset: str, tmp_path: Path) -> None:
    def described(path: Path) -> list[Any]:
        query = "SELECT name, type, repetition_type, num_children, field_id, logical_type FROM parquet_schema($1) OFFSET 1"
        rows = duckdb.execute(query, [str(path)]).fetchall()
        return [(*row[:5], str(row[5]).split("(")[0] == "TimestampType") for row in rows]

    real = next((DATA / "basic/datasets" / dataset).glob("source=*/table/data/*.parquet"))
    schema = TableSchema.from_json(json.loads(pq.read_metadata(real).metadata[b"iceberg.schema"]))
    writer = DataFileWriter(tmp_path, schema, {}, name="ours")
    for rows in read_data_file(real, schema):
        writer.write(rows)
    ours = writer.close().path

    assert described(ours) == described(real)
    assert str(pq.ParquetFile(ours).schema).count("(Variant(1))") == str(pq.ParquetFile(real).schema).count("(Variant(1))")
    assert pq.read_metadata(ours).metadata == pq.read_metadata(real).metadata
    assert pq.read_metadata(ours).row_group(0).column(0).compression == "SNAPPY"


def test_the_bounds_and_counts_of_every_real_data_file_come_out_the_same(tmp_path: Path) -> None:
    compared = 0
    for table in real_tables():
        for manifest in (table / "metadata").glob("*-m0.avro"):
            metadata, _, entries = avro(manifest)
            if metadata["content"] != "data":
                continue
            schema = TableSchema.from_json(json.loads(metadata["schema"]))
            for entry in entries:
                theirs = entry["data_file"]
                writer = DataFileWriter(tmp_path, schema, {}, name="ours")
                for rows in read_data_file(table / "data" / theirs["file_path"].rsplit("/", 1)[1], schema):
                    writer.write(rows)
                ours = writer.close()
                for key, found in (("null_value_counts", ours.nulls), ("lower_bounds", ours.lower), ("upper_bounds", ours.upper)):
                    assert found == {pair["key"]: pair["value"] for pair in theirs[key]}, (manifest, key)
                assert ours.rows == theirs["record_count"]
                compared += 1
    assert compared > 50


def test_every_real_deletion_vector_is_written_byte_for_byte(tmp_path: Path) -> None:
    puffins = sorted((DATA / "lived").glob("datasets/*/*/*/data/*.puffin"))
    assert len(puffins) > 5
    for puffin in puffins:
        content = puffin.read_bytes()
        length = int.from_bytes(content[-12:-8], "little")
        blob = json.loads(content[-12 - length : -12])["blobs"][0]
        positions = read_vector(puffin, blob["offset"], blob["length"])

        write_vector(tmp_path / "ours.puffin", blob["properties"]["referenced-data-file"], positions)

        assert (tmp_path / "ours.puffin").read_bytes() == content


def test_every_real_variant_column_is_encoded_byte_for_byte() -> None:
    compared = 0
    for path in sorted(DATA.glob("*/datasets/*/*/*/data/*.parquet")):
        table = pq.ParquetFile(path).read()
        for field in table.schema:
            column = table.column(field.name)
            if not pa.types.is_struct(field.type):
                continue
            texts = duckdb.sql(f"""SELECT "{field.name}"::JSON::VARCHAR FROM read_parquet('{path}')""").fetchall()
            groups = column.combine_chunks()
            stored = groups.field("value").to_pylist()
            dictionaries = set(groups.field("metadata").to_pylist())
            values = [None if raw == b"\x00" else json.loads(text) for (text,), raw in zip(texts, stored, strict=True)]
            if any(has_int64(raw) for raw in stored if raw):
                continue
            metadata, encoded = encode_values(values)
            assert encoded == stored, (path, field.name)
            assert {metadata} == dictionaries, (path, field.name)
            compared += 1
    assert compared > 100


def has_int64(value: bytes) -> bool:
    """Whether an array begins with an int64: what HypAware got as bigints, JSON text cannot tell from other numbers."""
    return value[0] & 3 == 3 and value[1] > 0 and value[2 + value[1] + 1] == 6 << 2


def test_the_files_beside_the_tables_have_the_keys_of_the_real_ones(tmp_path: Path) -> None:
    cache = a_cache(tmp_path).with_day("2026-06-02").with_day("2026-06-04")
    cache.writer.compact("logs", "unknown")
    cache.writer.retention(MIDNIGHT)
    cache.writer.spool("logs", [a_log("2026-06-04")])
    for name in (
        "_hyp_ingest_seq.json",
        "datasets/logs/source=unknown/cursor.json",
        "datasets/logs/all/_hypaware_spool/last-flush.json",
    ):
        ours, theirs = (json.loads((root / name).read_text()) for root in (tmp_path, DATA / "lived"))
        assert shape(ours) == shape(theirs)
        assert list(ours) == list(theirs)
    spools = [(root / "datasets/logs/all/_hypaware_spool/active.jsonl") for root in (tmp_path, DATA / "lived")]
    ours, theirs = (json.loads(path.read_text().splitlines()[0]) for path in spools)
    assert ours["columns"] == theirs["columns"]
    assert list(ours) == list(theirs)
    retired = (cache.source_directory() / "table/.retired").read_text()
    assert len(retired) == len((DATA / "lived/datasets/logs/source=unknown/table/.retired").read_text())


# --- flushes --------------------------------------------------------------------------------------------------------------------


def test_values_come_back_as_they_were_written(tmp_path: Path) -> None:
    values = [
        {"z": 1, "a": [1, -129, 70_000, 0.5, None, True, {"deep": {"deeper": "x" * 70_000}}]},
        "bare text",
        12345678901,
        True,
        [],
        {},
        '\x01 "quoted" café 🙂',
        {f"key {n}": n for n in range(300)},
        list(range(300)),
    ]
    cache = a_cache(tmp_path).with_rows("logs", [a_log("2026-06-01", n, body=value) for n, value in enumerate(values)])

    assert [row["body"] for row in rows_of(cache.table_directory())] == values


def test_an_absent_value_is_a_variant_null_and_a_bigint_stays_one(tmp_path: Path) -> None:
    cache = a_cache(tmp_path).with_rows(
        "logs", [a_log("2026-06-01", body=None), a_log("2026-06-01", body=[BigInt(2**60), 2**60])]
    )
    path = planned(cache.table_directory())[0][0]

    stored = pq.ParquetFile(path).read(["body", "resource"])

    assert stored.column("body")[0].as_py()["value"] == b"\x00"
    assert [value["value"] for value in stored.column("resource").to_pylist()] == [b"\x00", b"\x00"]
    kinds = duckdb.sql(f"SELECT variant_typeof(body[1]), variant_typeof(body[2]) FROM read_parquet('{path}') OFFSET 1").fetchall()
    assert kinds == [("INT64", "DOUBLE")]


def test_the_later_commit_of_a_second_writer_may_carry_lower_numbers(tmp_path: Path) -> None:
    cache = a_cache(tmp_path).with_day("2026-06-01", rows=1)
    other = cache.another_writer()
    other.append("logs", "unknown", [a_log("2026-06-01")])
    cache.with_day("2026-06-01", rows=1)

    assert seqs_of(cache) == [1, 1025, 2]
    assert json.loads((tmp_path / "_hyp_ingest_seq.json").read_text())["nextSeq"] == "2049"


def test_a_flush_larger_than_a_block_takes_several(tmp_path: Path) -> None:
    cache = a_cache(tmp_path).with_day("2026-06-01", rows=3).with_day("2026-06-01", rows=2500)

    assert seqs_of(cache) == list(range(1, 2504))


def test_a_conversation_has_one_file_per_session_directory_and_day(tmp_path: Path) -> None:
    rows = [
        a_message(day, n, session_id=session) for n in range(3) for day in ("2026-06-01", "2026-06-02") for session in ("a", "b")
    ]
    rows.append(a_message("2026-06-01", 9, session_id=""))
    cache = a_cache(tmp_path)

    assert cache.writer.append("ai_gateway_messages", "claude", rows) == 12

    table = cache.table_directory("ai_gateway_messages", "claude")
    assert len(planned(table)) == 4
    assert sorted({(row["session_id"], row["date"]) for row in rows_of(table)}) == [
        (session, day) for session in ("a", "b") for day in ("2026-06-01", "2026-06-02")
    ]


def test_a_conversation_table_takes_new_columns_and_another_drops_them(tmp_path: Path) -> None:
    younger = {"git_remote", "head_sha", "repo_root"}
    declared = declared_columns("ai_gateway_messages") or ()
    older = [column for column in declared if column.name not in younger]
    row = a_message("2026-06-01", git_remote="git@example.com:ada/notes.git")
    cache = a_cache(tmp_path).with_rows("ai_gateway_messages", [row], columns=older).with_rows("ai_gateway_messages", [row])
    cache.with_rows("logs", [a_log("2026-06-01")])
    cache.with_rows(
        "logs",
        [{**a_log("2026-06-01"), "extra": 1}],
        columns=[*(declared_columns("logs") or ()), Column("extra", ColumnType.INT64)],
    )

    theirs = json.loads((DATA / "lived" / GATEWAY / "metadata/v10.metadata.json").read_text())
    ours = cache.metadata("ai_gateway_messages")[-1]
    assert ours["schemas"] == theirs["schemas"]
    assert ours["last-column-id"] == theirs["last-column-id"]
    remotes = [row.get("git_remote") for row in rows_of(cache.table_directory("ai_gateway_messages"))]
    assert remotes == [None, "git@example.com:ada/notes.git"]
    assert all("extra" not in row for row in rows_of(cache.table_directory()))


def test_a_table_from_before_the_sequence_column_never_gets_one(tmp_path: Path) -> None:
    cache = a_cache(tmp_path).with_rows("logs", [a_log("2026-06-01")], with_sequence=False).with_day("2026-06-01")

    assert all("_hyp_ingest_seq" not in row for row in rows_of(cache.table_directory()))


def test_an_open_dataset_and_an_odd_source_have_tables_too(tmp_path: Path) -> None:
    row = {"recorded_at": MIDNIGHT, "n": 1, "share": 0.5, "ok": True, "j": {"a": [1]}, "t": "x"}
    a_cache(tmp_path).with_rows("my events", [row], source='a/b "c", é')
    table = tmp_path / "datasets/my events/source=a_b _c_, é/table"

    assert rows_of(table) == [{**row, "recorded_at": MIDNIGHT, "_hyp_ingest_seq": 1}]


def test_arrow_rows_and_mappings_give_the_same_values(tmp_path: Path) -> None:
    rows = log_table(500, seed=1)
    cache = a_cache(tmp_path).with_rows("logs", rows)
    mappings = [{**row, "body": json.loads(row["body"]), "resource": json.loads(row["resource"])} for row in rows.to_pylist()]
    mappings = [{**row, "attributes": json.loads(row["attributes"])} for row in mappings]
    cache.with_rows("logs", mappings, source="mappings")

    arrow, python = (rows_of(cache.table_directory("logs", source)) for source in ("unknown", "mappings"))
    assert [{**row, "_hyp_ingest_seq": 0} for row in arrow] == [{**row, "_hyp_ingest_seq": 0} for row in python]


def test_bulk_conversations_are_large_and_belong_to_the_dataset(tmp_path: Path) -> None:
    rows = conversation_table(400, seed=1, sessions=4)
    cache = a_cache(tmp_path).with_rows("ai_gateway_messages", rows)

    found = rows_of(cache.table_directory("ai_gateway_messages"))
    assert len(found) == 400
    assert len({row["part_id"] for row in found}) == 400
    assert len(json.dumps(found[0]["tools"])) > 3_000
    assert 1_500 < sum(len(json.dumps({**row, "tools": None}, default=str)) for row in found) / 400 < 4_000


def test_a_flush_can_be_cut_into_many_small_files(tmp_path: Path) -> None:
    cache = a_cache(tmp_path).with_rows("logs", log_table(100, seed=1), max_rows_per_file=1)

    assert len(planned(cache.table_directory())) == 100


def test_a_row_without_a_required_value_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'serviceName' is required and null in 1 of 1 rows"):
        a_cache(tmp_path).with_rows("logs", [{"severityNumber": 1}])


def test_numbers_can_be_given_reserved_or_missing(tmp_path: Path) -> None:
    cache = a_cache(tmp_path)
    reserved = cache.writer.reserve(2)
    cache.with_day("2026-06-01", rows=1)
    rows = [a_log("2026-06-01", number) for number in range(3)]
    cache.with_rows("logs", rows, sequence=[*reserved, None]).with_rows("logs", rows, sequence=[3, 7, 7])

    assert seqs_of(cache) == [3, 1, 2, None, 3, 7, 7]


# --- deletions ------------------------------------------------------------------------------------------------------------------


def test_deletions_come_in_commits_of_five_thousand_rows(tmp_path: Path) -> None:
    cache = a_cache(tmp_path).with_rows("logs", log_table(12_000, seed=1), max_rows_per_file=4_000)
    seen: list[int] = []

    deleted = cache.writer.delete(
        "logs", "unknown", pc.field("_hyp_ingest_seq") <= 11_000, on_commit=lambda: seen.append(len(seqs_of(cache)))
    )

    assert deleted == 11_000
    assert seen == [7_000, 2_000, 1_000]
    assert cache.cursor()["rowCount"] == 1_000
    summary = cache.metadata()[-1]["snapshots"][-1]["summary"]
    assert (summary["total-delete-files"], summary["total-position-deletes"], summary["total-records"]) == ("3", "11000", "12000")


def test_a_flush_and_a_compaction_between_two_commits_of_a_deletion_spoil_nothing(tmp_path: Path) -> None:
    cache = a_cache(tmp_path).with_rows("logs", log_table(6_000, seed=1))

    def between() -> None:
        cache.with_day("2026-06-05", rows=2)
        cache.another_writer().compact("logs", "unknown")

    assert cache.writer.delete("logs", "unknown", pc.field("_hyp_ingest_seq") <= 5_500, on_commit=between) == 5_500
    assert len(seqs_of(cache)) == 504
    assert cache.cursor()["rowCount"] == 504


def test_a_newer_vector_replaces_the_older_and_spares_the_others(tmp_path: Path) -> None:
    cache = a_cache(tmp_path).with_day("2026-06-01", rows=5).with_day("2026-06-01", rows=5)
    for number in (1, 6, 2, 7, 7):
        cache.writer.delete("logs", "unknown", pc.field("_hyp_ingest_seq") == number)
        cache.writer.delete("logs", "unknown", pc.field("_hyp_ingest_seq").isin([number]))
    cache.writer.delete("logs", "unknown", pc.field("_hyp_ingest_seq").isin([3, 8]))
    cache.writer.delete("logs", "unknown", pc.field("_hyp_ingest_seq") == 9)

    assert seqs_of(cache) == [4, 5, 10]


def test_a_purge_takes_a_session_from_every_source(tmp_path: Path) -> None:
    cache = a_cache(tmp_path)
    for source in ("claude", "codex"):
        cache.with_day("2026-06-01", dataset="ai_gateway_messages", source=source, session_id="secret")
        cache.with_day("2026-06-01", dataset="ai_gateway_messages", source=source, rows=2)

    assert cache.writer.purge("secret") == 6

    for source in ("claude", "codex"):
        assert {row["session_id"] for row in rows_of(cache.table_directory("ai_gateway_messages", source))} == {
            "session-2026-06-01"
        }
        assert cache.cursor("ai_gateway_messages", source)["rowCount"] == 2


def test_retention_keeps_the_instant_of_the_cutoff_and_rows_without_a_time(tmp_path: Path) -> None:
    rows = [a_log("2026-06-02"), a_log("2026-06-03"), a_log("2026-06-03", timestamp=None)]
    cache = a_cache(tmp_path).with_rows("logs", rows)

    assert cache.writer.retention(MIDNIGHT) == 1

    assert seqs_of(cache) == [2, 3]
    retention = cache.cursor()["retention"]
    assert (retention["lastCutoffDate"], retention["lastCutoffMs"], retention["rowsDeleted"]) == ("2026-06-03", 1780444800000, 1)
    assert retention["lastSnapshotId"] == str(cache.metadata()[-1]["current-snapshot-id"])


def test_a_small_retention_has_steps_too_and_says_so_in_the_cursor_at_the_end(tmp_path: Path) -> None:
    cache = a_cache(tmp_path).with_day("2026-06-02", rows=5).with_day("2026-06-03", rows=1)
    seen: list[Any] = []

    cache.writer.retention(
        MIDNIGHT, rows_per_commit=2, on_commit=lambda: seen.append((len(seqs_of(cache)), "retention" in cache.cursor()))
    )

    assert seen == [(4, False), (2, False), (1, False)]
    assert cache.cursor()["retention"]["rowsDeleted"] == 5


# --- rows that change their names and places ------------------------------------------------------------------------------------


def test_a_settled_row_has_its_number_and_another_identity(tmp_path: Path) -> None:
    dataset = "ai_gateway_messages"
    cache = a_cache(tmp_path).with_rows(dataset, [a_message("2026-06-01", number) for number in range(3)])
    before = rows_of(cache.table_directory(dataset))

    cache.writer.settle(dataset, "unknown", pc.field("part_id") == "msg-2026-06-01-1#0", part_id="settled", tool_name="shell")

    after = sorted(rows_of(cache.table_directory(dataset)), key=lambda row: row["_hyp_ingest_seq"])
    assert after == [before[0], {**before[1], "part_id": "settled", "tool_name": "shell"}, before[2]]
    assert cache.cursor(dataset)["compaction"]["previousTableDir"] == "table"


def test_moved_rows_keep_their_numbers_and_lie_in_both_sources_for_a_moment(tmp_path: Path) -> None:
    cache = a_cache(tmp_path).with_rows("logs", [a_log("2026-06-01", traceId=trace) for trace in ("a", "b", None)], source="one")
    rows = rows_of(cache.table_directory("logs", "one"))
    seen: list[Any] = []

    moved = cache.writer.move(
        "logs",
        "one",
        "two",
        pc.field("traceId") == "a",
        on_commit=lambda: seen.append([seqs_of(cache, source=source) for source in ("one", "two")]),
    )

    assert (moved, seen) == (1, [[[1, 2, 3], [1]]])
    assert rows_of(cache.table_directory("logs", "two")) == rows[:1]
    assert rows_of(cache.table_directory("logs", "one")) == rows[:0:-1], "the row of which the condition says nothing stays"
    assert [cache.cursor("logs", source)["rowCount"] for source in ("one", "two")] == [2, 1]


def test_a_source_of_which_every_row_moved_has_an_empty_table(tmp_path: Path) -> None:
    cache = a_cache(tmp_path).with_day("2026-06-01", source="one")
    cache.writer.move("logs", "one", "two", pc.field("serviceName") == "web")

    assert rows_of(cache.table_directory("logs", "one")) == []
    assert cache.cursor("logs", "one")["rowCount"] == 0


def test_a_row_without_a_number_has_none_where_it_moves_to(tmp_path: Path) -> None:
    cache = a_cache(tmp_path).with_rows("logs", [a_log("2026-06-01")], source="old", with_sequence=False)
    cache.with_day("2026-06-01", source="new", rows=1).writer.migrate("logs", "old", "new")

    assert seqs_of(cache, source="new") == [1, None]


def test_a_migrated_source_lies_among_the_retired(tmp_path: Path) -> None:
    cache = a_cache(tmp_path).with_day("2026-06-01", source="old").with_day("2026-06-01", source="new", rows=1)
    rows = rows_of(cache.table_directory("logs", "old"))
    cache.writer.delete("logs", "old", pc.field("_hyp_ingest_seq") == 2)

    assert cache.writer.migrate("logs", "old", "new") == 2

    assert sorted(seqs_of(cache, source="new")) == [1, 3, 4]
    assert [row for row in rows_of(cache.table_directory("logs", "new")) if row["_hyp_ingest_seq"] < 4] == [rows[2], rows[0]]
    assert not cache.source_directory("logs", "old").exists()
    assert (tmp_path / "datasets/logs/.retired/source=old/cursor.json").exists()
    cache.with_day("2026-06-01", source="old", rows=1)
    assert seqs_of(cache, source="old") == [5], "and a source of that name can begin again"


# --- generations ----------------------------------------------------------------------------------------------------------------


def test_a_compaction_keeps_rows_and_numbers_in_one_file_and_retires_the_old_generation(tmp_path: Path) -> None:
    cache = a_cache(tmp_path).with_day("2026-06-01").with_day("2026-06-02").with_day("2026-06-03")
    cache.writer.delete("logs", "unknown", pc.field("_hyp_ingest_seq") == 5)
    before = rows_of(cache.table_directory())

    cache.writer.compact("logs", "unknown")

    after = rows_of(cache.table_directory())
    assert [row["_hyp_ingest_seq"] for row in after] != sorted(row["_hyp_ingest_seq"] for row in after)
    assert sorted(after, key=lambda row: row["_hyp_ingest_seq"]) == before
    assert len(planned(cache.table_directory())) == 1
    assert cache.cursor()["compaction"]["previousTableDir"] == "table"
    assert (cache.source_directory() / "table/.retired").exists()
    cache.with_day("2026-06-04").writer.expire_retired("logs", "unknown")
    assert [path.name for path in cache.source_directory().iterdir() if path.is_dir()] == [cache.cursor()["tableDir"]]
    assert len(rows_of(cache.table_directory())) == 11


def test_a_compacted_conversation_keeps_its_partitions_and_has_all_columns(tmp_path: Path) -> None:
    dataset = "ai_gateway_messages"
    older = [column for column in declared_columns(dataset) or () if column.name not in ("repo_root", "status")]
    cache = a_cache(tmp_path).with_rows(dataset, [a_message("2026-06-01", n) for n in range(3)], columns=older)
    cache.with_rows(dataset, [a_message(day, 9, status={"code": 1}) for day in ("2026-06-01", "2026-06-02")])

    cache.writer.compact(dataset, "unknown")

    rows = rows_of(cache.table_directory(dataset))
    assert len(planned(cache.table_directory(dataset))) == 2
    assert sorted((row["date"], row["message_index"], json.dumps(row["status"]), row["repo_root"]) for row in rows) == [
        ("2026-06-01", 0, "null", None),
        ("2026-06-01", 1, "null", None),
        ("2026-06-01", 2, "null", None),
        ("2026-06-01", 9, '{"code": 1}', None),
        ("2026-06-02", 9, '{"code": 1}', None),
    ]


def test_a_compaction_that_was_killed_leaves_a_generation_no_cursor_names(tmp_path: Path) -> None:
    cache = a_cache(tmp_path).with_day("2026-06-01")

    cache.writer.compact("logs", "unknown", swap=False)

    assert cache.cursor()["tableDir"] == "table"
    assert len(list(cache.source_directory().glob("table-*"))) == 1
    assert not (cache.source_directory() / "table/.retired").exists()


def test_before_the_swap_the_old_generation_is_the_live_one(tmp_path: Path) -> None:
    cache = a_cache(tmp_path).with_day("2026-06-01")
    seen: list[Any] = []

    cache.writer.compact("logs", "unknown", before_swap=lambda: seen.append(cache.cursor()["tableDir"]))

    assert seen == ["table"]


def test_a_source_without_live_rows_compacts_into_an_empty_table(tmp_path: Path) -> None:
    cache = a_cache(tmp_path).with_day("2026-06-01")
    cache.writer.retention(MIDNIGHT)

    cache.writer.compact("logs", "unknown")
    assert "snapshots" not in cache.metadata()[-1]

    cache.with_day("2026-06-04", rows=2)
    assert len(rows_of(cache.table_directory())) == 2


def test_expired_snapshots_leave_the_rows(tmp_path: Path) -> None:
    cache = a_cache(tmp_path).with_day("2026-06-01").with_day("2026-06-02").with_day("2026-06-03")

    cache.writer.expire_snapshots("logs", "unknown", keep=1)

    assert len(cache.metadata()[-1]["snapshots"]) == 1
    assert len(cache.with_day("2026-06-04").metadata()[-1]["snapshots"]) == 2
    assert len(rows_of(cache.table_directory())) == 12


def test_shredded_columns_read_the_same_and_compact_into_plain_ones(tmp_path: Path) -> None:
    plain = a_cache(tmp_path / "plain").with_day("2026-06-01", rows=5)
    shredded = a_cache(tmp_path / "shredded", shredded=True).with_day("2026-06-01", rows=5)
    path = planned(shredded.table_directory())[0][0]

    assert "typed_value" in str(pq.read_schema(path).field("body").type)
    assert pq.read_schema(path).field("body").metadata[b"PARQUET:field_id"] == b"6"
    assert rows_of(shredded.table_directory()) == rows_of(plain.table_directory())
    CacheWriter(shredded.root, clock=shredded.clock, rng=random.Random(3)).compact("logs", "unknown")
    assert "typed_value" not in str(pq.read_schema(planned(shredded.table_directory())[0][0]))
    assert rows_of(shredded.table_directory()) == rows_of(plain.table_directory())[::-1]


# --- what befalls a cache from outside ------------------------------------------------------------------------------------------


def files_of(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_lost_counter_begins_again_in_the_same_table(tmp_path: Path) -> None:
    cache = a_cache(tmp_path).with_day("2026-06-01", rows=2)
    mishaps.lose_sequence(tmp_path)
    cache.another_writer().append("logs", "unknown", [a_log("2026-06-02", number) for number in range(3)])

    assert seqs_of(cache) == [1, 2, 1, 2, 3]


def test_a_wiped_cache_begins_anew(tmp_path: Path) -> None:
    cache = a_cache(tmp_path).with_day("2026-06-01", rows=2)
    mishaps.wipe(tmp_path)
    assert list(tmp_path.iterdir()) == []

    cache.another_writer().append("logs", "unknown", [a_log("2026-06-02")])
    assert seqs_of(cache) == [1]


def test_a_restored_cache_is_the_backup_and_can_be_continued(tmp_path: Path) -> None:
    cache = a_cache(tmp_path / "cache").with_day("2026-06-01", rows=2)
    before = files_of(cache.root)
    mishaps.back_up(cache.root, tmp_path / "backup")
    cache.with_day("2026-06-02").writer.compact("logs", "unknown")

    mishaps.restore(cache.root, tmp_path / "backup")
    assert files_of(cache.root) == before
    cache.another_writer().append("logs", "unknown", [a_log("2026-06-03")])
    assert seqs_of(cache) == [1, 2, 1025]


def test_a_copy_that_was_cut_off_lacks_the_last_files(tmp_path: Path) -> None:
    cache = a_cache(tmp_path / "cache").with_day("2026-06-01", source="a").with_day("2026-06-01", source="b")
    before = files_of(cache.root)
    mishaps.back_up(cache.root, tmp_path / "backup")

    mishaps.restore(cache.root, tmp_path / "backup", files=len(before) - 1)
    (missing,) = before.keys() - files_of(cache.root).keys()
    assert missing.startswith("datasets/logs/source=b/table/metadata/")
    mishaps.restore(cache.root, tmp_path / "backup", files=3)
    assert set(files_of(cache.root)) == {
        "_hyp_ingest_seq.json",
        "datasets/logs/all/_hypaware_spool/last-flush.json",
        "datasets/logs/source=a/cursor.json",
    }


# --- several processes, real caches, the demo -----------------------------------------------------------------------------------

FLUSHES = """
import random, sys
from pathlib import Path
from hypaware_pipeline.demo.writer import CacheWriter
root, seed = Path(sys.argv[1]), int(sys.argv[2])
writer = CacheWriter(root, rng=random.Random(seed))
for n in range(15):
    writer.append("logs", "unknown", [{"serviceName": f"{seed}", "severityNumber": n}])
    if seed == 1 and n % 5 == 4:
        writer.compact("logs", "unknown")
"""


def test_processes_that_flush_and_compact_at_once_lose_nothing(tmp_path: Path) -> None:
    processes = [subprocess.Popen([sys.executable, "-c", FLUSHES, str(tmp_path), str(seed)]) for seed in (1, 2, 3)]
    assert [process.wait(timeout=120) for process in processes] == [0, 0, 0]

    cursor = json.loads((tmp_path / "datasets/logs/source=unknown/cursor.json").read_text())
    rows = rows_of(tmp_path / "datasets/logs/source=unknown" / cursor["tableDir"])
    assert sorted((row["serviceName"], row["severityNumber"]) for row in rows) == [(s, n) for s in "123" for n in range(15)]
    assert len({row["_hyp_ingest_seq"] for row in rows}) == 45
    assert not list(tmp_path.rglob("*.tmp.*"))


def test_a_copy_of_a_real_cache_can_be_continued(tmp_path: Path) -> None:
    shutil.copytree(DATA / "lived", tmp_path / "cache")
    directory = tmp_path / "cache/datasets/logs/source=unknown"
    writer = CacheWriter(tmp_path / "cache", rng=random.Random(1))
    writer.append("logs", "unknown", [a_log("2026-06-09")])
    writer.delete("logs", "unknown", pc.field("_hyp_ingest_seq") == 6145)
    writer.compact("logs", "unknown")

    cursor = json.loads((directory / "cursor.json").read_text())
    found = {row["_hyp_ingest_seq"]: row["body"] for row in rows_of(directory / cursor["tableDir"])}
    lines = gzip.decompress((DATA / "lived-expected/logs/unknown.jsonl.gz").read_bytes()).splitlines()
    expected = [json.loads(line) for line in lines]
    assert cursor["rowCount"] == len(found) == len(expected) == 178
    assert found == {int(row["_hyp_ingest_seq"]): row["body"] for row in expected}
    assert json.loads((tmp_path / "cache/_hyp_ingest_seq.json").read_text())["nextSeq"] == "7169"


def test_the_demo_cache_is_lively_and_the_same_for_a_seed(tmp_path: Path) -> None:
    today = dt.date(2026, 6, 8)
    demo, _ = (demo_cache(tmp_path / name, days=3, today=today, seed=7) for name in ("one", "two"))

    def files(root: Path) -> dict[str, str]:
        return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in root.rglob("*.parquet")}

    assert files(tmp_path / "one") == files(tmp_path / "two")
    found: dict[str, list[dict[str, Any]]] = {}
    for cursor in (tmp_path / "one").glob("datasets/*/source=*/cursor.json"):
        table = cursor.parent / json.loads(cursor.read_text())["tableDir"]
        found.setdefault(cursor.parent.parent.name, []).extend(rows_of(table))
    assert {dataset: len(rows) for dataset, rows in found.items()} == demo.rows
    assert {row["client_name"] for row in found["ai_gateway_messages"]} == {"claude", "codex"}
    assert demo.purged_rows > 0
    assert demo.purged_session not in {row["session_id"] for row in found["ai_gateway_messages"]}
    moments = [row["timestamp"] for row in found["logs"]]
    assert moments.count(None) == 1
    assert max(moment for moment in moments if moment).year == 2031
    assert {moment.date() for moment in moments if moment} >= {today - dt.timedelta(days=n) for n in range(3)}
    spooled = (tmp_path / "one/datasets/logs/all/_hypaware_spool/active.jsonl").read_text().splitlines()
    assert sum(len(json.loads(line)["rows"]) for line in spooled) == demo.spooled == 7
    assert list((tmp_path / "one/datasets/logs/source=unknown").glob("table-*"))


def test_a_demo_of_two_days_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 3 days, not 2"):
        demo_cache(tmp_path, days=2, today=dt.date(2026, 6, 8), seed=1)
