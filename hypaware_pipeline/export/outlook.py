"""The days of a plan, sorted by what becomes of them: what `export`, its dry run and `status` all say.

Why this is not the plan: the plan judges days by their content alone. Which of them have a partition, and which may be exported
today, hangs on where partitions begin and on the date.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hypaware_pipeline.export.plan import PlannedDay, Reason
from hypaware_pipeline.export.survey import DatasetPlan
from hypaware_pipeline.model import UNDATED, Day


@dataclass(frozen=True, slots=True)
class Outlook:
    """The days of one (sink, dataset) of which there is something to say.

    Attributes:
        due: What an export exports now.
        early: Due, but before the first partition.
        coming: Due, when their day has come.
        settling: Not written anew until a removal of rows has settled.
        frozen: Not written anew, because the cache no longer holds them whole.
    """

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
            due=[entry for entry in due if entry.day == UNDATED or first_day <= entry.day <= today],
            early=[entry for entry in due if entry.day != UNDATED and entry.day < first_day],
            coming=[entry for entry in due if entry.day != UNDATED and entry.day > today],
            settling=[entry for entry in plan.days if entry.reason is Reason.SETTLING],
            frozen=[entry for entry in plan.days if entry.reason is Reason.FROZEN],
        )


def counted(count: int, what: str) -> str:
    """`1 day`, `2 days`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def span(days: Sequence[Day]) -> str:
    """Days as a person reads them; at least one, in order."""
    return days[0] if len(days) == 1 else f"{counted(len(days), 'day')} ({days[0]} … {days[-1]})"
