"""What operators and accidents do to a running cluster, seen by those who go on using it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from proton import ConnectionException, Disposition, Message
from proton.utils import LinkDetached, SendException

from holdfast.client.errors import AdminError, HoldfastError, TimeoutExpiredError
from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.conftest import number_from
from tests.integration.judges.judging import (
    RESUME_WITHIN_S,
    judge,
    percentiles,
    read_partition,
    start_producers,
    wait_resumed,
)
from tests.integration.workloads.consumers import HoldfastConsumer, ResumingConsumer
from tests.integration.workloads.plain import (
    Bound,
    connected,
    read,
    send,
)

pytestmark = pytest.mark.cluster

KILLS = number_from("HOLDFAST_KILLS", 2)

NOT_ACCEPTED = [Disposition.REJECTED, Disposition.RELEASED, Disposition.MODIFIED]


@pytest.mark.timeout(300 + 60 * KILLS)
def test_consumers_see_every_event_once_and_in_order_through_kills(own_cluster: Cluster, log_name: str) -> None:
    """A pause, never a hole and never a repetition: what they got is the log, event by event."""
    cluster = own_cluster
    cluster.create(log_name, 3)
    producers = start_producers(cluster, log_name)
    everywhere = [cluster.address(node) for node in cluster.nodes]
    consumers = {
        "0": ResumingConsumer(everywhere, log_name, "0").begin(),
        "1": ResumingConsumer([cluster.address(node, "never") for node in cluster.nodes], log_name, "1").begin(),
        "2": HoldfastConsumer(everywhere, log_name, "2").begin(),
    }
    for kill in range(KILLS):
        victim = cluster.leaders(log_name)[str(kill % 3)]
        cluster.kill(victim)
        killed_s = time.monotonic()
        for producer in producers:
            wait_resumed(producer, killed_s)
        cluster.start(victim)
        for producer in producers:
            producer.wait_for(200)
    judge(cluster, log_name, producers)
    for partition, consumer in consumers.items():
        stored = [event.body for event in read_partition(cluster, log_name, partition)]
        assert consumer.wait_for(len(stored)) == stored, f"partition {partition}"


def test_a_gateway_hides_the_death_of_the_leader_from_its_consumers(own_cluster: Cluster, log_name: str) -> None:
    """Their node lives, so their connection and link do: nobody has to attach again."""
    cluster = own_cluster
    cluster.create(log_name, 1)
    leader = cluster.leaders(log_name)["0"]
    gateway = cluster.other_than(leader)
    consumer = ResumingConsumer([cluster.address(gateway)], log_name, "0").begin()
    bodies = [f"event {number}" for number in range(60)]
    with connected(cluster.address(gateway)) as connection:
        sender = connection.create_sender(log_name, options=[Bound("0")])
        for number, body in enumerate(bodies):
            if number == 30:
                cluster.kill(leader)
                # An event that is on its way to a dying leader may be stored or not: its sender would be told so.
                cluster.wait_led(log_name)
            sender.send(Message(body=body))
    assert consumer.wait_for(len(bodies)) == bodies
    assert consumer.reattached == 0


def test_a_rolling_restart_loses_nothing(own_cluster: Cluster, log_name: str, measured: Any) -> None:
    """Each node in turn is asked to stop, and started again, under load."""
    cluster = own_cluster
    cluster.create(log_name, 3)
    producers = start_producers(cluster, log_name)
    gaps_s: list[float] = []
    for node in cluster.nodes:
        cluster.wait_led(log_name)
        asked_s = time.monotonic()
        cluster.stop(node)
        stopped_s = time.monotonic()
        gaps_s += [wait_resumed(producer, stopped_s) + stopped_s - asked_s for producer in producers]
        cluster.start(node)
        for producer in producers:
            producer.wait_for(200)
    judge(cluster, log_name, producers)
    measured(f"SIGTERM to the acknowledgement of an event sent after the node's end: {percentiles(gaps_s)}")


def test_without_a_majority_nothing_is_promised(own_cluster: Cluster, log_name: str) -> None:
    """One node of three: it accepts nothing, ends the connections of who waits for it, lets nobody in, and recovers."""
    cluster = own_cluster
    cluster.create(log_name, 1)
    send(cluster.address(1), log_name, ["before"])
    lonely = cluster.leaders(log_name)["0"]
    with connected(cluster.address(lonely)) as connection:
        sender = connection.create_sender(log_name, options=[Bound("0")])
        cluster.kill(*(node for node in cluster.nodes if node != lonely))
        with pytest.raises((SendException, LinkDetached, ConnectionException)):
            sender.send(Message(body="in between"), error_states=NOT_ACCEPTED)
    wait_until(lambda: "this node is cut off" in cluster.log(lonely), "the node to know that it is alone")
    with pytest.raises(ConnectionException), connected(cluster.address(lonely)):
        pytest.fail("a node that can serve nothing has let a client in that may have others to turn to")
    with pytest.raises(TimeoutExpiredError, match="this node is cut off"):
        cluster.call(lambda admin: admin.create_log(f"{log_name}-2"), [cluster.address(lonely)], timeout_s=1.0)
    cluster.start()
    cluster.wait_led(log_name)
    listed = cluster.call(lambda admin: admin.list_logs())
    assert f"{log_name}-2" not in {log["name"] for log in listed}, "it was refused, and not put off"
    send(cluster.address(1), log_name, ["after"])
    bodies = [event.body for event in read(cluster.address(2), log_name, _count(cluster, log_name))]
    assert bodies[0] == "before"
    assert bodies[-1] == "after"
    assert set(bodies) <= {"before", "in between", "after"}


def _count(cluster: Cluster, log: str) -> int:
    return sum(int(entry.details["events"]) for entry in cluster.info(log).values())


def test_administration_goes_on_when_its_leader_dies(own_cluster: Cluster, log_name: str) -> None:
    """Logs are made, altered and deleted through every node while the leader of the metadata group is killed twice."""
    cluster = own_cluster
    expected: dict[str, int] = {}
    for turn in range(2):
        leader = wait_until(lambda: _metadata_leader(cluster), "a leader of the metadata group")
        cluster.kill(leader)
        for number, node in enumerate(cluster.running):
            name = f"{log_name}-{turn}-{number}"
            servers = [cluster.address(node)]
            _insist(lambda name=name, servers=servers: cluster.call(  # type: ignore[misc]
                lambda admin: admin.create_log(name, partitions=2, replicas=3), servers
            ), {"already-exists"})  # fmt: skip
            _insist(lambda name=name, servers=servers: cluster.call(  # type: ignore[misc]
                lambda admin: admin.alter_log(name, partitions=3), servers
            ), {"invalid-argument"})  # fmt: skip
            expected[name] = 3
        gone = f"{log_name}-{turn}-0"
        _insist(lambda gone=gone: cluster.call(lambda admin: admin.delete_log(gone)), {"not-found"})  # type: ignore[misc]
        del expected[gone]
        cluster.start(leader)
    for node in cluster.nodes:

        def agrees(node: int = node) -> bool:
            logs = cluster.call(lambda admin: admin.list_logs(), [cluster.address(node)])
            return {entry["name"]: entry["partitions"] for entry in logs} == expected

        wait_until(agrees, f"node {node} to know the same logs as the others")
    for name in expected:
        cluster.wait_led(name)
        send(cluster.address(1), name, ["usable"], "2")


def _metadata_leader(cluster: Cluster) -> int | None:
    leaders = {
        cluster.call(lambda admin: admin.cluster_status(), [cluster.address(node)])["metadata"]["leader"]
        for node in cluster.running
    }
    return leaders.pop() if len(leaders) == 1 and None not in leaders else None


def _insist(work: Callable[[], object], done_already: set[str]) -> None:
    """Until it is done: what has an unknown outcome is tried again, and may then turn out to have been done."""
    deadline = time.monotonic() + RESUME_WITHIN_S
    unknown = False
    while True:
        try:
            work()
            return
        except AdminError as error:
            if unknown and error.code in done_already:
                return
            unknown = unknown or error.code == "unknown"
            if not (error.retriable or error.code == "unknown") or time.monotonic() > deadline:
                raise
        except HoldfastError as error:
            if not error.retriable or time.monotonic() > deadline:
                raise
