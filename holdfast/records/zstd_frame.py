"""zstd, as Kafka's codec 4: one frame that states how long its content is.

The rule: the frame's own words are compared with what was promised before anything is allocated. The library takes the
size in a frame for true and makes room for it, whatever limit it was given; so a frame that states another size, or
none, is refused by its header alone. So is one that asks for a larger window than any of ours needs: that is room, too.

A compressor and a decompressor are kept for each thread: making them costs more than a small batch does.
"""

from __future__ import annotations

import threading

import zstandard

from holdfast.records.decompression_limits import MAX_UNCOMPRESSED_BYTES, Undecodable

LEVEL = 1
"""The leader compresses within its turn. Level 3 makes ticks of trades a twentieth smaller, and takes twice as long."""


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=LEVEL)
        self.decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_UNCOMPRESSED_BYTES)


_of_thread = _OfThread()


def compress(data: bytes) -> bytes:
    return _of_thread.compressor.compress(data)


def decompress(data: memoryview, size: int) -> bytes:
    """Decompress. Raises Undecodable: it is not one zstd frame of `size` bytes."""
    try:
        frame = zstandard.get_frame_parameters(data)
        if frame.content_size != size:
            raise Undecodable(f"a zstd frame that states {frame.content_size} bytes, not the {size} that were promised")
        if frame.window_size > MAX_UNCOMPRESSED_BYTES:
            raise Undecodable(f"a zstd frame that asks for a window of {frame.window_size} bytes")
        return _of_thread.decompressor.decompress(data, max_output_size=size, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise Undecodable(f"no zstd frame of {size} bytes: {error}") from error
