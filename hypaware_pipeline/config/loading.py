"""A config file to a `Config`.

Why a bad sink does not raise: it must become an asset that says why, beside the others that work. What makes the file as a whole
senseless raises, with everything that is wrong with it at once.

Why what HypAware's rules say of the file beyond its sinks does not raise either: HypAware itself boots with such a file. It is in
`problems`, for whoever asks whether the file is right.

Why of two sinks that write to one place both are broken: neither has the better claim, and the receipts of one would be judged by
the other.

Why a sink that HypAware exports too is stopped: both would write its rows, and whoever reads the destination would count them
twice.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hypaware_pipeline.config.active import PluginEntries
from hypaware_pipeline.config.document import DEFAULT_RETENTION, MESSAGES, Document, Retention
from hypaware_pipeline.config.entries import read_entry
from hypaware_pipeline.config.environment import file_variable, hyp_home, state_root
from hypaware_pipeline.config.hypaware import HypAwareConfig, read_hypaware
from hypaware_pipeline.config.names import collisions, slug
from hypaware_pipeline.config.paths import PathRules
from hypaware_pipeline.config.reading import read_object
from hypaware_pipeline.config.rules import ambiguity_errors, plugin_errors, retention_errors, section_errors
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
        retention: How long HypAware keeps what.
        problems: Everything wrong with the file, in HypAware's order; what breaks a sink is among it.
        notes: What a person should know about HypAware's own config. None of it stops anything.
    """

    path: Path
    sinks: Mapping[SinkName, SinkConfig]
    broken_sinks: Mapping[str, tuple[ConfigError, ...]]
    cache_root: Path
    first_day: Day | None
    floor_day: Day
    retention: Retention = DEFAULT_RETENTION
    problems: tuple[ConfigError, ...] = ()
    notes: tuple[str, ...] = ()


def find_config_path(explicit: Path | None, env: Mapping[str, str]) -> Path:
    """The config file's place, absolute: what was asked for, else `HYPAWARE_PIPELINE_CONFIG`, else in HypAware's home.

    Raises:
        BadRequest: `HYP_HOME` is not absolute.
    """
    if explicit is not None:
        return explicit.absolute()
    return file_variable(env, CONFIG_VARIABLE) or hyp_home(env) / "hypaware-pipeline.json"


def load_config(path: Path, env: Mapping[str, str], resolver: PluginResolver) -> Config:
    """Read a config file, and HypAware's own beside it.

    Args:
        path: The file.
        env: The environment, for directories and for where HypAware's config is.
        resolver: The plugins; `hypaware_pipeline.plugins.registry.BUNDLED`.

    Raises:
        ConfigErrors: the file as a whole cannot be used; every reason at once.
        BadRequest: `HYP_HOME` is not absolute.
    """
    path = path.absolute()
    document = _read_document(path)
    paths = PathRules.of(path, env)
    hypaware = read_hypaware(env)
    cache_root, cache_notes = _cache_root(path, document, hypaware, env)
    inherited = {entry.name: resolver.inherit(entry, paths) for entry in hypaware.layer.plugins}
    plugins = PluginEntries(document.plugins, inherited)
    read = {name: read_sink(name, raw, resolver=resolver, plugins=plugins, paths=paths) for name, raw in document.sinks.items()}
    good = {name: sink for name, sink in read.items() if isinstance(sink, SinkConfig)}
    broken = {name: errors for name, errors in read.items() if isinstance(errors, list)}
    beside = [
        *_collisions(good.values()),
        *_misplaced(good.values(), cache_root, state_root(path, env)),
        *_exported_twice(good.values(), hypaware, resolver, env),
    ]
    for error in beside:
        broken.setdefault(error.pointer.removeprefix("/sinks/"), []).append(error)
    return Config(
        path=path,
        sinks={sink.name: sink for name, sink in good.items() if name not in broken},
        broken_sinks={name: tuple(errors) for name, errors in broken.items()},
        cache_root=cache_root,
        first_day=None if document.first_day is None else Day(document.first_day),
        floor_day=Day(document.floor_day),
        retention=_retention(document, hypaware),
        problems=_problems(document, broken, resolver, paths),
        notes=(*hypaware.notes, *cache_notes),
    )


def usual_cache(config_path: Path, env: Mapping[str, str]) -> Path:
    """Where the cache is taken to be by a config file that does not say.

    Raises:
        BadRequest: `HYP_HOME` is not absolute.
    """
    return _cache_root(config_path, Document(version=2), read_hypaware(env), env)[0]


def _read_document(path: Path) -> Document:
    value = read_object(path)
    document = check_shape(Document, value, kind="config_invalid_shape", messages=MESSAGES)
    if not isinstance(document, list):
        return document
    sinks = value.get("sinks")
    entries = [read_entry(name, raw) for name, raw in sinks.items()] if isinstance(sinks, dict) else []
    raise ConfigErrors(str(path), [*document, *(error for entry in entries if isinstance(entry, list) for error in entry)])


