"""What befalls a cache from outside: wiped, copied away and back, half copied, its counter lost.

Why these are no methods of a writer: nobody does such a thing to a running HypAware and expects it to go on. A writer made before
knows numbers and tables that are gone; make a new one afterwards, as a new process would.
"""

import shutil
from pathlib import Path

from hypaware_pipeline.demo.cursor import SEQUENCE_FILE


def lose_sequence(root: Path) -> None:
    """Lose the counter of sequence numbers: the next writer begins at 1 again, in the same tables."""
    (root / SEQUENCE_FILE).unlink(missing_ok=True)


def wipe(root: Path) -> None:
    """Leave nothing in a cache but its directory."""
    for entry in root.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def back_up(root: Path, to: Path) -> None:
    """Copy a cache to a directory that does not exist yet."""
    shutil.copytree(root, to)


def restore(root: Path, backup: Path, *, files: int | None = None) -> None:
    """Put a backup in the place of a cache; with `files` only its first so many, as a copy that was cut off leaves it.

    In the order of a copying program, which walks a directory's files before its directories, each by name.
    """
    wipe(root)
    names = [path.relative_to(backup) for path in _walk(backup)]
    for name in names[:files]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(backup / name, root / name)


def _walk(directory: Path) -> list[Path]:
    entries = sorted(directory.iterdir())
    files = [entry for entry in entries if not entry.is_dir()]
    return files + [file for entry in entries if entry.is_dir() for file in _walk(entry)]
