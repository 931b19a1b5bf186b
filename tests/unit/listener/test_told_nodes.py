"""A node's open tells of other nodes, and is never longer than a peer of any kind can take."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import protocol
from holdfast.amqp import ConnectionClosed, ConnectionOpened, Engine, Source, Value, decode_message
from node.listener.broker_interface import AmqpAddress
from tests.unit.listener.support.peer import Peer
from tests.unit.listener.support.single import SingleNode

SMALLEST_FRAME = 512
"""What each peer takes before it has said what else (AMQP 1.0, 2.4.1)."""


async def opened(node: SingleNode) -> tuple[Engine, int]:
    """The peer that the node has opened to, and the bytes of what the node said."""
    peer = Engine("client", container_id="told")
    peer.open()
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    heard = 0
    async with asyncio.timeout(60):
        while not any(isinstance(event, ConnectionOpened) for event in peer.events()):
            writer.write(peer.data_to_send())
            data = await reader.read(65536)
            heard += len(data)
            peer.receive(data)
    writer.close()
    return peer, heard


@pytest.mark.parametrize(("characters", "told"), [(9, 6), (100, 1), (253, 0)])
async def test_an_open_fits_into_the_smallest_frame(node: SingleNode, characters: int, told: int) -> None:
    for number in range(2, 32):
        host = f"{number:x}".rjust(characters, "h")
        node.addresses[number] = AmqpAddress(f"n{number}", host, 5672)
    peer, heard = await opened(node)
    assert len(peer.remote_properties[protocol.OPEN_NODES]) >= told
    assert heard <= SMALLEST_FRAME + 8


async def test_a_name_that_is_the_host_itself_is_not_told_twice(node: SingleNode) -> None:
    node.addresses[2] = AmqpAddress("h2", "h2", 5672)
    peer, _ = await opened(node)
    assert peer.remote_properties[protocol.OPEN_NODES] == [["h2", 5672, ""]]


async def test_a_node_that_stops_tells_of_those_that_came_since(node: SingleNode) -> None:
    """In an error that fits into the smallest frame, too."""
    peer = Engine("client", container_id="told", max_frame_size=SMALLEST_FRAME)
    peer.open()
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    stopping: asyncio.Task[None] | None = None
    async with asyncio.timeout(60):
        while True:
            writer.write(peer.data_to_send())
            peer.receive(await reader.read(65536))
            for event in peer.events():
                if isinstance(event, ConnectionOpened):
                    for number in range(2, 32):
                        node.addresses[number] = AmqpAddress(f"n{number}", f"h{number}", 5672)
                    stopping = asyncio.create_task(node.listener.stop())
                elif isinstance(event, ConnectionClosed):
                    assert event.error is not None
                    assert ["h2", 5672, "n2"] in event.error.info[protocol.OPEN_NODES]
                    writer.write(peer.data_to_send())
                    writer.close()
                    assert stopping is not None
                    await stopping
                    return


async def lists(peer: Peer, link: Any, count: int) -> list[Any]:
    """The first so many lists of nodes that have come by a link."""
    await peer.until(lambda: len(peer.received.get(link, [])) >= count)
    return [decode_message(payload).body for payload in peer.received[link]]


async def test_a_link_tells_of_the_nodes_and_of_those_that_come_and_go(node: SingleNode) -> None:
    node.addresses[2] = AmqpAddress("n2", "h2", 5672)
    async with Peer(node.port) as peer:
        link = await peer.receiver(protocol.NODES_ADDRESS, credit=10)
        assert await lists(peer, link, 1) == [Value([["h2", 5672, "n2"]])]
        node.ring()  # of a leader that has changed
        await peer.receiver(Source(dynamic=True))  # its answer comes behind what that would send
        assert len(peer.received[link]) == 1
        node.addresses[3] = AmqpAddress("h3", "h3", 5672)
        node.ring()
        assert await lists(peer, link, 2) == [
            Value([["h2", 5672, "n2"]]),
            Value([["h2", 5672, "n2"], ["h3", 5672, ""]]),
        ]
        del node.addresses[2], node.addresses[3]
        node.ring()
        assert (await lists(peer, link, 3))[2:] == [Value([])]


async def test_who_grants_no_credit_is_told_the_latest_when_it_does(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        link = await peer.receiver(protocol.NODES_ADDRESS, credit=1)
        assert await lists(peer, link, 1) == [Value([])]
        for number in (2, 3):
            node.addresses[2] = AmqpAddress("", f"h{number}", 5672)
            node.ring()
        await peer.receiver(Source(dynamic=True))
        assert len(peer.received[link]) == 1
        await peer.grant(link, 10)
        assert await lists(peer, link, 2) == [Value([]), Value([["h3", 5672, ""]])]


async def test_nothing_is_sent_to_where_nodes_are_told(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        assert (await peer.refused(peer.engine.open_sender(protocol.NODES_ADDRESS))).condition == "amqp:not-found"
