"""Record batches put aside on disk for a moment.

Why a private directory: what is put aside is people's conversations. It is readable by its owner alone and gone when its user
is done, also after an error. What a killed process left is removed by the next one: a directory is locked by its user as long as
that lives, so one that nobody holds is abandoned.

Why one stream after the other in one file, each closed at once: a day is added to many times while a file that spans ninety
days is read, and ninety open files are too many. Each stream has its own schema, so batches may differ in how they are encoded.

Why nothing is compressed: packing and unpacking cost four times as much as writing and reading, more than sorting itself, and
dictionaries already keep what repeats small.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pyarrow as pa

from hypaware_pipeline.errors import SpillFailed

_PREFIX = "spill-"
_LOCK_NAME = ".lock"


@contextmanager
def private_directory(parent: Path) -> Iterator[Path]:
    """A new directory under `parent` (made if need be) that only its owner can read; removed at the end, whatever happened.

    Raises:
        SpillFailed: it cannot be made.
    """
    with ExitStack() as held:
        with _explained(parent):
            parent.mkdir(parents=True, exist_ok=True)
            _remove_abandoned(parent)
            unlocked = Path(tempfile.mkdtemp(prefix=".new-", dir=parent))
            held.enter_context(_lock(unlocked / _LOCK_NAME))
            # Only now under a name that others look at.
            directory = unlocked.rename(parent / unlocked.name.replace(".new-", _PREFIX))
        held.callback(shutil.rmtree, directory, ignore_errors=True)
        yield directory


def _remove_abandoned(parent: Path) -> None:
    for directory in parent.glob(f"{_PREFIX}*"):
        # An error: somebody works in it, or it is gone by now.
        with suppress(OSError), _lock(directory / _LOCK_NAME):
            shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold a lock file, which the system lets go of when this process ends, however it ends.

    Raises:
        OSError: somebody else holds it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def append(path: Path, batches: Iterable[pa.RecordBatch]) -> None:
    """Write batches to the end of a spill file.

    Raises:
        SpillFailed: the disk does not take them.
    """
    with _explained(path.parent), pa.OSFile(str(path), mode="ab") as file:
        for batch in batches:
            with pa.ipc.new_stream(file, batch.schema) as writer:
                writer.write_batch(batch)


def read(path: Path) -> Iterator[pa.RecordBatch]:
    """The batches of a spill file, one at a time, in the order they were written; none when there is no file."""
    if not path.exists():
        return
    with pa.OSFile(str(path)) as file:
        while file.tell() < file.size():
            with pa.ipc.open_stream(file) as reader:
                yield from reader


@contextmanager
def _explained(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SpillFailed(
            f"{directory}: rows of a day cannot be put aside while they are sorted ({error.strerror or error}); "
            "make room there or point the state directory to a disk with more space"
        ) from error
