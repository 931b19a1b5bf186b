"""What the log of a partition can say: the commands that its replicas apply.

The rule: a table from tag to decoder that raises on anything absent. What was committed cannot be refused any more, so
the machine turns that into a recorded rejection; it never guesses at bytes of a newer version.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from node.partition.batch import ENTRY_REGULAR, TAG_RECORD_BATCH, BatchHead, Damaged, decode_head

TAG_TRIM = 2

_TRIM = struct.Struct(">BBBQQQ")
_TRIM_VERSION = 1


class UnknownCommand(ValueError):
    """A tag or version that this program does not know; the entry was made by another one, or is damaged."""


@dataclass(frozen=True, slots=True)
class Trim:
    """Forget the events below `offset`. The leader worked the rest out from its index, which all replicas share:
    entries up to `index` are no longer needed, and they began `bytes_before` bytes into the log."""

    offset: int
    index: int
    bytes_before: int

    def encode(self) -> bytes:
        return _TRIM.pack(ENTRY_REGULAR, TAG_TRIM, _TRIM_VERSION, self.offset, self.index, self.bytes_before)


Command = BatchHead | Trim


def _decode_trim(entry: bytes) -> Trim:
    if len(entry) != _TRIM.size:
        raise Damaged(f"a trim command has {_TRIM.size} bytes, not {len(entry)}")
    _, _, version, offset, index, bytes_before = _TRIM.unpack(entry)
    if version != _TRIM_VERSION:
        raise UnknownCommand(f"trim command of version {version}")
    return Trim(offset, index, bytes_before)


_DECODERS: dict[int, Callable[[bytes], Command]] = {
    TAG_RECORD_BATCH: decode_head,
    TAG_TRIM: _decode_trim,
}


def decode(entry: bytes) -> Command:
    """Raises Damaged or UnknownCommand, both ValueError."""
    if len(entry) < 2 or entry[0] != ENTRY_REGULAR:
        raise Damaged(f"no command in {len(entry)} bytes beginning with {entry[:2].hex()!r}")
    try:
        decoder = _DECODERS[entry[1]]
    except KeyError:
        raise UnknownCommand(f"command tag {entry[1]}") from None
    return decoder(entry)
