"""Config files of benchmarks; imports nothing heavy, so that the starter of sides may use it."""

import json
from pathlib import Path

_WRITERS = {"parquet": "@hypaware/format-parquet", "jsonl": "@hypaware/format-jsonl"}


def write_config(home: Path, cache: str, *, sinks: dict[str, str]) -> Path:
    """A config with these sinks, by name and format, into directories below `home`."""
    entries = {
        name: {
            "writer": _WRITERS[kind],
            "destination": "@hypaware/local-fs",
            "config": {"dir": f"out/{name}", "schedule": "*/5 * * * *"},
        }
        for name, kind in sinks.items()
    }
    path = home / "hypaware-pipeline.json"
    path.write_text(json.dumps({"version": 2, "query": {"cache": {"dir": cache}}, "sinks": entries}))
    return path
