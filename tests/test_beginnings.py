import datetime as dt

import pytest

from hypaware_pipeline.errors import BadRequest
from hypaware_pipeline.export.beginnings import beginnings, begins, move_first_day
from hypaware_pipeline.model import DatasetName, Day, SinkName
from tests.installations import JSONL, NOW, AnInstallation


def test_one_absurd_timestamp_does_not_make_thousands_of_partitions(cache, home):
    cache.with_day("2026-06-05").with_rows("logs", [{"serviceName": "old", "timestamp": NOW.replace(year=1970)}])
    assert beginnings(AnInstallation(home, cache.root).installation).first_day == "2026-06-05"


def test_the_first_day_stays_when_earlier_rows_arrive(cache, home):
    cache.with_day("2026-06-05")
    installation = AnInstallation(home, cache.root).installation
    assert beginnings(installation).first_day == "2026-06-05"
    cache.with_day("2026-06-01")
    assert beginnings(installation).first_day == "2026-06-05"


def test_an_empty_cache_begins_today_and_chooses_when_it_has_rows(cache, home):
    (cache.root / "datasets").mkdir(parents=True, exist_ok=True)
    installation = AnInstallation(home, cache.root).installation
    begins = beginnings(installation)
    assert begins.first_day == "2026-06-10"
    assert "no dated row yet" in begins.note
    cache.with_day("2026-06-05")
    assert beginnings(installation).first_day == "2026-06-05"


def test_a_first_day_of_the_config_that_differs_from_the_stored_one_is_said(cache, home):
    cache.with_day("2026-06-05")
    beginnings(AnInstallation(home, cache.root).installation)
    begins = beginnings(AnInstallation(home, cache.root, first_day="2026-06-01").installation)
    assert begins.first_day == "2026-06-05"
    assert "hypaware-pipeline first-day 2026-06-01" in begins.note


def test_a_first_day_in_the_future_is_not_stored(cache, home):
    cache.with_day("2026-06-05")
    begins = beginnings(AnInstallation(home, cache.root, first_day="2027-01-01").installation)
    assert begins.first_day == "2026-06-10"
    assert "lies in the future" in begins.note


def test_moving_the_first_day_is_bounded_by_floor_and_today(cache, home):
    cache.with_day("2026-06-05")
    installation = AnInstallation(home, cache.root).installation
    with installation.open_ledger() as ledger:
        for day in ("2022-12-31", "2026-06-11"):
            with pytest.raises(BadRequest, match="must lie between 2023-01-01"):
                move_first_day(installation, ledger, Day(day))
        move_first_day(installation, ledger, Day("2026-01-01"))
    assert beginnings(installation).first_day == "2026-01-01"


def test_a_sink_starts_on_the_day_it_is_first_seen_and_not_later(cache, home):
    cache.with_day("2026-06-05")
    installation = AnInstallation(home, cache.root)
    assert beginnings(installation.installation).sink_starts[SinkName("feed")] == "2026-06-10"
    installation.now += dt.timedelta(days=30)
    assert beginnings(installation.installation).sink_starts[SinkName("feed")] == "2026-06-10"


def test_a_ledger_that_cannot_be_read_is_said_and_does_not_raise(cache, home):
    cache.with_day("2026-06-05")
    installation = AnInstallation(home, cache.root).installation
    installation.state.ensure()
    installation.state.ledger.write_bytes(b"no database" * 100)
    begins = beginnings(installation)
    assert begins.first_day == "2026-06-05"
    assert "ledger.db" in begins.note
    assert begins.sink_starts == {"archive": "2026-06-10", "feed": "2026-06-10"}


# --- where schedules begin -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "dataset", "expected"),
    [
        (None, "logs", None),
        (None, "ai_gateway_messages", None),
        (None, "somebodys", "2026-06-10"),
        ("earliest", "somebodys", None),
        ("now", "logs", "2026-06-10"),
        ("2026-01-01", "logs", "2026-01-01"),
        ("2026-01-01", "somebodys", "2026-01-01"),
    ],
)
def test_a_schedule_begins_where_the_sink_says_else_where_its_dataset_suggests(home, start, dataset, expected):
    options = {"dir": "out/feed", **({"start": start} if start else {})}
    installation = AnInstallation(home, home / "cache", sinks={"feed": {**JSONL, "config": options}}).installation
    first_seen = beginnings(installation).sink_starts[SinkName("feed")]
    assert begins(installation.config.sinks[SinkName("feed")], DatasetName(dataset), first_seen) == expected


def test_now_stays_the_day_the_sink_was_first_seen(home):
    sinks = {"feed": {**JSONL, "config": {"dir": "out/feed", "start": "now"}}}
    for days_later in (0, 30):
        installation = AnInstallation(home, home / "cache", now=NOW + dt.timedelta(days=days_later), sinks=sinks).installation
        first_seen = beginnings(installation).sink_starts[SinkName("feed")]
        assert begins(installation.config.sinks[SinkName("feed")], DatasetName("logs"), first_seen) == "2026-06-10"


@pytest.mark.parametrize("start", ["yesterday", "2026-6-1", "", 5, None, "NOW"])
def test_a_start_that_is_none_is_said_where_it_stands(home, start):
    installation = AnInstallation(home, home / "cache", sinks={"feed": {**JSONL, "config": {"dir": "x", "start": start}}})
    found = installation.installation.config.broken_sinks.get("feed", ())
    assert [(error.kind, error.pointer) for error in found] == (
        [] if start is None else [("sink_config_invalid", "/sinks/feed/config/start")]
    )
