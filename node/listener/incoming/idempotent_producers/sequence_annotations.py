"""The numbers that an idempotent producer puts on single messages: three entries of the message annotations.

Rules never broken:
 - the three annotations are between the producer and the node. They are not stored with the event: the batch head has
   them, a consumer has no use for them, and they would be a tenth of a log of small events. Other annotations stay,
   byte for byte;
 - the digest of an event is the CRC-32C of everything after its message annotations: properties, application
   properties, body and footer, as they came. It leaves out what may differ when the event is sent again: header
   (delivery-count) and annotations, which belong to the hop.

Rejected: comparing the front of each message with that of the one before, which saves decoding it. Producers that
publish much send record batches, whose head has the numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
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
from holdfast.amqp.messages.message_validation import check_message
from holdfast.records.record_batch import SEQUENCES
from node.listener import errors
from node.listener.errors import Refused
from node.listener.incoming.idempotent_producers.producer_attach import whole_number

_BODY = frozenset(bytes((0, 0x53, code)) for code in range(0x73, 0x78))
"""First bytes of the sections that are certainly stored: the body. There must be one."""

_DESCRIPTOR_BYTES = 3
_NAMES = frozenset(protocol.PRODUCER_NAMES)


class Run(NamedTuple):
    """Messages [start, stop) of those that were read: their numbers follow each other, from `first` on."""

    start: int
    stop: int
    records: Sequence[bytes]
    first: int
    digests: bytes


@dataclass(frozen=True, slots=True)
class Wrong:
    """The first message that cannot be taken; those after it were not looked at."""

    position: int
    error: Error


def _unreadable(position: int, problem: MalformedMessage) -> Wrong:
    text = f"the message cannot be read: {problem}; correct it, do not resend it"
    return Wrong(position, Error(DECODE_ERROR, text))


class _Event(NamedTuple):
    number: int
    record: bytes
    digest: int


class SequenceNumberReader:
    """Reads the sequence numbers of one link, whose producer was granted an id and an epoch."""

    def __init__(self, producer_id: int, epoch: int, partition: str) -> None:
        self._producer_id = producer_id
        self._epoch = epoch
        self._partition = partition

    def read(self, payloads: Sequence[bytes]) -> tuple[list[Run], Wrong | None]:
        """Sort the messages into runs: all of them, or those before the wrong one."""
        events: list[_Event] = []
        wrong: Wrong | None = None
        for position, payload in enumerate(payloads):
            try:
                events.append(self._event(payload))
            except MalformedMessage as problem:
                wrong = _unreadable(position, problem)
                break
            except Refused as refusal:
                wrong = Wrong(position, refusal.error)
                break
        return _runs(events), wrong

    def check_front(self, front: bytes, first: int) -> None:
        """Check the annotations of a batch whose messages begin with number `first`. Raises MalformedMessage or
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

    def _event(self, payload: bytes) -> _Event:
        stored, target, _ = ingest(payload)
        if target is not None and target != self._partition:
            raise Refused(errors.wrong_partition(target, self._partition))
        found = message_annotations(stored)
        number = self._check(stored, found)
        assert found is not None
        if stored[found.end : found.end + _DESCRIPTOR_BYTES] not in _BODY:
            raise MalformedMessage("it has no body")
        kept = stored[: found.start] + annotations_without(stored, found, _NAMES)
        body = stored[found.end :]
        record = kept + body
        check_message(record)
        return _Event(number, record, crc32c(body))

    def _check(self, stored: bytes, found: AnnotationMap | None) -> int:
        """The sequence number, if id, epoch and number are as granted."""
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
        """Raise Refused unless the producer id and epoch are those that the link was granted."""
        for name, said, granted in (
            (protocol.PRODUCER_ID, producer_id, self._producer_id),
            (protocol.PRODUCER_EPOCH, epoch, self._epoch),
        ):
            if said != granted:
                raise Refused(errors.numbers_wrong(f"{name} is {said}, but the link was granted {granted}"))


def _runs(events: list[_Event]) -> list[Run]:
    """Cut the events, in order, where a number does not follow the one before."""
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
