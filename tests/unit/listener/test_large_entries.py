"""Entries that a follower received in its own memory, and serves as the leader that it has become."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import proton
import pytest

from holdfast.amqp import ACCEPTED, ConnectionClosed, Described, LinkDetached, decode_message, symbol, ulong
from tests.unit.listener.support.cluster import ListenerCluster
from tests.unit.listener.support.peer import Peer, eventually, message
from tests.unit.listener.support.reading import start_at

KIB = 1024
SIZES = [700 * KIB, 100, 90 * KIB, 800 * KIB, 65 * KIB, 600 * KIB, 10, 300 * KIB]
"""Uneven, and more than 256 KiB in the mean: entries that travel beside their append, some of them small."""


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ListenerCluster]:
    async with ListenerCluster(tmp_path) as three:
        await three.create("trades")
        yield three


FORGOTTEN = 3
"""Events before these, which nobody has any more."""


def kind(number: int) -> str:
    return "odd" if number % 2 else "even"


def body(number: int) -> bytes:
    return bytes([number]) * SIZES[number]


def events() -> list[bytes]:
    """As a stock client sends them: with a header in front, behind which what a delivery says is put."""
    numbers = range(len(SIZES))
    return [bytes(proton.Message(body=body(n), inferred=True, properties={"kind": kind(n)}).encode()) for n in numbers]


def replica_at(cluster: ListenerCluster, node: int) -> Any:
    return cluster.nodes[node]._replicas.partition(raft_group(cluster))


def group_at(cluster: ListenerCluster, node: int) -> Any:
    return replica_at(cluster, node).group


def raft_group(cluster: ListenerCluster) -> int:
    return int(cluster.broker(1).raft_group("trades", "0"))


async def send(cluster: ListenerCluster, payloads: list[bytes]) -> None:
    async with Peer(cluster.ports[await cluster.settled_leader("trades")]) as peer:
        sender = await peer.sender("trades")
        await peer.send(sender, payloads)
        assert await peer.states(sender, len(payloads)) == [ACCEPTED] * len(payloads)


async def trim(cluster: ListenerCluster) -> None:
    """Everybody forgets what is there, so that who has nothing needs a snapshot."""
    leader = replica_at(cluster, await cluster.settled_leader("trades"))

    def trimmed() -> bool:
        leader.enforce_retention(1 << 50, 1, None)  # of what all replicas have
        replicas = [replica_at(cluster, node) for node in cluster.nodes]
        return all(replica.start_offset == FORGOTTEN and replica.group.first_index > 2 for replica in replicas)

    await eventually(trimmed)


@contextmanager
def behind(group: Any) -> Iterator[None]:
    """It receives what is said, and applies nothing."""
    group.apply_committed = lambda: None
    yield
    del group.apply_committed


async def led_by_one_behind(cluster: ListenerCluster) -> tuple[int, int]:
    """The new leader, which has received the events and begins to apply them, and who did not lead. Where the partition
    is preferred it stays."""
    new = (await cluster.broker(1).admin("log.describe", {"name": "trades"}))["partitions"][0]["preferred"]
    old, third = (node for node in cluster.nodes if node != new)
    await send(cluster, [message(b"forgotten")] * FORGOTTEN)
    await trim(cluster)
    await cluster.move("trades", "0", old)
    group = group_at(cluster, new)
    with behind(group):
        await send(cluster, events())
        await eventually(lambda: group.last_index >= group_at(cluster, old).last_index)
        if not group.is_leader:
            group_at(cluster, old).transfer(new)
        await eventually(lambda: group.is_leader)
        assert group.applied_index < group.last_index - 1
    cluster.nodes[new]._multiraft.mark_dirty(group)
    assert await cluster.settled_leader("trades") == new
    return new, third


async def read_at(cluster: ListenerCluster, node: int, words: str | None = None) -> None:
    """`words`: of a filter, which looks into the events."""
    source = start_at("trades", f"{FORGOTTEN - 1:016x}")
    if words is not None:
        source = replace(source, filter={**source.filter, symbol("f"): Described(ulong(0x201), words)})
    numbers = [number for number in range(len(SIZES)) if words is None or kind(number) == "odd"]
    async with Peer(cluster.ports[node]) as peer:
        link = await peer.receiver(source, credit=100)
        await peer.until(lambda: ended(peer) or len(peer.received.get(link, [])) == len(numbers))
        assert not ended(peer)
        found = [decode_message(payload).body for payload in peer.received[link]]
        assert found == [body(number) for number in numbers]


def ended(peer: Peer) -> bool:
    return any(isinstance(event, LinkDetached | ConnectionClosed) for event in peer.history)


@pytest.mark.parametrize("words", [None, "kind = 'odd'"])
@pytest.mark.parametrize("through", ["the leader", "a gateway"])
async def test_a_link_reads_what_the_leader_had_not_applied(
    cluster: ListenerCluster, through: str, words: str | None
) -> None:
    leader, other = await led_by_one_behind(cluster)
    await read_at(cluster, leader if through == "the leader" else other, words)


async def test_a_snapshot_holds_what_the_leader_had_not_applied(cluster: ListenerCluster) -> None:
    leader, other = await led_by_one_behind(cluster)
    cluster.nodes[other]._replicas.repair(raft_group(cluster))
    group, copy = group_at(cluster, leader), group_at(cluster, other)
    await eventually(lambda: copy.applied_index == group.applied_index or group.quarantined)
    assert group.quarantined is None
    assert copy.first_index > 2, "it began with a snapshot"
    await cluster.move("trades", "0", other)
    await read_at(cluster, other)
