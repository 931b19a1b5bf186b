"""Moves of replicas, as the metadata know them: targets, one move at a time, and what groups report of them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cluster.metadata import (
    COORDINATORS,
    MetadataMachine,
    MetadataView,
    Ok,
    PartitionRecord,
    Refusal,
    alter_log,
    cancel_moves,
    create_coordinators,
    create_log,
    delete_log,
    encode_command,
    finish_move,
    leave_node,
    moves,
    readmit_node,
    reassign,
    register_node,
    remove_node,
    set_rack,
    stall_move,
)
from cluster.metadata import metadata_pb2 as pb
from cluster.metadata.codec import decode_checkpoint, encode_checkpoint
from cluster.metadata.command_validation import command_fault
from cluster.metadata.moves import MAX_MOVES, MAX_MOVES_FROM_NODE, MAX_MOVES_TO_NODE
from cluster.raft.membership.configuration import Replica
from tests.simulation.world.disk import SimBatch


class Metadata:
    """Metadata group of one replica."""

    def __init__(self, nodes: int = 5) -> None:
        self.machine, self.index = MetadataMachine(), 1
        self.view = MetadataView(self.machine)
        for node in range(1, nodes + 1):
            self.do(register_node(node, f"h:{node}", {}, incarnation=node))

    def do(self, command: pb.Command) -> Any:
        self.index += 1
        return self.machine.apply(self.index, 1, encode_command(command), SimBatch())

    def done(self, command: pb.Command) -> None:
        result = self.do(command)
        assert isinstance(result, Ok), result

    def refused(self, command: pb.Command) -> str:
        before = encode_checkpoint(self.machine.state)
        result = self.do(command)
        assert isinstance(result, Refusal)
        assert encode_checkpoint(self.machine.state) == before
        return f"{result.code}: {result.message}"

    def log(self, partitions: int = 1, replicas: int = 3, name: str = "a") -> None:
        self.done(create_log(name, now_ms=1, partitions=partitions, replicas=replicas))

    def record(self, partition: str = "0", log: str = "a") -> PartitionRecord:
        record = self.view.partition(log, partition)
        assert record is not None
        return record

    def report(self, record: PartitionRecord, *, done: bool = True) -> pb.Command:
        """The report of the leader of a group, whose log did what was asked, or ended the move."""
        move = record.move
        assert move is not None
        voters = set(record.settled)
        if done:
            voters = (voters | ({move.add} if move.add else set())) - ({move.remove} if move.remove else set())
        return finish_move(record.group, move.id, move.version + (3 if done else 2), voters)

    def settle(self, *, most: int = 1000) -> int:
        """Let all moves be done. Returns how many there were."""
        for count in range(most):
            moving = [record for _, record in self.view.moving() if record.move is not None]
            if not moving:
                assert not list(self.view.moving())
                return count
            self.done(self.report(moving[0], done=not moving[0].move.cancel_asked))  # type: ignore[union-attr]
        raise AssertionError("the moves do not end")


def aim(metadata: Metadata, *target: int, version: int = 0, partition: str = "0") -> pb.Command:
    return reassign([(metadata.record(partition).group, version, target)])


def test_a_target_is_reached_by_one_move_after_the_other_and_the_preferred_leader_comes_first() -> None:
    metadata = Metadata()
    metadata.log()
    first = metadata.record()
    assert set(first.replicas) == {1, 2, 3}
    assert first.settled == tuple(Replica(node, 1) for node in first.replicas)
    metadata.done(aim(metadata, 5, 1, 4))
    record = metadata.record()
    assert record.preferred == 1, "it stays, until the one that is preferred is there"
    assert record.move is not None
    assert (record.move.id, record.move.version, record.move.add) == (2, 1, Replica(5, 2))
    assert record.move.remove in (Replica(2, 1), Replica(3, 1))
    assert record.replica_on(5) == Replica(5, 2)
    assert record.founders == first.replicas
    metadata.done(metadata.report(record))
    record = metadata.record()
    assert record.replicas[:2] == (5, 1)
    assert record.configuration_version == 4
    assert record.move is not None
    assert (record.move.id, record.move.version, record.move.add) == (3, 4, Replica(4, 3))
    metadata.done(metadata.report(record))
    record = metadata.record()
    assert (record.replicas, record.births, record.move, record.target) == ((5, 1, 4), (2, 1, 3), None, ())
    assert set(record.founders) == {1, 2, 3}
    assert not list(metadata.view.moving())
    metadata.done(aim(metadata, 1, 5, 4))
    record = metadata.record()
    assert (record.replicas, record.births, record.target) == ((1, 5, 4), (1, 2, 3), ()), (
        "only another preferred leader"
    )


def test_who_comes_back_to_a_node_is_another_replica() -> None:
    metadata = Metadata(4)
    metadata.log()
    metadata.done(aim(metadata, 1, 2, 4))
    metadata.settle()
    metadata.done(aim(metadata, 1, 2, 3))
    metadata.settle()
    assert metadata.record().settled == (Replica(1, 1), Replica(2, 1), Replica(3, 3))


REFUSED: dict[str, tuple[tuple[int, ...], str]] = {
    "an unknown node": ((1, 2, 9), "not-found: a/0: node 9 is not registered; registered: 1, 2, 3, 4, 5"),
    "a node twice": ((1, 2, 2), "invalid-argument: a/0: a node is named twice"),
    "nobody": ((), "invalid-argument: a/0 would have no replica"),
    "too many": ((1, 2, 3, 4, 5, 6, 7, 8), "invalid-argument: a/0: 8 replicas, and a partition has at most 7"),
    "another number": ((1, 2), "not-allowed: a/0: log a has 3 replicas, and 2 nodes are named"),
}


@pytest.mark.parametrize(("target", "says"), REFUSED.values(), ids=REFUSED)
def test_an_impossible_target_is_refused_with_all_that_is_asked_for_beside_it(target: Any, says: str) -> None:
    metadata = Metadata()
    metadata.log(partitions=2)
    other = (metadata.record("1").group, 0, (1, 2, 4))
    assert says in metadata.refused(reassign([other, (metadata.record().group, 0, target)]))


def test_a_node_that_leaves_or_has_left_gets_no_replica() -> None:
    metadata = Metadata()
    metadata.log()
    metadata.done(leave_node(4))
    assert "not-allowed: a/0: node 4 leaves the cluster; choose another one" in metadata.refused(aim(metadata, 1, 2, 4))
    metadata.done(remove_node(4))
    assert "not-found: a/0: node 4 is not registered; registered: 1, 2, 3, 5" in metadata.refused(
        aim(metadata, 1, 2, 4)
    )


def test_what_was_decided_for_other_replicas_is_refused() -> None:
    metadata = Metadata()
    metadata.log()
    metadata.done(aim(metadata, 1, 2, 4, version=1))
    metadata.settle()
    assert "its replicas have changed since this was decided (configuration 1, now 4)" in metadata.refused(
        aim(metadata, 1, 2, 5, version=1)
    )
    assert "a/0 is named twice" in metadata.refused(reassign([(metadata.record().group, 0, (1, 2, 5))] * 2))
    assert "group 99 is of no log" in metadata.refused(reassign([(99, 0, (1, 2, 5))]))
    assert "name a partition" in metadata.refused(reassign([]))
    assert "group 99 is of no log" in metadata.refused(cancel_moves([99]))


def test_slots_are_for_some_moves_and_the_next_begin_as_these_end() -> None:
    metadata = Metadata(7)
    metadata.log(partitions=200, replicas=1)
    items = [(one.group, 0, (one.replicas[0] % 7 + 1,)) for one in metadata.view.logs["a"].partitions]
    metadata.done(reassign(items))
    most = 0
    for _ in range(200):
        moves = [record for _, record in metadata.view.moving() if record.move is not None]
        to = [record.move.add.node for record in moves]  # type: ignore[union-attr]
        gone = [record.move.remove.node for record in moves]  # type: ignore[union-attr]
        most = max(most, len(moves))
        assert len(moves) <= MAX_MOVES
        assert max(map(to.count, to)) <= MAX_MOVES_TO_NODE
        assert max(map(gone.count, gone)) <= MAX_MOVES_FROM_NODE
        metadata.done(metadata.report(moves[-1]))
    assert most == 7 * MAX_MOVES_TO_NODE
    assert not list(metadata.view.moving())


def test_a_command_looks_at_the_moves_that_may_begin_however_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every node applies it, and nothing else happens there meanwhile: a plan has up to 20,000 partitions."""
    metadata = Metadata(7)
    metadata.log(partitions=200, replicas=1)
    every = metadata.view.logs["a"].partitions
    metadata.done(reassign([(one.group, 0, (one.replicas[0] % 7 + 1,)) for one in every]))
    looked: list[int] = []
    look = moves.moving_record
    monkeypatch.setattr(moves, "moving_record", lambda state, group: looked.append(group) or look(state, group))
    metadata.done(set_rack(1, "a"))
    assert not looked
    under_way = next(record for _, record in metadata.view.moving() if record.move is not None)
    metadata.done(metadata.report(under_way))
    assert 1 <= len(looked) <= 5
    restored = decode_checkpoint(encode_checkpoint(metadata.machine.state))
    assert restored.queued == metadata.machine.state.queued
    assert restored.under_way == metadata.machine.state.under_way


