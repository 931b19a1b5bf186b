"""Performatives in a stream of frames, read by our own bounded codec.

The rule: what a frame makes of itself is bounded before any of it is made, and what is kept of it longer than a look is
bounded by itself. What is malformed is proton's to refuse, which reads the same frames (`frame_scanner.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Any, NamedTuple

from holdfast.amqp.encoding.codec import Described, decode_value, uint
from holdfast.amqp.encoding.counting import count_values
from holdfast.amqp.errors import MalformedMessage

OPEN_FRAME, BEGIN_FRAME, ATTACH_FRAME = 0x10, 0x11, 0x12
FLOW_FRAME, TRANSFER_FRAME, DISPOSITION_FRAME, DETACH_FRAME = 0x13, 0x14, 0x15, 0x16
_WANTED = (OPEN_FRAME, BEGIN_FRAME, ATTACH_FRAME)

MAX_CONTROL_FRAME_BYTES = 16 * 1024
"""Opens, begins and attaches are a few hundred bytes; a filter may add some KiB. As Python objects they take up to ten
times their size for as long as the link lives."""

MAX_CONTROL_VALUES = 1024
"""Limit of the values in an open, begin or attach. They have some dozens, a filter's expression being one. Counted
before any of them becomes an object."""

MAX_STATE_VALUES = 128
"""Limit of the values in a transfer, disposition or flow that is looked into. They have some twenty, with the fields of
an error. There may be hundreds of these in a read."""

BATCH_FORMAT = 0x80013700
"""The message-format of a transfer whose data sections are messages themselves."""

SYMBOLIC_STATE = b"amqp:transactional-state:list"
ACQUISITION = "txn-id"

NAMELESS: list[Any] = []
"""Fields of a state that names no transaction."""
NAME_BYTES = 64
"""Bytes of a transaction's name that are looked at: a name that is longer than allowed still is."""

Place = tuple[int | None, int | None]
"""The channel and handle of a link, as the peer numbers them."""

_FRAME = Struct(">IBBH")
_ULONG = Struct(">Q")


class ScannedFrame(NamedTuple):
    """A performative; fields is None if it is malformed or too large. `values`: how many it has."""

    code: int
    channel: int
    fields: list[Any] | None
    size: int = 0
    values: int = 0

    def field(self, index: int) -> Any:
        """A field, None if it is absent."""
        return self.fields[index] if self.fields is not None and index < len(self.fields) else None


