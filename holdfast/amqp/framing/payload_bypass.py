"""Transfers in two: the performative goes to proton, the payload goes past it.

The problem: proton copies a payload into its input buffer, from there to the delivery, and from there to the owner.
Of a hundred bytes nobody notices; of events of 16 KiB it was a third of what a connection costs. The rules:

- parted is a run of frames that are large on average, so that looking at each costs less than copying it;
- in place of each payload proton has four bytes, its number. So it is proton, and proton alone, that says which payload
  belongs to which message, whether there is more of it, whether it was taken back, or is no message at all;
- a run is given to proton at once, and its messages are taken before the next bytes are looked at. So whatever proton
  has of a message is numbers within a run, and bytes outside of it;
- a run ends before any frame that is no transfer, flow or disposition of few deliveries: those others are rationed
  (`FrameScanner`).
"""

from __future__ import annotations

from struct import Struct

from holdfast.amqp.framing.disposition_range import deliveries_named

LARGE_BYTES = 4 * 1024
"""A run has a frame of this size among the first FIRST_FRAMES ..."""

FIRST_FRAMES = 3

AVERAGE_BYTES = 2 * 1024
"""... and so much for each frame that is added to these."""

NUMBER_BYTES = 4
NUMBERS = 1 << (8 * NUMBER_BYTES)

NARROW_DELIVERIES = 64
"""A disposition that names more ends a run."""

_FLOW, _TRANSFER, _DISPOSITION = b"\x00S\x13", b"\x00S\x14", b"\x00S\x15"
_HEAD = Struct(">IBBH")
_HEAD_BYTES = _HEAD.size
_NUMBER = Struct(">I")


def payload_at(data: bytes, at: int, end: int) -> int:
    """Find where the payload begins of the transfer whose body is at `at`, in a frame that ends at `end`; 0: it is no
    transfer, or written in a way that is left to proton."""
    return list_end(data, at + 3, end) if data[at : at + 3] == _TRANSFER else 0


def list_end(data: bytes, at: int, end: int) -> int:
    """Find where the list ends whose constructor is at `at`; 0: there is none, or it goes on after `end`."""
    code = data[at] if at + 3 <= end else 0
    if code == 0xC0:
        after = at + 2 + data[at + 1]
    elif code == 0xD0 and at + 9 <= end:
        after = at + 5 + int.from_bytes(data[at + 1 : at + 5], "big")
    else:
        return 0
    return after if after <= end else 0


def _is_narrow(data: bytes, body: int) -> bool:
    """A disposition that does not name many deliveries."""
    return data[body : body + 3] == _DISPOSITION and deliveries_named(data, body + 3) <= NARROW_DELIVERIES


def numbers_in(said: bytes) -> list[int]:
    """Numbers of a message's payloads, from the bytes that proton has of it."""
    return [number for (number,) in _NUMBER.iter_unpack(said)]


def begins_large(data: bytes) -> bool:
    """True if bytes that begin with a frame may begin with a run."""
    at, end, frames, has_large = 0, len(data), 0, False
    while frames < FIRST_FRAMES and at + 4 <= end:
        size = max(int.from_bytes(data[at : at + 4], "big"), _HEAD_BYTES)
        has_large = has_large or size >= LARGE_BYTES
        at += size
        frames += 1
    return has_large and end >= LARGE_BYTES and at >= AVERAGE_BYTES * frames


class PartedFrames:
    """Frames that are parted together."""

    __slots__ = ("_bytes", "_frames", "parts", "said", "unfinished")

    def __init__(self) -> None:
        self.said: list[bytes] = []
        """Bytes for proton."""
        self.parts: dict[int, bytes] = {}
        """Payloads that proton does not get, by number."""
        self.unfinished = False
        """True if the data ended within a frame."""
        self._bytes = self._frames = 0

    def take(self, data: bytes, at: int, max_frame: int, number: int) -> int:
        """Take frames from `at` on, and return where the first one begins that is not taken. `number`: of the first
        payload."""
        end, said, parts = len(data), self.said, self.parts
        self.unfinished = False
        while at < end:
            if at + _HEAD_BYTES > end:
                self.unfinished = True
                break
            size, offset, kind, channel = _HEAD.unpack_from(data, at)
            if not _HEAD_BYTES <= size <= max_frame or kind or offset < 2:
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
            begin = payload_at(data, body, after)
            if begin and begin < after:
                said.append(_HEAD.pack(_HEAD_BYTES + NUMBER_BYTES + begin - body, 2, 0, channel))
                said.append(data[body:begin])
                said.append(_NUMBER.pack(number))
                parts[number] = data[begin:after]
                number = (number + 1) % NUMBERS
            elif begin or size == _HEAD_BYTES or data[body : body + 3] == _FLOW or _is_narrow(data, body):
                said.append(data[at:after])
            else:
                break
            at = after
        return at
