"""A lost ledger, rebuilt from what lies at the destinations: what is taken, what is left out and why, and nothing is lost."""

import datetime as dt
import hashlib
import json
import shutil
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest

from hypaware_pipeline.export.installation import build_sink
from hypaware_pipeline.export.plan import PlannedDay, Reason
from hypaware_pipeline.model import DatasetName, Day, SinkName, StoredObject
from hypaware_pipeline.row_sets import Rows, pack
from tests.builders import CacheBuilder, a_cache, a_log, a_message
from tests.command_line import ACommandLine
from tests.installations import JSONL, NOW, AnInstallation
from tests.true_receipts import true_receipts

DAYS = ["2026-06-05", "2026-06-06", "2026-06-07"]
RECEIPT = "logs/day=2026-06-06/_receipt.feed.json"
OBJECT = "logs/day=2026-06-06/unknown.jsonl.gz"


class Exported:
    """A feed of some days, whose ledger can be lost and rebuilt."""

    def __init__(self, run: ACommandLine, home: Path, cache: CacheBuilder) -> None:
        self._run = run
        self.home = home
        self.cache = cache
        self.installation = self.configured()

    def configured(self, **config: Any) -> AnInstallation:
        """The installation, its sink with another config."""
        self.installation = AnInstallation(self.home, self.cache.root, sinks=self.feed(**config))
        return self.installation

    @staticmethod
    def feed(**config: Any) -> dict[str, Any]:
        return {"feed": {**JSONL, "config": {"dir": "out/feed", **config}}}

    def lose_the_ledger(self) -> None:
        shutil.rmtree(self.installation.installation.state.root)

    def rebuild(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of the command."""
        return self._run("ledger", "rebuild", *arguments, "--config", str(self.home / "hypaware-pipeline.json"))

    def rebuilt(self) -> str:
        """What a rebuild says that leaves nothing out."""
        code, out, err = self.rebuild("--yes")
        assert (code, err) == (0, "")
        return out

    def path(self, name: str) -> Path:
        return self.installation.out() / name

    def edit(self, name: str, **changes: Any) -> None:
        """Change a receipt, or a marker, by hand."""
        self.path(name).write_text(json.dumps({**json.loads(self.path(name).read_text()), **changes}))

    def known_days(self, dataset: str = "logs") -> list[str]:
        with self.installation.installation.open_ledger() as ledger:
            return [*ledger.receipts(SinkName("feed"), DatasetName(dataset))]

    def failure(self, day: str) -> str | None:
        (outcome,) = self.installation.export([day])
        return outcome.error

    def claimed_by(self, dataset: str = "logs") -> str:
        return str(json.loads(self.path(f"{dataset}/_claim.json").read_text())["ledger_id"])

    def ledger_id(self) -> str:
        with self.installation.installation.open_ledger() as ledger:
            return ledger.id


@pytest.fixture
def empty(run: ACommandLine, home: Path, cache: CacheBuilder) -> Exported:
    return Exported(run, home, cache)


@pytest.fixture
def exported(empty: Exported) -> Exported:
    for day in DAYS:
        empty.cache.with_day(day)
    assert all(outcome.status == "exported" for outcome in empty.installation.export())
    return empty


def export_quickly(installation: AnInstallation, dataset: str) -> None:
    """Receipts, claim and ledger as an export leaves them, around objects that hold no rows: a year in seconds."""
    found = installation.installation
    sink = build_sink(found.config.sinks[SinkName("feed")], installation.env)

    def put(key: str) -> StoredObject:
        path, body = installation.out() / key, key.encode()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
        return StoredObject(key, 0, len(body), hashlib.sha256(body).hexdigest())

    with found.open_ledger() as ledger:
        sink.claim(DatasetName(dataset), ledger.id).hold()
        for receipt in true_receipts(sink, ledger, found.cache(), DatasetName(dataset), now=NOW, put=put):
            sink.writer.write_receipt(receipt, fence=lambda: None)
            ledger.record(receipt)


class Watched:
    """Which days of a feed were touched since it was looked at last."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._files = self._look()

    def touched(self) -> set[str]:
        before, self._files = self._files, self._look()
        paths = {path for path in {*before, *self._files} if before.get(path) != self._files.get(path)}
        return {path.parent.name.removeprefix("day=") for path in paths if path.name != "_claim.json"}

    def _look(self) -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in self._out.rglob("*") if path.is_file()}


