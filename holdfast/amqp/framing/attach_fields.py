"""Fields of an attach of ours that proton cannot say, written into the frame it made.

The problem: an attach has a field of desired capabilities, proton has none; and proton leaves everything after the
initial delivery count out of an attach whose target is a coordinator, though a transaction's name and time-out travel
in its properties. The rule never broken: every other byte that the peer reads is proton's; a frame is touched only if
it is the attach of the link in question. Rejected: a filter over everything that leaves (a look at every frame for the
sake of one in a million); instead the engine puts out what it has, attaches, and hands the few frames of that moment to
`with_fields`.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Any

from cproton import lib

from holdfast.amqp.encoding.codec import (
    Described,
    decode_value,
    encode_value,
    ulong,
)
from holdfast.amqp.framing.performatives import ATTACH_FRAME

MAX_MESSAGE_SIZE, DESIRED_CAPABILITIES, PROPERTIES = 10, 12, 13
"""Places of fields in an attach; its name is the first."""

_FRAME = Struct(">IBBH")
_DESCRIPTOR = bytes((0, 0x53, ATTACH_FRAME))


def frames_of(transport: Any, memory: Any, view: Any, size: int) -> list[bytes]:
    """Take all frames that proton has to send now."""
    words: list[bytes] = []
    while (count := lib.pn_transport_peek(transport, memory, size)) > 0:
        words.append(view[:count])
        lib.pn_transport_pop(transport, count)
    return words


def with_fields(frames: bytes, name: str, said: Mapping[int, bytes]) -> bytes:
    """Whole frames, with encoded values at some places of the attach of the link `name`."""
    found: list[bytes] = []
    pos = 0
    while pos < len(frames):
        size, offset, kind, channel = _FRAME.unpack_from(frames, pos)
        body = frames[pos + 4 * offset : pos + size]
        if kind == 0 and body.startswith(_DESCRIPTOR):
            body = _attach_with(body, name, said)
            found += [_FRAME.pack(_FRAME.size + len(body), 2, 0, channel), body]
        else:
            found.append(frames[pos : pos + size])
        pos += size
    return b"".join(found)


def _attach_with(body: bytes, name: str, said: Mapping[int, bytes]) -> bytes:
    value, _ = decode_value(body)
    assert isinstance(value, Described), "proton made this attach"
    fields: Any = value.value
    if fields[0] != name:
        return body
    fields += [None] * (max(said) + 1 - len(fields))
    for place, encoded in said.items():
        fields[place] = decode_value(encoded)[0]
    return encode_value(Described(ulong(ATTACH_FRAME), fields))
