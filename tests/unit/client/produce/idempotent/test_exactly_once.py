"""Random mishaps between a producer and two nodes: each acknowledged event stands once, in order; the others at most
once. The same mishaps without idempotence make copies, so that the test is known to see them."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from typing import Any

import pytest

from holdfast.amqp import Error
from holdfast.amqp.links.delivery_states import ACCEPTED, DeliveryState
from holdfast.client import ProducerClient, ProducerOptions, UndeliveredError
from tests.unit.client.support.patience import impatient
from tests.unit.client.support.tiny_node import UNKNOWN, TinyNode

PARTITIONS = ("0", "3")
BATCHES, LARGEST_BATCH = 40, 60  # at least so many batches
ENOUGH = 8  # mishaps


class Mishaps:
    """What goes wrong, by chance: answers get lost, connections break before or after events were stored, leaders move,
    links are ended, nodes turn events down for the moment. As a real node does, after an answer other than "accepted" a
    node takes nothing more from that link: it ends it."""

    def __init__(self, nodes: tuple[TinyNode, TinyNode], chance: random.Random) -> None:
        self.nodes, self.chance, self.count = nodes, chance, Counter[str]()
        for node in nodes:
            node.after_transfers = self.on_transfers
            node.answer = self.on_event
        self._pieces = 0
        self._broken: set[int] = set()  # links' ends that are due, by connection

    def on_transfers(self, connection: Any, partition: str, count: int) -> bool:
        if id(connection) in self._broken:
            return True
        self._pieces += 1
        roll = self.chance.random() if self._pieces != 5 else 0.05  # what must have happened at least once
        if roll < 0.04:
            self.count["connection lost, events not stored"] += 1
            self._break(connection)
            return True
        if roll < 0.08:
            self.count["connection lost, events stored"] += 1
            self._break(connection)
            connection.pause_writing()  # this piece is stored, and its answers die with the connection
            return False
        if roll < 0.12:
            self.count["leader moved"] += 1
            leaders = connection.node.log.leaders
            leaders[partition] = self.nodes[leaders[partition] is self.nodes[0]]
            self._later(connection, lambda: connection.close_links(Error("amqp:link:detach-forced", "moved")))
            return True
        return False

    def on_event(self, payload: bytes) -> DeliveryState:
        return self.chance.choices([ACCEPTED, UNKNOWN], [300, 1])[0]

    def _break(self, connection: Any) -> None:
        self._later(connection, connection.abort)

    def _later(self, connection: Any, action: Any) -> None:
        self._broken.add(id(connection))

        def act() -> None:
            self._broken.discard(id(connection))
            action()

        asyncio.get_running_loop().call_soon(act)


async def publish(producer: ProducerClient, partition: str, chance: random.Random, mishaps: Mishaps) -> list[bytes]:
    """Batches and single events by turns, until enough went wrong; returns what was acknowledged, in order."""
    acknowledged: list[bytes] = []
    number = batches = 0
    while batches < BATCHES or mishaps.count.total() < ENOUGH:
        batches += 1
        bodies = [b"%s:%d" % (partition.encode(), number + n) for n in range(chance.randint(1, LARGEST_BATCH))]
        number += len(bodies)
        if chance.random() < 0.5:
            await producer.send_batch(bodies, partition=partition)
        else:
            await asyncio.gather(*[await producer.send(body, partition=partition) for body in bodies])
        acknowledged += bodies
    return acknowledged


async def run(pair: tuple[TinyNode, TinyNode], seed: int, idempotent: bool) -> dict[str, list[bytes]]:
    mishaps = Mishaps(pair, random.Random(seed))
    servers = [node.address for node in pair]
    options = ProducerOptions(idempotent=idempotent, delivery_timeout_s=20)
    async with asyncio.timeout(60), ProducerClient(servers, "trades", options) as producer:
        chances = [random.Random(seed + n) for n in range(len(PARTITIONS))]
        tasks = [publish(producer, name, chance, mishaps) for name, chance in zip(PARTITIONS, chances, strict=True)]
        results = await asyncio.gather(*tasks)
    return dict(zip(PARTITIONS, results, strict=True))


@pytest.mark.parametrize("attempt", range(3))
async def test_every_acknowledged_event_stands_once_and_in_order(pair: tuple[TinyNode, TinyNode], attempt: int) -> None:
    seed = random.randrange(1 << 32)
    acknowledged = await run(pair, seed, idempotent=True)
    for partition, bodies in acknowledged.items():
        assert pair[0].log.bodies(partition) == bodies, f"seed {seed}, partition {partition}"
        assert pair[0].log.numbers(partition) == list(range(1, len(bodies) + 1)), f"seed {seed}"
    assert pair[0].log.producers.duplicates > 0, f"seed {seed}: nothing came twice, so nothing was tested"


async def test_without_idempotence_the_same_mishaps_make_copies(pair: tuple[TinyNode, TinyNode]) -> None:
    seed = random.randrange(1 << 32)
    acknowledged = await run(pair, seed, idempotent=False)
    copies = 0
    for partition, bodies in acknowledged.items():
        stored = pair[0].log.bodies(partition)
        assert list(dict.fromkeys(stored)) == bodies, f"seed {seed}: at least once, in order"
        copies += len(stored) - len(bodies)
    assert copies > 0, f"seed {seed}"


async def test_what_was_given_up_stands_at_most_once_whatever_is_done_about_it(
    pair: tuple[TinyNode, TinyNode],
) -> None:
    """A program that sends a failed batch again until it is through, with little patience for each attempt."""
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    silent = 0

    def sometimes_silent(connection: Any, partition: str, count: int) -> bool:
        nonlocal silent
        if silent == 0 or chance.random() < 0.2:
            silent += 1
            if chance.random() < 0.5:  # stored, but nobody says so
                node = connection.node
                node.answer = lambda payload: UNKNOWN
                asyncio.get_running_loop().call_later(0.02, setattr, node, "answer", lambda payload: ACCEPTED)
                return False
            return True
        return False

    for node in pair:
        node.after_transfers = sometimes_silent
    options = ProducerOptions(idempotent=True)
    servers = [node.address for node in pair]
    expected: list[bytes] = []
    async with (
        asyncio.timeout(60),
        ProducerClient(servers, "trades", options) as producer,
        impatient(producer, patience_s=0.1),
    ):
        for n in range(25):
            batch = await producer.create_batch(partition="0")
            bodies = [b"%d:%d" % (n, m) for m in range(20)]
            for body in bodies:
                batch.add(body)
            while not batch.is_published:
                with contextlib.suppress(UndeliveredError):
                    await producer.send_batch(batch)
            expected += bodies
    assert pair[0].log.bodies("0") == expected, f"seed {seed}"
