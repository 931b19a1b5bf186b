"""The order of a turn: written, synced, released; and what calls for the next one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from math import inf
from typing import Any

import pytest
import uvloop

from cluster.raft.multiraft import Turn
from node.raft_loop import BULK_BYTES, BULK_PERIOD_S, RaftLoop, TurnInput
from tests.unit.listener.support.peer import eventually
from tests.unit.listener.support.single import ListenerClock


class Groups:
    """As much of MultiRaft as its loop sees."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.needs_sync = True
        self.has_input = False
        self.has_work = False
        self.due_s = inf
        self.on_wake: Any = None
        self.asked = 0

    def turn(self) -> Turn | None:
        self.asked += 1
        if not self.has_input and not self.has_work and self.due_s > time.monotonic():
            return None
        self.has_input, self.due_s = False, inf
        self.did.append("turn")
        return Turn(self.needs_sync, {}, [], [])

    def release(self, turn: Turn) -> None:
        self.did.append("release")

    def next_deadline(self) -> float:
        return self.due_s


class SlowDisk:
    """A sync takes until it is allowed to end."""

    def __init__(self, did: list[str]) -> None:
        self._did = did
        self.may_end = threading.Event()
        self.may_end.set()
        self.syncing = threading.Event()
        self.error: Exception | None = None
        self.must_drain = False

    def sync(self) -> None:
        self._take("sync")

    def drain(self) -> None:
        self._take("drain")

    def _take(self, what: str) -> None:
        self.syncing.set()
        self.may_end.wait()
        if self.error is not None:
            raise self.error
        self._did.append(what)


class Parts:
    def __init__(self) -> None:
        self.groups = Groups()
        self.disk = SlowDisk(self.groups.did)
        self.failures: list[BaseException] = []
        self.input = TurnInput()
        groups: Any = self.groups
        disk: Any = self.disk
        self.loop = RaftLoop(groups, disk, ListenerClock(), self.input, self.failures.append)

    @property
    def did(self) -> list[str]:
        return self.groups.did

    def ask(self) -> None:
        self.groups.has_input = True
        self.loop.wake()

    async def idle(self) -> None:
        await eventually(lambda: not self.loop._busy)


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    made = Parts()
    made.loop.start()
    yield made
    made.disk.may_end.set()
    await made.loop.stop()


async def test_nothing_is_released_before_its_sync_has_ended(parts: Parts) -> None:
    parts.disk.may_end.clear()
    parts.ask()
    await asyncio.to_thread(parts.disk.syncing.wait)
    for _ in range(5):
        parts.ask()
        await asyncio.sleep(0)
    assert parts.did == ["turn"], "neither released, nor is another turn begun meanwhile"
    parts.disk.may_end.set()
    await eventually(lambda: len(parts.did) == 6)
    assert parts.did == ["turn", "sync", "release"] * 2, "what came meanwhile is in one turn"


async def test_a_turn_that_promises_nothing_is_not_synced(parts: Parts) -> None:
    parts.groups.needs_sync = False
    parts.ask()
    await eventually(lambda: parts.did == ["turn", "release"])
    assert parts.loop.syncs == 0


@pytest.mark.parametrize("fails", [False, True])
async def test_what_a_kill_would_lose_is_drained_before_the_release(parts: Parts, fails: bool) -> None:
    parts.groups.needs_sync, parts.disk.must_drain = False, True
    parts.disk.error = OSError("no") if fails else None
    parts.disk.may_end.clear()
    parts.ask()
    await asyncio.to_thread(parts.disk.syncing.wait)
    assert parts.did == ["turn"]
    parts.disk.may_end.set()
    if fails:
        await eventually(lambda: parts.failures)
        assert parts.did == ["turn"]
    else:
        await eventually(lambda: parts.did == ["turn", "drain", "release"])
        assert parts.loop.syncs == 0


async def test_a_deadline_calls_for_a_turn_and_input_comes_before_it(parts: Parts) -> None:
    await parts.idle()
    parts.groups.due_s = time.monotonic() + 0.05
    parts.loop.wake()  # it learns the new deadline
    await eventually(lambda: parts.did == ["turn", "sync", "release"])
    await parts.idle()
    parts.groups.due_s = time.monotonic() + 3600
    parts.loop.wake()
    await parts.idle()
    parts.ask()
    await eventually(lambda: len(parts.did) == 6)


def test_a_near_deadline_is_waited_for_without_idle_turns() -> None:
    """The nodes' loop rounds to milliseconds, down if it can: it spun until the deadline was there."""
    deadlines = 50

    async def meet_deadlines() -> int:
        parts = Parts()
        parts.groups.needs_sync = False
        parts.loop.start()
        for done in range(deadlines):
            await parts.idle()
            parts.groups.due_s = time.monotonic() + 0.0004
            parts.loop.wake()
            await eventually(lambda wanted=done + 1: parts.loop.turns == wanted)
        await parts.loop.stop()
        return parts.groups.asked

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        asked = runner.run(meet_deadlines())
    assert asked <= 5 * deadlines  # one that learns of the deadline, one that meets it, one that comes too early


