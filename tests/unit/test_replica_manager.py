"""What a node keeps follows the metadata, and what it cannot keep stops it."""

from __future__ import annotations

import asyncio
import random
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cluster.metadata import (
    MetadataMachine,
    MetadataView,
    Ok,
    PartitionRecord,
    encode_command,
    readmit_node,
    register_node,
)
from cluster.raft import MultiRaft, stored_groups
from cluster.rpc import LoadReport
from cluster.stale_copy_detection import DirectoryStart
from holdfast.records.codec import Codec
from node.replica_manager import NodeSightings, ReplicaManager
from node.routing_events import RoutingEvents
from node.transaction_coordinator.coordinator_commands import NodeStart
from tests.simulation.world.disk import SimDisk
from tests.unit.raft.cluster import HandClock, ListMachine

GROUP = 4
PARTITION = PartitionRecord("0", GROUP, (1,))


class OneLog:
    def hosted_by(self, node: int) -> list[tuple[Any, Any]]:
        return [(SimpleNamespace(name="trades", compression="none"), PARTITION)]

    def was_deleted(self, group: int) -> bool:
        return False

    def incarnation(self, node: int) -> int:
        return 0

    def lost_below_group(self, node: int) -> int:
        return 0

    def lost_below_birth(self, node: int) -> int:
        return 0

    def group(self, group: int) -> tuple[Any, Any]:
        return SimpleNamespace(name="trades", compression="none"), PARTITION


async def test_a_group_whose_state_is_damaged_is_in_quarantine_and_the_node_goes_on() -> None:
    disk = SimDisk()
    batch = disk.batch()
    batch.put(b"h" + GROUP.to_bytes(8), b"not a hard state")
    disk.write(batch)
    routing_events = RoutingEvents()
    multiraft = MultiRaft(1, disk, HandClock(), random.Random(1), lambda peer, messages: None)
    replicas = ReplicaManager(1, multiraft, cast(Any, disk), cast(Any, OneLog()), routing_events, min_free_bytes=0)
    failures: list[Exception] = []
    replicas.on_failed = failures.append
    routing_events.subscribe(replicas.reconcile)
    told: list[bool] = []
    routing_events.subscribe(lambda: told.append(True))

    routing_events.ring()
    await routing_events.until(lambda: bool(told), 1.0)

    assert told
    assert failures == []
    assert "does not match its checksum" in str(multiraft.groups[GROUP].quarantined)
    [state] = replicas.states([])
    assert (state.group, state.votes) == (GROUP, False)
    assert "does not match its checksum" in state.quarantined
    replica = replicas.partition(GROUP)
    assert replica is not None
    assert not replica.is_leader


async def test_a_log_that_is_altered_is_compressed_from_then_on_while_it_is_open() -> None:
    class Altered(OneLog):
        compression = "gzip"

        def hosted_by(self, node: int) -> list[tuple[Any, Any]]:
            return [(SimpleNamespace(name="trades", compression=self.compression), PARTITION)]

    disk, view = SimDisk(), Altered()
    multiraft = MultiRaft(1, disk, HandClock(), random.Random(1), lambda peer, messages: None)
    replicas = ReplicaManager(1, multiraft, cast(Any, disk), cast(Any, view), RoutingEvents(), min_free_bytes=0)
    replicas.metadata_are_current()
    for view.compression, codec in (("gzip", Codec.GZIP), ("zstd", Codec.ZSTD), ("none", Codec.NONE)):
        replicas.reconcile()
        replica = replicas.partition(GROUP)
        assert replica is not None
        assert replica._appender.compression is codec


class NoLog(OneLog):
    def hosted_by(self, node: int) -> list[tuple[Any, Any]]:
        return []

    def was_deleted(self, group: int) -> bool:
        return group == GROUP