def plans(installation: AnInstallation, *datasets: str) -> list[list[PlannedDay]]:
    return [installation.plan(dataset=dataset) for dataset in datasets]


# --- what is taken -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_after_a_year_was_exported_and_the_ledger_lost_the_plan_is_as_before_and_nothing_is_exported_twice(
    empty: Exported, run: ACommandLine
) -> None:
    year = [(NOW.date() - dt.timedelta(days=age)).isoformat() for age in range(365)]
    empty.cache.with_rows("logs", [a_log(day) for day in year])
    empty.cache.with_rows("ai_gateway_messages", [a_message(day) for day in year[:30]], source="claude")
    datasets = ("logs", "ai_gateway_messages")
    for dataset in datasets:
        export_quickly(empty.installation, dataset)
    empty.cache.with_day(year[3])
    before = plans(empty.installation, *datasets)
    assert [entry.day for entry in before[0] if entry.due] == [year[3]]

    empty.lose_the_ledger()
    feed = Watched(empty.installation.out())
    assert len(empty.installation.due()) == 365, "a new ledger knows nothing"
    assert "another ledger" in (empty.failure(year[0]) or "")
    out = empty.rebuilt()
    assert "feed/logs: 365 receipts to record, 365 days" in out
    assert "feed: 395 receipts recorded" in out

    def export() -> list[str]:
        code, out, err = run("export", "--json", "--config", str(empty.home / "hypaware-pipeline.json"))
        assert (code, err) == (0, "")
        return [json.loads(line)["day"] for line in out.splitlines()]

    assert plans(empty.installation, *datasets) == before
    assert export() == [year[3]]
    assert feed.touched() == {year[3]}

    empty.cache.with_day(year[4], rows=1)
    empty.cache.writer.delete(
        "logs", "unknown", pc.field("timestamp") == pc.scalar(dt.datetime.fromisoformat(f"{year[5]}T00:00Z"))
    )
    assert export() == [year[5], year[4]], "the clock of the command is long after the removal"
    assert feed.touched() == {year[4], year[5]}
    assert f"logs/day={year[5]}/unknown.jsonl.gz" not in empty.installation.objects(), "what was purged left"
    assert export() == []


def test_a_day_that_retention_took_half_of_is_known_again_and_stays_whole_at_the_sink(exported: Exported) -> None:
    before = exported.installation.objects()
    exported.cache.writer.retention(dt.datetime(2026, 6, 6, 0, 0, 4, tzinfo=dt.UTC))
    exported.installation.export()
    frozen = exported.installation.plan()
    exported.lose_the_ledger()
    exported.rebuilt()
    assert exported.installation.plan() == frozen
    assert [entry.reason for entry in frozen] == [Reason.FROZEN, Reason.FROZEN, Reason.UNCHANGED]
    assert exported.installation.objects() == before
    assert exported.installation.due() == []


def test_receipts_are_recorded_although_there_is_no_cache_to_compare_them_with(exported: Exported) -> None:
    exported.lose_the_ledger()
    elsewhere = exported.cache.root.rename(exported.cache.root.with_name("elsewhere"))
    code, out, err = exported.rebuild("--yes")
    assert code == 1
    assert "feed: 3 receipts recorded" in out
    assert "left out: logs: its receipts could not be compared with the cache" in err
    elsewhere.rename(exported.cache.root)
    assert exported.installation.due() == []


