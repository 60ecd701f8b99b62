"""The caches that benchmarks read, written by the demo's writer in processes of their own.

Rows are shuffled before they are flushed: what arrives sorted would spare the engine its sort.
"""

import datetime as dt
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from hypaware_pipeline.demo.bulk import conversation_table, log_table
from hypaware_pipeline.demo.writer import CacheWriter

DAY = "2026-06-01"
_FIRST_DAY = dt.date.fromisoformat(DAY)
_CHUNK_ROWS = 20_000
_DAY_MICROS = 86_400_000_000


def fill_conversations(cache: str, *, rows: int, text_bytes: int, one_file: bool = False, rows_per_file: int = 350) -> None:
    """One day of conversations: 20 sessions per 20,000 rows in files of a flush's size, or one session compacted into a file."""
    writer = _writer(cache)
    for chunk, count in enumerate(_chunks(rows)):
        table = _shuffled(conversation_table(count, seed=chunk, sessions=20, text_bytes=text_bytes))
        if one_file:
            table = _with_column(table, "session_id", pa.array(["session"] * count))
            table = _with_column(table, "cwd", pa.array(["/home/dev/repository"] * count))
        writer.append("ai_gateway_messages", "claude", table, max_rows_per_file=None if one_file else rows_per_file)
    if one_file:
        _compact(writer, "ai_gateway_messages", "claude")


def fill_logs(cache: str, *, rows: int, one_file: bool, rows_per_file: int = 1_000) -> None:
    """One day of logs, in files of a flush's size or compacted into one."""
    writer = _writer(cache)
    for chunk, count in enumerate(_chunks(rows)):
        table = _shuffled(log_table(count, seed=chunk))
        writer.append("logs", "unknown", table, max_rows_per_file=None if one_file else rows_per_file)
    if one_file:
        _compact(writer, "logs", "unknown")


def fill_distinct(cache: str, *, rows: int, text_bytes: int) -> None:
    """One day of conversations in which no large value repeats: a text, and a VARIANT that holds another."""
    writer = _writer(cache)
    for chunk, count in enumerate(_chunks(rows)):
        table = conversation_table(count, seed=chunk, text_bytes=text_bytes).drop_columns(["tools"])
        texts = table.column("content_text").to_pylist()
        frames = [f'{{"number":{chunk * _CHUNK_ROWS + at},"text":"{text}"}}' for at, text in enumerate(reversed(texts))]
        writer.append("ai_gateway_messages", "claude", _shuffled(_with_column(table, "raw_frame", pa.array(frames))))


def fill_days(cache: str, *, datasets: int, days: int, rows_per_day: int, files: int) -> None:
    """So many datasets shaped like logs, each with rows on so many days, one flush per file."""
    writer = _writer(cache)
    rows = days * rows_per_day
    for number in range(datasets):
        moments = pa.array(_midnight() - np.arange(rows) % days * _DAY_MICROS, pa.timestamp("us", tz="UTC"))
        table = _with_column(log_table(rows, seed=number), "timestamp", moments)
        for start in range(0, rows, -(-rows // files)):
            writer.append("logs" if number == 0 else f"bench_{number}", "unknown", table.slice(start, -(-rows // files)))


def fill_many_files(cache: str, *, files: int, rows_per_file: int, flushes: int) -> None:
    """Logs of one day in so many files, committed in so many flushes."""
    writer = _writer(cache)
    for flush in range(flushes):
        table = log_table(files // flushes * rows_per_file, seed=flush)
        writer.append("logs", "unknown", table, max_rows_per_file=rows_per_file)


def append_logs(cache: str, *, rows: int, seed: int) -> None:
    """One more flush of one file; another `seed` gives the file another name."""
    _writer(cache, seed=seed).append("logs", "unknown", log_table(rows, seed=seed))


def data_files(cache: str, dataset: str) -> list[str]:
    """The data files of a dataset whose tables were never swapped, or whose retired generations were removed."""
    return sorted(map(str, (Path(cache) / "datasets" / dataset).glob("source=*/table*/data/*.parquet")))


def _writer(cache: str, seed: int = 0) -> CacheWriter:
    return CacheWriter(Path(cache), rng=random.Random(seed))


def _chunks(rows: int) -> Iterator[int]:
    for start in range(0, rows, _CHUNK_ROWS):
        yield min(_CHUNK_ROWS, rows - start)


def _shuffled(table: pa.Table) -> pa.Table:
    return table.take(pa.array(np.random.default_rng(table.num_rows).permutation(table.num_rows)))


def _with_column(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    if name in table.schema.names:
        return table.set_column(table.schema.get_field_index(name), name, values)
    return table.append_column(name, values)


def _compact(writer: CacheWriter, dataset: str, source: str) -> None:
    writer.compact(dataset, source)
    writer.expire_retired(dataset, source)


def _midnight() -> int:
    return (_FIRST_DAY - dt.date(1970, 1, 1)).days * _DAY_MICROS
