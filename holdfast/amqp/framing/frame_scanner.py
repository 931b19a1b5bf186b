"""The frames that proton reads, seen again: for what proton drops, misreads or cannot bound.

proton keeps an attach's terminus, filter and properties as trees that it decodes without looking at the result
(a malformed filter silently becomes no filter) and that let 60 bytes of a peer's attach occupy 5 MiB of ours;
it never shows a link's capabilities; and it overwrites its tables when a peer uses a channel or handle twice,
which corrupts memory later. So open, begin and attach frames are read here by our own bounded codec, in the
order in which proton reports them.

Large transfers are given to proton without their payloads (`engine/frame_input.py`). What is shown of such a push is
what proton was given: all that their performatives say.

A transfer may state a message-format; the only one in use besides 0 is that of Event Hubs' batches. While `watching`,
what is pushed is searched for the five bytes that state it (half a microsecond for each KiB), and only where they turn
up are the transfers walked: `batches` then has the tags of those that state it, by channel and handle.

Likewise proton drops a state whose descriptor is a symbol, and the properties of a flow, which may ask for deliveries
as part of a transaction. Transfers and flows are looked at for these on connections that are `transactional`: those
with a control link, since without one there is no transaction to name. Dispositions without a state that proton knows
are few, and are looked at wherever they come. (No client is known that does either; states with a number are read
from proton, everywhere.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from holdfast.amqp.framing.performatives import (
    ACQUISITION,
    BATCH_FORMAT,
    DISPOSITION_FRAME,
    NAMELESS,
    OPEN_FRAME,
    SYMBOLIC_STATE,
    Place,
    ScannedFrame,
    acquisitions,
    batches,
    frames,
    names_transaction,
    states,
    walk,
)

_STATED = b"\x70" + BATCH_FORMAT.to_bytes(4, "big")  # as an AMQP uint, which has no shorter form for it
_find_stated = re.compile(re.escape(_STATED)).search


class FrameScanner:
    """Shows the frames that proton was given last."""

    __slots__ = (
        "_acquiring",
        "_data",
        "_has_symbolic",
        "_suspect",
        "_tail",
        "_unread",
        "batches",
        "states",
        "transactional",
        "watching",
    )

    def __init__(self) -> None:
        self._tail = b""
        self._data = b""
        self._unread: Iterator[ScannedFrame] | None = None
        self._suspect = False  # the unfinished frame at the end of the last push may state the format
        self.watching = False
        self.batches: dict[Place, set[bytes]] = {}
        self.transactional = False
        self.states: dict[Place, dict[bytes, list[Any] | None]] = {}
        """Fields of the transactional states that proton drops, by tag, of the transfers pushed last."""
        self._acquiring: set[Place] | None = None
        self._has_symbolic: bool | None = None  # a disposition of the last push; None: nobody has asked

    def pushed(self, tail: bytes, data: bytes, unfinished: int) -> None:
        """Note what proton was given. `tail`: what the first frame had before; `unfinished`: bytes of the last frame if
        more of it is to come."""
        self._tail, self._data = tail, data
        self._unread = None
        self._acquiring = None
        self._has_symbolic = None
        if self.watching:
            self._watch(unfinished)
        if self.transactional:
            self._watch_states()

    def kept_back(self, tail: bytes) -> None:
        """Note what proton is given now of a frame that was kept back; the rest of it is pushed next."""
        self._suspect = self.watching and _STATED in tail

    def _watch(self, unfinished: int) -> None:
        """Notes the transfers of the last push that state the format of batches."""
        tail, data = self._tail, self._data
        joint = tail[-4:] + data[:4]
        found = self._suspect or _find_stated(data) is not None or _STATED in joint
        self._suspect = found and unfinished > 0 and _STATED in (tail + data)[-unfinished:]
        if found:
            for place, tag in batches(tail + data):
                self.batches.setdefault(place, set()).add(tag)

    def _watch_states(self) -> None:
        """Notes the transfers of the last push if one has a state that proton drops. Tags need only be unique among
        what is unsettled: where one is said twice and not of the same transaction, nobody can tell which is meant, and
        neither has a name that can be read."""
        if SYMBOLIC_STATE not in self._data and SYMBOLIC_STATE not in self._tail + self._data[: len(SYMBOLIC_STATE)]:
            return
        for place, tag, fields in states(self._tail + self._data):
            noted = self.states.setdefault(place, {})
            noted[tag] = fields if noted.get(tag, fields) == fields else NAMELESS

    def clear(self) -> None:
        """Forget everything: no more input comes."""
        self._data = self._tail = b""
        self._unread = None

    def forget(self, place: Place) -> None:
        """Drops what was noted of a link's transfers."""
        self.batches.pop(place, None)
        self.states.pop(place, None)

    def acquires(self, place: Place) -> bool:
        """True if a flow of the last push, for the link at `place`, acquires in a transaction."""
        if self._acquiring is None:
            stream = self._tail + self._data
            self._acquiring = set(acquisitions(stream)) if ACQUISITION.encode() in stream else set()
        return place in self._acquiring

    def symbolic_disposition(self) -> bool:
        """True if a disposition of the last push has a transactional state that proton drops. Proton does not tell
        which deliveries it is about."""
        if self._has_symbolic is None:
            stream = self._tail + self._data
            self._has_symbolic = SYMBOLIC_STATE in stream and any(
                code == DISPOSITION_FRAME and names_transaction(stream[body:after])
                for code, _, body, after in frames(stream)
            )
        return self._has_symbolic

    def skipped(self) -> bool:
        """True if the last push, once looked at, has a begin or attach left that proton did not report."""
        return self._unread is not None and any(frame.code != OPEN_FRAME for frame in self._unread)

    def next(self, code: int) -> ScannedFrame:
        """The next open, begin or attach (as `code` says) of the last push: the one that proton reports now."""
        if self._unread is None:
            self._unread = walk(self._tail + self._data)
        for frame in self._unread:
            if frame.code == code:
                return frame
        return ScannedFrame(code, 0, None)
