"""The turn: the one place where time, disk and network meet the replicated groups.

The rule that must never break: nothing that promises durability leaves before the sync of the turn that wrote it, and
no group is ticked on state that a crash could forget. So a turn is written, then synced in a thread (which releases
the GIL), then released; the event loop reads and decodes sockets meanwhile, and what they bring waits for the next
turn. Rejected alternative: a sync for each group or each append; with one write-ahead log, one sync serves all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import inf

from cluster.raft import Clock, Disk, MultiRaft

log = logging.getLogger("holdfast.loop")

STALL_WARNING_S = 0.25
"""A turn longer than this delays heartbeats towards the election timeout; it is logged with its length."""


class RaftLoop:
    """Drives a :class:`cluster.raft.MultiRaft` on the running asyncio loop.

    `before_turn` hands gathered client input to the groups (proposals); `on_fatal` is told of the error after which
    this node must not go on: its memory may be ahead of its disk.
    """

    def __init__(
        self,
        multiraft: MultiRaft,
        disk: Disk,
        clock: Clock,
        before_turn: Callable[[], None],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self._multiraft = multiraft
        self._disk = disk
        self._clock = clock
        self._before_turn = before_turn
        self._on_fatal = on_fatal
        self._woken = asyncio.Event()
        self._stopping = False
        self._syncer = ThreadPoolExecutor(1, thread_name_prefix="wal-sync")
        self._task: asyncio.Task[None] | None = None
        self.turns = 0
        self.syncs = 0
        self.turns_s = 0.0
        self.stalls = 0
        self.turn_started_s: float | None = None  # of the turn under way
        multiraft.on_wake = self.wake

    def start(self) -> None:
        self._woken.set()  # groups opened before there was a loop to wake have had their first input already
        self._task = asyncio.get_running_loop().create_task(self._run(), name="turn-loop")

    def wake(self) -> None:
        """There is input: run a turn as soon as the sockets that are ready have been read."""
        self._woken.set()

    async def stop(self) -> None:
        """Finish the turn under way and make it durable."""
        self._stopping = True
        self._woken.set()
        if self._task is not None:
            await self._task
        self._syncer.shutdown(wait=True)

    async def _run(self) -> None:
        try:
            while not self._stopping:
                await self._input_or_deadline()
                await self._turn()
        except Exception as error:  # noqa: BLE001  memory may be ahead of the disk now: only stopping is safe
            self._on_fatal(error)

    async def _input_or_deadline(self) -> None:
        # One pass of the event loop even when input waits: sockets are read in between, turns carry batches.
        await asyncio.sleep(0)
        if not self._woken.is_set():
            delay = self._multiraft.next_deadline() - self._clock.monotonic()
            if delay == inf:
                await self._woken.wait()
            elif delay > 0:
                handle = asyncio.get_running_loop().call_later(delay, self._woken.set)
                await self._woken.wait()
                handle.cancel()
        self._woken.clear()

    async def _turn(self) -> None:
        started = self._clock.monotonic()
        self._before_turn()
        turn = self._multiraft.turn()
        if turn is None:
            return
        self.turn_started_s = started
        self.turns += 1
        if turn.needs_sync:
            self.syncs += 1
            await asyncio.get_running_loop().run_in_executor(self._syncer, self._disk.sync)
        self._multiraft.release(turn)
        self.turn_started_s = None
        took_s = self._clock.monotonic() - started
        self.turns_s += took_s
        if took_s > STALL_WARNING_S:
            self.stalls += 1
            log.warning("a turn took %.0f ms (disk or processor busy); elections may follow", took_s * 1000)
        if self._multiraft.has_work:
            self._woken.set()
