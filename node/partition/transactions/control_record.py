"""The control record that ends a transaction in one partition: a *marker*.

It is in a control batch (attributes control and transactional, one record, no sequence number) that carries the
producer id and the epoch of the transaction. Its key says which end it is, its value which term of the coordinator's
group wrote it. The layout is Kafka's (KIP-98), and so are the numbers, as they were shipped: 0 is ABORT, 1 is COMMIT;
the text of the proposal has them the other way round, so nothing here goes by the number alone.

    key:   version i16 = 0 | type i16
    value: version i16 = 0 | coordinator epoch i32
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from holdfast.records.lengths import table_of
from holdfast.records.record_batch import NO_PRODUCER, Damaged, Numbering, RecordBatch, seal
from node.partition.raft_entry import join

_RECORD = struct.Struct(">hhhi")
_VERSION = 0
MAX_COORDINATOR_EPOCH = (1 << 31) - 1
"""Highest coordinator epoch that is written; higher terms are written as this one: it is for people that read the log,
and nothing is decided by it."""


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1


@dataclass(frozen=True, slots=True)
class Marker:
    """The transaction (producer id, epoch) has ended. Once a coordinator has decided, every marker it sends says the
    same, whichever of its leaders sends it: so a marker that comes again is not compared by coordinator epoch."""

    producer_id: int
    epoch: int
    end: ControlType
    coordinator_epoch: int
    timestamp_ms: int

    @property
    def committed(self) -> bool:
        return self.end is ControlType.COMMIT

    def encode(self) -> bytes:
        term = min(self.coordinator_epoch, MAX_COORDINATOR_EPOCH)
        record = _RECORD.pack(_VERSION, self.end, _VERSION, term)
        batch = seal(table_of([len(record)]), [record], bodies=False, control=True)
        numbering = Numbering(self.producer_id, self.epoch, NO_PRODUCER)
        return join([batch.numbered(numbering, transactional=True).stamped(self.timestamp_ms)])


def marker_of(batch: RecordBatch) -> Marker:
    """Read the marker of a control batch. Raises Damaged for one that is no marker of a known version and type."""
    head = batch.head
    if head.transaction is None or min(head.transaction) < 0 or head.base_sequence != NO_PRODUCER:
        raise Damaged("a control batch that belongs to no transaction, or has a number")
    batch.check_content()
    [record] = batch.records()
    if len(record) != _RECORD.size:
        raise Damaged(f"a control record has {_RECORD.size} bytes, not {len(record)}")
    key_version, number, value_version, term = _RECORD.unpack(record)
    if (key_version, value_version) != (_VERSION, _VERSION) or term < 0:
        raise Damaged(f"a control record of versions {key_version} and {value_version}, coordinator epoch {term}")
    try:
        end = ControlType(number)
    except ValueError:
        raise Damaged(f"a control record of type {number}, which ends no transaction") from None
    return Marker(head.producer_id, head.producer_epoch, end, term, head.time_ms)
