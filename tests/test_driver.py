import datetime as dt
import gzip
import hashlib
import json
import shutil
import sys

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from hypaware_pipeline.export.driver import PIN_ATTEMPTS, Exporter
from hypaware_pipeline.export.installation import build_sink
from hypaware_pipeline.export.plan import Reason
from hypaware_pipeline.model import DatasetName, Day, ExportBatch, ExportOptions, Kept, SinkName
from hypaware_pipeline.sinks.encoders.jsonl import JsonlEncoder
from tests.builders import a_log
from tests.installations import JSONL, NOW, AnInstallation


def statuses(outcomes):
    return {outcome.day: outcome.status for outcome in outcomes}


def damage_column(data_file, path):
    """Overwrite the pages of a column, and nothing else."""
    metadata = pq.read_metadata(data_file)
    chunks = [metadata.row_group(0).column(at) for at in range(metadata.num_columns)]
    (chunk,) = (chunk for chunk in chunks if chunk.path_in_schema == path)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    content = data_file.read_bytes()
    stop = start + chunk.total_compressed_size
    data_file.write_bytes(content[:start] + b"\xff" * (stop - start) + content[stop:])


def test_every_row_of_a_day_is_in_its_object_and_the_receipt_balances(cache, home):
    cache.with_day("2026-06-05", rows=4).with_day("2026-06-06", rows=2)
    installation = AnInstallation(home, cache.root)
    outcomes = installation.export()
    assert statuses(outcomes) == {"2026-06-05": "exported", "2026-06-06": "exported"}
    assert [outcome.receipt.exported_rows for outcome in outcomes] == [4, 2]
    assert sum(installation.rows().values()) == 6
    assert set(installation.objects()) == {"logs/day=2026-06-05/unknown.jsonl.gz", "logs/day=2026-06-06/unknown.jsonl.gz"}


def test_the_receipt_at_the_destination_is_the_one_in_the_ledger(cache, home):
    cache.with_day("2026-06-05")
    installation = AnInstallation(home, cache.root)
    (outcome,) = installation.export()
    lying = json.loads((installation.out() / "logs/day=2026-06-05/_receipt.feed.json").read_text())
    with installation.installation.open_ledger() as ledger:
        recorded = ledger.receipt(SinkName("feed"), DatasetName("logs"), Day("2026-06-05"))
        assert lying == recorded.to_json() == outcome.receipt.to_json()
        assert lying["ledger_id"] == ledger.id


def test_an_exported_day_is_not_due_until_it_changes(cache, home):
    cache.with_day("2026-06-05")
    installation = AnInstallation(home, cache.root)
    installation.export()
    assert installation.due() == []
    cache.with_day("2026-06-05", rows=1)
    assert installation.due() == ["2026-06-05"]


def test_a_live_day_is_replaced_in_place(cache, home):
    cache.with_day("2026-06-05", rows=3)
    installation = AnInstallation(home, cache.root)
    installation.export()
    cache.with_day("2026-06-05", rows=2)
    installation.export()
    assert list(installation.objects()) == ["logs/day=2026-06-05/unknown.jsonl.gz"]
    assert sum(installation.rows().values()) == 5


def test_the_object_of_a_source_that_became_empty_is_removed(cache, home):
    cache.with_day("2026-06-05", source="a").with_day("2026-06-05", source="b")
    installation = AnInstallation(home, cache.root)
    installation.export()
    cache.writer.delete("logs", "b", pc.field("serviceName") == "web")
    installation.now = cache.clock.moment + dt.timedelta(minutes=14)
    (outcome,) = installation.export()
    assert (outcome.status, outcome.receipt.kept, outcome.receipt.kept_rows) == ("kept", Kept.SETTLING, 3)
    assert [entry.reason for entry in installation.plan()] == [Reason.SETTLING]
    installation.now = cache.clock.moment + dt.timedelta(minutes=16)
    assert [entry.reason for entry in installation.plan()] == [Reason.SETTLED]
    (outcome,) = installation.export()
    assert outcome.status == "exported"
    assert list(installation.objects()) == ["logs/day=2026-06-05/a.jsonl.gz"]


