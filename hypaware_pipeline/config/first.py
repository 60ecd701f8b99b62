"""The first config file: everything, as Parquet, to a directory. One decision, for who has none to make yet.

Why it is judged where it lies: what a path in it means depends on its place. One that is refused is taken away again.

Why nothing half-written stays: it would be taken for a config file, and the next `init` would leave it alone.

Why the cache is named only if the environment chose it: the daemon or a cron job that reads the file later need not have that
environment; whoever has HypAware where it usually is reads a shorter file.
"""

import itertools
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from hypaware_pipeline.config.hypaware import HYPAWARE_VARIABLE, read_hypaware
from hypaware_pipeline.config.loading import load_config, usual_cache
from hypaware_pipeline.config.sinks import PluginResolver
from hypaware_pipeline.errors import BadRequest, ConfigErrors

DEFAULT_DIRECTORY = "~/hypaware-exports"
SCHEDULE = "0 * * * *"
_NAME = "archive"


def write_first_config(path: Path, env: Mapping[str, str], resolver: PluginResolver, *, to: str) -> str:
    """Write the file; returns the name of its sink.

    Args:
        path: Where; nothing may be there.
        env: The environment.
        resolver: The plugins.
        to: The directory, as a person writes it: absolute, `~/…`, or relative to where they are.

    Raises:
        BadRequest: something is there already, the file cannot be written, or a directory of the environment is not absolute.
        ConfigErrors: the rules refuse the directory.
    """
    name = _free_name(read_hypaware(env).layer.sinks)
    text = json.dumps(_document(path, env, name, _as_written(to)), indent=2, ensure_ascii=False) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_new(path, text)
    except FileExistsError:
        raise BadRequest(
            f"{path} is there already and stays as it is; `hypaware-pipeline check` judges it, --config names another one"
        ) from None
    except OSError as error:
        raise BadRequest(f"{path} cannot be written: {error.strerror}; name another one with --config") from None
    try:
        problems = load_config(path, env, resolver).problems
    except (BadRequest, ConfigErrors):
        path.unlink()
        raise
    if problems:
        path.unlink()
        raise ConfigErrors(str(path), list(problems))
    return name


def _write_new(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8") as file:
        try:
            file.write(text)
            file.flush()  # a full disk is met here rather than where the file is closed
        except OSError:
            path.unlink()
            raise


def _document(path: Path, env: Mapping[str, str], name: str, directory: str) -> dict[str, Any]:
    sink = {
        "writer": "@hypaware/format-parquet",
        "destination": "@hypaware/local-fs",
        "config": {"dir": directory, "schedule": SCHEDULE},
    }
    document: dict[str, Any] = {"version": 2, "sinks": {name: sink}}
    if env.get("HYP_HOME") or env.get(HYPAWARE_VARIABLE):
        document["query"] = {"cache": {"dir": str(usual_cache(path, env))}}
    return document


def _as_written(text: str) -> str:
    """As the file is to have it: there, a relative path would be relative to the file."""
    stays = not text.strip() or text.startswith(("~", "${ENV:"))
    return text if stays else str(Path(text).absolute())


def _free_name(taken: Collection[str]) -> str:
    """A name that no sink of HypAware's has, which would be taken for the same sink."""
    names = itertools.chain([_NAME], (f"{_NAME}-{number}" for number in itertools.count(2)))
    return next(name for name in names if name not in taken)
