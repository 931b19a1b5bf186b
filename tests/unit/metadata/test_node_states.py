"""Nodes are announced, join, leave and are removed: the commands on the metadata."""

from __future__ import annotations

import pytest

from cluster.metadata import (
    MetadataMachine,
    Ok,
    Refusal,
    add_node,
    create_log,
    delete_log,
    encode_command,
    leave_node,
    register_node,
    remove_node,
    stay_node,
)
from cluster.metadata.codec import decode_checkpoint, encode_checkpoint
from cluster.metadata.metadata_pb2 import Command
from cluster.metadata.nodes import node_states
from cluster.metadata.types import CommandRefused, CommandResult
from cluster.raft.membership.configuration import FOUNDING_BIRTH
from cluster.versions import VersionRange

VERSIONS = VersionRange(14, 15)


class _Batch:
    def put(self, key: bytes, value: bytes) -> None:
        raise AssertionError("the metadata write nothing")

    delete = delete_range = put


class Metadata:
    def __init__(self, founders: int = 3, versions: VersionRange = VERSIONS) -> None:
        self.machine = MetadataMachine()
        self._index = 1
        for node in range(1, founders + 1):
            self.do(register_node(node, f"h{node}:1", {"default": f"h{node}:2"}, node * 10, versions=versions))

    def ask(self, command: Command) -> CommandResult:
        self._index += 1
        result: CommandResult = self.machine.apply(self._index, 1, encode_command(command), _Batch())  # type: ignore[arg-type]
        return result

    def do(self, command: Command) -> None:
        result = self.ask(command)
        assert isinstance(result, Ok), result

    def refused(self, command: Command) -> str:
        result = self.ask(command)
        assert isinstance(result, Refusal), result
        return result.message

    def join(self, node: int) -> None:
        self.do(joining(node))

    def remove(self, node: int) -> None:
        self.do(leave_node(node))
        self.do(remove_node(node))

    @property
    def nodes(self) -> list[int]:
        return sorted(self.machine.state.nodes)


def joining(node: int, incarnation: int = 0) -> Command:
    return register_node(node, f"h{node}:1", {}, incarnation or node * 10, versions=VERSIONS, joins=True)


def test_who_is_announced_may_join_and_gets_a_birth() -> None:
    metadata = Metadata()
    assert "holdfast node add 4" in metadata.refused(joining(4))
    metadata.do(add_node(5))
    metadata.do(add_node(4))
    metadata.do(add_node(4))  # repeated
    first = metadata.machine.state.next_birth
    metadata.join(4)
    metadata.join(5)
    metadata.join(5)  # a restart
    births = {node: record.birth for node, record in metadata.machine.state.nodes.items()}
    assert births == {1: FOUNDING_BIRTH, 2: FOUNDING_BIRTH, 3: FOUNDING_BIRTH, 4: first, 5: first + 1}
    assert metadata.machine.state.next_birth == first + 2
    assert not metadata.machine.state.announced


def test_what_is_taken_back_is_as_if_never_said() -> None:
    metadata = Metadata()
    metadata.do(add_node(4))
    metadata.do(stay_node(4))
    assert "not announced" in metadata.refused(joining(4))
    metadata.do(leave_node(3))
    metadata.do(stay_node(3))
    assert metadata.machine.state.nodes[3].state == "active"
    assert "is not leaving" in metadata.refused(remove_node(3))


def test_what_a_removal_would_be_refused_for_is_known_without_it() -> None:
    metadata = Metadata(3)
    metadata.do(create_log("a", now_ms=1, partitions=1, replicas=3))
    with pytest.raises(CommandRefused) as refused:
        node_states.leaving(metadata.machine.state, 3)
    assert refused.value.rejected.message == metadata.refused(leave_node(3))
    metadata.do(delete_log("a"))
    assert node_states.leaving(metadata.machine.state, 3).state == "leaving"
    assert metadata.machine.state.nodes[3].state == "active"


def test_new_replicas_are_not_placed_on_who_leaves() -> None:
    metadata = Metadata(5)
    metadata.do(leave_node(2))
    metadata.do(create_log("a", now_ms=1, partitions=12, replicas=3))
    placed = {node for one in metadata.machine.state.logs["a"].partitions for node in one.replicas}
    assert placed == {1, 3, 4, 5}
    assert "registered: 1, 3, 4, 5" in metadata.refused(create_log("b", now_ms=1, partitions=1, replicas=5))


def test_who_keeps_replicas_is_not_removed() -> None:
    metadata = Metadata(4)
    metadata.do(create_log("a", now_ms=1, partitions=4, replicas=3))
    metadata.do(leave_node(4))
    assert "still keeps 3 replica(s)" in metadata.refused(remove_node(4))
    assert 4 in metadata.nodes


def test_a_removed_number_stays_taken() -> None:
    metadata = Metadata(4)
    metadata.remove(4)
    metadata.do(remove_node(4))  # repeated
    assert metadata.nodes == [1, 2, 3]
    assert metadata.machine.state.tombstones == {4: (40,)}
    for command in (add_node(4), joining(4), joining(4, incarnation=99)):
        assert "its number is not used again. Give the machine another node.id, such as 5" in metadata.refused(command)
    assert "removed already" in metadata.refused(leave_node(4))


def test_refusals_of_leaving() -> None:
    metadata = Metadata(3)
    metadata.do(create_log("trades", now_ms=1, partitions=1, replicas=3))
    assert "trades has 3 replicas, and 3 nodes would be 2; add a node first" in metadata.refused(leave_node(2))
    assert "node 9 is not registered; registered: 1, 2, 3" in metadata.refused(leave_node(9))
    metadata.do(add_node(9))
    assert "holdfast node cancel 9" in metadata.refused(leave_node(9))
    alone = Metadata(1)
    assert "the last one that stays" in alone.refused(leave_node(1))


def test_the_last_two_do_not_leave_together() -> None:
    metadata = Metadata(2)
    metadata.do(leave_node(1))
    assert "the last one that stays" in metadata.refused(leave_node(2))


@pytest.mark.parametrize(("version", "most"), [(14, 7), (15, 31)])
def test_a_cluster_has_as_many_nodes_as_its_version_allows(version: int, most: int) -> None:
    metadata = Metadata(most, VersionRange(14, version))
    command = register_node(most + 1, "h:1", {}, 5, versions=VERSIONS)
    assert f"at most {most} nodes" in metadata.refused(command)
    assert f"at most {node_states.MAX_NODES}" in Metadata(31).refused(add_node(32))


def test_so_many_nodes_were_removed_that_no_more_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_states, "MAX_TOMBSTONES", 1)
    metadata = Metadata(3)
    metadata.remove(3)
    assert "it takes no more" in metadata.refused(add_node(4))


def test_a_checkpoint_keeps_it_all() -> None:
    metadata = Metadata(4)
    metadata.do(add_node(7))
    metadata.do(add_node(6))
    metadata.join(7)
    metadata.remove(4)
    metadata.do(leave_node(2))
    state = metadata.machine.state
    encoded = encode_checkpoint(state, 15)
    restored = decode_checkpoint(encoded)
    assert (restored.nodes, restored.tombstones) == (state.nodes, state.tombstones)
    assert list(restored.announced) == [6]
    assert encode_checkpoint(restored, 15) == encoded
