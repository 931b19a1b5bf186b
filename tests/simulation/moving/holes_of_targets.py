"""Mutations of what the metadata make of targets and moves, and of how nodes open what they say."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

from cluster.metadata import PartitionRecord, moves, state
from cluster.metadata import metadata_pb2 as pb
from cluster.metadata.types import CommandResult
from cluster.raft import RaftGroup
from cluster.raft.interfaces import Disk
from cluster.raft.membership.configuration import FOUNDING_BIRTH, Replica
from node import replica_manager
from node.movement.lifecycle import LostBelow, ReplicaOpening, opening
from tests.simulation.moving import node as moving_node
from tests.simulation.moving.targets import MetadataReader

Hole = Iterator[None]


@contextlib.contextmanager
def founders_of_moved_groups_are_told_nothing() -> Hole:
    """A founding replica that is opened for the first time does not hear whom it begins with, once a move is wished."""

    def forgetful(record: PartitionRecord, *values: Any) -> ReplicaOpening | None:
        found = opening(record, *values)
        return replace(found, members=()) if found is not None and found.is_new and record.was_moved else found

    with mock.patch.object(moving_node, "opening", forgetful):
        yield


@contextlib.contextmanager
def founders_are_mute_by_their_births() -> Hole:
    """Births alone say whether a node has lost a founding replica with its disk. One that was lost before births were
    drawn has a vote, and one of a log that was made later has none (H4 of the review)."""

    def by_birth(record: PartitionRecord, node: int, disk: Disk, lost: LostBelow) -> ReplicaOpening | None:
        return opening(record, node, disk, replace(lost, group=record.group + 1 if lost.birth > FOUNDING_BIRTH else 0))

    with (
        mock.patch.object(moving_node, "opening", by_birth),
        mock.patch.object(replica_manager, "opening", by_birth),
    ):
        yield


@contextlib.contextmanager
def births_are_used_twice() -> Hole:
    """What comes back to a node has the birth of what left it."""

    def with_the_same_birth(node: int, birth: int) -> Replica:
        return Replica(node, min(birth, FOUNDING_BIRTH + 1))

    with mock.patch.object(moves, "Replica", with_the_same_birth):
        yield


@contextlib.contextmanager
def ends_are_reported_before_they_are_committed() -> Hole:
    """The metadata hear that a move is over while its leader alone has the configuration that says so."""
    with mock.patch.object(RaftGroup, "is_settled", True):
        yield


@contextlib.contextmanager
def older_reports_win() -> Hole:
    """What a leader reports is taken over, even if a later configuration is known."""
    finish = state.COMMANDS["finish_move"]

    def anyway(known: Any, command: pb.FinishMove) -> CommandResult:
        found = moves.find_group(known, command.group)
        if found is not None:
            moves._put(known, found[0], replace(found[1], configuration_version=0))
        return finish(known, command)

    with mock.patch.dict(state.COMMANDS, {"finish_move": anyway}):
        yield


@contextlib.contextmanager
def lost_disks_end_no_moves() -> Hole:
    """Of a replica that came to a node which has lost its disk since, the move goes on, and so does its birth."""
    with mock.patch.object(moves, "node_lost_disk"), _nothing_is_lost():
        yield


@contextlib.contextmanager
def _nothing_is_lost() -> Hole:
    carry_out = MetadataReader.carry_out

    def forgetting(reader: MetadataReader, command: pb.Command) -> CommandResult:
        result = carry_out(reader, command)
        if command.WhichOneof("command") == "readmit_node":
            node = command.readmit_node.node
            known = reader.state.nodes[node]
            reader.state.nodes[node] = replace(known, lost_below_birth=0)
        return result

    with mock.patch.object(MetadataReader, "carry_out", forgetting):
        yield
