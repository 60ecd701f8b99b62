"""File systems with little room, as far as the user who runs the tests may have them."""

import contextlib
import ctypes
import os
import resource
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def little_room(directory: Path, *, bytes_at_most: int) -> Iterator[None]:
    """As long as it lasts, not more than this can be written below a directory; then everything there is gone from it or stays.

    Root gets a file system of its own there, others files that may not grow.
    """
    libc = ctypes.CDLL(None)
    if libc.mount(b"tmpfs", os.fsencode(directory), b"tmpfs", 0, f"size={bytes_at_most}".encode()) != 0:
        with short_files(bytes_at_most):
            yield
        return
    try:
        yield
    finally:
        assert libc.umount2(os.fsencode(directory), 2) == 0


@contextlib.contextmanager
def short_files(bytes_at_most: int) -> Iterator[None]:
    """As long as it lasts, no file of this process may grow past this."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_at_most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