def test_undated_rows_and_days_that_became_empty_are_known_again(exported: Exported) -> None:
    exported.cache.with_day("2026-06-05", timestamp=None)
    exported.installation.export()
    before = exported.installation.plan()
    exported.lose_the_ledger()
    assert "4 receipts to record, 4 days (2026-06-05 … undated)" in exported.rebuilt()
    assert exported.installation.plan() == before


def test_days_of_a_sink_that_has_other_settings_now_are_due_as_they_were(exported: Exported) -> None:
    installation = exported.configured(compression="zstd")
    before = installation.plan()
    assert {entry.reason for entry in before} == {Reason.SINK_CHANGED}
    exported.lose_the_ledger()
    assert "3 of these of other settings of the sink" in exported.rebuilt()
    assert installation.plan() == before
    installation.export()
    assert all(name.endswith(".zst") for name in installation.objects())
    assert installation.due() == []


def test_a_dataset_that_the_sink_takes_no_more_is_known_again_all_the_same(exported: Exported) -> None:
    exported.lose_the_ledger()
    exported.configured(datasets=["traces"])
    assert "the sink takes this dataset no more" in exported.rebuilt()
    exported.configured()
    assert exported.installation.due() == []


def test_partitions_begin_again_where_the_first_exported_day_is(exported: Exported, run: ACommandLine) -> None:
    config = ("--config", str(exported.home / "hypaware-pipeline.json"))
    assert run("first-day", *config)[1].strip() == "2026-06-05"
    exported.cache.writer.retention(dt.datetime(2026, 6, 7, tzinfo=dt.UTC))
    exported.lose_the_ledger()
    assert run("first-day", *config)[1].strip() == "2026-06-07"
    assert "partitions are to begin on 2026-06-05 again, not on 2026-06-07" in exported.rebuilt()
    assert run("first-day", *config)[1].strip() == "2026-06-05"


def test_a_ledger_from_a_backup_learns_what_was_exported_since(exported: Exported, tmp_path: Path) -> None:
    state = exported.installation.installation.state.root
    shutil.copytree(state, tmp_path / "backup")
    exported.installation.now += dt.timedelta(hours=1)
    exported.cache.with_day(DAYS[0], source="late").with_day("2026-06-08")
    exported.installation.export()
    shutil.rmtree(state)
    shutil.copytree(tmp_path / "backup", state)
    assert exported.installation.due() == [DAYS[0], "2026-06-08"]
    assert "2 receipts to record, 2 days (2026-06-05 … 2026-06-08); 2 that the ledger knows" in exported.rebuilt()
    assert exported.installation.due() == []


def test_a_ledger_that_is_whole_has_nothing_to_learn(exported: Exported) -> None:
    before = exported.installation.plan()
    for _ in range(2):
        out = exported.rebuilt()
        assert "0 receipts to record; 3 that the ledger knows" in out
        assert "there is nothing to record" in out
    assert exported.installation.plan() == before


# --- whose it is ---------------------------------------------------------------------------------------------------------------


def test_another_ledger_is_refused_until_a_rebuild_moves_the_claim_and_then_it_is_the_first_that_is_refused(
    exported: Exported, tmp_path: Path
) -> None:
    state = exported.installation.installation.state.root
    shutil.move(state, tmp_path / "first")
    assert "`hypaware-pipeline ledger rebuild feed`" in (exported.failure(DAYS[0]) or "")
    exported.rebuilt()
    assert exported.claimed_by() == exported.ledger_id()
    assert exported.failure(DAYS[0]) is None
    shutil.rmtree(state)
    shutil.move(tmp_path / "first", state)
    assert "another ledger" in (exported.failure(DAYS[0]) or "")