def test_groups_that_do_not_move_are_looked_up_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = Metadata()
    metadata.log(partitions=50)
    searched: list[int] = []
    monkeypatch.setattr(moves, "find_group", lambda _, group: searched.append(group))
    before = metadata.view.logs["a"]
    metadata.done(cancel_moves([one.group for one in before.partitions]))
    assert metadata.view.logs["a"] == before
    assert not searched


def test_a_stalled_move_leaves_its_slot() -> None:
    metadata = Metadata(2)
    metadata.log(partitions=20, replicas=1)
    on_one = [one for one in metadata.view.logs["a"].partitions if one.replicas == (1,)]
    metadata.done(reassign([(one.group, 0, (2,)) for one in on_one]))
    moves = [record for _, record in metadata.view.moving() if record.move is not None]
    assert len(moves) == MAX_MOVES_TO_NODE
    assert moves[0].move is not None
    metadata.done(stall_move(moves[0].group, 99))
    assert sum(record.move is not None for _, record in metadata.view.moving()) == MAX_MOVES_TO_NODE
    metadata.done(stall_move(moves[0].group, moves[0].move.id))
    assert sum(record.move is not None for _, record in metadata.view.moving()) == MAX_MOVES_TO_NODE + 1
    metadata.settle()


def test_a_stalled_move_that_goes_on_takes_its_slot_back() -> None:
    metadata = Metadata(2)
    metadata.log(partitions=20, replicas=1)
    on_one = [one for one in metadata.view.logs["a"].partitions if one.replicas == (1,)]
    metadata.done(reassign([(one.group, 0, (2,)) for one in on_one]))
    first, second, *_ = [record for _, record in metadata.view.moving() if record.move is not None]
    assert first.move is not None
    metadata.done(stall_move(first.group, first.move.id))
    assert len(list(metadata.view.under_way())) == MAX_MOVES_TO_NODE + 1
    metadata.done(stall_move(first.group, first.move.id, goes_on=True))
    metadata.done(metadata.report(second))
    assert len(list(metadata.view.under_way())) == MAX_MOVES_TO_NODE, "its slot was given to another move"
    metadata.settle()


