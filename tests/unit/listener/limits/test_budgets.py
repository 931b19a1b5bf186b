"""What a peer may make a node hold, and what happens to whoever wants more: links first, then the connection."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from holdfast.amqp import ConnectionClosed, LinkDetached, Message, SenderLink, encode_message, symbol
from holdfast.amqp.links.memory_accounting import DELIVERY_BYTES, LINK_BYTES
from node.listener.attach import attach_queue
from node.listener.connections.connection import Connection
from node.listener.limits.fair_scheduling import Turns
from node.listener.outgoing.consumer_groups.owned_partition import OwnedPartition
from tests.attacks import wire
from tests.attacks.wire import RawWire
from tests.unit.listener.support.consuming import terms
from tests.unit.listener.support.peer import Peer, eventually, message
from tests.unit.listener.support.reading import fill, start_at
from tests.unit.listener.support.single import SingleNode

LIMIT = "amqp:resource-limit-exceeded"


async def small(path: Path, **config: Any) -> SingleNode:
    node = await SingleNode(path, **{"held_bytes": 1024 * 1024, **config}).start()
    await node.create("trades")
    return node


async def test_unfinished_messages_end_their_links_and_leave_nothing(tmp_path: Path) -> None:
    node = await small(tmp_path)
    async with Peer(node.port) as honest, Peer(node.port) as peer:
        sender = await honest.sender("trades")
        links = [await peer.sender("trades") for _ in range(12)]
        assert peer._writer is not None
        for number in range(20):
            for handle in range(len(links)):
                peer._writer.write(wire.transfer(handle, handle + number * 0, bytes(10_000), more=True))
            await peer._writer.drain()
        last = peer.engine.open_sender("trades")  # answered behind all that
        await peer.flush()
        await peer.until(lambda: peer.engine.closed or any(getattr(one, "link", None) is last for one in peer.history))
        ended = (event for event in peer.history if isinstance(event, LinkDetached) and event.link is not last)
        detached = next(ended, None)
        assert detached is not None, "all of it was taken, and nobody complained"
        assert detached.error is not None
        assert detached.error.condition == LIMIT
        assert "finish messages" in (detached.error.description or "")
        assert node.listener.accounts.node.held < 1.5 * 1024 * 1024
        await honest.send(sender, [message(bytes(200_000))])  # unfinished for a while as well
        await honest.states(sender, 1)
    await eventually(lambda: not node.listener.counters.connections_open)
    assert node.listener.accounts.node.held == 0
    assert node.listener.accounts.users == 0
    await node.stop()


async def test_links_with_long_properties_are_refused_one_by_one_and_whoever_goes_on_is_closed(tmp_path: Path) -> None:
    node = await small(tmp_path)
    properties = {symbol("x"): "x" * 10_000}
    async with Peer(node.port) as peer, Peer(node.port) as honest:
        sender = await honest.sender("trades")
        refusals = 0
        for _ in range(100):
            peer.engine.open_sender("trades", properties=properties)
        await peer.flush()
        closed = await peer.wait(ConnectionClosed)
        refusals = sum(isinstance(event, LinkDetached) for event in peer.history)
        assert 0 < refusals < 60
        assert closed.error is not None
        assert closed.error.condition == LIMIT
        assert "after refusals" in (closed.error.description or "")
        await honest.send(sender, [message()])
        await honest.states(sender, 1)
    await node.stop()


async def test_a_link_that_is_detached_makes_room(tmp_path: Path) -> None:
    node = await small(tmp_path)
    properties = {symbol("x"): "x" * 10_000}
    async with Peer(node.port) as peer:
        for _ in range(60):  # three times what fits at once
            link = peer.engine.open_sender("trades", properties=properties)
            await peer._opened(link)
            link.close()
            await peer.flush()
            await peer.wait(LinkDetached, lambda event, link=link: event.link is link)
        (connection,) = node.listener._connections
        assert connection.engine.kept_bytes < LINK_BYTES
    await node.stop()


async def test_receivers_that_settle_nothing_wait_and_get_all_once_they_do(tmp_path: Path) -> None:
    node = await small(tmp_path, held_bytes=600_000)
    async with Peer(node.port) as peer:
        await fill(peer, 400)
        links = [await peer.receiver(start_at("trades", "@earliest")) for _ in range(10)]
        for link in links:
            await peer.grant(link, 100_000)
        connection = max(node.listener._connections, key=lambda one: one.engine.kept_bytes)
        await eventually(lambda: connection.room_to_keep() < DELIVERY_BYTES)
        assert sum(link.unsettled for link in connection.endpoints if isinstance(link, SenderLink)) < 800  # of 4000
        await peer.sender("trades")
        settled: Counter[Any] = Counter()

        async def settle() -> None:
            done = 0
            while sum(settled.values()) < 4000:
                events = [event for event in peer.history if hasattr(event, "deliveries") and event.deliveries]
                for event in events[done:]:
                    event.link.settle(event.deliveries)
                    settled[event.link] += len(event.deliveries)
                done = len(events)
                await peer.flush()
                peer._news.clear()
                await asyncio.wait([asyncio.ensure_future(peer._news.wait())], timeout=0.05)

        async with asyncio.timeout(90):
            await settle()
        assert set(settled.values()) == {400}
    await node.stop()


async def test_refused_links_that_are_never_detached_are_bounded(tmp_path: Path) -> None:
    node = await small(tmp_path, max_links_per_connection=5, held_bytes=16 * 1024 * 1024)
    async with RawWire(node.port) as peer:
        await peer.say(b"".join(wire.attach(f"l{n}", n, "trades") for n in range(50)))
        await peer.until(lambda: False)
        assert peer.seen[wire.CLOSE] == 1
        assert peer.seen[wire.ATTACH] <= 11
    await node.stop()


class Gauge:
    """How many calls of a method are under way at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        self.now = self.most = self.calls = 0
        whole = getattr(owner, name)

        async def counted(*given: Any) -> Any:
            self.calls += 1
            self.now += 1
            self.most = max(self.most, self.now)
            try:
                return await whole(*given)
            finally:
                self.now -= 1

        monkeypatch.setattr(owner, name, counted)


