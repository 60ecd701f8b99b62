"""Where state lives: one rule for the command line, make, the daemon and an installed wheel.

Why two homes: Dagster's home is disposable and belongs to an installation; the ledger is the proof of what was exported and
belongs to the configuration it was exported by. The state directory therefore follows the config file, so that the UI, the daemon
and the command line share one ledger whatever DAGSTER_HOME each of them was started with.

Why a config path is made absolute and not resolved: a mounted configuration is often a symlink whose target is renamed at every
change; a ledger that followed the target would be lost each time.

Environment and home enter as `env`; only the per-user directory is the platform's own answer.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from hypaware_pipeline.config.environment import STATE_DIR_VARIABLE, directory_variable, state_root
from hypaware_pipeline.errors import StateUnusable

PACKAGE_DIR = Path(__file__).resolve().parent

_PRIVATE = 0o700  # the ledger names projects and people; the spill holds rows


def checkout_root(package_dir: Path = PACKAGE_DIR) -> Path | None:
    """The source checkout the package runs from; None for an installed wheel."""
    root = package_dir.parent
    return root if (root / "pyproject.toml").is_file() and (root / "dagster_home" / "dagster.yaml").is_file() else None


def dagster_home(env: Mapping[str, str], checkout: Path | None) -> Path:
    """Dagster's home, existing: `DAGSTER_HOME`, else the checkout's `dagster_home/`, else a per-user state directory.

    A directory made here gets the packaged `dagster.yaml`. A `DAGSTER_HOME` that exists is somebody's and stays as it is.

    Raises:
        BadRequest: `DAGSTER_HOME` is not absolute.
        StateUnusable: the directory cannot be made.
    """
    chosen = directory_variable(env, "DAGSTER_HOME")
    if chosen is None and checkout is not None:
        return checkout / "dagster_home"
    if chosen is not None and chosen.is_dir():
        return chosen
    home = chosen or Path(platformdirs.user_state_dir("hypaware-pipeline", appauthor=False)) / "dagster_home"
    remedy = "set DAGSTER_HOME to a directory that can be written"
    try:
        home.mkdir(parents=True, exist_ok=True)
        _place_once(PACKAGE_DIR / "data" / "dagster.yaml", home / "dagster.yaml")
    except OSError as error:
        with suppress(OSError):
            home.rmdir()  # an empty one would be taken for somebody's next time, and go without its settings
        raise StateUnusable(f"cannot make Dagster's home {home}: {error.strerror}; {remedy}") from error
    return home


@dataclass(frozen=True, slots=True)
class StateDirectory:
    """What one configuration needs to remember. Paths only; `ensure` makes them."""

    root: Path

    @property
    def ledger(self) -> Path:
        """The ledger's database file."""
        return self.root / "ledger.db"

    @property
    def index(self) -> Path:
        """The row index's directory. A cache: losing it costs a re-read."""
        return self.root / "index"

    @property
    def spill(self) -> Path:
        """Where sorting spills rows to. Holds nothing between exports."""
        return self.root / "spill"

    def ensure(self) -> None:
        """Make the directories that are missing, readable by their owner only.

        Raises:
            StateUnusable: one of them cannot be made or written.
        """
        remedy = f"make it writable, or set {STATE_DIR_VARIABLE} to a directory that is"
        for directory in (self.root, self.index, self.spill):
            try:
                directory.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
            except OSError as error:
                raise StateUnusable(f"cannot make the state directory {directory}: {error.strerror}; {remedy}") from error
            if not os.access(directory, os.W_OK | os.X_OK):
                raise StateUnusable(f"the state directory {directory} cannot be written; {remedy}")


def state_directory(config_path: Path, env: Mapping[str, str]) -> StateDirectory:
    """The state directory of a configuration; where it is, `state_root` knows, which the config's own rules need too.

    Raises:
        BadRequest: `HYPAWARE_STATE_DIR` is not absolute.
    """
    return StateDirectory(state_root(config_path, env))


def _place_once(packaged: Path, target: Path) -> None:
    """Copy a packaged file unless something lies at the target. A second process doing the same writes the same bytes."""
    if target.exists():
        return
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        unfinished.write_bytes(packaged.read_bytes())
        unfinished.replace(target)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
