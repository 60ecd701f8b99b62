"""The days of one dataset that one attempt exports, handed from the cache to a sink without reading anything yet.

Why it is not a pin: HypAware may swap and remove a generation while a long range is read. What was exported stands; whoever
exports the slice pins the rest anew (`lineage`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hypaware_pipeline.model import DatasetName, Day

if TYPE_CHECKING:
    from hypaware_pipeline.cache.reader import Cache

SCAN_MEMORY_BYTES = 64 * 1024 * 1024
"""Budget of one sort run. A day within it is sorted in memory; a larger one spills."""


@dataclass(frozen=True, slots=True)
class CacheSlice:
    """Lazy: a cache, a dataset, and the days asked for, in the order in which they are exported."""

    cache: "Cache"
    dataset: DatasetName
    days: Sequence[Day]
    spill_dir: Path