def frames(stream: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield (code, channel, where the body begins, where it ends) of each performative in a stream that begins with a
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


def walk(stream: bytes) -> Iterator[ScannedFrame]:
    """The wanted frames."""
    for code, channel, body, after in frames(stream):
        if code in _WANTED:
            said = stream[body:after]
            values = count_values(said, MAX_CONTROL_VALUES)
            fields = None if values > MAX_CONTROL_VALUES else _fields(said)
            yield ScannedFrame(code, channel, fields, len(said), values)


def batches(stream: bytes) -> Iterator[tuple[Place, bytes]]:
    """Yield (place, tag) of each transfer that states the format of batches. Proton refuses what is malformed."""
    for code, channel, body, after in frames(stream):
        if code != TRANSFER_FRAME:
            continue
        begin = _list_end(stream, body + (3 if stream[body + 1] == 0x53 else 10), after) or after
        if count_values(stream[body:begin], MAX_STATE_VALUES) > MAX_STATE_VALUES:
            continue
        try:
            value, _ = decode_value(stream, body, begin)
        except MalformedMessage:
            continue
        fields = value.value if isinstance(value, Described) and isinstance(value.value, list) else []
        match fields[:4]:
            case [handle, _, bytes(tag), int(stated)] if stated == BATCH_FORMAT:
                yield (channel, _handle(handle)), tag


def states(stream: bytes) -> Iterator[tuple[Place, bytes, list[Any] | None]]:
    """Yield (place, tag, fields) of each message that begins; None for those without a transactional state that proton
    drops. What is malformed is proton's to refuse; where it takes a wrong type for nothing, so it is here."""
    for code, channel, body, after in frames(stream):
        if code != TRANSFER_FRAME:
            continue
        begin = body + (3 if stream[body + 1] == 0x53 else 10)
        end = _list_end(stream, begin, after)
        try:
            is_crowded = count_values(stream[begin:end], MAX_STATE_VALUES) > MAX_STATE_VALUES
            if is_crowded:
                fields = _first_fields(stream, begin, end)
            else:
                fields = decode_value(stream, begin, end)[0] if end else []
            state = NAMELESS if is_crowded else _dropped(fields[7:8])
        except MalformedMessage:
            continue
        handle, _, tag = (*fields[:3], None, None, None)[:3]
        if isinstance(tag, bytes) or state is not None:
            yield (channel, _handle(handle)), tag if isinstance(tag, bytes) else b"", state


def list_size(beginning: bytes, room: int) -> int:
    """Size of the list that begins so; 0: none does, or it is larger than `room`. Nine bytes tell it, or all that there
    are."""
    code = beginning[0] if room >= 3 else 0
    if code == 0xC0:
        size = 2 + beginning[1]
    elif code == 0xD0 and room >= 9:
        size = 5 + int.from_bytes(beginning[1:5], "big")
    else:
        return 0
    return size if size <= room else 0


def _list_end(stream: bytes, at: int, end: int) -> int:
    """Find where the list ends that begins at `at`; 0: none does, or it goes on after `end`."""
    size = list_size(stream[at : at + 9], end - at)
    return at + size if size else 0


def _handle(said: Any) -> int:
    """Read a handle as proton does, which takes any value but a uint for 0."""
    return int(said) if isinstance(said, uint) else 0


def _first_fields(stream: bytes, at: int, end: int) -> list[Any]:
    """The handle, the number and the tag of a transfer whose list begins there: as far as they hold no other values."""
    found: list[Any] = []
    at += 3 if stream[at] == 0xC0 else 9
    while len(found) < 3 and at < end and stream[at] >> 4 < 0xC and stream[at]:
        value, at = decode_value(stream, at, end)
        found.append(value)
    return found


def _dropped(field: list[Any]) -> list[Any] | None:
    """Return the fields of a transactional state under its symbol, as far as they are needed: the transaction's id.
    None: `field` is absent or another state. They may be kept until a message ends."""
    state = field[0] if field else None
    if not isinstance(state, Described) or state.descriptor != SYMBOLIC_STATE.decode():
        return None
    first = state.value[0] if isinstance(state.value, list) and state.value else None
    return [first[:NAME_BYTES]] if isinstance(first, bytes) else NAMELESS


def names_transaction(disposition: bytes) -> bool:
    """True if the disposition has a transactional state that proton drops. One too large to be looked into may have."""
    fields = _few_fields(disposition)
    return SYMBOLIC_STATE in disposition if fields is None else _dropped(fields[4:5]) is not None


def acquisitions(stream: bytes) -> Iterator[Place]:
    """The places of flows that name a transaction."""
    for code, channel, body, after in frames(stream):
        if code != FLOW_FRAME:
            continue
        fields = _few_fields(stream[body:after]) or []
        match fields[4:5] + fields[10:11]:
            case [int(handle), dict(properties)] if ACQUISITION in properties:
                yield channel, int(handle)


def first_fields(body: bytes, count: int) -> list[Any]:
    """Up to `count` fields of a performative, as far as they hold no other values."""
    begin = 3 if body[1] == 0x53 else 10
    found: list[Any] = []
    if body[begin : begin + 1] not in (b"\xc0", b"\xd0"):
        return found
    at, end = begin + (3 if body[begin] == 0xC0 else 9), len(body)
    try:
        while len(found) < count and at < end and body[at] >> 4 < 0xC and body[at]:
            value, at = decode_value(body, at, end)
            found.append(value)
    except MalformedMessage:
        return found
    return found


def _few_fields(body: bytes) -> list[Any] | None:
    """Fields of a performative that may have few values only. None if it has more, or is malformed or too large."""
    return None if count_values(body, MAX_STATE_VALUES) > MAX_STATE_VALUES else _fields(body)


def _fields(body: bytes) -> list[Any] | None:
    """Fields of a performative whose values are counted. None if it is malformed or too large."""
    if len(body) > MAX_CONTROL_FRAME_BYTES:
        return None
    try:
        value, _ = decode_value(body)
    except MalformedMessage:
        return None
    return value.value if isinstance(value, Described) and isinstance(value.value, list) else None
