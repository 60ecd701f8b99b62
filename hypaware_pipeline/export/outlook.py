"""The days of a plan, sorted by what becomes of them, and what they come to: what `export`, `plan` and `status` all say.

Why this is not the plan: the plan judges days by their content alone. Which of them have a partition, and which may be exported
today, hangs on where partitions begin and on the date.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.filesize import decimal

from hypaware_pipeline.export.plan import PlannedDay, Reason
from hypaware_pipeline.export.survey import DatasetPlan
from hypaware_pipeline.model import UNDATED, Day, SinkName

MUCH_REWRITTEN_BYTES = 1_000_000_000
"""More than this of days already exported is not what a quiet day brings: a config was changed, or a cache replaced."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """The days of one (sink, dataset) of which there is something to say.

    Attributes:
        sink: Whose.
        due: What an export exports now.
        early: Due, but before the first partition.
        coming: Due, when their day has come.
        settling: Not written anew until a removal of rows has settled.
        frozen: Not written anew, because the cache no longer holds them whole.
    """

    sink: SinkName
    due: Sequence[PlannedDay]
    early: Sequence[PlannedDay]
    coming: Sequence[PlannedDay]
    settling: Sequence[PlannedDay]
    frozen: Sequence[PlannedDay]

    @classmethod
    def of(cls, plan: DatasetPlan, *, first_day: Day, today: Day) -> "Outlook":
        """Sort a plan's days. `first_day` is the first partition."""
        due = [entry for entry in plan.days if entry.due]
        return cls(
            sink=plan.sink,
            due=[entry for entry in due if entry.day == UNDATED or first_day <= entry.day <= today],
            early=[entry for entry in due if entry.day != UNDATED and entry.day < first_day],
            coming=[entry for entry in due if entry.day != UNDATED and entry.day > today],
            settling=[entry for entry in plan.days if entry.reason is Reason.SETTLING],
            frozen=[entry for entry in plan.days if entry.reason is Reason.FROZEN],
        )

    def narrowed(self, wanted: Callable[[Day], bool]) -> "Outlook":
        """With only the wanted ones of the days that could be exported. What cannot be is said in any case."""

        def of(entries: Sequence[PlannedDay]) -> list[PlannedDay]:
            return [entry for entry in entries if wanted(entry.day)]

        return replace(self, due=of(self.due), settling=of(self.settling), frozen=of(self.frozen))


@dataclass(frozen=True, slots=True)
class SinkTotal:
    """What the due days of one sink come to.

    Attributes:
        causes: How many days are due for which reason, in a word.
        held: How many days are not due, although something changed, by why.
        bytes: As far as it can be guessed.
        unknown_days: How many days there is no guess for.
        rewritten_bytes: What of `bytes` is of days that were exported before.
    """

    sink: SinkName
    rows: int
    bytes: int
    unknown_days: int
    rewritten_bytes: int
    causes: Mapping[str, int]
    held: Mapping[str, int]

    @property
    def days(self) -> int:
        """How many are due."""
        return sum(self.causes.values())

    @property
    def warning(self) -> str | None:
        """What a person should think about before it is exported."""
        if self.rewritten_bytes <= MUCH_REWRITTEN_BYTES:
            return None
        why = ", ".join(f"{self.causes[word]} {word}" for word in ("drift", "stale", "asked") if word in self.causes)
        return (
            f"sink {self.sink} would write about {decimal(self.rewritten_bytes)} of days exported before once more ({why}); "
            "if that is not wanted, take back what changed, or narrow it with --from, --to and --dataset"
        )

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "sink": self.sink,
            "due_days": self.days,
            "rows": self.rows,
            "bytes": self.bytes,
            "unknown_days": self.unknown_days,
            "rewritten_bytes": self.rewritten_bytes,
            "causes": dict(self.causes),
            "held": dict(self.held),
            "warning": self.warning,
        }


def totals(sinks: Iterable[SinkName], outlooks: Sequence[Outlook]) -> tuple[SinkTotal, ...]:
    """What the outlooks of each sink come to, in the order of the sinks; one without a due day is among them."""
    return tuple(_total(sink, [each for each in outlooks if each.sink == sink]) for sink in sinks)


def _total(sink: SinkName, outlooks: Sequence[Outlook]) -> SinkTotal:
    due = [entry for each in outlooks for entry in each.due]
    held = Counter[str]()
    for each in outlooks:
        held.update(settling=len(each.settling), kept=len(each.frozen), early=len(each.early), coming=len(each.coming))
    causes = Counter(entry.reason.word for entry in due)
    return SinkTotal(
        sink,
        rows=sum(entry.rows for entry in due),
        bytes=sum(entry.bytes or 0 for entry in due),
        unknown_days=sum(entry.bytes is None for entry in due),
        rewritten_bytes=sum(entry.bytes or 0 for entry in due if entry.again),
        causes=dict(sorted(causes.items())),
        held={why: days for why, days in sorted(held.items()) if days},
    )


def counted(count: int, what: str) -> str:
    """`1 day`, `2 days`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def span(days: Sequence[Day]) -> str:
    """Days as a person reads them; at least one, in order."""
    return days[0] if len(days) == 1 else f"{counted(len(days), 'day')} ({days[0]} … {days[-1]})"
