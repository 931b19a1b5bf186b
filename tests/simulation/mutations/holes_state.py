"""Mutations of state machines, snapshots and members that lost their disks. What they are for: catalogue.py."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any
from unittest import mock

import msgspec
from google.protobuf.message import DecodeError

from cluster.metadata import MetadataMachine
from cluster.metadata.state import MetadataState
from cluster.raft import FetchReply, RaftGroup
from cluster.raft.multiraft import MultiRaft
from cluster.raft.raft_pb2 import FetchBody
from cluster.raft.snapshot import receiver
from node.cluster_clock import ClusterClock
from node.partition import state_machine as partition_machine
from node.partition.consumer_groups.group_state import (
    Commit,
    Denied,
    Done,
    GroupTable,
)
from node.partition.consumer_groups.ownership_leases import OwnershipLeases
from node.partition.idempotence import producer_state
from node.partition.idempotence.producer_state import (
    ALL_NEW,
    Known,
    Producer,
    ProducerRefusal,
    ProducerTable,
)
from node.partition.partition_replica import PartitionReplica
from node.partition.raft_entry import EntryHead
from node.partition.state_machine import PartitionMachine
from node.raft_loop import TurnInput
from tests.simulation.world import scarce_memory

# ---------------------------------------------------------------- what waits for its proposal


@contextlib.contextmanager
def company_forgotten() -> Iterator[None]:
    """What waits for company when a turn begins is not looked at again."""
    flush = TurnInput.flush

    def forgetful(given: TurnInput, now_s: float) -> None:
        flush(given, now_s)
        given._gathered.clear()

    with mock.patch.object(TurnInput, "flush", forgetful):
        yield


# ---------------------------------------------------------------- state machines


@contextlib.contextmanager
def producers_not_in_checkpoint() -> Iterator[None]:
    """What is known of producers does not survive a restart."""
    with mock.patch.object(ProducerTable, "rows", return_value=[]):
        yield


@contextlib.contextmanager
def restored_without_digests() -> Iterator[None]:
    """A restart forgets which events were stored last, but not the last number."""
    begin = ProducerTable.__init__

    def forget(producers: ProducerTable, rows: Iterable[Producer] = ()) -> None:
        known = list(rows)
        for row in known:
            row.batches, row.digests, row.stored = bytearray(), bytearray(), 0
        begin(producers, known)

    with mock.patch.object(ProducerTable, "__init__", forget):
        yield


@contextlib.contextmanager
def no_dedup() -> Iterator[None]:
    """What comes again is stored again."""
    judge = ProducerTable.judge

    def all_new(producers: ProducerTable, batch: EntryHead) -> Known | ProducerRefusal:
        verdict = judge(producers, batch)
        return verdict if isinstance(verdict, ProducerRefusal) else ALL_NEW

    with mock.patch.object(ProducerTable, "judge", all_new):
        yield


@contextlib.contextmanager
def gaps_allowed() -> Iterator[None]:
    """A number behind a gap is taken."""
    judge = ProducerTable.judge

    def take(producers: ProducerTable, batch: EntryHead) -> Known | ProducerRefusal:
        verdict = judge(producers, batch)
        return ALL_NEW if isinstance(verdict, ProducerRefusal) and verdict.code == "out-of-order" else verdict

    with mock.patch.object(ProducerTable, "judge", take):
        yield


@contextlib.contextmanager
def no_fencing() -> Iterator[None]:
    """A producer whose id was taken over may go on."""
    judge = ProducerTable.judge

    def take(producers: ProducerTable, batch: EntryHead) -> Known | ProducerRefusal:
        verdict = judge(producers, batch)
        return ALL_NEW if isinstance(verdict, ProducerRefusal) and verdict.code == "producer-stolen" else verdict

    with mock.patch.object(ProducerTable, "judge", take):
        yield


@contextlib.contextmanager
def any_claim_commits() -> Iterator[None]:
    """A member that was outbid may go on committing."""
    commit = GroupTable._commit

    def take(ownership: GroupTable, command: Commit, clock_ms: int, next_offset: int) -> Done | Denied:
        row = ownership._rows.get(command.key)
        if row is not None and command.claim:
            command = msgspec.structs.replace(command, claim=row.claim)
        return commit(ownership, command, clock_ms, next_offset)

    with mock.patch.object(GroupTable, "_commit", take):
        yield


@contextlib.contextmanager
def requests_not_remembered() -> Iterator[None]:
    """A metadata command that comes again is carried out again."""
    with mock.patch.object(MetadataState, "_remember", return_value=None):
        yield


@contextlib.contextmanager
def local_clock_in_apply() -> Iterator[None]:
    """A replica gives events the time at which *it* applies them."""
    store = PartitionMachine._store
    drifting = count()

    def by_own_clock(machine: PartitionMachine, index: int, batch: EntryHead, *rest: Any) -> Any:
        head = batch.head._replace(time_ms=batch.head.time_ms + next(drifting))
        return store(machine, index, batch._replace(head=head), *rest)

    with mock.patch.object(PartitionMachine, "_store", by_own_clock):
        yield


# ---------------------------------------------------------------- members that lost their disks, and snapshots


@contextlib.contextmanager
def replaced_member_votes() -> Iterator[None]:
    """A member that lost its memory is opened like a new one."""
    open_group = MultiRaft.open_group

    def with_a_vote(multiraft: MultiRaft, *values: Any, **named: Any) -> RaftGroup:
        return open_group(multiraft, *values, **{**named, "mute": False})

    with mock.patch.object(MultiRaft, "open_group", with_a_vote):
        yield


@contextlib.contextmanager
def pieces_not_verified() -> Iterator[None]:
    """A damaged piece of a snapshot is taken."""

    def take(reply: FetchReply) -> FetchBody | None:
        try:
            return FetchBody.FromString(reply.body)
        except DecodeError:
            return None

    with mock.patch.object(receiver, "_verified", take):
        yield


@contextlib.contextmanager
def snapshot_without_state() -> Iterator[None]:
    """The log of a snapshot is installed, its state is not."""
    restore = PartitionReplica.restore

    def only_at_start(replica: PartitionReplica, index: int, data: bytes | None) -> None:
        if replica._group is None:
            restore(replica, index, data)

    with mock.patch.object(PartitionReplica, "restore", only_at_start):
        yield


@contextlib.contextmanager
def metadata_snapshot_without_state() -> Iterator[None]:
    """The same of the metadata: who was away goes on from the nodes and logs that it knew."""
    restore = MetadataMachine.restore

    def only_at_start(machine: MetadataMachine, index: int, data: bytes | None) -> None:
        if not machine.revision:
            restore(machine, index, data)

    with mock.patch.object(MetadataMachine, "restore", only_at_start):
        yield


@contextlib.contextmanager
def snapshot_without_rows() -> Iterator[None]:
    """What the machine keeps beside its state is not copied."""
    with mock.patch.object(PartitionReplica, "rows", return_value=[]):
        yield


@contextlib.contextmanager
def shortened_duplicate_window() -> Iterator[None]:
    """A partition remembers the last batch of a producer only."""
    with mock.patch.multiple(producer_state, REMEMBERED_BATCHES=1, REMEMBERED_EVENTS=1):
        yield


@contextlib.contextmanager
def known_by_digests_only() -> Iterator[None]:
    """A partition refuses, when it comes again, what it had no room to remember."""
    with mock.patch.multiple(producer_state, **scarce_memory.BOUNDS):
        remember = producer_state.remember

        def uncounted(producer: Producer, *stored: Any) -> None:
            remember(producer, *stored)
            producer.stored = 0

        with mock.patch.object(producer_state, "remember", uncounted):
            yield


@contextlib.contextmanager
def ownership_checked_only_at_attach() -> Iterator[None]:
    """A reader whose claim was outbid reads on."""
    with mock.patch.object(OwnershipLeases, "ousted", return_value=None):
        yield


# ---------------------------------------------------------------- time


@contextlib.contextmanager
def leaps_are_lived() -> Iterator[None]:
    """What is forgotten by time goes by any time that entries tell."""
    with mock.patch.object(partition_machine, "LONGEST_STEP_MS", 1 << 60):
        yield


@contextlib.contextmanager
def own_clock_replicated() -> Iterator[None]:
    """A leader stamps what its own clock says, whatever the others' say."""
    with mock.patch.object(ClusterClock, "now_ms", lambda clock: clock._wall_ms()):
        yield
