"""The bare library under the same schedules: pysyncobj as shipped, on a journal that is perfectly durable and atomic.

It shows that the schedules and the judge can fail. Nothing of `step` is here: its messages travel as the library
makes them (pickled, as it does), it ticks every `TICK_S`, and it acts on whatever arrives. Only apply is replaced, by a
note to the judge. It has one group, plain proposals, and no partitions above.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf
from pysyncobj import syncobj as library
from pysyncobj.journal import MemoryJournal
from pysyncobj.transport import Transport

from cluster.raft.pysyncobj.member import RaftMember
from cluster.raft.pysyncobj.private_names import set_clock
from tests.simulation.world.disk import SimDisk

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule

TICK_S = 0.02
GROUP = 0


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

    def send(self, node: RaftMember, message: dict[str, Any]) -> bool:
        schedule = self._node.schedule
        schedule.trace(f"{self._node.id} -> {node.id}: {message}")
        schedule.links[self._node.id, node.id].send(pickle.dumps(message))
        return True


class RawObject(SyncObj):
    def __init__(self, node: RawNode, transport: RawTransport) -> None:
        self._node = node
        self.applier = (0, 0)
        options = node.schedule.plan.options
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
        others = [RaftMember(peer) for peer in node.schedule.node_ids if peer != node.id]
        super().__init__(RaftMember(node.id), others, configuration, transport=transport)

    def _SyncObj__doApplyCommand(self, command: bytes) -> None:
        index = self.raftLastApplied + 1
        term = self._SyncObj__getEntries(index, 1)[0][2]
        self.applier = (index, term)
        self._node.judge.commits(self._node.id, index, term, self.raftCurrentTerm)
        self._node.judge.applies(self._node.id, index, term, command)


class RawNode:
    is_damaged = lacks_memory = False

    def __init__(self, schedule: Schedule, node_id: int) -> None:
        self.schedule = schedule
        self.id = node_id
        self.disk = SimDisk()  # what schedules may harm; the journal here is beyond that
        self.journal = DurableJournal()
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
        self.judge = self.schedule.judge(GROUP, self.schedule.node_ids)
        self._transport = RawTransport(self)
        self.object = RawObject(self, self._transport)
        for peer in self.schedule.node_ids:
            if peer != self.id and self.schedule.links[self.id, peer].is_up:
                self._transport._onNodeConnected(RaftMember(peer))
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
            self.judge.leads(self.id, self._led_term, self._term_at)

    def _term_at(self, index: int) -> int:
        entries = self.object._SyncObj__getEntries(index, 1)
        return entries[0][2] if entries else -1

    def arrive(self, sender: int, frame: bytes) -> None:
        if self.schedule.now < self._paused_until:
            self._held.append((sender, frame))
            return
        self._enter()
        self._transport._onMessageReceived(RaftMember(sender), pickle.loads(frame))
        self._observe()

    def link_changed(self, peer: int, *, up: bool) -> None:
        notify = self._transport._onNodeConnected if up else self._transport._onNodeDisconnected
        notify(RaftMember(peer))

    def leads(self, group_id: int) -> bool:
        return self.is_running and self.object._isLeader()

    def applied(self) -> int:
        return self.object.raftLastApplied

    def describe(self) -> str:
        return f"{self.id}: state {self.object._SyncObj__raftState} term {self.object.raftCurrentTerm}"


class RawLoad:
    """Clients write to every node that believes it leads. Acknowledgements are noted; what the library never answers
    (L8) is not held against it."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._done: set[bytes] = set()
        self._markers: set[bytes] = set()
        self._healthy: Sequence[RawNode] = ()

    @property
    def acknowledged(self) -> int:
        return len(self._done)

    def start(self) -> None:
        self._schedule.every(self._schedule.plan.send_every_s, self._send)

    def serves(self) -> bool:
        return bool(self._done)

    def _send(self) -> None:
        for node in self._schedule.nodes.values():
            if node.leads(GROUP):
                for _ in range(self._schedule.randomness.randint(1, 4)):
                    self._propose(node, b"\0%d." % self._schedule.unique())

    def _propose(self, node: Any, data: bytes) -> None:
        told = node.judge.proposed(node.id)

        def done(result: object, reason: int) -> None:
            if reason == FAIL_REASON.SUCCESS:
                told("Committed", *node.object.applier)
                self._done.add(data)

        node.object._applyCommand(data, done, None)

    def begin_healing(self, healthy: Sequence[RawNode]) -> None:
        self._healthy = healthy
        self._markers.clear()

    def is_healthy(self) -> bool:
        if self._markers.isdisjoint(self._done):
            marker = b"\0final %d" % self._schedule.unique()
            self._markers.add(marker)
            for node in self._schedule.nodes.values():
                if node.leads(GROUP):
                    self._propose(node, marker)
            return False
        return all(node.applied() >= node.judge.highest for node in self._healthy)

    def finish(self) -> None:
        """All that can be asked of it was asked on the way."""
