"""The order of a turn: written, synced, released; and what calls for the next one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from math import inf
from typing import Any

import pytest

from cluster.raft.multiraft import Turn
from node.raft_loop import RaftLoop
from tests.unit.listener.support.peer import eventually
from tests.unit.listener.support.single import Clock


class Groups:
    """As much of MultiRaft as its loop sees."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.needs_sync = True
        self.has_input = False
        self.has_work = False
        self.due_s = inf
        self.on_wake: Any = None

    def turn(self) -> Turn | None:
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
        groups: Any = self.groups
        disk: Any = self.disk
        self.loop = RaftLoop(groups, disk, Clock(), lambda: None, self.failures.append)

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
