"""Durable sources: a receiver goes on where it had settled, and keeps no offset itself (ES-10)."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.amqp import LinkDetached
from node.partition.consumer_groups.group_queries import Revoke
from node.partition.consumer_groups.group_state import terminus_key
from tests.unit.listener.support.consuming import (
    INVALID,
    STOLEN,
    attached,
    durable,
    offsets,
    refusal,
    settle,
    terms,
)
from tests.unit.listener.support.peer import Peer, eventually
from tests.unit.listener.support.reading import fill
from tests.unit.listener.support.single import SingleNode

BOUND = terms(group=None)


def position(node: SingleNode, key: str, partition: str = "0", log: str = "trades") -> int | None:
    row = node.logs[log][partition]._machine.ownership.get(key)
    return None if row is None else row.position


async def leave(peer: Peer) -> None:
    assert peer._writer is not None
    peer._writer.transport.abort()


async def test_after_a_lost_connection_it_goes_on_behind_what_was_settled(node: SingleNode) -> None:
    async with Peer(node.port, container="a") as peer:
        await fill(peer, 20)
        link = await attached(peer, BOUND, durable(), name="mine", credit=15)
        source = link.remote_source
        assert (source.durable, source.expiry_policy) == (2, "never")  # type: ignore[union-attr]
        await offsets(peer, link, 15)
        await settle(peer, link, 10)
        await eventually(lambda: position(node, terminus_key("a/mine")) == 10)
        await leave(peer)
    async with Peer(node.port, container="a") as peer:
        link = await attached(peer, BOUND, durable(), name="mine", credit=100)
        assert await offsets(peer, link, 10) == list(range(10, 20))
        assert str(link.remote_properties["holdfast:position"]) == f"{9:016x}"
        other = await attached(peer, BOUND, durable(), name="other", credit=100)
        assert await offsets(peer, other, 20) == list(range(20))


async def test_a_hole_in_what_was_settled_holds_the_position_back(node: SingleNode) -> None:
    async with Peer(node.port, container="a") as peer:
        await fill(peer, 20)
        link = await attached(peer, BOUND, durable(), name="mine", credit=20)
        await offsets(peer, link, 20)
        await settle(peer, link, 5)
        await settle(peer, link, 10, first=6)
        await eventually(lambda: position(node, terminus_key("a/mine")) == 5)
        await leave(peer)
    await eventually(lambda: not node.logs["trades"]["0"]._machine.ownership.get(terminus_key("a/mine")).active)  # type: ignore[union-attr]
    assert position(node, terminus_key("a/mine")) == 5
    async with Peer(node.port, container="a") as peer:
        link = await attached(peer, BOUND, durable(), name="mine", credit=100)
        assert await offsets(peer, link, 15) == list(range(5, 20))


async def test_presettled_deliveries_count_as_soon_as_they_are_sent(node: SingleNode) -> None:
    async with Peer(node.port, container="a") as peer:
        await fill(peer, 20)
        link = await attached(peer, BOUND, durable(), name="mine", credit=15, snd_settle_mode=1)
        await offsets(peer, link, 15)
        await eventually(lambda: position(node, terminus_key("a/mine")) == 15)


async def test_a_link_without_partition_keeps_a_position_in_each(node: SingleNode) -> None:
    async with Peer(node.port, container="a") as peer:
        await fill(peer, 40, "wide")
        link = await attached(peer, {}, durable("wide"), name="mine", credit=25)
        await offsets(peer, link, 25)
        await settle(peer, link, 25)
        await eventually(
            lambda: (
                sum(max(0, position(node, terminus_key("a/mine"), one, "wide") or 0) for one in node.logs["wide"]) == 25
            )
        )
        await leave(peer)
    async with Peer(node.port, container="a") as peer:
        link = await attached(peer, {}, durable("wide"), name="mine", credit=100)
        await offsets(peer, link, 15)
        await asyncio.sleep(0.05)
        assert len(peer.received[link]) == 15


async def test_a_partition_that_is_made_later_is_claimed_too(node: SingleNode) -> None:
    async with Peer(node.port, container="a") as peer:
        link = await attached(peer, {}, durable("wide"), name="mine", credit=100)
        await node.add_partition(node.logs["wide"], "4")
        node.ring()
        await eventually(lambda: position(node, terminus_key("a/mine"), "4", "wide") is not None)
        sender = await peer.sender("wide", "4")
        await peer.send(sender, [b"\x00Su\xa0\x01x"] * 3)
        await offsets(peer, link, 3)
        await settle(peer, link, 3)
        await eventually(lambda: position(node, terminus_key("a/mine"), "4", "wide") == 3)


async def test_the_same_terminus_attached_elsewhere_closes_the_old_link(node: SingleNode) -> None:
    async with Peer(node.port, container="a") as first, Peer(node.port, container="a") as second:
        old = await attached(first, BOUND, durable(), name="mine")
        await attached(second, BOUND, durable(), name="mine")
        assert (await first.refused(old)).condition == STOLEN


async def test_closed_for_good_a_terminus_is_forgotten_detached_it_is_kept(node: SingleNode) -> None:
    async with Peer(node.port, container="a") as peer:
        await fill(peer, 5)
        for how, left in (("detach", 5), ("close", None)):
            link = await attached(peer, BOUND, durable(), name="mine", credit=10)
            await peer.until(lambda link=link: position(node, terminus_key("a/mine")) == 5 or link in peer.received)
            await settle(peer, link, 10)
            (link.detach if how == "detach" else link.close)()
            await peer.flush()
            await eventually(lambda left=left: position(node, terminus_key("a/mine")) == left)


@pytest.mark.parametrize(("policy", "timeout_s", "kept"), [("session-end", 0, False), ("session-end", 60, True)])
async def test_a_source_outlives_its_link_only_as_it_asked(
    node: SingleNode, policy: str, timeout_s: int, kept: bool
) -> None:
    async with Peer(node.port, container="a") as peer:
        await fill(peer, 20)
        link = await attached(peer, BOUND, durable(policy=policy, timeout_s=timeout_s), name="mine", credit=10)
        await offsets(peer, link, 10)
        assert link.remote_source.durable == (2 if kept else 0)  # type: ignore[union-attr]
        await settle(peer, link, 10)
        await leave(peer)
    key = terminus_key("a/mine")
    await eventually(lambda: position(node, key) == (10 if kept else None))


async def test_without_a_name_nothing_durable_is_promised(node: SingleNode) -> None:
    async with Peer(node.port, container="") as peer:
        assert (await refusal(peer, BOUND, durable())).condition == INVALID


async def test_a_durable_member_moves_its_groups_position_which_outlives_it(node: SingleNode) -> None:
    async with Peer(node.port, container="a") as first, Peer(node.port, container="b") as second:
        await fill(first, 20)
        link = await attached(first, terms(), durable(policy="session-end"), credit=10)
        await offsets(first, link, 10)
        await settle(first, link, 8)
        await eventually(lambda: position(node, "g") == 8)
        link.close()
        await first.flush()
        await eventually(lambda: not node.logs["trades"]["0"]._machine.ownership.get("g").active)  # type: ignore[union-attr]
        link = await attached(second, terms(), durable(policy="session-end"), credit=100)
        assert await offsets(second, link, 12) == list(range(8, 20))


@pytest.mark.parametrize("settles", [True, False])
async def test_who_is_asked_to_let_go_has_a_moment_to_settle(node: SingleNode, settles: bool) -> None:
    """What it settled in that moment is not delivered to the next owner; it does not have longer than that."""
    async with Peer(node.port, container="a") as first, Peer(node.port, container="b") as second:
        await fill(first, 20)
        link = await attached(first, terms(), durable(), credit=10)
        await offsets(first, link, 10)
        replica = node.logs["trades"]["0"]
        row = replica._machine.ownership.get("g")
        assert row is not None
        await replica.ask(Revoke("g", row.claim))
        await asyncio.sleep(0.05)
        assert link.is_open
        if settles:
            await settle(first, link, 10)
        event = await first.wait(LinkDetached, lambda event: event.link is link)
        assert (event.error, event.closed) == (None, True)
        await eventually(lambda: not row.active)
        link = await attached(second, terms(), durable(), credit=100)
        begin = 10 if settles else 0
        assert await offsets(second, link, 20 - begin) == list(range(begin, 20))
