"""The outside of what holds many messages in one: a message that is one data section, sealed by a version and a
checksum.

    version u8 | CRC-32C u32 of all that follows | all that follows
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from crc32c import crc32c

from holdfast.amqp.errors import MalformedMessage
from holdfast.amqp.messages.data_section import MAX_HEAD_BYTES, content_at, data_head

_SEAL = struct.Struct(">BI")

SEALED_BYTES = MAX_HEAD_BYTES + _SEAL.size
"""What stands around the content, at most."""

FEW_PIECES = 16
LARGE_PIECE_BYTES = 4096
"""More pieces than these, and smaller ones, are joined before they are looked at, since each costs a call. Others are
not, since a copy costs more."""


def few_pieces(pieces: Sequence[bytes | memoryview]) -> Sequence[bytes | memoryview]:
    """The same bytes in pieces that may be looked at one by one."""
    if len(pieces) <= FEW_PIECES or sum(map(len, pieces)) >= len(pieces) * LARGE_PIECE_BYTES:
        return pieces
    return (b"".join(pieces),)


def seal(version: int, pieces: Sequence[bytes | memoryview]) -> bytes:
    """The message whose content are these pieces, one behind the other."""
    pieces = few_pieces(pieces)
    checksum = 0
    for piece in pieces:
        checksum = crc32c(piece, checksum)
    head = data_head(_SEAL.size + sum(map(len, pieces)))
    return b"".join([head, _SEAL.pack(version, checksum), *pieces])


def unseal(message: bytes, version: int, least_bytes: int, what: str) -> int:
    """Where the content begins, of at least so many bytes. `what`: the name of what was expected, for errors.

    Raises MalformedMessage: it is anything else, of another version, or was damaged.
    """
    start = content_at(message)
    if start is None:
        raise MalformedMessage(f"it is not one data section, and nothing but a {what} may come on this link")
    if len(message) - start < _SEAL.size + least_bytes:
        raise MalformedMessage(f"it is too short for a {what}, and nothing else may come on this link")
    found, checksum = _SEAL.unpack_from(message, start)
    if found != version:
        raise MalformedMessage(f"version {found} of a {what} is not known here")
    start += _SEAL.size
    if crc32c(memoryview(message)[start:]) != checksum:
        raise MalformedMessage(f"the checksum of a {what} does not match: it was damaged on its way")
    return start
