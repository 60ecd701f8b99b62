"""A config file's bytes to a JSON object.

Why a key given twice is an error: JSON keeps the last one silently, and of two sinks of one name the first would vanish.

Why only a regular file is read: a pipe that nobody writes to would hold up whoever loads the config, for ever.

Why errors here never chain: the parser's own exception carries the whole text, and the text may hold a secret.
"""

import json
import os
import stat
from pathlib import Path
from typing import Any, NoReturn

from hypaware_pipeline.errors import ConfigError, ConfigErrorKind, ConfigErrors

_MAX_BYTES = 1 << 20  # HypAware's own cap for a config document

_EXAMPLE = """{
  "version": 2,
  "sinks": {
    "archive": {
      "writer": "@hypaware/format-parquet",
      "destination": "@hypaware/local-fs",
      "config": {"dir": "~/hypaware-exports"}
    }
  }
}"""


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        ConfigErrors: it is missing, unreadable, or no JSON object; one error, of the file as a whole.
    """
    text = _read_text(path)
    try:
        value = json.loads(text, object_pairs_hook=_object_of, parse_constant=_refuse_constant)
        json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair can neither be shown nor name a file
    except (ValueError, RecursionError) as error:
        raise _failure(path, "config_invalid_json", f"the file is no valid JSON: {_json_problem(error)}") from None
    if not isinstance(value, dict):
        raise _failure(path, "config_invalid_shape", "the file must hold a JSON object")
    return value


def _json_problem(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at line {error.lineno}, column {error.colno}"
    if isinstance(error, UnicodeEncodeError):
        return "it holds half of a surrogate pair (\\ud800 to \\udfff alone)"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return str(error)  # ours, or Python's for a number of thousands of digits


def _read_text(path: Path) -> str:
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise _failure(path, "config_unreadable", "a pipe or a device stands there; put a regular file in its place")
            data = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        message = f"there is no such file. `hypaware-pipeline init` makes one, or write this there:\n{_EXAMPLE}\n"
        raise _failure(path, "config_missing", message) from None
    except OSError as error:
        raise _failure(path, "config_unreadable", f"the file cannot be read: {error.strerror}") from None
    if len(data) > _MAX_BYTES:
        raise _failure(path, "config_unreadable", f"the file is larger than {_MAX_BYTES} bytes, which no configuration is")
    try:
        return data.decode("utf-8-sig")  # some editors put a byte order mark in front
    except UnicodeDecodeError as error:
        raise _failure(path, "config_invalid_json", f"the file is not UTF-8: byte {error.start} fits nothing") from None


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for key, member in pairs:
        if key in value:
            raise ValueError(f"the key '{key}' stands twice in one object")
        value[key] = member
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def _failure(path: Path, kind: ConfigErrorKind, message: str) -> ConfigErrors:
    return ConfigErrors(str(path), [ConfigError(kind, "", message)])
