"""The turn: the one place where time, disk and network meet the replicated groups.

The rule that must never break: nothing that promises durability leaves before the sync of the turn that wrote it, and
no group is ticked on state that a crash could forget. So a turn is written, then synced in a thread (which releases the
GIL), then released; the event loop reads and decodes sockets meanwhile, and their input waits for the next turn. The
store may keep a turn's writes in memory until that sync, and write them in the same thread; with durability
"replicated" the thread only writes them, if they are many (`storage/wal/write_path.py`). Rejected alternatives: a sync
for each group or each append; with one write-ahead log, one sync serves all. Further turns while a sync runs, released
in their order: that input is in one turn now, and was in several, so that with 200 events of 1 KiB in flight each cost
8 % more and came no sooner. A task with an executor's future: from the end of the sync to the waiting work that takes a
turn of the event loop more, which at a full load is a millisecond and more for everybody. An executor, whose
futures and locks are more work for a lone event than handing it over.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from math import ceil, inf
from queue import SimpleQueue
from typing import Protocol

from cluster.raft import Clock, Disk, MultiRaft
from cluster.raft.multiraft import Turn

log = logging.getLogger("holdfast.loop")

STALL_WARNING_S = 0.25
"""A turn longer than this delays heartbeats towards the election timeout; it is logged with its length."""


BULK_BYTES = 128 * 1024
"""Proposed bytes of one partition without outcome from which later records wait for company ..."""
BULK_PERIOD_S = 0.008
"""... until so long after such a proposal. A turn with records costs a leader and its two followers 1.5 ms of their
processors in addition to the records. With 12,000 events of 100 bytes under way, on disk, turns used to follow each
other without a pause, with 2,900 events each; with this they have 4,500, and three nodes and their client have 1.1 of
the rate, since each event costs the nodes 0.8 to 0.95 of what it did. 6 to 11 ms differ by less than the noise."""


class Appends(Protocol):
    """Appends of one partition."""

    @property
    def proposed_bytes(self) -> int:
        """Bytes of records in entries that have no outcome yet."""
        ...

    def flush(self) -> None:
        """Propose the gathered batches."""
        ...


class TurnInput:
    """Appends of all partitions of this node that wait for the next turn, which proposes them.

    The rule: a client that sends little, or waits for each answer, never waits for company: only appends that came
    while `BULK_BYTES` of their partition had no outcome do, and all partitions of a node wait for the same moment.
    Rejected: to wait for the outcome of what is under way. A leader and its followers would take turns.
    """

    def __init__(self, bulk_bytes: int = BULK_BYTES) -> None:
        self.on_input: Callable[[], None] = _nothing
        self._bulk_bytes = bulk_bytes
        self._gathered: dict[Appends, bool] = {}  # True: it came while much of the partition was under way
        self._bulk_at_s = 0.0  # waiting appends are not proposed before

    def add(self, appends: Appends) -> None:
        """Note appends that have gathered something, and had nothing before."""
        self._gathered[appends] = appends.proposed_bytes >= self._bulk_bytes
        self.on_input()

    def forget(self, appends: Appends) -> None:
        self._gathered.pop(appends, None)

    def flush(self, now_s: float) -> None:
        """Begin a turn: propose what need not wait."""
        gathered, self._gathered = self._gathered, {}
        may_all = now_s >= self._bulk_at_s
        for appends, is_bulk in gathered.items():
            if is_bulk and not may_all:
                self._gathered[appends] = True
                continue
            appends.flush()
            if appends.proposed_bytes >= self._bulk_bytes and now_s >= self._bulk_at_s:
                self._bulk_at_s = now_s + BULK_PERIOD_S

    def due_s(self) -> float:
        """Time at which `flush` has something to do, on the clock that it is given; inf: there is nothing."""
        if not self._gathered:
            return inf
        return self._bulk_at_s if all(self._gathered.values()) else 0.0


class RaftLoop:
    """Drives a :class:`cluster.raft.MultiRaft` on the running asyncio loop.

    `on_fatal` is told of the error after which this node must not go on: its memory may be ahead of its disk.
    """

    def __init__(
        self,
        multiraft: MultiRaft,
        disk: Disk,
        clock: Clock,
        turn_input: TurnInput,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self._multiraft = multiraft
        self._disk = disk
        self._clock = clock
        self._input = turn_input
        self._on_fatal = on_fatal
        self._woken = False
        self._busy = False  # a turn is under way, or called for
        self._failed = False
        self._timer: asyncio.TimerHandle | None = None
        self._stopped: asyncio.Future[None] | None = None  # asked to stop; done when the turn under way is
        self._syncs: SimpleQueue[tuple[Turn, Callable[[], None]] | None] = SimpleQueue()
        self._syncer = threading.Thread(target=self._secure_all, name="wal-sync", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.turns = 0
        self.syncs = 0
        self.turns_s = 0.0
        self.stalls = 0
        self.turn_started_s: float | None = None  # of the turn under way
        multiraft.on_wake = turn_input.on_input = self.wake

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._syncer.start()
        self.wake()  # groups opened before there was a loop to wake have had their first input already

    def wake(self) -> None:
        """Run a turn for new input as soon as the sockets that are ready have been read."""
        self._woken = True
        if not self._busy:
            self._call_soon()

    async def stop(self) -> None:
        """Finish the turn under way and make it durable."""
        if self._loop is not None and self._stopped is None:
            self._stopped = self._loop.create_future()
            self._forget_timer()
            if self._failed or not self._busy:
                self._stopped.set_result(None)
            await self._stopped
            self._syncs.put(None)
            self._syncer.join()

    def _call_soon(self) -> None:
        if self._loop is not None and self._stopped is None:
            self._busy = True
            self._forget_timer()
            self._loop.call_soon(self._guarded, self._turn)

    def _guarded(self, step: Callable[..., None], *arguments: object) -> None:
        """Run a step. After an error nothing more is done: memory may be ahead of the disk, and only stopping is
        safe."""
        try:
            step(*arguments)
        except Exception as error:  # noqa: BLE001
            self._failed = True
            self._end()
            self._on_fatal(error)

    def _end(self) -> None:
        """End the loop: no turn follows. It stays busy, so that none is called for."""
        if self._stopped is not None and not self._stopped.done():
            self._stopped.set_result(None)

    def _turn(self) -> None:
        self._woken = False
        started = self._clock.monotonic()
        self._input.flush(started)
        turn = self._multiraft.turn()
        if turn is None:
            self._next()
            return
        self.turn_started_s = started
        self.turns += 1
        if turn.needs_sync:
            self.syncs += 1
            self._syncs.put((turn, self._disk.sync))
        elif self._disk.must_drain:
            self._syncs.put((turn, self._disk.drain))
        else:
            self._release(turn)

    def _secure_all(self) -> None:
        """Secure turns, in a thread of its own."""
        while (work := self._syncs.get()) is not None:
            self._secure(*work)

    def _secure(self, turn: Turn, secure: Callable[[], None]) -> None:
        error: Exception | None = None
        try:
            secure()
        except Exception as failed:  # noqa: BLE001  told below, where the loop decides
            error = failed
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._guarded, self._secured, turn, error)

    def _secured(self, turn: Turn, error: Exception | None) -> None:
        if error is not None:
            raise error
        self._release(turn)

    def _release(self, turn: Turn) -> None:
        self._multiraft.release(turn)
        assert self.turn_started_s is not None
        took_s = self._clock.monotonic() - self.turn_started_s
        self.turn_started_s = None
        self.turns_s += took_s
        if took_s > STALL_WARNING_S:
            self.stalls += 1
            log.warning("a turn took %.0f ms (disk or processor busy); elections may follow", took_s * 1000)
        if self._multiraft.has_work:
            self._woken = True
        self._next()

    def _next(self) -> None:
        """Arrange another turn, now or when a deadline or input calls for it."""
        if self._stopped is not None:
            self._end()
            return
        assert self._loop is not None
        # One pass of the event loop even when input waits: sockets are read in between, turns carry batches.
        delay = 0.0
        if not self._woken:
            delay = min(self._multiraft.next_deadline(), self._input.due_s()) - self._clock.monotonic()
        if delay <= 0:
            self._call_soon()
            return
        self._busy = False
        if delay != inf:  # uvloop rounds to milliseconds, and what is called too early finds nothing to do
            self._timer = self._loop.call_later(ceil(delay * 1000) / 1000, self.wake)

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _nothing() -> None:
    return
