"""What every way of finding nodes promises; run on each."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cluster.discovery import Member, NotAMember
from tests.discovery.conftest import ADDRESSES, Found
from tests.unit.listener.support.peer import eventually


async def joined(found: Found, *numbers: int, **options: Any) -> list[Any]:
    nodes = [found.node(number, **options) for number in numbers]
    async with asyncio.timeout(30):
        await asyncio.gather(*(node.join() for node in nodes))
    return nodes


async def test_all_nodes_learn_the_same_voters(nodes: Found) -> None:
    one, two, three = nodes.node(1), nodes.node(2), nodes.node(3)
    async with asyncio.timeout(30):
        voters = await asyncio.gather(three.join(), one.join(), two.join())
    assert voters == [ADDRESSES] * 3


async def test_the_cluster_id_is_one_for_all_nodes_and_another_for_other_clusters(nodes: Found) -> None:
    alone = nodes.node(1)
    assert alone.cluster_id == ""
    await alone.close()
    for memory in nodes.memories:
        memory.close()
    cluster = await joined(nodes, 1, 2, 3)
    (other,) = await joined(nodes, 1, of={1: "10.0.0.1:7101"}, cluster="another", data="elsewhere")
    ids = {node.cluster_id for node in cluster}
    assert len(ids) == 1
    assert "" not in ids
    assert other.cluster_id not in ids


async def test_a_node_that_is_not_among_the_voters_is_refused(nodes: Found) -> None:
    await joined(nodes, 1, 2, 3)
    stranger = nodes.node(4)
    async with asyncio.timeout(30):
        with pytest.raises(NotAMember, match="node 4"):
            await stranger.join()


async def test_members_are_known_by_their_addresses(nodes: Found) -> None:
    one, two, _ = await joined(nodes, 1, 2, 3)
    await eventually(lambda: set(one.members()) == set(two.members()) == {1, 2, 3})
    assert {node: member.rpc_address for node, member in one.members().items()} == ADDRESSES
    assert one.members()[1] == Member(1, ADDRESSES[1], {"default": "10.0.0.1:5672"}, "0.1")


async def test_a_registered_node_waits_for_nothing(nodes: Found) -> None:
    for node in await joined(nodes, 1, 2, 3):
        assert node.waiting_for == ""


async def test_a_node_comes_back_among_the_same_voters(nodes: Found) -> None:
    one, _, _ = await joined(nodes, 1, 2, 3)
    before = one.cluster_id
    await one.close()
    await one.close()
    for memory in nodes.memories[:1]:
        memory.close()
    (again,) = await joined(nodes, 1)
    assert again.cluster_id == before
    await eventually(lambda: 1 in again.members())
