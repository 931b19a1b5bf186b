"""A durable source has a place in every partition from its first attach on, whatever was delivered or settled."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from proton import Message
from proton.reactor import DurableSubscription
from proton.utils import BlockingConnection

from holdfast.amqp import Described, Source, ulong
from node.partition.consumer_groups.group_state import terminus_key
from tests.unit.listener.support.cluster import ListenerCluster
from tests.unit.listener.support.consuming import attached, offsets, terms
from tests.unit.listener.support.peer import Peer, eventually, message
from tests.unit.listener.support.reading import fill, place, start_at
from tests.unit.listener.support.single import SingleNode
from tests.unit.listener.support.stock import WAIT_S

KEY = terminus_key("a/mine")


def unfiltered(address: str = "trades", **more: Any) -> Source:
    return Source(address=address, durable=2, expiry_policy="never", **more)


def position(node: SingleNode, partition: str = "0", log: str = "trades") -> int | None:
    row = node.logs[log][partition]._machine.ownership.get(KEY)
    return None if row is None else row.position


async def gone(node: SingleNode, log: str = "trades") -> None:
    """The node has noticed that the link's socket is not there any more."""

    def ended() -> bool:
        rows = [replica._machine.ownership.get(KEY) for replica in node.logs[log].values()]
        return not any(row is not None and row.active for row in rows)

    await eventually(ended)


async def test_a_subscription_of_proton_misses_nothing_that_came_while_it_was_away(node: SingleNode) -> None:
    def subscribe(number: int) -> list[Any]:
        """What has come; the subscriber is there only for a moment."""
        connection = BlockingConnection(node.url, timeout=WAIT_S, container_id="a")  # type: ignore[call-arg]
        receiver = connection.create_receiver("trades", credit=10, name="mine", options=DurableSubscription())
        found = [receiver.receive(timeout=WAIT_S).body for _ in range(number)]
        for _ in found:
            receiver.accept()
        receiver.link.detach()
        connection.close()
        return found

    def client() -> list[Any]:
        subscribe(0)
        connection = BlockingConnection(node.url, timeout=WAIT_S)
        sender = connection.create_sender("trades")
        for number in range(5):
            sender.send(Message(body=number))
        connection.close()
        return subscribe(5)

    assert await asyncio.to_thread(client) == list(range(5))


async def test_a_quiet_partition_has_a_place_too(node: SingleNode) -> None:
    async with Peer(node.port, container="a") as peer:
        await fill(peer, 8, "wide")
        await attached(peer, {}, unfiltered("wide"), name="mine", credit=100)
        places = {name: position(node, name, "wide") for name in node.logs["wide"]}
    assert places == {name: replica.next_offset for name, replica in node.logs["wide"].items()}
    await gone(node, "wide")
    async with Peer(node.port, container="b") as other:
        await fill(other, 12, "wide")
    async with Peer(node.port, container="a") as peer:
        link = await attached(peer, {}, unfiltered("wide"), name="mine", credit=100)
        await peer.until(lambda: len(peer.received.get(link, [])) >= 12)
        assert len({place(payload)[:2] for payload in peer.received[link]}) == 12


async def test_a_partition_made_while_nobody_was_there_is_read_from_its_start(node: SingleNode) -> None:
    async with Peer(node.port, container="a") as peer:
        await attached(peer, {}, unfiltered("wide"), name="mine", credit=100)
    await gone(node, "wide")
    await node.add_partition(node.logs["wide"], "4")
    node.ring()
    async with Peer(node.port, container="b") as other:
        sender = await other.sender("wide", "4")
        await other.send(sender, [message(b"early")] * 3)
        await other.states(sender, 3)
    async with Peer(node.port, container="a") as peer:
        link = await attached(peer, {}, unfiltered("wide"), name="mine", credit=100)
        assert position(node, "4", "wide") == 0
        assert await offsets(peer, link, 3) == [0, 1, 2]


async def test_a_partition_made_under_a_link_keeps_its_start(node: SingleNode) -> None:
    async with Peer(node.port, container="a") as peer:
        await attached(peer, {}, unfiltered("wide"), name="mine", credit=0)
        await node.add_partition(node.logs["wide"], "4")
        node.ring()
        await eventually(lambda: position(node, "4", "wide") == 0)


