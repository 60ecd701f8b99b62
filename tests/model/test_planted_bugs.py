"""The machine is worth something if it finds what would go wrong with an engine that is a little simpler than ours.

Each of these is planted in one place, and is how somebody might build it who has not met the cache that breaks it. What counts is
what they do to a sink; a bug that makes exports fail is easily found.
"""

from dataclasses import replace
from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from hypaware_pipeline.cache.reader import DatasetPin
from hypaware_pipeline.export import day_export
from hypaware_pipeline.export.reconcile import DayWork, place_sum, reconcile
from hypaware_pipeline.model import Fingerprint, Kept
from hypaware_pipeline.row_sets import Rows, pack, unpack
from tests.model.machine import STEPS, Machine
from tests.model.world import WrongAtSink

pytestmark = pytest.mark.long

EXAMPLES = 300
"""At most; most are found within 40, the rarest was found within 130."""


def a_maximum_as_cursor(monkeypatch):
    """What has a lower number than something that was exported counts as exported: HypAware's own watermark."""

    def with_cursor(situation, name):
        work = reconcile(situation, name)
        writes = [_above(write, situation) for write in work.writes]
        skipped = sum(int(old.mask.sum() - new.mask.sum()) for old, new in zip(work.writes, writes, strict=True))
        some = [write for write in writes if write.mask.any()]
        return replace(work, writes=some, elsewhere_rows=work.elsewhere_rows + skipped)

    monkeypatch.setattr(day_export, "reconcile", with_cursor)


def _above(write, situation):
    files = situation.standing.files if situation.standing else ()
    held = [unpack(file.row_set) for file in files if file.source == write.source]
    if not held:
        return write
    rows = situation.rows[write.source]
    here = np.any([each.find(rows.keys, rows.tokens)[0] for each in held], axis=0)
    mask = write.mask & (here | (rows.keys > max(each.keys[-1] for each in held)))
    row_set = pack(Rows.of(rows.keys[mask], rows.tokens[mask]))
    return replace(write, mask=mask, place_sum=place_sum(rows.places[mask]), row_set=row_set)


def no_generations(monkeypatch):
    """A number is a row, whichever row it was before."""

    def find(self, keys, tokens):
        here = np.isin(keys, self.keys)
        return here, here

    monkeypatch.setattr(Rows, "find", find)


def shrinking_without_a_chain(monkeypatch):
    """What the cache has no more was purged, whatever cache it is by now."""

    def unchained(situation, name):
        if situation.standing is None:
            return reconcile(situation, name)
        states = situation.sources
        files = [
            replace(file, chain=states[file.source].chain) if file.source in states else file for file in situation.standing.files
        ]
        return reconcile(replace(situation, standing=replace(situation.standing, files=tuple(files))), name)

    monkeypatch.setattr(day_export, "reconcile", unchained)


def files_as_fingerprint(monkeypatch):
    """A day is unchanged as long as the data files are."""
    summary = DatasetPin._summary

    def by_files(self, *arguments):
        names = sorted(file.name for source in self.sources for file in self.source_pin(source).files)
        digest = blake2b("\n".join(names).encode(), digest_size=16).hexdigest()
        return replace(summary(self, *arguments), fingerprint=Fingerprint(digest))

    monkeypatch.setattr(DatasetPin, "_summary", by_files)


def one_row_set_per_source(monkeypatch):
    """What a sink has of a source is compared with what the cache has of that source."""

    def by_source(situation, name):
        files = situation.standing.files if situation.standing else ()
        sources = sorted({*situation.rows, *(file.source for file in files)})
        works = [reconcile(_of_source(situation, source), name) for source in sources]
        return DayWork(
            writes=[write for work in works for write in work.writes],
            stays=[file for work in works for file in work.stays],
            set_aside=[each for work in works for each in work.set_aside],
            kept_rows=sum(work.kept_rows for work in works),
            kept=next((work.kept for work in works if work.kept), Kept.NOTHING),
            elsewhere_rows=sum(work.elsewhere_rows for work in works),
        )

    monkeypatch.setattr(day_export, "reconcile", by_source)


def _of_source(situation, source):
    rows = {source: situation.rows[source]} if source in situation.rows else {}
    standing = situation.standing
    if standing is not None:
        files = tuple(file for file in standing.files if file.source == source)
        standing = replace(standing, files=files, set_aside=tuple(s for s in standing.set_aside if s.source == source))
    return replace(situation, rows=rows, standing=standing)


@pytest.mark.parametrize(
    "bug",
    [
        a_maximum_as_cursor,
        no_generations,
        shrinking_without_a_chain,
        one_row_set_per_source,
        files_as_fingerprint,
    ],
)
def test_the_machine_finds(bug, monkeypatch):
    bug(monkeypatch)
    quickly = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    with pytest.raises(WrongAtSink):
        run_state_machine_as_test(Machine, settings=quickly)
