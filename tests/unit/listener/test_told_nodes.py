"""A node's open tells of other nodes, and is never longer than a peer of any kind can take."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import protocol
from holdfast.amqp import ConnectionClosed, ConnectionOpened, Engine
from node.listener.broker_interface import AmqpAddress
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
