"""What the environment says about directories and files. It enters as `env`: nothing here reads the process."""

from collections.abc import Mapping
from pathlib import Path

from hypaware_pipeline.errors import BadRequest

STATE_DIR_VARIABLE = "HYPAWARE_STATE_DIR"


def user_home(env: Mapping[str, str]) -> Path:
    """The user's home directory: `HOME` if set, else what the system knows.

    Raises:
        BadRequest: neither says.
    """
    if env.get("HOME"):
        return Path(env["HOME"])
    try:
        return Path.home()
    except RuntimeError:  # a container may run as a user that the system has no entry for
        raise BadRequest("HOME is not set, and the system knows no home of this user; set it to an absolute path") from None


def hyp_home(env: Mapping[str, str]) -> Path:
    """HypAware's home: `HYP_HOME` if set, else `~/.hyp`.

    Raises:
        BadRequest: `HYP_HOME` is not absolute.
    """
    return directory_variable(env, "HYP_HOME") or user_home(env) / ".hyp"


def state_root(config_path: Path, env: Mapping[str, str]) -> Path:
    """Where a configuration keeps its state: `HYPAWARE_STATE_DIR` if set, else `<stem>.state/` beside the config file.

    Raises:
        BadRequest: `HYPAWARE_STATE_DIR` is not absolute.
    """
    chosen = directory_variable(env, STATE_DIR_VARIABLE)
    return chosen or config_path.absolute().with_name(f"{config_path.stem}.state")


def directory_variable(env: Mapping[str, str], name: str) -> Path | None:
    """The directory an environment variable names; None when it is unset or empty.

    A relative one would mean another place to each of the processes that share it.

    Raises:
        BadRequest: it is not absolute.
    """
    path = _path_variable(env, name)
    if path is not None and not path.is_absolute():
        raise BadRequest(f"{name} is '{env[name]}', which is not an absolute path; set it to one or unset it")
    return path


def file_variable(env: Mapping[str, str], name: str) -> Path | None:
    """The file an environment variable names, absolute; None when it is unset or empty."""
    path = _path_variable(env, name)
    return None if path is None else path.absolute()


def _path_variable(env: Mapping[str, str], name: str) -> Path | None:
    """`~` is expanded, since the files that set variables for services do not."""
    text = env.get(name)
    if not text:
        return None
    return user_home(env) / text[2:] if text.startswith("~/") else Path(text)
