"""Members that leave the choice of the partition to the nodes, on three nodes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.amqp import LinkDetached, LinkOpened, ReceiverLink
from tests.unit.listener.support.cluster import ListenerCluster
from tests.unit.listener.support.consuming import (
    INVALID,
    ask,
    offsets,
    refusal,
    terms,
)
from tests.unit.listener.support.peer import Peer, eventually
from tests.unit.listener.support.reading import fill, start_at

FULL = "amqp:link:detach-forced"
ANY = terms(partition=None)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ListenerCluster]:
    async with ListenerCluster(tmp_path) as three:
        await three.create("trades", 4)
        yield three


class Member:
    """Has one link waiting at all times, as a member does that takes whatever it can get."""

    def __init__(self, port: int, name: str, *, desired: tuple[str, ...] = ()) -> None:
        self.peer = Peer(port, container=name, desired=desired)
        self.name = name
        self.links: list[ReceiverLink] = []
        self.lost: list[LinkDetached] = []
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Member:
        await self.peer.__aenter__()
        self._task = asyncio.create_task(self._keep_waiting())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.peer.__aexit__()

    async def _keep_waiting(self) -> None:
        while True:
            link = ask(self.peer, ANY, start_at("trades", "@earliest"))
            await self.peer.flush()

            def answered(event: Any, link: ReceiverLink = link) -> bool:
                return isinstance(event, LinkOpened | LinkDetached) and event.link is link

            while not any(map(answered, self.peer.history)):
                self.peer._news.clear()
                await self.peer._news.wait()
            self.links.append(link)

    @property
    def partitions(self) -> set[str]:
        open_now = [link for link in self.links if link.is_open]
        found = {str(link.remote_properties["event-streams-partition"]) for link in open_now}
        assert len(found) == len(open_now)
        return found

    @property
    def detached(self) -> list[LinkDetached]:
        return [event for event in self.peer.history if isinstance(event, LinkDetached)]


async def shares(members: list[Member], *wanted: int) -> None:
    """Until the members own so many partitions each, all different, four in all."""
    await eventually(lambda: sorted(len(one.partitions) for one in members) == sorted(wanted))
    owned = Counter(partition for one in members for partition in one.partitions)
    assert set(owned.values()) == {1}


async def test_members_at_different_nodes_share_the_partitions_and_newcomers_get_the_excess(
    cluster: ListenerCluster,
) -> None:
    async with Member(cluster.ports[1], "a") as a:
        await shares([a], 4)
        async with Member(cluster.ports[2], "b", desired=("amqp:link:redirect",)) as b:
            await shares([a, b], 2, 2)
            assert len(a.detached) == 2
            assert all(event.error is None and event.closed for event in a.detached)
            kept = a.partitions
            async with Member(cluster.ports[3], "c") as c:
                await shares([a, b, c], 2, 1, 1)
                assert len(a.detached) + len(b.detached) == 3
                before = {one.name: one.partitions for one in (a, b)}
            await shares([a, b], 2, 2)  # c left, and nobody lost anything by it
            assert all(before[one.name] <= one.partitions for one in (a, b))
            assert len(a.detached) + len(b.detached) == 3
        await shares([a], 4)
        assert kept & a.partitions


async def test_more_members_than_partitions_wait_until_one_is_free(cluster: ListenerCluster) -> None:
    one, two, three = (Member(cluster.ports[node], name) for node, name in ((1, "a"), (2, "b"), (3, "c")))
    async with one as a, two as b, three as c:
        await shares([a, b, c], 1, 1, 2)
        async with Member(cluster.ports[1], "d") as d:
            await shares([a, b, c, d], 1, 1, 1, 1)
            async with Peer(cluster.ports[2], container="e") as e:
                link = ask(e, ANY, start_at("trades", "@earliest"))
                await e.flush()
                await asyncio.sleep(1.5)
                assert not any(getattr(event, "link", None) is link for event in e.history)
                await d.__aexit__()
                await e._opened(link)
            await d.__aenter__()


async def test_events_come_over_assigned_links_wherever_they_are_served(cluster: ListenerCluster) -> None:
    async with Peer(cluster.ports[1], container="producer") as producer:
        await fill(producer, 40)
        async with Member(cluster.ports[2], "a", desired=("amqp:link:redirect",)) as a:
            await shares([a], 4)
            for link in a.links[:4]:
                await a.peer.grant(link, 100)
            await a.peer.until(lambda: sum(map(len, a.peer.received.values())) == 40)
            for link, received in a.peer.received.items():
                assert await offsets(a.peer, link, 0) == list(range(len(received)))


async def test_a_lost_leader_changes_no_assignment(cluster: ListenerCluster) -> None:
    gateway = 1
    async with Member(cluster.ports[gateway], "a") as a, Member(cluster.ports[gateway], "b") as b:
        await shares([a, b], 2, 2)
        before, moved = (a.partitions, b.partitions), len(a.detached) + len(b.detached)
        await cluster.lose(2)
        await eventually(lambda: all(len(cluster.leaders("trades", one)) == 1 for one in "0123"))
        await asyncio.sleep(6)  # longer than an owner may be silent
        assert (a.partitions, b.partitions) == before
        assert len(a.detached) + len(b.detached) == moved


async def test_the_choice_of_a_partition_and_a_claim_on_one_exclude_each_other(cluster: ListenerCluster) -> None:
    async with Peer(cluster.ports[1]) as peer:
        assert (await refusal(peer, terms(partition=None, epoch=1))).condition == INVALID


@pytest.mark.parametrize(("full", "hold_s"), [("refuse", 30.0), ("hold", 0.5)])
async def test_who_finds_no_partition_is_refused_at_once_or_after_a_while(
    tmp_path: Path, full: str, hold_s: float
) -> None:
    async with ListenerCluster(tmp_path, group_full=full, group_hold_s=hold_s) as three:
        await three.create("trades", 1)
        async with Peer(three.ports[1], container="a") as first, Peer(three.ports[2], container="b") as second:
            link = ask(first, ANY, start_at("trades", "@earliest"))
            await first._opened(link)
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            error = await refusal(second, ANY, start_at("trades", "@earliest"))
            assert error.condition == FULL
            assert loop.time() - began_s >= (hold_s if full == "hold" else 0)
            link.close()
            await first.flush()
            again = ask(second, ANY, start_at("trades", "@earliest"))
            await second.flush()
            await eventually(lambda: any(getattr(event, "link", None) is again for event in second.history))
