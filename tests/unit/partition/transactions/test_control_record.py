"""The end of a transaction in the log: Kafka's layout, Kafka's numbers, and nothing else is taken for one."""

from __future__ import annotations

import struct

import pytest

from holdfast.records.record_batch import Attributes, Damaged
from node.partition.partition_commands import decode
from node.partition.raft_entry import batches_in, join
from node.partition.transactions.control_record import MAX_COORDINATOR_EPOCH, ControlType, Marker, marker_of
from tests.batches import batch_of

FLAGS = Attributes.APPEND_TIME | Attributes.TRANSACTIONAL | Attributes.CONTROL


@pytest.mark.parametrize("end", list(ControlType))
def test_a_marker_is_a_control_batch_of_one_record_that_is_read_back(end: ControlType) -> None:
    marker = Marker(2**62, 32767, end, 12, 1_000_000)
    (batch,) = batches_in(marker.encode())
    assert (batch.head.attributes, batch.head.record_count, batch.head.base_sequence) == (FLAGS, 1, -1)
    assert batch.head.transaction == (2**62, 32767)
    assert decode(marker.encode()) == marker_of(batch) == marker


def record_of(marker: Marker) -> bytes:
    (batch,) = batches_in(marker.encode())
    (record,) = batch.records()
    return record


def test_the_numbers_are_those_that_kafka_ships_not_those_of_the_proposal() -> None:
    key_of = {end: record_of(Marker(1, 0, end, 5, 0))[:4] for end in ControlType}
    assert key_of == {ControlType.ABORT: struct.pack(">hh", 0, 0), ControlType.COMMIT: struct.pack(">hh", 0, 1)}
    assert record_of(Marker(1, 0, ControlType.ABORT, 5, 0))[4:] == struct.pack(">hi", 0, 5)


def test_a_term_beyond_what_the_field_holds_is_written_as_the_highest() -> None:
    marker = decode(Marker(1, 0, ControlType.COMMIT, 1 << 40, 0).encode())
    assert isinstance(marker, Marker)
    assert marker.coordinator_epoch == MAX_COORDINATOR_EPOCH


@pytest.mark.parametrize(
    "record",
    [b"", b"x", struct.pack(">hhhi", 0, 2, 0, 1), struct.pack(">hhhi", 1, 0, 0, 1), struct.pack(">hhhi", 0, 0, 0, -1)],
)
def test_what_is_no_marker_of_this_version_is_damage(record: bytes) -> None:
    with pytest.raises(Damaged):
        marker_of(batch_of([record], 1, control=True, producer_id=5, producer_epoch=0, transactional=True))


def test_a_control_batch_without_a_transaction_is_damage() -> None:
    record = struct.pack(">hhhi", 0, 0, 0, 1)
    good = batch_of([record], 1, control=True, producer_id=5, producer_epoch=0, transactional=True)
    assert marker_of(good).producer_id == 5
    for wrong in (
        batch_of([record], 1, control=True, producer_id=5, producer_epoch=0),
        batch_of([record], 1, control=True, transactional=True),
        batch_of([record], 1, control=True, producer_id=5, producer_epoch=0, base_sequence=1, transactional=True),
    ):
        with pytest.raises(Damaged, match="no transaction"):
            marker_of(wrong)


def test_a_control_batch_stands_alone_in_its_entry() -> None:
    record = struct.pack(">hhhi", 0, 0, 0, 1)
    control = batch_of([record], 1, control=True, producer_id=5, producer_epoch=0, transactional=True)
    for batches in ([control, control], [control, batch_of([b"x"])], [batch_of([b"x"]), control]):
        with pytest.raises(Damaged, match="control batch among 2"):
            decode(join(batches))