def test_a_day_that_retention_began_to_remove_keeps_its_whole_copy(cache, home):
    cache.with_day("2026-06-05", rows=5)
    installation = AnInstallation(home, cache.root)
    installation.export()
    before = installation.objects()
    cache.writer.retention(NOW.replace(day=5, hour=0, minute=0, second=2))
    (outcome,) = installation.export()
    assert (outcome.status, outcome.receipt.kept, outcome.receipt.kept_rows) == ("kept", Kept.FROZEN, 2)
    assert installation.objects() == before
    assert installation.due() == []


def test_a_half_evicted_day_does_not_replace_the_whole_copy_when_the_ledger_is_lost(cache, home):
    cache.with_day("2026-06-05", rows=5)
    installation = AnInstallation(home, cache.root)
    installation.export()
    before = installation.objects()
    cache.writer.retention(NOW.replace(day=5, hour=0, minute=0, second=2))
    shutil.rmtree(installation.installation.state.root)
    (outcome,) = installation.export()
    assert outcome.status == "failed"
    again = AnInstallation(home, cache.root, sinks={"feed": {**JSONL, "config": {"dir": "out/feed", "takeover": True}}})
    (outcome,) = again.export()
    assert outcome.status == "kept"
    assert installation.objects() == before


def test_the_copy_of_a_source_whose_directory_is_gone_stays(cache, home):
    cache.with_day("2026-06-05", source="a").with_day("2026-06-05", source="b")
    installation = AnInstallation(home, cache.root)
    installation.export()
    shutil.rmtree(cache.source_directory("logs", "b"))
    (outcome,) = installation.export(["2026-06-05"])
    assert set(installation.objects()) == {"logs/day=2026-06-05/a.jsonl.gz", "logs/day=2026-06-05/b.jsonl.gz"}
    assert (outcome.receipt.exported_rows, outcome.receipt.rows, outcome.receipt.kept_rows) == (6, 3, 3)
    assert outcome.receipt.kept is Kept.GONE


