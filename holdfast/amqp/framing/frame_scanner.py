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

A transfer may state a message-format; the only one in use besides 0 is that of Event Hubs' batches. While `watching`,
what is pushed is searched for the five bytes that state it (half a microsecond for each KiB), and only where they turn
up are the transfers walked: `batches` then has the tags of those that state it, by channel and handle.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from struct import Struct
from typing import Any, NamedTuple

from cproton import ffi, lib

from holdfast.amqp.encoding.codec import Described, decode_value
from holdfast.amqp.errors import MalformedMessage

INPUT_BUFFER_BYTES = 8 * 1024
"""PN_TRANSPORT_INITIAL_BUFFER_SIZE of the pinned proton; `FrameScanner` refuses to work
with a proton where it differs."""

OPEN_FRAME, BEGIN_FRAME, ATTACH_FRAME, TRANSFER_FRAME = 0x10, 0x11, 0x12, 0x14
_WANTED = (OPEN_FRAME, BEGIN_FRAME, ATTACH_FRAME)

MAX_CONTROL_FRAME_BYTES = 16 * 1024
"""Opens, begins and attaches are a few hundred bytes; a filter may add some KiB. As Python objects they take up to ten
times their size for as long as the link lives."""

BATCH_FORMAT = 0x80013700
"""The message-format of a transfer whose data sections are messages themselves."""
_STATED = b"\x70" + BATCH_FORMAT.to_bytes(4, "big")  # as an AMQP uint, which has no shorter form for it
_find_stated = re.compile(re.escape(_STATED)).search

_FRAME = Struct(">IBBH")
_ULONG = Struct(">Q")


class ScannedFrame(NamedTuple):
    """A performative; fields is None if it is malformed or too large."""

    code: int
    channel: int
    fields: list[Any] | None

    def field(self, index: int) -> Any:
        """A field, None if it is absent."""
        return self.fields[index] if self.fields is not None and index < len(self.fields) else None


class FrameScanner:
    """Feeds proton's transport and can show the frames of the last push."""

    __slots__ = ("_data", "_pending", "_size", "_suspect", "_tail", "_transport", "_unread", "batches", "watching")

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._size = INPUT_BUFFER_BYTES
        self._pending = 0
        self._tail = b""
        self._data = b""
        self._unread: Iterator[ScannedFrame] | None = None
        self._suspect = False  # the unfinished frame at the end of the last push may state the format
        self.watching = False
        self.batches: dict[tuple[int | None, int | None], set[bytes]] = {}
        room = lib.pn_transport_capacity(transport)
        assert room == INPUT_BUFFER_BYTES, f"proton's input buffer is {room} bytes, not the pinned version's"

    def push(self, data: bytes) -> None:
        """Hands bytes of the AMQP layer (behind the protocol header) to proton."""
        transport, size, taken = self._transport, len(data), 0
        self._tail = self._rest()
        self._data = data
        self._unread = None
        start: Any = data
        while taken < size:
            fills = size - taken >= self._size - self._pending
            frames = lib.pn_transport_get_frames_input(transport) if fills else 0
            step = lib.pn_transport_push(transport, start, size - taken)
            room = lib.pn_transport_capacity(transport) if step > 0 else -1
            if room < 0:
                return  # proton has closed its input; its events say why
            taken += step
            if fills and frames == lib.pn_transport_get_frames_input(transport):
                self._pending = self._size  # nothing was consumed: proton has just enlarged its buffer
                self._size += room
            else:
                self._pending = self._size - room
            if taken < size:
                start = ffi.from_buffer(data) + taken
        if self.watching:
            self._watch()

    def _watch(self) -> None:
        """Notes the transfers of the last push that state the format of batches."""
        tail, data = self._tail, self._data
        joint = tail[-4:] + data[:4]
        found = self._suspect or _find_stated(data) is not None or _STATED in joint
        self._suspect = found and _STATED in self._rest()
        if found:
            for channel, handle, tag in _batches(tail + data):
                self.batches.setdefault((channel, handle), set()).add(tag)

    def _rest(self) -> bytes:
        """The bytes of the unfinished frame at the end of what was pushed last."""
        pending = self._pending
        if not pending:
            return b""
        data = self._data
        return data[len(data) - pending :] if pending <= len(data) else (self._tail + data)[-pending:]

    def skipped(self) -> bool:
        """Whether the last push, once looked at, has a begin or attach left that proton did not report."""
        return self._unread is not None and any(frame.code != OPEN_FRAME for frame in self._unread)

    def next(self, code: int) -> ScannedFrame:
        """The next open, begin or attach (as `code` says) of the last push: the one that proton reports now."""
        if self._unread is None:
            self._unread = _walk(self._tail + self._data)
        for frame in self._unread:
            if frame.code == code:
                return frame
        return ScannedFrame(code, 0, None)


def _frames(stream: bytes) -> Iterator[tuple[int, int, int, int]]:
    """(code, channel, where the body begins, where it ends) of each performative in a stream that begins with a
    frame."""
    pos, end = 0, len(stream)
    while pos + 8 <= end:
        size, offset, kind, channel = _FRAME.unpack_from(stream, pos)
        body, after = pos + 4 * offset, pos + size
        if size < 8 or after > end:
            return
        if kind == 0 and body + 3 <= after and stream[body] == 0:
            code = 0
            if stream[body + 1] == 0x53:
                code = stream[body + 2]
            elif stream[body + 1] == 0x80 and body + 10 <= after:
                code = _ULONG.unpack_from(stream, body + 2)[0]
            yield code, channel, body, after
        pos = after


def _walk(stream: bytes) -> Iterator[ScannedFrame]:
    """The wanted frames."""
    for code, channel, body, after in _frames(stream):
        if code in _WANTED:
            yield ScannedFrame(code, channel, _fields(stream[body:after]))


def _batches(stream: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(channel, handle, tag) of each transfer that states the format of batches. What is malformed is proton's to
    refuse."""
    for code, channel, body, after in _frames(stream):
        if code != TRANSFER_FRAME:
            continue
        try:
            value, _ = decode_value(stream, body, after)
        except MalformedMessage:
            continue
        fields = value.value if isinstance(value, Described) and isinstance(value.value, list) else []
        match fields[:4]:
            case [int(handle), _, bytes(tag), int(stated)] if stated == BATCH_FORMAT:
                yield channel, int(handle), tag


def _fields(body: bytes) -> list[Any] | None:
    if len(body) > MAX_CONTROL_FRAME_BYTES:
        return None
    try:
        value, _ = decode_value(body)
    except MalformedMessage:
        return None
    return value.value if isinstance(value, Described) and isinstance(value.value, list) else None
