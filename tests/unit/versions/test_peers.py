"""A node hears of the active version before anything that was made with it, from whichever peer it hears first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from cluster.raft import RaftMessage
from cluster.rpc.handshake import Who
from cluster.rpc.raft_transport.inbound import InboundLinks, InboundStream
from cluster.rpc.rpc_pb2 import ActiveVersion, Frame
from cluster.stale_copy_detection import DirectoryStart
from cluster.versions import NEWEST, OURS, UNSET, VersionRange
from tests.unit.raft.cluster import RaftStage
from tests.unit.raft.recovery.test_snapshot_receiver import is_whole, left_behind
from tests.unit.rpc.support import TestNode, cluster_of, until

LATER = NEWEST + 1
BOTH = VersionRange(NEWEST, LATER)


def note(group: int) -> RaftMessage:
    message = RaftMessage(group=group, version=1, term=1)
    message.timeout_now.SetInParent()
    return message


def with_versions(known: VersionRange) -> Callable[[TestNode], None]:
    """Nodes that note what they hear of versions among what they hear."""

    def prepare(node: TestNode) -> None:
        who = node.network._who
        who.versions = known
        who.active = lambda: UNSET
        who.on_active = lambda version: node.heard.append((0, version)) if version else None

    return prepare


def heard_by(node: TestNode) -> list[int]:
    return [said if peer == 0 else said.group for peer, said in node.heard]


async def test_what_rises_is_told_before_the_messages_that_follow() -> None:
    async with cluster_of(1, 2, prepare=with_versions(BOTH)) as nodes:
        nodes[1].network.send(2, [note(7)])
        nodes[1].network.tell_active_version(LATER)
        nodes[1].network.send(2, [note(8)])
        await until(lambda: 8 in heard_by(nodes[2]), "the message")
        heard = heard_by(nodes[2])
        assert heard.index(LATER) < heard.index(8)
        assert sorted(heard) == [7, 8, LATER]


@pytest.mark.parametrize(("known", "heard"), [(BOTH, [LATER, 7]), (OURS, [])])
async def test_it_is_told_before_what_is_in_the_same_frame(known: VersionRange, heard: list[int]) -> None:
    told: list[int] = []
    who = Who("dev", 2, frozenset({1}), versions=known, on_active=told.append)
    inbound = InboundLinks(
        who=who, on_hello=print, on_change=print, on_hints=print, on_clock=print,
        on_messages=lambda _, messages: told.extend(message.group for message in messages),
    )  # fmt: skip
    stream = InboundStream(1, 0, DirectoryStart(), BOTH, 0.0)
    inbound._tell(stream, Frame(active=ActiveVersion(version=LATER)), [note(7)])
    assert told == heard
    assert stream.ended.done() == (not heard)


async def test_a_stream_begins_with_what_its_node_knows_to_be_active() -> None:
    async with cluster_of(1, 2, prepare=with_versions(BOTH)) as nodes:
        nodes[1].network._who.active = lambda: LATER
        nodes[1].network._inbound.end_all()
        nodes[2].network._inbound.end_all()
        await until(lambda: LATER in heard_by(nodes[2]), "Hello")


async def test_what_rose_between_hello_and_welcome_is_told_first() -> None:
    """The stream does not stand yet when the node's version rises: what is sent on it then must not go without."""
    said = iter([NEWEST])
    async with cluster_of(1, 2, prepare=with_versions(BOTH)) as nodes:
        nodes[1].network._who.active = lambda: next(said, LATER)  # Hello, and then
        nodes[1].network._links[2]._over.set_result("in a test")  # type: ignore[union-attr]
        await until(lambda: not nodes[1].network.is_up(2), "the end of the stream")
        await nodes[1].up(2)
        nodes[1].network.send(2, [note(8)])
        await until(lambda: 8 in heard_by(nodes[2]), "the message")
        heard = heard_by(nodes[2])
        assert NEWEST in heard
        assert heard.index(LATER) < heard.index(8)


async def test_a_program_that_does_not_know_it_ends_the_stream_and_hears_nothing_more() -> None:
    async with cluster_of(1, 2, prepare=with_versions(OURS)) as nodes:
        nodes[1].network.tell_active_version(LATER)
        nodes[1].network.send(2, [note(8)])
        await until(lambda: not nodes[1].network.is_up(2), "the end of the stream")
        says = f"node 2: the cluster runs version {LATER}, and the program knows {OURS}: install"
        await until(lambda: says in nodes[1].network.status()[2]["last_error"], "the reason")
        assert heard_by(nodes[2]) == []


def test_a_caller_that_is_let_in_tells_what_is_active_and_one_that_is_not_tells_nothing() -> None:
    told: list[int] = []
    ours = Who("dev", 1, frozenset({2}), versions=BOTH, on_active=told.append)
    peer = Who("dev", 2, frozenset({1}), versions=BOTH, active=lambda: LATER)
    assert ours.refusal(peer.hello_to(1)) is None
    assert told == [LATER]
    stranger = Who("other", 2, frozenset({1}), versions=BOTH, active=lambda: LATER)
    assert "cluster 'other'" in str(ours.refusal(stranger.hello_to(1)))
    assert told == [LATER]


async def test_how_long_a_node_has_been_heard_begins_again_with_its_process() -> None:
    async with cluster_of(1, 2) as nodes:
        network = nodes[1].network
        await until(lambda: network.heard_for_s(2) > 0.0, "time")
        assert network.heard_for_s(1) >= network.heard_for_s(2)
        assert network.heard_for_s(3) == 0.0
        before = asyncio.get_running_loop().time()
        await nodes[2].network.stop()
        assert network.heard_for_s(2) == 0.0
        assert network.start_of(2) is None
        nodes[2] = TestNode(2, {1: network._bind, 2: nodes[2].network._bind})
        await nodes[2].network.start()
        await nodes[1].up(2)
        assert network.heard_for_s(2) <= asyncio.get_running_loop().time() - before


def versions_of(stage: RaftStage, active: dict[int, int]) -> None:
    for node in stage.multirafts:
        stage.group(node)._log_store._active_version = lambda node=node: active[node]  # type: ignore[misc]


def test_a_snapshot_of_a_later_version_waits_until_that_is_active_here() -> None:
    stage, active = left_behind(), {1: LATER, 2: LATER, 3: NEWEST}
    stage.start(3)
    versions_of(stage, active)
    stage.run(2.0)
    assert stage.group(3).applied_index < stage.group(1).first_index, "nothing was taken"
    active[3] = LATER
    stage.run(3.0)
    assert is_whole(stage)


@pytest.mark.parametrize("own", [NEWEST, LATER])
def test_a_snapshot_is_written_in_the_layout_of_the_receivers_version(own: int) -> None:
    stage = left_behind()
    stage.start(3)
    versions_of(stage, {1: NEWEST, 2: NEWEST, 3: own})
    seen: list[int] = []
    checkpoint = stage.machines[3].checkpoint

    def noted(version: int) -> bytes:
        seen.append(version)
        return bytes(checkpoint(version))

    stage.machines[3].checkpoint = noted
    stage.run(3.0)
    assert is_whole(stage)
    assert seen
    assert set(seen) == {own}
    assert stage.group(3).rewritten_version == own
