"""Objects in a directory of a local or mounted disk.

How does an object appear? It is written under a temporary name in its own directory (`.tmp-…`, no data extension, so that
neither a listing nor a glob for `*.parquet` sees it), synced, renamed, and the directory is synced. A reader sees the old
object or the new one, and after a power cut as well. What a killed writer leaves is removed by a later write to the same
directory once it is a day old.

Why does every rename and removal hold an exclusive `flock` on `.lock` in the root? A condition (`IfMatch`) is worth nothing
when another process may rename between the check and our own rename. The lock is held for that moment only, never while
bytes are written. `IfAbsent` additionally uses a hard link, which cannot overwrite even what a program that knows nothing of
our lock has put there; disks without hard links fall back on the lock.

Why does removing what is not there wait for the lock all the same? A process stopped before its rename has the lock, and may be
about to put just that.

Why is the fence asked under that lock? A process stopped between its check and its rename would overwrite, hours later, what
others have put there since. Under the lock it keeps them waiting instead, and what they put comes after. They do not wait for
ever: a holder that is stopped has to be continued or killed by somebody, and that somebody is told.

What is an etag here? Inode, modification time and size. The time is set by us with nanoseconds: the kernel's own moves in
steps of milliseconds, in which an inode can be freed and given to the next object of the same size.

Why are directories left when their last object goes? Another writer may be about to put an object there.
"""

import contextlib
import datetime as dt
import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar
from urllib.parse import quote

from hypaware_pipeline.errors import PreconditionFailed, SinkHalted, SinkRetryable
from hypaware_pipeline.plugins.contracts import Blob, BlobInfo, Condition, Fence, IfAbsent, IfMatch, Writable
from hypaware_pipeline.sinks.naming import check_key

T = TypeVar("T")

STALE_TEMPORARY_SECONDS = 24 * 3600
"""No export of one day of one source takes this long: a temporary file older than this has no writer any more."""

LOCK_WAIT_SECONDS = 30.0
"""How long to wait for the destination's lock, which others hold for a rename."""

_LOCK_PAUSE_SECONDS = 0.005
_TEMPORARY_PREFIX = ".tmp-"
_LOCK_NAME = ".lock"
_NOTHING_THERE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_NO_HARD_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_REMEDIES = {
    errno.EROFS: "the file system is mounted read-only; mount it writable or choose another directory",
    errno.EACCES: "give the user this runs as access to it",
    errno.EPERM: "give the user this runs as access to it",
    errno.ENOTDIR: "a file stands where a directory is needed; move it away",
    errno.EEXIST: "a file stands where a directory is needed; move it away",
    errno.EISDIR: "a directory stands where the object belongs; move it away",
    errno.ENAMETOOLONG: "choose a shorter directory or prefix",
    errno.ELOOP: "its symbolic links go round in a circle; mend them",
}


