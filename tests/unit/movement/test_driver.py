"""The driver of moves: real groups, real metadata, and leaders that come and go."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from cluster.features import Features
from cluster.metadata import (
    MetadataMachine,
    MetadataView,
    Ok,
    PartitionRecord,
    Refusal,
    cancel_moves,
    create_log,
    encode_command,
    reassign,
    register_node,
)
from cluster.metadata import metadata_pb2 as pb
from cluster.raft import METADATA_GROUP
from node.movement.driver import STALLED_AFTER_S, MoveDriver
from node.movement.lagging_leaders import ASK_AFTER_S
from tests.simulation.world.disk import SimBatch
from tests.unit.raft.cluster import GROUP, ListMachine
from tests.unit.raft.membership.moving import led


class Driven:
    """A group on a stage, and the metadata that wish something of it."""

    def __init__(self, founders: int = 3) -> None:
        self.stage = led(founders, spare=2)
        self.machine, self.index = MetadataMachine(), 1
        self.view = MetadataView(self.machine)
        for node in range(1, founders + 1):
            self.done(register_node(node, f"h:{node}", {}))
        self.done(create_log("a", now_ms=1, partitions=GROUP, replicas=founders))
        for node in range(founders + 1, founders + 3):
            self.done(register_node(node, f"h:{node}", {}))
        self.reports: list[pb.Command] = []
        self.loses_reports = self.is_leaderless = False
        self.leads_metadata = False
        self.asked: list[int] = []
        self.features = Features(heard=15)
        self.drivers = {node: self._driver(node) for node in self.stage.ids}

    def _driver(self, node: int) -> MoveDriver:
        multiraft = self.stage.multirafts[node]
        peers: Any = self
        return MoveDriver(
            multiraft, self.view, self.execute, peers, self.features, lambda: self.leads_metadata and node == 1
        )

    def leader_of(self, group: int) -> int | None:
        return None if self.is_leaderless else self.stage.leader

    def is_up(self, node: int) -> bool:
        return True

    def client(self, node: int) -> Any:
        self.asked.append(node)
        raise ConnectionError("nobody hears")

    async def execute(self, command: pb.Command) -> Ok | Refusal:
        self.reports.append(command)
        if self.loses_reports:
            return Refusal("unavailable", "no leader")
        return self.do(command)

    def do(self, command: pb.Command) -> Any:
        self.index += 1
        return self.machine.apply(self.index, 1, encode_command(command), SimBatch())

    def done(self, command: pb.Command) -> None:
        result = self.do(command)
        assert isinstance(result, Ok), result

    @property
    def record(self) -> PartitionRecord:
        found = self.view.group(GROUP)
        assert found is not None
        return found[1]

    def reconcile(self) -> None:
        """Open the replica that comes, as its node would."""
        move = self.record.move
        coming = move.add if move is not None else None
        if coming is not None and coming.node in self.stage.multirafts and coming.node not in self.stage.births:
            self.stage.open(coming.node, coming.birth)

    async def step(self, nodes: Any = None) -> None:
        self.reconcile()
        for node in nodes or list(self.stage.multirafts):
            self.drivers[node].drive(self.stage.clock.now)
        self.stage.run(0.02)
        for _ in range(3):
            await asyncio.sleep(0)

    async def until(self, condition: Any, steps: int = 500) -> None:
        for _ in range(steps):
            if condition():
                return
            await self.step()
        raise AssertionError(f"in vain: {self.record}, {self.stage.group(1).configuration}")

    def aim(self, *nodes: int) -> None:
        self.done(reassign([(GROUP, 0, nodes)]))


async def test_a_target_is_reached_and_every_move_reported() -> None:
    driven = Driven()
    driven.aim(4, 5, 1)
    await driven.until(lambda: driven.record.move is None)
    assert set(driven.record.replicas) == {1, 4, 5}
    leader = driven.stage.leader
    assert leader in (1, 4, 5)
    assert {str(one) for one in driven.record.settled} == set(driven.stage.voters(leader))
    assert driven.record.configuration_version == driven.stage.configuration(leader).version
    await driven.step()
    assert all(not list(driver.statuses()) for driver in driven.drivers.values())


async def test_a_leader_that_is_to_leave_hands_over_first() -> None:
    driven = Driven()
    driven.aim(2, 3, 4)
    assert driven.stage.leader == 1
    await driven.until(lambda: driven.record.move is None)
    assert driven.stage.leader in (2, 3, 4)


async def test_a_single_replica_moves() -> None:
    driven = Driven(founders=1)
    driven.aim(2)
    await driven.until(lambda: driven.record.move is None)
    assert driven.record.replicas == (2,)
    assert driven.stage.leader == 2


async def test_a_report_is_repeated_until_the_metadata_show_it() -> None:
    driven = Driven()
    driven.loses_reports = True
    driven.aim(1, 2, 4)
    await driven.until(lambda: len(driven.reports) >= 3)
    assert driven.record.move is not None
    [status] = driven.drivers[driven.stage.leader or 0].statuses()
    assert status.state == "finishing"
    driven.loses_reports = False
    await driven.until(lambda: driven.record.move is None)


async def test_an_end_that_is_not_committed_is_not_reported() -> None:
    driven = Driven()
    driven.aim(1, 2, 4)
    await driven.until(lambda: driven.stage.configuration(1).is_joint)
    driven.stage.until(lambda: driven.stage.group(1).commit_index == driven.stage.group(1).last_index)
    for node in (2, 3, 4):
        driven.stage.isolate(node)
    driven.drivers[1].drive(driven.stage.clock.now)
    assert not driven.stage.configuration(1).is_joint
    for _ in range(5):
        driven.drivers[1].drive(driven.stage.clock.now)
        await asyncio.sleep(0)
        driven.stage.run(0.02)
    assert driven.stage.group(1).is_leader
    assert not driven.reports
    driven.stage.heal()
    await driven.until(lambda: driven.record.move is None)


async def test_another_leader_goes_on_where_the_first_one_ended() -> None:
    driven = Driven()
    driven.aim(1, 2, 4)
    await driven.until(lambda: driven.stage.configuration(1).is_joint)
    driven.stage.stop(1)
    del driven.drivers[1]
    await driven.until(lambda: driven.record.move is None)
    assert driven.stage.leader in (2, 4)


async def test_a_cancel_ends_a_move_whose_node_never_came() -> None:
    driven = Driven()
    driven.stage.stop(4)
    del driven.drivers[4]
    driven.aim(1, 2, 4)
    await driven.until(lambda: driven.stage.configuration(1).move > 0)
    await driven.step()
    [status] = driven.drivers[1].statuses()
    assert (status.state, status.waits_for) == ("copying", "replica 4/2 is not near enough to the end of the log")
    driven.done(cancel_moves([GROUP]))
    await driven.until(lambda: driven.record.move is None)
    assert set(driven.record.replicas) == {1, 2, 3}
    assert not driven.stage.configuration(1).learners


async def test_without_progress_a_move_is_stalled_and_leaves_its_slot() -> None:
    driven = Driven()
    driven.stage.stop(4)
    del driven.drivers[4]
    driven.aim(1, 2, 4)
    await driven.until(lambda: driven.stage.configuration(1).move > 0)
    assert driven.record.move is not None
    assert not driven.record.move.stalled
    driven.stage.run(STALLED_AFTER_S + 1)
    await driven.until(lambda: driven.record.move is not None and driven.record.move.stalled)
    [status] = driven.drivers[1].statuses()
    assert status.stalled


async def test_a_look_is_at_moves_and_not_at_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    driven = Driven()
    driven.aim(1, 2, 4)
    monkeypatch.setattr(MetadataView, "moving", None)
    await driven.until(lambda: driven.record.move is None)
    assert set(driven.record.replicas) == {1, 2, 4}


async def test_a_stalled_move_is_reported_until_the_metadata_show_it() -> None:
    driven = Driven()
    driven.stage.stop(4)
    del driven.drivers[4]
    driven.aim(1, 2, 4)
    await driven.until(lambda: driven.stage.configuration(1).move > 0)
    driven.stage.run(STALLED_AFTER_S + 1)
    driven.loses_reports = True
    await driven.until(lambda: bool(driven.reports))
    driven.loses_reports = False
    await driven.until(lambda: driven.record.move is not None and driven.record.move.stalled)
    told = len(driven.reports)
    driven.stage.run(5.0)
    for _ in range(10):
        await driven.step()
    assert len(driven.reports) == told


async def test_a_stalled_move_that_goes_on_is_no_longer_called_stalled() -> None:
    driven = Driven()
    driven.stage.isolate(4)
    driven.aim(1, 2, 4)
    await driven.until(lambda: driven.stage.configuration(1).move > 0)
    driven.stage.run(STALLED_AFTER_S + 1)
    await driven.until(lambda: driven.record.move is not None and driven.record.move.stalled)
    driven.drivers = {node: driven._driver(node) for node in driven.drivers}
    for _ in range(10):
        await driven.step()
    assert driven.record.move is not None
    assert driven.record.move.stalled, "a leader that comes anew has seen no progress"
    told = len(driven.reports)
    driven.stage.heal()
    await driven.until(lambda: driven.record.move is None)
    assert [one.stall_move.goes_on for one in driven.reports[told:] if one.HasField("stall_move")] == [True]


async def test_the_metadata_leader_sees_moves_of_groups_without_a_leader() -> None:
    driven = Driven()
    driven.aim(1, 2, 4)
    driven.leads_metadata = driven.is_leaderless = True
    for node in (2, 3):
        driven.stage.stop(node)
        del driven.drivers[node]
    driven.stage.until(lambda: not driven.stage.group(1).is_leader)
    await driven.step()
    driven.stage.run(STALLED_AFTER_S + 1)
    await driven.until(lambda: driven.record.move is not None and driven.record.move.stalled)


async def test_no_time_counts_in_which_a_node_did_not_lead_the_metadata() -> None:
    """What it saw before tells nothing: meanwhile the group may have had leaders."""
    driven = Driven()
    driven.aim(1, 2, 4)
    driven.leads_metadata = driven.is_leaderless = True
    for node in (2, 3):
        driven.stage.stop(node)
        del driven.drivers[node]
    driven.stage.until(lambda: not driven.stage.group(1).is_leader)
    await driven.step()
    driven.leads_metadata = False
    driven.stage.run(STALLED_AFTER_S + 1)
    await driven.step()
    driven.leads_metadata = True
    await driven.step()
    assert not driven.reports
    driven.stage.run(STALLED_AFTER_S + 1)
    await driven.until(lambda: driven.record.move is not None and driven.record.move.stalled)


async def test_leaders_have_their_time_anew_when_a_node_leads_the_metadata_again() -> None:
    driven = Driven()
    driven.stage.elect(2)
    driven.stage.multirafts[1].open_group(METADATA_GROUP, [1], ListMachine())
    driven.stage.run(0.1)
    driven.aim(1, 2, 4)
    driven.leads_metadata = True
    await driven.step([1])
    driven.leads_metadata = False
    await driven.step([1])
    driven.stage.run(ASK_AFTER_S)
    driven.leads_metadata = True
    await driven.step([1])
    assert not driven.asked
    driven.stage.run(ASK_AFTER_S)
    await driven.step([1])
    assert driven.asked == [2]


async def test_nothing_moves_before_the_version_that_brings_it_is_active() -> None:
    driven = Driven()
    driven.features.version = 14
    driven.aim(1, 2, 4)
    for _ in range(50):
        await driven.step()
    assert driven.stage.configuration(1).version == 1
    assert not driven.reports


async def test_a_log_that_is_past_a_move_which_the_metadata_forgot_is_reported() -> None:
    driven = Driven()
    driven.loses_reports = True
    driven.aim(1, 2, 4)
    await driven.until(lambda: bool(driven.reports))
    record, log = driven.record, driven.machine.state.logs["a"]
    assert record.move is not None
    number = int(record.name)
    forgotten = replace(record, move=None, target=())
    partitions = (*log.partitions[:number], forgotten, *log.partitions[number + 1 :])
    driven.machine.state.logs["a"] = replace(log, partitions=partitions)
    driven.machine.state.moving.clear()
    driven.machine.state.under_way.clear()
    driven.machine.revision += 1
    driven.loses_reports = False
    await driven.until(lambda: driven.record.configuration_version > 1)
    assert set(driven.record.replicas) == {1, 2, 4}
