"""Mutations of what keeps two releases apart and together. What they are for: catalogue.py."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from cluster.features import Features
from cluster.metadata import MetadataMachine, Ok, Refusal
from cluster.metadata import metadata_pb2 as pb
from cluster.metadata import state as metadata_state
from cluster.metadata.state import MetadataState
from cluster.raft import DiskBatch, UnknownEntry
from node.partition.state_machine import PartitionMachine
from node.storage.data_versions import DataVersions
from tests.simulation.mixed.machines import LaterPartition
from tests.simulation.mixed.node import MixedNode


@contextlib.contextmanager
def a_feature_is_asked_in_apply() -> Iterator[None]:
    """Replicas hear of an activation at different entries."""
    apply = LaterPartition.apply

    def asking(machine: LaterPartition, index: int, entry: bytes) -> Any:
        machine.notes += machine.may_use("notes")
        return apply(machine, index, entry)

    with mock.patch.object(LaterPartition, "apply", asking):
        yield


@contextlib.contextmanager
def the_unknown_is_refused_silently() -> Iterator[None]:
    """A program goes on after a command that others carry out."""
    of_metadata, of_partition = MetadataMachine.apply, PartitionMachine.apply

    def metadata(machine: MetadataMachine, index: int, term: int, data: bytes, batch: DiskBatch) -> Any:
        try:
            return of_metadata(machine, index, term, data, batch)
        except UnknownEntry as error:
            return Refusal("invalid-argument", str(error))

    def partition(machine: PartitionMachine, index: int, entry: bytes) -> Any:
        try:
            return of_partition(machine, index, entry)
        except UnknownEntry as error:
            return machine._reject(index, "unknown", str(error))

    with (
        mock.patch.object(MetadataMachine, "apply", metadata),
        mock.patch.object(PartitionMachine, "apply", partition),
    ):
        yield


@contextlib.contextmanager
def features_are_used_before_their_activation() -> Iterator[None]:
    """A program uses each feature that it knows."""
    with mock.patch.object(Features, "active", lambda ours, feature: ours.known.newest > ours.known.oldest):
        yield


@contextlib.contextmanager
def activated_without_all_nodes() -> Iterator[None]:
    """A version is activated whoever is there."""

    def activate(state: MetadataState, command: pb.ActivateVersion) -> Ok:
        state.active_version = max(state.active_version, command.version)
        return Ok()

    with mock.patch.dict(metadata_state.COMMANDS, {"activate_version": activate}):
        yield


@contextlib.contextmanager
def data_are_opened_whatever_their_version() -> Iterator[None]:
    """A node goes back to the earlier program after the later version was active."""
    with mock.patch.object(DataVersions, "require", return_value=None):
        yield


@contextlib.contextmanager
def peers_do_not_tell_what_is_active() -> Iterator[None]:
    """A node hears of the active version from the metadata alone, after it was sent what was made with it."""
    arrive = MixedNode.arrive

    def deaf(node: MixedNode, sender: int, frame: tuple[bytes, ...]) -> None:
        rise, node.features.rise = node.features.rise, lambda version: None  # type: ignore[method-assign]
        try:
            arrive(node, sender, frame)
        finally:
            node.features.rise = rise  # type: ignore[method-assign]

    with mock.patch.object(MixedNode, "arrive", deaf):
        yield
