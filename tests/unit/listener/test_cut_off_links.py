"""A node that is cut off: who is sent away, who stays, who is let in, and that nothing is said that is not known."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.amqp import ConnectionClosed, ConnectionOpened, Engine, Event, LinkDetached, symbol
from holdfast.client.transport import network
from holdfast.client.transport.log_info import read_info
from node.listener.attach import cut_off_links
from tests.unit.listener.support.peer import WAIT_S, Peer, eventually, message
from tests.unit.listener.support.single import SingleNode

STREAMS = "AMQP_EVENT_STREAMS_V1_0"


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[SingleNode]:
    found = await SingleNode(tmp_path).start()
    await found.create("wide", 2)
    yield found
    await found.stop()


@pytest.fixture
def _nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut_off_links, "STAYS_S", 0.0)


async def gone(peer: Peer) -> ConnectionClosed:
    return await peer.wait(ConnectionClosed)


@pytest.mark.usefixtures("_nobody_waits")
@pytest.mark.parametrize("desired", [(), (STREAMS,)])
async def test_who_sends_to_what_is_out_of_reach_loses_the_connection_and_hears_of_no_event(
    node: SingleNode, desired: tuple[str, ...]
) -> None:
    async with Peer(node.port, desired=desired) as peer:
        sender = await peer.sender("wide", "0")
        node.lead_elsewhere("wide", "0", None)
        await peer.send(sender, [message(b"waits for a leader")])
        await peer.sender("wide", "1")  # the node has taken in what came before
        node.cut_off(("wide", "0"), ("wide", "1"))
        closed = await gone(peer)
        told = closed.error is not None and closed.error.condition == "amqp:connection:forced"
        assert told == bool(desired), "some stock clients do not see a connection end behind a goodbye"
        if closed.error is not None and desired:
            assert (closed.error.description or "").startswith("this node is cut off: nodes 2 and 3 do not answer")
        if not desired:  # who knows event streams was told before that it is to send it again
            assert not peer.outcomes, "some clients take released for an error, and send again what is not answered"
        assert not [event for event in peer.history if isinstance(event, LinkDetached) and not event.local]


@pytest.mark.usefixtures("_nobody_waits")
@pytest.mark.parametrize("source", ["wide", "wide/$info"])
async def test_readers_of_all_partitions_are_sent_away_when_none_is_left(node: SingleNode, source: str) -> None:
    async with Peer(node.port, desired=(STREAMS,)) as peer:
        await peer.receiver(source)
        node.cut_off(("wide", "0"))
        await peer.receiver("wide", "1")
        node.cut_off(("wide", "0"), ("wide", "1"))
        await gone(peer)


@pytest.mark.usefixtures("_nobody_waits")
async def test_our_client_warns_of_what_the_node_knows(
    node: SingleNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(network, "WARN_S", 0.01)
    node.cut_off(("wide", "0"), ("wide", "1"))
    client = network.Network(f"127.0.0.1:{node.port}")
    asking = asyncio.create_task(read_info(client, "wide", timeout_s=3600))
    await eventually(lambda: any("this node is cut off: nodes 2 and 3" in message for message in caplog.messages))
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await client.close()
    (told, *_) = [record for record in caplog.records if "this node is cut off" in record.getMessage()]
    assert (told.name, told.levelname) == ("holdfast.client", "WARNING")
    assert not any("framing-error" in message for message in caplog.messages)


@pytest.mark.usefixtures("_nobody_waits")
async def test_an_attach_that_waits_for_a_leader_is_sent_away_with_its_connection(node: SingleNode) -> None:
    node.lead_elsewhere("wide", "0", None)
    async with Peer(node.port, desired=(STREAMS,)) as peer:
        peer.engine.open_sender("wide", properties={"event-streams-partition": symbol("0")})
        await peer.flush()
        await peer.sender("$management")
        node.cut_off(("wide", "0"), ("wide", "1"))
        await gone(peer)


@pytest.mark.usefixtures("_nobody_waits")
async def test_where_something_works_only_the_links_end_that_do_not(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        lost, kept = await peer.sender("wide", "0"), await peer.sender("wide", "1")
        node.cut_off(("wide", "0"))
        refusal = await peer.refused(lost)
        assert refusal.condition == "amqp:link:detach-forced"
        assert "this node is cut off: nodes 2 and 3 do not answer" in (refusal.description or "")
        await peer.send(kept, [message(b"goes on")])
        await peer.states(kept, 1)


@pytest.mark.usefixtures("_nobody_waits")
async def test_a_node_that_is_cut_off_can_be_looked_at(node: SingleNode) -> None:
    node.cut_off(("wide", "0"), ("wide", "1"))
    async with Peer(node.port, desired=(STREAMS,)) as peer:
        await peer.sender("$management")
        await peer.receiver("$management")
        node.ring()
        await peer.sender("$management", name="another")
        assert not [event for event in peer.history if isinstance(event, ConnectionClosed)]


async def test_who_came_to_a_node_that_was_cut_off_is_kept_for_a_while(
    node: SingleNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cut_off_links, "STAYS_S", 3600.0)
    node.cut_off(("wide", "0"), ("wide", "1"))
    async with Peer(node.port, desired=(STREAMS,)) as peer:
        link = peer.engine.open_sender("wide", properties={"event-streams-partition": symbol("0")})
        await peer.flush()
        await peer.sender("$management")
        node.ring()
        await peer.sender("$management", name="another")
        node.cut_off()
        await peer.until(lambda: link.is_open)


async def test_the_time_that_it_is_kept_ends_by_itself(node: SingleNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut_off_links, "STAYS_S", 0.05)
    node.cut_off(("wide", "0"), ("wide", "1"))
    async with Peer(node.port, desired=(STREAMS,)) as peer:
        await peer.sender("wide")  # no partition is named, so it is attached at once
        await gone(peer)


async def test_who_does_not_know_event_streams_is_let_in_only_where_something_can_be_served(node: SingleNode) -> None:
    node.cut_off(("wide", "0"))
    async with Peer(node.port) as peer:
        await peer.sender("wide", "1")
    node.cut_off(("wide", "0"), ("wide", "1"))
    assert not await opens(node.port)
    node.cut_off()
    assert await opens(node.port)


async def opens(port: int) -> bool:
    """Whether the node answers the open of a client that announces nothing; False: it has ended the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    engine = Engine("client", container_id="stranger")
    engine.open()
    heard: list[Event] = []
    try:
        async with asyncio.timeout(WAIT_S):
            while not [event for event in heard if isinstance(event, ConnectionOpened)]:
                while data := engine.data_to_send():
                    writer.write(data)
                try:
                    data = await reader.read(65536)
                except ConnectionResetError:
                    return False
                if not data:
                    return False
                engine.receive(data)
                heard += engine.events()
        return True
    finally:
        writer.transport.abort()
