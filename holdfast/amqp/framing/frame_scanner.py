"""The frames that proton reads, seen again: for what proton drops, misreads or cannot bound.

proton keeps an attach's terminus, filter and properties as trees that it decodes without looking at the result
(a malformed filter silently becomes no filter) and that let 60 bytes of a peer's attach occupy 5 MiB of ours;
it never shows a link's capabilities; and it overwrites its tables when a peer uses a channel or handle twice,
which corrupts memory later. So open, begin and attach frames are read here by our own bounded codec, in the
order in which proton reports them.

The hot path pays next to nothing: frames are walked only when an event asks for one. What is kept up after each
push is where the stream's current frame began, worked out from how much room proton's input buffer has left.
That buffer starts at INPUT_BUFFER_BYTES and grows (doubling, up to max-frame-size) only when it is full, which
is the one case where room alone is ambiguous and the count of frames decides. Rejected alternative: walking
every frame header in Python, a tenth of the cost of a small transfer.

Large transfers are given to proton without their payloads (`payload_bypass.py`). What is shown of such a push is
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
import sys
from collections.abc import Iterator
from typing import Any

from cproton import ffi, lib

from holdfast.amqp.framing.disposition_range import DISPOSITION, deliveries_named
from holdfast.amqp.framing.payload_bypass import LARGE_BYTES, NUMBERS, PartedFrames, begins_large
from holdfast.amqp.framing.performatives import (
    ACQUISITION,
    BATCH_FORMAT,
    DISPOSITION_FRAME,
    NAMELESS,
    OPEN_FRAME,
    SYMBOLIC_STATE,
    TRANSFER_FRAME,
    Place,
    ScannedFrame,
    acquisitions,
    batches,
    frames,
    names_transaction,
    states,
    walk,
)

INPUT_BUFFER_BYTES = 8 * 1024
"""PN_TRANSPORT_INITIAL_BUFFER_SIZE of the pinned proton; `FrameScanner` refuses to work
with a proton where it differs."""

_USUAL = (bytes((0x53, TRANSFER_FRAME)), bytes((0x53, DISPOSITION_FRAME)))
_STATED = b"\x70" + BATCH_FORMAT.to_bytes(4, "big")  # as an AMQP uint, which has no shorter form for it
_find_stated = re.compile(re.escape(_STATED)).search

PIECE_RARE_FRAMES = 4
"""Frames other than transfers and dispositions in a piece of input: an attach takes a quarter of a millisecond."""

PIECE_FRAMES = 2000
"""Frames of any kind in a piece: a transfer takes microseconds, if it has to be refused some tens of them."""

PIECE_DELIVERIES = 4096
"""Deliveries that the dispositions in a piece name, or a single one that names more: each takes two microseconds, and
an event of proton's, whether it has changed or not."""

PIECE_STEP_BYTES = 32 * 1024
"""Bytes that proton gets before its count of frames is looked at."""

SMALL_BYTES = 256
"""Less than this has a few frames, and is not looked into."""

_HOPS = 64
"""Frames of a piece that are stepped over by their sizes; if there are more, they are small, and it is searched."""

_find_rare = re.compile(rb"S[\x10-\x13\x16-\x18]").finditer
_find_rare_long = re.compile(rb"\x80(?=\x00{7}[\x10-\x13\x15-\x18])").finditer
_find_disposition = re.compile(re.escape(DISPOSITION)).finditer
"""Searches for descriptors, short and long; each begins with a byte, and so costs a tenth of a microsecond a KiB."""

_EMPTY_FRAME = b"\x00\x00\x00\x08\x02\x00\x00\x00"


