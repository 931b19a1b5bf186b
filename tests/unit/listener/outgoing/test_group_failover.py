"""Consumer groups on three nodes: through gateways and redirects, and when the leader is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from node.partition.consumer_groups.group_queries import GroupList, ListGroups
from tests.unit.listener.support.cluster import ListenerCluster
from tests.unit.listener.support.consuming import (
    LOCKED,
    STOLEN,
    attached,
    durable,
    epoch_of,
    offsets,
    refusal,
    settle,
    terms,
)
from tests.unit.listener.support.peer import Peer, eventually
from tests.unit.listener.support.reading import fill

REDIRECT = "amqp:link:redirect"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ListenerCluster]:
    async with ListenerCluster(tmp_path) as three:
        await three.create("trades")
        yield three


async def row(cluster: ListenerCluster, key: str = "g") -> Any:
    """As the leader has it, whoever that is by then."""
    async with asyncio.timeout(20):
        while True:
            leader = await cluster.settled_leader("trades")
            answer = await cluster.broker(leader).handle("trades", "0").ask(ListGroups(key))
            if isinstance(answer, GroupList):
                return answer.groups[0] if answer.groups else None


async def until_row(cluster: ListenerCluster, **wanted: Any) -> Any:
    async with asyncio.timeout(20):
        while True:
            found = await row(cluster)
            if found is not None and all(getattr(found, name) == value for name, value in wanted.items()):
                return found
            await asyncio.sleep(0.01)


async def test_epochs_hold_between_gateways_and_the_leader(cluster: ListenerCluster) -> None:
    leader = cluster.leader("trades")
    one, two = (number for number in cluster.nodes if number != leader)
    async with (
        Peer(cluster.ports[one], container="a") as first,
        Peer(cluster.ports[two], container="b") as second,
        Peer(cluster.ports[leader], container="c") as third,
    ):
        await fill(first, 10)
        old = await attached(first, terms(epoch=1), credit=100)
        assert await offsets(first, old, 10) == list(range(10))
        for other in (second, third):
            assert (await refusal(other, terms(epoch=1))).condition == LOCKED
        new = await attached(second, terms(epoch=2), credit=100)
        assert await offsets(second, new, 10) == list(range(10))
        error = await first.refused(old)
        assert error.condition == STOLEN
        assert "epoch 2" in (error.description or "")
        newest = await attached(third, terms(epoch=3))
        assert epoch_of(newest) == 3
        assert (await second.refused(new)).condition == STOLEN
        newest.close()
        await third.flush()
        async with asyncio.timeout(20):
            while await row(cluster) is not None:  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(0.01)
        assert epoch_of(await attached(first, terms(epoch=1))) == 1


async def test_an_owner_at_a_gateway_goes_on_when_the_leader_is_lost_and_nobody_slips_in(
    cluster: ListenerCluster,
) -> None:
    leader = cluster.leader("trades")
    one, two = (number for number in cluster.nodes if number != leader)
    async with Peer(cluster.ports[one], container="a") as owner, Peer(cluster.ports[two], container="b") as other:
        await fill(owner, 10)
        link = await attached(owner, terms(epoch=5), credit=1000)
        assert await offsets(owner, link, 10) == list(range(10))
        before = await row(cluster)
        await cluster.lose(leader)
        for _ in range(3):
            for epoch in (None, 4, 5):
                assert (await refusal(other, terms(epoch=epoch))).condition == LOCKED
        await cluster.settled_leader("trades")
        await fill(other, 10)
        assert await offsets(owner, link, 20) == list(range(20))
        assert link.is_open
        after = await until_row(cluster, present=True)
        assert (after.claim, after.epoch) == (before.claim, 5)
        assert epoch_of(await attached(other, terms(epoch=6))) == 6
        assert (await owner.refused(link)).condition == STOLEN


async def test_an_owner_whose_own_node_is_lost_attaches_again_by_its_name_and_nobody_before_it(
    cluster: ListenerCluster,
) -> None:
    lost = cluster.leader("trades")
    one, two = (number for number in cluster.nodes if number != lost)
    async with Peer(cluster.ports[lost], container="a") as owner:
        await fill(owner, 10)
        await attached(owner, terms(epoch=5), name="mine", credit=1000)
        await cluster.lose(lost)
    async with Peer(cluster.ports[two], container="b") as other, Peer(cluster.ports[one], container="a") as again:
        for epoch in (None, 4, 5):
            assert (await refusal(other, terms(epoch=epoch), name="mine")).condition == LOCKED
        link = await attached(again, terms(epoch=5), name="mine", credit=1000)
        assert epoch_of(link) == 5
        assert await offsets(again, link, 10) == list(range(10))
        assert (await refusal(other, terms(epoch=5))).condition == LOCKED


async def test_an_owner_that_never_comes_back_is_given_up_after_its_lease(cluster: ListenerCluster) -> None:
    leader = cluster.leader("trades")
    gateway = cluster.other_than(leader)
    rest = cluster.other_than(leader, gateway)
    async with Peer(cluster.ports[gateway], container="a") as owner:
        await attached(owner, terms(epoch=5))
        await until_row(cluster, present=True)
        await cluster.lose(gateway)
    async with Peer(cluster.ports[rest], container="b") as other:
        assert (await refusal(other, terms(epoch=5))).condition == LOCKED
        await until_row(cluster, active=False)
        assert (await refusal(other, terms(epoch=4))).condition == LOCKED
        assert epoch_of(await attached(other, terms(epoch=5))) == 5


async def test_who_follows_redirects_finds_its_partition_and_keeps_its_claim_when_it_moves(
    cluster: ListenerCluster,
) -> None:
    await cluster.move("trades", "0", 1)
    async with Peer(cluster.ports[2], container="a", desired=(REDIRECT,)) as peer:
        assert (await refusal(peer, terms(epoch=2))).condition == REDIRECT
    async with Peer(cluster.ports[1], container="a", desired=(REDIRECT,)) as peer:
        link = await attached(peer, terms(epoch=2), name="mine")
        await cluster.move("trades", "0", 2)
        assert (await peer.refused(link)).condition == REDIRECT
        async with Peer(cluster.ports[3], container="b") as other:
            assert (await refusal(other, terms(epoch=2))).condition == LOCKED
        async with Peer(cluster.ports[2], container="a", desired=(REDIRECT,)) as again:
            assert epoch_of(await attached(again, terms(epoch=2), name="mine")) == 2


async def test_a_durable_receiver_goes_on_through_another_node_after_the_leader_is_lost(
    cluster: ListenerCluster,
) -> None:
    leader = cluster.leader("trades")
    async with Peer(cluster.ports[leader], container="a") as peer:
        await fill(peer, 20)
        link = await attached(peer, terms(group=None), durable(), name="mine", credit=20)
        await offsets(peer, link, 20)
        await settle(peer, link, 12)
        handle = cluster.broker(leader).handle("trades", "0")
        await eventually(lambda: [one.position for one in handle._machine.ownership] == [12])
        await cluster.lose(leader)
    async with Peer(cluster.ports[cluster.other_than(leader)], container="a") as peer:
        link = await attached(peer, terms(group=None), durable(), name="mine", credit=100)
        assert await offsets(peer, link, 8) == list(range(12, 20))
