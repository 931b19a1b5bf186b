"""Older copies of a node's data, and two processes on the same: who is let in, and who is told that it is a copy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from cluster.rpc import options
from cluster.rpc.handshake import Who
from cluster.rpc.raft_transport.errors import StreamError, StreamRefused
from cluster.rpc.raft_transport.inbound import InboundLinks, InboundStream, Newcomer
from cluster.rpc.refusal_log import WHY
from cluster.rpc.rpc_pb2 import Frame, Hello
from cluster.stale_copy_detection import STARTS_REMEMBERED, DirectoryStart, KnownStart, copy_fault
from cluster.versions import OURS, VersionRange
from tests.unit.rpc.support import SOON_S, TestNode, cluster_of, until

INCARNATION = 77


def after(start: DirectoryStart, *marks: int) -> DirectoryStart:
    return DirectoryStart(start.boot + len(marks), (*start.marks, *marks)[-STARTS_REMEMBERED:])


IMAGE = after(DirectoryStart(), 11, 22, 33)
LATER = after(IMAGE, 44, 55)


@pytest.mark.parametrize(
    ("start", "says"),
    [
        (LATER, None),
        (after(LATER, 66), None),
        (after(LATER, 66, 77, 88), None),
        (IMAGE, "older copy"),
        (after(IMAGE, 99), "older copy"),
        (after(IMAGE, 99, 98), "another process has made start 5"),
        (after(IMAGE, 99, 98, 97, 96), "another process has made start 5"),
        (DirectoryStart(), None),
    ],
    ids=["the same", "the next", "a later one", "the image", "started once", "as often", "more often", "not told"],
)
def test_only_a_start_that_goes_on_from_the_known_one_may_be_the_latest(
    start: DirectoryStart, says: str | None
) -> None:
    fault = copy_fault(start, LATER.known)
    assert (fault is None) == (says is None)
    assert (says or "") in (fault or "")


def test_who_was_away_for_very_long_goes_by_the_count() -> None:
    long_after = after(LATER, *range(100, 101 + STARTS_REMEMBERED))
    assert len(long_after.marks) == STARTS_REMEMBERED
    assert copy_fault(long_after, LATER.known) is None
    assert copy_fault(LATER, long_after.known) is not None


def who(
    node: int, start: DirectoryStart = IMAGE, registered: KnownStart = KnownStart(), incarnation: int = INCARNATION
) -> Who:
    return Who(
        "prod", node, frozenset({1, 2, 3} - {node}), incarnation, (1, 2, 3), lambda _: INCARNATION, start=start,
        registered_start=lambda _: registered,
    )  # fmt: skip


async def test_what_was_let_in_is_remembered_and_an_older_copy_is_told_what_to_do() -> None:
    peer = who(1)
    assert peer.refusal(who(3, LATER).hello_to(1)) is None
    await peer.welcome(who(3, LATER).hello_to(1))
    refusal = str(peer.refusal(who(3, after(IMAGE, 99)).hello_to(1)))
    for words in ("node 3", "older copy", "original data", "empty data_dir", "holdfast node readmit 3"):
        assert words in refusal
    assert peer.copies == {3: INCARNATION}
    assert peer.refusal(who(3, after(LATER, 66)).hello_to(1)) is None


async def test_what_is_registered_counts_as_well_and_only_for_the_incarnation_that_is() -> None:
    peer = who(1, registered=LATER.known)
    assert "older copy" in str(peer.refusal(who(3, IMAGE).hello_to(1)))
    assert peer.refusal(who(3, LATER).hello_to(1)) is None
    peer.admitted[3] = 99
    wiped = who(3, DirectoryStart(1, (5,)), incarnation=99)
    assert peer.refusal(wiped.hello_to(1)) is None, "the one of two that is let in with an empty directory"
    await peer.welcome(wiped.hello_to(1))


def identified(start: DirectoryStart) -> Callable[[TestNode], TestNode]:
    def prepare(node: TestNode) -> TestNode:
        node.network._who.incarnation, node.network._who.start = INCARNATION + node.node, start
        return node

    return prepare


def told_copies(node: TestNode) -> list[str]:
    told: list[str] = []
    for link in node.network._links.values():
        link._on_copy = told.append
    return told


def beside(nodes: dict[int, TestNode], start: DirectoryStart) -> TestNode:
    """A second process that calls itself node 2."""
    return identified(start)(TestNode(2, {2: "127.0.0.1:0", **nodes[2].network._addresses}))


async def test_a_clone_beside_the_original_waits_and_is_a_copy_when_that_speaks_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(options, "BESIDE_S", 1.0)
    async with cluster_of(1, 2, prepare=identified(IMAGE)) as nodes:
        clone = beside(nodes, after(IMAGE, 99))
        told = told_copies(clone)
        await clone.network.start()
        await until(lambda: WHY in clone.network._links[1].last_error, "the first word")
        assert "still heard" in caplog.text
        await until(lambda: told, "the verdict")
        assert "beside it" in told[0]
        assert nodes[1].events == [("up", 2)], "the original noticed nothing"
        await nodes[2].network.stop()
        await until(lambda: ("down", 2) in nodes[1].events, "the end of the original")
        count = len(told)
        await until(lambda: len(told) > count + 1, "further refusals of the clone")
        assert not clone.network.status()[1]["outbound"]
        await clone.network.stop()


async def test_a_process_that_follows_another_is_let_in_when_the_old_stream_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with cluster_of(1, 2, prepare=identified(IMAGE)) as nodes:
        following = beside(nodes, after(IMAGE, 44))
        told = told_copies(following)
        await following.network.start()
        await until(lambda: WHY in following.network._links[1].last_error, "the first word")
        assert "still heard" in caplog.text
        await nodes[2].network.stop()
        await until(lambda: following.network.status()[1]["outbound"], "the welcome")
        await until(lambda: not nodes[1].network._inbound._beside, "an end of the comparison")
        assert not told
        await following.network.stop()


async def test_who_waited_for_a_process_that_has_ended_is_never_called_a_clone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restarted twice before the end of the first stream was noticed: the second start goes on from one that waited."""
    monkeypatch.setattr(options, "BESIDE_S", 0.0)
    async with cluster_of(1, 2, prepare=identified(IMAGE)) as nodes:
        await nodes[2].network.stop()
        again = beside(nodes, after(IMAGE, 44, 45))
        await again.network.start()
        await until(lambda: again.network.status()[1]["outbound"], "the welcome")
        inbound = nodes[1].network._inbound
        waited = after(IMAGE, 44).known
        inbound._beside[2, waited] = Newcomer(IMAGE.known, inbound._streams[2].heard_s - 1.0)
        await until(lambda: not inbound._beside, "the end of its wait")
        assert nodes[1].network._who.refusal(again.network._who.hello_to(1)) is None
        await again.network.stop()


