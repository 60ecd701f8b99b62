"""One configuration with the places it works in: what the CLI and Dagster both build on.

Why it hands out makers and not open things: definitions are loaded by processes that never export, and a ledger or a cache opened
there would cost them seconds and a lock.
"""

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hypaware_pipeline.config import Config, SinkConfig, load_config
from hypaware_pipeline.config.references import Secrets
from hypaware_pipeline.export.slices import CacheSlice
from hypaware_pipeline.ledger import Ledger, LedgerPlace
from hypaware_pipeline.model import DatasetName, Day
from hypaware_pipeline.plugins.registry import BUNDLED, destination_digest
from hypaware_pipeline.sinks.configured import ConfiguredSink
from hypaware_pipeline.state import StateDirectory, state_directory

if TYPE_CHECKING:
    from hypaware_pipeline.cache.reader import Cache

Clock = Callable[[], dt.datetime]


def utc_now() -> dt.datetime:
    """The system's clock."""
    return dt.datetime.now(dt.UTC)


@dataclass(frozen=True, slots=True)
class Installation:
    """A config file, read, with its state directory and the place of its ledger."""

    config: Config
    state: StateDirectory
    ledger: LedgerPlace
    clock: Clock = utc_now

    @classmethod
    def load(cls, config_path: Path, env: Mapping[str, str], *, clock: Clock = utc_now) -> "Installation":
        """Read a config file.

        Raises:
            ConfigErrors: the file as a whole cannot be used.
            BadRequest: a directory named by the environment is not absolute, or its ledger is no PostgreSQL database.
        """
        config, state = load_config(config_path, env, BUNDLED), state_directory(config_path, env)
        return cls(config, state, LedgerPlace.chosen(env, file=state.ledger), clock)

    def cache(self) -> "Cache":
        """The cache, as it is now.

        Raises:
            CacheMissing: there is none at the configured place.
        """
        from hypaware_pipeline.cache.reader import Cache  # pyarrow and duckdb, 0.6 s: not for who only loads definitions

        return Cache(self.config.cache_root, index_dir=self.state.index, clock=self.clock, floor=self.config.floor_day)

    def slice(self, dataset: DatasetName, days: list[Day]) -> CacheSlice:
        """The given days of a dataset, to be read later."""
        return CacheSlice(self.cache(), dataset, days, self.state.spill)

    def open_ledger(self) -> Ledger:
        """The ledger, made if there is none.

        Raises:
            StateUnusable: the state directory cannot be made or written.
            LedgerUnreadable: the ledger cannot be opened.
        """
        self.state.ensure()
        return self.ledger.open(clock=self.clock)


def build_sink(sink: SinkConfig, env: Mapping[str, str]) -> ConfiguredSink:
    """The sink a config entry describes; imports what its plugins need only now.

    Args:
        sink: The entry.
        env: Where the variables are that its settings refer to.

    Raises:
        SinkHalted: a variable is missing, or a plugin cannot be loaded.
    """
    secrets = Secrets(sink.name, env)
    table_format = None if sink.encoder is None else BUNDLED.table_format(sink.writer, sink.writer_settings, secrets)
    return ConfiguredSink.of(
        sink.name,
        destination_digest(sink),
        encoder=BUNDLED.encoder(*sink.encoding, secrets),
        store=BUNDLED.store(sink.destination, sink.destination_settings, secrets),
        table_format=table_format,
        prefix=sink.prefix,
        secrets=secrets,
        takeover=sink.takeover,
    )
