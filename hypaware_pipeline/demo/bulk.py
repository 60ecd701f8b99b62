"""Large Arrow tables of synthetic rows, for benchmarks: what a million rows cost does not depend on what they say.

Why the text is cut from one corpus of random words: it compresses about as well as prose does, and cutting is all it costs.
"""

import datetime as dt
import json
from typing import Any

import numpy as np
import pyarrow as pa

from hypaware_pipeline.demo.wording import TOOLS, WORDS

_DAY_MICROS = 86_400_000_000
_CORPUS_WORDS = 100_000
_TOOL_LISTS = 5


def conversation_table(
    rows: int, *, seed: int, day: dt.date = dt.date(2026, 6, 1), sessions: int = 20, text_bytes: int = 1_500
) -> pa.Table:
    """Rows of `ai_gateway_messages` of one day, about 2 KB each and a 4 KB list of tools that repeats.

    Call it with another seed for more; sessions, ids and texts differ then. A session's rows are together, so that a flush of the
    table makes one file per session. `text_bytes` is the mean length of `content_text`.
    """
    random = np.random.default_rng(seed)
    n = np.arange(rows)
    session = n * sessions // max(rows, 1)
    ids = [f"{seed:04x}-{i:08x}" for i in range(rows)]
    previous = [f'["{ids[i - 1]}"]' if i else "[]" for i in range(rows)]
    kind = n % 4
    started = _micros(day)
    created = pa.array(started + n * (_DAY_MICROS // max(rows, 1)), pa.timestamp("us", tz="UTC"))
    columns = {
        "gateway_id": _repeated(n * 0, ["gw-bench"]),
        "schema_version": pa.array(n * 0 + 7, pa.int32()),
        "session_id": _repeated(session, [f"session-{seed}-{k}" for k in range(sessions)]),
        "provider": _repeated(n * 0, ["anthropic"]),
        "model": _repeated(n * 0, ["large-model"]),
        "system_text": _repeated(session % 3, [f"You help in repository {k}." for k in range(3)]),
        "tools": _repeated(session % _TOOL_LISTS, [_tool_list(k) for k in range(_TOOL_LISTS)]),
        "conversation_started_at": pa.array(n * 0 + started, pa.timestamp("us", tz="UTC")),
        "conversation_source": _repeated(n * 0, ["claude"]),
        "client_name": _repeated(n * 0, ["claude"]),
        "cwd": _repeated(session % 3, [f"/home/dev/repository-{k}" for k in range(3)]),
        "is_sidechain": pa.array(kind < 0, pa.bool_()),
        "message_id": ids,
        "previous_message_id": previous,
        "message_index": pa.array(n, pa.int32()),
        "message_created_at": created,
        "role": _repeated(kind % 2, ["user", "assistant"]),
        "part_id": [f"{message}#0" for message in ids],
        "part_index": pa.array(n * 0, pa.int32()),
        "part_type": _repeated(kind, ["text", "text", "tool_result", "tool_use"]),
        "content_text": _texts(random, rows, text_bytes),
        "tool_args": [f'{{"path":"/src/module_{i}.py","line":{i % 997}}}' if i % 4 == 3 else None for i in range(rows)],
        "attributes": _attributes(random, rows),
        "date": _repeated(n * 0, [day.isoformat()]),
    }
    return pa.table(columns)


def log_table(rows: int, *, seed: int, day: dt.date = dt.date(2026, 6, 1), text_bytes: int = 120) -> pa.Table:
    """Rows of `logs` of one day, about 300 bytes each."""
    random = np.random.default_rng(seed)
    n = np.arange(rows)
    moments = pa.array(_micros(day) + n * (_DAY_MICROS // max(rows, 1)), pa.timestamp("us", tz="UTC"))
    texts = _texts(random, rows, text_bytes)
    columns = {
        "serviceName": _repeated(n % 8, [f"service-{k}" for k in range(8)]),
        "timestamp": moments,
        "observedTimestamp": moments,
        "severityNumber": pa.array(n % 4 * 4 + 5, pa.int32()),
        "severityText": _repeated(n % 4, ["DEBUG", "INFO", "WARN", "ERROR"]),
        "body": [json.dumps(text) for text in texts],
        "traceId": [f"{seed:08x}{i // 10:024x}" for i in range(rows)],
        "flags": pa.array(n * 0 + 1, pa.int32()),
        "resource": _repeated(n % 8, [f'{{"service.name":"service-{k}","host":{{"name":"host-{k % 3}"}}}}' for k in range(8)]),
        "attributes": [
            f'{{"attempt":{i % 5},"millis":{i % 1000 / 8},"retry":{"true" if i % 5 else "false"}}}' for i in range(rows)
        ],
    }
    return pa.table(columns)


def _repeated(indices: Any, values: list[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), pa.array(values, pa.string()))


def _texts(random: np.random.Generator, rows: int, mean_bytes: int) -> list[str]:
    corpus = " ".join(WORDS[i] for i in random.integers(0, len(WORDS), _CORPUS_WORDS))
    lengths = random.integers(mean_bytes // 2, mean_bytes * 3 // 2, rows).tolist()
    starts = random.integers(0, len(corpus) - mean_bytes * 2, rows).tolist()
    return [corpus[start : start + length] for start, length in zip(starts, lengths, strict=True)]


def _attributes(random: np.random.Generator, rows: int) -> list[str]:
    given = random.integers(100, 20_000, rows).tolist()
    taken = random.integers(1, 4_000, rows).tolist()
    seconds = random.random(rows).tolist()
    return [
        f'{{"gateway":{{"request_bytes":{a * 4},"seconds":{s}}},"usage":{{"input_tokens":{a},"output_tokens":{b}}}}}'
        for a, b, s in zip(given, taken, seconds, strict=True)
    ]


def _tool_list(variant: int) -> str:
    tools = [{**tool, "description": f"{tool['description']} " + " ".join(WORDS[variant : variant + 40])} for tool in TOOLS]
    return json.dumps(tools)


def _micros(day: dt.date) -> int:
    return (day - dt.date(1970, 1, 1)).days * _DAY_MICROS
