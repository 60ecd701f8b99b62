"""HypAware's spool: where rows wait for a flush, and what it notes of the last one."""

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hypaware_pipeline.demo.cursor import iso_millis, write_json
from hypaware_pipeline.demo.table_schema import TableSchema

_LABELS: Final = {
    "ai_gateway_messages": "proxy_messages_v5",
    "node": "graph_v1",
    "edge": "graph_v1",
    "enrichment_prospects": "enrich_v1",
    "enrichment_resolutions": "enrich_v1",
    "enrichment_committed": "enrich_v1",
}


def record_flush(root: Path, dataset: str, moment: dt.datetime, *, rows: int, size: int) -> None:
    """Note a flush of so many rows and bytes."""
    flush = {"flushedAt": iso_millis(moment), "rowCount": rows, "bytesWritten": size}
    write_json(_directory(root, dataset) / "last-flush.json", flush)


def append(root: Path, dataset: str, schema: TableSchema, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add rows as one document; a datetime becomes ISO text."""
    columns = [{"name": column.name, "type": column.type.value, "nullable": not column.required} for column in schema.columns]
    document = json.dumps({"version": 1, "columns": columns, "rows": list(rows)}, ensure_ascii=False, default=iso_millis)
    with (_directory(root, dataset) / "active.jsonl").open("a", encoding="utf-8") as file:
        file.write(document + "\n")


def _directory(root: Path, dataset: str) -> Path:
    directory = root / "datasets" / dataset / _LABELS.get(dataset, "all") / "_hypaware_spool"
    directory.mkdir(parents=True, exist_ok=True)
    return directory
