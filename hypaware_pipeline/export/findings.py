"""What was looked at and how it is: the vocabulary of `check`.

Why a text holds the mend too: it says what is wrong and what to do, as every error of this program does, and most of these texts
are such errors.
"""

import datetime as dt
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    """How a thing is. A problem stops an export, of one sink or day at least; a warning stops none."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        where: Which thing: a few words, such as `sink archive`.
        text: How it is, in one line; of what is wrong, also what to do.
    """

    level: Level
    where: str
    text: str

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)


def ok(where: str, text: str) -> Finding:
    """Something that is as it should be."""
    return Finding(Level.OK, where, text)


def warning(where: str, text: str) -> Finding:
    """Something that stops nothing."""
    return Finding(Level.WARNING, where, text)


def problem(where: str, text: str) -> Finding:
    """Something that stops an export."""
    return Finding(Level.PROBLEM, where, text)


def ago(moment: dt.datetime, now: dt.datetime) -> str:
    """How long ago something was, as roughly as a person says it."""
    seconds = max((now - moment).total_seconds(), 0)
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit} ago"
    return "a moment ago"