def test_a_report_that_is_lost_repeated_or_late_is_harmless() -> None:
    metadata = Metadata()
    metadata.log()
    metadata.done(aim(metadata, 1, 2, 4))
    first = metadata.report(metadata.record())
    metadata.done(first)
    settled = metadata.record()
    metadata.done(first)
    assert metadata.record() == settled
    metadata.done(aim(metadata, 1, 2, 5))
    under_way = metadata.record()
    metadata.done(first)
    assert metadata.record() == under_way, "of the move before"
    second = metadata.report(under_way)
    metadata.done(second)
    again = metadata.record()
    metadata.done(first)
    metadata.done(finish_move(under_way.group, 3, 5, [Replica(1, 1), Replica(2, 1), Replica(4, 2)]))
    assert metadata.record() == again, "a higher version beats a lower one"
    metadata.done(delete_log("a"))
    metadata.done(second)


def test_a_report_of_a_later_configuration_counts_even_of_a_move_that_is_over() -> None:
    metadata = Metadata()
    metadata.log()
    metadata.done(aim(metadata, 1, 2, 4))
    move = metadata.record()
    metadata.done(metadata.report(move, done=False))
    began_anew = metadata.record()
    assert began_anew.configuration_version == 3
    assert began_anew.move is not None, "the target is there still"
    assert began_anew.move.add == Replica(4, 3)
    metadata.done(finish_move(move.group, 2, 4, [Replica(1, 1), Replica(2, 1), Replica(4, 2)]))
    record = metadata.record()
    assert (record.settled, record.configuration_version) == ((Replica(1, 1), Replica(2, 1), Replica(4, 2)), 4)
    assert (record.move, record.target) == (None, ())


