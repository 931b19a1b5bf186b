"""Broken, hostile and merely silent peers: each has a defined end, and nobody else notices."""

from __future__ import annotations

import asyncio
import random
import socket
from pathlib import Path
from typing import Any

import pytest

from holdfast import protocol
from holdfast.amqp import (
    ConnectionClosed,
    Described,
    Engine,
    LinkDetached,
    LinkRequested,
    ReceiverLink,
    Source,
    Transfers,
    encode_message,
    symbol,
    uint,
)
from holdfast.amqp import Message as Encoded
from holdfast.amqp.framing.handshake import (
    AMQP_HEADER,
    SASL_HEADER,
    frame,
    performative,
)
from tests.attacks import wire
from tests.attacks.wire import RawWire
from tests.unit.listener.support.peer import Peer, eventually, message
from tests.unit.listener.support.reading import start_at
from tests.unit.listener.support.single import SingleNode

OPEN = frame(0, performative(0x10, ["raw"]))


async def raw(port: int, *chunks: bytes, eof: bool = False) -> bytes:
    """Sends bytes on a bare socket; what comes back until the node closes it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for chunk in chunks:
        writer.write(chunk)
    if eof:
        writer.write_eof()
    async with asyncio.timeout(40):
        answer = await reader.read(-1)
    writer.close()
    return answer


@pytest.fixture
async def witness(node: SingleNode) -> Any:
    """Another connection, which must work before, during and after."""
    async with Peer(node.port) as peer:
        sender = await peer.sender("trades")
        yield sender
        await peer.send(sender, [message()])
        assert len(await peer.states(sender, 1)) == 1


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),  # a TLS greeting
        bytes(range(256)) * 300,
        b"AMQP\x00\x00\x09\x01",  # 0-9-1
        SASL_HEADER + b"\xff" * 64,
        AMQP_HEADER + b"\xff" * 64,
        AMQP_HEADER + b"\x7f\xff\xff\xff\x02\x00\x00\x00",  # a frame of 2 GiB
        AMQP_HEADER + OPEN + b"\x00\x00\x00\x08\x01\x00\x00\x00",
        AMQP_HEADER + OPEN + frame(0, performative(0x14, [uint(7)])),  # a transfer on no session
    ],
    ids=lambda data: repr(data[:12]),
)
async def test_garbage_gets_an_answer_and_a_closed_socket(node: SingleNode, witness: Any, garbage: bytes) -> None:
    answer = await raw(node.port, garbage)
    assert answer[:4] == (b"HTTP" if garbage.startswith(b"GET") else b"AMQP")
    await eventually(lambda: node.listener.counters.connections_open == 1)


@pytest.mark.parametrize("chunk", [1, 7])
async def test_any_chunking_is_the_same_to_the_node(node: SingleNode, chunk: int) -> None:
    hello = AMQP_HEADER + OPEN + frame(0, performative(0x18, []))
    answer = await raw(node.port, *[hello[at : at + chunk] for at in range(0, len(hello), chunk)])
    assert answer.startswith(AMQP_HEADER)
    assert b"AMQP_EVENT_STREAMS_V1_0" in answer


@pytest.mark.parametrize("length", [3, 8, 12, 20, 30])
async def test_a_stream_cut_anywhere_is_the_end_of_that_connection_only(
    node: SingleNode, witness: Any, length: int
) -> None:
    await raw(node.port, (AMQP_HEADER + OPEN)[:length], eof=True)
    await eventually(lambda: node.listener.counters.connections_open == 1)


async def test_who_says_nothing_is_cut(tmp_path: Path) -> None:
    node = await SingleNode(tmp_path, handshake_timeout_s=0.1).start()
    assert await raw(node.port) == b""
    assert (await raw(node.port, AMQP_HEADER))[:8] == AMQP_HEADER
    await node.stop()


async def test_who_falls_silent_is_told_so_and_who_wants_heartbeats_gets_them(tmp_path: Path) -> None:
    node = await SingleNode(tmp_path, idle_timeout_s=2.0).start()  # longer than a busy machine stands still
    await node.create("trades")
    async with Peer(node.port) as mute, Peer(node.port, idle_timeout_s=2.0) as alive:
        loop = asyncio.get_running_loop()
        started = loop.time()
        while not any(isinstance(event, ConnectionClosed) for event in mute.history):
            assert loop.time() < started + 20
            alive.engine.tick(loop.time())  # sends its heartbeats, and notices missing ones
            await alive.flush()
            await asyncio.sleep(0.02)  # time itself is what is tested
        closed = await mute.wait(ConnectionClosed)
        assert closed.error is not None
        assert closed.error.condition == "amqp:resource-limit-exceeded"
        assert not any(isinstance(event, ConnectionClosed) for event in alive.history)
    await node.stop()


async def test_too_many_connections_are_told_the_limit(tmp_path: Path) -> None:
    node = await SingleNode(tmp_path, max_connections=3).start()
    peers = [Peer(node.port) for _ in range(4)]
    for peer in peers:
        await peer.__aenter__()
    closed = await peers[3].wait(ConnectionClosed)
    assert closed.error is not None
    assert closed.error.condition == "amqp:resource-limit-exceeded"
    assert "3 connections" in (closed.error.description or "")
    await peers[0].__aexit__()
    await eventually(lambda: node.listener.counters.connections_open == 2)
    async with Peer(node.port):
        pass
    for peer in peers[1:]:
        await peer.__aexit__()
    assert node.listener.counters.connections_refused == 1
    await node.stop()


async def test_hundreds_of_connections_at_once_are_served(node: SingleNode) -> None:
    async def one(number: int) -> int:
        async with Peer(node.port) as peer:
            sender = await peer.sender("wide")
            await peer.send(sender, [message(b"%d" % number)])
            return len(await peer.states(sender, 1))

    assert sum(await asyncio.gather(*(one(number) for number in range(300)))) == 300
    await eventually(lambda: not node.listener.counters.connections_open)
    assert node.listener.counters.links_open == 0


async def test_too_many_links_are_refused_one_by_one(tmp_path: Path) -> None:
    node = await SingleNode(tmp_path, max_links_per_connection=5).start()
    await node.create("trades")
    async with Peer(node.port) as peer:
        for _ in range(5):
            await peer.sender("trades")
        error = await peer.refused(peer.engine.open_sender("trades"))
        assert error.condition == "amqp:resource-limit-exceeded"
    await node.stop()


async def test_an_oversize_message_closes_its_link_only(tmp_path: Path) -> None:
    node = await SingleNode(tmp_path, max_message_size=10_000).start()
    await node.create("trades")
    async with Peer(node.port) as peer:
        other = await peer.sender("trades")
        link = await peer.sender("trades")
        assert link.remote_max_message_size == 10_000
        await peer.send(link, [message(), message(bytes(300_000))])
        assert (await peer.refused(link)).condition == "amqp:link:message-size-exceeded"
        await peer.send(other, [message()])
        await peer.states(other, 1)
    assert node.logs["trades"]["0"].next_offset in (1, 2)  # the small one before it may have made it
    await node.stop()


async def test_messages_that_are_none_are_rejected_and_the_others_accepted(node: SingleNode) -> None:
    broken = [
        b"",
        b"hello",
        b"\x00\x53",
        b"\x00Sq\xc1\xff",
        b"\x00Sr\x40" + message(),
        b"\x00Sx\xc1\x01\x00" + message(),
    ]
    payloads = [part for bad in broken for part in (message(b"good"), bad)]
    async with Peer(node.port) as peer:
        sender = await peer.sender("trades")
        await peer.send(sender, payloads)
        states = await peer.states(sender, len(payloads))
        for number, state in enumerate(states):
            if number % 2:
                assert state.error.condition == "amqp:decode-error", payloads[number]
                assert state.error.description
            else:
                assert type(state).__name__ == "Accepted"
    assert node.logs["trades"]["0"].next_offset == len(broken)


async def test_a_key_of_a_megabyte_does_not_stop_the_node(node: SingleNode) -> None:
    from holdfast.amqp import symbol

    async with Peer(node.port) as peer:
        sender = await peer.sender("wide")
        annotations = {symbol("event-streams-group-key"): "k" * 1_000_000}
        await peer.send(sender, [encode_message(Encoded(body=b"x", message_annotations=annotations))])
        (state,) = await peer.states(sender, 1)
        assert state.error.condition == "amqp:invalid-field"


async def test_more_messages_than_credit_close_the_link(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        await peer.sender("trades")
        body = message(b"unasked")
        overrun = b""
        for number in range(3000):  # raw transfers: a client engine would hold them back
            performed = performative(0x14, [uint(0), uint(number), number.to_bytes(4, "big"), uint(0), True])
            overrun += frame(0, performed + body)
        assert peer._writer is not None
        peer._writer.write(overrun)
        detached = await peer.wait(LinkDetached)
        assert detached.error is not None
        assert detached.error.condition == "amqp:link:transfer-limit-exceeded"


async def test_the_greatest_credit_is_only_credit(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        sender = await peer.sender("trades")
        link = await peer.receiver("trades", credit=0x7FFFFFFF)
        await peer.send(sender, [message(b"%d" % number) for number in range(10)])
        await peer.until(lambda: len(peer.received.get(link, [])) == 10)


@pytest.mark.parametrize("credit", [0x80000000, 0xFFFFFFFF])
async def test_credit_that_reads_as_negative_harms_nobody(node: SingleNode, witness: Any, credit: int) -> None:
    async with Peer(node.port) as peer:
        await peer.sender("trades")
        await peer.receiver("trades")
        flow = performative(0x13, [uint(0), uint(2048), uint(0), uint(2048), uint(1), uint(0), uint(credit)])
        assert peer._writer is not None
        peer._writer.write(frame(0, flow))
        info = await peer.receiver("trades/$info", credit=1)  # answered behind the flow
        await peer.until(lambda: peer.received.get(info))
        assert not any(isinstance(event, ConnectionClosed) for event in peer.history)


async def test_a_peer_that_never_reads_costs_a_bounded_amount_and_gets_everything_later(node: SingleNode) -> None:
    limit = node.config.pending_output_bytes
    async with Peer(node.port) as writer, Peer(node.port) as reader:
        sender = await writer.sender("trades")
        link = await reader.receiver(start_at("trades", "@earliest"))
        reader.reading.clear()
        await reader.grant(link, 100_000)
        for _ in range(16):  # 64 MiB, more than all buffers between the two
            await writer.send(sender, [message(bytes(65_000))] * 64)
            await writer.states(sender, len(writer.outcomes.get(sender, [])) + 64)
        connection = max(node.listener._connections, key=lambda c: c.outlet.bytes)
        await eventually(lambda: connection.intake.write_paused)
        assert connection.outlet.bytes < limit + 1024 * 1024
        assert node.listener.counters.events_out < 1024
        reader.reading.set()
        await reader.until(lambda: len(reader.received.get(link, [])) == 1024)


async def test_answers_that_a_peer_does_not_read_are_bounded_and_not_lost(tmp_path: Path) -> None:
    """Each session that it begins and ends is an answer of some dozen bytes, and in the engine some hundred."""
    node = await SingleNode(tmp_path, pending_output_limit_bytes=300_000).start()  # the peer's buffers take 900 KB
    limit, count = node.config.pending_output_limit_bytes, 40_000
    async with RawWire(node.port) as peer:
        await peer.until(lambda: peer.seen[wire.BEGIN] >= 1)
        peer.reading.clear()
        (connection,) = node.listener._connections
        assert connection._transport is not None
        connection._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
        flood = asyncio.create_task(peer.say((wire.begin(1) + wire.end(1)) * count))
        await eventually(lambda: connection.outlet.bytes > limit)
        assert connection.outlet.bytes < 2 * limit
        peer.reading.set()
        await flood
        await peer.until(lambda: peer.seen[wire.END] >= count)
        assert not peer.ended
        assert peer.seen[wire.BEGIN] == count + 1
    await node.stop()


async def test_a_peer_that_never_settles_is_held_and_then_told(tmp_path: Path) -> None:
    node = await SingleNode(tmp_path, unsettled_deliveries=100, unsettled_stall_s=0.3).start()
    await node.create("trades")
    async with Peer(node.port) as peer:
        sender = await peer.sender("trades")
        await peer.send(sender, [message()] * 300)
        await peer.states(sender, 300)
        link = await peer.receiver(start_at("trades", "@earliest"), credit=1000)
        await peer.until(lambda: len(peer.received.get(link, [])) == 100)
        first = await peer.wait(Transfers, lambda event: event.link is link)
        link.settle(first.deliveries)  # some: the log goes on
        await peer.flush()
        await peer.until(lambda: len(peer.received[link]) == 100 + len(first.deliveries))
        error = await peer.refused(link)
        assert error.condition == "amqp:resource-limit-exceeded"
        assert "settle" in (error.description or "")
        settled = await peer.receiver(start_at("trades", "@earliest"), credit=1000, snd_settle_mode=1)
        await peer.until(lambda: len(peer.received.get(settled, [])) == 300)
    await node.stop()


async def test_what_nobody_can_store_is_not_read_beyond_a_bound(tmp_path: Path) -> None:
    """No leader, and a producer in a hurry: the socket fills, not the node; later everything is stored."""
    node = await SingleNode(tmp_path, uncommitted_bytes=1_000_000).start()
    await node.create("trades")
    async with Peer(node.port) as peer:
        sender = await peer.sender("trades")
        node.lead_elsewhere("trades", "0", None)
        await peer.send(sender, [message(bytes(65_000))] * 500)  # 32 MiB
        await eventually(lambda: node.listener.unanswered_bytes > 1_000_000)
        for _ in range(20):
            await asyncio.sleep(0.01)  # long enough for everything the kernel holds to be read, if it were
        assert node.listener.unanswered_bytes < 2_500_000
        node.lead_here("trades", "0")
        states = await peer.states(sender, 500)
        assert {type(state).__name__ for state in states} == {"Accepted"}
    assert node.logs["trades"]["0"].next_offset == 500
    assert node.listener.unanswered_bytes == 0
    await node.stop()


async def test_an_event_larger_than_the_receiver_takes_ends_that_receiver(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        sender = await peer.sender("trades")
        await peer.send(sender, [message(b"small"), message(bytes(5000))])
        await peer.states(sender, 2)
        link = await peer.receiver(start_at("trades", "@earliest"), credit=10, max_message_size=1000)
        assert (await peer.refused(link)).condition == "amqp:link:message-size-exceeded"
        assert len(peer.received[link]) == 1
        assert isinstance(link.remote_source, Source)


async def test_a_connection_that_dies_under_load_takes_nothing_with_it(node: SingleNode, witness: Any) -> None:
    for _ in range(10):
        async with Peer(node.port) as peer:
            sender = await peer.sender("trades")
            await peer.receiver(start_at("trades", "@earliest"), credit=1000)
            await peer.send(sender, [message(bytes(1000))] * 500)
            await eventually(lambda: node.listener.unanswered_bytes or peer.outcomes)
    await eventually(lambda: node.listener.counters.connections_open == 1)
    await eventually(lambda: node.listener.unanswered_bytes == 0)
    assert node.listener.output_bytes == 0
    assert not node.logs["trades"]["0"]._readers


def session_bytes() -> bytes:
    """What a well-behaved client says from its first byte to its close, with transfers, flows and filters in it."""
    server, client = Engine("server", container_id="s"), Engine("client", container_id="c")
    said = b""

    def exchange() -> None:
        nonlocal said
        for _ in range(6):
            while data := client.data_to_send():
                said += data
                server.receive(data)
            for event in server.events():
                if isinstance(event, LinkRequested):
                    event.link.accept()
                    if isinstance(event.link, ReceiverLink):
                        event.link.grant(100)
            while data := server.data_to_send():
                client.receive(data)
            client.events()

    client.open()
    exchange()
    sender = client.open_sender("trades")
    client.open_receiver(start_at("trades", "@earliest")).grant(10)
    exchange()
    sender.send_many([message(b"%d" % number) for number in range(20)])
    sender.send_many([encode_message(Encoded(body=b"k", message_annotations={"event-streams-group-key": "k"}))])
    exchange()
    client.close()
    exchange()
    return said


@pytest.mark.parametrize("seed", range(40))
async def test_a_good_session_with_bad_bytes_in_it_ends_somehow_and_alone(
    node: SingleNode, witness: Any, seed: int
) -> None:
    rng = random.Random(seed)
    data = bytearray(session_bytes())
    for _ in range(rng.choice([1, 2, 5, 20])):
        data[rng.randrange(8, len(data))] = rng.randrange(256)
    cut = rng.randrange(len(data)) if rng.random() < 0.3 else len(data)
    await raw(node.port, bytes(data[:cut]), eof=True)
    await eventually(lambda: node.listener.counters.connections_open == 1)
    assert not node.errors, f"seed {seed}"


@pytest.mark.parametrize("partition", ["0", None], ids=["bound", "agnostic"])
@pytest.mark.parametrize("receives", [False, True], ids=["sender", "receiver"])
async def test_a_link_whose_terms_cannot_be_said_back_is_refused_and_others_go_on(
    node: SingleNode, partition: str | None, receives: bool
) -> None:
    """A described value in a described value is good AMQP, which the library below cannot send."""
    garbled = {symbol("x"): [Described(symbol("a"), Described(symbol("b"), 1)), symbol("c")]}
    bound = None if partition is None else {symbol(protocol.LINK_PARTITION): symbol(partition)}
    async with asyncio.timeout(60), RawWire(node.port) as peer:
        await peer.say(wire.attach("bad", 0, "trades", receives=receives, filters=garbled, properties=bound))
        await peer.until(lambda: peer.seen[wire.DETACH] == 1)
        await peer.say(wire.detach(0) + wire.attach("good", 1, "trades", properties=bound))
        await peer.until(lambda: peer.seen[wire.FLOW] >= 1)
        assert peer.seen[wire.ATTACH] == 2
        assert not peer.seen[wire.CLOSE]
        (connection,) = node.listener._connections
        assert len(connection.endpoints) == 1
