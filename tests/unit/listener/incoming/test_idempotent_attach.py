"""Attaching as an idempotent producer: what is granted, filled in, or refused by name (IS-6, 7, 9)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from proton import Message as StockMessage
from proton.reactor import LinkOption
from proton.utils import BlockingConnection, SendException
from proton.utils import LinkDetached as LinkDetachedError

from holdfast import protocol
from holdfast.amqp import (
    Described,
    LinkOpened,
    Value,
    decode_message,
    int32,
    short,
    symbol,
    ubyte,
    uint,
    ulong,
)
from node.partition.idempotence.producer_state import ALLOCATED_FROM
from tests.unit.amqp.wire import AMQP_HEADER, frame, frames
from tests.unit.listener.support.peer import Peer
from tests.unit.listener.support.producing import (
    ARGUMENT_ERROR,
    EPOCH,
    ID,
    OUT_OF_RANGE,
    SEQUENCE,
    attached,
    events,
    granted,
    open_producer,
    refusal,
    terms,
)
from tests.unit.listener.support.single import SingleNode


async def test_who_states_nothing_is_granted_everything(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        link = await attached(peer)
        producer, epoch, last = granted(link)
        assert ALLOCATED_FROM <= producer < 2 * ALLOCATED_FROM
        assert (epoch, last) == (0, 0)
        types = [type(link.remote_properties[name]).__name__ for name in (ID, EPOCH, SEQUENCE)]
        assert types == ["int", "short", "int32"], "a long, a short, an int"
        assert link.remote_properties["event-streams-partition"] == "0"
        other = await attached(peer)
        assert granted(other)[0] != producer


async def test_the_capability_alone_asks_for_everything(node: SingleNode) -> None:
    """As .NET attaches at first: no property, a symbol that proton neither sends nor shows."""
    properties = {symbol("event-streams-partition"): symbol("0")}
    attach = [
        "raw", uint(0), False, ubyte(0), ubyte(0), Described(ulong(0x28), []), Described(ulong(0x29), ["trades"]),
        None, None, uint(0), None, None, symbol("com.microsoft:idempotent-producer"), properties,
    ]  # fmt: skip
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    begin = frame(0, 0x11, [None, uint(0), uint(2048), uint(2048)])
    writer.write(AMQP_HEADER + frame(0, 0x10, ["raw"]) + begin + frame(0, 0x12, attach))
    data = b""
    async with asyncio.timeout(20):
        while b"producer-sequence-number" not in data:
            data += await reader.read(65536)
    writer.close()
    (answer,) = (fields for code, fields, _ in frames(data) if code == 0x12)
    assert answer[13].keys() == {"event-streams-partition", ID, EPOCH, SEQUENCE}
    assert (answer[13][EPOCH], answer[13][SEQUENCE]) == (0, 0)


async def test_unmodified_proton_publishes_with_numbers(node: SingleNode) -> None:
    class Terms(LinkOption):
        def apply(self, link: Any) -> None:
            stated = terms(None, 2, None) | {"event-streams-partition": symbol("0")}
            link.properties = {symbol(name): value for name, value in stated.items()}

    def client() -> list[str]:
        connection = BlockingConnection(node.url, timeout=20)
        sender = connection.create_sender("trades", options=[Terms()])
        producer, epoch, last = (sender.link.remote_properties[symbol(name)] for name in (ID, EPOCH, SEQUENCE))
        outcomes = []
        for number in (1, 2, 2, 3, 2):
            told = {
                symbol(ID): producer, symbol(EPOCH): short(epoch), symbol(SEQUENCE): int32(last + number)
            }  # fmt: skip
            body = f"changed {number}" if len(outcomes) == 4 else f"event {number}"
            try:
                sender.send(StockMessage(body=body, annotations=told))
                outcomes.append("accepted")
            except (SendException, LinkDetachedError) as error:
                outcomes.append(type(error).__name__)
        connection.close()
        return outcomes

    *good, changed = await asyncio.to_thread(client)
    assert good == ["accepted"] * 4
    assert changed in ("SendException", "LinkDetached"), "the rejection and the end of the link come together"
    replica = node.logs["trades"]["0"]
    bodies = [decode_message(record).body for batch in replica.read(0, 1 << 20) for record in batch.messages()]
    assert bodies == [Value(f"event {number}") for number in (1, 2, 3)]


@pytest.mark.parametrize(
    ("stated", "answer"),
    [
        ((7, None, None), (7, 0, 0)),
        ((7, 3, None), (7, 3, 0)),
        ((7, None, 40), (7, 0, 40)),
        ((2**63 - 1, 2**15 - 1, None), (2**63 - 1, 2**15 - 1, 0)),
        ((0, 0, None), (0, 0, 0)),
        ((7, None, 2**31 - 1), (7, 0, 2**31 - 1)),
    ],
)
async def test_is_9_what_is_left_open_is_filled_in(
    node: SingleNode, stated: tuple[int | None, ...], answer: tuple[int, int, int]
) -> None:
    async with Peer(node.port) as peer:
        assert granted(await attached(peer, *stated)) == answer


async def test_an_id_that_is_left_open_is_chosen_for_the_stated_epoch_and_number(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        assert granted(await attached(peer, None, 4, 30))[1:] == (4, 30)


async def test_is_6_a_past_that_is_not_known_here_is_refused(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        error = await refusal(peer, terms(7, 0, 12))
        assert error.condition == "amqp:not-allowed"
        assert "producer 7 is not known here" in (error.description or "")
        link = await attached(peer, 7, 0)
        await peer.send(link, events(7, 0, 1, "ab"))
        await peer.states(link, 2)
        assert granted(await attached(peer, 7, 0, 2)) == (7, 0, 2)


@pytest.mark.parametrize(
    ("properties", "condition"),
    [
        (terms(7, 0) | {EPOCH: -1}, OUT_OF_RANGE),  # IS-7
        (terms(7) | {EPOCH: 32768}, OUT_OF_RANGE),
        (terms(-5), OUT_OF_RANGE),
        (terms(-1), OUT_OF_RANGE),
        (terms(7, 0) | {SEQUENCE: -1}, OUT_OF_RANGE),
        (terms(7, 0) | {SEQUENCE: 2**31}, OUT_OF_RANGE),
        (terms() | {ID: "seven"}, ARGUMENT_ERROR),
        (terms() | {EPOCH: 1.5}, ARGUMENT_ERROR),
        (terms() | {SEQUENCE: True}, ARGUMENT_ERROR),
        (terms() | {SEQUENCE: [1]}, ARGUMENT_ERROR),
        ({ID: 7}, ARGUMENT_ERROR),
        ({ID: 7, EPOCH: 0}, ARGUMENT_ERROR),
        ({EPOCH: None, SEQUENCE: None}, ARGUMENT_ERROR),
    ],
    ids=repr,
)
async def test_terms_that_cannot_be_are_refused_by_name(
    node: SingleNode, properties: dict[str, Any], condition: str
) -> None:
    async with Peer(node.port) as peer:
        error = await refusal(peer, properties)
        assert error.condition == condition
        assert "com.microsoft:producer-" in (error.description or "")
        await attached(peer)  # the connection is none the worse for it


@pytest.mark.parametrize("renews", [None, False, True])
async def test_the_partition_is_told_whether_a_producer_renews_itself(node: SingleNode, renews: bool | None) -> None:
    said = {} if renews is None else {protocol.PRODUCER_RENEWS: renews}
    async with Peer(node.port) as peer:
        link = open_producer(peer, terms(7) | said)
        await peer._opened(link)
        assert [row.renews for row in node.logs["trades"]["0"]._machine.producers.rows()] == [bool(renews)]


async def test_whether_a_producer_renews_itself_is_yes_or_no(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        error = await refusal(peer, terms(7) | {protocol.PRODUCER_RENEWS: 1})
        assert error.condition == ARGUMENT_ERROR
        assert protocol.PRODUCER_RENEWS in (error.description or "")


async def test_is_7_an_epoch_of_minus_one_is_refused(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        for stated in (terms(7, -1), terms(None, -1), terms(7, -1, 5)):
            assert (await refusal(peer, stated)).condition == OUT_OF_RANGE


async def test_a_producer_needs_a_partition(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        error = await peer.refused(peer.engine.open_sender("wide", properties=terms()))
        assert error.condition == "amqp:not-allowed"
        assert "bound to a partition" in (error.description or "")


async def test_an_attach_waits_for_a_leader_and_is_refused_without_one(tmp_path: Path) -> None:
    node = await SingleNode(tmp_path, leader_wait_s=0.5).start()
    await node.create("trades")
    node.lead_elsewhere("trades", "0", None)
    async with Peer(node.port) as peer:
        held = open_producer(peer, terms(7))
        await peer.flush()
        await asyncio.sleep(0.05)
        assert not held.is_open
        node.lead_here("trades", "0")
        await peer.wait(LinkOpened, lambda event: event.link is held)
        assert granted(held) == (7, 0, 0)
        node.lead_elsewhere("trades", "0", None)
        error = await refusal(peer, terms(8))
        assert error.condition == "amqp:link:detach-forced"
    await node.stop()
