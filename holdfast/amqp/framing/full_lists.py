"""Performatives with every field written, for peers that read fields by their places and never look how many there are.

The Python SDK of Event Hubs is such a peer: proton leaves out what is null at the end, and that client then fails, or
waits for ever. Rule never broken: what a peer reads means what proton said; nulls are added at the end, and nothing
else. Only such peers pay for it: a peer is one if it writes all fields of its open itself, down to a last one that is
null, or says that it is that SDK. A full frame may grow over the peer's max-frame-size by a few bytes, which that SDK
does not compare.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any

from holdfast.amqp.encoding.codec import Described, decode_value, encode_value, ulong

FIELDS = {0x10: 10, 0x11: 8, 0x12: 14, 0x13: 11, 0x14: 11, 0x15: 6, 0x16: 3, 0x17: 1, 0x18: 1}
"""Performative -> how many fields it has."""

_WITH_ERRORS = frozenset({0x15, 0x16, 0x17, 0x18})
_ERROR, _ERROR_FIELDS = 0x1D, 3
_PRODUCT = "azsdk-python-eventhubs"
_HEADER = b"AMQP"
_FRAME, _U32 = Struct(">IBBH"), Struct(">I")


def needs_full_lists(fields: Sequence[Any]) -> bool:
    """Tell by the fields of its open whether a peer needs full lists."""
    if len(fields) < FIELDS[0x10]:
        return False
    said = fields[9]
    return said is None or (isinstance(said, Mapping) and said.get("product") == _PRODUCT)


class FullLists:
    """Rewrites the bytes for one peer, cut anywhere, from the beginning of a frame or header on."""

    def __init__(self) -> None:
        self._rest = b""

    def rewrite(self, data: bytes) -> bytes:
        data = self._rest + data
        found: list[bytes] = []
        pos, end = 0, len(data)
        while pos + 8 <= end:
            if data[pos : pos + 4] == _HEADER:
                found.append(data[pos : pos + 8])
                pos += 8
                continue
            size, offset, kind, channel = _FRAME.unpack_from(data, pos)
            if pos + size > end:
                break
            body = data[pos + 4 * offset : pos + size]
            if kind == 0 and body:
                body = full_performative(body)
                found += [_FRAME.pack(8 + len(body), 2, 0, channel), body]
            else:
                found.append(data[pos : pos + size])
            pos += size
        self._rest = data[pos:]
        return b"".join(found)


def full_performative(body: bytes) -> bytes:
    """The performative, and the payload behind it, with all its fields."""
    code = body[2]
    if code in _WITH_ERRORS:
        value, _ = decode_value(body)
        assert isinstance(value, Described), "proton made this frame"
        assert isinstance(value.value, list), "proton made this frame"
        fields = [_full(field) for field in value.value]
        return _wide(code, fields + [None] * (FIELDS[code] - len(fields)))
    kind = body[3]
    if kind == 0xC0:
        size, count, start = body[4], body[5], 6
        end = 5 + size
    elif kind == 0xD0:
        (size,), (count,), start = _U32.unpack_from(body, 4), _U32.unpack_from(body, 8), 12
        end = 8 + size
    else:
        count, start, end = 0, 4, 4
    missing = FIELDS[code] - count
    content = body[start:end] + b"\x40" * missing
    if len(content) < 255:
        return body[:3] + bytes((0xC0, len(content) + 1, FIELDS[code])) + content + body[end:]
    return body[:3] + b"\xd0" + _U32.pack(len(content) + 4) + _U32.pack(FIELDS[code]) + content + body[end:]


def _full(value: Any) -> Any:
    """The value with every error in it full."""
    if isinstance(value, Described) and isinstance(value.value, list):
        fields = [_full(field) for field in value.value]
        if value.descriptor == _ERROR:
            fields += [None] * (_ERROR_FIELDS - len(fields))
        return Described(value.descriptor, fields)
    return value


def _wide(code: int, fields: list[Any]) -> bytes:
    return encode_value(Described(ulong(code), fields))
