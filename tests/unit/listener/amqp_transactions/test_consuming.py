"""What is received under a transaction: positions that move with its commit, events that come again after its end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.amqp import Accepted, Modified, Released, Transfers, decode_message
from holdfast.amqp.transactions import encode_discharge
from node.listener.amqp_transactions import connection_transaction
from node.partition.consumer_groups.group_queries import GroupList, GroupRow, ListGroups
from tests.unit.listener.support.cluster import ListenerCluster
from tests.unit.listener.support.consuming import attached, terms
from tests.unit.listener.support.peer import Peer
from tests.unit.listener.support.reading import fill, place, start_at
from tests.unit.listener.support.transacting import Control, accept_under, send_under, why

ROLLBACK = "amqp:transaction:rollback"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ListenerCluster]:
    async with ListenerCluster(tmp_path) as three:
        await three.create("trades")
        await three.create("totals", partitions=2)
        async with Peer(three.ports[1]) as peer:
            await fill(peer, 10)
        yield three


def offsets(peer: Peer, link: Any) -> list[int]:
    return [place(payload)[1] for payload in peer.received.get(link, [])]


def deliveries(peer: Peer, link: Any) -> list[Any]:
    return [
        one for event in peer.history if isinstance(event, Transfers) and event.link is link for one in event.deliveries
    ]


async def group_row(cluster: ListenerCluster, group: str = "g") -> GroupRow:
    leader = await cluster.settled_leader("trades")
    answer = await cluster.broker(leader).handle("trades", "0").ask(ListGroups(group))
    assert isinstance(answer, GroupList)
    return answer.groups[0]


async def position(cluster: ListenerCluster, group: str = "g") -> int:
    return (await group_row(cluster, group)).position


async def took(peer: Peer, link: Any, count: int) -> list[Any]:
    await peer.until(lambda: len(offsets(peer, link)) >= count)
    return deliveries(peer, link)


async def test_the_position_of_a_group_moves_with_the_commit_and_not_before(cluster: ListenerCluster) -> None:
    for node in cluster.nodes:
        async with Peer(cluster.ports[node]) as peer:
            control = await Control.attach(peer)
            link = await attached(peer, terms(f"g{node}"), credit=4)
            sender = await peer.sender("totals", "1")
            got = await took(peer, link, 4)
            txn = await control.declare()
            await send_under(peer, sender, txn, [b"total"])
            accept_under(link, got[:3], txn)
            await peer.flush()
            assert await position(cluster, f"g{node}") == -1
            await control.committed(txn)
            assert await position(cluster, f"g{node}") == 3


async def test_after_a_rollback_what_was_accepted_comes_again_in_order_before_anything_new(
    cluster: ListenerCluster,
) -> None:
    for node in cluster.nodes:
        async with Peer(cluster.ports[node]) as peer:
            control = await Control.attach(peer)
            link = await attached(peer, terms(f"g{node}"), credit=4)
            got = await took(peer, link, 4)
            txn = await control.declare()
            accept_under(link, got[:3], txn)
            await control.aborted(txn)
            await peer.grant(link, 4)
            got = await took(peer, link, 8)
            assert offsets(peer, link) == [0, 1, 2, 3, 0, 1, 2, 4]
            assert await position(cluster, f"g{node}") == -1
            txn = await control.declare()
            accept_under(link, [got[3], *got[4:]], txn)
            await control.committed(txn)
            assert await position(cluster, f"g{node}") == 5


async def test_of_transactions_that_end_at_once_each_moves_the_position_as_far_as_it_may(
    cluster: ListenerCluster,
) -> None:
    """What they have received on one link interleaves."""
    for first in (0, 1):
        async with Peer(cluster.ports[1]) as peer:
            controls = [await Control.attach(peer) for _ in range(2)]
            link = await attached(peer, terms(f"g{first}"), credit=5)
            got = await took(peer, link, 5)
            txns = [await control.declare() for control in controls]
            accept_under(link, got[0:4:2], txns[first])
            accept_under(link, got[1:4:2], txns[1 - first])
            asked = [
                control.link.send_many([encode_discharge(txn, False)])[0]
                for control, txn in zip(controls, txns, strict=True)
            ]
            await peer.flush()
            for control, number in zip(controls, asked, strict=True):
                assert isinstance(await control.answer(number), Accepted)
            assert await position(cluster, f"g{first}") == 4


@pytest.mark.parametrize("state", [Released(), Modified(delivery_failed=True)])
async def test_what_is_given_back_comes_again_where_transactions_are_declared(
    cluster: ListenerCluster, state: Any
) -> None:
    async with Peer(cluster.ports[1]) as peer:
        await Control.attach(peer)
        link = await peer.receiver(start_at("trades", "@earliest"), "0", credit=5)
        got = await took(peer, link, 5)
        link.settle(got[1:2], state)
        link.settle(got[3:4], state)
        link.settle([*got[:1], *got[4:]], Accepted())
        link.settle(got[2:3], Modified(delivery_failed=True, undeliverable_here=True))  # it is not wanted again
        await peer.grant(link, 4)
        await took(peer, link, 9)
        assert offsets(peer, link) == [0, 1, 2, 3, 4, 1, 3, 5, 6]


async def test_without_a_transaction_on_the_connection_an_event_is_handed_out_once(cluster: ListenerCluster) -> None:
    async with Peer(cluster.ports[1]) as peer:
        link = await peer.receiver(start_at("trades", "@earliest"), "0", credit=3)
        got = await took(peer, link, 3)
        link.settle(got, Released())
        await peer.grant(link, 2)
        await took(peer, link, 5)
        assert offsets(peer, link) == [0, 1, 2, 3, 4]


async def test_a_consumer_that_was_taken_over_cannot_commit_what_it_received(cluster: ListenerCluster) -> None:
    async with Peer(cluster.ports[1]) as zombie, Peer(cluster.ports[2], container="next") as successor:
        control = await Control.attach(zombie)
        link = await attached(zombie, terms(epoch=1), credit=4)
        sender = await zombie.sender("totals", "0")
        got = await took(zombie, link, 4)
        txn = await control.declare()
        await send_under(zombie, sender, txn, [b"counted twice"])
        accept_under(link, got, txn)
        await zombie.flush()
        await attached(successor, terms(epoch=2), credit=0)
        assert why(await control.commit(txn)) == ROLLBACK
        assert await position(cluster) == -1
        reader = await successor.receiver(start_at("totals", "@earliest"), "0")
        reader.drain(10)
        await successor.flush()
        await successor.until(lambda: reader.credit == 0)
        assert successor.received.get(reader, []) == []


async def test_bodies_come_again_unchanged(cluster: ListenerCluster) -> None:
    async with Peer(cluster.ports[3]) as peer:
        control = await Control.attach(peer)
        link = await peer.receiver(start_at("trades", "@earliest"), "0", credit=2)
        got = await took(peer, link, 2)
        txn = await control.declare()
        accept_under(link, got, txn)
        await control.aborted(txn)
        await peer.grant(link, 2)
        await took(peer, link, 4)
        first, second, *again = [decode_message(payload) for payload in peer.received[link]]
        assert again == [first, second]


async def test_what_a_transaction_remembers_is_bounded(
    cluster: ListenerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_transaction, "MAX_RECEIVED", 3)
    async with Peer(cluster.ports[1]) as peer:
        control = await Control.attach(peer)
        link = await attached(peer, terms(), credit=5)
        got = await took(peer, link, 5)
        txn = await control.declare()
        accept_under(link, got, txn)
        assert (await peer.refused(link)).condition == "amqp:resource-limit-exceeded"
        assert why(await control.commit(txn)) == ROLLBACK
        assert await position(cluster) == -1
        again = await attached(peer, terms(), credit=2)
        await took(peer, again, 2)
        assert offsets(peer, again) == [0, 1]