def test_looking_changes_nothing_until_it_is_agreed_to(exported: Exported) -> None:
    exported.lose_the_ledger()
    claim = exported.claimed_by()
    code, out, err = exported.rebuild()
    assert code == 1
    assert "feed/logs: 3 receipts to record, 3 days (2026-06-05 … 2026-06-07)" in out
    assert f"claimed by ledger {claim}" in out
    assert "nothing was recorded" in err
    assert exported.known_days() == []
    assert exported.claimed_by() == claim


@pytest.mark.parametrize(("answer", "known"), [("y", DAYS), ("n", [])])
def test_a_person_is_asked(exported: Exported, monkeypatch: pytest.MonkeyPatch, answer: str, known: list[str]) -> None:
    exported.lose_the_ledger()
    terminal = StringIO(f"{answer}\n")
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdin", terminal)
    code, out, _ = exported.rebuild()
    assert code == (0 if known else 1)
    assert "Record this?" in out
    assert exported.known_days() == known


def test_what_a_store_raises_that_is_no_answer_ends_at_its_sink(exported: Exported, tmp_path: Path) -> None:
    exported.lose_the_ledger()
    (tmp_path / "outside").mkdir()
    exported.installation.out("astray").mkdir()
    (exported.installation.out("astray") / "in").symlink_to(tmp_path / "outside")
    sinks = {"astray": {**JSONL, "config": {"dir": "out/astray", "prefix": "in"}}, **exported.feed()}
    exported.installation = AnInstallation(exported.home, exported.cache.root, sinks=sinks)
    code, _, err = exported.rebuild("--yes")
    assert code == 1
    assert "left out: sink astray: unexpected ValueError" in err
    assert exported.known_days() == DAYS


def test_a_directory_whose_first_export_failed_is_claimed_too(exported: Exported) -> None:
    """Its claim was another ledger's for ever: no receipt of it lay there."""
    for day in DAYS:
        shutil.rmtree(exported.path(f"logs/day={day}"))
    exported.lose_the_ledger()
    exported.rebuilt()
    assert exported.failure(DAYS[0]) is None


def test_what_another_sink_claims_is_left_alone_and_said(exported: Exported) -> None:
    exported.lose_the_ledger()
    exported.edit("logs/_claim.json", sink="copy", ledger_id="theirs")
    code, _, err = exported.rebuild("--yes")
    assert code == 1
    assert "feed/logs: sink 'copy' writes here, of ledger theirs" in err
    assert exported.known_days() == []
    assert exported.claimed_by() == "theirs"


def test_a_newer_layout_is_left_alone_and_said(exported: Exported) -> None:
    exported.lose_the_ledger()
    exported.edit("logs/_claim.json", layout=2)
    code, _, err = exported.rebuild("--yes")
    assert code == 1
    assert "a newer version of hypaware-pipeline writes here (layout 2)" in err
    assert exported.known_days() == []


def test_receipts_of_another_sink_at_the_same_place_are_counted_and_not_taken(exported: Exported) -> None:
    exported.lose_the_ledger()
    shutil.copy(exported.path(RECEIPT), exported.path(RECEIPT).with_name("_receipt.copy.json"))
    assert "1 of other sinks, left alone" in exported.rebuilt()
    assert exported.known_days() == DAYS


def test_a_sink_whose_destination_cannot_be_read_costs_no_other(exported: Exported) -> None:
    exported.lose_the_ledger()
    sinks = {"elsewhere": {**JSONL, "config": {"dir": "${ENV:NO_SUCH_PLACE}/out"}}, **exported.feed()}
    exported.installation = AnInstallation(exported.home, exported.cache.root, sinks=sinks)
    code, out, err = exported.rebuild("--yes")
    assert code == 1
    assert "left out: sink elsewhere: " in err
    assert "feed: 3 receipts recorded" in out
    assert exported.known_days() == DAYS


