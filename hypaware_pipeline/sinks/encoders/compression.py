"""Compressed streams whose bytes depend on the content alone.

Why content is cut into blocks of fixed size first: what a compressor does with the border between two calls is its own
affair; with borders at fixed places the same content gives the same bytes however it was written.

Why gzip blocks are compressed in threads: deflate is five times slower than making the lines it compresses. Each block is a
piece of one ordinary deflate stream (it may refer to the 32 KiB before it, and ends on a byte border), so that every reader
sees one member.
"""

import zlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Protocol, Self

import zstandard

from hypaware_pipeline.plugins.contracts import Writable

BLOCK_BYTES = 1024 * 1024
_WINDOW_BYTES = 32 * 1024  # how far deflate can refer back
_THREADS = 2
_GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # deflate, no file name, no time, unknown system
_LAST_BLOCK = b"\x03\x00"  # an empty deflate block marked as the last


class BlockCompressor(Protocol):
    """Takes content block by block; what comes of it goes to the stream it was made for."""

    def add(self, block: bytes) -> None:
        """Compress the next block."""
        ...

    def finish(self) -> None:
        """Write what is left and the trailer."""
        ...

    def close(self) -> None:
        """Give up threads and memory, finished or not."""
        ...


class GzipBlocks:
    """One gzip member; blocks are compressed in threads and written in order."""

    def __init__(self, out: Writable, level: int) -> None:
        self._out = out
        self._level = level
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="gzip")
        self._pending: deque[Future[bytes]] = deque()
        self._window = b""
        self._crc = 0
        self._size = 0
        out.write(_GZIP_HEADER)

    def add(self, block: bytes) -> None:
        """Compress the next block."""
        self._pending.append(self._threads.submit(_deflated, block, self._window, self._level))
        self._window = block[-_WINDOW_BYTES:]
        self._crc = zlib.crc32(block, self._crc)
        self._size += len(block)
        while len(self._pending) > _THREADS:
            self._out.write(self._pending.popleft().result())

    def finish(self) -> None:
        """Write what is left and the trailer."""
        while self._pending:
            self._out.write(self._pending.popleft().result())
        self._out.write(_LAST_BLOCK + self._crc.to_bytes(4, "little") + (self._size % 2**32).to_bytes(4, "little"))

    def close(self) -> None:
        """Stop the threads."""
        self._threads.shutdown(cancel_futures=True)


class ZstdBlocks:
    """One zstd frame with a checksum."""

    def __init__(self, out: Writable, level: int) -> None:
        self._out = out
        self._frame = zstandard.ZstdCompressor(level=level, write_checksum=True).compressobj()

    def add(self, block: bytes) -> None:
        """Compress the next block."""
        self._out.write(self._frame.compress(block))

    def finish(self) -> None:
        """Write what is left and the trailer."""
        self._out.write(self._frame.flush())

    def close(self) -> None:
        """Nothing to give up."""


class CompressedStream:
    """A `Writable` that hands fixed blocks to a compressor; the context finishes it unless an exception ends it."""

    def __init__(self, compressor: BlockCompressor) -> None:
        self._compressor = compressor
        self._held = bytearray()

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Finish the stream, or only give it up after an exception."""
        try:
            if kind is None:
                if self._held:
                    self._compressor.add(bytes(self._held))
                self._compressor.finish()
        finally:
            self._compressor.close()

    def write(self, data: bytes | memoryview, /) -> int:
        """Take all of `data`."""
        view = memoryview(data)
        position = 0
        while position < len(view):
            stop = position + BLOCK_BYTES - len(self._held)
            self._held += view[position:stop]
            position = min(stop, len(view))
            if len(self._held) == BLOCK_BYTES:
                self._compressor.add(bytes(self._held))
                self._held.clear()
        return len(view)


def _deflated(block: bytes, window: bytes, level: int) -> bytes:
    compressor = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS, zdict=window)
    return compressor.compress(block) + compressor.flush(zlib.Z_SYNC_FLUSH)