async def test_what_is_left_of_a_group_that_was_deleted_before_the_node_started_is_erased() -> None:
    disk = SimDisk()
    multiraft = MultiRaft(1, disk, HandClock(), random.Random(1), lambda peer, messages: None)
    view = cast(Any, OneLog())
    ReplicaManager(1, multiraft, cast(Any, disk), view, RoutingEvents(), min_free_bytes=0).metadata_are_current()
    multiraft.open_group(GROUP + 1, [1], ListMachine())
    turn(multiraft, disk)
    kept = {key for key, _ in disk.scan(b"", b"\xff" * 20) if key[1:9] == (GROUP + 1).to_bytes(8)}
    assert stored_groups(disk) == [GROUP, GROUP + 1]

    multiraft = MultiRaft(1, disk, HandClock(), random.Random(1), lambda peer, messages: None)
    after = ReplicaManager(1, multiraft, cast(Any, disk), cast(Any, NoLog()), RoutingEvents(), min_free_bytes=0)
    after.reconcile()
    after.erase_leftovers()
    assert {key for key, _ in disk.scan(b"", b"\xff" * 20)} == kept


async def test_upkeep_that_fails_stops_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else events would be trimmed no more, and a full disk would be noticed by the first write that fails."""
    monkeypatch.setattr("node.replica_manager.TICK_PERIOD_S", 0.01)
    multiraft = MultiRaft(1, SimDisk(), HandClock(), random.Random(1), lambda peer, messages: None)

    class Damaged:
        def free_bytes(self) -> int:
            raise OSError("input/output error")

    replicas = ReplicaManager(1, multiraft, cast(Any, Damaged()), cast(Any, NoLog()), RoutingEvents(), min_free_bytes=0)
    failures: list[Exception] = []
    replicas.on_failed = failures.append
    await asyncio.wait_for(replicas.keep_time(), 40)
    assert "input/output error" in str(failures[0])


def test_logs_are_told_that_the_disk_is_nearly_full() -> None:
    multiraft = MultiRaft(1, SimDisk(), HandClock(), random.Random(1), lambda peer, messages: None)
    disk = SimpleNamespace(free_bytes=lambda: 7, capacity_bytes=lambda: 100)
    replicas = ReplicaManager(1, multiraft, cast(Any, disk), cast(Any, NoLog()), RoutingEvents(), min_free_bytes=0)
    replicas._watch_space()
    assert multiraft.is_disk_full
    disk.free_bytes = lambda: 8
    replicas._watch_space()
    assert not multiraft.is_disk_full


def turn(multiraft: MultiRaft, disk: SimDisk) -> None:
    """Until nothing is to be done now: a single member elects itself."""
    while True:
        multiraft._clock.now += 1.0  # type: ignore[attr-defined]
        done = multiraft.turn()
        if done is None:
            return
        disk.sync()
        multiraft.release(done)
        if all(group.is_leader and group.ready for group in multiraft.groups.values()):
            return


def test_a_start_of_a_node_has_a_successor_when_the_metadata_know_a_later_one_or_other_data() -> None:
    machine, index = MetadataMachine(), count(1)
    sightings = NodeSightings(1, MetadataView(machine))

    def apply(command: Any) -> None:
        result = machine.apply(next(index), 1, encode_command(command), SimDisk().batch())
        assert isinstance(result, Ok), result

    def starts(boot: int, incarnation: int) -> None:
        apply(register_node(3, "h:1", {}, incarnation, DirectoryStart(boot, (boot,))))

    def succeeded() -> list[tuple[int, int]]:
        every = [(70, 4), (70, 5), (70, 6), (71, 1), (71, 2)]
        return [(data, boot) for data, boot in every if sightings.is_succeeded(NodeStart(3, data, boot))]

    assert succeeded() == [], "nothing is known of the node"
    starts(5, 70)
    assert succeeded() == [(70, 4)]
    starts(6, 70)
    assert succeeded() == [(70, 4), (70, 5)]
    apply(readmit_node(3, 71))
    assert succeeded() == [(70, 4), (70, 5), (70, 6)]
    starts(2, 71)
    assert succeeded() == [(70, 4), (70, 5), (70, 6), (71, 1)]


def test_a_report_tells_what_is_not_free_and_the_groups_that_are_led() -> None:
    replicas = SimpleNamespace(
        _disk=SimpleNamespace(capacity_bytes=lambda: 100, free_bytes=lambda: 30, garbage_bytes=lambda: 11),
        _open={
            4: SimpleNamespace(is_leader=True, stored_bytes=7),
            5: SimpleNamespace(is_leader=False, stored_bytes=9),
        },
        _coordinators={8: SimpleNamespace(is_leader=True), 9: SimpleNamespace(is_leader=False)},
    )
    assert ReplicaManager.report(cast(Any, replicas)) == LoadReport(100, 70, {4: 7, 8: 0}, 11)