async def test_groups_come_and_go_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attaching = Gauge(monkeypatch, attach_queue.AttachQueue, "_until_answered")
    answering = Gauge(monkeypatch, Turns, "until_answer")
    node = await small(tmp_path, held_bytes=16 * 1024 * 1024)
    async with Peer(node.port) as peer:
        links = [
            peer.engine.open_receiver(start_at("trades", "@earliest"), properties=terms(f"g{number}"))
            for number in range(60)
        ]
        await peer.flush()
        for link in links:
            await peer._opened(link)
        assert attaching.most == attach_queue.UNDER_WAY
        assert answering.calls == 60
        leaving = Gauge(monkeypatch, OwnedPartition, "_ask")
    await eventually(lambda: leaving.calls == 60 and not leaving.now)
    assert leaving.most == attach_queue.LETTING_GO
    await node.stop()


async def test_attaches_that_cannot_be_answered_yet_are_not_taken_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peer's input waits, and goes on when they were answered."""
    may_go_on = asyncio.Event()

    async def until_answer(turns: Turns) -> None:
        await may_go_on.wait()

    monkeypatch.setattr(Turns, "until_answer", until_answer)
    node = await small(tmp_path, held_bytes=16 * 1024 * 1024)
    async with Peer(node.port) as peer:
        links = [
            peer.engine.open_receiver(start_at("trades", "@earliest"), properties=terms(f"g{number}"))
            for number in range(200)
        ]
        await peer.flush()
        (connection,) = node.listener._connections
        await eventually(lambda: connection.attaches.is_full and connection.intake.waits)
        known = len(connection.engine._links)
        assert attach_queue.WAITING < known < 100
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(connection.engine._links) == known
        may_go_on.set()
        for link in links:
            await peer._opened(link)
    await node.stop()


