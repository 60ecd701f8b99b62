"""Text that any database takes.

Why at all: a directory may have a name that is no Unicode, and JSON can spell what is no text either. No database takes lone
surrogates, nor PostgreSQL a NUL.
"""

import re

import sqlalchemy as sa

_ESCAPE = re.compile(r"\\(\\|x00|u[0-9a-f]{4})")


def storable(text: str) -> str:
    """What is said to a person, with everything spelled out that no database takes."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


class ExactText(sa.TypeDecorator[str]):
    """A column of names that are compared: what no database takes is spelled out in it, and read back as it was."""

    impl = sa.String
    cache_ok = True

    def process_bind_param(self, value: str | None, _dialect: sa.Dialect) -> str | None:
        """As it is stored."""
        return None if value is None else storable(value.replace("\\", "\\\\"))

    def process_result_value(self, value: str | None, _dialect: sa.Dialect) -> str | None:
        """As it was."""
        return None if value is None else _ESCAPE.sub(_escaped, value)


def _escaped(match: "re.Match[str]") -> str:
    spelled = match.group(1)
    return spelled if spelled == "\\" else chr(int(spelled[1:], 16))
