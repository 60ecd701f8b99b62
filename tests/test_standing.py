"""What a sink holds of a day, where ledger and destination do not agree."""

import datetime as dt
import json
import shutil

import pytest

from hypaware_pipeline.model import Kept
from tests.installations import JSONL, NOW, AnInstallation

DAY = "2026-06-05"
PLACE = f"logs/day={DAY}"
ADDED = f"{PLACE}/unknown.6-7.jsonl.gz"


@pytest.fixture
def added(cache, home):
    """A day that retention reached, with five rows in its object and two in an addition."""
    cache.with_day(DAY, rows=5)
    installation = AnInstallation(home, cache.root)
    installation.export()
    cache.writer.retention(NOW.replace(day=5, hour=0, minute=0, second=2))
    cache.with_day(DAY, rows=2)
    (outcome,) = installation.export()
    assert outcome.receipt.kept is Kept.FROZEN
    assert set(installation.objects()) == {f"{PLACE}/unknown.jsonl.gz", ADDED}
    return installation


def taking_over(installation, name="feed"):
    """The same installation with `takeover`, its sink under another name perhaps."""
    entry = {**JSONL, "config": {"dir": "out/feed", "takeover": True}}
    return AnInstallation(installation.home, installation.installation.config.cache_root, sinks={name: entry})


def test_a_renamed_sink_goes_on_with_what_it_wrote_under_its_former_name(cache, added):
    """It wrote what the cache had left over the whole copy, and additions stayed beside that: lost and doubled at once."""
    renamed = taking_over(added, "archive")
    cache.with_day(DAY, rows=1)
    (outcome,) = renamed.export(sink="archive")
    assert outcome.status == "exported"
    assert sum(added.rows().values()) == 8
    assert max(added.rows().values()) == 1
    receipts = sorted(path.name for path in (added.out() / PLACE).glob("_receipt.*"))
    assert receipts == ["_receipt.archive.json"]
    assert renamed.due(sink="archive") == []


def test_a_ledger_that_came_back_from_a_backup_learns_from_the_destination(cache, added, tmp_path):
    """An addition stayed beside the one that held its rows as well."""
    ledger = added.installation.state.root
    cache.with_day(DAY, rows=1)
    shutil.copytree(ledger, tmp_path / "backup")
    added.now += dt.timedelta(minutes=1)
    added.export()
    shutil.rmtree(ledger)
    shutil.copytree(tmp_path / "backup", ledger)
    cache.with_day(DAY, rows=1)
    added.now += dt.timedelta(minutes=1)
    added.export()
    assert sum(added.rows().values()) == 9
    assert max(added.rows().values()) == 1
    assert added.due() == []


def test_objects_that_no_receipt_names_halt_the_day_instead_of_being_doubled(cache, added):
    shutil.rmtree(added.installation.state.root)
    receipt = added.out() / PLACE / "_receipt.feed.json"
    document = receipt.read_text()
    receipt.unlink()
    before = added.objects()
    (outcome,) = taking_over(added).export()
    assert outcome.status == "failed"
    assert f"{ADDED} lies where objects of this sink do" in outcome.error
    assert "ledger rebuild feed" in outcome.error
    assert added.objects() == before
    receipt.write_text(document)
    (outcome,) = taking_over(added).export()
    assert outcome.status in ("kept", "exported")
    assert added.objects() == before


def test_what_is_no_object_of_the_sink_is_none_of_its_business(cache, added):
    for name in ("notes.txt", "_SUCCESS", "unknown.parquet"):
        (added.out() / PLACE / name).write_text("somebody's")
    cache.with_day(DAY, rows=1)
    (outcome,) = added.export()
    assert outcome.status == "exported"


def test_a_receipt_edited_by_hand_gives_way_to_the_ledger_s(cache, added):
    receipt = added.out() / PLACE / "_receipt.feed.json"
    receipt.write_text("[]")
    cache.with_day(DAY, rows=1)
    (outcome,) = added.export()
    assert outcome.status == "exported"
    assert json.loads(receipt.read_text())["exported_rows"] == 8
    assert sum(added.rows().values()) == 8


def test_a_day_of_other_settings_in_the_same_place_is_written_anew_though_its_rows_are_the_same(cache, home):
    """Its objects stayed as the old settings had made them, and counted as those of the new."""
    cache.with_day(DAY, rows=5)
    AnInstallation(home, cache.root).export()
    entry = {**JSONL, "config": {"dir": "out/feed", "level": 1}}
    changed = AnInstallation(home, cache.root, sinks={"feed": entry})
    assert changed.due() == [DAY]
    before = changed.objects()
    changed.export()
    assert changed.objects().keys() == before.keys()
    assert changed.objects() != before
