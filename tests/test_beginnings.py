import datetime as dt

import pytest

from hypaware_pipeline.errors import BadRequest
from hypaware_pipeline.export.beginnings import beginnings, move_first_day
from hypaware_pipeline.model import Day, SinkName
from tests.builders import a_cache
from tests.installations import NOW, AnInstallation


@pytest.fixture
def cache(tmp_path):
    return a_cache(tmp_path / "cache")


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


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
