"""The end of a transaction in the log: Kafka's layout, Kafka's numbers, and nothing else is taken for one."""

from __future__ import annotations

import struct

import pytest

from node.partition.record_batch import Attributes, Damaged, decode_head, decode_records, encode
from node.partition.transactions.control_record import MAX_COORDINATOR_EPOCH, ControlType, Marker, marker_of

FLAGS = Attributes.APPEND_TIME | Attributes.TRANSACTIONAL | Attributes.CONTROL


@pytest.mark.parametrize("end", list(ControlType))
def test_a_marker_is_a_control_batch_of_one_record_that_is_read_back(end: ControlType) -> None:
    marker = Marker(2**62, 32767, end, 12, 1_000_000)
    entry = marker.encode()
    head = decode_head(entry)
    assert (head.attributes, head.count, head.base_sequence) == (FLAGS, 1, -1)
    assert head.transaction == (2**62, 32767)
    assert marker_of(head) == marker
    assert decode_records(entry) == [head.control]


def test_the_numbers_are_those_that_kafka_ships_not_those_of_the_proposal() -> None:
    key_of = {end: decode_head(Marker(1, 0, end, 5, 0).encode()).control[:4] for end in ControlType}
    assert key_of == {ControlType.ABORT: struct.pack(">hh", 0, 0), ControlType.COMMIT: struct.pack(">hh", 0, 1)}
    assert decode_head(Marker(1, 0, ControlType.ABORT, 5, 0).encode()).control[4:] == struct.pack(">hi", 0, 5)


def test_a_term_beyond_what_the_field_holds_is_written_as_the_highest() -> None:
    head = decode_head(Marker(1, 0, ControlType.COMMIT, 1 << 40, 0).encode())
    assert marker_of(head).coordinator_epoch == MAX_COORDINATOR_EPOCH


@pytest.mark.parametrize(
    "record",
    [b"", b"x", struct.pack(">hhhi", 0, 2, 0, 1), struct.pack(">hhhi", 1, 0, 0, 1), struct.pack(">hhhi", 0, 0, 0, -1)],
)
def test_what_is_no_marker_of_this_version_is_damage(record: bytes) -> None:
    head = decode_head(encode([record], 1, attributes=FLAGS, producer_id=5, producer_epoch=0))
    with pytest.raises(Damaged):
        marker_of(head)


def test_a_control_batch_without_a_transaction_is_damage() -> None:
    flags = Attributes.CONTROL | Attributes.APPEND_TIME
    record = struct.pack(">hhhi", 0, 0, 0, 1)
    with pytest.raises(Damaged, match="no transaction"):
        marker_of(decode_head(encode([record], 1, attributes=flags, producer_id=5, producer_epoch=0)))
    with pytest.raises(Damaged, match="producer -1"):
        decode_head(encode([record], 1, attributes=FLAGS))
    with pytest.raises(Damaged, match="one whole record"):
        decode_head(encode([record, record], 1, attributes=FLAGS, producer_id=5, producer_epoch=0))