def listening(peer: Who) -> InboundLinks:
    def nothing(*_: object) -> None:
        pass

    return InboundLinks(
        who=peer, on_hello=nothing, on_change=nothing, on_messages=nothing, on_hints=nothing, on_clock=nothing
    )


async def test_a_stream_of_a_program_that_does_not_know_what_is_activated_ends() -> None:
    peer = who(1)
    inbound = listening(peer)
    for node, versions in ((2, VersionRange(OURS.oldest, OURS.newest + 1)), (3, OURS)):
        inbound._streams[node] = InboundStream(node, INCARNATION, IMAGE, versions, 100.0)
        peer.starts.heard(node, IMAGE)
    old = inbound._streams[3]
    inbound.end_strangers()
    assert set(inbound._streams) == {2, 3}, "nothing is activated"
    peer.active = lambda: OURS.newest + 1
    inbound.end_strangers()
    assert set(inbound._streams) == {2}
    assert "node 3: the cluster runs version" in str(old.ended.result())


@pytest.mark.parametrize("came", ["before the standstill", "after it"])
async def test_who_was_restarted_while_its_peer_stood_still_is_no_clone(came: str) -> None:
    """What the ended process said last is read after the standstill, before anybody has looked at the time."""
    peer, later, now_s = who(1), after(IMAGE, 44), 100.0
    inbound = listening(peer)
    stream = inbound._streams[3] = InboundStream(3, INCARNATION, IMAGE, OURS, now_s)
    peer.starts.heard(3, IMAGE)
    if came == "before the standstill":
        inbound._beside[3, later.known] = Newcomer(IMAGE.known, now_s)
    now_s += 60.0
    stream.heard_s = now_s
    inbound.postpone(59.8, now_s)
    inbound._beside.setdefault((3, later.known), Newcomer(IMAGE.known, now_s))
    inbound.end_silent(now_s + options.TICK_S)
    assert peer.refusal(who(3, later).hello_to(1)) is None
    stream.heard_s = now_s + options.BESIDE_S + 1.0
    inbound.end_silent(stream.heard_s)
    assert "went on speaking beside it" in str(peer.refusal(who(3, later).hello_to(1))), "then it speaks on indeed"


