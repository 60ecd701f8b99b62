"""`plan` on the command line: what is due and why, what it comes to, and what is worth a warning."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hypaware_pipeline.cli.agenda import Agenda
from hypaware_pipeline.cli.reporting import Report
from hypaware_pipeline.export.outlook import MUCH_REWRITTEN_BYTES, Outlook, totals
from hypaware_pipeline.export.plan import PlannedDay, Reason
from hypaware_pipeline.model import DatasetName, Day, SinkName
from tests.builders import CacheBuilder
from tests.command_line import ACommandLine
from tests.installations import JSONL, PARQUET, AnInstallation, write_config

FEED = SinkName("feed")


def feed(**config: Any) -> dict[str, Any]:
    return {"feed": {**JSONL, "config": {"dir": "out/feed", **config}}}


class Planned:
    """An installation some of whose days are exported, and its plan as the command tells it."""

    def __init__(self, run: ACommandLine, home: Path, cache: CacheBuilder) -> None:
        self._run = run
        self._home = home
        self.cache = cache

    def exported(self) -> AnInstallation:
        installation = AnInstallation(self._home, self.cache.root, sinks=feed())
        installation.export()
        return installation

    def __call__(self, *arguments: str, **config: Any) -> Any:
        path = write_config(self._home, self.cache.root, sinks=feed(**config))
        (document,) = self._run.documents("plan", *arguments, "--config", str(path))
        return document


@pytest.fixture
def planned(run: ACommandLine, home: Path, cache: CacheBuilder) -> Planned:
    return Planned(run, home, cache.with_day("2026-06-05", rows=4).with_day("2026-06-06", rows=2))


def test_a_cache_of_which_nothing_was_exported_is_new_and_of_unknown_size(planned: Planned) -> None:
    document = planned()
    assert [(each["day"], each["rows"], each["bytes"], each["cause"]) for each in document["due"]] == [
        ("2026-06-05", 4, None, "new"),
        ("2026-06-06", 2, None, "new"),
    ]
    (total,) = document["sinks"]
    assert (total["due_days"], total["rows"], total["unknown_days"], total["causes"]) == (2, 6, 2, {"new": 2})
    assert total["warning"] is None


def test_a_day_that_drifted_is_told_from_days_that_are_stale(planned: Planned) -> None:
    copies = planned.exported().objects()
    planned.cache.with_day("2026-06-05", rows=4).with_day("2026-06-07", rows=1)
    document = planned()
    assert [(each["day"], each["cause"], each["again"]) for each in document["due"]] == [
        ("2026-06-05", "drift", True),
        ("2026-06-07", "new", False),
    ]
    assert document["due"][0]["bytes"] == 2 * len(copies["logs/day=2026-06-05/unknown.jsonl.gz"])
    assert document["sinks"][0]["rewritten_bytes"] == document["due"][0]["bytes"]

    document = planned(compression="zstd")
    assert [(each["day"], each["cause"]) for each in document["due"]] == [
        ("2026-06-05", "stale"),
        ("2026-06-06", "stale"),
        ("2026-06-07", "new"),
    ]
    assert document["sinks"][0]["causes"] == {"new": 1, "stale": 2}


def test_a_plan_is_the_same_until_something_changes(run: ACommandLine, home: Path, cache: CacheBuilder) -> None:
    for day in ("2026-06-06", "2026-06-05"):
        cache.with_day(day, dataset="ai_gateway_messages", source="claude").with_day(day).with_day(day, timestamp=None)
    sinks = {"zulu": {**JSONL, "config": {"dir": "out/z"}}, "alpha": {**PARQUET, "config": {"dir": "out/a"}}}
    config = str(write_config(home, cache.root, sinks=sinks))
    first, again = (run("plan", "--json", "--config", config) for _ in range(2))
    assert first == again
    document = json.loads(first[1])
    keys = [(each["sink"], each["dataset"], each["day"]) for each in document["due"]]
    assert keys == sorted(keys)
    assert [total["sink"] for total in document["sinks"]] == ["alpha", "zulu"]


def test_a_plan_says_to_a_person_what_a_dry_run_says(run: ACommandLine, home: Path, cache: CacheBuilder) -> None:
    cache.with_day("2026-06-05", rows=4).with_day("2126-01-01")
    config = str(write_config(home, cache.root, sinks=feed()))
    said = run("plan", "--config", config)
    assert said == run("export", "--dry-run", "--config", config)
    assert said[0] == 0
    assert said[1].splitlines()[-1] == "feed: 2 days due, 7 rows, of unknown size: 2 new"
    assert not (home / "out").exists()


def test_a_plan_names_what_stands_in_the_way_and_ends_with_exit_code_1(
    run: ACommandLine, home: Path, cache: CacheBuilder
) -> None:
    cache.with_day("2026-06-05", source="a").with_day("2026-06-05", dataset="ai_gateway_messages", source="claude")
    (cache.source_directory("logs", "a") / "cursor.json").write_text("{")
    broken = {**JSONL, "config": {"dir": "out/broken", "level": "high"}}
    config = str(write_config(home, cache.root, sinks={**feed(), "other": broken}))
    code, out, err = run("plan", "--json", "--config", config)
    document = json.loads(out)
    assert (code, err) == (1, "")
    assert [(each["sink"], each["dataset"]) for each in document["obstacles"]] == [("other", None), ("feed", "logs")]
    assert "level" in document["obstacles"][0]["error"]
    assert "cursor.json" in document["obstacles"][1]["error"]
    assert [each["dataset"] for each in document["due"]] == ["ai_gateway_messages"]
    assert run("plan", "feed", "--dataset", "ai*", "--config", config)[0] == 0


def test_days_before_the_first_day_and_days_to_come_are_counted_not_planned(planned: Planned, run: ACommandLine) -> None:
    planned()
    planned.cache.with_day("2026-06-01")
    document = planned("--from", "2026-06-06")
    assert [each["day"] for each in document["due"]] == ["2026-06-06"]
    assert document["sinks"][0]["held"] == {"early": 1}
    assert "lie before the first day 2026-06-05" in document["notes"][0]


def a_day(rows: int, size: int | None, reason: Reason, *, day: str = "2026-06-05") -> PlannedDay:
    return PlannedDay(FEED, DatasetName("logs"), Day(day), rows, reason, bytes=size, again=reason is not Reason.NEW)


def total_of(*due: PlannedDay, **outlook: Any) -> Any:
    empty = Outlook(FEED, due=(), early=(), coming=(), settling=(), frozen=())
    (total,) = totals([FEED], [replace(empty, due=due, **outlook)])
    return total


def test_a_gigabyte_of_days_exported_before_is_worth_a_warning_that_says_why() -> None:
    just = a_day(1, MUCH_REWRITTEN_BYTES, Reason.SINK_CHANGED)
    assert total_of(just).warning is None
    warning = total_of(just, a_day(1, 1, Reason.CHANGED, day="2026-06-06")).warning
    assert "sink feed would write about 1.0 GB" in warning
    assert "(1 drift, 1 stale)" in warning


def test_new_days_of_any_size_are_worth_no_warning() -> None:
    assert total_of(a_day(1, 5 * MUCH_REWRITTEN_BYTES, Reason.NEW)).warning is None


def test_days_that_wait_and_days_that_are_kept_are_counted_apart() -> None:
    total = total_of(settling=[a_day(1, 1, Reason.SETTLING)], frozen=[a_day(1, 1, Reason.FROZEN)] * 2)
    assert (total.days, total.held) == (0, {"kept": 2, "settling": 1})


@pytest.mark.parametrize("reason", [each for each in Reason if a_day(1, 1, each).due])
def test_a_plan_can_say_every_reason_for_which_a_day_is_due(reason: Reason, capsys: pytest.CaptureFixture[str]) -> None:
    """`plan` broke off with a KeyError when a day was due whose last export had been cut off."""
    day = a_day(1, 1, reason)
    Report(as_json=False).planned(Agenda([day], [total_of(day)], notes=[], obstacles=[]))
    said = capsys.readouterr().out
    assert str(reason)[:40] in " ".join(said.split())
    assert f"1 {reason.word}" in said


def test_the_warning_reaches_whoever_looks_or_exports(
    planned: Planned, run: ACommandLine, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned.exported()
    monkeypatch.setattr("hypaware_pipeline.export.outlook.MUCH_REWRITTEN_BYTES", 10)
    assert "once more (2 stale)" in planned(compression="zstd")["sinks"][0]["warning"]
    for command in (("plan",), ("export", "--dry-run")):
        code, _, err = run(*command, "--config", str(home / "hypaware-pipeline.json"))
        assert code == 0
        assert "warning: sink feed would write about" in err
