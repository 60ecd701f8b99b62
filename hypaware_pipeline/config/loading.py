"""A config file to a `Config`.

Why a bad sink does not raise: it must become an asset that says why, beside the others that work. What makes the file as a whole
senseless raises, with everything that is wrong with it at once.

Why of two sinks that write to one place both are broken: neither has the better claim, and the receipts of one would be judged by
the other.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hypaware_pipeline.config.document import MESSAGES, Document
from hypaware_pipeline.config.environment import hyp_home
from hypaware_pipeline.config.names import collisions, slug
from hypaware_pipeline.config.paths import PathRules
from hypaware_pipeline.config.reading import read_object
from hypaware_pipeline.config.shape import check_shape
from hypaware_pipeline.config.sinks import PluginResolver, SinkConfig, file_place, read_sink
from hypaware_pipeline.errors import ConfigError, ConfigErrors
from hypaware_pipeline.model import Day, SinkName

CONFIG_VARIABLE = "HYPAWARE_PIPELINE_CONFIG"


@dataclass(frozen=True, slots=True)
class Config:
    """What a config file says.

    Attributes:
        path: The file, absolute.
        sinks: The sinks that can be built, by name, in the file's order.
        broken_sinks: The others, each with what is wrong with it.
        cache_root: The directory that holds `datasets/` or `cache/datasets/`. It may not exist.
        first_day: Where partitions begin, if the file says so.
        floor_day: Rows before this day are undated.
    """

    path: Path
    sinks: Mapping[SinkName, SinkConfig]
    broken_sinks: Mapping[str, tuple[ConfigError, ...]]
    cache_root: Path
    first_day: Day | None
    floor_day: Day


def find_config_path(explicit: Path | None, env: Mapping[str, str]) -> Path:
    """The config file's place, absolute: what was asked for, else `HYPAWARE_PIPELINE_CONFIG`, else in HypAware's home.

    Raises:
        BadRequest: `HYP_HOME` is not absolute.
    """
    if explicit is not None:
        return explicit.absolute()
    if env.get(CONFIG_VARIABLE):
        return Path(env[CONFIG_VARIABLE]).absolute()
    return hyp_home(env) / "hypaware-pipeline.json"


def load_config(path: Path, env: Mapping[str, str], resolver: PluginResolver) -> Config:
    """Read a config file.

    Args:
        path: The file.
        env: The environment, for the home directories.
        resolver: The plugins; `hypaware_pipeline.plugins.registry.BUNDLED`.

    Raises:
        ConfigErrors: the file as a whole cannot be used; every reason at once.
        BadRequest: `HYP_HOME` is not absolute.
    """
    path = path.absolute()
    document = check_shape(Document, read_object(path), kind="config_invalid_shape", messages=MESSAGES)
    if isinstance(document, list):
        raise ConfigErrors(str(path), document)
    paths = PathRules.of(path, env)
    cache_root = _cache_root(path, document, paths, env)
    read = {
        name: read_sink(name, raw, resolver=resolver, plugins=document.plugins, paths=paths)
        for name, raw in document.sinks.items()
    }
    good = {name: sink for name, sink in read.items() if isinstance(sink, SinkConfig)}
    broken = {name: errors for name, errors in read.items() if isinstance(errors, list)}
    for error in _collisions(good.values(), cache_root):
        broken.setdefault(error.pointer.removeprefix("/sinks/"), []).append(error)
    return Config(
        path=path,
        sinks={sink.name: sink for name, sink in good.items() if name not in broken},
        broken_sinks={name: tuple(errors) for name, errors in broken.items()},
        cache_root=cache_root,
        first_day=None if document.first_day is None else Day(document.first_day),
        floor_day=Day(document.floor_day),
    )


def _cache_root(path: Path, document: Document, paths: PathRules, env: Mapping[str, str]) -> Path:
    if document.query.cache.dir is None:
        return hyp_home(env) / "hypaware" / "cache"
    try:
        return paths.resolve(document.query.cache.dir)
    except ValueError as error:
        raise ConfigErrors(str(path), [ConfigError("config_invalid_shape", "/query/cache/dir", str(error))]) from None


def _collisions(sinks: Iterable[SinkConfig], cache_root: Path) -> Iterable[ConfigError]:
    """What is wrong with sinks that are sound each by itself."""
    sinks = tuple(sinks)
    for name, others in collisions(sink.name for sink in sinks).items():
        message = f"becomes '{slug(name)}' in Dagster, as does {_quoted(others)}; rename one of them"
        yield ConfigError("name_collision", f"/sinks/{name}", message)
    tables = [file_place(Path(os.path.realpath(cache_root)) / below) for below in ("datasets", "cache/datasets")]
    for sink in sinks:
        others = tuple(other.name for other in sinks if other is not sink and sink.overlaps(other))
        if others:
            message = (
                f"writes to the same place as {_quoted(others)}, or above or below it; give each its own directory or prefix"
            )
            yield ConfigError("name_collision", f"/sinks/{sink.name}", message)
        if any(sink.place[: len(table)] == table for table in tables):
            message = f"writes into HypAware's cache at {cache_root}, which is only ever read; choose another directory"
            yield ConfigError("sink_config_invalid", f"/sinks/{sink.name}", message)


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
