"""Handles that a peer gives to a new link before the detach of the old one has come.

Problem: go-amqp 1.4 to 1.7 takes the handle of a link that was refused for free when it hears of that. The attach of
another link may then overtake the detach by which it answers. proton overwrites its table, and would take that detach
for one of the new link.

Rules never broken: a handle is given away only if this end has detached its link, so that a detach is on its way for
certain; proton is told of that detach before the attach, and is spared it when it comes. A handle of a link that lives
is in use, as ever.

It costs nothing while no detach is awaited. Then frames are walked, and the beginning of one that may be an attach or a
detach is kept back until the rest has come: at most MAX_CONTROL_FRAME_BYTES. Larger ones pass; proton judges them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from struct import Struct
from typing import Any, Final, NamedTuple

from holdfast.amqp.encoding.codec import Described, encode_value, uint, ulong
from holdfast.amqp.framing.performatives import (
    ATTACH_FRAME,
    DETACH_FRAME,
    MAX_CONTROL_FRAME_BYTES,
    Place,
    first_fields,
    frames,
)

_FRAME = Struct(">IBBH")
_DESCRIPTOR_BYTES = 10
"""Longest descriptor of a performative, with its constructors."""

HANDLE: Final = {ATTACH_FRAME: 1, DETACH_FRAME: 0}
"""Place of the handle among the fields of a frame."""


class FrameOfConcern(NamedTuple):
    """A frame of concern at stream[start:end]; `code` 0: it is unfinished, and may be one."""

    start: int
    end: int
    code: int = 0
    place: Place = (None, None)


class EarlyHandles:
    def __init__(self) -> None:
        self.parting: set[Any] = set()
        """Links that were detached here, and whose peers have not answered yet."""
        self.held = b""
        """Beginning of an unfinished frame that may be of concern."""
        self._owed: Counter[Place] = Counter()  # detaches that are on their way, and that proton was told of

    @property
    def watches(self) -> bool:
        return bool(self.parting or self._owed or self.held)

    def find(self, stream: bytes, at: int, is_parting: Callable[[Place], bool]) -> FrameOfConcern | None:
        """The first frame of concern from `at` on, where a frame begins. `is_parting`: tells whether the link of a
        handle was detached here, and its peer has not answered yet."""
        size = len(stream)
        while at < size:
            if at + _FRAME.size > size:
                return FrameOfConcern(at, size)
            length, offset, _, _ = _FRAME.unpack_from(stream, at)
            if length < _FRAME.size:
                return None  # proton refuses it
            end, seen = at + length, at + 4 * offset + _DESCRIPTOR_BYTES
            if length <= MAX_CONTROL_FRAME_BYTES:
                if end > size and (seen > size or self._kind(stream[at:]) in HANDLE):
                    return FrameOfConcern(at, size)
                if end <= size and (found := self._concern(stream, at, end, is_parting)) is not None:
                    return found
            at = end
        return None

    @staticmethod
    def _kind(beginning: bytes) -> int:
        """The code of the performative that an unfinished frame begins with."""
        shown = len(beginning).to_bytes(4, "big") + beginning[4:]
        return next((code for code, *_ in frames(shown)), 0)

    def _concern(self, stream: bytes, at: int, end: int, is_parting: Callable[[Place], bool]) -> FrameOfConcern | None:
        for code, channel, body, after in frames(stream[at:end]):
            if code in HANDLE:
                fields = first_fields(stream[at + body : at + after], HANDLE[code] + 1)
                handle = fields[HANDLE[code]] if len(fields) > HANDLE[code] else None
                place = (channel, int(handle) if isinstance(handle, uint) else None)
                if is_parting(place) if code == ATTACH_FRAME else self._owed[place] > 0:
                    return FrameOfConcern(at, end, code, place)
        return None

    def detached_early(self, place: Place) -> bytes:
        """The detach of the old link, for proton; the peer's own is not for it."""
        channel, handle = place
        assert channel is not None
        assert handle is not None
        self._owed[place] += 1
        said = encode_value(Described(ulong(DETACH_FRAME), [uint(handle), True]))
        return _FRAME.pack(_FRAME.size + len(said), 2, 0, channel) + said

    def paid(self, place: Place) -> None:
        """Note that the detach has come."""
        self._owed[place] -= 1
        if self._owed[place] <= 0:
            del self._owed[place]

    def session_ended(self, channel: int | None) -> None:
        for place in [place for place in self._owed if place[0] == channel]:
            del self._owed[place]

    def clear(self) -> None:
        """Forget everything: no more input comes."""
        self.parting.clear()
        self._owed.clear()
        self.held = b""
