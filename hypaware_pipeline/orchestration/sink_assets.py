"""A sink with what its schedule, checks and sensors must know of its assets."""

from collections.abc import Mapping
from dataclasses import dataclass

import dagster as dg

from hypaware_pipeline.config import SinkConfig
from hypaware_pipeline.model import DatasetName, Day


@dataclass(frozen=True, slots=True)
class SinkAssets:
    """A sink with its assets.

    Attributes:
        datasets: Raw names by slug.
        begins: Where the schedule of each dataset begins.
    """

    sink: SinkConfig
    datasets: Mapping[str, DatasetName]
    begins: Mapping[DatasetName, Day]
    first_day: Day
    partitions: dg.DailyPartitionsDefinition
