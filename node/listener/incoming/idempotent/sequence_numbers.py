"""The numbers that an idempotent producer puts on its messages, read off without decoding them.

Problem: the numbers are three entries of the message annotations, a hundred bytes on each message. Decoding them takes
10 us, the node has 4 for a message. But the annotations of one producer are the same bytes in each message, save for
the sequence number, and the sequence numbers follow each other. So what a run of messages must begin with can be
written down and compared in one piece.

Rules never broken:
 - what the fast way accepts is what decoding gives: a template is made from a message that was decoded, and matches
   messages that begin with the same bytes, but for the number, up to the descriptor of the section that follows the
   annotations;
 - the three annotations are between the producer and the node. They are not stored with the event: the batch head has
   them, a consumer has no use for them, and they would be a tenth of a log of small events. Other annotations stay,
   byte for byte;
 - the digest of an event is the CRC-32C of everything behind its message annotations: properties, application
   properties, body and footer, as they came. It leaves out what may differ when the event is sent again: header
   (delivery-count) and annotations, which belong to the hop.

Rejected: a regular expression, or unpacking each head on its own (0.5 us and more for each message).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

from crc32c import crc32c

from holdfast import protocol
from holdfast.amqp import (
    AnnotationMap,
    MalformedMessage,
    annotations_without,
    decode_value,
    ingest,
    message_annotations,
)
from holdfast.amqp.errors import DECODE_ERROR, Error
from holdfast.amqp.messages.well_formed import all_data, check_message
from holdfast.records.record_batch import DIGEST_BYTES, SEQUENCES
from node.listener import errors
from node.listener.errors import Refused
from node.listener.incoming.idempotent.producer_terms import whole_number

TEMPLATES = 4
"""Kept for a link: numbers in one byte and in four, each with two kinds of what follows. More kinds are read slowly."""

TEMPLATE_BYTES = 512
"""Of the longest that is learned. The three annotations take a hundred. It is held as long as the link is, and is
written down once for each message of a run: messages that begin with more are read one by one."""

_BODY = frozenset(bytes((0, 0x53, code)) for code in range(0x73, 0x78))
"""How the part of a message begins that is stored for certain. There must be one."""

_NEXT_BYTES = 3  # the descriptor of that section: part of a template
_WIDTHS = {0x71: 4, 0x54: 1}  # constructors of an AMQP int: bytes that follow
_HIGHEST = {4: SEQUENCES - 1, 1: 127}
_NAMES = frozenset(protocol.PRODUCER_NAMES)


class Run(NamedTuple):
    """Messages [start, stop) of those that were read: their numbers follow each other, from `first` on."""

    start: int
    stop: int
    records: Sequence[bytes]
    first: int
    digests: bytes

    def before(self, position: int) -> list[Run]:
        """What is left of it in front of one of its messages."""
        if not position:
            return []
        digests = self.digests[: position * DIGEST_BYTES]
        return [Run(self.start, self.start + position, self.records[:position], self.first, digests)]


@dataclass(frozen=True, slots=True)
class Wrong:
    """This message cannot be taken, and those behind it were not looked at."""

    position: int
    error: Error


def _unreadable(position: int, problem: MalformedMessage) -> Wrong:
    text = f"the message cannot be read: {problem}; correct it, do not resend it"
    return Wrong(position, Error(DECODE_ERROR, text))


class _Event(NamedTuple):
    number: int
    record: bytes
    digest: int


class _Template:
    """How messages of one producer begin: `head`, the number, `tail`; what stands before the body in the store."""

    __slots__ = ("body", "front", "head", "highest", "kept", "length", "tail", "unit", "width")

    def __init__(self, head: bytes, width: int, tail: bytes, kept: bytes) -> None:
        self.head, self.width, self.tail, self.kept = head, width, tail, kept
        self.highest = _HIGHEST[width]
        self.length = len(head) + width + len(tail)
        self.unit = head + bytes(width) + tail
        self.front = itemgetter(slice(None, self.length))
        self.body = itemgetter(slice(self.length - _NEXT_BYTES, None))

    def number_of(self, payload: bytes) -> int | None:
        at = len(self.head)
        after = at + self.width
        if not payload.startswith(self.head) or payload[after : self.length] != self.tail:
            return None
        number = int.from_bytes(payload[at:after], "big")
        return number if number <= self.highest else None

    def begins(self, payloads: Sequence[bytes], first: int) -> bool:
        """Whether the messages begin as they must if their numbers follow each other from `first` on."""
        count, length, at = len(payloads), self.length, len(self.head)
        if first + count - 1 > self.highest:
            return False
        if length * count > sum(map(len, payloads)):  # some are shorter: do not write down more than has come
            return False
        expected = bytearray(self.unit * count)
        numbers = struct.pack(f">{count}I", *range(first, first + count))
        for column in range(4 - self.width, 4):
            expected[at::length] = numbers[column::4]
            at += 1
        return b"".join(map(self.front, payloads)) == expected

    def records(self, payloads: Sequence[bytes]) -> tuple[list[bytes], bytes]:
        """What to store of each, and the digests."""
        bodies = list(map(self.body, payloads))
        digests = struct.pack(f">{len(bodies)}I", *map(crc32c, bodies))
        if self.kept:
            bodies = [self.kept + body for body in bodies]
        return bodies, digests


class SequenceNumberReader:
    """Of one link, whose producer was granted an id and an epoch."""

    def __init__(self, producer_id: int, epoch: int, partition: str) -> None:
        self._producer_id = producer_id
        self._epoch = epoch
        self._partition = partition
        self._templates: list[_Template] = []  # the one used last is first

    def read(self, payloads: Sequence[bytes]) -> tuple[list[Run], Wrong | None]:
        """The messages in runs. All of them, or those before the wrong one."""
        runs, wrong = self._read(payloads)
        for place, run in enumerate(runs):
            if all_data(run.records):
                continue
            for position, record in enumerate(run.records):
                try:
                    check_message(record)
                except MalformedMessage as problem:
                    return [*runs[:place], *run.before(position)], _unreadable(run.start + position, problem)
        return runs, wrong

    def _read(self, payloads: Sequence[bytes]) -> tuple[list[Run], Wrong | None]:
        for template in self._templates:
            first = template.number_of(payloads[0])
            if first is not None:
                self._prefer(template)
                if template.begins(payloads, first):
                    records, digests = template.records(payloads)
                    return [Run(0, len(payloads), records, first, digests)], None
                break
        return self._read_each(payloads)

    def check_front(self, front: bytes, first: int) -> None:
        """What the annotations of a batch say of it, whose messages begin with this number. Raises MalformedMessage or
        Refused."""
        stored, target, _ = ingest(front)
        if target is not None and target != self._partition:
            raise Refused(errors.wrong_partition(target, self._partition))
        found = message_annotations(stored)
        if found is None or not any(isinstance(entry.key, str) and entry.key in _NAMES for entry in found.entries):
            return
        if (stated := self._check(stored, found)) != first:
            text = f"the batch says that it begins with number {stated}, its first message has {first}"
            raise Refused(errors.numbers_wrong(text))

    def _prefer(self, template: _Template) -> None:
        if self._templates[0] is not template:
            self._templates.remove(template)
            self._templates.insert(0, template)

    # ------------------------------------------------------------ one by one

    def _read_each(self, payloads: Sequence[bytes]) -> tuple[list[Run], Wrong | None]:
        events: list[_Event] = []
        wrong: Wrong | None = None
        for position, payload in enumerate(payloads):
            try:
                events.append(self._read_one(payload))
            except MalformedMessage as problem:
                wrong = _unreadable(position, problem)
                break
            except Refused as refusal:
                wrong = Wrong(position, refusal.error)
                break
        return self._runs(events), wrong

    def _runs(self, events: list[_Event]) -> list[Run]:
        runs: list[Run] = []
        start = 0
        for stop in range(1, len(events) + 1):
            if stop < len(events) and events[stop].number == (events[stop - 1].number + 1) % SEQUENCES:
                continue
            part = events[start:stop]
            digests = struct.pack(f">{len(part)}I", *(event.digest for event in part))
            runs.append(Run(start, stop, [event.record for event in part], part[0].number, digests))
            start = stop
        return runs

    def _read_one(self, payload: bytes) -> _Event:
        for template in self._templates:
            number = template.number_of(payload)
            if number is not None:
                (record,), digest = template.records([payload])
                return _Event(number, record, int.from_bytes(digest, "big"))
        return self._decode(payload)

    def _decode(self, payload: bytes) -> _Event:
        stored, target, _ = ingest(payload)
        if target is not None and target != self._partition:
            raise Refused(errors.wrong_partition(target, self._partition))
        found = message_annotations(stored)
        number = self._check(stored, found)
        assert found is not None
        if stored[found.end : found.end + _NEXT_BYTES] not in _BODY:
            raise MalformedMessage("it has no body")
        kept = stored[: found.start] + annotations_without(stored, found, _NAMES)
        body = stored[found.end :]
        if stored == payload:
            self._learn(stored, found, kept)
        return _Event(number, kept + body, crc32c(body))

    def _check(self, stored: bytes, found: AnnotationMap | None) -> int:
        """The sequence number, if everything is as it was granted."""
        ours = [
            entry
            for entry in (found.entries if found is not None else ())
            if isinstance(entry.key, str) and entry.key in _NAMES
        ]
        values = {entry.key: decode_value(stored, entry.value, entry.end)[0] for entry in ours}
        if len(values) < len(ours):
            raise Refused(errors.numbers_wrong("a message of an idempotent producer states a number twice"))
        missing = ", ".join(name for name in protocol.PRODUCER_NAMES if values.get(name) is None)
        if missing:
            raise Refused(errors.numbers_wrong(f"a message of an idempotent producer lacks {missing}"))
        read = {name: whole_number(name, value) for name, value in values.items()}
        self.check_granted(read[protocol.PRODUCER_ID], read[protocol.PRODUCER_EPOCH])
        return read[protocol.PRODUCER_SEQUENCE]

    def check_granted(self, producer_id: int, epoch: int) -> None:
        """Raises Refused."""
        for name, said, granted in (
            (protocol.PRODUCER_ID, producer_id, self._producer_id),
            (protocol.PRODUCER_EPOCH, epoch, self._epoch),
        ):
            if said != granted:
                raise Refused(errors.numbers_wrong(f"{name} is {said}, but the link was granted {granted}"))

    def _learn(self, stored: bytes, found: AnnotationMap, kept: bytes) -> None:
        at = next(entry.value for entry in found.entries if entry.key == protocol.PRODUCER_SEQUENCE)
        width = _WIDTHS.get(stored[at])
        if width is None:
            return
        if found.end + _NEXT_BYTES > TEMPLATE_BYTES:
            return
        start = at + 1
        tail = stored[start + width : found.end + _NEXT_BYTES]
        self._templates.insert(0, _Template(stored[:start], width, tail, kept))
        del self._templates[TEMPLATES:]
