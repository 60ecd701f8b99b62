"""HypAware's 5-field cron: what a schedule may look like, when it fires, and the same said so that any cron reader fires then.

Why a schedule is written anew before Dagster sees it: the two read some texts differently. `5/10` is minute 5 to HypAware, every
tenth minute from 5 on to others; `5-5` is 5 to HypAware and the whole range to Dagster; with `*/2` as day of month and `1` as day
of week HypAware takes either, others need both. What is written anew holds only what all read alike: `*`, numbers, and `*/step`
of minutes and hours.

Why day of week 7 is Sunday although HypAware, which takes it, never fires then: that is a defect there. Who writes 7 means
Sunday.

Why a schedule that never fires is an error: nobody means the 30th of February.
"""

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass

_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of month", 1, 31), ("month", 1, 12), ("day of week", 0, 7))

_PART = re.compile(r"(?:\*|(?P<low>[0-9]+)(?:-(?P<high>[0-9]+))?)(?:/(?P<step>[0-9]+))?")

_DAYS = frozenset(range(1, 32))
_WEEK = frozenset(range(7))
_LONGEST = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}
"""The last day a month can have, where that is not 31."""


def cron_problem(text: str) -> str | None:
    """Why `text` is no schedule; None if it is one.

    Each field is a comma-separated list of `*`, `N`, `N-M` or one of these with `/step`. Aliases and names are not part of it.
    """
    return cron_grammar_problem(text) or (None if _Cron.parse(text).fires() else "schedule never fires: no year has such a day")


def cron_grammar_problem(text: str) -> str | None:
    """Why HypAware would not take `text` as a schedule; None if it would."""
    if not (text.isascii() and all(character.isprintable() or character == "\t" for character in text)):
        return "schedule holds characters outside printable ASCII"
    fields = text.split()
    if len(fields) != len(_FIELDS) or fields[0].startswith("@"):
        return "schedule must be five fields (minute hour day-of-month month day-of-week); aliases such as @hourly are not taken"
    for field, (name, least, most) in zip(fields, _FIELDS, strict=True):
        for part in field.split(","):
            if not _is_part(part, least, most):
                return (
                    f"schedule: '{part}' is no {name}; allowed are *, N, N-M and a /step after any of them, N in {least}-{most}"
                )
    return None


def plain_cron(text: str) -> str:
    """The schedule, written so that Dagster fires it at the minutes (UTC) at which HypAware would. `text` is without problem."""
    return _Cron.parse(text).plain()


def next_firing(text: str, after: dt.datetime) -> dt.datetime:
    """The first minute (UTC) after a moment at which the schedule fires. `text` is without problem."""
    return _Cron.parse(text).next_firing(after.astimezone(dt.UTC))


def _is_part(part: str, least: int, most: int) -> bool:
    match = _PART.fullmatch(part)
    if match is None or (match["step"] is not None and int(match["step"]) < 1):
        return False
    if match["low"] is None:
        return True
    low = int(match["low"])
    high = low if match["high"] is None else int(match["high"])
    return least <= low <= high <= most


@dataclass(frozen=True, slots=True)
class _Cron:
    """A schedule as sets of numbers. `either`: a day fires if its number or its weekday does, not both."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either: bool

    @classmethod
    def parse(cls, text: str) -> "_Cron":
        fields = text.split()
        minutes, hours, days, months, weekdays = (
            _numbers(field, least, most) for field, (_, least, most) in zip(fields, _FIELDS, strict=True)
        )
        # HypAware looks at the text: `*/2` restricts, and so does `1-31`.
        either = fields[2] != "*" and fields[4] != "*"
        return cls(minutes, hours, days, months, frozenset(number % 7 for number in weekdays), either)

    def fires(self) -> bool:
        """Whether it ever does."""
        if self.either or self.weekdays != _WEEK:
            return True
        return any(min(self.days) <= _LONGEST.get(month, 31) for month in self.months)

    def next_firing(self, after: dt.datetime) -> dt.datetime:
        moment = after.replace(second=0, microsecond=0) + dt.timedelta(minutes=1)
        while not self._fires_on(moment):  # at most eight years: the 29th of February, and a century without one
            moment = moment.replace(hour=0, minute=0) + dt.timedelta(days=1)
        times = [(hour, minute) for hour in sorted(self.hours) for minute in sorted(self.minutes)]
        left = next((time for time in times if time >= (moment.hour, moment.minute)), None)
        if left is None:  # not today any more
            return self.next_firing(moment.replace(hour=23, minute=59))
        return moment.replace(hour=left[0], minute=left[1])

    def _fires_on(self, day: dt.datetime) -> bool:
        by_number, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return day.month in self.months and (by_number or by_weekday if self.either else by_number and by_weekday)

    def plain(self) -> str:
        every_day = self.either and (self.days == _DAYS or self.weekdays == _WEEK)
        return " ".join(
            (
                _stepped(self.minutes, 60),
                _stepped(self.hours, 24),
                "*" if every_day else _listed(self.days, _DAYS),
                _listed(self.months, frozenset(range(1, 13))),
                "*" if every_day else _listed(self.weekdays, _WEEK),
            )
        )


def _numbers(field: str, least: int, most: int) -> frozenset[int]:
    return frozenset(number for part in field.split(",") for number in _part_numbers(part, least, most))


def _part_numbers(part: str, least: int, most: int) -> Sequence[int]:
    match = _PART.fullmatch(part)
    if match is None:
        raise ValueError(f"'{part}' is no part of a schedule")
    step = int(match["step"] or 1)
    if match["low"] is None:
        return range(least, most + 1, step)
    low = int(match["low"])
    return range(low, int(match["high"] or low) + 1, step)  # a single number stays one, whatever its step


def _stepped(numbers: frozenset[int], count: int) -> str:
    """Of minutes or hours: as `*/step` where that says the same, since people read it more easily than a list."""
    step = next((step for step in range(1, count // 2 + 1) if numbers == frozenset(range(0, count, step))), None)
    if step is None:
        return _listed(numbers, frozenset(range(count)))
    return "*" if step == 1 else f"*/{step}"


def _listed(numbers: frozenset[int], whole: frozenset[int]) -> str:
    return "*" if numbers == whole else ",".join(str(number) for number in sorted(numbers))