def test_a_sink_that_is_not_named_is_not_looked_at(exported: Exported) -> None:
    exported.lose_the_ledger()
    assert exported.rebuild("feeed")[0] == 2
    sinks = {"other": {**JSONL, "config": {"dir": "out/other"}}, **exported.feed()}
    exported.installation = AnInstallation(exported.home, exported.cache.root, sinks=sinks)
    assert "no receipts of this sink lie at its destination" in exported.rebuild("other", "--yes")[1]
    assert exported.known_days() == []


# --- what cannot be believed ---------------------------------------------------------------------------------------------------


def edited(**changes: Any) -> Callable[[Exported], None]:
    return lambda exported: exported.edit(RECEIPT, **changes)


def file_edited(**changes: Any) -> Callable[[Exported], None]:
    def edit(exported: Exported) -> None:
        (file,) = json.loads(exported.path(RECEIPT).read_text())["files"]
        exported.edit(RECEIPT, files=[{**file, **changes}])

    return edit


def rows_edited(**changes: Any) -> Callable[[Exported], None]:
    def edit(exported: Exported) -> None:
        (file,) = json.loads(exported.path(RECEIPT).read_text())["files"]
        exported.edit(RECEIPT, files=[{**file, "row_set": {**file["row_set"], **changes}}])

    return edit


def packed(*numbers: int) -> str:
    """The keys of a row set, as a receipt has them."""
    keys = np.array(numbers, np.uint64)
    return str(pack(Rows(keys, np.zeros(len(keys), np.int64))).to_json()["keys"])


def file_doubled(exported: Exported) -> None:
    receipt = json.loads(exported.path(RECEIPT).read_text())
    doubled = {name: 2 * receipt[name] for name in ("rows", "exported_rows", "bytes", "files")}
    exported.edit(RECEIPT, **doubled)


def of_version_1(exported: Exported) -> None:
    """What the version before wrote: receipts that do not say which rows they speak of."""
    receipt = json.loads(exported.path(RECEIPT).read_text())
    files = [{name: file[name] for name in ("key", "source", "rows", "bytes", "sha256")} for file in receipt["files"]]
    names = ("sink", "dataset", "day", "destination", "ledger_id", "fingerprint", "rows", "exported_rows", "parked_rows", "bytes")
    names += ("parked", "unreadable", "exported_at", "seconds")
    older = {"version": 1, **{name: receipt[name] for name in names}, "files": files}
    exported.path(RECEIPT).write_text(json.dumps(older))


