"""The steps of exporting a day, by name.

Why they are told: whatever comes between two of them, a crash, a pause of an hour, another export, must lose and double nothing.
Only who can stop at each of them can show it.
"""

from collections.abc import Callable
from enum import StrEnum


class Step(StrEnum):
    """What was just done."""

    LEASED = "the lease was taken"
    INTENDED = "the keys of the objects were noted"
    WRITTEN = "an object was written under its temporary name, and may be renamed"
    STORED = "an object is in place"
    REMOVED = "objects without rows were removed"
    RECEIPTED = "the receipt lies at the destination"
    RECORDED = "the ledger has the receipt"


Reached = Callable[[Step], None]
"""Told of every step, in the thread that takes it; what it raises ends the day there."""


def pass_by(step: Step) -> None:
    """Nobody wants to know."""
    del step
