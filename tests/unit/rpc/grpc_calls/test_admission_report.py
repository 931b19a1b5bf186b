"""Whom a node lets in and whom it has refused, and what becomes of that where several nodes tell of it."""

from __future__ import annotations

import asyncio

import pytest

from cluster.rpc import Callers, Unavailable, refused_by_any
from cluster.rpc.handshake import Who
from cluster.stale_copy_detection import DirectoryStart
from tests.ports import free_port
from tests.unit.rpc.support import TestNode, cluster_of, until

ALL = {1, 2, 3}
INCARNATION = 77
BEFORE, LATEST = DirectoryStart(2, (11, 22)), DirectoryStart(4, (11, 22, 33, 44))


def callers(accepted: set[int], refused: set[int] | None = None) -> Callers:
    return Callers(frozenset(accepted), frozenset(refused or ()))


@pytest.mark.parametrize(
    ("told", "refused"),
    [
        ([callers({1, 2}), callers({1, 2})], set()),
        ([callers({1, 2}), callers({1, 2}, {3})], {3}),
        ([callers({1, 2}, {3}), callers({1, 2})], {3}),
        ([callers({1, 2, 3}), callers({1, 2}, {3})], set()),
        ([callers({1, 2}, {3}), callers({1, 2, 3})], set()),
        ([callers({1, 2, 3}, {3}), callers({1, 2, 3}, {3})], set()),
        ([callers({1, 2}, {3}), Callers()], {3}),
        ([callers({1}, {2, 3}), callers({1, 3}, {4})], {2, 4}),
        ([], set()),
    ],
    ids=[
        "nobody",
        "by another",
        "by the one that is asked",
        "by another before it was let in here",
        "here before it was let in by another",
        "a stranger beside the node itself",
        "one does not answer",
        "several",
        "nobody answers",
    ],
)
def test_refused_is_whom_anybody_has_refused_and_nobody_lets_in(told: list[Callers], refused: set[int]) -> None:
    assert refused_by_any(told) == refused


def who(node: int, known: dict[int, int], incarnation: int = INCARNATION, start: DirectoryStart = LATEST) -> Who:
    return Who(
        "dev", node, frozenset(ALL - {node}), incarnation, (1, 2, 3), lambda asked: known.get(asked, 0), start=start
    )


def test_a_refusal_for_other_data_stands_until_the_node_comes_with_its_own() -> None:
    peer = who(1, {3: INCARNATION})
    assert not peer.is_refused(3)
    assert peer.refusal(who(3, {}, incarnation=99).hello_to(1)) is not None
    assert peer.is_refused(3)
    asyncio.run(peer.welcome(who(3, {}).hello_to(1)))
    assert not peer.is_refused(3)


def test_a_copy_is_forgotten_once_the_cluster_knows_the_node_by_other_data() -> None:
    """Another peer has let it in with an empty directory; here it was not seen since."""
    known = {3: INCARNATION}
    peer = who(1, known)
    asyncio.run(peer.welcome(who(3, {}).hello_to(1)))
    assert peer.refusal(who(3, {}, start=BEFORE).hello_to(1)) is not None
    assert peer.is_refused(3)
    known[3] = 99
    assert not peer.is_refused(3)


def with_directory(node: TestNode, start: DirectoryStart = LATEST) -> TestNode:
    node.network._who.incarnation, node.network._who.start = INCARNATION + node.node, start
    return node


async def test_who_has_not_met_a_copy_hears_of_it_from_who_has() -> None:
    """The copy reaches one peer only, and ends when that has refused it."""
    async with cluster_of(1, 2, 3, prepare=with_directory) as nodes:
        assert nodes[1].network.callers() == callers(ALL)
        await nodes[3].network.stop()
        await until(lambda: all(("down", 3) in nodes[node].events for node in (1, 2)), "the end of node 3")
        addresses = {**nodes[3].network._addresses, 3: "127.0.0.1:0", 1: f"127.0.0.1:{free_port()}"}
        copy = with_directory(TestNode(3, addresses), BEFORE)
        told: list[str] = []
        copy.network._links[2]._on_copy = told.append
        await copy.network.start()
        await until(lambda: told, "the refusal")
        await copy.network.stop()
        own, of_peer = nodes[1].network.callers(), await nodes[1].network.client(2).callers(ALL)
        assert own == callers({1, 2})
        assert of_peer == callers({1, 2}, {3})
        assert refused_by_any([own, of_peer]) == {3}

        original = with_directory(TestNode(3, addresses), DirectoryStart(5, (*LATEST.marks, 55)))
        await original.network.start()
        await until(lambda: nodes[2].network.status()[3]["inbound"], "the welcome of the original")
        assert await nodes[1].network.client(2).callers(ALL) == callers(ALL)
        await original.network.stop()


async def test_of_what_a_peer_names_only_known_nodes_are_kept() -> None:
    async with cluster_of(1, 2) as nodes:
        many = Callers(frozenset(range(100_000)), frozenset({3, 2**31 - 1}))
        nodes[2].network._services._callers = lambda: many
        assert await nodes[1].network.client(2).callers(ALL) == callers(ALL, {3})


@pytest.mark.parametrize("field", ["accepted", "refused"])
async def test_what_cannot_be_a_node_is_no_answer(field: str) -> None:
    async with cluster_of(1, 2) as nodes:
        client = nodes[1].network.client(2)
        nodes[2].network._services._callers = lambda: Callers(**{field: frozenset({3, 2**31})})
        with pytest.raises(Unavailable, match="cannot be read"):
            await client.callers(ALL)
        nodes[2].network._services._callers = nodes[2].network.callers
        assert await client.callers(ALL) == callers({1, 2}), "and nothing else is harmed"


async def test_a_peer_that_is_gone_is_no_answer() -> None:
    async with cluster_of(1, 2) as nodes:
        await nodes[2].network.stop()
        with pytest.raises(Unavailable):
            await nodes[1].network.client(2).callers(ALL)
