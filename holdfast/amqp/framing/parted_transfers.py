"""Transfers in two: the performative goes to proton, the payload goes past it.

The problem: proton copies a payload into its input buffer, from there to the delivery, and from there to whoever takes
it. Of a hundred bytes nobody notices; of events of 16 KiB it was a third of what a connection costs. The rules:

- parted is a run of frames that are large on average, so that looking at each costs less than copying it;
- proton sees each of these transfers, with all that it says, but with nothing in it;
- a run ends before any frame that is no transfer, flow or disposition: as long as it lasts no link begins or ends, and
  a channel and a handle mean the same link;
- a run ends before a transfer that is written as no client known does it. Proton has that one whole, as every frame
  that is not parted. What proton would read in another way is never read here.

A run is given to proton at once, and its messages are taken before the next bytes are looked at. So within a run
nothing of a message is in proton, and outside of it everything is.
"""

from __future__ import annotations

import re
from collections import deque
from struct import Struct
from typing import NamedTuple

from holdfast.amqp.encoding.codec import decode_value
from holdfast.amqp.errors import MalformedMessage

LARGE_BYTES = 4 * 1024
"""A run has a frame of this size among the first FIRST_FRAMES ..."""

FIRST_FRAMES = 3

AVERAGE_BYTES = 2 * 1024
"""... and so much for each frame that is added to these."""

LAST, MORE, ABORTED = range(3)
"""What a transfer says of its message: this was all of it; there is more to come; forget it."""

Place = tuple[int | None, int | None]
"""The channel and handle of a link, as the peer numbers them."""

Part = tuple[bytes, int]
"""A payload, and LAST, MORE or ABORTED."""

_FLOW, _TRANSFER, _DISPOSITION = b"\x00S\x13", b"\x00S\x14", b"\x00S\x15"
_HEAD = Struct(">IBBH")

_to_tag = re.compile(rb"(?:C|R(.)|p(....))(?:([@C]|R.|p....)(?:(@)|\xa0(.))?)?", re.DOTALL).match
"""The handle; the delivery-id; that there is no delivery-tag, or how long it is. What is not there is not said."""

_to_more = re.compile(rb"(?:([@C]|R.|p(....))(?:([@AB]|V[\x00\x01])(A|V\x01|[@B]|V\x00)?)?)?", re.DOTALL).match
"""The message-format (also alone, if it takes four bytes), whether it is settled, and whether there is more."""

_IS_MORE = (b"A", b"V\x01")
_ABORTED_AT = 3
"""Of the fields behind it: receiver settle mode, state, resume, aborted, batchable."""


class Transfer(NamedTuple):
    handle: int
    tag: bytes
    stated: bytes | None  # the message-format, if it takes four bytes
    part: int
    payload_at: int


def read_transfer(data: bytes, at: int, end: int) -> Transfer | None:
    """The transfer whose body begins at `at`, in a frame that ends at `end`; None: it is no transfer, or written in an
    unusual way."""
    if data[at : at + 3] != _TRANSFER or end - at < 6:
        return None
    code = data[at + 3]
    if code == 0xC0:
        count, fields_at, payload_at = data[at + 5], at + 6, at + 5 + data[at + 4]
    elif code == 0xD0 and end - at >= 12:
        count, fields_at = int.from_bytes(data[at + 8 : at + 12], "big"), at + 12
        payload_at = at + 8 + int.from_bytes(data[at + 4 : at + 8], "big")
    else:
        return None
    if payload_at > end:
        return None
    found = _to_tag(data, fields_at, payload_at)
    if found is None:
        return None
    short, long, number, no_tag, tag = found.groups()
    handle = short[0] if short else int.from_bytes(long, "big") if long else 0
    tag_at = found.end()
    rest_at = tag_at + tag[0] if tag else tag_at
    part, fields, stated = LAST, 1 + (number is not None), None
    if no_tag or tag:
        rest = _to_more(data, rest_at, payload_at) if rest_at <= payload_at else None
        if rest is None:
            return None
        message_format, stated, settled, more = rest.groups()
        fields += 1 + (message_format is not None) + (settled is not None) + (more is not None)
        part = MORE if more in _IS_MORE else LAST
        if rest.end() < payload_at:
            others = _others(data, rest.end(), payload_at) if more is not None else None
            aborted = others[_ABORTED_AT] if others and len(others) > _ABORTED_AT else None
            if others is None or not (aborted is None or isinstance(aborted, bool)):
                return None
            fields += len(others)
            part = ABORTED if aborted else part
    elif tag_at < payload_at:
        return None
    return Transfer(handle, data[tag_at:rest_at], stated, part, payload_at) if fields == count else None


def _others(data: bytes, at: int, end: int) -> list[object] | None:
    """The fields that are rarely there; None: nobody can read them."""
    fields: list[object] = []
    try:
        while at < end:
            value, at = decode_value(data, at, end)
            fields.append(value)
    except MalformedMessage:
        return None
    return fields


def begins_large(data: bytes) -> bool:
    """Whether bytes that begin with a frame may begin with a run."""
    at, end = 0, len(data)
    if end < LARGE_BYTES:
        return False
    for _ in range(FIRST_FRAMES):
        if at + 4 > end:
            break
        size = int.from_bytes(data[at : at + 4], "big")
        if size >= LARGE_BYTES:
            return True
        at += max(size, 8)
    return False


class Run:
    """Frames that are parted together."""

    __slots__ = ("_bytes", "_frames", "parts", "said", "stated", "unfinished")

    def __init__(self) -> None:
        self.said: list[bytes] = []
        """What proton is given."""
        self.parts: dict[Place, deque[Part]] = {}
        """What it is not given, of each link, in order."""
        self.stated: list[tuple[Place, bytes, bytes]] = []
        """Of messages that state a format other than the usual one: the link, the tag, the format."""
        self.unfinished = False
        """It went up to a frame of which there was only a beginning."""
        self._bytes = self._frames = 0

    def take(self, data: bytes, at: int, max_frame: int) -> int:
        """Takes frames from there on. Where the first one begins that it does not take."""
        end, said, parts = len(data), self.said, self.parts
        self.unfinished = False
        while at < end:
            if at + 8 > end:
                self.unfinished = True
                break
            size, offset, kind, channel = _HEAD.unpack_from(data, at)
            if not 8 <= size <= max_frame or kind or offset < 2:
                break
            after = at + size
            if after > end:
                self.unfinished = True
                break
            self._frames += 1
            self._bytes += size
            if self._bytes < AVERAGE_BYTES * (self._frames - FIRST_FRAMES):
                break
            body = at + 4 * offset
            transfer = read_transfer(data, body, after)
            if transfer is not None:
                handle, tag, stated, part, payload_at = transfer
                said.append(_HEAD.pack(8 + payload_at - body, 2, 0, channel) + data[body:payload_at])
                place = (channel, handle)
                of_link = parts.get(place)
                if of_link is None:
                    of_link = parts[place] = deque()
                of_link.append((data[payload_at:after], part))
                if stated is not None:
                    self.stated.append((place, tag, stated))
            elif size == 8 or data[body : body + 3] in (_FLOW, _DISPOSITION):
                said.append(data[at:after])
            else:
                break
            at = after
        return at
