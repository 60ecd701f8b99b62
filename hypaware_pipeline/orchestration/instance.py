"""Dagster's instance, with what can be wrong with its home said in one line.

Why opening is one at a time: the first to open a home makes its databases, table by table, and a second one that does the same
fails on a table that is there by now.

Why the lock is forgone where it cannot be had: a home may be read-only when its storage is a database elsewhere.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import dagster as dg
from sqlalchemy.exc import SQLAlchemyError

from hypaware_pipeline.errors import RunStorageFailed, StateUnusable

_LOCK_NAME = ".opening.lock"


@contextmanager
def opened_instance(home: Path) -> Iterator[dg.DagsterInstance]:
    """The instance of a home directory.

    Raises:
        StateUnusable: it cannot be opened.
        RunStorageFailed: it was open, and then its storage did not take something.
    """
    try:
        with _one_at_a_time(home):
            instance = dg.DagsterInstance.from_config(str(home))
    # The home's own configuration chooses the storage, and a storage may raise anything at all.
    except Exception as error:
        remedy = "make it writable, make room on its disk, mend its dagster.yaml, or set DAGSTER_HOME to another directory"
        raise StateUnusable(f"Dagster's home {home} cannot be used: {_cause(error)}; {remedy}") from error
    with instance:
        try:
            yield instance
        except SQLAlchemyError as error:
            raise _failed(home, error) from error
        except OSError as error:
            if error.filename is None or not Path(os.fsdecode(error.filename)).is_relative_to(home):
                raise
            raise _failed(home, error) from error


def _failed(home: Path, error: Exception) -> RunStorageFailed:
    return RunStorageFailed(
        f"Dagster's home {home} did not take a run's events ({_cause(error)}); look at its disk and the space on it, "
        "and export again. What was exported is recorded in the ledger"
    )


@contextmanager
def _one_at_a_time(home: Path) -> Iterator[None]:
    descriptor = None
    with suppress(OSError):
        descriptor = os.open(home / _LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _cause(error: Exception) -> str:
    """One line: the database's own words, else the first line of the error's."""
    text = str(getattr(error, "orig", None) or getattr(error, "strerror", None) or error)
    return " ".join(text.split())[:300]
