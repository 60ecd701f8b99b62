"""What everything is called in Dagster.

Why one place: a deployment that already has an asset `cache/logs` or a job `export_archive` takes ours in under a prefix, and a
name that forgot it would take that whole code location down.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg

CACHE = "cache"
"""First part of every cache asset's key after the prefix, and the name of their group."""

BROKEN = "broken"
"""The same of what could not be built."""


@dataclass(frozen=True, slots=True)
class Names:
    """Keys and names under a prefix, which is empty in a deployment of our own. Sinks and datasets are given by their slugs."""

    prefix: Sequence[str] = ()

    def cache_key(self, dataset: str) -> dg.AssetKey:
        """The cache of a dataset."""
        return dg.AssetKey([*self.prefix, CACHE, dataset])

    def sink_key(self, sink: str, dataset: str) -> dg.AssetKey:
        """The copy of a dataset at a sink."""
        return dg.AssetKey([*self.prefix, sink, dataset])

    def broken_key(self, what: str) -> dg.AssetKey:
        """Something that could not be built."""
        return dg.AssetKey([*self.prefix, BROKEN, what])

    def plain(self, name: str) -> str:
        """A group, resource, sensor or pool."""
        return "_".join([*self.prefix, name])

    def job(self, sink: str) -> str:
        """The job that exports a sink."""
        return self.plain(f"export_{sink}")

    def schedule(self, sink: str) -> str:
        """The schedule of that job."""
        return self.plain(f"export_{sink}_schedule")

    def requeue_sensor(self, sink: str) -> str:
        """The sensor that asks for the days of a sink that failed."""
        return self.plain(f"requeue_{sink}")

    def io_manager(self, sink: str) -> str:
        """The resource that writes to a sink."""
        return self.plain(f"{sink}_io_manager")

    @property
    def cache_io_manager(self) -> str:
        """The resource that reads the cache."""
        return self.plain("cache_io_manager")
