"""What a sink refuses is set aside and the rest is sent without it; a refusal that makes no sense stops the sink."""

import json

import pyarrow.compute as pc
import pytest

from hypaware_pipeline.errors import SinkRejected
from hypaware_pipeline.row_sets import unpack
from hypaware_pipeline.sinks.blob import BlobSink
from tests.installations import AnInstallation


def refusing(monkeypatch, judge):
    """Make the sink refuse batches: `judge` gets the bodies of the rows it is sent, and gives reasons by position."""
    write_object = BlobSink.write_object
    rounds = []

    def judged(self, key, *, columns, batches, confirm, fence):
        batches = list(batches)
        bodies = [json.loads(text)["number"] for batch in batches for text in batch.column("body").to_pylist()]
        rounds.append(bodies)
        reasons = judge(bodies)
        if reasons is not None:
            raise SinkRejected(reasons)
        return write_object(self, key, columns=columns, batches=batches, confirm=confirm, fence=fence)

    monkeypatch.setattr(BlobSink, "write_object", judged)
    return rounds


def test_refused_rows_are_parked_and_the_rest_is_sent_again_until_the_sink_takes_it(cache, home, monkeypatch):
    """This sink names one row at a time, as one does that stops at the first it does not like."""
    cache.with_day("2026-06-05", rows=6)
    installation = AnInstallation(home, cache.root)
    rounds = refusing(monkeypatch, lambda bodies: next(({at: f"{n} is odd"} for at, n in enumerate(bodies) if n % 2), None))
    (outcome,) = installation.export()
    assert [len(bodies) for bodies in rounds] == [6, 5, 4, 3]
    assert (outcome.status, outcome.receipt.exported_rows, outcome.receipt.parked_rows) == ("exported", 3, 3)
    assert [record.reason for record in outcome.receipt.parked] == ["1 is odd", "3 is odd", "5 is odd"]
    assert all("timestamp=2026-06-05" in record.key for record in outcome.receipt.parked)
    (file,), (aside,) = outcome.receipt.files, outcome.receipt.set_aside
    assert unpack(file.row_set).keys.tolist() == [1, 3, 5]
    assert unpack(aside.row_set).keys.tolist() == [2, 4, 6]
    assert installation.due() == []


def test_a_batch_of_which_every_row_is_refused_leaves_no_object(cache, home, monkeypatch):
    cache.with_day("2026-06-05", rows=2)
    installation = AnInstallation(home, cache.root)
    refusing(monkeypatch, lambda bodies: dict.fromkeys(range(len(bodies)), "never") or None)
    (outcome,) = installation.export()
    assert (outcome.status, outcome.receipt.files, outcome.receipt.parked_rows) == ("exported", (), 2)
    assert installation.objects() == {}
    assert installation.due() == []


def test_rows_parked_beside_an_object_that_stays_and_rows_parked_from_its_addition_are_one_set(cache, home, monkeypatch):
    cache.with_day("2026-06-05", rows=4)
    installation = AnInstallation(home, cache.root)
    refusing(monkeypatch, lambda bodies: {at: "odd" for at, number in enumerate(bodies) if number % 2} or None)
    installation.export()
    cache.writer.delete("logs", "unknown", pc.field("_hyp_ingest_seq") == 1)
    installation.now = cache.clock.moment
    (outcome,) = installation.export()
    assert (outcome.receipt.kept_rows, outcome.receipt.parked_rows) == (1, 2)
    cache.with_day("2026-06-05", rows=2)
    (outcome,) = installation.export()
    assert (outcome.status, outcome.receipt.exported_rows, outcome.receipt.kept_rows) == ("exported", 3, 1)
    (aside,) = outcome.receipt.set_aside
    assert unpack(aside.row_set).keys.tolist() == [2, 4, 6]
    assert installation.due() == []


@pytest.mark.parametrize("reasons", [{}, {2: "was not sent"}, {-1: "was not sent"}])
def test_a_refusal_that_names_no_row_of_the_batch_halts_the_sink_instead_of_going_round(cache, home, monkeypatch, reasons):
    cache.with_day("2026-06-05", rows=2)
    installation = AnInstallation(home, cache.root)
    rounds = refusing(monkeypatch, lambda _: reasons)
    (outcome,) = installation.export()
    assert len(rounds) == 1
    assert outcome.status == "failed"
    assert "defect of its plugin" in outcome.error
    assert outcome.retry_after_seconds is None, "trying again mends nothing"