def test_a_cancel_ends_the_target_and_the_group_says_what_became_of_the_move() -> None:
    metadata = Metadata()
    metadata.log(partitions=2)
    before = set(metadata.record("1").replicas)
    metadata.done(reassign([(metadata.record(name).group, 0, (1, 2, 4)) for name in ("0", "1")]))
    metadata.done(cancel_moves())
    too_late, cancelled = metadata.record("0"), metadata.record("1")
    assert all(one.move is not None and one.move.cancel_asked and not one.target for one in (too_late, cancelled))
    metadata.done(metadata.report(too_late))
    metadata.done(metadata.report(cancelled, done=False))
    assert set(metadata.record("0").replicas) == {1, 2, 4}
    assert set(metadata.record("1").replicas) == before
    assert not list(metadata.view.moving())
    metadata.done(cancel_moves())


def test_another_target_cancels_a_move_that_leads_elsewhere_only() -> None:
    metadata = Metadata()
    metadata.log()
    metadata.done(aim(metadata, 1, 4, 5))
    move = metadata.record().move
    assert move is not None
    metadata.done(aim(metadata, 4, 1, 5))
    assert metadata.record().move == move
    metadata.done(aim(metadata, 1, 2, 5))
    changed = metadata.record().move
    assert changed is not None
    assert changed.cancel_asked
    metadata.settle()
    assert metadata.record().replicas == (1, 2, 5)


def test_a_log_that_is_deleted_ends_its_moves_and_leaves_its_slots() -> None:
    metadata = Metadata(2)
    for name in ("a", "b"):
        metadata.log(partitions=8, replicas=1, name=name)
        on_one = [one for one in metadata.view.logs[name].partitions if one.replicas == (1,)]
        metadata.done(reassign([(one.group, 0, (2,)) for one in on_one]))
    assert {log.name for log, record in metadata.view.moving() if record.move is not None} == {"a"}
    metadata.done(delete_log("a"))
    assert {log.name for log, record in metadata.view.moving() if record.move is not None} == {"b"}


def test_a_node_that_lost_its_disk_gets_another_replica_and_its_births_are_noted() -> None:
    metadata = Metadata()
    metadata.log()
    metadata.done(aim(metadata, 1, 2, 4))
    assert metadata.view.lost_below_birth(4) == 0
    metadata.done(readmit_node(4, 77))
    record = metadata.record()
    assert record.move is not None
    assert record.move.cancel_asked
    assert record.target == (1, 2, 4)
    assert metadata.view.lost_below_birth(4) == 3
    metadata.settle()
    assert metadata.record().settled[-1] == Replica(4, 3)


def test_a_log_gets_another_number_of_replicas_and_coordinators_too() -> None:
    metadata = Metadata()
    metadata.log(partitions=6, replicas=1)
    metadata.done(create_coordinators(now_ms=1, nodes=1))
    assert "6 nodes" in metadata.refused(alter_log("a", replicas=6))
    assert "must be 1 to 7" in metadata.refused(alter_log("a", replicas=8))
    assert "must be 1 to 7" in metadata.refused(alter_log("a", replicas=0))
    for replicas in (0, -1):
        assert "must be 1 to 7" in metadata.refused(alter_log("a", replicas=replicas, partitions=9)), "none is placed"
    assert "stays as it was made" in metadata.refused(alter_log(COORDINATORS, replicas=3, partitions=9))
    for replicas in (3, 2):
        metadata.done(alter_log("a", replicas=replicas))
        metadata.done(alter_log(COORDINATORS, replicas=replicas))
        metadata.settle()
        held = [node for log in metadata.view.logs.values() for one in log.partitions for node in one.replicas]
        assert all(len(one.replicas) == replicas for log in metadata.view.logs.values() for one in log.partitions)
        counts = [held.count(node) for node in range(1, 6)]
        assert max(counts) - min(counts) <= 2
    metadata.done(alter_log("a", partitions=8))
    assert len(metadata.record("7").replicas) == 2
    metadata.done(alter_log(COORDINATORS, replicas=1, away=[5]))


