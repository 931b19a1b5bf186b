"""Racks of nodes: told to the cluster as soon as every node can know what that is, and spread over."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from cluster.features import Features
from cluster.metadata import (
    CommandProposer,
    MetadataMachine,
    MetadataView,
    Ok,
    Refusal,
    create_log,
    encode_command,
    register_node,
    set_rack,
)
from cluster.metadata import metadata_pb2 as pb
from cluster.metadata.codec import decode_checkpoint, encode_checkpoint
from cluster.metadata.command_validation import MAX_RACK_CHARACTERS, command_fault
from cluster.versions import OURS
from node.startup import registration
from node.startup.registration import RackNote
from tests.simulation.world.disk import SimBatch


class Cluster:
    """The metadata group of one replica, which carries out what is proposed unless told to refuse."""

    def __init__(self) -> None:
        self.machine, self.index = MetadataMachine(OURS), 1
        self.view = MetadataView(self.machine)
        self.refuses = 0
        for node in range(1, 5):
            self.do(register_node(node, f"h:{node}", {}, versions=OURS))

    def do(self, command: pb.Command) -> Any:
        self.index += 1
        return self.machine.apply(self.index, 1, encode_command(command), SimBatch())

    async def execute(self, command: pb.Command) -> Any:
        if self.refuses:
            self.refuses -= 1
            return Refusal("unavailable", "no leader")
        return self.do(command)

    def rack_note(self, rack: str, version: int) -> RackNote:
        features = Features(OURS, version)
        note = RackNote(1, rack, self.view, features, cast(CommandProposer, self))
        self.view.on_change(note.look)
        features.on_rise.append(lambda _: asyncio.get_running_loop().call_soon(note.look))
        self.features = features
        return note

    @property
    def rack(self) -> str:
        return self.view.nodes[1].rack


async def settle() -> None:
    while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110 - what runs is a task of the code under test
        await asyncio.sleep(0)


async def test_a_rack_is_told_when_the_version_is_active_and_not_before() -> None:
    cluster = Cluster()
    note = cluster.rack_note("a", 14)
    note.look()
    await settle()
    assert cluster.rack == ""
    cluster.features.rise(15)
    note.look()
    await settle()
    assert cluster.rack == "a"


async def test_it_is_told_again_until_the_cluster_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "RETRY_S", 0.0)
    cluster = Cluster()
    cluster.refuses = 3
    cluster.rack_note("a", 15).look()
    await settle()
    assert cluster.rack == "a"


async def test_a_node_that_hears_late_of_its_own_rack_tells_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    told: list[pb.Command] = []

    async def elsewhere(command: pb.Command) -> Any:
        told.append(command)
        assert len(told) == 1
        return Ok()

    monkeypatch.setattr(cluster, "execute", elsewhere)
    cluster.rack_note("a", 15).look()
    await settle()
    cluster.do(told[0])
    await settle()
    assert cluster.rack == "a"
    assert len(told) == 1


async def test_a_node_that_was_moved_to_another_rack_says_so_and_one_without_says_nothing() -> None:
    cluster = Cluster()
    cluster.do(set_rack(1, "old"))
    cluster.rack_note("new", 15).look()
    await settle()
    assert cluster.rack == "new"
    index = cluster.index
    cluster.rack_note("new", 15).look()
    await settle()
    assert cluster.index == index


def test_new_partitions_are_on_different_racks() -> None:
    cluster = Cluster()
    for node, rack in ((1, "a"), (2, "a"), (3, "b"), (4, "b")):
        assert isinstance(cluster.do(set_rack(node, rack)), Ok)
    log = cluster.do(create_log("trades", now_ms=1, partitions=12, replicas=2)).log
    assert all(len({1, 2} & set(partition.replicas)) == 1 for partition in log.partitions)


def test_a_rack_of_nobody_and_one_with_too_long_a_name_are_refused() -> None:
    refused = Cluster().do(set_rack(9, "a"))
    assert isinstance(refused, Refusal)
    assert "node 9 was never registered" in refused.message
    assert "SetRack.rack has more than" in str(command_fault(set_rack(1, "r" * (MAX_RACK_CHARACTERS + 1))))


def test_a_checkpoint_keeps_racks() -> None:
    cluster = Cluster()
    cluster.do(set_rack(2, "b"))
    assert decode_checkpoint(encode_checkpoint(cluster.machine.state, 15)).nodes[2].rack == "b"