async def test_receivers_that_wait_for_a_partition_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attach_queue, "HELD", 3)
    node = await small(tmp_path, group_full="hold", group_hold_s=60.0)
    async with Peer(node.port) as peer:
        for _ in range(6):
            peer.engine.open_receiver(start_at("trades", "@earliest"), properties=terms("g", partition=None))
        await peer.flush()
        detached = await peer.wait(LinkDetached)
        assert detached.error is not None
        assert detached.error.condition == LIMIT
        assert "wait for partitions" in (detached.error.description or "")
    await node.stop()


async def test_answers_that_nobody_takes_are_noted_a_few_times(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast.listener")
    node = await small(tmp_path)
    asked = {"type": "log", "operation": "list"}
    request = encode_message(Message(message_id="1", reply_to="nowhere", application_properties=asked, body=b""))
    async with Peer(node.port) as peer:
        sender = await peer.sender("$management")
        for number in range(150):
            await peer.until(lambda: sender.credit)
            await peer.send(sender, [request])
            await peer.states(sender, number + 1)
        await eventually(lambda: len(node.requests) == 150)
    lines = [record for record in caplog.records if "nowhere" in record.getMessage()]
    assert 0 < len(lines) <= 50
    await node.stop()


async def test_input_that_waits_for_its_turn_is_not_read_further_and_is_taken_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every turn is over at once: all that is left is one piece a turn."""
    monkeypatch.setattr(Turns, "input_over", property(lambda turns: True))
    node = await small(tmp_path)
    async with Peer(node.port) as peer:
        sender = await peer.sender("trades")
        await peer.send(sender, [message(b"%d" % number * 3000) for number in range(1000)])
        await peer.states(sender, 1000)
        link = await peer.receiver(start_at("trades", "@earliest"), credit=1000)
        await peer.until(lambda: len(peer.received.get(link, [])) == 1000)
        assert [payload[-6:] for payload in peer.received[link]][:3] == [b"000000", b"111111", b"222222"]
        connection: Connection = max(node.listener._connections, key=lambda one: one.heard_bytes)
        assert not connection.intake.waits
        assert not connection.intake.read_paused
    await node.stop()


@pytest.mark.parametrize("limit", ["UNOPENED_CONNECTIONS", "UNOPENED_FROM_ONE_ADDRESS"])
async def test_who_does_not_open_makes_room_for_those_who_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(f"node.listener.limits.unauthenticated_connections.{limit}", 5)
    node = await small(tmp_path)
    idle = [await asyncio.open_connection("127.0.0.1", node.port) for _ in range(8)]
    async with Peer(node.port) as peer:
        assert await idle[0][0].read() == b""
        sender = await peer.sender("trades")
        await peer.send(sender, [message()])
        await peer.states(sender, 1)
    for _, writer in idle:
        writer.close()
    await node.stop()


@pytest.mark.parametrize(
    "said",
    [
        wire.AMQP_HEADER + wire.opening()[8:][-40:],  # a begin, or a part of one, before the open
        wire.AMQP_HEADER + wire.attach("l", 0, "trades"),
        wire.AMQP_HEADER + wire.frame(0, wire.performative(wire.OPEN, ["x" * 100_000])),
    ],
    ids=["session", "link", "hundred-kilobytes"],
)
async def test_before_the_open_there_is_no_session_no_link_and_little_room(tmp_path: Path, said: bytes) -> None:
    node = await small(tmp_path)
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    writer.write(said)
    async with asyncio.timeout(60):
        await reader.read(-1)
    writer.close()
    await eventually(lambda: not node.listener.counters.connections_open)
    assert node.listener.counters.links_total == 0
    await node.stop()
