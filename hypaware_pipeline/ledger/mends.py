"""What a database says when it cannot, and what to do about it.

Why an error names the place and the mend but never the statement: its parameters are receipts, and its reader wants to know what
to do about the disk.

Why PostgreSQL's errors are told by code where they have one: its messages come in the server's language. What the client itself
says of a connection has none, and is told by its words.
"""

from typing import NoReturn

import sqlalchemy as sa

from hypaware_pipeline.errors import LedgerError
from hypaware_pipeline.ledger.engine import POSTGRESQL, shown

_START_AGAIN = "restore it from a backup, or move it and its -wal and -shm files away and run `hypaware-pipeline ledger rebuild`"
_CHECK_ACCESS = "check that it is a file and that this user may write it and its directory"
_WAIT = "another process is writing it; end that process or try again"

_SQLITE = (
    ("database is locked", _WAIT),
    ("not a database", _START_AGAIN),
    ("malformed", _START_AGAIN),
    ("disk is full", "free some space"),
    ("disk I/O error", "look at the disk and the space on it"),
    ("readonly", _CHECK_ACCESS),
    ("unable to open", _CHECK_ACCESS),
)
"""What SQLite says, as a fragment of its message."""

_GIVE_PASSWORD = "check the user, and give the password in HYPAWARE_LEDGER_URL, PGPASSWORD or ~/.pgpass"  # noqa: S105
_LET_IN = "let the user in (pg_hba.conf, GRANT), or name another"
_REACH = "check that the server runs, that this machine reaches it, and that HYPAWARE_LEDGER_URL names it; then try again"
_AGAIN = "try again once the server is back"
_DAMAGED = "restore the database from a backup"

_POSTGRESQL_CODES = (
    ("28P01", _GIVE_PASSWORD),
    ("28", _LET_IN),
    ("3D000", "make it (createdb), or name another in HYPAWARE_LEDGER_URL"),
    ("3F000", "make the schema that the user's search_path leads to"),
    ("25006", "this is a standby, or was made read-only; name the primary in HYPAWARE_LEDGER_URL"),
    ("42501", "GRANT the user the right to create and write tables in its schema"),
    ("42P01", _DAMAGED),
    ("55P03", _WAIT),
    ("53100", "free some space on the server"),
    ("53300", "let more connections in (max_connections), or end some"),
    ("57P", _AGAIN),
    ("08", _AGAIN),
    ("XX", _DAMAGED),
)
"""What PostgreSQL answers, as the beginning of its SQLSTATE; the first that fits counts."""

_POSTGRESQL_WORDS = (
    ("password", _GIVE_PASSWORD),
    ("pg_hba.conf", _LET_IN),
    ("role ", _LET_IN),
    ("database system is", _AGAIN),
    ("too many", "let more connections in (max_connections), or end some"),
    ("does not exist", "make it (createdb), or name another in HYPAWARE_LEDGER_URL"),
    ("invalid connection option", "correct HYPAWARE_LEDGER_URL"),
    ("connection", _REACH),
    ("failed to resolve host", _REACH),
)
"""What is said of a connection that was not made or broke, as a fragment of the message; the first that fits counts."""


def explain(kind: type[LedgerError], url: sa.URL, error: Exception) -> NoReturn:
    """Raise `kind` with the database's own words, the place and the mend."""
    original = getattr(error, "orig", None) or error
    if isinstance(error, OSError):
        raise kind(f"ledger {shown(url)}: {error.strerror}; {_CHECK_ACCESS}") from error
    cause = _said_by(original)
    mend = _mend(url.get_backend_name(), getattr(original, "sqlstate", None), cause)
    raise kind(f"ledger {shown(url)}: {cause}" + (f"; {mend}" if mend else "")) from error


def _said_by(original: object) -> str:
    """The database's own words in one line, without PostgreSQL's details, which quote whole rows."""
    sentence = getattr(getattr(original, "diag", None), "message_primary", None)
    return " ".join(str(sentence or original).split())


def _mend(backend: str, code: str | None, cause: str) -> str | None:
    if backend != POSTGRESQL:
        return next((mend for fragment, mend in _SQLITE if fragment in cause), None)
    if code is not None:
        return next((mend for start, mend in _POSTGRESQL_CODES if code.startswith(start)), None)
    return next((mend for fragment, mend in _POSTGRESQL_WORDS if fragment in cause), None)
