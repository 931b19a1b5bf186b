"""Bytes of a connection on their way into proton: cut into pieces of work, and parted from large payloads.

Input is cut here and not by the owner of the socket, since only frames tell how much work bytes are.

The hot path pays next to nothing: frames are walked only when an event asks for one. What is kept up after each
push is where the stream's current frame began, worked out from how much room proton's input buffer has left.
That buffer starts at INPUT_BUFFER_BYTES and grows (doubling, up to max-frame-size) only when it is full, which
is the one case where room alone is ambiguous and the count of frames decides. Rejected alternative: walking
every frame header in Python, a tenth of the cost of a small transfer.

Of large transfers proton gets the performatives, and the payloads go past it. It would copy a payload into its input
buffer, from there to the delivery, and from there to the owner. Of a hundred bytes nobody notices; of events of 16 KiB
it was a third of what a connection costs. The rules:

- parted is a run of frames that are large on average, so that looking at each costs less than copying it;
- in place of each payload proton has four bytes, its number. So it is proton, and proton alone, that says which payload
  belongs to which message, whether there is more of it, whether it was taken back, or is no message at all;
- a run is given to proton at once, and its messages are taken before the next bytes are looked at. So whatever proton
  has of a message is numbers within a run, and bytes outside of it;
- a run ends before any frame that is no transfer, flow or disposition of few deliveries: those others are rationed.
"""

from __future__ import annotations

import re
import sys
from struct import Struct
from typing import Any

from cproton import ffi, lib

from holdfast.amqp.errors import ILLEGAL_STATE, Error
from holdfast.amqp.framing.disposition_range import DISPOSITION, deliveries_named
from holdfast.amqp.framing.early_handles import EarlyHandles
from holdfast.amqp.framing.frame_scanner import FrameScanner
from holdfast.amqp.framing.performatives import DETACH_FRAME, DISPOSITION_FRAME, TRANSFER_FRAME, Place, list_size

FIRST_BYTES = 1024
"""A piece of what comes before the first frame; after it there may be anything."""

INPUT_BUFFER_BYTES = 8 * 1024
"""PN_TRANSPORT_INITIAL_BUFFER_SIZE of the pinned proton; `ProtonInput` refuses to work
with a proton where it differs."""

_USUAL = (bytes((0x53, TRANSFER_FRAME)), bytes((0x53, DISPOSITION_FRAME)))

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
_EMPTY_FRAME = b"\x00\x00\x00\x08\x02\x00\x00\x00"


def payload_at(data: bytes, at: int, end: int) -> int:
    """Find where the payload begins of the transfer whose body is at `at`, in a frame that ends at `end`; 0: it is no
    transfer, or written in a way that is left to proton."""
    begin = at + 3
    size = list_size(data[begin : begin + 9], end - begin) if data[at:begin] == _TRANSFER else 0
    return begin + size if size else 0


def _is_narrow(data: bytes, body: int) -> bool:
    """Tell whether it is a disposition that names few deliveries."""
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


class ProtonInput:
    """Feeds proton's transport, and tells the scanner what it was given."""

    __slots__ = (
        "_data",
        "_inside",
        "_max_frame",
        "_number",
        "_pending",
        "_scanner",
        "_searched",
        "_size",
        "_tail",
        "_transport",
        "crowded",
        "parts",
    )

    def __init__(self, transport: Any, scanner: FrameScanner) -> None:
        self._transport = transport
        self._scanner = scanner
        self._size = INPUT_BUFFER_BYTES
        self._max_frame = 0  # known once there are frames
        self._pending = 0  # bytes of the unfinished frame at the end of what was pushed last ...
        self._inside = 0  # ... which proton has, or has not: they are pushed again, with the rest of it
        self._searched = 0  # bytes at the beginning of what comes next in which there are few rare frames
        self._tail = b""
        self._data = b""
        self.crowded = False
        """Frames that are neither transfers nor dispositions have ended the last piece."""
        self._number = 0  # of the next payload that proton is not given
        self.parts: dict[int, bytes] | None = None
        """Payloads of the last push, if it was a run, in whose place proton has numbers."""
        room = lib.pn_transport_capacity(transport)
        assert room == INPUT_BUFFER_BYTES, f"proton's input buffer is {room} bytes, not the pinned version's"

    def push(self, data: bytes, frames_most: int | None = None) -> int:
        """Hand bytes of the AMQP layer (after the protocol header) to proton, and return how many were taken.
        `frames_most`: end when about so many frames were taken."""
        if self._pending > self._inside:
            self._give(self._rest())
        missing = self._missing(data)
        self._begin(data)
        taken = self._feed(data, frames_most, missing)
        if taken < len(data):
            self._data = data[:taken]
        self._scanner.pushed(self._tail, self._data, self._pending)
        return taken

    def _begin(self, data: bytes, tail: bytes | None = None) -> None:
        """Begin a push of these bytes. `tail`: what the first frame had before; None: the rest of the push before."""
        self._tail = self._rest() if tail is None else tail
        self._data = data
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
            self._scanner.pushed(b"", _EMPTY_FRAME, 0)
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
        self._begin(held, b"")
        self.parts = run.parts
        self._number = (self._number + len(run.parts)) % NUMBERS
        if said:
            self._feed(said, None, 0)
        self._pending = len(held)
        self._scanner.pushed(b"", said, 0)
        return taken

    def _give(self, held: bytes) -> None:
        """Give proton the beginning of a frame that was kept back, and is not parted after all."""
        self._scanner.kept_back(held)
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

    def _rest(self) -> bytes:
        """The bytes of the unfinished frame at the end of what was pushed last."""
        pending = self._pending
        if not pending:
            return b""
        data = self._data
        return data[len(data) - pending :] if pending <= len(data) else (self._tail + data)[-pending:]

    def clear(self) -> None:
        """Forget everything: no more input comes."""
        self.parts = None
        self._data = self._tail = b""
        self._scanner.clear()


