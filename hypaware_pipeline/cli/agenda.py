"""What an export would do: what was asked for, held against the plan.

Why `plan`, a dry run and an export all begin here: what is said to be due is then what is exported.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from hypaware_pipeline.config import SinkConfig
from hypaware_pipeline.errors import BadRequest
from hypaware_pipeline.export.beginnings import beginnings
from hypaware_pipeline.export.installation import Installation
from hypaware_pipeline.export.outlook import Outlook, SinkTotal, span, totals
from hypaware_pipeline.export.plan import PlannedDay, partition_of
from hypaware_pipeline.export.survey import DatasetPlan, survey
from hypaware_pipeline.model import DatasetName, Day, SinkName, day_of, parse_day


@dataclass(frozen=True, slots=True)
class Selection:
    """What of everything that is due was asked for."""

    sinks: Sequence[SinkName] = ()
    dataset: str = "*"
    first: Day | None = None
    last: Day | None = None
    every: bool = False

    @classmethod
    def parse(cls, sinks: Sequence[str], *, dataset: str, first: str | None, last: str | None, every: bool) -> "Selection":
        """Read the command line's words.

        Raises:
            BadRequest: a day is no day, or the range is reversed.
        """
        days = []
        for option, text in (("--from", first), ("--to", last)):
            try:
                days.append(None if text is None else parse_day(text))
            except ValueError:
                raise BadRequest(f"{option} is '{text}'; days are written YYYY-MM-DD") from None
        if days[0] and days[1] and days[0] > days[1]:
            raise BadRequest(f"--from {days[0]} lies after --to {days[1]}; the earlier day comes first")
        return cls(tuple(SinkName(name) for name in sinks), dataset, days[0], days[1], every)

    def of_sinks(self, installation: Installation) -> tuple[SinkConfig, ...]:
        """The sinks asked for that can be built.

        Raises:
            BadRequest: a name is no sink, or no sink is configured.
        """
        config = installation.config
        known = [*config.sinks, *config.broken_sinks]
        if not known:
            raise BadRequest(f"{config.path} configures no sink; add one under 'sinks'")
        unknown = [name for name in self.sinks if name not in known]
        if unknown:
            raise BadRequest(f"no sink named {', '.join(unknown)}; the config has {', '.join(sorted(known))}")
        return tuple(sink for name, sink in config.sinks.items() if not self.sinks or name in self.sinks)

    def of_datasets(self, names: Sequence[DatasetName]) -> list[DatasetName]:
        """The datasets asked for.

        Raises:
            BadRequest: none matches.
        """
        matching = [name for name in names if fnmatchcase(name, self.dataset)]
        if names and not matching:
            raise BadRequest(f"no dataset matches '{self.dataset}'; the cache has {', '.join(names)}")
        return matching

    def check_today(self, today: Day) -> None:
        """Refuse a range that lies in the future.

        Raises:
            BadRequest: an end of the range is later than `today`.
        """
        for option, day in (("--from", self.first), ("--to", self.last)):
            if day is not None and day > today:
                raise BadRequest(f"{option} {day} lies in the future; today is {today} (UTC)")

    def wants(self, partition: Day) -> bool:
        """Whether a partition lies in the range asked for."""
        return (self.first is None or partition >= self.first) and (self.last is None or partition <= self.last)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why something that was asked for cannot be exported; `dataset` is None when it is the whole sink."""

    sink: SinkName
    dataset: DatasetName | None
    error: str


@dataclass(frozen=True, slots=True)
class Agenda:
    """What there is to do.

    Attributes:
        due: The days to export, by sink, dataset and day.
        totals: What they come to, per sink that was asked for.
        notes: What a person should know of other days, that is no failure.
        obstacles: What stands in the way of the rest.
    """

    due: Sequence[PlannedDay]
    totals: Sequence[SinkTotal]
    notes: Sequence[str]
    obstacles: Sequence[Obstacle]


def agenda_of(installation: Installation, selection: Selection) -> Agenda:
    """Look at everything now. The same cache and ledger give the same agenda.

    Raises:
        BadRequest, CacheMissing, StateUnusable: the request cannot be carried out as it stands.
        LedgerError: the ledger cannot be read.
    """
    today = day_of(installation.clock().date())
    selection.check_today(today)
    sinks = selection.of_sinks(installation)
    datasets = selection.of_datasets(installation.cache().dataset_names())
    begins = beginnings(installation)
    with installation.open_ledger() as ledger:
        plans = list(survey(installation, ledger, sinks=sinks, datasets=datasets, every=selection.every))
    plans.sort(key=lambda plan: (plan.sink, plan.dataset))
    outlooks = [
        Outlook.of(plan, first_day=begins.first_day, today=today).narrowed(
            lambda day: selection.wants(partition_of(day, begins.first_day))
        )
        for plan in plans
    ]
    notes = [begins.note] if begins.note else []
    obstacles = [*_broken_sinks(installation, selection)]
    for plan, outlook in zip(plans, outlooks, strict=True):
        notes += _notes(plan, outlook, begins.first_day, every=selection.every)
        obstacles += _obstacles(plan, outlook, selection, begins.first_day)
    due = [entry for outlook in outlooks for entry in outlook.due]
    return Agenda(due, totals(sorted(sink.name for sink in sinks), outlooks), notes, obstacles)


def _broken_sinks(installation: Installation, selection: Selection) -> Iterator[Obstacle]:
    for name, errors in installation.config.broken_sinks.items():
        if not selection.sinks or name in selection.sinks:
            yield Obstacle(SinkName(name), None, "; ".join(str(error) for error in errors))


def _notes(plan: DatasetPlan, outlook: Outlook, first_day: Day, *, every: bool) -> Iterator[str]:
    """Days before the first partition, or after today, cannot be exported. Who asks for all is told what they do not get."""
    name = f"{plan.sink}/{plan.dataset}"
    if outlook.coming:
        yield f"{name}: {_rows(outlook.coming)} rows of {_span(outlook.coming)} are exported when that day comes (UTC)"
    if outlook.early:
        yield (
            f"{name}: {_rows(outlook.early)} rows of {_span(outlook.early)} lie before the first day {first_day}; "
            f"`hypaware-pipeline first-day {outlook.early[0].day}` moves it"
        )
    for kept in (outlook.settling, outlook.frozen) if every else ():
        if kept:
            yield f"{name}: not exported again: {_span(kept)}; {kept[0].reason}"


def _obstacles(plan: DatasetPlan, outlook: Outlook, selection: Selection, first_day: Day) -> Iterator[Obstacle]:
    """Why there is no plan, or which sources' rows are missing although no due day will say so.

    The days of these are unknown, or were exported without them.
    """
    if plan.error is not None:
        yield Obstacle(plan.sink, plan.dataset, plan.error)
    reasons = dict(plan.unreadable)
    for entry in plan.days:
        if selection.wants(partition_of(entry.day, first_day)):
            reasons.update(entry.unreadable)
    said = {source for entry in outlook.due for source in entry.unreadable}
    for source in sorted(reasons.keys() - said):
        yield Obstacle(plan.sink, plan.dataset, f"source '{source}' could not be read: {reasons[source]}")


def _rows(entries: Sequence[PlannedDay]) -> int:
    return sum(entry.rows for entry in entries)


def _span(entries: Sequence[PlannedDay]) -> str:
    return span([entry.day for entry in entries])
