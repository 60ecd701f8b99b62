"""Deletion vectors: which rows of one data file are deleted.

Why the checksum is verified before the bitmap is decoded: the decoder is C code that trusts its input, and a wrong bit would
bring a purged row back.
"""

import zlib

import numpy as np
from pyroaring import BitMap64

from hypaware_pipeline.cache.snapshot import DeletionRef
from hypaware_pipeline.errors import SourceUnreadable

_MAGIC = b"\xd1\xd3\x39\x64"
_WORD = 4


def deleted_positions(deletion: DeletionRef) -> np.ndarray:
    """0-based positions of the deleted rows, ascending, int64.

    Raises:
        FileNotFoundError: the file is gone.
        SourceUnreadable: its blob is damaged.
    """
    bitmap = _bitmap(deletion)
    try:
        positions = BitMap64.deserialize(bitmap)
    except (ValueError, RuntimeError) as error:
        raise _damaged(deletion, str(error)) from None
    if len(positions) != deletion.rows:
        raise _damaged(deletion, f"it deletes {len(positions)} rows, its manifest says {deletion.rows}")
    return np.frombuffer(positions.to_array(), np.uint64).astype(np.int64) if positions else np.empty(0, np.int64)


def _bitmap(deletion: DeletionRef) -> bytes:
    """Length (big endian, of magic and bitmap), magic, bitmap, CRC-32 (big endian, of magic and bitmap)."""
    try:
        with deletion.path.open("rb") as file:
            file.seek(deletion.offset)
            blob = file.read(deletion.length)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise SourceUnreadable(f"deletion vector '{deletion.path}' cannot be read ({error}); restore it from a backup") from None
    body = blob[_WORD:-_WORD]
    if len(blob) != deletion.length or int.from_bytes(blob[:_WORD], "big") != len(body) or not body.startswith(_MAGIC):
        raise _damaged(deletion, "no deletion vector at the place its manifest names")
    if int.from_bytes(blob[-_WORD:], "big") != zlib.crc32(body):
        raise _damaged(deletion, "its checksum does not match")
    return body[len(_MAGIC) :]


def _damaged(deletion: DeletionRef, what: str) -> SourceUnreadable:
    return SourceUnreadable(f"deletion vector '{deletion.path}' is damaged: {what}; restore it from a backup")
