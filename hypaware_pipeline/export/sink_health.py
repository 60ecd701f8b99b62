"""Whether the destinations take what is exported: each is written to, and its directories are nobody else's.

Why something is put and removed: permissions, quotas, read-only mounts and credentials are known only to the destination, and a
put on a condition is what every export does there. It lies beside the datasets for a moment, under a name that readers of data
skip.

Why nothing is put where the ledger says that a directory is somebody else's: that destination may be a mistake.
"""

import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.filesize import decimal

from hypaware_pipeline.config import SinkConfig
from hypaware_pipeline.errors import CacheError, LedgerError, SinkError, StateUnusable
from hypaware_pipeline.export.findings import Finding, ok, problem, warning
from hypaware_pipeline.export.installation import Installation, build_sink
from hypaware_pipeline.model import DatasetName
from hypaware_pipeline.plugins.contracts import IfAbsent
from hypaware_pipeline.sinks.configured import ConfiguredSink
from hypaware_pipeline.sinks.naming import probe_key

_GIB = 1 << 30
LITTLE_SPACE_BYTES = _GIB
"""Less may not hold a day, and what sorting it spills."""
NO_SPACE_BYTES = _GIB // 16
"""Less does not hold the files of one export beside those they replace, nor what a database wants."""


def sink_findings(installation: Installation, env: Mapping[str, str]) -> Iterator[Finding]:
    """Every sink that can be built by its config."""
    datasets, ledger_id = _datasets(installation), _ledger_id(installation)
    for sink in installation.config.sinks.values():
        taken = [name for name in datasets if sink.takes(name)]
        if datasets and not taken:
            text = f"takes none of what is in the cache ({', '.join(datasets)}); mend /sinks/{sink.name}/config/datasets"
            yield warning(f"sink {sink.name}", text)
        yield _judged(sink, taken, ledger_id, env)


def disk_findings(installation: Installation) -> Iterator[Finding]:
    """The space on each disk that something is written to."""
    places = {"state": installation.state.root}
    for sink in installation.config.sinks.values():
        kind, *parts = sink.place
        if kind == "file" and Path(*parts).is_absolute():  # else a variable says where
            places[f"sink {sink.name}"] = Path(*parts)
    disks: dict[int, tuple[Path, list[str]]] = {}
    for what, place in places.items():
        existing = _existing(place)
        disks.setdefault(existing.stat().st_dev, (existing, []))[1].append(what)
    for directory, used_by in disks.values():
        yield space_finding(directory, used_by, free=shutil.disk_usage(directory).free)


def space_finding(directory: Path, used_by: Sequence[str], *, free: int) -> Finding:
    """Whether so many free bytes are enough."""
    where = f"disk of {directory}"
    text = f"{decimal(free)} free, for {', '.join(used_by)}"
    if free >= LITTLE_SPACE_BYTES:
        return ok(where, text)
    judge = problem if free < NO_SPACE_BYTES else warning
    return judge(where, f"{text}; free some space, a day and what sorting it takes must fit")


def _judged(sink: SinkConfig, taken: Sequence[DatasetName], ledger_id: str | None, env: Mapping[str, str]) -> Finding:
    """Whether one sink's destination takes its datasets. Whatever a store raises ends at its sink."""
    where = f"sink {sink.name}"
    try:
        built = build_sink(sink, env)
    except SinkError as error:
        return problem(where, str(error))
    try:
        if ledger_id is not None:
            for dataset in taken:
                built.claim(dataset, ledger_id).check()
        return ok(where, f"{_probe(built)} can be written")
    except SinkError as error:
        return problem(where, built.mask(str(error)))
    except Exception as error:
        return problem(where, built.mask(f"unexpected {type(error).__name__}: {error}"))


def _probe(sink: ConfiguredSink) -> str:
    """Put something and remove it; returns where."""
    key = probe_key(sink.prefix, secrets.token_hex(8))
    sink.store.put(key, lambda out: out.write(b"put by `hypaware-pipeline check`; may be removed\n"), condition=IfAbsent())
    sink.store.delete(key)
    return sink.uri(key).rpartition("/")[0]


def _datasets(installation: Installation) -> tuple[DatasetName, ...]:
    try:
        return installation.cache().dataset_names()
    except CacheError:  # said where the cache is looked at
        return ()


def _ledger_id(installation: Installation) -> str | None:
    try:
        with installation.open_ledger() as ledger:
            return ledger.id
    except (LedgerError, StateUnusable):  # said where the ledger is looked at
        return None


def _existing(path: Path) -> Path:
    """The path, or the first directory above it that is there."""
    return next(each for each in (path, *path.parents) if _exists(each))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # above it is a directory nobody may look into
        return False