async def test_work_that_is_left_over_is_done_without_a_call(parts: Parts) -> None:
    parts.groups.has_work = True
    parts.ask()
    await eventually(lambda: parts.loop.turns >= 3)
    parts.groups.has_work = False
    await parts.idle()


async def test_after_a_sync_that_failed_nothing_is_released_and_no_turn_follows(parts: Parts) -> None:
    parts.disk.error = OSError("no")
    parts.ask()
    await eventually(lambda: parts.failures)
    parts.ask()
    for _ in range(5):
        await asyncio.sleep(0)
    assert parts.did == ["turn"]
    assert parts.failures == [parts.disk.error]


async def test_who_stops_waits_for_the_turn_under_way_and_none_follows(parts: Parts) -> None:
    parts.disk.may_end.clear()
    parts.ask()
    await asyncio.to_thread(parts.disk.syncing.wait)
    stopping = asyncio.ensure_future(parts.loop.stop())
    parts.ask()
    await asyncio.sleep(0)
    assert not stopping.done()
    parts.disk.may_end.set()
    await stopping
    assert parts.did == ["turn", "sync", "release"]
    parts.ask()
    await asyncio.sleep(0)
    assert len(parts.did) == 3


async def test_a_loop_that_was_never_started_stops() -> None:
    await Parts().loop.stop()


# ---------------------------------------------------------------- what goes into a turn


class Partition:
    """As much of one as the input of a turn sees."""

    def __init__(self, under_way: int = 0) -> None:
        self.proposed_bytes = under_way
        self.gathered = 0
        self.flushed: list[int] = []

    def flush(self) -> None:
        self.flushed.append(self.gathered)
        self.proposed_bytes += self.gathered
        self.gathered = 0


def gather(given: TurnInput, partition: Partition, size: int) -> None:
    if not partition.gathered:
        given.add(partition)
    partition.gathered += size


def test_what_comes_while_much_is_under_way_waits_for_company_but_not_for_ever() -> None:
    given, one = TurnInput(), Partition()
    gather(given, one, BULK_BYTES)
    assert given.due_s() == 0.0
    given.flush(100.0)
    assert one.flushed == [BULK_BYTES]
    assert given.due_s() == inf
    gather(given, one, 1000)
    due_s = given.due_s()
    assert due_s == 100.0 + BULK_PERIOD_S
    given.flush(due_s - 0.001)
    gather(given, one, 1000)
    given.flush(due_s - 0.001)
    assert one.flushed == [BULK_BYTES]
    assert given.due_s() == due_s
    given.flush(due_s)
    assert one.flushed == [BULK_BYTES, 2000]
    assert given.due_s() == inf


def test_who_sends_little_or_waits_for_each_answer_waits_for_nobody() -> None:
    given, little, alone = TurnInput(), Partition(), Partition()
    gather(given, alone, 8 * BULK_BYTES)
    given.flush(100.0)
    gather(given, little, BULK_BYTES // 2)
    given.flush(100.001)
    gather(given, little, 1)
    given.flush(100.002)
    assert little.flushed == [BULK_BYTES // 2, 1]
    alone.proposed_bytes = 0  # it has its answer
    gather(given, alone, 8 * BULK_BYTES)
    assert given.due_s() == 0.0
    given.flush(100.003)
    assert alone.flushed == [8 * BULK_BYTES] * 2


def test_partitions_with_much_under_way_wait_for_the_same_moment() -> None:
    given, first, second = TurnInput(), Partition(), Partition()
    gather(given, first, BULK_BYTES)
    given.flush(100.0)
    gather(given, second, BULK_BYTES)
    given.flush(100.005)  # moves nothing, or with many of them the first would wait for ever
    gather(given, first, 1)
    gather(given, second, 1)
    assert given.due_s() == 100.0 + BULK_PERIOD_S
    given.flush(given.due_s())
    assert (first.flushed, second.flushed) == ([BULK_BYTES, 1], [BULK_BYTES, 1])


def test_of_a_partition_that_is_gone_nothing_is_proposed() -> None:
    given, gone, other = TurnInput(), Partition(), Partition()
    gather(given, gone, 1)
    gather(given, other, 1)
    given.forget(gone)
    given.forget(gone)
    given.flush(100.0)
    assert (gone.flushed, other.flushed) == ([], [1])


async def test_a_turn_comes_by_itself_for_what_waited(parts: Parts) -> None:
    await parts.idle()
    busy = Partition(under_way=BULK_BYTES)
    gather(parts.input, busy, 1)
    await eventually(lambda: busy.flushed == [1])  # no bulk came before it: there is nothing to wait for
    gather(parts.input, busy, 1)
    await eventually(lambda: busy.flushed == [1, 1])
    await parts.idle()
    assert parts.input.due_s() == inf