async def test_a_first_attach_that_broke_off_half_way_does_not_turn_the_rest_into_history(node: SingleNode) -> None:
    """The places were fixed in some partitions when the node died: the next attach is the first one."""
    async with Peer(node.port, container="a") as peer:
        await fill(peer, 8, "wide")
        await attached(peer, {}, unfiltered("wide"), name="mine")
    await gone(node, "wide")
    for name in ("0", "2"):  # what is fixed last, and one more
        rows = node.logs["wide"][name]._machine.ownership._rows
        rows[KEY].position = -1
    async with Peer(node.port, container="a") as peer:
        await attached(peer, {}, unfiltered("wide"), name="mine")
        for name, replica in node.logs["wide"].items():
            assert position(node, name, "wide") == replica.next_offset, name


async def test_the_filter_of_the_first_attach_says_where_it_begins(node: SingleNode) -> None:
    async with Peer(node.port, container="a") as peer:
        await fill(peer, 10)
        for offset, begins in (("@earliest", 0), (f"{3:016x}", 4), ("@latest", 10), (f"{99:016x}", 10)):
            source = start_at("trades", offset)
            wanted = unfiltered(filter=source.filter)
            link = await attached(peer, terms(group=None), wanted, name="mine")
            assert position(node) == begins, offset
            link.close()
            await peer.flush()
            await eventually(lambda: position(node) is None)


async def test_a_time_to_begin_at_is_sought_again_and_nothing_older_comes(node: SingleNode) -> None:
    async with Peer(node.port, container="a") as peer:
        await fill(peer, 5, rounds=2)
        (batch, *_), *_ = [node.logs["trades"]["0"].read(0, 1 << 20)]
        wanted = unfiltered(filter=start_at("trades", None, batch.head.time_ms).filter)
        await attached(peer, terms(group=None), wanted, name="mine")
        assert position(node) is not None
        assert position(node) != -1
    await gone(node)
    async with Peer(node.port, container="a") as peer:
        link = await attached(peer, terms(group=None), wanted, name="mine", credit=100)
        assert await offsets(peer, link, 5) == [5, 6, 7, 8, 9]


async def test_at_latest_in_a_condition_is_what_it_was_at_the_first_attach(node: SingleNode) -> None:
    condition = {"sql": Described(ulong(0x201), "d.event-streams-offset > '@latest'")}
    async with Peer(node.port, container="a") as peer:
        await fill(peer, 5)
        await attached(peer, terms(group=None), unfiltered(filter=condition), name="mine")
    await gone(node)
    async with Peer(node.port, container="b") as other:
        await fill(other, 3)
    async with Peer(node.port, container="a") as peer:
        link = await attached(peer, terms(group=None), unfiltered(filter=condition), name="mine", credit=100)
        assert await offsets(peer, link, 3) == [5, 6, 7]


async def test_a_member_of_a_group_with_a_durable_source_fixes_the_groups_place(node: SingleNode) -> None:
    async with Peer(node.port, container="a") as peer:
        await fill(peer, 5)
        await attached(peer, terms(), unfiltered(), name="mine")
        row = node.logs["trades"]["0"]._machine.ownership.get("g")
        assert row is not None
        assert row.position == 5


async def test_the_place_is_known_to_the_next_leader_before_the_link_is_attached(tmp_path: Path) -> None:
    async with ListenerCluster(tmp_path) as cluster:
        await cluster.create("trades")
        leader = await cluster.settled_leader("trades")
        gateway = cluster.other_than(leader)
        async with Peer(cluster.ports[gateway], container="a") as peer:
            await fill(peer, 4)
            await attached(peer, {}, unfiltered(), name="mine")
            row = cluster.broker(leader).handle("trades", "0")._machine.ownership.get(KEY)
            assert row is not None
            assert row.position == 4
            await cluster.move("trades", "0", gateway)
            row = cluster.broker(gateway).handle("trades", "0")._machine.ownership.get(KEY)
            assert row is not None
            assert row.position == 4
