"""What the cluster knows of the data that a node comes with."""

from __future__ import annotations

import pytest

from cluster.metadata import MetadataMachine, MetadataView, Ok, Refusal, create_log, readmit_node, register_node
from cluster.metadata.metadata_pb2 import Command
from cluster.metadata.state_machine import encode_command
from cluster.stale_copy_detection import DirectoryStart
from tests.simulation.world.disk import SimBatch


class Cluster:
    def __init__(self) -> None:
        self.machine = MetadataMachine()
        self.view = MetadataView(self.machine)
        self._index = 1
        for node in (1, 2, 3):
            assert self.do(register_node(node, f"h:{node}", {"default": f"h:{node}0"}, 100 + node)) == Ok()

    def do(self, command: Command) -> Ok | Refusal:
        self._index += 1
        return self.machine.apply(self._index, 1, encode_command(command), SimBatch())


def test_a_node_is_known_by_its_data() -> None:
    cluster = Cluster()
    assert cluster.view.incarnation(3) == 103
    refused = cluster.do(register_node(3, "h:3", {}, 999))
    assert isinstance(refused, Refusal)
    assert refused.code == "not-allowed"
    assert "readmit 3" in refused.message
    assert cluster.view.incarnation(3) == 103


def test_it_may_change_its_addresses() -> None:
    cluster = Cluster()
    assert cluster.do(register_node(3, "elsewhere:1", {"default": "elsewhere:2"}, 103)) == Ok()
    assert cluster.view.listener_address(3, "default") == "elsewhere:2"


def test_readmitted_it_may_have_lost_what_it_knew_of_every_group_until_then() -> None:
    cluster = Cluster()
    cluster.do(create_log("old", now_ms=1, partitions=4))
    assert cluster.view.lost_below_group(3) == 0
    assert cluster.do(readmit_node(3, 999)) == Ok()
    cluster.do(create_log("new", now_ms=1, partitions=2))
    bound = cluster.view.lost_below_group(3)
    assert {p.group < bound for p in cluster.view.logs["old"].partitions} == {True}
    assert {p.group < bound for p in cluster.view.logs["new"].partitions} == {False}
    assert cluster.do(register_node(3, "h:3", {}, 999)) == Ok()
    assert isinstance(cluster.do(register_node(3, "h:3", {}, 103)), Refusal), "its old data are not welcome any more"


def test_data_that_were_given_up_are_never_let_in_again() -> None:
    """A disk that comes back after another took its place does not know what the node promised meanwhile, and does not
    look empty either."""
    cluster = Cluster()
    cluster.do(readmit_node(3, 999))
    refused = cluster.do(readmit_node(3, 103))
    assert isinstance(refused, Refusal)
    assert refused.code == "not-allowed"
    assert "empty data_dir" in refused.message
    assert cluster.view.incarnation(3) == 999
    cluster.machine.restore(9, cluster.machine.checkpoint())
    cluster.do(readmit_node(3, 1000))
    assert {type(cluster.do(readmit_node(3, old))) for old in (103, 999)} == {Refusal}
    assert cluster.view.incarnation(3) == 1000


def test_the_latest_start_is_remembered_and_what_does_not_go_on_from_it_is_refused() -> None:
    cluster = Cluster()

    def come(incarnation: int, *marks: int) -> Ok | Refusal:
        return cluster.do(register_node(3, "h:3", {}, incarnation, DirectoryStart(len(marks), marks)))

    assert come(103, 5, 6) == Ok()
    assert come(103, 5, 6) == Ok()
    assert come(103, 5, 6, 7) == Ok()
    for copy in ((5, 6), (5, 6, 8), (5, 6, 8, 9)):
        refused = come(103, *copy)
        assert isinstance(refused, Refusal)
        assert refused.code == "not-allowed"
        assert "latest of its data" in refused.message
    assert cluster.view.start(3) == (3, 7)
    cluster.machine.restore(9, cluster.machine.checkpoint())
    assert cluster.view.start(3) == (3, 7)


def test_an_empty_directory_counts_its_starts_anew() -> None:
    cluster = Cluster()
    assert cluster.do(register_node(3, "h:3", {}, 103, DirectoryStart(3, (5, 6, 7)))) == Ok()
    assert cluster.do(readmit_node(3, 999)) == Ok()
    assert cluster.view.start(3) == (0, 0)
    assert cluster.do(register_node(3, "h:3", {}, 999, DirectoryStart(1, (8,)))) == Ok()


def test_readmitting_twice_is_readmitting_once() -> None:
    cluster = Cluster()
    cluster.do(readmit_node(3, 999))
    cluster.do(create_log("later", now_ms=1))
    before = cluster.view.lost_below_group(3)
    assert cluster.do(readmit_node(3, 999)) == Ok()
    assert cluster.view.lost_below_group(3) == before
    assert cluster.machine.state.nodes[3].readmissions == 1


@pytest.mark.parametrize(("node", "incarnation", "code"), [(9, 1, "not-found"), (3, 0, "invalid-argument")])
def test_nonsense_is_refused(node: int, incarnation: int, code: str) -> None:
    refused = Cluster().do(readmit_node(node, incarnation))
    assert isinstance(refused, Refusal)
    assert refused.code == code


def test_it_survives_in_the_checkpoint() -> None:
    cluster = Cluster()
    cluster.do(create_log("l", now_ms=1))
    cluster.do(readmit_node(3, 999))
    again = MetadataMachine()
    again.restore(9, cluster.machine.checkpoint())
    assert again.state.nodes == cluster.machine.state.nodes
    assert again.checkpoint() == cluster.machine.checkpoint()
