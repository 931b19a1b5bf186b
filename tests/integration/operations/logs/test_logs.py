"""Logs of a running cluster: what retention forgets, what altering adds, what deleting erases."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from proton import Message, symbol
from proton.utils import LinkDetached

from holdfast.client.errors import HoldfastError
from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.clusters.stores import keys_of
from tests.integration.conftest import number_from
from tests.integration.workloads.plain import (
    TARGET,
    Batcher,
    Bound,
    Collector,
    Received,
    connected,
    read,
    send,
    starting,
)

pytestmark = pytest.mark.cluster

BODY = b"x" * 4000
PARTITIONS = number_from("HOLDFAST_PARTITIONS", 30)
"""Of a log with many; `make soak` has hundreds."""
TRIMS = number_from("HOLDFAST_TRIMS", 2)
"""Kills of all nodes while retention trims."""


def produce(cluster: Cluster, log: str, count: int, first: int = 0) -> None:
    """One entry each, so that retention can cut between any two."""
    with connected(cluster.address(1)) as connection:
        sender = connection.create_sender(log, options=[Bound("0")])
        for number in range(first, first + count):
            sender.send(Message(body=BODY, id=number))


def earliest(cluster: Cluster, log: str) -> int | None:
    offset = cluster.info(log)["0"].earliest_offset
    return None if offset is None else int(offset, 16)


def stored_bytes(cluster: Cluster, log: str) -> int:
    return int(cluster.info(log)["0"].details["bytes"])


def begins_everywhere(cluster: Cluster, log: str, end: int) -> None:
    """Reading from the earliest, and from an offset that is gone, begins at the earliest that is left."""
    first = earliest(cluster, log)
    assert first is not None
    for node in cluster.nodes:
        for start in ({"offset": "@earliest"}, {"offset": f"{0:016x}"}):
            events = read(cluster.address(node), log, end - first, "0", start)
            numbers = [event.message.id for event in events]
            assert numbers == list(range(first, end))
            assert int(events[0].offset, 16) == first


def test_retention_by_bytes_forgets_the_oldest(cluster: Cluster, log_name: str) -> None:
    limit = 60 * len(BODY)
    cluster.create(log_name, 1, retention_bytes=limit)
    produce(cluster, log_name, 200)
    wait_until(lambda: stored_bytes(cluster, log_name) <= limit, "retention to cut the log")
    first = earliest(cluster, log_name)
    assert first is not None
    assert 100 < first < 160, "as much as was asked for is kept, and not much less"
    begins_everywhere(cluster, log_name, 200)
    produce(cluster, log_name, 50, first=200)
    wait_until(lambda: (earliest(cluster, log_name) or 0) > first, "retention to move on")
    wait_until(lambda: stored_bytes(cluster, log_name) <= limit, "retention to cut the log")
    begins_everywhere(cluster, log_name, 250)


def test_retention_by_age_forgets_the_oldest(cluster: Cluster, log_name: str) -> None:
    cluster.create(log_name, 1, retention_ms=3_600_000)
    produce(cluster, log_name, 20)
    time.sleep(0.02)  # a later time for what follows
    produce(cluster, log_name, 20, first=20)
    events = read(cluster.address(1), log_name, 40, "0")
    age_ms = int(time.time() * 1000) - events[20].timestamp_ms
    assert earliest(cluster, log_name) == 0
    # So long that the second half is younger for a while, whatever this machine is busy with.
    cluster.call(lambda admin: admin.alter_log(log_name, retention_ms=age_ms + 5_000))
    wait_until(lambda: earliest(cluster, log_name) not in (0,), "retention to cut the log")
    cluster.call(lambda admin: admin.alter_log(log_name, retention_ms=1))
    wait_until(lambda: earliest(cluster, log_name) is None, "retention to empty the log")
    cluster.call(lambda admin: admin.alter_log(log_name, retention_ms=None))
    produce(cluster, log_name, 5, first=40)
    assert earliest(cluster, log_name) == 40, "offsets go on where they were"
    begins_everywhere(cluster, log_name, 45)


def test_a_reader_that_retention_overtakes_goes_on_at_the_earliest(cluster: Cluster, log_name: str) -> None:
    cluster.create(log_name, 1)
    produce(cluster, log_name, 100)
    with connected(cluster.address(2)) as connection:
        receiver = connection.create_receiver(log_name, credit=10, options=[Bound("0"), starting(offset="@earliest")])
        assert [receiver.receive().id for _ in range(10)] == list(range(10))
        cluster.call(lambda admin: admin.alter_log(log_name, retention_bytes=20 * len(BODY)))
        wait_until(lambda: stored_bytes(cluster, log_name) <= 20 * len(BODY), "retention to cut the log")
        rest = []
        while not rest or rest[-1] < 99:
            rest.append(receiver.receive().id)
            receiver.accept()
        kept = earliest(cluster, log_name)
        assert kept is not None
        assert rest == sorted(set(rest))
        assert set(range(kept, 100)) <= set(rest), "nothing that was still there is passed over"


def test_partitions_are_added_and_used_at_once(cluster: Cluster, log_name: str) -> None:
    cluster.create(log_name, 2)
    collectors = [Collector(cluster.address(node), log_name, 5).begin().wait_attached() for node in cluster.nodes]
    cluster.call(lambda admin: admin.alter_log(log_name, partitions=5))
    cluster.wait_led(log_name)
    for node in cluster.nodes:
        with connected(cluster.address(node)) as connection:
            body = connection.create_receiver(f"{log_name}/$info", credit=1).receive().body
            assert sorted(str(entry["partition"]) for entry in body["partitions"]) == ["0", "1", "2", "3", "4"]
    with connected(cluster.address(3)) as connection:
        sender = connection.create_sender(log_name)
        for partition in range(5):
            message = Message(body=f"to {partition}")
            message.instructions = {symbol(TARGET): symbol(str(partition))}
            sender.send(message)
    for collector in collectors:  # attached before the partitions were made, and served from them nevertheless
        collector.join()
        assert sorted(event.partition for event in collector.events) == ["0", "1", "2", "3", "4"]
    for node in cluster.nodes:
        assert read(cluster.address(node), log_name, 1, "4")[0].body == "to 4"
    with pytest.raises(HoldfastError, match="partitions"):
        cluster.call(lambda admin: admin.alter_log(log_name, partitions=3))


def test_a_deleted_log_ends_its_links_and_frees_its_name(cluster: Cluster, log_name: str) -> None:
    cluster.create(log_name, 2)
    send(cluster.address(1), log_name, ["old"] * 10)
    for node in cluster.nodes:
        assert Received.of(_first(cluster, node, log_name)).body == "old"
    with connected(cluster.address(1)) as one, connected(cluster.address(2)) as two:
        sender = one.create_sender(log_name)
        receiver = two.create_receiver(log_name, credit=1)
        cluster.call(lambda admin: admin.delete_log(log_name))
        for work in (lambda: sender.send(Message(body="late")), receiver.receive):
            with pytest.raises(LinkDetached) as end:
                work()
            assert end.value.condition == "amqp:resource-deleted"
    for node in cluster.nodes:
        wait_until(lambda node=node: _unknown(cluster, node, log_name), f"node {node} to forget the log")
    cluster.create(log_name, 1)
    assert cluster.info(log_name)["0"].earliest_offset is None
    send(cluster.address(3), log_name, ["new"])
    assert [event.body for event in read(cluster.address(2), log_name, 1)] == ["new"]


def _first(cluster: Cluster, node: int, log: str) -> Message:
    with connected(cluster.address(node)) as connection:
        return connection.create_receiver(log, options=[starting(offset="@earliest")]).receive()


def _unknown(cluster: Cluster, node: int, log: str) -> bool:
    with connected(cluster.address(node)) as connection:
        try:
            connection.create_sender(log)
        except LinkDetached as refusal:
            return bool(refusal.condition == "amqp:not-found")
        return False


def test_deleting_erases_the_data_on_every_node(own_cluster: Cluster, log_name: str) -> None:
    """Also on one that was down when it happened."""
    cluster = own_cluster
    cluster.create(log_name, 1)
    cluster.create(f"{log_name}-kept", 1)
    groups = {log: cluster.describe(log)["partitions"][0]["group"] for log in (log_name, f"{log_name}-kept")}
    for log in groups:
        produce(cluster, log, 100)
    cluster.kill(3)
    cluster.call(lambda admin: admin.delete_log(log_name))
    cluster.start(3)
    for node in cluster.nodes:
        wait_until(lambda node=node: "its data erased" in cluster.log(node), f"node {node} to erase the data")
    cluster.stop()
    for node in cluster.nodes:
        assert keys_of(cluster, node, groups[log_name]) == 0, f"node {node} still has data of the deleted log"
        assert keys_of(cluster, node, groups[f"{log_name}-kept"]) > 100


def test_retention_holds_through_kills(own_cluster: Cluster, log_name: str) -> None:
    """Killed while it trims: the log begins where it began, or later, on every node, and has no hole."""
    cluster = own_cluster
    limit = 40 * len(BODY)
    cluster.create(log_name, 1, retention_bytes=limit)
    first = 0
    for turn in range(TRIMS):
        produce(cluster, log_name, 100, first=100 * turn)
        wait_until(lambda: stored_bytes(cluster, log_name) <= limit, "retention to cut the log")
        begin = earliest(cluster, log_name)
        assert begin is not None
        assert begin > first
        first = begin
        cluster.kill()
        cluster.start()
        cluster.wait_led(log_name)
        again = earliest(cluster, log_name)
        assert again is not None
        assert again >= begin, "what was forgotten does not come back"
        begins_everywhere(cluster, log_name, 100 * (turn + 1))


@pytest.mark.slow
def test_many_partitions_survive_a_kill(own_cluster: Cluster, log_name: str) -> None:
    cluster, count = own_cluster, PARTITIONS
    cluster.create(log_name, count)
    wait_until(lambda: _balanced(cluster, log_name), "the leaders to be spread evenly")
    _one_each(cluster, log_name, count, "before")
    cluster.kill(2)
    cluster.wait_led(log_name)
    _one_each(cluster, log_name, count, "after")
    cluster.start(2)
    wait_until(lambda: _balanced(cluster, log_name), "the node that came back to lead its share again")
    events = read(cluster.address(2), log_name, 2 * count)
    for partition in range(count):
        assert [event.body for event in events if event.partition == str(partition)] == ["before", "after"]


def _balanced(cluster: Cluster, log: str) -> bool:
    led = Counter(cluster.leaders(log).values())
    return len(led) == len(cluster.nodes) and max(led.values()) - min(led.values()) <= 1


def _one_each(cluster: Cluster, log: str, count: int, body: str) -> None:
    messages = []
    for partition in range(count):
        message = Message(body=body)
        message.instructions = {symbol(TARGET): symbol(str(partition))}
        messages.append(message)
    sending = Batcher(cluster.address(1), log, messages).begin()
    sending.join()
    assert len(sending.answers.of_kind("accepted")) == count