def _problems(
    document: Document, broken: Mapping[str, list[ConfigError]], resolver: PluginResolver, paths: PathRules
) -> tuple[ConfigError, ...]:
    """Everything the rules say of a file of sound shape, nothing twice: what a sink suffers of `plugins` is said there."""
    plugins = document.plugins or ()
    catalog = resolver.catalog(entry.name for entry in plugins)
    retention = document.query.cache.retention
    of_sinks = (error for name in document.sinks for error in broken.get(name, ()))
    return (
        *plugin_errors(plugins, catalog),
        *(error for error in of_sinks if error.pointer.startswith("/sinks/")),
        *retention_errors(retention.datasets if retention else (), catalog),
        *ambiguity_errors(plugins, document.disambiguate, catalog),
        *section_errors(plugins, lambda entry, pointer: resolver.section_errors(entry, pointer, paths)),
    )


def _cache_root(path: Path, document: Document, hypaware: HypAwareConfig, env: Mapping[str, str]) -> tuple[Path, tuple[str, ...]]:
    """Where the cache is, and what to note about it.

    HypAware reads `query.cache.dir` and, up to 1.24 at least, never looks there. So what its own file says counts only if
    there is a cache; a directory that our file names counts in any case.
    """
    usual = hyp_home(env) / "hypaware" / "cache"
    ours, theirs = document.query.cache.dir, hypaware.layer.query.cache.dir if hypaware.layer.query else None
    pointer = "/query/cache/dir"
    if ours is not None:
        try:
            return PathRules.of(path, env).resolve(ours), ()
        except ValueError as error:
            raise ConfigErrors(str(path), [ConfigError("config_invalid_shape", pointer, str(error))]) from None
    if theirs is None:
        return usual, ()
    try:
        named = PathRules.of(hypaware.path, env).resolve(theirs)
    except ValueError as error:
        return usual, (f"HypAware's {hypaware.path}: {pointer}: {error}; the cache is taken to be {usual}",)
    chosen = named if _holds_a_cache(named) else usual
    unused = usual if chosen == named else named
    if chosen == named and not _holds_a_cache(usual):
        return chosen, ()
    note = f"HypAware's {hypaware.path} names the cache {named}; {chosen} is read, not {unused}: set {pointer} to choose"
    return chosen, (note,)


def _retention(document: Document, hypaware: HypAwareConfig) -> Retention:
    """Ours, if our file says so: the cache may be a copy, made where this machine's HypAware config does not count."""
    theirs = hypaware.layer.query.cache.retention if hypaware.layer.query else None
    return document.query.cache.retention or theirs or DEFAULT_RETENTION


def _holds_a_cache(root: Path) -> bool:
    return _is_directory(root / "datasets") or _is_directory(root / "cache" / "datasets")


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # above it is a directory nobody may look into; whoever reads the cache says so
        return False


def _collisions(sinks: Iterable[SinkConfig]) -> Iterable[ConfigError]:
    """What is wrong with sinks that are sound each by itself."""
    sinks = tuple(sinks)
    for name, others in collisions(sink.name for sink in sinks).items():
        message = f"becomes '{slug(name)}' in Dagster, as does {_quoted(others)}; rename one of them"
        yield ConfigError("name_collision", f"/sinks/{name}", message)
    for sink in sinks:
        others = tuple(other.name for other in sinks if other is not sink and sink.overlaps(other))
        if others:
            message = (
                f"writes to the same place as {_quoted(others)}, or above or below it; give each its own directory or prefix"
            )
            yield ConfigError("name_collision", f"/sinks/{sink.name}", message)


def _misplaced(sinks: Iterable[SinkConfig], cache_root: Path, state: Path) -> Iterable[ConfigError]:
    """Sinks that would write where only HypAware does, or where the ledger lies, which starting over removes."""
    root, below = _place(cache_root), [_place(cache_root / name) for name in ("datasets", "cache")]
    if _is_directory(cache_root / "datasets"):  # else what lies beside `cache/` is somebody's
        below.append(root)
    for sink in sinks:
        if sink.place == root or any(_lies_in(sink, place) for place in below):
            what = f"HypAware's cache at {cache_root}, which is only ever read"
        elif _lies_in(sink, _place(state)):
            what = f"the state directory {state}, which goes when somebody starts over"
        else:
            continue
        yield ConfigError("sink_config_invalid", f"/sinks/{sink.name}", f"writes into {what}; choose another directory")


def _place(directory: Path) -> tuple[str, ...]:
    return file_place(Path(os.path.realpath(directory)))


def _lies_in(sink: SinkConfig, place: tuple[str, ...]) -> bool:
    return sink.place[: len(place)] == place


def _exported_twice(
    sinks: Iterable[SinkConfig], hypaware: HypAwareConfig, resolver: PluginResolver, env: Mapping[str, str]
) -> Iterable[ConfigError]:
    """Sinks that HypAware's own config has too, by name or by place."""
    paths = PathRules.of(hypaware.path, env)
    places = {
        name: resolver.place(str(entry.get("destination")), entry.get("config") or {}, paths)
        for name, entry in hypaware.layer.sinks.items()
    }
    for sink in sinks:
        twins = [name for name, place in places.items() if name == sink.name or place == sink.place]
        if twins and not sink.takeover:
            message = (
                f"HypAware exports this itself: {hypaware.path}, or its central config, has sink {_quoted(twins)} with the same "
                "name or place. Remove it there, so that nothing is written twice; or set takeover to true in this sink's config"
            )
            yield ConfigError("sink_also_exported_by_hypaware", f"/sinks/{sink.name}", message)


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
