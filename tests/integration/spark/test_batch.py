"""A log as a table: what was produced, no more and no less, whatever was asked for."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.client.sync import Event, ProducerClient, RangeClient
from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.spark.events import committed, fill, numbered, rolled_back

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

Read = Callable[..., Any]


def rows(frame: Any) -> list[tuple[str, int, bytes]]:
    found = frame.select("partition", "offset", "body").collect()
    return sorted((row.partition, row.offset, bytes(row.body)) for row in found)


def places(count: int, partition: str = "0", first: int = 0, prefix: str = "e") -> list[tuple[str, int, bytes]]:
    return [(partition, number, f"{prefix}{number}".encode()) for number in range(first, first + count)]


def test_a_batch_is_what_was_produced(cluster: Cluster, log_name: str, read: Read) -> None:
    cluster.create(log_name, partitions=3)
    fill(cluster, log_name, numbered(1000), "0")
    fill(cluster, log_name, numbered(10, "f"), "2")
    frame = read(log_name)
    assert rows(frame) == places(1000) + places(10, "2", prefix="f")
    assert frame.rdd.getNumPartitions() == 2, "a task for each partition that has something"
    assert read(log_name, minPartitions=8).rdd.getNumPartitions() >= 8
    assert rows(read(log_name, minPartitions=8)) == places(1000) + places(10, "2", prefix="f")
    keys = {row.key: row["count"] for row in frame.groupBy("key").count().collect()}
    assert keys == {"k0": 334 + 4, "k1": 333 + 3, "k2": 333 + 3}
    assert rows(read(log_name, partitions="1")) == []
    assert rows(read(log_name, partitions="2,1")) == places(10, "2", prefix="f")


def test_ranges_by_offset(cluster: Cluster, log_name: str, read: Read) -> None:
    cluster.create(log_name, partitions=2)
    fill(cluster, log_name, numbered(50), "0")
    fill(cluster, log_name, numbered(20), "1")
    some = read(log_name, startingOffsets='{"0": 40, "1": -2}', endingOffsets='{"0": -1, "1": 5}')
    assert rows(some) == places(10, "0", 40) + places(5, "1")
    assert rows(read(log_name, startingOffsets="latest")) == []
    assert rows(read(log_name, partitions="1", startingOffsets='{"1": 18}')) == places(2, "1", 18)


def test_ranges_by_time(cluster: Cluster, log_name: str, read: Read) -> None:
    cluster.create(log_name)
    fill(cluster, log_name, numbered(30))
    last_ms = max(row.enqueuedTime for row in read(log_name).collect()).replace(tzinfo=datetime.UTC).timestamp() * 1000

    def next_is_later() -> bool:
        fill(cluster, log_name, numbered(1, "x"))
        with RangeClient(cluster.addresses) as client:
            end = client.extents(log_name)[0].end
            return client.offset_at(log_name, "0", round(last_ms) + 1, end) < end

    wait_until(next_is_later, "an event of another millisecond")
    both = round(last_ms) + 1
    before, after = read(log_name, endingTimestamp=both), read(log_name, startingTimestamp=both)
    assert rows(before)[:30] == places(30)
    assert all(row.body.startswith(b"x") for row in after.collect())
    assert before.count() + after.count() == read(log_name).count()
    text = datetime.datetime.fromtimestamp(both / 1000, datetime.UTC).isoformat()
    assert rows(read(log_name, startingTimestamp=text)) == rows(after)


def test_the_nodes_filter_and_columns_are_left_out(cluster: Cluster, log_name: str, read: Read) -> None:
    cluster.create(log_name)
    given = [Event(b"%d" % number, properties={"price": number / 2, "odd": number % 2 == 1}) for number in range(40)]
    fill(cluster, log_name, given)
    frame = read(log_name, filter="a.price >= 10 AND a.odd", columns="properties, body")
    assert frame.columns == ["properties", "body"]
    found = {bytes(row.body): row.properties for row in frame.collect()}
    assert found == {b"%d" % number: {"price": str(number / 2), "odd": "true"} for number in range(21, 40, 2)}
    assert read(log_name, filter="a.colour = 'blue'").count() == 0, "the range ends although nothing comes"


def test_numbers_of_producers(cluster: Cluster, log_name: str, read: Read) -> None:
    cluster.create(log_name)
    fill(cluster, log_name, numbered(2))
    with ProducerClient(cluster.addresses, log_name) as producer:
        events = [*(Event(b"n%d" % number) for number in range(4)), Event(b"m", properties={"n": 1})]
        producer.send_batch(events, partition="0")
        identity = producer.get_partition_publishing_properties("0").producer_group_id
    found = [(row.producerId, row.sequenceNumber) for row in read(log_name).orderBy("offset").collect()]
    numbers = [event.published_sequence_number for event in events]
    assert found == [(None, None)] * 2 + [(identity, number) for number in numbers]
    last = read(log_name, columns="sequenceNumber", filter="a.n = 1").collect()
    assert [row.sequenceNumber for row in last] == numbers[4:]


def test_every_column(cluster: Cluster, log_name: str, read: Read) -> None:
    cluster.create(log_name)
    full = Event("keyed", key="IBM", properties={"n": 1, "none": None, "raw": b"\1"})
    fill(cluster, log_name, [Event("plain"), full])
    plain, keyed = sorted(read(log_name).collect(), key=lambda row: row.offset)
    assert (bytes(plain.body), plain.partition, plain.offset, plain.key) == (b"plain", "0", 0, None)
    assert (plain.properties, plain.systemProperties, plain.producerId) == ({}, {}, None)
    assert (bytes(keyed.body), keyed.key, keyed.offset) == (b"keyed", "IBM", 1)
    assert keyed.properties == {"n": "1", "none": None, "raw": "01"}
    age_s = datetime.datetime.now(datetime.UTC) - keyed.enqueuedTime.replace(tzinfo=datetime.UTC)
    assert datetime.timedelta() <= age_s < datetime.timedelta(hours=1)


def test_transactions_are_there_whole_or_not_at_all(cluster: Cluster, log_name: str, read: Read) -> None:
    cluster.create(log_name)
    fill(cluster, log_name, numbered(3))
    committed(cluster, log_name, [b"one", b"two"])
    rolled_back(cluster, log_name, 5)
    expected = [*places(3), ("0", 3, b"one"), ("0", 4, b"two")]
    assert rows(read(log_name)) == expected, "the range ends with events that nobody is given"
    assert read(log_name, isolation="uncommitted").count() == 10
    fill(cluster, log_name, numbered(1, "f", 10))
    assert rows(read(log_name)) == [*expected, ("0", 10, b"f10")]
    assert rows(read(log_name, startingOffsets='{"0": 6}', endingOffsets='{"0": 9}')) == []
    with ProducerClient(cluster.addresses, log_name) as producer:
        tx = producer.transaction()
        tx.begin()
        tx.send(b"undecided", partition="0").result()
        fill(cluster, log_name, numbered(1, "g"))
        assert read(log_name).count() == 6, "what is not decided ends what is read"
        tx.abort()
    assert read(log_name).count() == 7
