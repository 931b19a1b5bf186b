"""Offsets and times of deliveries."""

from __future__ import annotations

import time
from itertools import pairwise

from proton import symbol, timestamp

from tests.conformance.broker import (
    EARLIEST,
    LATEST,
    OFFSET,
    TIMESTAMP,
    BrokerUnderTest,
    annotations_filter,
    bodies,
    marks,
)
from tests.conformance.suite import NotApplicable, rule

CLOCKS_MAY_DIFFER_MS = 60_000
"""Of the broker and the suite: the check is of the unit and the epoch, not of anybody's clock."""


@rule("ES-45")
def deliveries_carry_offset_and_time(broker: BrokerUnderTest) -> None:
    before_ms = time.time() * 1000
    for event in broker.stored(marks(3), broker.partitions[0]):
        assert isinstance(event.notes.get(OFFSET), symbol), f"the offset is {event.notes.get(OFFSET)!r}"
        assert isinstance(event.notes.get(TIMESTAMP), timestamp), f"the time is {event.notes.get(TIMESTAMP)!r}"
        assert not event.offset.startswith("@")
        assert abs(event.time_ms - before_ms) < CLOCKS_MAY_DIFFER_MS, f"{event.time_ms} is not now in milliseconds"


@rule("ES-46")
def offsets_are_opaque_to_clients(broker: BrokerUnderTest) -> None:
    raise NotApplicable("5.1.1 forbids the client to interpret or build offsets; by 8 clients have no duties")


@rule("ES-47")
def offsets_increase_as_texts(broker: BrokerUnderTest) -> None:
    for partition in broker.partitions[:2]:
        offsets = [event.offset for event in broker.stored(marks(40), partition)]
        assert all(left < right for left, right in pairwise(offsets)), offsets
        [entry] = [entry for entry in broker.info() if str(entry["partition"]) == partition]
        assert str(entry["earliest-offset"]) <= offsets[0]
        assert str(entry["latest-offset"]) >= offsets[-1]


@rule("ES-48")
def earliest_and_latest_may_be_compared_with(broker: BrokerUnderTest) -> None:
    partition = broker.partitions[0]
    old, new = marks(2)
    broker.publish([old], partition)
    with broker.visit() as connection:
        from_start = broker.receiver(connection, EARLIEST, partition=partition, name="start")
        from_now = broker.receiver(connection, LATEST, partition=partition, name="now")
        assert old in bodies(broker.until(from_start, old))
        broker.publish([new], partition)
        assert bodies(broker.take(from_now, 1)) == [new]


@rule("ES-49")
def times_may_be_equal(broker: BrokerUnderTest) -> None:
    raise NotApplicable("5.1.2 permits the node equal times, and earlier ones under a new owner; it demands nothing")


@rule("ES-50")
def times_do_not_order_events(broker: BrokerUnderTest) -> None:
    """Events that came at one moment keep their order, and a time in a filter only says where to begin."""
    partition = broker.partitions[0]
    said = marks(60)
    found = broker.stored(said, partition)
    assert bodies(found) == said
    offsets = [event.offset for event in found]
    assert offsets == sorted(offsets)
    middle = found[len(found) // 2]
    with broker.visit() as connection:
        later = broker.receiver(connection, annotations_filter(time=timestamp(middle.time_ms)), partition=partition)
        expected = [event.body for event in found if event.time_ms > middle.time_ms]
        [end] = marks(1)
        while time.time() * 1000 <= found[-1].time_ms + 2:
            time.sleep(0.001)
        broker.publish([end], partition)
        assert bodies(broker.until(later, end)) == [*expected, end]