DAMAGES: dict[str, tuple[Callable[[Exported], None], str]] = {
    "torn": (lambda exported: exported.path(RECEIPT).write_bytes(exported.path(RECEIPT).read_bytes()[:90]), "Invalid JSON"),
    "empty": (lambda exported: exported.path(RECEIPT).write_bytes(b""), "Invalid JSON"),
    "a list": (lambda exported: exported.path(RECEIPT).write_text("[]"), "Input should be an object"),
    "rows do not balance": (edited(rows=4), "its balance does not close: 4 rows and 0 kept, but 3 exported, 0 parked"),
    "kept rows do not balance": (edited(kept_rows=1), "its balance does not close: 3 rows and 1 kept"),
    "rows elsewhere do not balance": (edited(elsewhere_rows=1), "and 1 of other days' files"),
    "parked rows do not add up": (edited(parked_rows=1), "its parts do not add up"),
    "bytes do not add up": (edited(bytes=1), "its parts do not add up"),
    "a file of other rows than its row set": (file_edited(rows=2), f"'{OBJECT}' has 2 rows, its row set 3"),
    "a row set of other rows than its keys": (rows_edited(rows=2), "its parts do not add up"),
    "a row set that lost a key": (rows_edited(keys=packed(1, 2)), "a row set says 3 rows and holds 2 keys and 3 tokens"),
    "a row set that is torn": (rows_edited(keys="AAAA"), "a row set of 3 rows is damaged"),
    "a row set of other bytes": (rows_edited(tokens="AAAA"), "a row set of 3 rows is damaged"),
    "a row set that is no base64": (rows_edited(tokens="a!"), "Only base64 data is allowed"),
    "an object twice": (file_doubled, "it names an object twice"),
    "a reason that is none": (edited(kept="lost"), "kept: Input should be "),
    "rows in words": (edited(rows="3"), "rows: Input should be a valid integer"),
    "rows that are true": (edited(rows=True), "rows: Input should be a valid integer"),
    "fewer than no rows": (edited(parked_rows=-1), "parked_rows: Input should be greater than or equal to 0"),
    "a day that is none": (edited(day="2026-06-31"), "day: "),
    "another day": (edited(day="2026-06-05"), "it speaks of sink 'feed', dataset 'logs', day 2026-06-05"),
    "another sink": (edited(sink="archive"), "it speaks of sink 'archive'"),
    "another dataset": (edited(dataset="traces"), "it speaks of sink 'feed', dataset 'traces'"),
    "another day's object": (
        file_edited(key="logs/day=2026-06-05/unknown.jsonl.gz"),
        "it names 'logs/day=2026-06-05/unknown.jsonl.gz', which is no object beside it",
    ),
    "the receipt itself": (file_edited(key=RECEIPT), "which is no object beside it"),
    "something outside": (file_edited(key="../../precious"), "which is no object beside it"),
    "no digest": (file_edited(sha256="abc"), "files.0.sha256: "),
    "the form of before": (of_version_1, "reads receipts of version 2, not 1"),
    "a newer form": (edited(version=3), "reads receipts of version 2, not 3"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_receipt_edited_by_hand_is_named_and_never_believed(exported: Exported, damage: str) -> None:
    edit, reason = DAMAGES[damage]
    edit(exported)
    exported.lose_the_ledger()
    objects = exported.installation.objects()
    code, out, err = exported.rebuild("--yes")
    assert code == 1
    assert "feed: 2 receipts recorded" in out
    assert f"{RECEIPT} is no receipt to be believed" in err
    assert reason in err
    assert exported.known_days() == ["2026-06-05", "2026-06-07"]

    failure = exported.failure("2026-06-06") or ""
    assert reason in failure
    assert RECEIPT in failure
    assert exported.installation.objects() == objects

    exported.path(RECEIPT).unlink()
    assert exported.failure("2026-06-06") is None
    assert exported.installation.due() == []
    assert exported.installation.objects() == objects


def test_keys_that_a_later_version_adds_to_a_receipt_are_no_damage(exported: Exported) -> None:
    exported.edit(RECEIPT, colour="green")
    exported.lose_the_ledger()
    exported.rebuilt()
    assert exported.known_days() == DAYS


@pytest.mark.parametrize("kind", ["gone", "changed"])
def test_a_day_whose_object_is_not_as_its_receipt_says_counts_as_not_exported_and_is_exported_again(
    exported: Exported, kind: str
) -> None:
    whole = exported.installation.objects()
    if kind == "gone":
        exported.path(OBJECT).unlink()
    else:
        exported.path(OBJECT).write_bytes(b"shorter")
    exported.lose_the_ledger()
    code, _, err = exported.rebuild("--yes")
    assert code == 1
    assert f"feed/logs: logs 2026-06-06: its receipt names {OBJECT}" in err
    assert ("which is gone" in err) == (kind == "gone")
    assert exported.installation.due() == ["2026-06-06"]
    exported.installation.export()
    assert exported.installation.objects() == whole


def test_a_name_that_had_to_be_changed_is_found_under_its_own(run: ACommandLine, home: Path, tmp_path: Path) -> None:
    cache = a_cache(tmp_path / "cache").with_rows("My Logs", [a_log(DAYS[0])])
    exported = Exported(run, home, cache)
    exported.installation.export(dataset="My Logs")
    exported.lose_the_ledger()
    exported.rebuilt()
    assert exported.known_days("My Logs") == [Day(DAYS[0])]
    assert exported.installation.due(dataset="My Logs") == []