class LocalFsStore:
    """A `BlobStore` in the directory `root`, which is made when the first object is put.

    `root` may be a symbolic link; links below it are followed only as long as they stay inside. `clock_ns` gives nanoseconds
    since the epoch; it dates objects and decides which temporary files are stale.
    """

    def __init__(
        self, root: Path, *, clock_ns: Callable[[], int] = time.time_ns, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._root = root.absolute()
        self._clock_ns = clock_ns
        self._sleep = sleep

    def put(
        self,
        key: str,
        write: Callable[[Writable], T],
        *,
        condition: Condition | None = None,
        fence: Fence | None = None,
        content_type: str = "application/octet-stream",  # noqa: ARG002 - files have no media type
    ) -> T:
        """Write one object atomically and durably; see `BlobStore.put`."""
        target = self._path(key)
        with _answering(target):
            self._make_directories(target.parent)
            self._remove_stale_temporaries(target.parent)
        temporary = target.with_name(_TEMPORARY_PREFIX + secrets.token_hex(8))
        try:
            result = self._write_temporary(temporary, target, write)
            with _answering(target):
                with self._committing(fence):
                    _commit(temporary, target, key, condition)
                _sync_directory(target.parent)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        return result

    @contextlib.contextmanager
    def get(self, key: str) -> Iterator[Blob | None]:
        """Open an object; None when there is none. See `BlobStore.get`."""
        path = self._path(key)
        with _answering(path):
            body = _open_regular(path)
        if body is None:
            yield None
            return
        with body:
            status = os.fstat(body.fileno())
            yield Blob(body, status.st_size, _etag(status))

    def list(self, prefix: str) -> Iterator[BlobInfo]:
        """Objects under the directory `prefix` (empty: all of them), sorted by key. See `BlobStore.list`."""
        start = self._root.joinpath(*check_key(prefix)) if prefix else self._root
        self._refuse_outside(start, prefix)
        yield from self._walk(start, f"{prefix}/" if prefix else "")

    def delete(self, key: str, *, fence: Fence | None = None) -> None:
        """Remove an object; removing none is no error. See `BlobStore.delete`."""
        path = self._path(key)
        with _answering(path):
            if not path.parent.is_dir():
                return
            with self._committing(fence), contextlib.suppress(*_NOTHING_THERE):
                path.unlink()
            _sync_directory(path.parent)

    def uri(self, key: str) -> str:
        """The object's `file://` URL, percent-encoded; `=` is legal in one and stays, as readers of hive paths look for it."""
        check_key(key)
        return f"{self._root.as_uri()}/{quote(key, safe='/=')}"

    def _path(self, key: str) -> Path:
        """Where the object lies; refuses keys that leave the root, by their text or through a symbolic link."""
        path = self._root.joinpath(*check_key(key))
        self._refuse_outside(path.parent, key)
        return path

    def _refuse_outside(self, directory: Path, key: str) -> None:
        # Not Path.resolve: it raises on links that go round in a circle.
        if not Path(os.path.realpath(directory)).is_relative_to(os.path.realpath(self._root)):
            raise ValueError(f"object key {key!r} leaves {self._root} through a symbolic link")

    def _make_directories(self, directory: Path) -> None:
        missing = []
        while not directory.is_dir():
            missing.append(directory)
            directory = directory.parent
        for path in reversed(missing):
            path.mkdir(exist_ok=True)
            _sync_directory(path.parent)

    def _remove_stale_temporaries(self, directory: Path) -> None:
        oldest_ns = self._clock_ns() - STALE_TEMPORARY_SECONDS * 1_000_000_000
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.name.startswith(_TEMPORARY_PREFIX):
                    # Another writer may be cleaning up too.
                    with contextlib.suppress(FileNotFoundError):
                        if entry.stat(follow_symlinks=False).st_mtime_ns < oldest_ns:
                            Path(entry.path).unlink()

    def _write_temporary(self, temporary: Path, target: Path, write: Callable[[Writable], T]) -> T:
        with _answering(target):
            # Mode 0666 less the umask, like any file a program writes; exclusive, so that nothing is followed or overwritten.
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            out = _Descriptor(descriptor, target)
            result = write(out)
            with _answering(target, out.written):
                now_ns = self._clock_ns()
                os.utime(descriptor, ns=(now_ns, now_ns))
                os.fsync(descriptor)
        finally:
            with _answering(target):
                os.close(descriptor)
        return result

    @contextlib.contextmanager
    def _committing(self, fence: Fence | None) -> Iterator[None]:
        """Hold the destination's lock: nobody else renames or removes an object meanwhile. Behind the fence, if there is one.

        Raises:
            SinkRetryable: somebody held the lock for all the time that is waited for it.
        """
        lock = self._root / _LOCK_NAME
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._wait_for(descriptor, lock)
            if fence is not None:
                fence()
            yield
        finally:
            os.close(descriptor)

    def _wait_for(self, descriptor: int, lock: Path) -> None:
        deadline = time.monotonic() + LOCK_WAIT_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise SinkRetryable(
                        f"'{lock}' was locked by another process for {LOCK_WAIT_SECONDS:.0f} s, which is held for a moment only; "
                        "find the process (`fuser` names it), and continue or end it if it is stopped"
                    ) from None
                self._sleep(_LOCK_PAUSE_SECONDS)
            else:
                return

    def _walk(self, directory: Path, prefix: str) -> Iterator[BlobInfo]:
        for name, is_directory in _visible_entries(directory):
            if is_directory:
                yield from self._walk(directory / name, f"{prefix}{name}/")
                continue
            with _answering(directory / name):
                status = _status(directory / name)
            if status is not None:
                modified = dt.datetime.fromtimestamp(status.st_mtime_ns / 1e9, dt.UTC)
                yield BlobInfo(prefix + name, status.st_size, modified)


class _Descriptor:
    """A file descriptor as a `Writable`; unbuffered, so that a full disk is met by the write that fills it."""

    def __init__(self, descriptor: int, target: Path) -> None:
        self._descriptor = descriptor
        self._target = target
        self.written = 0

    def write(self, data: bytes, /) -> int:
        view = memoryview(data).cast("B")
        with _answering(self._target, self.written):
            position = 0
            while position < len(view):
                position += os.write(self._descriptor, view[position:])
        self.written += len(view)
        return len(view)


def _commit(temporary: Path, target: Path, key: str, condition: Condition | None) -> None:
    """Give the finished file its name, if the condition holds. The destination's lock is held."""
    if isinstance(condition, IfAbsent):
        if not _link(temporary, target):
            raise PreconditionFailed(key, "nothing there")
        return
    if isinstance(condition, IfMatch):
        status = _status(target)
        if status is None or _etag(status) != condition.etag:
            raise PreconditionFailed(key, f"etag {condition.etag}")
    temporary.replace(target)


def _link(temporary: Path, target: Path) -> bool:
    """Rename without ever overwriting; False when something is there."""
    try:
        target.hardlink_to(temporary)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        if os.path.lexists(target):
            return False
        temporary.replace(target)
        return True
    temporary.unlink()
    return True


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except FileNotFoundError:
        return None


def _etag(status: os.stat_result) -> str:
    return f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"


def _open_regular(path: Path) -> BinaryIO | None:
    try:
        # Not blocking: a FIFO must not hang the reader.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        # A link in the place of the object leads anywhere: it is no object, as in a listing.
        if error.errno == errno.ELOOP or isinstance(error, _NOTHING_THERE):
            return None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return os.fdopen(descriptor, "rb")


def _visible_entries(directory: Path) -> list[tuple[str, bool]]:
    """Names of a directory that can be part of a key, with whether each is a directory, in the order of the keys they lead to."""
    with _answering(directory):
        try:
            with os.scandir(directory) as entries:
                found = [
                    (entry.name, entry.is_dir(follow_symlinks=False), entry.is_file(follow_symlinks=False)) for entry in entries
                ]
        except _NOTHING_THERE:
            return []
    visible = [(name, is_directory) for name, is_directory, is_file in found if (is_directory or is_file) and _can_be_key(name)]
    return sorted(visible, key=lambda entry: entry[0] + "/" if entry[1] else entry[0])


def _can_be_key(name: str) -> bool:
    try:
        check_key(name)
    except ValueError:
        return False
    return True


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _answering(path: Path, written: int = 0) -> Iterator[None]:
    """Turn what the operating system says about `path` into one of a sink's answers."""
    try:
        yield
    except OSError as error:
        reason = f"'{path}': {error.strerror or error}"
        if error.errno in _FULL:
            message = f"{reason} after {written} bytes; free some space or raise the limit, what was there before is intact"
            raise SinkRetryable(message) from error
        if error.errno in _REMEDIES:
            raise SinkHalted(f"{reason}; {_REMEDIES[error.errno]}") from error
        raise SinkRetryable(reason) from error
