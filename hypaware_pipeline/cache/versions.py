"""Whether a dataset is still what it was, from its directories alone.

Why this is enough: everything HypAware does to a table ends in a new metadata file or in another table directory, and the cursor
says which. Who remembers a version and finds it again need not pin, index or plan anything.

Why size and time of the metadata file belong to it: a cache restored from a backup can reach the same file name with other
content.

Why light: it runs in the code server at every tick. Nothing imported here reads a row.
"""

import json
from hashlib import blake2b
from pathlib import Path

from hypaware_pipeline.cache.layout import SourceLocation, source_locations
from hypaware_pipeline.cache.snapshot import source_version
from hypaware_pipeline.errors import SourceUnreadable
from hypaware_pipeline.model import DatasetName


def dataset_version(root: Path, dataset: DatasetName) -> str | None:
    """A digest that changes whenever the dataset's tables do; None when a source cannot be read, and nothing can be said.

    `root` is what `layout.resolve_root` gave.
    """
    try:
        sources = [_version(location) for location in source_locations(root, dataset)]
    except (SourceUnreadable, OSError):
        return None
    # ASCII JSON: a directory name need not be valid UTF-8.
    return blake2b(json.dumps(sources).encode(), digest_size=16).hexdigest()


def _version(location: SourceLocation) -> list[object]:
    version = source_version(location)
    known: list[object] = [location.source, str(version.table_dir), version.retention_cutoff_ms, version.metadata]
    if version.metadata is not None:
        status = (version.table_dir / "metadata" / version.metadata).stat()
        known += [status.st_size, status.st_mtime_ns]
    return known
