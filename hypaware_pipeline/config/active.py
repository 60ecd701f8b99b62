"""Which plugins are on, and what their own entries say: ours, with HypAware's as defaults.

Why a plugin that HypAware's file does not list stays on: HypAware lists what *it* runs. Only switching one off there, or leaving
it out of a list of ours, says anything about us.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypaware_pipeline.config.document import PluginEntry
from hypaware_pipeline.config.rules import duplicate_plugin
from hypaware_pipeline.errors import ConfigError


@dataclass(frozen=True, slots=True)
class PluginEntries:
    """The plugin entries that count for our sinks.

    Attributes:
        own: Our file's list; None when it has none.
        inherited: HypAware's entries by name, their `config` reduced to what our plugins take.
    """

    own: Sequence[PluginEntry] | None = None
    inherited: Mapping[str, PluginEntry] = field(default_factory=dict)

    def inactivity(self, pointer: str, name: str) -> list[ConfigError]:
        """Why a plugin that stands at `pointer` is not on; nothing if it is."""
        places = self._places(name)
        if len(places) > 1:
            return [duplicate_plugin(name, places[1], places[0])]
        if places and self.own is not None:
            where = None if self.own[places[0]].enabled else f"at /plugins/{places[0]}/enabled"
        elif name in self.inherited:
            where = None if self.inherited[name].enabled else "in HypAware's own config; list it in plugins here to have it on"
        elif self.own is None:
            return []
        else:
            message = f"plugin '{name}' is not listed in plugins; add it, or leave plugins out to have all that are bundled"
            return [ConfigError("sink_plugin_not_active", pointer, message)]
        return [ConfigError("sink_plugin_not_active", pointer, f"plugin '{name}' is switched off {where}")] if where else []

    def own_config(self, name: str) -> tuple[str, Mapping[str, Any]]:
        """The pointer and the value of a plugin's `config` in our file; empty when it is not listed."""
        places = self._places(name)
        return (f"/plugins/{places[0]}/config", self.own[places[0]].config) if self.own and places else ("", {})

    def inherited_config(self, name: str) -> Mapping[str, Any]:
        """What HypAware's file says of the plugin."""
        return self.inherited[name].config if name in self.inherited else {}

    def _places(self, name: str) -> list[int]:
        return [place for place, entry in enumerate(self.own or ()) if entry.name == name]
