"""Replicas of a node as the metadata move them: opened, closed and erased, and by no older word than that."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, cast

import pytest

from cluster.features import Features
from cluster.metadata import COORDINATORS, LogRecord, MoveRecord, PartitionRecord
from cluster.raft import MultiRaft, RaftGroup, births_over, stored_birth, stored_groups
from cluster.raft.log.key_layout import FLAG_MUTE, encode_hard_state, group_prefix
from cluster.raft.membership.configuration import Replica, with_learner
from node.admin.errors import CannotRepair
from node.partition.offset_index import group_range
from node.replica_manager import ReplicaManager
from node.routing_events import RoutingEvents
from tests.simulation.world.disk import SimDisk
from tests.unit.raft.cluster import HandClock

GROUP, NODE = 4, 1
FOUNDING = PartitionRecord("0", GROUP, (1,))
GONE = PartitionRecord("0", GROUP, (2,), births=(10,), founding=(1,), configuration_version=4)
GROWN = PartitionRecord("0", GROUP, (1, 2), births=(1, 10), founding=(1,), configuration_version=4)
GROWING = replace(FOUNDING, move=MoveRecord(10, 1, Replica(2, 10), None))
BACK = replace(GONE, move=MoveRecord(20, 4, Replica(NODE, 20), Replica(2, 10)))


class OneGroup:
    """Metadata of one group, as a node knows them."""

    def __init__(self, record: PartitionRecord, log: str) -> None:
        self.record, self.lost_below = record, 0
        self.log = LogRecord(log, 1, 1, None, None, 1, (record,))

    def hosted_by(self, node: int) -> list[Any]:
        return [(self.log, self.record)] if self.record.replica_on(node) else []

    def group(self, group: int) -> Any:
        return (self.log, self.record) if group == GROUP else None

    def was_deleted(self, group: int) -> bool:
        return False

    def incarnation(self, node: int) -> int:
        return 0

    def lost_below_group(self, node: int) -> int:
        return self.lost_below

    def lost_below_birth(self, node: int) -> int:
        return 0


class MovingReplicas:
    """A node with its disk, which may start again."""

    def __init__(self, record: PartitionRecord = FOUNDING, log: str = "trades") -> None:
        self.disk: Any = SimDisk()
        self.view, self.clock = OneGroup(record, log), HandClock()
        self.start()

    def start(self) -> None:
        self.multiraft = MultiRaft(
            NODE, self.disk, self.clock, random.Random(1), lambda peer, messages: None, active_version=lambda: 15
        )
        self.replicas = ReplicaManager(
            NODE, self.multiraft, self.disk, cast(Any, self.view), RoutingEvents(),
            min_free_bytes=0, features=Features(heard=15),
        )  # fmt: skip

    def lose_the_disk(self) -> None:
        self.disk, self.view.lost_below = SimDisk(), GROUP + 1
        self.start()

    @property
    def group(self) -> RaftGroup:
        return self.multiraft.groups[GROUP]

    def turn(self) -> None:
        for _ in range(5):
            self.clock.now += 1.0
            turn = self.multiraft.turn()
            if turn is not None:
                self.disk.sync()
                self.multiraft.release(turn)

    def knows(self, record: PartitionRecord) -> None:
        self.view.record = record
        self.replicas.reconcile()
        self.turn()

    @property
    def birth(self) -> int | None:
        group = self.multiraft.groups.get(GROUP)
        return None if group is None else group.birth


def _settled() -> MovingReplicas:
    node = MovingReplicas()
    node.replicas.metadata_are_current()
    node.turn()
    assert node.birth == 1
    return node


async def test_nothing_is_opened_for_the_first_time_before_the_metadata_are_current() -> None:
    node = MovingReplicas()
    node.replicas.reconcile()
    assert node.birth is None
    node.replicas.metadata_are_current()
    assert node.birth == 1
    node.turn()
    node.start()
    node.replicas.reconcile()
    assert node.birth == 1, "what is stored is opened at once"


@pytest.mark.parametrize("log", ["trades", COORDINATORS])
async def test_what_has_moved_elsewhere_is_closed_and_erased_and_never_opened_again(log: str) -> None:
    node = MovingReplicas(log=log)
    node.replicas.metadata_are_current()
    node.turn()
    batch = node.disk.batch()
    batch.put(group_range(GROUP)[0] + b"row", b"of the partition")
    node.disk.write(batch)
    node.knows(GONE)
    assert node.birth is None
    assert node.replicas.replica(GROUP) is None
    assert stored_groups(node.disk) == []
    assert births_over(GROUP, node.disk) == 1
    assert list(node.disk.scan(*group_range(GROUP))) == []
    node.knows(FOUNDING)
    assert node.birth is None, "metadata that are behind"
    node.knows(BACK)
    assert node.birth == 20


async def test_one_that_left_and_came_back_at_once_is_another_replica() -> None:
    node = _settled()
    node.knows(BACK)
    assert (node.birth, births_over(GROUP, node.disk)) == (20, 1)
    assert node.multiraft.groups[GROUP].configuration is None, "it knows nothing of the members"


async def test_metadata_that_are_behind_erase_nothing() -> None:
    node = _settled()
    group = node.multiraft.groups[GROUP]
    latest = group.configuration
    assert latest is not None
    for move in (30, 40, 50, 60):
        learner = with_learner(replace(latest, move=0), Replica(2, move), move)
        latest = replace(learner, learners=frozenset({Replica(2, move)}))
    group.log_store.configurations._rows.append((1, latest))
    node.knows(replace(GONE, configuration_version=latest.version - 1))
    assert node.birth == 1
    node.knows(replace(GONE, configuration_version=latest.version))
    assert node.birth is None


async def test_what_a_node_was_killed_over_is_erased_once_its_metadata_are_current() -> None:
    node = _settled()
    node.start()
    node.view.record = GONE
    node.replicas.reconcile()
    node.replicas.erase_leftovers()
    assert stored_birth(GROUP, node.disk) == 1, "the metadata may be those of before"
    node.replicas.metadata_are_current()
    assert stored_birth(GROUP, node.disk) is None
    assert births_over(GROUP, node.disk) == 1


async def test_one_that_is_open_is_closed_only_once_the_metadata_are_current() -> None:
    node = _settled()
    node.start()
    node.knows(FOUNDING)
    assert node.birth == 1
    node.knows(GONE)
    assert node.birth == 1, "the metadata may be those of before"
    node.replicas.metadata_are_current()
    assert node.birth is None


async def test_a_replica_that_is_repaired_stays_what_it_was() -> None:
    record = replace(GONE, replicas=(2, 1), births=(10, 20), configuration_version=7)
    node = MovingReplicas(record)
    node.replicas.metadata_are_current()
    node.turn()
    node.replicas.repair(GROUP)
    assert (node.birth, stored_birth(GROUP, node.disk)) == (20, 20)
    assert node.multiraft.groups[GROUP].log_store.mute


async def test_who_was_its_whole_group_and_lost_its_disk_leads_and_does_so_when_the_group_is_to_grow() -> None:
    node = _settled()
    node.lose_the_disk()
    node.replicas.metadata_are_current()
    node.turn()
    assert (node.group.is_leader, node.group.may_count) == (True, True)
    last = node.group.last_index
    node.start()
    node.knows(GROWING)
    assert (node.group.is_leader, node.group.log_store.mute) == (True, False)
    assert node.group.last_index > last


@pytest.mark.parametrize("record", [GROWN, GROWING], ids=["grown", "growing"])
async def test_who_was_its_whole_group_once_and_forgot_everything_since_leads_nothing(record: PartitionRecord) -> None:
    """Whatever its metadata say, whenever it starts, until they are current (seed 500914 of `moving`)."""
    node = _settled()
    node.lose_the_disk()
    node.view.record = record
    node.replicas.metadata_are_current()
    node.turn()
    assert not node.group.is_leader
    node.start()
    node.knows(FOUNDING)
    assert (node.birth, node.group.is_leader, node.group.term, node.group.last_index) == (1, False, 0, 1)
    node.view.record = record
    node.replicas.metadata_are_current()
    node.turn()
    assert (node.group.is_leader, node.group.log_store.mute) == (False, True)


async def test_one_without_a_vote_that_led_its_group_of_one_before_members_could_change_leads_on() -> None:
    """As the program of version 14 left it, which let who is alone lead without a memory."""
    node = MovingReplicas()
    batch = node.disk.batch()
    batch.put(group_prefix(b"h", GROUP), encode_hard_state(14, FLAG_MUTE, 3, NODE, 1, 1, 0, 1))
    node.disk.write(batch)
    node.knows(FOUNDING)
    assert not node.group.is_leader
    node.replicas.metadata_are_current()
    node.turn()
    assert (node.group.is_leader, node.group.may_count, node.group.term) == (True, True, 4)


async def test_one_of_two_that_has_a_term_and_no_memory_gets_no_vote_as_if_all_were_new() -> None:
    node = MovingReplicas()
    batch = node.disk.batch()
    batch.put(group_prefix(b"h", GROUP), encode_hard_state(14, FLAG_MUTE, 3, NODE, 1, 1, 0, 1))
    node.disk.write(batch)
    node.knows(replace(FOUNDING, replicas=(1, 2)))
    node.group.vote_from_the_beginning()
    assert node.group.log_store.mute


async def test_the_only_voter_is_not_given_up_for_a_learner() -> None:
    node = _settled()
    latest = node.multiraft.groups[GROUP].configuration
    assert latest is not None
    node.multiraft.groups[GROUP].log_store.configurations._rows.append((1, with_learner(latest, Replica(2, 20), 20)))
    assert node.multiraft.groups[GROUP].members == (1, 2)
    with pytest.raises(CannotRepair, match="has no other replica"):
        node.replicas.repair(GROUP)


async def test_rows_that_an_erased_life_left_are_not_those_of_the_next() -> None:
    node = _settled()
    node.knows(GONE)
    batch = node.disk.batch()
    batch.put(group_range(GROUP)[0] + b"row", b"left by a crash")
    node.disk.write(batch)
    node.knows(BACK)
    assert list(node.disk.scan(*group_range(GROUP))) == []


async def test_another_preferred_leader_is_taken_over_while_the_replica_is_open() -> None:
    node = _settled()
    assert node.multiraft.groups[GROUP].preferred == 1
    node.knows(replace(FOUNDING, replicas=(2, 1), births=(7, 1), founding=(1,), configuration_version=4))
    assert node.multiraft.groups[GROUP].preferred == 2
    move = MoveRecord(20, 4, None, Replica(2, 7))
    node.knows(replace(FOUNDING, replicas=(2, 1), births=(7, 1), founding=(1,), configuration_version=4, move=move))
    assert node.multiraft.groups[GROUP].preferred is None
    node.knows(replace(FOUNDING, replicas=(1,), births=(1,), founding=(1,), configuration_version=7))
    assert node.multiraft.groups[GROUP].preferred == 1


async def test_nothing_is_opened_or_closed_while_the_node_stops() -> None:
    node = _settled()
    node.replicas.close()
    node.multiraft.close()
    node.knows(GONE)
    assert stored_birth(GROUP, node.disk) == 1
