"""A log that is deleted takes its links with it, at once; one made anew under its name is another log."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from proton import Message
from proton.utils import BlockingConnection, LinkDetached

from holdfast.amqp import symbol
from holdfast.amqp.errors import RESOURCE_DELETED
from tests.unit.listener.support.cluster import ListenerCluster
from tests.unit.listener.support.consuming import attached, terms
from tests.unit.listener.support.peer import Peer, message
from tests.unit.listener.support.reading import start_at
from tests.unit.listener.support.single import SingleNode
from tests.unit.listener.support.stock import WAIT_S

NUMBERED = {"com.microsoft:producer-id": None, "com.microsoft:producer-epoch": None,
            "com.microsoft:producer-sequence-number": None}  # fmt: skip


async def links(peer: Peer, log: str, group: str = "g") -> dict[str, Any]:
    """One link of each kind."""
    bound = terms(group=None)
    return {
        "agnostic sender": await peer.sender(log),
        "bound sender": await peer.sender(log, "0"),
        "idempotent sender": await idempotent(peer, log),
        "receiver": await attached(peer, {}, start_at(log, "@earliest"), credit=100),
        "receiver at the end": await attached(peer, bound, start_at(log, "@latest")),
        "member": await attached(peer, terms(group + "1"), start_at(log, "@earliest"), credit=100),
        "member that was given a partition": await attached(peer, terms(group + "2", partition=None), start_at(log)),
    }


async def idempotent(peer: Peer, log: str) -> Any:
    link = peer.engine.open_sender(log, properties={"event-streams-partition": symbol("0"), **NUMBERED})
    await peer._opened(link)
    return link


async def test_deleting_a_log_ends_all_its_links_at_the_leader_and_at_gateways(tmp_path: Path) -> None:
    async with ListenerCluster(tmp_path) as cluster:
        await cluster.create("short")
        leader = await cluster.settled_leader("short")
        others = [number for number in cluster.nodes if number != leader]
        async with Peer(cluster.ports[leader]) as near, Peer(cluster.ports[others[0]], container="far") as far:
            at_leader, at_gateway = await links(near, "short"), await links(far, "short", "h")
            await cluster.broker(others[1]).admin("log.delete", {"name": "short"})
            for peer, found in ((near, at_leader), (far, at_gateway)):
                for kind, link in found.items():
                    assert (await peer.refused(link)).condition == RESOURCE_DELETED, kind


async def remade(cluster: ListenerCluster, log: str, through: int) -> None:
    """Deleted and made again before anybody could look."""
    await cluster.broker(through).admin("log.delete", {"name": log})
    await cluster.broker(through).admin("log.create", {"name": log, "partitions": 1, "replicas": 3})


@pytest.mark.parametrize("at", ["leader", "gateway"])
async def test_a_log_made_anew_at_once_is_not_what_a_link_was_attached_to(tmp_path: Path, at: str) -> None:
    async with ListenerCluster(tmp_path) as cluster:
        await cluster.create("again")
        leader = await cluster.settled_leader("again")
        node = leader if at == "leader" else cluster.other_than(leader)
        async with Peer(cluster.ports[node]) as peer:
            open_links = list((await links(peer, "again")).values())
            sending = True

            async def produce() -> None:
                """It goes on until it is told."""
                sender = open_links[0]
                while sending and sender.alive:
                    if sender.credit > 0:
                        await peer.send(sender, [message(b"old")])
                    await asyncio.sleep(0)

            producing = asyncio.create_task(produce())
            await remade(cluster, "again", leader)
            for link in open_links:
                assert (await peer.refused(link)).condition == RESOURCE_DELETED
            sending = False
            await producing
        await cluster.settled_leader("again")
        found = await cluster.broker(node).handle("again", "0").info()
        assert found.next_offset == 0


async def test_a_sender_of_proton_is_told_that_its_log_is_gone(node: SingleNode) -> None:
    """A ring that comes after the log was made again must not hide that it was deleted."""
    loop = asyncio.get_running_loop()

    async def anew() -> None:
        replicas = node.logs.pop("trades")
        for replica in replicas.values():
            replica.close(deleted=True)
        await node.create("trades")

    def client() -> None:
        connection = BlockingConnection(node.url, timeout=WAIT_S)
        sender = connection.create_sender("trades")
        sender.send(Message(body="one"))
        asyncio.run_coroutine_threadsafe(anew(), loop).result(WAIT_S)
        with pytest.raises(LinkDetached, match="resource-deleted"):
            sender.send(Message(body="two"))
        connection.close()

    await asyncio.to_thread(client)
    assert node.logs["trades"]["0"].next_offset == 0