class HeldEnd:
    """The end of a stream that hears a peer: its welcome leaves when the test says so."""

    def __init__(self, hello: Hello) -> None:
        self._hello = Frame(hello=hello).SerializeToString()
        self.sending, self.leaves, self.ends = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def read(self) -> Any:
        return self._hello

    async def hand_over(self, _: object) -> None:
        await self.ends.wait()

    async def welcome(self) -> None:
        self.sending.set()
        await self.leaves.wait()

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"


async def test_of_two_calls_at_once_one_is_the_stream_and_the_other_one_ends() -> None:
    """The one that nobody ends would be spoken into by a peer that is not up."""
    inbound, caller = listening(who(1)), who(3)
    first, second = HeldEnd(caller.hello_to(1)), HeldEnd(caller.hello_to(1))
    serving = [asyncio.ensure_future(inbound.serve(end)) for end in (first, second)]
    for end in (first, second):
        await end.sending.wait()
    second.leaves.set()
    await until(lambda: 3 in inbound._streams, "the second call's stream")
    first.leaves.set()
    await until(lambda: any(task.done() for task in serving), "the end of one of them", within_s=SOON_S)
    ended, standing = (0, second) if serving[0].done() else (1, first)
    assert isinstance(serving[ended].exception(), StreamError)
    assert 3 in inbound._streams
    standing.ends.set()
    await asyncio.gather(*serving, return_exceptions=True)
    assert not inbound._streams


async def test_who_is_overtaken_while_its_welcome_leaves_is_not_let_in() -> None:
    """An older process of the node, and its successor."""
    inbound = listening(who(1))
    older, later = HeldEnd(who(3, IMAGE).hello_to(1)), HeldEnd(who(3, after(IMAGE, 44)).hello_to(1))
    serving = [asyncio.ensure_future(inbound.serve(older))]
    await older.sending.wait()
    serving.append(asyncio.ensure_future(inbound.serve(later)))
    await later.sending.wait()
    later.leaves.set()
    await until(lambda: 3 in inbound._streams, "the later one's stream")
    older.leaves.set()
    with pytest.raises(StreamRefused):
        await asyncio.wait_for(serving[0], SOON_S)
    assert inbound._streams[3].start == after(IMAGE, 44)
    later.ends.set()
    await asyncio.gather(*serving, return_exceptions=True)


async def test_a_second_clone_of_one_image_is_refused_at_once() -> None:
    async with cluster_of(1, 2, prepare=identified(IMAGE)) as nodes:
        await nodes[2].network.stop()
        first, second = beside(nodes, after(IMAGE, 44)), beside(nodes, after(IMAGE, 45))
        await first.network.start()
        await until(lambda: first.network.status()[1]["outbound"], "the welcome of the first")
        told = told_copies(second)
        await second.network.start()
        await until(lambda: told, "the refusal of the second")
        assert "another process has made start 4" in told[0]
        await first.network.stop()
        await second.network.stop()


async def test_nobody_is_let_in_before_the_start_is_remembered_on_disk() -> None:
    synced = asyncio.Event()

    class SlowDisk:
        def latest(self, node: int, incarnation: int) -> KnownStart:
            return KnownStart()

        async def remember(self, node: int, incarnation: int, start: KnownStart) -> None:
            await synced.wait()

    async with cluster_of(1, 2, prepare=identified(IMAGE)) as nodes:
        nodes[1].network._who.starts._memory = SlowDisk()
        await nodes[2].network.stop()
        following = beside(nodes, after(IMAGE, 44))
        await following.network.start()
        await until(lambda: "no welcome" in following.network._links[1].last_error, "an attempt in vain")
        assert not nodes[1].network.status()[2]["inbound"]
        synced.set()
        await until(lambda: following.network.status()[1]["outbound"], "the welcome")
        await following.network.stop()
