"""Idempotent producers as a node knows them, in a dictionary: what a client's tests need of a leader's side.

The rules are those of the wire reference (4.4), for one event at a time: the next number is stored, a known number with
the same bytes is accepted and not stored, everything else is out of order; a lower level than the one in force is
stolen. State belongs to the log, not to a node: it survives a change of leaders.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.amqp import Error, Rejected, decode_message, short
from holdfast.amqp import int32 as amqp_int

ID, EPOCH, SEQUENCE = (f"com.microsoft:producer-{name}" for name in ("id", "epoch", "sequence-number"))
NAMES = (ID, EPOCH, SEQUENCE)
STOLEN, OUT_OF_ORDER = "com.microsoft:producer-epoch-stolen", "com.microsoft:out-of-order-sequence"
SEQUENCES = 1 << 31
FIRST_ID = 7000


class TinyRefusal(Exception):
    def __init__(self, condition: str, text: str) -> None:
        super().__init__(text)
        self.error = Error(condition, text)


@dataclass
class TinyProducer:
    epoch: int
    last: int
    fresh: bool = True  # nothing of this epoch is stored: any number may come first
    stored: dict[int, bytes] = field(default_factory=dict)


class TinyProducers:
    """Of one log, by partition and id."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, int], TinyProducer] = {}
        self.duplicates = 0  # events that came again and were recognised

    def open(self, partition: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """What the node answers to an attach; `asked` holds None where it is to fill in."""
        producer_id, epoch, last = (None if asked.get(name) is None else int(asked[name]) for name in NAMES)
        producer = self.known.get((partition, producer_id)) if producer_id is not None else None
        if producer is None:
            if None not in (producer_id, epoch, last):
                raise TinyRefusal("amqp:not-allowed", f"producer {producer_id} is not known here")
            producer_id = FIRST_ID + len(self.known) if producer_id is None else producer_id
            producer = self.known[partition, producer_id] = TinyProducer(epoch or 0, last or 0)
        epoch = producer.epoch if epoch is None else epoch
        if epoch < producer.epoch:
            raise TinyRefusal(STOLEN, f"producer {producer_id} was opened with epoch {producer.epoch}")
        if epoch > producer.epoch:
            producer = self.known[partition, int(producer_id or 0)] = TinyProducer(epoch, last or 0)
        if producer.fresh and last is not None:
            producer.last = last
        answer = producer.last if last is None else last
        return {ID: producer_id, EPOCH: short(epoch), SEQUENCE: amqp_int(answer)}

    def judge(self, partition: str, payload: bytes) -> Rejected | bool:
        """True: store it; False: it is known; or why it is refused."""
        annotations = decode_message(payload).message_annotations
        assert all(name in annotations for name in NAMES), "an event without its numbers on a link with numbers"
        producer_id, epoch, number = (int(annotations[name]) for name in NAMES)
        producer = self.known.get((partition, producer_id))
        if producer is None:
            return Rejected(Error("amqp:not-allowed", f"producer {producer_id} is not known here"))
        if epoch < producer.epoch:
            return Rejected(Error(STOLEN, f"producer {producer_id} was opened with epoch {producer.epoch}"))
        if producer.stored.get(number) == payload:
            self.duplicates += 1
            return False
        if not producer.fresh and number != (producer.last + 1) % SEQUENCES:
            return Rejected(Error(OUT_OF_ORDER, f"{number} came, {(producer.last + 1) % SEQUENCES} is next"))
        producer.fresh, producer.last = False, number
        producer.stored[number] = payload
        return True
