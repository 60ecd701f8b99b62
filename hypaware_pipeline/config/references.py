"""`${ENV:NAME}`: values that stand in the environment and not in the file.

Why a reference is kept as text until a part is made: whatever is read at load is pinned into Dagster's database, digested, shown
in descriptions and quoted in errors. A value that is looked up only where an encoder, a store or a command is made can be in none
of these.

Why an empty variable counts as missing: a service file with `NAME=` is a secret somebody forgot, and an empty password fails
later and with less to say.

Why what was looked up can be masked: libraries quote what they were given, in errors and in addresses.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from hypaware_pipeline.errors import SinkHalted

_TOKEN = re.compile(r"\$\$\{|\$\{ENV:(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}|(?P<other>\$\{)")
_PROBLEM = "holds a '${' that begins no reference; write ${ENV:NAME} for the variable NAME, or $${ for the two characters"
_SHORTEST_MASKED = 4
"""Shorter values stand everywhere by chance; masking them would make nonsense of messages."""


def reference_problems(value: Any, pointer: str) -> Iterator[tuple[str, str]]:
    """Every string inside a JSON value with a malformed reference: its pointer, and what is wrong."""
    if isinstance(value, str):
        if any(match["other"] for match in _TOKEN.finditer(value)):
            yield pointer, _PROBLEM
    elif isinstance(value, Mapping):
        for key, member in value.items():
            yield from reference_problems(member, f"{pointer}/{key}")
    elif isinstance(value, (list, tuple)):
        for place, member in enumerate(value):
            yield from reference_problems(member, f"{pointer}/{place}")


def has_reference(text: str) -> bool:
    """Whether a string refers to a variable."""
    return any(match["name"] for match in _TOKEN.finditer(text))


@dataclass(frozen=True, slots=True)
class Secrets:
    """Fills in references for one sink, and remembers what it filled in, to mask it. Never pinned, shown or stored.

    Attributes:
        sink: For whom, by its configured name.
        env: Where the variables are.
    """

    sink: str
    env: Mapping[str, str] = field(repr=False)
    _used: dict[str, str] = field(default_factory=dict, repr=False)

    def fill(self, text: str, key: str) -> str:
        """A string with its references filled in and its escapes undone; `key` is that of the sink's `config` it stands under.

        Raises:
            SinkHalted: a variable is not set.
        """
        return _TOKEN.sub(lambda match: self._value(match["name"], key) if match["name"] else "${", text)

    def fill_settings(self, settings: Mapping[str, str | int]) -> dict[str, str | int]:
        """Settings with every reference filled in.

        Raises:
            SinkHalted: a variable is not set.
        """
        return {key: self.fill(value, key) if isinstance(value, str) else value for key, value in settings.items()}

    def mask(self, text: str) -> str:
        """The text with everything that was filled in replaced by its reference."""
        for name, value in sorted(self._used.items(), key=lambda pair: -len(pair[1])):
            for spelling in {value, quote(value)}:
                if len(value) >= _SHORTEST_MASKED:
                    text = text.replace(spelling, f"${{ENV:{name}}}")
        return text

    def _value(self, name: str, key: str) -> str:
        value = self.env.get(name)
        if not value:
            raise SinkHalted(
                f"sink '{self.sink}': the environment variable {name} is not set or empty; /sinks/{self.sink}/config/{key}, or "
                "the plugin's own entry, refers to it. Set it for the processes that export (the code server, your cron job)"
            )
        self._used[name] = value
        return value
