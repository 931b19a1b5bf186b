"""Transactions over partitions that three nodes lead, as clients declare and discharge them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.amqp import Accepted, Transactional, decode_message
from tests.unit.listener.support.cluster import ListenerCluster
from tests.unit.listener.support.peer import Peer, message
from tests.unit.listener.support.reading import start_at
from tests.unit.listener.support.transacting import Control, send_under, why

PARTITIONS = 4
UNKNOWN_ID = "amqp:transaction:unknown-id"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ListenerCluster]:
    async with ListenerCluster(tmp_path) as three:
        await three.create("trades", partitions=PARTITIONS)
        yield three


async def read(cluster: ListenerCluster, node: int = 1, *, expected: int) -> dict[str, list[bytes]]:
    """What a committed reader has of each partition when it has come to the end, through one node."""
    found: dict[str, list[bytes]] = {}
    async with Peer(cluster.ports[node]) as peer:
        for number in range(PARTITIONS):
            link = await peer.receiver(start_at("trades", "@earliest"), str(number))
            link.drain(1000)
            await peer.flush()
            await peer.until(lambda link=link: link.credit == 0)
            found[str(number)] = [_body(payload) for payload in peer.received.get(link, [])]
    assert sum(map(len, found.values())) == expected, found
    return found


def _body(payload: bytes) -> bytes:
    body: Any = decode_message(payload).body
    return bytes(body)


async def test_what_is_committed_appears_in_all_partitions_and_what_is_aborted_in_none(
    cluster: ListenerCluster,
) -> None:
    async with Peer(cluster.ports[1]) as peer:
        control = await Control.attach(peer)
        senders = [await peer.sender("trades", str(number)) for number in range(PARTITIONS)]
        txn = await control.declare()
        for number, sender in enumerate(senders):
            assert await send_under(peer, sender, txn, [b"%d" % number, b"and %d" % number]) == [Accepted()] * 2
        await read(cluster, expected=0)
        await control.committed(txn)
        stored = await read(cluster, 2, expected=8)
        assert stored == {str(number): [b"%d" % number, b"and %d" % number] for number in range(PARTITIONS)}

        txn = await control.declare()
        for sender in senders:
            assert await send_under(peer, sender, txn, [b"never"]) == [Accepted()]
        await control.aborted(txn)
        await asyncio.gather(*(read(cluster, node, expected=8) for node in cluster.nodes))


async def test_what_many_links_send_at_once_goes_into_the_partition_in_one_line(cluster: ListenerCluster) -> None:
    """Each link's message is a batch of its own; those behind the first wait for its answer."""
    async with Peer(cluster.ports[1]) as peer:
        control = await Control.attach(peer)
        senders = [await peer.sender("trades", "0") for _ in range(8)]
        txn = await control.declare()
        for turn in range(3):
            for number, sender in enumerate(senders):
                sender.send_many([message(b"%d of %d" % (turn, number))], txn_id=txn)
            await peer.flush()
        await control.committed(txn)
        outcomes = [state for sender in senders for _, state in peer.outcomes[sender]]
        assert outcomes == [Transactional(txn, Accepted())] * 24
        stored = await read(cluster, 2, expected=24)
        assert sorted(stored["0"]) == sorted(b"%d of %d" % (turn, number) for turn in range(3) for number in range(8))


@pytest.mark.parametrize("settled", [False, True])
async def test_a_message_that_its_link_does_not_take_rolls_back(cluster: ListenerCluster, settled: bool) -> None:
    """The link is closed over it, but the transaction is of the connection; its client may commit all the same."""
    async with Peer(cluster.ports[1], max_frame_size=1 << 20) as peer:
        control = await Control.attach(peer)
        sender, other = await peer.sender("trades", "0"), await peer.sender("trades", "1")
        txn = await control.declare()
        assert await send_under(peer, other, txn, [b"good"]) == [Accepted()]
        sender.send_many([message(bytes(5 << 20))], settled, txn_id=txn)
        await peer.flush()
        assert why(await control.commit(txn)) == "amqp:transaction:rollback"
        await read(cluster, expected=0)


async def test_a_transaction_that_was_discharged_is_unknown(cluster: ListenerCluster) -> None:
    async with Peer(cluster.ports[2]) as peer:
        control = await Control.attach(peer)
        sender = await peer.sender("trades", "0")
        txn = await control.declare()
        await send_under(peer, sender, txn, [b"one"])
        await control.committed(txn)
        assert why(await control.commit(txn)) == UNKNOWN_ID
        assert why(await control.abort(b"nobody's")) == UNKNOWN_ID
        (late,) = await send_under(peer, sender, txn, [b"late"])
        assert why(late) == UNKNOWN_ID
        await read(cluster, expected=1)


async def test_what_waits_behind_the_first_message_of_a_partition_keeps_its_place(cluster: ListenerCluster) -> None:
    """Messages that come one by one, each before the one in front of it is answered."""
    async with Peer(cluster.ports[1]) as peer:
        control = await Control.attach(peer)
        sender = await peer.sender("trades", "2")
        txn = await control.declare()
        for number in range(20):
            sender.send_many([message(b"%d" % number)], txn_id=txn)
            await peer.flush()
            await asyncio.sleep(0)
        await peer.until(lambda: len(peer.outcomes.get(sender, [])) == 20)
        assert {state.outcome for _, state in peer.outcomes[sender]} == {Accepted()}  # type: ignore[attr-defined]
        await control.committed(txn)
        stored = await read(cluster, expected=20)
        assert stored["2"] == [b"%d" % number for number in range(20)]