class FrameScanner:
    """Feeds proton's transport and can show the frames of the last push."""

    __slots__ = (
        "_acquiring",
        "_data",
        "_has_symbolic",
        "_inside",
        "_max_frame",
        "_number",
        "_pending",
        "_searched",
        "_size",
        "_suspect",
        "_tail",
        "_transport",
        "_unread",
        "batches",
        "crowded",
        "parts",
        "states",
        "transactional",
        "watching",
    )

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._size = INPUT_BUFFER_BYTES
        self._max_frame = 0  # known once there are frames
        self._pending = 0  # bytes of the unfinished frame at the end of what was pushed last ...
        self._inside = 0  # ... which proton has, or has not: they are pushed again, with the rest of it
        self._searched = 0  # bytes at the beginning of what comes next in which there are few rare frames
        self._tail = b""
        self._data = b""
        self._unread: Iterator[ScannedFrame] | None = None
        self._suspect = False  # the unfinished frame at the end of the last push may state the format
        self.watching = False
        self.crowded = False
        """Frames that are neither transfers nor dispositions have ended the last piece."""
        self._number = 0  # of the next payload that proton is not given
        self.parts: dict[int, bytes] | None = None
        """Payloads of the last push, if it was a run, in whose place proton has numbers (`payload_bypass.py`)."""
        self.batches: dict[Place, set[bytes]] = {}
        self.transactional = False
        self.states: dict[Place, dict[bytes, list[Any] | None]] = {}
        """Fields of the transactional states that proton drops, by tag, of the transfers pushed last."""
        self._acquiring: set[Place] | None = None
        self._has_symbolic: bool | None = None  # a disposition of the last push; None: nobody has asked
        room = lib.pn_transport_capacity(transport)
        assert room == INPUT_BUFFER_BYTES, f"proton's input buffer is {room} bytes, not the pinned version's"

    def push(self, data: bytes, frames_most: int | None = None) -> int:
        """Hands bytes of the AMQP layer (after the protocol header) to proton. `frames_most`: when about so many
        frames were taken, it ends. How many bytes were taken."""
        if self._pending > self._inside:
            self._give(self._rest())
        missing = self._missing(data)
        self._begin(data)
        taken = self._feed(data, frames_most, missing)
        if taken < len(data):
            self._data = data[:taken]
        if self.watching:
            self._watch()
        if self.transactional:
            self._watch_states()
        return taken

    def _begin(self, data: bytes, tail: bytes | None = None) -> None:
        """Begin a push of these bytes. `tail`: what the first frame had before; None: the rest of the push before."""
        self._tail = self._rest() if tail is None else tail
        self._data = data
        self._unread = None
        self._acquiring = None
        self._has_symbolic = None
        self.parts = None

    def _feed(self, data: bytes, frames_most: int | None, missing: int) -> int:
        """Feed bytes to proton, and return how many were taken. `missing`: bytes of the frame that proton has the
        beginning of."""
        transport, size, taken = self._transport, len(data), 0
        portion = size if frames_most is None else PIECE_STEP_BYTES
        until = sys.maxsize if frames_most is None else lib.pn_transport_get_frames_input(transport) + frames_most
        start: Any = data
        while taken < size:
            offered = min(portion, size - taken)
            fills = offered >= self._size - self._inside
            if fills:
                whole = self._whole(data, taken, missing)
                if whole:
                    offered, fills = whole, False
            frames = lib.pn_transport_get_frames_input(transport) if fills else 0
            step = lib.pn_transport_push(transport, start, offered)
            room = lib.pn_transport_capacity(transport) if step > 0 else -1
            if room < 0:
                return size  # proton has closed its input; its events say why
            taken += step
            if fills and frames == lib.pn_transport_get_frames_input(transport):
                self._inside = self._size  # nothing was consumed: proton has just enlarged its buffer
                self._size += room
            else:
                self._inside = self._size - room
            self._pending = self._inside
            if taken < size:
                if lib.pn_transport_get_frames_input(transport) >= until:
                    break
                start = ffi.from_buffer(data) + taken
        return taken

    def push_parted(self, data: bytes) -> int:
        """Hand the transfers that `data` begins with to proton, without their payloads, which are then in `parts`, if
        they are large on average. A frame that they end within is kept back. Returns how many bytes were taken; 0: they
        are for `push`."""
        if not self._pending:
            return self._part(data, PartedFrames(), 0) if begins_large(data) else 0
        if self._inside:
            missing = self._missing(data)
            if missing + 4 > len(data) or not self._is_large(data, missing):
                return 0
            return self.push(data[:missing])
        held = self._rest()
        size = int.from_bytes((held + data[:4])[:4], "big")
        if len(held) + len(data) < 4 or len(held) + len(data) < size <= self._frame_limit():
            self._begin(data)
            self._pending += len(data)
            lib.pn_transport_push(self._transport, _EMPTY_FRAME, 8)  # proton counts bytes: the peer is not silent
            return len(data)
        run = PartedFrames()
        missing, limit = max(0, size - len(held)), self._frame_limit()
        if not 8 <= size <= limit or not run.take(held + data[:missing], 0, limit, self._number):
            return self.push(data[:missing] if missing else data)
        return self._part(data, run, missing)

    def _is_large(self, data: bytes, at: int) -> bool:
        return LARGE_BYTES <= int.from_bytes(data[at : at + 4], "big") <= self._frame_limit()

    def _frame_limit(self) -> int:
        if not self._max_frame:
            self._max_frame = lib.pn_transport_get_max_frame(self._transport)
        return self._max_frame

    def _part(self, data: bytes, run: PartedFrames, at: int) -> int:
        """Part the run from `at` on, where a frame begins; it may have frames already."""
        end = run.take(data, at, self._frame_limit(), (self._number + len(run.parts)) % NUMBERS)
        taken = len(data) if run.unfinished else end
        if not taken:
            return 0
        said, held = b"".join(run.said), data[end:taken]
        self._begin(said + held, b"")
        self.parts = run.parts
        self._number = (self._number + len(run.parts)) % NUMBERS
        if said:
            self._feed(said, None, 0)
        self._pending = len(held)
        if self.watching:
            self._watch()
        if self.transactional:
            self._watch_states()
        return taken

    def _give(self, held: bytes) -> None:
        """The beginning of a frame that is not parted."""
        self._suspect = self.watching and _STATED in held
        self._feed(held, None, len(held))

    def _whole(self, data: bytes, at: int, missing: int) -> int:
        """Bytes up to the end of the present frame, if it is large, ends in the data and fits into proton's buffer: of
        what is there after a frame, proton moves every byte to the front. 0: there is nothing to gain."""
        left = int.from_bytes(data[at : at + 4], "big") if not self._inside else 0 if at else missing
        is_large = LARGE_BYTES <= left + self._inside < self._size
        return left if is_large and left <= len(data) - at else 0

    def push_some(self, data: bytes) -> int:
        """Push a bounded piece of the data. Returns how many bytes were taken; the next call begins with the rest."""
        parted = self.push_parted(data)
        if parted:
            self.crowded = False
            self._searched = max(0, self._searched - parted)
            return parted
        end, few = self._cut(data) if len(data) > SMALL_BYTES else (len(data), True)
        self.crowded = end < len(data)
        taken = self.push(data if end == len(data) else data[:end], None if few else PIECE_FRAMES)
        self._searched = max(0, self._searched - taken)
        return taken

    def _cut(self, data: bytes) -> tuple[int, bool]:
        """Choose how many of the bytes to push at once: up to where more than PIECE_RARE_FRAMES frames would be that
        are neither transfers nor dispositions, or the dispositions would name too many deliveries. Also return whether
        it has few frames. A cut may lie within a frame."""
        size = len(data)
        if self._searched >= size:
            return size, False
        pos, rare, named = self._missing(data), 0, 0
        for _ in range(_HOPS):
            if pos + 12 > size:
                return size, True
            length, body = int.from_bytes(data[pos : pos + 4], "big"), pos + 4 * data[pos + 4]
            if length < 8:
                return size, True  # proton refuses it
            kind = data[body + 1 : body + 3]
            if length > 8 and kind not in _USUAL:
                rare += 1
                if rare > PIECE_RARE_FRAMES:
                    return pos, True
            elif kind == DISPOSITION:
                more = deliveries_named(data, body + 3)
                if named and named + more > PIECE_DELIVERIES:
                    return pos, True
                named += more
            pos += length
        pos = max(pos, self._searched)
        for find in (_find_rare, _find_rare_long):
            left = PIECE_RARE_FRAMES - rare
            for match in find(data, pos, size):
                left -= 1
                if left < 0:
                    size = match.start()
                    break
        for match in _find_disposition(data, pos, size):
            more = deliveries_named(data, match.end())
            if named and named + more > PIECE_DELIVERIES:
                size = match.start()
                break
            named += more
        self._searched = size
        return size, False

    def until_frame(self, data: bytes) -> int | None:
        """Bytes of the data before a frame begins. None: that cannot be told yet."""
        if 0 < self._pending < 4 and self._pending + len(data) < 4:
            return None
        return self._missing(data)

    def _missing(self, data: bytes) -> int:
        """Bytes that the unfinished frame at the end of the last push lacks."""
        pending = self._pending
        if not pending:
            return 0
        last = self._data
        head = last[len(last) - pending :][:4] if pending <= len(last) else self._rest()[:4]
        return max(0, int.from_bytes((head + data[:4])[:4], "big") - pending)

    def _watch(self) -> None:
        """Notes the transfers of the last push that state the format of batches."""
        tail, data = self._tail, self._data
        joint = tail[-4:] + data[:4]
        found = self._suspect or _find_stated(data) is not None or _STATED in joint
        self._suspect = found and _STATED in self._rest()
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
        self.parts = None
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

    def _rest(self) -> bytes:
        """The bytes of the unfinished frame at the end of what was pushed last."""
        pending = self._pending
        if not pending:
            return b""
        data = self._data
        return data[len(data) - pending :] if pending <= len(data) else (self._tail + data)[-pending:]

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