def test_a_broken_source_does_not_stop_the_others_and_the_day_counts_as_not_exported(cache, home):
    cache.with_day("2026-06-05", source="a").with_day("2026-06-05", source="b")
    installation = AnInstallation(home, cache.root)
    cursor = cache.source_directory("logs", "b") / "cursor.json"
    whole = cursor.read_text()
    cursor.write_text(whole[: len(whole) // 2])
    (outcome,) = installation.export()
    assert outcome.status == "partial"
    assert not outcome.done
    assert "source 'b'" in outcome.error
    assert "cursor.json" in outcome.error
    assert list(installation.objects()) == ["logs/day=2026-06-05/a.jsonl.gz"]

    assert installation.due() == [], "what could be exported is, so the same failure is not repeated at every tick"
    cursor.write_text(whole)
    assert installation.due() == ["2026-06-05"]
    (outcome,) = installation.export()
    assert outcome.status == "exported"
    assert set(installation.objects()) == {"logs/day=2026-06-05/a.jsonl.gz", "logs/day=2026-06-05/b.jsonl.gz"}


def test_a_source_found_damaged_while_it_is_read_does_not_stop_those_after_it(cache, home):
    """The day failed as a whole: `c` was never exported, and `a` never recorded."""
    for source in ("a", "b", "c"):
        cache.with_day("2026-06-05", source=source)
    (data_file,) = (cache.table_directory("logs", "b") / "data").glob("*.parquet")
    whole = data_file.read_bytes()
    installation = AnInstallation(home, cache.root)
    installation.due()  # the index knows the file as it was; its size does not change
    data_file.write_bytes(whole[:4] + bytes(len(whole) - 4))
    (outcome,) = installation.export()
    assert outcome.status == "partial"
    assert data_file.name in outcome.error
    assert set(installation.objects()) == {"logs/day=2026-06-05/a.jsonl.gz", "logs/day=2026-06-05/c.jsonl.gz"}
    assert outcome.receipt.rows == 6
    data_file.write_bytes(whole)
    (outcome,) = installation.export()
    assert outcome.status == "exported"
    assert sum(installation.rows().values()) == 9


def test_a_damaged_row_group_costs_its_source_on_every_day_it_holds_and_is_named(cache, home):
    """The days after the first said `the row index counts 2 rows, the scan read 0`, and `b` was not exported for them."""
    days = ["2026-06-04", "2026-06-05", "2026-06-06"]
    for source in ("a", "b"):
        cache.with_rows("logs", [a_log(day, number) for number in range(2) for day in days], source=source)
    cache.with_day("2026-06-07", source="a")
    data_file = min((cache.table_directory("logs", "a") / "data").glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    damage_column(data_file, "body.value")
    installation = AnInstallation(home, cache.root)
    outcomes = installation.export()
    assert statuses(outcomes) == {**dict.fromkeys(days, "partial"), "2026-06-07": "exported"}
    assert all(data_file.name in outcome.error for outcome in outcomes[:3])
    assert [outcome.receipt.exported_rows for outcome in outcomes] == [2, 2, 2, 3]


@pytest.mark.parametrize("indexed", [False, True], ids=["new to the index", "known to the index"])
def test_a_damaged_column_name_costs_its_source_only(cache, home, indexed):
    """The whole export ended in a UnicodeDecodeError, for every dataset and sink."""
    cache.with_day("2026-06-05", source="a").with_day("2026-06-05", source="b")
    (data_file,) = (cache.table_directory("logs", "b") / "data").glob("*.parquet")
    installation = AnInstallation(home, cache.root)
    if indexed:
        installation.due()
    data_file.write_bytes(data_file.read_bytes().replace(b"severityText", b"severity\xe5ext"))
    (outcome,) = installation.export()
    assert outcome.status == "partial"
    assert data_file.name in outcome.error
    assert list(installation.objects()) == ["logs/day=2026-06-05/a.jsonl.gz"]


def test_a_broken_source_keeps_the_object_it_had(cache, home):
    cache.with_day("2026-06-05", source="a").with_day("2026-06-05", source="b")
    installation = AnInstallation(home, cache.root)
    installation.export()
    (cache.source_directory("logs", "b") / "cursor.json").unlink()
    cache.with_day("2026-06-05", source="a")
    (outcome,) = installation.export()
    assert outcome.status == "partial"
    assert outcome.receipt.exported_rows == 9
    assert len(installation.objects()) == 2


def test_a_day_that_fails_does_not_stop_the_others(cache, home):
    for day in ("2026-06-04", "2026-06-05", "2026-06-06"):
        cache.with_day(day)
    installation = AnInstallation(home, cache.root)
    installation.export(["2026-06-04"])
    blocked = installation.out() / "logs/day=2026-06-05"
    blocked.write_text("a file where a directory is needed")
    outcomes = installation.export(["2026-06-04", "2026-06-05", "2026-06-06"])
    assert statuses(outcomes) == {"2026-06-04": "exported", "2026-06-05": "failed", "2026-06-06": "exported"}
    assert "day=2026-06-05" in outcomes[1].error


def test_an_encoder_that_exits_ends_its_day_and_not_the_run(cache, home, monkeypatch):
    cache.with_day("2026-06-05", rows=1).with_day("2026-06-06", rows=2)
    installation = AnInstallation(home, cache.root)
    encode = JsonlEncoder.encode
    calls = []

    def exiting(self, *arguments):
        calls.append(arguments)
        if len(calls) == 1:
            sys.exit(0)
        return encode(self, *arguments)

    monkeypatch.setattr(JsonlEncoder, "encode", exiting)
    first, second = installation.export()
    assert (first.status, second.status) == ("failed", "exported")
    assert "SystemExit" in first.error


def test_a_sink_that_halts_twice_is_not_tried_with_the_remaining_days(cache, home):
    for day in ("2026-06-03", "2026-06-04", "2026-06-05", "2026-06-06"):
        cache.with_day(day)
    installation = AnInstallation(home, cache.root)
    installation.out().parent.mkdir(parents=True)
    installation.out().write_text("a file where the sink's directory belongs")
    outcomes = installation.export()
    assert [outcome.status for outcome in outcomes] == ["failed"] * 4
    assert [outcome.seconds > 0 for outcome in outcomes] == [True, True, False, False]
    assert all(str(installation.out()) in outcome.error for outcome in outcomes)


def test_a_changed_destination_makes_every_day_due_again(cache, home):
    cache.with_day("2026-06-05")
    installation = AnInstallation(home, cache.root)
    installation.export()
    config = {"feed": {"writer": "@hypaware/format-jsonl", "destination": "@hypaware/local-fs", "config": {"dir": "out/other"}}}
    moved = AnInstallation(home, cache.root, sinks=config)
    assert [entry.reason for entry in moved.plan()] == [Reason.SINK_CHANGED]
    moved.export()
    assert set(moved.objects("other")) == set(installation.objects())


def test_a_changed_format_leaves_one_copy_of_a_day(cache, home):
    cache.with_day("2026-06-05")
    installation = AnInstallation(home, cache.root)
    installation.export()
    config = {
        "feed": {
            "writer": "@hypaware/format-jsonl",
            "destination": "@hypaware/local-fs",
            "config": {"dir": "out/feed", "compression": "zstd"},
        }
    }
    changed = AnInstallation(home, cache.root, sinks=config)
    changed.export()
    assert list(changed.objects()) == ["logs/day=2026-06-05/unknown.jsonl.zst"]


def test_an_object_removed_by_hand_comes_back_when_its_day_is_exported_again(cache, home):
    cache.with_day("2026-06-05")
    installation = AnInstallation(home, cache.root)
    installation.export()
    before = installation.objects()
    (installation.out() / "logs/day=2026-06-05/unknown.jsonl.gz").unlink()
    installation.export(["2026-06-05"])
    assert installation.objects() == before


def test_a_row_that_cannot_be_encoded_is_parked_by_name_and_the_rest_is_exported(cache, home):
    cache.with_rows("logs", [a_log("2026-06-05", number, serviceName=name) for number, name in enumerate(("a", "torn!", "z"))])
    (data_file,) = (cache.table_directory() / "data").glob("*.parquet")
    data_file.write_bytes(data_file.read_bytes().replace(b"torn!", b"torn\xff"))
    installation = AnInstallation(home, cache.root)
    (outcome,) = installation.export()
    assert outcome.status == "exported"
    assert (outcome.receipt.rows, outcome.receipt.exported_rows, outcome.receipt.parked_rows) == (3, 2, 1)
    (parked,) = outcome.receipt.parked
    assert "serviceName" in parked.reason
    assert "_hyp_ingest_seq=2" in parked.key


def test_a_day_without_rows_leaves_nothing_behind(cache, home):
    cache.with_day("2026-06-05")
    installation = AnInstallation(home, cache.root)
    (outcome,) = installation.export(["2026-06-01"])
    assert outcome.status == "exported"
    assert outcome.receipt is None
    assert not (installation.out() / "logs").exists()


def test_a_receipt_that_is_no_receipt_stops_the_sink_and_nothing_is_touched(cache, home):
    cache.with_day("2026-06-05")
    installation = AnInstallation(home, cache.root)
    foreign = installation.out() / "logs/day=2026-06-05/_receipt.feed.json"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("[]")
    (outcome,) = installation.export()
    assert outcome.status == "failed"
    assert "_receipt.feed.json" in outcome.error
    assert installation.objects() == {}


def test_rows_of_one_day_from_several_flushes_come_in_lookup_order(cache, home):
    rows = [a_log("2026-06-05", second, serviceName=name) for second, name in ((9, "b"), (1, "b"), (5, "a"))]
    for row in rows:
        cache.with_rows("logs", [row])
    installation = AnInstallation(home, cache.root)
    installation.export()
    lines = gzip.decompress(installation.objects()["logs/day=2026-06-05/unknown.jsonl.gz"]).decode().splitlines()
    order = [(json.loads(line)["serviceName"], json.loads(line)["timestamp"][17:19]) for line in lines]
    assert order == [("a", "05"), ("b", "01"), ("b", "09")]


def test_a_row_of_the_future_moves_to_its_day_when_that_comes(cache, home):
    """It stayed in the undated object as well, for ever: undated rows were never replaced when they became fewer."""
    cache.with_day("2026-06-20", rows=3).with_day("2026-06-05", rows=2, timestamp=None)
    installation = AnInstallation(home, cache.root)
    installation.export()
    assert sum(installation.rows().values()) == 5
    installation.now = NOW.replace(day=20)
    installation.export()
    assert sum(installation.rows().values()) == 5
    assert len(installation.objects()) == 2


def test_a_clock_that_was_years_wrong_for_one_export_loses_and_doubles_nothing(cache, home):
    cache.with_day("2026-06-05", rows=3).with_day("2026-06-05", rows=2, timestamp=None)
    installation = AnInstallation(home, cache.root)
    for year in (2026, 2023, 2026, 2029, 2026):
        installation.now = NOW.replace(year=year)
        installation.export()
        installation.export()  # rows leave a day once they were seen to arrive at the other
        assert installation.due() == []
        assert sum(installation.rows().values()) == 5, year
        assert max(installation.rows().values()) == 1, year


def test_undated_rows_that_retention_took_stay_in_the_copy_also_when_rows_of_the_future_leave(cache, home):
    cache.with_day("1999-01-01", rows=3).with_day("2026-06-20", rows=4)
    installation = AnInstallation(home, cache.root)
    installation.export()
    cache.writer.retention(NOW.replace(year=2020))
    installation.now = NOW.replace(day=20)
    installation.export()
    assert sum('"1999-01-01T' in row for row in installation.rows()) == 3


def test_a_batch_is_answered_with_its_counts_and_what_is_left_to_do(cache, home):
    for day in ("2026-06-04", "2026-06-05"):
        cache.with_day(day)
    installation = AnInstallation(home, cache.root)

    def ask(*days):
        told = []
        sink = build_sink(installation.installation.config.sinks[SinkName("feed")], installation.env)
        with installation.installation.open_ledger() as ledger:
            exporter = Exporter(sink, ledger, installation.installation.clock)
            rows = installation.installation.slice(DatasetName("logs"), [Day(day) for day in days])
            result = exporter.export_batch(ExportBatch(rows.dataset, tuple(rows.days), rows), ExportOptions(told.append))
        assert [outcome.day for outcome in told] == list(days)
        return result

    result = ask("2026-06-04")
    assert (result.status, result.partitions_exported, result.rows, result.retry_partitions) == ("exported", 1, 3, {})
    assert result.bytes == sum(len(content) for content in installation.objects().values())
    (installation.out() / "logs/day=2026-06-05").write_text("a file where a directory is needed")
    result = ask("2026-06-04", "2026-06-05")
    assert (result.status, result.partitions_exported, list(result.retry_partitions)) == ("partial", 1, ["2026-06-05"])
    assert "day=2026-06-05" in result.retry_partitions["2026-06-05"]
    assert ask("2026-06-05").status == "failed"


# --- objects that somebody touched ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("touch", ["removed", "cut"])
def test_an_object_that_somebody_removed_or_cut_is_whole_again_after_the_next_export_of_its_day(cache, home, touch):
    cache.with_day("2026-06-05", source="a").with_day("2026-06-05", source="b")
    installation = AnInstallation(home, cache.root)
    installation.export()
    before = installation.objects()
    key = "logs/day=2026-06-05/a.jsonl.gz"
    path = installation.out() / key
    path.unlink() if touch == "removed" else path.write_bytes(before[key][:-1])
    cache.with_day("2026-06-05", source="b", rows=1)
    (outcome,) = installation.export()
    assert outcome.status == "exported"
    assert installation.objects()[key] == before[key]
    assert sum(installation.rows().values()) == 7


def test_an_object_that_was_removed_and_cannot_be_written_again_is_named(cache, home):
    cache.with_day("2026-06-05", source="a", rows=5).with_day("2026-06-05", source="b")
    installation = AnInstallation(home, cache.root)
    installation.export()
    cache.writer.retention(NOW.replace(day=5, hour=0, minute=0, second=2), datasets=["logs"])
    (installation.out() / "logs/day=2026-06-05/a.jsonl.gz").unlink()
    (outcome,) = installation.export()
    assert outcome.status == "partial"
    assert "a.jsonl.gz was removed or changed since it was put" in outcome.error
    assert "all of its 5 rows; put it back from a backup" in outcome.error
    assert list(installation.objects()) == ["logs/day=2026-06-05/b.jsonl.gz"], "half of it would look like all of it"
    assert installation.due() == []


# --- two exports of a day at once ----------------------------------------------------------------------------------------------


class ARival:
    """Something that happens while an export runs: as a clock, it is asked for the time when a day is judged, if the day was
    exported before, and when its objects are written and its receipt is made."""

    def __init__(self, installation, *acts):
        self._installation = installation
        self._acts = list(acts)

    def __call__(self):
        if self._acts:
            self._installation.let_leases_expire()
            self._acts.pop(0)()
        return self._installation.now


def as_recorded(installation, day="2026-06-05"):
    """The objects of a day, which must be those of the receipt, at the destination and in the ledger alike."""
    with installation.installation.open_ledger() as ledger:
        recorded = ledger.receipt(SinkName("feed"), DatasetName("logs"), Day(day))
    lying = json.loads((installation.out() / f"logs/day={day}/_receipt.feed.json").read_text())
    assert lying == recorded.to_json()
    of_day = {key: content for key, content in installation.objects().items() if f"day={day}/" in key}
    assert {key: hashlib.sha256(content).hexdigest() for key, content in of_day.items()} == {
        file.key: file.sha256 for file in recorded.files
    }
    return recorded


def test_a_sink_that_is_closed_finishes_the_day_at_hand_and_begins_no_other(cache, home):
    days = [Day("2026-06-04"), Day("2026-06-05"), Day("2026-06-06")]
    for day in days:
        cache.with_day(day)
    installation = AnInstallation(home, cache.root)
    sink = build_sink(installation.installation.config.sinks[SinkName("feed")], installation.env)
    outcomes = []
    with installation.installation.open_ledger() as ledger:
        exporter = Exporter(sink, ledger, installation.installation.clock)
        rows = installation.installation.slice(DatasetName("logs"), days)

        def told(outcome):
            outcomes.append(outcome)
            exporter.close()

        result = exporter.export_batch(ExportBatch(DatasetName("logs"), tuple(days), rows), ExportOptions(told))
    assert [outcome.status for outcome in outcomes] == ["exported", "failed", "failed"]
    assert (result.status, sorted(result.retry_partitions)) == ("partial", days[1:])
    assert "was ended" in outcomes[1].error
    assert installation.due() == days[1:]


def test_an_export_that_was_overtaken_after_it_wrote_exports_the_day_again(cache, home):
    """The older object lay where the newer receipt pointed, and nothing was due."""
    cache.with_day("2026-06-05", rows=2).with_day("2026-06-06", rows=1)
    installation = AnInstallation(home, cache.root)

    def overtake():
        cache.with_day("2026-06-05", rows=3)
        assert statuses(installation.export(["2026-06-05"])) == {"2026-06-05": "exported"}

    outcomes = installation.export(clock=ARival(installation, overtake))
    assert statuses(outcomes) == {"2026-06-05": "exported", "2026-06-06": "exported"}
    assert outcomes[0].receipt == as_recorded(installation)
    assert outcomes[0].receipt.exported_rows == 5
    assert installation.due() == []


def test_an_object_that_an_overtaken_export_wrote_for_rows_that_are_gone_does_not_stay(cache, home):
    cache.with_day("2026-06-05", source="a").with_day("2026-06-05", source="b")
    installation = AnInstallation(home, cache.root)

    def overtake():
        cache.writer.delete("logs", "b", pc.field("serviceName") == "web")
        installation.now = cache.clock.moment + dt.timedelta(minutes=16)
        installation.export(["2026-06-05"])

    (outcome,) = installation.export(clock=ARival(installation, overtake))
    assert outcome.status == "exported"
    as_recorded(installation)
    assert list(installation.objects()) == ["logs/day=2026-06-05/a.jsonl.gz"]


def test_an_export_that_is_overtaken_again_and_again_gives_the_day_up_and_leaves_the_others_object(cache, home):
    """Each time it had replaced the object of the other, whose receipt then spoke of what no longer lay there."""
    cache.with_day("2026-06-05", rows=1)
    installation = AnInstallation(home, cache.root)
    installation.export()

    def overtake():
        cache.with_day("2026-06-05", rows=1)
        installation.export(["2026-06-05"])

    cache.with_day("2026-06-05", rows=1)
    pinning = installation.installation.clock
    (outcome,) = installation.export(["2026-06-05"], clock=ARival(installation, *[pinning, overtake] * PIN_ATTEMPTS))
    assert outcome.status == "failed"
    assert "feed/logs: this export lost the right to write" in outcome.error
    assert as_recorded(installation).exported_rows == 2 + PIN_ATTEMPTS
    assert installation.due() == ["2026-06-05"], "nobody knows yet that it wrote nothing"
    installation.export()
    assert installation.due() == []


def test_two_exports_that_meet_on_every_day_of_a_range_lose_none(cache, home):
    days = [f"2026-05-{number:02}" for number in range(1, 11)]
    for day in days:
        cache.with_day(day, rows=2)
    installation = AnInstallation(home, cache.root)
    overtakes = [lambda day=day: installation.export([day]) for day in days]
    quiet = installation.installation.clock
    undisturbed = [quiet] * 3  # pinned again, judged again, and its receipt made again
    rival = ARival(installation, quiet, *(act for overtake in overtakes for act in (overtake, *undisturbed)))
    outcomes = installation.export(days, clock=rival)
    assert set(statuses(outcomes).values()) == {"exported"}
    for day in days:
        as_recorded(installation, day)
