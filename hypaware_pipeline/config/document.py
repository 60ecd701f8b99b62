"""The shape of the file: HypAware's v2, and two keys of our own at the top.

Why keys nothing here reads are still checked (maintenance, remotes): the block is HypAware's, people copy it over
whole, and a wrong value in it is wrong in both files.

Why an unknown key in a plugin entry is an error although HypAware drops it: this file is ours alone, and `"enable": false` would
leave the plugin on.
"""

from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationInfo, WithJsonSchema, field_validator

from hypaware_pipeline.config.shape import Shape
from hypaware_pipeline.model import DatasetName, Day, parse_day

DEFAULT_FLOOR_DAY = Day("2023-01-01")
"""Rows before this day are undated: HypAware did not exist, so their clock was wrong."""

MESSAGES = {
    "/version": "version must be exactly 2",
    "/plugins": "plugins must be an array",
    "/plugins/*": "plugin entry must be an object",
    "/plugins/*/name": "name (plugin name) is required",
    "/plugins/*/config": "config must be an object when present",
    "/sinks": "sinks must be an object keyed by instance name",
}
"""HypAware's own words where it has some, by pointer."""


def is_two(value: Any) -> int:
    """The one version there is.

    Raises:
        ValueError: it is another one.
    """
    if isinstance(value, bool) or value != 2:
        raise ValueError(MESSAGES["/version"])
    return 2


def _is_web_address(text: str) -> str:
    if not text.startswith(("http://", "https://")) or not urlsplit(text).hostname:
        raise ValueError("url must be an http or https address")
    return text


def _is_day(text: str) -> Day:
    try:
        return parse_day(text)
    except ValueError:
        raise ValueError("must be a day, written YYYY-MM-DD") from None


NonEmpty = Annotated[str, Field(min_length=1)]
_Count = Annotated[float, Field(ge=0)]
_DayText = Annotated[str, AfterValidator(_is_day), WithJsonSchema({"type": "string", "format": "date"})]
JsonObject = dict[str, Any]


class PluginEntry(Shape):
    """One entry of `plugins`. The last three are pins that HypAware's central server writes."""

    name: NonEmpty
    enabled: bool = True
    config: JsonObject = Field(default_factory=dict)
    version: NonEmpty | None = None
    artifact_hash: NonEmpty | None = None
    source: NonEmpty | None = None


class Retention(Shape):
    """HypAware's: how many days its cache keeps."""

    default_days: _Count
    datasets: dict[str, _Count] = Field(default_factory=dict)

    def days_of(self, dataset: DatasetName) -> float | None:
        """How many days of a dataset are kept; None when none is ever deleted, which HypAware writes as 0."""
        return self.datasets.get(dataset, self.default_days) or None


DEFAULT_RETENTION = Retention(default_days=90)
"""What HypAware keeps unless it is told otherwise."""


class Maintenance(Shape):
    """HypAware's: how its cache is compacted."""

    enabled: bool | None = None
    interval_minutes: _Count | None = None
    target_file_bytes: _Count | None = None
    min_snapshots_to_keep: _Count | None = None
    max_snapshot_age_hours: _Count | None = None
    compact_file_count: _Count | None = None
    compact_avg_file_bytes: _Count | None = None
    compact_batch_bytes: _Count | None = None
    max_tick_ms: _Count | None = None


class Cache(Shape):
    """Where HypAware's cache is, and how HypAware looks after it."""

    dir: NonEmpty | None = Field(default=None, description="The directory that holds datasets/ or cache/datasets/.")
    retention: Retention | None = None
    maintenance: Maintenance | None = None


class Remote(Shape):
    """HypAware's: a server its queries may go to."""

    url: Annotated[str, AfterValidator(_is_web_address)]


class Query(Shape):
    """HypAware's query block."""

    cache: Cache = Field(default_factory=Cache)
    remotes: dict[NonEmpty, Remote] = Field(default_factory=dict)
    default_remote: NonEmpty | None = None


class Document(Shape):
    """A whole file. Sink entries are judged one by one, later: a bad one stops no other."""

    version: Annotated[Any, AfterValidator(is_two), WithJsonSchema({"const": 2})]
    plugins: list[PluginEntry] | None = None
    sinks: JsonObject = Field(default_factory=dict)
    query: Query = Field(default_factory=Query)
    disambiguate: dict[NonEmpty, NonEmpty] = Field(default_factory=dict)
    floor_day: _DayText = Field(default=DEFAULT_FLOOR_DAY, description="Rows before this day count as undated.")
    first_day: _DayText | None = Field(default=None, description="Where partitions begin when they are first made.")

    @field_validator("first_day")
    @classmethod
    def _is_not_below_the_floor(cls, day: str | None, info: ValidationInfo) -> str | None:
        floor = info.data.get("floor_day", "")
        if day is not None and day < floor:
            raise ValueError(f"must not lie before floor_day ({floor}): rows before that are undated")
        return day
