"""The partitions that this node keeps, made to match what the cluster decided.

The rule: the open replicas follow from the metadata alone (`reconcile`), never from requests, so that a node that was
away ends where the others are. A deleted log is erased only when the metadata says that its group existed and is gone;
groups that the metadata does not know yet are left alone. What moves to other nodes is erased by the rules of
`movement/lifecycle.py`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from itertools import islice
from typing import Any

from cluster.crash_points import crash_point
from cluster.features import Features
from cluster.metadata import COORDINATORS, LogRecord, MetadataView, PartitionRecord
from cluster.raft import (
    MultiRaft,
    RaftGroup,
    StateDamaged,
    erase_group,
    forget_group,
    stored_birth,
    stored_configuration,
    stored_groups,
)
from cluster.rpc import LoadReport, PeerNetwork, ReplicaState
from holdfast.records.codec import Codec
from node.admin.errors import CannotRepair
from node.leader_calls import LeaderCalls
from node.movement.driver import MoveStatus
from node.movement.lifecycle import LostBelow, ReplicaOpening, is_over, is_whole_group, opening, preferred
from node.partition.api import Failed
from node.partition.consumer_groups.group_queries import Assign, Assigned
from node.partition.offset_index import erase
from node.partition.partition_replica import PartitionReplica
from node.raft_loop import TurnInput
from node.routing_events import RoutingEvents
from node.storage import Store
from node.transaction_coordinator.coordinator_commands import NodeStart
from node.transaction_coordinator.coordinator_queries import AskOutcome, TransactionOutcome
from node.transaction_coordinator.coordinator_replica import KEPT_ENTRIES, CoordinatorReplica

log = logging.getLogger("holdfast.replicas")

RETENTION_PERIOD_S = 2.0
"""Seconds between rounds of retention: it is a promise of minutes, and planning costs microseconds per partition when
nothing is due."""

TICK_PERIOD_S = 0.5
"""Seconds between ticks: how closely a silent owner's lease of seconds, and a transaction's time, are kept; and how
soon it is seen that the disk fills. The free space that is kept has to last for so long."""

FULL_SHARE = 0.08
"""Free share of the disk below which logs wait for no copies. While more is free a plan moves replicas away; with less
a copy that takes hours must not keep a leader from deleting what is too old."""

MAX_STATES = 10_000
"""States of replicas in one answer, some 40 bytes each: as many as a node can have in a large cluster."""


class ReplicaManager:
    """Implements `cluster.rpc.PartitionHost`.

    `input` has the records that wait for a turn. `on_failed` is called when this node must not serve or vote any
    longer: an entry that was read is not what was written (the others have good copies), or a group cannot be opened
    or erased.
    """

    def __init__(
        self,
        node_id: int,
        multiraft: MultiRaft,
        disk: Store,
        view: MetadataView,
        routing_events: RoutingEvents,
        *,
        min_free_bytes: int,
        now_ms: Callable[[], int] | None = None,
        lived_ms: Callable[[], int] | None = None,
        incarnation: int = 0,
        turn_input: TurnInput | None = None,
        features: Features | None = None,
    ) -> None:
        """`now_ms`: the time that is stamped; `lived_ms`: that by which retention deletes (`cluster_clock.py`).
        `incarnation`: that of this node's data directory."""
        self.input = turn_input or TurnInput()
        self.on_failed: Callable[[Exception], None] = _raise
        self.move_status: Callable[[int], MoveStatus | None] = lambda group: None
        """Tells of the move of a group that this node leads."""
        self.on_erased: Callable[[], None] = _nothing
        """Called when the data of a replica were erased: their space can be given back."""
        self.on_assign: Callable[[Assign], Awaitable[Assigned | Failed]] | None = None
        self._node_id = node_id
        self._multiraft = multiraft
        self._disk = disk
        self._view = view
        self._routing_events = routing_events
        self._min_free_bytes = min_free_bytes
        self._now_ms = now_ms or _now_ms
        self._lived_ms = lived_ms or self._now_ms
        self._incarnation = incarnation
        self._features = features or Features()
        self._network: PeerNetwork | None = None
        self.calls: LeaderCalls
        self._sightings = NodeSightings(node_id, view)
        self._open: dict[int, PartitionReplica] = {}
        self._coordinators: dict[int, CoordinatorReplica] = {}
        self._full: Failed | None = None
        self._stopping = False
        self._is_current = False
        """The metadata here were current once since this node's start."""

    @property
    def full(self) -> Failed | None:
        """Failure of appends while the disk has too little room left; None: it has room."""
        return self._full

    def attach(self, network: PeerNetwork) -> None:
        """Attach the network, which asks the leaders of other nodes' groups, and announces ours."""
        self._network = network
        self.calls = LeaderCalls(self._node_id, self, self._view, network, self._routing_events)
        self._sightings.network = network

    # -- looking up

    def partition(self, group: int) -> PartitionReplica | None:
        return self._open.get(group)

    def replica(self, group: int) -> PartitionReplica | CoordinatorReplica | None:
        return self._open.get(group) or self._coordinators.get(group)

    def _replicas(self) -> list[PartitionReplica | CoordinatorReplica]:
        return [*self._open.values(), *self._coordinators.values()]

    def coordinators(self) -> Collection[CoordinatorReplica]:
        return self._coordinators.values()

    def all_open(self) -> Collection[PartitionReplica]:
        return self._open.values()

    def leader_of(self, group: int) -> int | None:
        """The group's leader, by the local replica if there is one, else by what peers tell. Not this node, if it has
        stepped down and others still believe in it."""
        replica = self.replica(group)
        if replica is not None and replica.leader is not None:
            return replica.leader
        told = self._network.leader_of(group) if self._network is not None else None
        return None if told == self._node_id else told

    @property
    def lead_any(self) -> bool:
        """True if this node leads any replica, of a partition or a coordinator."""
        return any(replica.is_leader for replica in self._replicas())

    def is_stranded(self, group: int) -> bool:
        """True if this node is cut off, and reaches no leader of the group: other nodes may, and serve their
        clients."""
        network = self._network
        if network is None or not network.is_cut_off:
            return False
        replica = self.replica(group)
        if replica is not None and replica.is_leader:
            return False
        leader = self.leader_of(group)
        return leader is None or leader == self._node_id or not network.in_touch(leader)

    def states(self, groups: Sequence[int]) -> list[ReplicaState]:
        """States of the replicas of these groups; without groups, of those that are catching up or do not vote."""
        named, every = set(groups), self._multiraft.groups.values()
        statuses = [group.status() for group in every if not named or group.group_id in named]
        unsound = (one for one in statuses if groups or one["catching_up"] is not None or not one["votes"])
        return [self._state(status) for status in islice(unsound, MAX_STATES)]

    def _state(self, status: dict[str, Any]) -> ReplicaState:
        state, move = _state(status), self.move_status(status["group"])
        if move is not None:
            state.move_state, state.move_waits_for, state.move_stalled = move.state, move.waits_for, move.stalled
            state.move_entries, state.move_entries_left = move.entries, move.entries_left
            state.move_bytes_left = self.bytes_left(move)
        return state

    def bytes_left(self, move: MoveStatus) -> int:
        """Bytes that the replica which comes still lacks, about."""
        replica = self.partition(move.group)
        stored = 0 if replica is None else replica.info_now().bytes
        return stored * move.entries_left // max(1, move.entries)

    def report(self) -> LoadReport:
        """Report the bytes of the disk, of what of them is dead, and of the groups that this node leads. Coordinators
        count nothing."""
        capacity = self._disk.capacity_bytes()
        led = {group: replica.stored_bytes for group, replica in self._open.items() if replica.is_leader}
        led |= {group: 0 for group, replica in self._coordinators.items() if replica.is_leader}
        return LoadReport(capacity, max(0, capacity - self._disk.free_bytes()), led, self._disk.garbage_bytes())

    # -- opening and closing

    def reconcile(self) -> None:
        """Open and close replicas after a change of the metadata. A group that cannot be opened or erased is the end of
        this node: it must not vote on what the store cannot give back."""
        try:
            self._reconcile()
        except Exception as error:  # noqa: BLE001  the bell that calls this has others to tell
            self.on_failed(error)

    def metadata_are_current(self) -> None:
        """Take it that the metadata here were current once since this node's start: from now on replicas are opened for
        the first time, and those that have moved elsewhere are erased."""
        self._is_current = True
        self.reconcile()
        try:
            self.erase_leftovers()
        except Exception as error:  # noqa: BLE001  a store that cannot be written is the end of this node
            self.on_failed(error)

    def _reconcile(self) -> None:
        if self._stopping:
            return
        if self._incarnation and self._view.incarnation(self._node_id) != self._incarnation:
            return  # the assignment is for other data of this id, or the cluster does not know these data yet
        wanted = {partition.group: (log, partition) for log, partition in self._view.hosted_by(self._node_id)}
        for group in [group for group in self._open if group not in wanted and self._view.was_deleted(group)]:
            self._close(group, deleted=True)
            log.info("group %d is deleted, its data erased", group)
        for group in [replica.group_id for replica in self._replicas()]:
            if self._has_moved(group):
                self._close(group, deleted=False)
                log.info("group %d has moved to other nodes, its data here are erased", group)
        for group, (log_record, partition) in wanted.items():
            if self.replica(group) is None:
                self._start(log_record, partition)
            if group in self._open:
                self._open[group].compress(Codec.named(log_record.compression))
            open_group = self._multiraft.groups.get(group)
            if open_group is None:
                continue
            if open_group.preferred != preferred(partition):
                open_group.prefer(preferred(partition))
            if self._is_current and is_whole_group(partition, self._node_id):
                open_group.vote_from_the_beginning()

    def _has_moved(self, group_id: int) -> bool:
        """Tell whether the replica that is open has no place in the group any more."""
        found, group = self._view.group(group_id), self._multiraft.groups[group_id]
        if not self._is_current or found is None:
            return False
        wanted = found[1].replica_on(self._node_id)
        if wanted is not None and wanted.birth == group.birth:
            return False
        return is_over(group.configuration, found[1].configuration_version)

    def _start(self, log_record: LogRecord, partition: PartitionRecord) -> None:
        view, node = self._view, self._node_id
        lost = LostBelow(view.lost_below_group(node), view.lost_below_birth(node))
        found = opening(partition, node, self._disk, lost)
        if found is None or (found.is_new and not self._is_current):
            return
        if found.is_new:
            crash_point("replica-before-open")
        if found.is_new and not found.members:
            # An earlier life may have left rows of its partition, if its node was killed while it was erased.
            erase(partition.group, self._multiraft.batch_of(partition.group))
        if log_record.name == COORDINATORS:
            self._start_coordinator(partition, found)
        else:
            self._start_partition(partition, found)

    def _start_coordinator(self, partition: PartitionRecord, found: ReplicaOpening) -> None:
        group_id = partition.group
        replica = CoordinatorReplica(partition.name, group_id, self._now_ms, self._ask, self._sightings)
        group = self._open_group(group_id, found, replica, keep_entries=KEPT_ENTRIES, patient=True)
        replica.bind(group)
        replica.on_role_change = lambda _: self.role_changed(group)
        self._coordinators[group_id] = replica
        log.info("group %d (coordinator %s) is open: members %s", group_id, partition.name, group.members)

    async def _ask(self, group: int, question: Any) -> Any:
        return await self.calls.ask(group, question)

    async def _ask_outcome(
        self, coordinator: int, producer_id: int, epoch: int, overdue: bool
    ) -> TransactionOutcome | None:
        answer = await self.calls.ask(coordinator, AskOutcome(producer_id, epoch, overdue))
        return answer if isinstance(answer, TransactionOutcome) else None

    def _open_group(
        self,
        group_id: int,
        found: ReplicaOpening,
        replica: PartitionReplica | CoordinatorReplica,
        **options: Any,
    ) -> RaftGroup:
        return self._multiraft.open_group(
            group_id, found.members, replica, birth=found.birth, preferred=found.preferred, mute=found.mute,
            **options,
        )  # fmt: skip

    def _start_partition(self, partition: PartitionRecord, found: ReplicaOpening) -> None:
        group_id = partition.group
        replica = PartitionReplica(
            partition.name, group_id, self._disk, self._now_ms, on_dirty=self.input.add, features=self._features
        )
        group = self._open_group(group_id, found, replica)
        replica.bind(group)
        replica.on_role_change = lambda _: self.role_changed(group)
        replica.on_damaged = self._damaged
        replica.owning.on_assign = self.on_assign
        replica.taking_part.ask_outcome = self._ask_outcome
        replica.refuse_appends(self._full)
        self._open[group_id] = replica
        log.info("group %d (partition %s) is open: members %s", group_id, partition.name, group.members)

    def _close(self, group_id: int, *, deleted: bool) -> None:
        """Close a replica and erase it, in one batch. `deleted`: so does everybody; else the group goes on without this
        life of it."""
        replica = self._open.pop(group_id, None) or self._coordinators.pop(group_id)
        if isinstance(replica, PartitionReplica):
            self.input.forget(replica)
        replica.close(deleted=deleted)
        crash_point("replica-before-erase")
        erase(group_id, self._multiraft.batch_of(group_id))
        self._multiraft.close_group(group_id, erase=True, over=not deleted)
        crash_point("replica-after-erase")
        self.on_erased()
        if self._network is not None:
            (self._network.drop_group if deleted else self._network.leave_group)(group_id)

    def repair(self, group_id: int) -> None:
        """Give up the replica here: it begins again, empty and without a vote. For the metadata group that shows with
        the next start of the node. Synced when this returns. Raises CannotRepair."""
        self._require_others(group_id)
        birth = self._multiraft.groups[group_id].birth
        batch = self._disk.batch()
        replica = self._open.pop(group_id, None)
        coordinator = self._coordinators.pop(group_id, None)
        if replica is not None:
            self.input.forget(replica)
            replica.close()
            self._multiraft.close_group(group_id, erase=False)
            erase(group_id, batch)
        elif coordinator is not None:
            coordinator.close()
            self._multiraft.close_group(group_id, erase=False)
        else:
            self._multiraft.quarantine(
                group_id, "given up by an operator: it begins anew when this node is started again"
            )
        forget_group(group_id, batch, self._multiraft.active_version(), birth)
        self._disk.write(batch)
        self._disk.sync()
        log.warning("group %d was given up here, and begins anew without a vote", group_id)
        self.reconcile()

    def _require_others(self, group_id: int) -> None:
        """Raise CannotRepair if the replica here may be all that there is."""
        group = self._multiraft.groups.get(group_id)
        if group is None:
            raise CannotRepair(f"node {self._node_id} has no replica of group {group_id}; `log describe` shows who has")
        found = self._view.group(group_id)
        voters = set(group.members if found is None else found[1].replicas)  # a learner may lack what was acknowledged
        if voters <= {self._node_id}:
            raise CannotRepair(f"group {group_id} has no other replica: delete its log, and create it again")
        if group.is_leader:
            raise CannotRepair(f"node {self._node_id} leads group {group_id}: nothing is wrong with it here")
        if len(voters) > 2 and self.leader_of(group_id) is None:
            raise CannotRepair(
                f"group {group_id} has no leader now: a majority of its other replicas must be up and whole, or what "
                "was acknowledged may be given up with this one"
            )

    def erase_leftovers(self) -> None:
        """Erase data of groups that were deleted, or moved elsewhere, just before this node went down: its metadata
        begin after that, so they are never opened, and never closed with their data."""
        for group_id in stored_groups(self._disk):
            if self.replica(group_id) is None and group_id:
                deleted = self._view.was_deleted(group_id)
                if deleted or self._is_left_over(group_id):
                    birth = 0 if deleted else stored_birth(group_id, self._disk) or 0
                    batch = self._disk.batch()
                    erase_group(group_id, batch, over=birth)
                    erase(group_id, batch)
                    self._disk.write(batch)
                    what = "was deleted" if deleted else "moved to other nodes"
                    log.info("group %d %s before this node started, its data is erased", group_id, what)

    def _is_left_over(self, group_id: int) -> bool:
        """Tell whether a replica that is not open is over, since the group has moved."""
        found, birth = self._view.group(group_id), stored_birth(group_id, self._disk)
        if not self._is_current or found is None or birth is None:
            return False
        wanted = found[1].replica_on(self._node_id)
        if wanted is not None and wanted.birth <= birth:
            return False
        try:
            latest = stored_configuration(group_id, self._disk)
        except StateDamaged as error:
            log.warning("what is left of group %d stays on the disk: %s", group_id, error)
            return False
        return is_over(latest, found[1].configuration_version)

    def _damaged(self, replica: PartitionReplica, error: Exception) -> None:
        self.on_failed(error)

    def close(self) -> None:
        """Close all replicas as the node stops: callers that wait are answered, and nothing is opened any more."""
        self._stopping = True
        for replica in self._replicas():
            replica.close()

    def role_changed(self, group: RaftGroup) -> None:
        """Tell the network and the listeners of a new role. Called inside a turn."""
        if self._network is not None:
            self._network.set_leader(group.group_id, group.term, group.leader)
        self._routing_events.ring()

    # -- background work

    async def keep_retention(self) -> None:
        """Trim by retention, until cancelled."""
        try:
            while True:
                await asyncio.sleep(RETENTION_PERIOD_S)
                self._enforce_retention()
        except Exception as error:  # noqa: BLE001  without this the disk would fill unnoticed
            self.on_failed(error)

    async def keep_time(self) -> None:
        """Do what is due by time, until cancelled. Owners of consumer groups that fell silent lose their claims,
        transactions whose time is over end; and a disk with little room left takes no more events."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                await asyncio.sleep(TICK_PERIOD_S)
                self._watch_space()
                for replica in self._replicas():
                    replica.tick(loop.time())
        except Exception as error:  # noqa: BLE001  without this partitions would stay with the dead
            self.on_failed(error)

    def _enforce_retention(self) -> None:
        lived_ms = self._lived_ms()
        for group_id, replica in list(self._open.items()):
            found = self._view.group(group_id)
            if found is not None:
                replica.enforce_retention(lived_ms, found[0].retention_ms, found[0].retention_bytes)

    def _watch_space(self) -> None:
        free = self._disk.free_bytes()
        self._multiraft.is_disk_full = free < FULL_SHARE * self._disk.capacity_bytes()
        full = (
            Failed(
                "disk_full",
                True,
                f"node {self._node_id} has {free >> 20} MiB of disk left and keeps {self._min_free_bytes >> 20} MiB for"
                " itself: free space there or shorten the retention of logs; events are refused meanwhile",
            )
            if free < self._min_free_bytes
            else None
        )
        if (full is None) != (self._full is None):
            log.warning("%s", full.detail if full else f"{free >> 20} MiB of disk are free again: events are taken")
            for replica in self._open.values():
                replica.refuse_appends(full)
        self._full = full


class NodeSightings:
    """Contact with other nodes, by the streams to them and by the metadata; implements
    `node.transaction_coordinator.dead_nodes.Sightings`."""

    def __init__(self, node_id: int, view: MetadataView) -> None:
        self.node_id = node_id
        self.network: PeerNetwork | None = None  # until there is one, no node is missed
        self._view = view

    def is_succeeded(self, start: NodeStart) -> bool:
        record = self._view.nodes.get(start.node)
        if record is None:
            return False
        if record.incarnation != start.incarnation:
            return start.incarnation in record.former_incarnations
        return record.start.boot > start.boot

    def lost_s(self, node: int) -> float:
        return 0.0 if node == self.node_id or self.network is None else self.network.lost_s(node)

    async def ask_member(self, member: int, group: int, question: Any) -> Any:
        if self.network is None:
            return Failed("unknown", True, "there is no network yet")
        return await self.network.client(member).ask(group, question)


def _state(status: dict[str, Any]) -> ReplicaState:
    fetch = status["catching_up"] or {}
    return ReplicaState(
        group=status["group"],
        applied=status["applied"],
        last=status["last"],
        votes=status["votes"],
        phase=fetch.get("phase", ""),
        fetch_first=fetch.get("first", 0),
        fetch_next=fetch.get("next", 0),
        fetch_last=fetch.get("last", 0),
        received_bytes=fetch.get("received_bytes", 0),
        refused_pieces=fetch.get("refused_pieces", 0),
        quarantined=status["quarantined"] or "",
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _nothing() -> None:
    return


def _raise(error: Exception) -> None:
    """Raise the error, before there is a node to stop."""
    raise error
