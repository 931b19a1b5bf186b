"""A simulated node: the real MultiRaft, groups, log stores and state machines on a simulated disk, clock and network.

What decides is the production code: `cluster.raft`, the metadata machine, `node.replica_manager` (which opens and
deletes partitions as the metadata say) and the partition replicas. The loop is the production loop in small: woken by
`on_wake`, by deadlines and by frames; client input becomes proposals, one turn, a sync that takes time, then
`release`; client input and frames go on arriving while the sync runs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from cluster.features import Features
from cluster.metadata import MetadataMachine, MetadataView
from cluster.raft import (
    METADATA_GROUP,
    FetchReply,
    FetchRequest,
    OutgoingMessage,
    RaftGroup,
    RaftMessage,
    Turn,
)
from cluster.raft.replication.message_encoding import IncomingMessage, ReceivedAppend
from holdfast.records.record_batch import Damaged
from node.broker import NodeBroker
from node.cluster_clock import ClusterClock
from node.partition.partition_replica import PartitionReplica
from node.raft_loop import TurnInput
from node.replica_manager import ReplicaManager
from node.storage import StorageDamaged, SyncFailed
from tests.simulation.checker import GroupJudge, Violation
from tests.simulation.watched_groups import WatchedMultiRaft, describe
from tests.simulation.world.disk import SimDisk
from tests.simulation.world.files import JournalDisk
from tests.simulation.world.node_parts import EPOCH_MS, Bell, NodeClock
from tests.simulation.world.observer import Observer
from tests.simulation.world.readmission import Readmission
from tests.simulation.world.rpc.lives import Life

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule
    from tests.simulation.world.identity.connections import Process

LONGEST_SYNC_S = 2.5
"""Of a disk that is slow for good: longer than any patience of an election."""

SPOILED_PIECES = 0.05
"""Of snapshots: a bit of so many is turned on the way."""

FAR_AHEAD_MS = 86_400_000
"""No log's time may lie so far ahead while only one node's clock is wrong by days, unless nobody else has a replica;
and no log may have lived so long."""

Frame = tuple[bytes, ...]
DISKS: dict[str, Callable[[], SimDisk]] = {"memory": SimDisk, "journal": JournalDisk}


class SimNode:
    multiraft_type: type[WatchedMultiRaft] = WatchedMultiRaft
    begins_current = True
    """Where nothing moves, metadata that are behind do no harm."""

    def __init__(self, schedule: Schedule, node_id: int) -> None:
        self.schedule = schedule
        self.id = node_id
        self.disk = self._new_disk()
        self.life = 0
        self.is_running = False
        self.is_damaged = False
        self.is_copy = self.has_the_address = False
        self.incarnation = 1000 * node_id
        self.readmission = Readmission(self)
        self._paused_until = 0.0
        self._held: list[tuple[int, Frame]] = []
        self._wake_at = 0.0
        self._syncing = False
        self._calls: dict[int, Callable[[], None]] = {}
        self.own_life: Life
        self.process: Process
        self.multiraft: WatchedMultiRaft
        self.replicas: ReplicaManager
        self.metadata: RaftGroup

    def _new_disk(self) -> SimDisk:
        disk = DISKS[self.schedule.plan.disk]()
        disk.stale_watermark = self.schedule.plan.stale_watermark
        disk.keeps_writes = self.schedule.plan.keeps_writes
        return disk

    # ---- life

    def start(self) -> None:
        self.own_life = Life(self)
        with self.own_life.entered():
            self._start()

    def _start(self) -> None:
        self.life += 1
        self.is_running = True
        self._syncing = False
        self._wake_at = inf
        self._paused_until = 0.0
        self._held.clear()
        self.broker: NodeBroker | None = None
        self.network: Any = None
        self.readmission.begin_life()
        self.observer = Observer(self)
        self.clock = NodeClock(self.schedule)
        self.cluster_clock = ClusterClock(len(self.schedule.node_ids), self.clock.wall_ms, self.clock.monotonic)
        try:
            self.disk.open()
        except (StorageDamaged, SyncFailed) as error:
            self._refuses(error)
            return
        if self.disk.damaged:
            raise Violation(f"node {self.id} opens a store in which a bit was turned, or of which a sync failed")
        try:
            self._compose()
        except (StorageDamaged, SyncFailed) as error:
            self._failed(error)
            return
        if self.schedule.connections is not None:
            self.schedule.connections.begins(self)
        for peer in self.schedule.node_ids:
            if peer != self.id and self._is_connected_from_the_start(peer):
                self.multiraft.peer_up(peer)
        self._wake()

    def _is_connected_from_the_start(self, peer: int) -> bool:
        return self.schedule.links[self.id, peer].is_up and self.schedule.is_heard(self, peer)

    def _compose(self) -> None:
        schedule = self.schedule
        randomness = random.Random(schedule.randomness.getrandbits(64))
        alone, options = len(schedule.node_ids) == 1, schedule.plan.options
        self.features = self._features()
        self.multiraft = self.multiraft_type(
            self.id, self.disk, self.clock, randomness, self._send, options,
            alone=alone, active_version=lambda: self.features.version,
        )  # fmt: skip
        self.multiraft.node = self
        self.multiraft.on_wake = self._wake
        self.multiraft.on_quarantined = self._quarantined
        machine = self._metadata_machine()
        self.view = MetadataView(machine)
        self.multiraft.on_fetch = self._fetch
        self.metadata = self.multiraft.open_group(
            METADATA_GROUP,
            schedule.node_ids,
            machine,
            mute=self.incarnation > 1000 * self.id,
            keep_entries=schedule.plan.keep_metadata,
        )
        bell: Any = Bell(self)
        disk: Any = self.disk
        self.replicas = ReplicaManager(
            self.id, self.multiraft, disk, self.view, bell,
            min_free_bytes=0, now_ms=self.cluster_clock.now_ms, incarnation=self.incarnation,
            turn_input=TurnInput(schedule.plan.bulk_bytes), features=self.features,
        )  # fmt: skip
        self.replicas.input.on_input = self._wake
        self.replicas.on_failed = self._failed
        self.multiraft.replay(self.metadata)  # or a log that was deleted would be opened anew, for a moment
        self.view.on_change(bell.ring)
        self.replicas._is_current = self.begins_current
        bell.ring()

    def _features(self) -> Features:
        """Features of the program that starts."""
        return Features()

    def _metadata_machine(self) -> MetadataMachine:
        return MetadataMachine()

    def changed_machine(self, machine: Any) -> Any:
        """The state machine of a group that is opened, as this node's program has it."""
        return machine

    def crash(self, *, lose_unsynced: bool) -> None:
        self.end()
        self.disk.crash(self.schedule.randomness, lose_unsynced=lose_unsynced)

    def end(self) -> None:
        self.is_running = False
        self.life += 1
        if self.schedule.connections is not None:
            self.schedule.connections.ended(self)
        if self.schedule.wire is not None:
            self.schedule.wire.node_ended(self)
        self._forget_answers()
        broken, self._calls = self._calls, {}
        for call in broken.values():
            call()
        self.own_life.end()

    def _forget_answers(self) -> None:
        for judge in self.schedule.judges.values():
            judge.forget(self.id)

    def _failed(self, error: Exception) -> None:
        if self.disk.damaged and isinstance(error, StorageDamaged | SyncFailed | Damaged):
            self._refuses(error)
        else:
            raise Violation(f"node {self.id} stopped itself: {error!r}") from error

    def _quarantined(self, group: RaftGroup) -> None:
        """No fault of a schedule is one of a group alone."""
        raise Violation(f"node {self.id} puts group {group.group_id} into quarantine: {group.quarantined}")

    def _refuses(self, error: Exception) -> None:
        """The node ends, and says why: that is what has to be done with a damaged store."""
        if not self.disk.damaged or not ("damaged" in str(error) or "failed to sync" in str(error)):
            raise Violation(f"node {self.id} does not open a store that nobody harmed: {error}") from error
        self.schedule.trace(f"{self.id} REFUSES its store: {error}")
        self.schedule.count("refused")
        self.is_damaged = True
        self.end()
        self.disk.crash(self.schedule.randomness, lose_unsynced=False)

    def replace(self) -> None:
        """The disk is lost, or given up: the node goes on with an empty one, and the cluster is told."""
        if self.is_running:
            self.crash(lose_unsynced=False)
        self.disk.close()
        self.disk = self._new_disk()
        self.incarnation += 1
        self.is_damaged = False
        self.readmission.disk_lost()
        self.start()

    def roll_back(self, disk: SimDisk) -> None:
        """It comes back with this older copy of its disk, and does not know."""
        self.crash(lose_unsynced=False)
        self.disk.close()
        self.disk = disk
        self.readmission.disk_lost(rolled_back=True)
        self.start()

    @property
    def lacks_memory(self) -> bool:
        return self.readmission.lacks_memory

    def must_refuse(self) -> None:
        """A bit was turned, and nobody has met it so far: the next start must."""
        if self.is_running:
            self.crash(lose_unsynced=False)
        self.start()

    def pause(self, seconds: float) -> None:
        """The loop stands still: a long garbage collection, a stopped process, a slow disk."""
        self._paused_until = max(self._paused_until, self.schedule.now + seconds)
        self.after(self._paused_until, self._resume)

    def _resume(self) -> None:
        if self.schedule.now < self._paused_until:
            return
        held, self._held = self._held, []
        if self.schedule.randomness.random() < 0.5:  # timers before input, or after it
            self._pump()
        for sender, frame in held:
            self.arrive(sender, frame)
        self._wake()

    # ---- loop

    def after(self, time: float, action: Callable[[], None]) -> None:
        self.schedule.at(time, partial(self._in_life, self.life, action))

    def _in_life(self, life: int, action: Callable[[], None]) -> None:
        if self.life == life and self.is_running:
            action()

    def _wake(self) -> None:
        within_s = self.schedule.plan.woken_within_s
        if self._wake_at > self.schedule.now + within_s:  # else it is about to
            self._wake_no_later_than(self.schedule.now + self.schedule.randomness.uniform(0.0, within_s))

    def _wake_no_later_than(self, time: float) -> None:
        if time < self._wake_at:
            self._wake_at = time
            self.after(time, partial(self._woken, time))

    def _woken(self, time: float) -> None:
        if time == self._wake_at:
            self._wake_at = inf
            self._pump()

    def _pump(self) -> None:
        if self._syncing or self.schedule.now < self._paused_until:
            return
        self.replicas.input.flush(self.clock.monotonic())
        if self.replicas.input.due_s() < inf:
            self.schedule.count("waits for company")
        if self.multiraft.has_work or self.multiraft.next_deadline() <= self.clock.monotonic():
            try:
                turn = self.multiraft.turn()
            except StorageDamaged as error:
                self._failed(error)
                return
            if not self.is_running:  # something in the turn found the store damaged
                return
            if turn is not None:
                self.observer.look([group for group, _ in turn.durable])
                self._sync(turn)
                return
        deadline = min(self.multiraft.next_deadline(), self.replicas.input.due_s())
        self._wake_no_later_than(self.clock.to_world(deadline))

    def _sync(self, turn: Turn) -> None:
        if not turn.needs_sync and not self.disk.must_drain:
            self._release(turn)
            return
        self._syncing = True
        begun = self.disk.begin_sync()
        end = self.disk.end_sync if turn.needs_sync else self.disk.end_drain
        randomness = self.schedule.randomness
        is_slow = randomness.random() < self.schedule.slow_syncs
        seconds = randomness.uniform(0.01, 0.3) if is_slow else randomness.uniform(0.0001, 0.002)
        if self.disk.slow:
            seconds = randomness.uniform(0.2, LONGEST_SYNC_S)

        def done() -> None:
            try:
                end(begun)
            except SyncFailed:
                self.schedule.count("failed sync")
                self.must_refuse()  # the process ends, and somebody starts it again
                return
            self._syncing = False
            self._release(turn)

        self.after(self.schedule.now + seconds, done)

    def _release(self, turn: Turn) -> None:
        try:
            self.multiraft.release(turn)
        except StorageDamaged as error:  # met by what followers apply behind their answers
            self._failed(error)
            return
        self._wake_no_later_than(max(self.schedule.now, self.clock.to_world(self.multiraft.next_deadline())))

    def compaction(self) -> None:
        """What the node does every few seconds."""
        for peer in self.schedule.node_ids:
            if peer != self.id and self.schedule.is_heard(self, peer):
                self.schedule.carry(self.id, peer, self._tell_clock)
        true_ms = EPOCH_MS + int(self.schedule.now * 1000)
        for replica in self.replicas.all_open():
            state, heard_others = replica._machine.state, len(replica.group.members) > 1
            if heard_others and state.clock_ms > true_ms + FAR_AHEAD_MS:
                raise Violation(f"node {self.id}: the time of group {replica.group_id} is more than a day ahead")
            if state.lived_ms > FAR_AHEAD_MS:
                raise Violation(f"node {self.id}: group {replica.group_id} forgets as if a day had passed")
        self.replicas._enforce_retention()
        self.replicas.erase_leftovers()

    def _tell_clock(self, other: SimNode) -> None:
        other.cluster_clock.heard(self.id, self.clock.wall_ms())

    # ---- network

    def _send(self, peer: int, messages: list[OutgoingMessage]) -> None:
        schedule = self.schedule
        if not schedule.is_heard(self, peer):
            return
        frame = (*self._lead(), *(message.SerializeToString() for message in messages))
        if schedule.tracing:
            for part in frame[len(self._lead()) :]:
                schedule.trace(f"{self.id} -> {peer}: {describe(RaftMessage.FromString(part))}")
        link = schedule.links[self.id, peer]
        if schedule.plan.wild:
            for part in frame:
                link.send((part,))
        else:
            link.send(frame)
        for message in messages:
            if isinstance(message, RaftMessage):
                self.observer.said(peer, message)

    def _lead(self) -> Frame:
        """What each frame begins with."""
        return ()

    def _fetch(self, peer: int, request: FetchRequest) -> None:
        """Snapshots travel beside the messages, and may be damaged or lost on the way."""
        schedule = self.schedule

        if not schedule.is_heard(self, peer):
            return

        def serve(other: SimNode) -> None:
            try:
                reply = FetchReply.FromString(other.multiraft.serve_fetch(self.id, request).SerializeToString())
            except StorageDamaged as error:
                other._failed(error)
                return
            if reply.body and schedule.randomness.random() < SPOILED_PIECES:
                at = schedule.randomness.randrange(len(reply.body))
                reply.body = reply.body[:at] + bytes([reply.body[at] ^ 1]) + reply.body[at + 1 :]
            schedule.count("piece" if request.group != METADATA_GROUP else "piece of metadata")
            schedule.carry(peer, self.id, lambda node: node.multiraft.deliver_fetched(peer, reply))

        schedule.trace(f"{self.id} -> {peer}: fetch {request}".replace("\n", " "))
        schedule.carry(self.id, peer, serve)

    def arrive(self, sender: int, frame: Frame) -> None:
        if self.schedule.now < self._paused_until:
            self._held.append((sender, frame))
            return
        if self.schedule.nodes[sender].is_running:
            self.cluster_clock.heard(sender, self.schedule.nodes[sender].clock.wall_ms())
        self.multiraft.deliver(sender, [received(RaftMessage.FromString(part)) for part in frame])

    def link_changed(self, peer: int, *, up: bool) -> None:
        if up:
            self.multiraft.peer_up(peer)
        else:
            self.multiraft.peer_down(peer)
        self._wake_no_later_than(max(self.schedule.now, self.clock.to_world(self.multiraft.next_deadline())))

    # ---- clients

    def call(self, broken: Callable[[], None]) -> Callable[[], bool]:
        """A client waits for an answer of this node; `broken` is called if it ends first. Returns what ends the wait,
        which says whether it had not ended before."""
        token = self.schedule.unique()
        self._calls[token] = broken
        return lambda: self._calls.pop(token, None) is not None

    def read_confirmed(self, judge: GroupJudge) -> None:
        group, asked_at, hang_up = self.multiraft.groups[judge.group_id], judge.acknowledged_index, self.call(_nothing)

        def done(index: int | None) -> None:
            if hang_up() and index is not None:
                judge.confirmed(self.id, asked_at, index, group.applied_index)

        group.read_index(done)

    def partition(self, group_id: int) -> PartitionReplica | None:
        return self.replicas.partition(group_id) if self.is_running else None

    def leads(self, group_id: int) -> bool:
        """It believes so."""
        group = self.multiraft.groups.get(group_id) if self.is_running else None
        return group is not None and group.is_leader

    def describe(self) -> str:
        if not self.is_running:
            return f"{self.id} {'damaged' if self.is_damaged else 'down'}"
        return " ".join(
            f"{self.id}/{g.group_id}: {g.status()['role']} t{g.term} {g.first_index}..{g.last_index} "
            f"commit {g.commit_index} applied {g.applied_index} leader {g.leader}"
            for g in self.multiraft.groups.values()
        )


def _nothing() -> None:
    """Who hears nothing asks again."""


def received(message: RaftMessage) -> IncomingMessage:
    """Of every other append the entries have come beside it."""
    entries = list(message.append.entries)
    if not entries or message.append.sequence % 2:
        return message
    del message.append.entries[:]
    message.append.entries_beside = True
    return ReceivedAppend(message, entries)