class FrameInput:
    """The input of an engine. TransferPump takes messages out of proton, EventPump (event_pump.py) all else."""

    closed: bool
    _early: EarlyHandles
    _input: ProtonInput
    _scanner: FrameScanner
    _has_begun: bool  # what comes before the first frame has come

    def _pump(self) -> None:
        """Take out of proton what has come of its input: implemented by EventPump."""
        raise NotImplementedError

    def _fail(self, error: Error, *, corrupt: bool = False) -> None:
        """End the connection: implemented by EventPump."""
        raise NotImplementedError

    def _is_parting(self, place: Place) -> bool:
        """Tell whether the link of a handle was detached here and its peer has not answered: implemented by
        EventPump."""
        raise NotImplementedError

    def _receive_prelude(self, data: bytes) -> bytes:
        """Take what comes before the first frame, and return the rest: implemented by Engine."""
        raise NotImplementedError

    def receive(self, data: bytes) -> None:
        """Take bytes from the peer, any number of them, cut anywhere."""
        if self.closed or not data:
            return
        if not self._has_begun:
            data = self._receive_prelude(data)
        self._receive_all(data)

    def _receive_all(self, data: bytes) -> None:
        while data and not self.closed:
            taken = self._receive_amqp(data, False)
            data = data[taken:] if taken < len(data) else b""

    def receive_some(self, data: bytes) -> int:
        """Take as many of the bytes as are a bounded piece of work (a server's hundred peers share a thread), and
        return how many. Handle the events, then go on with the rest."""
        if self.closed:
            return len(data)
        if not self._has_begun:
            self.receive(data[:FIRST_BYTES])
            return min(len(data), FIRST_BYTES)
        return self._receive_amqp(data, True)

    @property
    def crowded(self) -> bool:
        """The piece that was taken last ended for its attaches and the like: there are more of them to come."""
        return self._input.crowded

    def _receive_amqp(self, data: bytes, some: bool) -> int:
        """Receive and return how many bytes were taken: a bounded piece if `some`, else as many as go to proton in one
        way."""
        data = data if isinstance(data, bytes) else bytes(data)
        return (self._receive_watched if self._early.watches else self._receive_frames)(data, some)

    def _receive_watched(self, data: bytes, some: bool) -> int:
        """Receive while the peer owes a detach (`early_handles.py`)."""
        early = self._early
        stream, held = early.held + data, len(early.held)
        early.held = b""
        at = self._input.until_frame(stream)
        found = None if at is None else early.find(stream, at, self._is_parting)
        if found is None or found.start > 0:
            stop, taken = len(stream) if found is None else found.start, 0
            while taken <= held and taken < stop and not self.closed:
                taken += self._receive_frames(stream[taken:stop], some)
            return len(data) if self.closed else taken - held
        if not found.code:
            early.held = stream
        elif found.code == DETACH_FRAME:
            early.paid(found.place)
        else:
            self._input.push(early.detached_early(found.place))
            self._pump()
            self._receive_frames(stream[: found.end], False)
        return found.end - held

    def _receive_frames(self, data: bytes, some: bool) -> int:
        frames = self._input
        taken = frames.push_some(data) if some else frames.push_parted(data) or frames.push(data)
        self._pump()
        if not self.closed and self._scanner.skipped():
            self._fail(Error(ILLEGAL_STATE, "a begin or attach that answers nothing"), corrupt=True)
        return taken
