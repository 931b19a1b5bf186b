"""Versions side by side: who may join, what is activated, and what a program does with what it does not know."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from cluster.metadata import (
    MetadataMachine,
    NodeRecord,
    Ok,
    Refusal,
    activate_version,
    create_log,
    encode_command,
    register_node,
)
from cluster.metadata import metadata_pb2 as pb
from cluster.metadata.command_validation import command_fault
from cluster.raft import UnknownEntry
from cluster.stale_copy_detection import KnownStart
from cluster.versions import UNSET, VersionRange, mismatch
from tests.simulation.world.disk import SimBatch

OLD, BOTH, NEW = VersionRange(14, 14), VersionRange(14, 15), VersionRange(15, 16)


class Replica:
    """A metadata machine of a program."""

    def __init__(self, versions: VersionRange = BOTH) -> None:
        self.machine = MetadataMachine(versions)
        self.index = 1

    def do(self, command: pb.Command) -> Any:
        self.index += 1
        return self.machine.apply(self.index, 1, encode_command(command), SimBatch())

    def register(self, node: int, versions: VersionRange) -> Any:
        return self.do(register_node(node, f"h:{node}", {}, versions=versions))

    def activate(self, version: int, heard: Iterable[NodeRecord] | None = None) -> Any:
        return self.do(activate_version(version, self.machine.state.nodes.values() if heard is None else heard))

    @property
    def active(self) -> int:
        return self.machine.state.active_version


def test_a_cluster_begins_with_the_newest_version_of_its_first_node() -> None:
    replica = Replica()
    assert replica.active == UNSET
    replica.register(1, OLD)
    replica.register(2, BOTH)
    assert replica.active == 14


def test_a_node_whose_program_does_not_know_the_active_version_is_refused_by_name() -> None:
    replica = Replica()
    replica.register(1, VersionRange(15, 15))
    refused = replica.register(2, OLD)
    assert isinstance(refused, Refusal)
    assert "node 2 cannot join with its program: the cluster runs version 15, and the program knows version 14" in (
        refused.message
    )
    refused = replica.register(3, VersionRange(16, 17))
    assert "install an earlier release on it, or finalize" in refused.message
    assert set(replica.machine.state.nodes) == {1}


def test_it_is_activated_when_the_latest_start_of_every_node_knows_it_and_never_taken_back() -> None:
    replica = Replica()
    replica.register(1, OLD)
    replica.register(2, BOTH)
    refused = replica.activate(15)
    assert "node 1 was started last with a program that knows version 14" in refused.message
    replica.register(1, BOTH)
    replica.register(2, OLD)  # it went back
    assert "node 2 " in replica.activate(15).message
    replica.register(2, BOTH)
    assert replica.activate(15) == Ok()
    assert replica.active == 15
    assert replica.activate(15) == Ok(), "repeated"
    refused = replica.activate(14)
    assert "no way back to 14" in refused.message
    assert "cannot join" in replica.register(1, OLD).message


def test_without_nodes_or_with_some_that_did_not_say_nothing_is_activated() -> None:
    replica = Replica()
    assert "no node" in replica.activate(15).message
    replica.register(1, OLD)
    replica.register(1, BOTH)
    replica.do(register_node(2, "h:2", {}))
    assert "node 2 was started last with a program that knows version 0" in replica.activate(15).message
    assert replica.active == 14


def test_a_start_that_was_not_heard_and_a_node_that_came_meanwhile_are_in_the_way() -> None:
    replica = Replica()
    replica.register(1, OLD)
    replica.register(1, BOTH)
    replica.register(2, BOTH)
    nodes = replica.machine.state.nodes
    assert "node 2 was started again" in replica.activate(15, [nodes[1]]).message
    assert "node 2 was started again" in replica.activate(15, [nodes[1], replace(nodes[2], incarnation=7)]).message
    earlier = replace(nodes[2], start=KnownStart(4, 0))
    assert "node 2 was started again" in replica.activate(15, [nodes[1], earlier]).message
    assert replica.active == 14


def test_the_active_version_and_the_programs_are_in_the_checkpoint() -> None:
    replica = Replica()
    replica.register(1, VersionRange(13, 14))
    replica.register(1, BOTH)
    replica.activate(15)
    again = Replica()
    again.machine.restore(5, replica.machine.checkpoint())
    assert again.active == 15
    assert again.machine.state.nodes[1].versions == BOTH
    with pytest.raises(UnknownEntry, match="the cluster runs version 15, and the program knows version 14"):
        MetadataMachine(OLD).restore(5, replica.machine.checkpoint())


def test_a_program_that_does_not_know_what_is_activated_stops_its_replica() -> None:
    """It was put back after its node had registered."""
    old = Replica(OLD)
    old.register(1, VersionRange(13, 14))
    old.register(1, BOTH)
    with pytest.raises(UnknownEntry, match="the cluster runs version 15, and the program knows version 14"):
        old.activate(15)
    with pytest.raises(UnknownEntry):
        old.do(create_log("trades", now_ms=1, replicas=1))


LATER = [
    b"\xa2\x06\x02\x08\x01",  # field 100 of a command, in place of those that are known
    pb.Command(create_log=pb.CreateLog(name="a", partitions=1, replicas=1)).SerializeToString() + b"\xa2\x06\x00",
    b"\x1a\x06" + pb.CreateLog(name="a").SerializeToString() + b"\xa0\x06\x01",  # a field of a known command
]


@pytest.mark.parametrize("data", LATER)
def test_a_command_of_a_later_version_stops_the_replica_and_is_asked_for_in_vain(data: bytes) -> None:
    replica = Replica()
    replica.register(1, BOTH)
    before = replica.machine.checkpoint()
    with pytest.raises(UnknownEntry, match="does not know: install the cluster's newest release"):
        replica.machine.apply(9, 1, encode_command(pb.Command.FromString(data)), SimBatch())
    assert replica.machine.checkpoint() == before
    assert "install the same release" in (command_fault(pb.Command.FromString(data)) or "")


@pytest.mark.parametrize(
    ("ours", "active", "theirs", "their_active", "says"),
    [
        (OLD, 14, OLD, 14, None),
        (OLD, 14, BOTH, 14, None),
        (BOTH, 14, OLD, 14, None),
        (BOTH, 14, BOTH, 15, None),  # this one has not heard of the activation
        (BOTH, 14, BOTH, UNSET, None),  # an empty directory
        (OLD, UNSET, OLD, UNSET, None),
        (OLD, 14, BOTH, 15, "of this node: the cluster runs version 15"),
        (BOTH, 15, OLD, 14, "of that node: the cluster runs version 15"),
        (BOTH, 14, NEW, UNSET, "of that node: the cluster runs version 14"),
        (OLD, UNSET, NEW, UNSET, "install releases that have one in common"),
        (OLD, UNSET, NEW, 15, "of this node: the cluster runs version 15"),
    ],
)
def test_two_nodes_talk_if_each_knows_what_the_other_says(
    ours: VersionRange, active: int, theirs: VersionRange, their_active: int, says: str | None
) -> None:
    found = mismatch(ours, active, theirs, their_active)
    assert found is None if says is None else says in (found or "")
