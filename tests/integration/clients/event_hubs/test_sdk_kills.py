"""Nodes are killed under the Python SDK: no exception reaches the application, and nothing acknowledged is missing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.integration.clients.event_hubs import sdk
from tests.integration.clients.event_hubs.connection_strings import connection_string
from tests.integration.clients.event_hubs.floating_address import FloatingAddress
from tests.integration.clients.event_hubs.sdk import Reading, consumer, producer
from tests.integration.clusters.cluster import Cluster, wait_until

pytestmark = pytest.mark.cluster

EventData = sdk.eventhub.EventData
HUB, PARTITION = "orders", "0"
PROGRESS = 20


class Sending:
    """Sends one event after the other in a thread, and notes those that were acknowledged."""

    def __init__(self, text: str) -> None:
        self.acknowledged: list[str] = []
        self.error: Exception | None = None
        self._text = text
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        try:
            with producer(self._text) as sender:
                while not self._over.is_set():
                    batch = sender.create_batch(partition_id=PARTITION)
                    bodies = [f"{number} {letter}" for letter in "ab"]
                    for body in bodies:
                        batch.add(EventData(body))
                    sender.send_batch(batch)
                    self.acknowledged += bodies
                    number += 1
        except Exception as error:  # noqa: BLE001 - whatever reaches the application is what is tested
            self.error = error

    def more(self) -> None:
        """Wait for a number of further acknowledgements."""
        wanted = len(self.acknowledged) + PROGRESS
        wait_until(lambda: len(self.acknowledged) >= wanted or self.error, "events are acknowledged")
        assert self.error is None, repr(self.error)

    def stop(self) -> None:
        self._over.set()
        self._thread.join(sdk.WITHIN_S)
        assert not self._thread.is_alive(), "the producer hangs"
        assert self.error is None, repr(self.error)


@contextmanager
def traffic(text: str, **options: object) -> Iterator[Callable[[], None]]:
    """A producer and a consumer; yields a function that waits until both have come further. At the end nothing that was
    acknowledged is missing, and each event stands behind those that were acknowledged before it was sent.

    The log's numbers tell the order. This SDK may hand two events to its callback in the wrong one: from 30 s on, a
    second thread of a consumer reads its connection, too.
    """
    sending = Sending(text)
    reading = Reading(consumer(text), partition_id=PARTITION, starting_position="-1", **options)

    def both_go_on() -> None:
        sending.more()
        newest = sending.acknowledged[-1]
        reading.until(lambda now: newest in now.seen or now.errors)
        assert not reading.errors

    both_go_on()
    yield both_go_on
    sending.stop()
    acknowledged = set(sending.acknowledged)
    reading.until(lambda now: acknowledged <= now.seen or now.errors).stop()
    assert not reading.errors
    received = {event.sequence_number: event.body_as_str() for _, event, _ in reading.events}
    assert len(received) == len(reading.events), "an event is delivered twice"
    firsts = list(dict.fromkeys(received[number] for number in sorted(received)))
    assert [body for body in firsts if body in acknowledged] == sending.acknowledged


@pytest.mark.parametrize("options", [{}, {"owner_level": 1}], ids=["guest", "owner"])
def test_leaders_die_behind_a_node_that_serves(make_cluster: Callable[..., Cluster], options: dict[str, int]) -> None:
    cluster = make_cluster()
    cluster.start()
    cluster.create(HUB, 1)
    leader = cluster.leaders(HUB)[PARTITION]
    door = next(node for node in cluster.nodes if node != leader)
    with traffic(connection_string(cluster.address(door), HUB), **options) as both_go_on:
        for _ in range(3):
            cluster.kill(leader)
            both_go_on()
            cluster.start(leader)
            cluster.wait_settled(HUB)
            both_go_on()


def test_every_node_dies_behind_a_floating_address(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    cluster.start()
    cluster.create(HUB, 1)
    nodes = list(cluster.nodes)
    with (
        FloatingAddress(lambda: [cluster.address(node) for node in cluster.running]) as name,
        traffic(connection_string(name.address, HUB)) as both_go_on,
    ):
        for node in nodes:
            cluster.kill(node)
            both_go_on()
            cluster.start(node)
            cluster.wait_led(HUB)
            both_go_on()


def test_a_node_that_stops_in_peace_is_no_error_either(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    cluster.start()
    cluster.create(HUB, 1)
    with (
        FloatingAddress(lambda: [cluster.address(node) for node in cluster.running]) as name,
        traffic(connection_string(name.address, HUB)) as both_go_on,
    ):
        for node in list(cluster.nodes):
            cluster.stop(node)
            both_go_on()
            cluster.start(node)
            cluster.wait_led(HUB)
            both_go_on()
