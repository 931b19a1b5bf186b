"""Partitions led elsewhere: gateways for who cannot follow, redirects for who can, leaders that move."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from proton import Delivery, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container
from proton.utils import BlockingConnection

from holdfast.amqp import ACCEPTED, Drained, Modified, Source, decode_message, symbol
from tests.unit.listener.support.cluster import ListenerCluster
from tests.unit.listener.support.peer import Peer, eventually, message
from tests.unit.listener.support.reading import place, start_at
from tests.unit.listener.support.stock import WAIT_S, from_offset

REDIRECT = "amqp:link:redirect"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ListenerCluster]:
    async with ListenerCluster(tmp_path) as three:
        await three.create("trades")
        yield three


async def test_a_stock_client_reaches_a_partition_through_any_node(cluster: ListenerCluster) -> None:
    def produce_and_consume(port: int, body: str) -> list[Any]:
        connection = BlockingConnection(f"amqp://127.0.0.1:{port}", timeout=WAIT_S)
        connection.create_sender("trades").send(Message(body=body))
        receiver = connection.create_receiver("trades", credit=10, options=[from_offset("@earliest")])
        found = []
        while not found or found[-1] != body:
            found.append(receiver.receive(timeout=WAIT_S).body)
            receiver.accept()
        connection.close()
        return found

    for number, port in cluster.ports.items():
        found = await asyncio.to_thread(produce_and_consume, port, f"through {number}")
        assert found == [f"through {earlier}" for earlier in range(1, number + 1)]


async def test_latest_through_a_gateway_misses_nothing_that_follows_the_attach(cluster: ListenerCluster) -> None:
    leader = cluster.leader("trades")
    async with Peer(cluster.ports[leader]) as producer, Peer(cluster.ports[cluster.other_than(leader)]) as consumer:
        sender = await producer.sender("trades")
        for turn in range(20):
            await producer.send(sender, [message(b"%d" % turn)])  # not awaited: some land before the attach
            link = await consumer.receiver("trades", credit=100)
            await producer.send(sender, [message(b"after %d" % turn)])
            await producer.states(sender, 2 * turn + 2)
            await consumer.until(lambda link=link: len(consumer.received.get(link, [])) >= 1)
            bodies = [decode_message(payload).body for payload in consumer.received[link]]
            assert b"after %d" % turn in bodies or bodies == [b"%d" % turn]
            link.close()
            await consumer.flush()


async def test_the_redirect_leads_to_the_leader(cluster: ListenerCluster) -> None:
    leader = cluster.leader("trades")
    async with Peer(cluster.ports[cluster.other_than(leader)], desired=(REDIRECT,)) as peer:
        error = await peer.refused(
            peer.engine.open_sender("trades", properties={"event-streams-partition": symbol("0")})
        )
        assert (error.condition, error.info["network-host"]) == (REDIRECT, "127.0.0.1")
        assert error.info["port"] == cluster.ports[leader]
    async with Peer(int(error.info["port"]), desired=(REDIRECT,)) as peer:
        sender = await peer.sender(str(error.info["address"]), "0")
        await peer.send(sender, [message()])
        assert await peer.states(sender, 1) == [ACCEPTED]


async def test_leaders_move_under_a_stock_sender_and_receiver_unnoticed(cluster: ListenerCluster) -> None:
    """Through node 1, which leads at times and at times does not: nothing is lost, doubled, reordered or refused."""
    loop = asyncio.get_running_loop()
    count = 3000

    class Both(MessagingHandler):
        def __init__(self) -> None:
            super().__init__(prefetch=200)
            self.sent = 0
            self.outcomes: list[int] = []
            self.bodies: list[int] = []
            self.offsets: list[int] = []

        def on_start(self, event: Any) -> None:
            self.connection = event.container.connect(f"amqp://127.0.0.1:{cluster.ports[1]}")
            event.container.create_receiver(self.connection, "trades")

        def on_link_opened(self, event: Any) -> None:
            if event.link.is_receiver:
                event.container.create_sender(self.connection, "trades")

        def on_sendable(self, event: Any) -> None:
            self.send(event.sender)

        def send(self, sender: Any) -> None:
            while sender.credit and self.sent < min(count, len(self.outcomes) + 100):
                sender.send(Message(body=self.sent))
                self.sent += 1

        def on_settled(self, event: Any) -> None:
            if event.link.is_sender:
                self.outcomes.append(int(event.delivery.remote_state))
                self.send(event.link)

        def on_message(self, event: Any) -> None:
            self.bodies.append(event.message.body)
            self.offsets.append(int(event.message.instructions["event-streams-offset"], 16))
            if len(self.bodies) == count:
                self.connection.close()

    handler = Both()
    await cluster.move("trades", "0", 1)
    running = loop.run_in_executor(None, Container(handler).run)
    target = 2
    while not running.done():
        progress = len(handler.bodies)
        await cluster.move("trades", "0", target)
        target = 1 if target != 1 else 3
        wanted = min(progress + 300, count)
        await eventually(lambda wanted=wanted: running.done() or len(handler.bodies) >= wanted)
    await running
    assert set(handler.outcomes) <= {int(Delivery.ACCEPTED)}
    assert handler.bodies == list(range(count))
    assert handler.offsets == sorted(set(handler.offsets))


async def test_a_lost_leader_leaves_no_doubt_about_any_delivery(cluster: ListenerCluster) -> None:
    """Through a gateway: each delivery is accepted (then it is in the log), or unknown, and the order is kept."""
    victim = cluster.leader("trades")
    async with Peer(cluster.ports[cluster.other_than(victim)]) as peer:
        understands = Source(outcomes=("amqp:modified:list",))
        sender = await peer.sender("trades", source=understands)
        losing: asyncio.Task[None] | None = None
        for number in range(400):
            await peer.until(lambda: sender.credit > 0)
            await peer.send(sender, [message(b"%04d" % number)])
            if number == 200:
                losing = asyncio.create_task(cluster.lose(victim))
            if number % 10 == 0:
                await asyncio.sleep(0.002)  # spread them over the change of leader
        states = await peer.states(sender, 400)
        assert losing is not None
        await losing
        assert {type(state) for state in states} <= {type(ACCEPTED), Modified}
        link = await peer.receiver(start_at("trades", "@earliest"), credit=1000)
        accepted = [b"%04d" % number for number, state in enumerate(states) if state is ACCEPTED]
        await peer.until(lambda: len(peer.received.get(link, [])) >= len(accepted))
        bodies = [decode_message(payload).body for payload in peer.received[link]]
        assert [body for body in bodies if body in set(accepted)] == accepted
        assert bodies == sorted(set(bodies))
        assert [place(payload)[1] for payload in peer.received[link]] == list(range(len(bodies)))


async def test_who_knows_streams_is_not_given_later_acceptances_after_a_doubt(cluster: ListenerCluster) -> None:
    """The link ends with the doubt; what was accepted is a prefix, so resending the rest keeps the order."""
    victim = cluster.leader("trades")
    async with Peer(cluster.ports[cluster.other_than(victim)], desired=("AMQP_EVENT_STREAMS_V1_0",)) as peer:
        sender = await peer.sender("trades")  # agnostic: served through the gateway
        losing: asyncio.Task[None] | None = None
        number = 0
        while sender.is_open and number < 20_000:
            if sender.credit > 0:
                await peer.send(sender, [message(b"%05d" % number)])
                number += 1
                if number == 300:
                    losing = asyncio.create_task(cluster.lose(victim))
            if number % 10 == 0 or not sender.credit:
                await asyncio.sleep(0.001)
        assert losing is not None
        await losing
        states = await peer.states(sender, number) if sender.is_open else [s for _, s in sorted(peer.outcomes[sender])]
        kinds = [state is ACCEPTED for state in states]
        assert kinds == sorted(kinds, reverse=True), "something was accepted behind something that was not"
        if not all(kinds):
            assert (await peer.refused(sender)).condition == "amqp:link:detach-forced"


async def test_info_is_the_leaders_word_on_every_node(cluster: ListenerCluster) -> None:
    leader = cluster.leader("trades")
    for number, port in cluster.ports.items():
        async with Peer(port) as peer:
            sender = await peer.sender("trades")
            await peer.send(sender, [message()])
            await peer.states(sender, 1)
            link = await peer.receiver("trades/$info", credit=1)
            await peer.until(lambda peer=peer, link=link: peer.received.get(link))
            body: Any = decode_message(peer.received[link][0]).body
            (entry,) = body.value["partitions"]
            assert entry["latest-offset"] == f"{number - 1:016x}"
            assert (entry["leader"], sorted(entry["replicas"])) == (leader, [1, 2, 3])


async def test_drain_through_a_gateway_waits_for_what_is_on_its_way(cluster: ListenerCluster) -> None:
    leader = cluster.leader("trades")
    async with Peer(cluster.ports[cluster.other_than(leader)]) as peer:
        sender = await peer.sender("trades")
        await peer.send(sender, [message(b"%d" % number) for number in range(500)])
        await peer.states(sender, 500)
        for _ in range(5):
            link = await peer.receiver(start_at("trades", "@earliest"))
            link.drain(1000)
            await peer.flush()
            await peer.wait(Drained, lambda event, link=link: event.link is link)
            assert len(peer.received[link]) == 500


async def test_a_read_that_fails_for_good_at_the_leader_ends_the_link(cluster: ListenerCluster) -> None:
    leader = await cluster.settled_leader("trades")

    def defective(*_: Any, **__: Any) -> Any:
        raise TypeError("a defect")

    cluster.broker(leader).handle("trades", "0").open_reader = defective
    async with Peer(cluster.ports[cluster.other_than(leader)]) as consumer:
        error = await consumer.refused(await consumer.receiver("trades", "0", credit=1))
        assert error.condition == "amqp:internal-error"
        assert f"node {leader}" in error.description
        assert "a defect" in error.description
        await consumer.sender("trades", "0")  # the connection goes on
