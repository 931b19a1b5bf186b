"""The codecs of a record batch, by Kafka's numbers: bits 0-2 of its attributes.

The problem: a compressed batch says of itself how large it will be, and its producer may have lied. The rules: how
many bytes come out is known before, from the batch's table of lengths, and compared with a limit; a codec is never
given room for more, and what does not come out as exactly that many is refused. And compression never costs space:
records that do not get smaller stay as they came.

Which codec a log uses is a setting of the log (`cluster/metadata`), in the names below.

Rejected: compressing the table of lengths and the digests too. What `apply` compares would have to be decompressed on
every replica, and the table is what bounds the decompression.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Final

from holdfast.records import gzip_stream, zstd_frame
from holdfast.records.decompression_limits import MAX_UNCOMPRESSED_BYTES, Undecodable

WORTHWHILE_BYTES = 512
"""Fewer stay as they are: there is little to find in them, and the head of the entry and its row in the index weigh as
much as what could be saved."""


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    ZSTD = 4

    @classmethod
    def named(cls, name: str) -> Codec:
        """Codec by its name in a log's settings."""
        return cls[name.upper()]


NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""Names of codecs by Kafka's numbers; 5 to 7 are unused."""

_COMPRESS: Final[dict[Codec, Callable[[bytes], bytes]]] = {
    Codec.GZIP: gzip_stream.compress,
    Codec.ZSTD: zstd_frame.compress,
}
_DECOMPRESS: Final[dict[int, Callable[[memoryview, int], bytes]]] = {
    Codec.GZIP: gzip_stream.decompress,
    Codec.ZSTD: zstd_frame.decompress,
}

READABLE: Final = frozenset(_DECOMPRESS)


def name_of(number: int) -> str:
    return NAMES[number] if number < len(NAMES) else "unknown"


def compress(codec: Codec, records: Sequence[bytes | memoryview]) -> bytes | None:
    """Compress records. None: leave them as they are."""
    data = b"".join(records)
    if not WORTHWHILE_BYTES <= len(data) <= MAX_UNCOMPRESSED_BYTES:
        return None
    packed = _COMPRESS[codec](data)
    return packed if len(packed) < len(data) else None


def decompress(number: int, data: memoryview, size: int) -> bytes:
    """Decompress records. `number`: one of READABLE; `size`: of the records.

    Raises Undecodable: it does not hold that much, or is not a stream of this codec.
    """
    if not 0 < size <= MAX_UNCOMPRESSED_BYTES:
        raise Undecodable(f"{size} bytes of records are no compressed batch: it has 1 to {MAX_UNCOMPRESSED_BYTES}")
    return _DECOMPRESS[number](data, size)
