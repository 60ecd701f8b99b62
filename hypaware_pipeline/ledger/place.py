"""Where an installation's ledger lies: a file in its state directory, or a PostgreSQL database that several machines share.

Why the environment and not the config file names the database: its URL may hold a password, and it differs between the machines
that share one config.

Why what is kept of the URL has no password: what an installation is gets written into Dagster's database. The rest is looked up
again by whoever opens the ledger.

Why a process whose environment leads to another ledger refuses: a run is started in a process of its own, perhaps on another
machine. Without the variable it would find an empty ledger in a file there, and ask for every day once more.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import sqlalchemy as sa

from hypaware_pipeline.errors import BadRequest, LedgerUnreadable
from hypaware_pipeline.ledger.engine import POSTGRESQL, shown
from hypaware_pipeline.ledger.ledger import Ledger
from hypaware_pipeline.ledger.transactions import Clock

LEDGER_URL_VARIABLE = "HYPAWARE_LEDGER_URL"


@dataclass(frozen=True, slots=True)
class LedgerPlace:
    """Where a ledger lies, as one process may open it.

    Attributes:
        shown: The file, or the database's URL without anything secret. Fit to be shown and stored.
    """

    shown: str
    _url: str | None = field(repr=False, compare=False)  # as the environment has it

    @classmethod
    def chosen(cls, env: Mapping[str, str], *, file: Path) -> Self:
        """The database that the environment names, else a file.

        Raises:
            BadRequest: what the environment says is no URL of a PostgreSQL database.
        """
        text = env.get(LEDGER_URL_VARIABLE) or None
        return cls(str(file) if text is None else shown(_parsed(text)), text)

    @classmethod
    def remembered(cls, shown: str, env: Mapping[str, str]) -> Self:
        """A place that another process chose and wrote down; the environment gives what it could not write."""
        return cls(shown, env.get(LEDGER_URL_VARIABLE) or None)

    def open(self, *, clock: Clock) -> Ledger:
        """The ledger, made if there is none.

        Raises:
            BadRequest: what the environment says is no URL of a PostgreSQL database.
            LedgerUnreadable: it cannot be opened, or the environment names another one.
        """
        url = None if self._url is None else _parsed(self._url)
        named = None if url is None else shown(url)
        if named != (self.shown if self._is_url else None):
            raise LedgerUnreadable(
                f"ledger {self.shown}: this process was to use it, but {LEDGER_URL_VARIABLE} "
                f"{'is not set' if named is None else f'names {named}'} here; set it alike wherever schedules, runs and commands "
                "of this configuration are started, and reload the code location"
            )
        return Ledger.open(Path(self.shown) if url is None else url, clock=clock)

    @property
    def _is_url(self) -> bool:
        return self.shown.startswith(f"{POSTGRESQL}://")


def _parsed(text: str) -> sa.URL:
    """The URL, for the driver that is installed. What is wrong with it is said without it: it may hold a password."""
    scheme, _, rest = text.strip().partition("://")
    if scheme not in (POSTGRESQL, "postgres", f"{POSTGRESQL}+psycopg"):
        raise BadRequest(
            f"{LEDGER_URL_VARIABLE} is no URL of a PostgreSQL database; write postgresql://USER@HOST:PORT/DATABASE, or unset it "
            "to have the ledger in a file of the state directory"
        )
    try:
        url = sa.make_url(f"{POSTGRESQL}+psycopg://{rest}")
    except (sa.exc.ArgumentError, ValueError):
        url = None
    if url is None or "@" in (url.host or ""):
        raise BadRequest(
            f"{LEDGER_URL_VARIABLE} cannot be read as a URL; write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, in user and "
            "password with %40 for @, %2F for /, %3A for : and %25 for %, or leave the password to PGPASSWORD or ~/.pgpass"
        )
    return url
