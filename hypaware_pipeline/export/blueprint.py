"""All that decides what a code location shows: drawn once from the config file, the ledger and the cache's directories.

Why it is one value that can be written down: a run is started minutes after it was asked for, in a process of its own, and must
find the assets it was asked for there, whatever became of the config file meanwhile. Dagster keeps the text for it.

Why the resolved config is written down and not the file's text: what a file means depends on its place, on the environment and on
HypAware's own file. No secret is in it: a resolved config holds the names of variables, never their values, and the ledger's URL
stands without its password.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pydantic import TypeAdapter

from hypaware_pipeline.cache.layout import dataset_names, resolve_root
from hypaware_pipeline.cache.schemas import dataset_columns
from hypaware_pipeline.config import Config, Retention, SinkConfig
from hypaware_pipeline.datasets import KNOWN_DATASETS, resolve_dataset
from hypaware_pipeline.errors import CacheError, ConfigError, ConfigErrorKind
from hypaware_pipeline.export.beginnings import Beginnings, beginnings
from hypaware_pipeline.export.installation import Clock, Installation, utc_now
from hypaware_pipeline.ledger import LedgerPlace
from hypaware_pipeline.model import Column, Dataset, DatasetName, Day, SinkName
from hypaware_pipeline.state import StateDirectory


@dataclass(frozen=True, slots=True)
class Blueprint:
    """What a code location shows.

    Attributes:
        datasets: What the cache has; the columns of each are those declared and those of its tables.
        cache_error: Why it could not be looked at.
    """

    installation: Installation
    beginnings: Beginnings
    datasets: tuple[Dataset, ...]
    cache_error: str | None = None

    @classmethod
    def draw(cls, installation: Installation) -> Self:
        """Look at everything now. Reads directories and the tables' metadata, rows only when the first day is to be chosen."""
        begins = beginnings(installation)
        try:
            root = resolve_root(installation.config.cache_root)
            datasets = tuple(resolve_dataset(name, dataset_columns(root, name)) for name in dataset_names(root))
            return cls(installation, begins, datasets)
        except CacheError as error:
            return cls(installation, begins, (), str(error))

    def to_text(self) -> str:
        """As JSON; `from_text` reads it back."""
        config = self.installation.config
        document = _Document(
            path=config.path,
            sinks=list(config.sinks.values()),
            broken={name: _plain(errors) for name, errors in config.broken_sinks.items()},
            problems=_plain(config.problems),
            notes=config.notes,
            cache_root=config.cache_root,
            wanted_first_day=config.first_day,
            floor_day=config.floor_day,
            retention=config.retention,
            state=self.installation.state.root,
            ledger=self.installation.ledger.shown,
            first_day=self.beginnings.first_day,
            note=self.beginnings.note,
            sink_starts=dict(self.beginnings.sink_starts),
            columns={dataset.name: _undeclared(dataset) for dataset in self.datasets},
            cache_error=self.cache_error,
        )
        return _FORM.dump_json(document).decode()

    @classmethod
    def from_text(cls, text: str, *, env: Mapping[str, str] = os.environ, clock: Clock = utc_now) -> Self:
        """Read what `to_text` wrote.

        Args:
            text: What it wrote.
            env: Where the ledger's password may be.
            clock: The time.

        Raises:
            ValueError: another version of this program wrote it.
        """
        document = _FORM.validate_json(text)
        config = Config(
            path=document.path,
            sinks={sink.name: sink for sink in document.sinks},
            broken_sinks={name: _errors(errors) for name, errors in document.broken.items()},
            problems=_errors(document.problems),
            notes=document.notes,
            cache_root=document.cache_root,
            first_day=document.wanted_first_day,
            floor_day=document.floor_day,
            retention=document.retention,
        )
        return cls(
            installation=Installation(
                config, StateDirectory(document.state), LedgerPlace.remembered(document.ledger, env), clock
            ),
            beginnings=Beginnings(document.first_day, document.note, document.sink_starts),
            datasets=tuple(resolve_dataset(name, columns) for name, columns in document.columns.items()),
            cache_error=document.cache_error,
        )


_PlainErrors = list[tuple[ConfigErrorKind, str, str]]


@dataclass(frozen=True, slots=True)
class _Document:
    """A blueprint as plain data; `columns` are what the tables of each dataset have and nobody declares."""

    path: Path
    sinks: list[SinkConfig]
    broken: dict[str, _PlainErrors]
    problems: _PlainErrors
    notes: tuple[str, ...]
    cache_root: Path
    wanted_first_day: Day | None
    floor_day: Day
    retention: Retention
    state: Path
    ledger: str
    first_day: Day
    note: str | None
    sink_starts: dict[SinkName, Day]
    columns: dict[DatasetName, list[Column]]
    cache_error: str | None


_FORM = TypeAdapter(_Document)


def _plain(errors: Iterable[ConfigError]) -> _PlainErrors:
    return [(error.kind, error.pointer, error.message) for error in errors]


def _undeclared(dataset: Dataset) -> list[Column]:
    """What is declared is in the program: every run of ours carries the text, and need not carry that too."""
    declared = KNOWN_DATASETS.get(dataset.name)
    return [column for column in dataset.columns if declared is None or column not in declared.columns]


def _errors(plain: _PlainErrors) -> tuple[ConfigError, ...]:
    return tuple(ConfigError(*each) for each in plain)
