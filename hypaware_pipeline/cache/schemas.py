"""Which columns the tables of a dataset have, from their metadata files alone.

Why light: it runs when definitions load. A metadata file is one JSON document, however many data files its table has.

Why what cannot be read adds nothing: definitions must load, and whoever reads the rows says what is wrong.
"""

from pathlib import Path

from hypaware_pipeline.cache.layout import source_locations
from hypaware_pipeline.cache.snapshot import source_columns
from hypaware_pipeline.errors import SourceUnreadable
from hypaware_pipeline.model import Column, DatasetName


def dataset_columns(root: Path, dataset: DatasetName) -> tuple[Column, ...]:
    """The columns of all readable sources, each once, in the order of the first table that has it.

    `root` is what `layout.resolve_root` gave.
    """
    columns: dict[str, Column] = {}
    for location in source_locations(root, dataset):
        try:
            found = source_columns(location)
        except SourceUnreadable:
            continue
        for column in found:
            columns.setdefault(column.name, column)
    return tuple(columns.values())
