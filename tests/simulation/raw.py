"""The bare library under the same schedules: pysyncobj as shipped, on a journal that is perfectly durable and
atomic.

It shows that the schedules and the checker can fail. Nothing of the guard is here: its messages travel as the
library makes them (pickled, as it does), it ticks every `TICK_S`, and it acts on whatever arrives. Only apply
is replaced, by a note to the checker.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf
from pysyncobj import syncobj as library
from pysyncobj.journal import MemoryJournal
from pysyncobj.transport import Transport

from cluster.raft import RaftOptions
from cluster.raft.core import Member
from cluster.raft.names import set_clock

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule

TICK_S = 0.02


class DurableJournal(MemoryJournal):
    """Survives restarts, forgets nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._commit = 1

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:
        self._commit = raftCommitIndex

    def getRaftCommitIndex(self) -> int:
        return self._commit


class RawTransport(Transport):
    def __init__(self, node: RawNode) -> None:
        super().__init__(None, None, ())
        self._node = node

    def send(self, node: Member, message: dict[str, Any]) -> bool:
        schedule = self._node.schedule
        schedule.trace(f"{self._node.id} -> {node.id}: {message}")
        schedule.links[self._node.id, node.id].send(pickle.dumps(message))
        return True


class RawObject(SyncObj):
    def __init__(self, node: RawNode, transport: RawTransport, options: RaftOptions) -> None:
        self._node = node
        self.applying = (0, 0)
        configuration = SyncObjConf(
            autoTick=False,
            journalFile=node.journal,
            raftMinTimeout=options.election_min_s,
            raftMaxTimeout=options.election_max_s,
            appendEntriesPeriod=options.heartbeat_s,
            appendEntriesBatchSizeBytes=400,
            logCompactionMinEntries=10**12,
            logCompactionMinTime=10**12,
        )
        others = [Member(peer) for peer in node.schedule.node_ids if peer != node.id]
        super().__init__(Member(node.id), others, configuration, transport=transport)

    def _SyncObj__doApplyCommand(self, command: bytes) -> None:
        index = self.raftLastApplied + 1
        term = self._SyncObj__getEntries(index, 1)[0][2]
        self.applying = (index, term)
        self._node.schedule.checkers[1].commits(self._node.id, index, term, command)


class RawNode:
    answers_everything = False

    def __init__(self, schedule: Schedule, node_id: int, options: RaftOptions) -> None:
        self.schedule = schedule
        self.id = node_id
        self.journal = DurableJournal()
        self._options = options
        self.is_running = False
        self._life = 0
        self._paused_until = 0.0
        self._led_term = 0
        self._held: list[tuple[int, bytes]] = []
        self.object: RawObject

    def start(self) -> None:
        self._life += 1
        self.is_running = True
        self._paused_until = 0.0
        self._held.clear()
        self._enter()
        self._transport = RawTransport(self)
        self.object = RawObject(self, self._transport, self._options)
        for peer in self.schedule.node_ids:
            if peer != self.id and self.schedule.links[self.id, peer].is_up:
                self._transport._onNodeConnected(Member(peer))
        self._tick_later(self._life)

    def _enter(self) -> None:
        set_clock(lambda: 1000.0 + self.schedule.now)
        library.random = self.schedule.randomness

    def crash(self, *, lose_unsynced: bool) -> None:
        self.is_running = False
        self._life += 1

    def pause(self, seconds: float) -> None:
        self._paused_until = max(self._paused_until, self.schedule.now + seconds)

    def _tick_later(self, life: int) -> None:
        def tick() -> None:
            if self._life == life and self.is_running:
                if self.schedule.now >= self._paused_until:
                    self._tick()
                self._tick_later(life)

        self.schedule.at(self.schedule.now + self.schedule.randomness.uniform(0.5, 1.5) * TICK_S, tick)

    def _tick(self) -> None:
        held, self._held = self._held, []
        for sender, frame in held:
            self.arrive(sender, frame)
        self._enter()
        self.object.doTick(0)
        self._observe()

    def _observe(self) -> None:
        raft = self.object
        if raft._isLeader() and raft.raftCurrentTerm != self._led_term:
            self._led_term = raft.raftCurrentTerm
            self.schedule.trace(f"{self.id} LEADS term {self._led_term}")
            self.schedule.checkers[1].leads(self.id, self._led_term, self._term_at, 1)

    def _term_at(self, index: int) -> int | None:
        entries = self.object._SyncObj__getEntries(index, 1)
        return entries[0][2] if entries else None

    def arrive(self, sender: int, frame: bytes) -> None:
        if self.schedule.now < self._paused_until:
            self._held.append((sender, frame))
            return
        self._enter()
        self._transport._onMessageReceived(Member(sender), pickle.loads(frame))
        self._observe()

    def link_changed(self, peer: int, *, up: bool) -> None:
        notify = self._transport._onNodeConnected if up else self._transport._onNodeDisconnected
        notify(Member(peer))

    def propose(self, group_id: int, data: bytes) -> bool:
        """Acknowledgements are noted; what the library never answers (L8) is not held against it."""

        def done(result: object, reason: int) -> None:
            if reason == FAIL_REASON.SUCCESS:
                self.schedule.checkers[group_id].answered(data, "Committed", *self.object.applying)

        self.schedule.checkers[group_id].proposed(self.id, data)
        self.object._applyCommand(data, done, None)
        return True

    def is_leader(self, group_id: int) -> bool:
        return self.is_running and self.object._isLeader()

    is_ready = is_leader

    def applied(self, group_id: int) -> int:
        return self.object.raftLastApplied

    def log(self, group_id: int) -> tuple[int, Callable[[int], tuple[int, bytes] | None], int]:
        return self.id, self._entry_at, 1

    def _entry_at(self, index: int) -> tuple[int, bytes] | None:
        entries = self.object._SyncObj__getEntries(index, 1)
        return (entries[0][2], entries[0][0]) if entries else None

    def describe(self) -> str:
        return f"{self.id}: state {self.object._SyncObj__raftState} term {self.object.raftCurrentTerm}"
