"""Deletion vectors as HypAware lays them out: one Puffin file, one `deletion-vector-v1` blob.

Why one file per vector: HypAware writes them so, and a newer vector of a data file replaces the older one as a whole.
"""

import json
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from pyroaring import BitMap

_MAGIC = b"PFA1"
_VECTOR_MAGIC = bytes.fromhex("d1d33964")


@dataclass(frozen=True, slots=True)
class VectorPlace:
    """Where a vector lies in its Puffin file, in bytes, and how many positions it holds."""

    offset: int
    length: int
    file_bytes: int
    cardinality: int


def write_vector(path: Path, data_file_url: str, positions: BitMap) -> VectorPlace:
    """Write the deleted positions of one data file."""
    # 64-bit portable form: number of 32-bit buckets, then each with its high word. A data file has fewer than 2^32 rows.
    bitmap = _VECTOR_MAGIC + struct.pack("<QI", 1, 0) + BitMap(list(positions), optimize=False).serialize()
    blob = struct.pack(">I", len(bitmap)) + bitmap + struct.pack(">I", zlib.crc32(bitmap))
    properties = {"referenced-data-file": data_file_url, "cardinality": str(len(positions))}
    entry = {
        "type": "deletion-vector-v1",
        "fields": [],
        "snapshot-id": -1,
        "sequence-number": -1,
        "offset": len(_MAGIC),
        "length": len(blob),
        "properties": properties,
    }
    payload = json.dumps({"blobs": [entry]}, separators=(",", ":"), ensure_ascii=False).encode()
    footer = _MAGIC + payload + struct.pack("<I4x", len(payload)) + _MAGIC
    path.write_bytes(_MAGIC + blob + footer)
    return VectorPlace(len(_MAGIC), len(blob), len(_MAGIC) + len(blob) + len(footer), len(positions))


def read_vector(path: Path, offset: int, length: int) -> BitMap:
    """The positions of a vector this writer wrote.

    Raises:
        ValueError: the blob at this place is damaged.
    """
    with path.open("rb") as file:
        file.seek(offset)
        blob = file.read(length)
    bitmap = blob[4:-4]
    if struct.pack(">I", zlib.crc32(bitmap)) != blob[-4:]:
        raise ValueError(f"{path}: the deletion vector at byte {offset} is damaged")
    head = len(_VECTOR_MAGIC) + struct.calcsize("<QI")
    return BitMap.deserialize(bitmap[head:])
