"""Small files of derived knowledge: written whole or not at all, believed only when intact.

Why a failed write is no error: all of it can be had again from the cache. A full disk or a read-only directory makes the next
tick slower, and nothing else.

Why a checksum: a flipped bit in a count would be a wrong fingerprint, and a wrong fingerprint a day that is never exported. What
does not match its checksum is not there.

Why parts: a compacted data file spans all days, and a day of it is asked for at a time. Each part has a checksum of its own, so
that one can be believed without reading the others.
"""

import json
import logging
import os
import shutil
import tempfile
from collections.abc import Collection, Mapping
from hashlib import blake2b
from pathlib import Path

_LOG = logging.getLogger(__name__)
_DIGEST_BYTES = 16
_SIZE_BYTES = 4


def read(path: Path, file_format: str) -> bytes | None:
    """The content of an index file; None when there is none, it is damaged, or it has another format."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    head = _head(file_format)
    content = data[len(head) + _DIGEST_BYTES :]
    intact = data.startswith(head) and data[len(head) : len(head) + _DIGEST_BYTES] == _digest(content)
    return content if intact else None


def write(path: Path, file_format: str, content: bytes) -> None:
    """Put an index file in place in one step. When that fails nothing is there, and the log says why."""
    _put(path, _head(file_format) + _digest(content) + content)


def read_parts(path: Path, file_format: str, wanted: Collection[int] | None = None) -> dict[int, bytes] | None:
    """Parts of an index file by their numbers, or all; None when there is no such file, or a part that is read is damaged."""
    head = _head(file_format)
    try:
        with path.open("rb") as file:
            start = file.read(len(head) + _DIGEST_BYTES + _SIZE_BYTES)
            table = file.read(int.from_bytes(start[-_SIZE_BYTES:], "little"))
            if not start.startswith(head) or start[len(head) : -_SIZE_BYTES] != _digest(table):
                return None
            found = {}
            for number, size, digest in json.loads(table):
                if wanted is not None and number not in wanted:
                    file.seek(size, os.SEEK_CUR)
                    continue
                found[number] = file.read(size)
                if _digest(found[number]).hex() != digest:
                    return None
    except OSError:
        return None
    return found


def write_parts(path: Path, file_format: str, parts: Mapping[int, bytes]) -> None:
    """Put an index file of numbered parts in place, as `write` does."""
    table = json.dumps([[number, len(part), _digest(part).hex()] for number, part in parts.items()]).encode()
    size = len(table).to_bytes(_SIZE_BYTES, "little")
    _put(path, b"".join([_head(file_format), _digest(table), size, table, *parts.values()]))


def _put(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(temporary).replace(path)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        _LOG.warning("row index file '%s' was not written (%s); it will be computed again", path, error.strerror)


def keep_only(directory: Path, names: Collection[str]) -> None:
    """Remove what lies in a directory of the index and is not among `names`."""
    try:
        with os.scandir(directory) as entries:
            # Temporary files belong to a writer that may still be at work.
            strangers = [entry for entry in entries if entry.name not in names and not entry.name.startswith(".")]
        for entry in strangers:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                Path(entry.path).unlink(missing_ok=True)
    except FileNotFoundError:
        return
    except OSError as error:
        _LOG.warning("row index directory '%s' was not tidied (%s)", directory, error.strerror)


def _head(file_format: str) -> bytes:
    return f"hypaware-pipeline {file_format}\n".encode()


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=_DIGEST_BYTES).digest()