def test_a_log_that_shrinks_keeps_the_replicas_that_are_there() -> None:
    metadata = Metadata()
    metadata.log(partitions=10, replicas=3)
    metadata.done(alter_log("a", replicas=2, away=[1]))
    metadata.settle()
    assert all(1 not in one.replicas for one in metadata.view.logs["a"].partitions), "not even where it was preferred"
    metadata.done(alter_log("a", replicas=3, away=[1, 2]))
    coming = [set(one.target) - set(one.replicas) for one in metadata.view.logs["a"].partitions]
    assert set().union(*coming) <= {3, 4, 5}
    metadata.settle()
    metadata.done(alter_log("a", replicas=1, away=[1, 2, 3, 4, 5]))
    assert all(len(one.wanted) == 1 for one in metadata.view.logs["a"].partitions), "some node has to be chosen"


def test_a_log_that_shrinks_leaves_the_nodes_that_leave() -> None:
    metadata = Metadata()
    metadata.log(partitions=10, replicas=3)
    metadata.done(leave_node(2))
    metadata.done(alter_log("a", replicas=2))
    assert all(2 not in one.wanted[1:] for one in metadata.view.logs["a"].partitions)


def test_the_nodes_that_are_named_as_away_are_bounded() -> None:
    metadata = Metadata()
    metadata.log()
    assert "AlterLog.away are 65, 64 at most" in str(command_fault(alter_log("a", replicas=2, away=range(1, 66))))
    assert command_fault(alter_log("a", replicas=2, away=range(1, 65))) is None


def test_nothing_is_written_of_moves_in_a_cluster_that_never_had_one() -> None:
    metadata = Metadata()
    metadata.log(partitions=3)
    metadata.done(readmit_node(4, 77))
    written = pb.Checkpoint.FromString(encode_checkpoint(metadata.machine.state, 14))
    names = {field.name for log in written.logs for one in log.partitions for field, _ in one.ListFields()}
    assert names == {"group", "replicas"}
    assert not written.next_birth
    assert not any(node.lost_below_birth for node in written.nodes)


@pytest.mark.parametrize("seed", range(20))
def test_the_same_commands_give_the_same_state_and_versions_and_births_only_rise(seed: int) -> None:
    randomness = random.Random(seed)
    metadata, other = Metadata(6), Metadata(6)
    both = (metadata, other)
    for one in both:
        one.log(partitions=12, replicas=3)
    reports: list[pb.Command] = []
    versions: dict[int, int] = {}
    births: set[Replica] = set()
    for _ in range(300):
        command = _some_command(randomness, metadata, reports)
        answers = [one.do(command) for one in both]
        assert answers[0] == answers[1]
        assert encode_checkpoint(metadata.machine.state) == encode_checkpoint(other.machine.state)
        other.machine.restore(other.index, encode_checkpoint(other.machine.state))
        for record in metadata.view.logs["a"].partitions:
            assert record.configuration_version >= versions.get(record.group, 1)
            versions[record.group] = record.configuration_version
            assert len(set(record.replicas)) == len(record.replicas) >= 1
            if record.move is not None and record.move.add is not None:
                births.add(record.move.add)
    assert len({replica.birth for replica in births}) == len(births), "no birth is drawn twice"
    for one in both:
        one.settle()
    state = metadata.machine.state
    assert decode_checkpoint(encode_checkpoint(state)) == state


def _some_command(randomness: random.Random, metadata: Metadata, reports: list[pb.Command]) -> pb.Command:
    records = metadata.view.logs["a"].partitions
    moving = [record for _, record in metadata.view.moving() if record.move is not None]
    kind = randomness.choice(
        ["aim", "aim", "report", "report", "report", "again", "cancel", "alter", "stall", "readmit"]
    )
    if kind == "report" and moving:
        reports.append(metadata.report(randomness.choice(moving), done=randomness.random() < 0.7))
        return reports[-1]
    if kind == "again" and reports:
        return randomness.choice(reports)
    if kind == "cancel":
        return cancel_moves([randomness.choice(records).group])
    if kind == "alter":
        return alter_log("a", replicas=randomness.randint(1, 5))
    if kind == "stall" and moving:
        stalled = randomness.choice(moving)
        goes_on = randomness.random() < 0.3
        return stall_move(stalled.group, stalled.move.id if stalled.move else 0, goes_on=goes_on)
    if kind == "readmit":
        return readmit_node(randomness.randint(1, 6), randomness.getrandbits(40) + 1)
    some = randomness.sample(records, 3)
    count = metadata.view.logs["a"].replicas
    return reassign([(one.group, randomness.choice([0, one.configuration_version, 1]),
                      tuple(randomness.sample(range(1, 7), count))) for one in some])  # fmt: skip
