"""Every append is answered once, with offsets of its own, whatever happens to leadership meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.raft import Discarded, RaftOptions, Unknown
from holdfast.records.codec import Codec
from holdfast.records.joined_messages import table_of
from holdfast.records.packed_batch import pack_joined
from holdfast.records.packed_bodies import PackedBodies, packed_bodies
from holdfast.records.record_batch import MAX_RECORDS
from node.partition.api import Appended, Failed, Numbers
from node.partition.entry import batches_in
from node.partition.limits import MAX_RECORD_BYTES, PartitionLimits
from tests.unit.partition.support import START_MS, Answers, Node, read_all


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with Node(tmp_path) as node:
        yield node


def test_records_get_consecutive_offsets_and_the_leaders_time(node: Node) -> None:
    assert node.append(b"a", b"b").last == Appended(0, START_MS)
    node.now_ms += 5
    assert node.append(b"c").last == Appended(2, START_MS + 5)
    assert read_all(node.replica) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_the_calls_of_one_turn_share_an_entry_and_keep_their_order(node: Node) -> None:
    answers = Answers()
    before = node.group.last_index
    for number in range(50):
        node.replica.append([b"%d-0" % number, b"%d-1" % number], answers)
    assert answers.all == []
    node.turns()
    assert node.group.last_index == before + 1
    assert answers.offsets == list(range(0, 100, 2))
    assert [record for _, record in read_all(node.replica)][:4] == [b"0-0", b"0-1", b"1-0", b"1-1"]


def test_the_node_is_asked_for_a_flush_once_for_many_calls(node: Node) -> None:
    for _ in range(3):
        node.replica.append([b"x"], Answers())
    assert node.dirty == [node.replica]
    node.turns()
    assert node.dirty == []


@pytest.mark.parametrize("limits", [PartitionLimits(entry_bytes=1000), PartitionLimits(entry_records=10)])
def test_entries_are_bounded_and_calls_stay_whole(tmp_path: Path, limits: PartitionLimits) -> None:
    with Node(tmp_path, limits=limits) as node:
        answers = Answers()
        before = node.group.last_index
        for number in range(20):
            node.replica.append([bytes([number]) * 100] * 3, answers)
        node.turns()
        assert answers.offsets == list(range(0, 60, 3))
        assert node.group.last_index == before + 7  # three calls in an entry, the last has two
        assert all(len(batch.messages()) % 3 == 0 for batch in node.replica.read(0, 1 << 30))


def test_a_call_stays_in_one_entry_however_large(tmp_path: Path) -> None:
    with Node(tmp_path, limits=PartitionLimits(entry_bytes=1000, entry_records=10)) as node:
        before = node.group.last_index
        assert node.append(*[bytes([number]) * 400 for number in range(50)]).offsets == [0]
        assert node.group.last_index == before + 1


def test_a_call_larger_than_an_entry_may_be_is_refused(tmp_path: Path) -> None:
    with Node(tmp_path, limits=PartitionLimits(entry_bytes=1000, call_bytes=4000)) as node:
        answers = Answers()
        for records in ([b"s" * 10], [b"b" * 400] * 11, [b"b" * 400] * 10):
            node.replica.append(records, answers)
        (refused,) = [one for one in answers.all if isinstance(one, Failed)]
        assert (refused.kind, refused.certainly_not_appended) == ("too_large", True)
        node.turns()
        assert node.replica.next_offset == 11


def test_a_call_of_more_records_than_a_batch_has_is_stored_as_several_in_one_entry(node: Node) -> None:
    answers, before = Answers(), node.group.last_index
    records = [b"%d" % number for number in range(2 * MAX_RECORDS + 3)]
    for call in ([b"before"], records, [b"behind"]):
        node.replica.append(call, answers)
    node.turns()
    assert answers.offsets == [0, 1, len(records) + 1]
    entries = [batches_in(node.group.entry(index)[1]) for index in range(before + 1, node.group.last_index + 1)]
    assert [len(batches) for batches in entries] == [1, 3, 1]
    assert read_all(node.replica) == list(enumerate([b"before", *records, b"behind"]))


def test_each_call_gets_the_result_of_its_own_batch_behind_one_of_several(tmp_path: Path) -> None:
    with Node(tmp_path, limits=PartitionLimits(entry_records=1 << 20)) as node:
        before, many, unknown = node.group.last_index, Answers(), Answers()
        node.replica.append([b"x"] * (MAX_RECORDS + 1), many)
        node.replica.append([b"y"], unknown, Numbers(5, 0, 7, b"yyyy"))
        node.turns()
        assert node.group.last_index == before + 1
        assert many.offsets == [0]
        assert isinstance(unknown.last, Failed)
        assert unknown.last.kind == "producer_unknown"


def test_one_record_may_be_larger_than_the_usual_entry_but_not_than_any(node: Node) -> None:
    big = b"b" * MAX_RECORD_BYTES
    assert node.append(b"a", big, b"c").offsets == [0]
    assert read_all(node.replica) == [(0, b"a"), (1, big), (2, b"c")]
    refused = node.append(b"a", big + b"!").last
    assert isinstance(refused, Failed)
    assert (refused.kind, refused.retriable, refused.certainly_not_appended) == ("too_large", False, True)
    assert node.replica.next_offset == 3


def test_what_waits_is_bounded_and_flows_again(tmp_path: Path) -> None:
    with Node(tmp_path, limits=PartitionLimits(in_flight_bytes=1000)) as node:
        answers = Answers()
        for _ in range(12):
            node.replica.append([b"x" * 100], answers)
        assert [one.kind for one in answers.all if isinstance(one, Failed)] == ["overloaded"] * 2
        assert node.replica.in_flight_bytes == 1000
        node.turns()
        assert node.replica.in_flight_bytes == 0
        assert isinstance(node.append(b"y" * 5000).last, Appended)  # alone, even a large one passes


def test_the_groups_own_limit_is_answered_as_overload(tmp_path: Path) -> None:
    with Node(tmp_path, options=RaftOptions(max_uncommitted_bytes=1000)) as node:
        answers = Answers()
        for _ in range(4):
            node.replica.append([b"x" * 600], answers)
            node.replica.flush()
        node.turns()
        assert [type(one) for one in answers.all].count(Appended) == 1
        assert {one.kind for one in answers.all if isinstance(one, Failed)} == {"overloaded"}
        assert node.replica.in_flight_bytes == 0


def test_a_follower_names_the_leader_it_knows(node: Node) -> None:
    node.step_down()
    failed = node.append(b"x").last
    assert isinstance(failed, Failed)
    assert (failed.kind, failed.retriable, failed.leader) == ("not_leader", True, None)
    assert "no leader is known" in failed.detail


def test_what_was_not_proposed_when_leadership_went_is_certainly_not_in_the_log(node: Node) -> None:
    answers = Answers()
    node.replica.append([b"x"], answers)
    node.step_down()
    assert isinstance(answers.last, Failed)
    assert answers.last.certainly_not_appended
    node.until_leading()
    assert node.replica.next_offset == 0
    assert node.append(b"y").offsets == [0]


@pytest.mark.parametrize(
    ("outcome", "kind", "certain"),
    [(Unknown(5, 1), "unknown", False), (Discarded(5, 1), "not_leader", True)],
)
def test_raft_outcomes_become_answers_that_tell_whether_to_repeat(
    node: Node, monkeypatch: pytest.MonkeyPatch, outcome: Unknown | Discarded, kind: str, certain: bool
) -> None:
    monkeypatch.setattr(node.group, "propose", lambda data, done: done(outcome))
    answers = Answers()
    node.replica.append([b"x"], answers)
    node.replica.append([b"y"], answers)
    node.replica.flush()
    assert len(answers.all) == 2
    for one in answers.all:
        assert isinstance(one, Failed)
        assert (one.kind, one.certainly_not_appended, one.retriable) == (kind, certain, True)
    assert node.replica.in_flight_bytes == 0


def test_an_entry_whose_outcome_was_lost_is_named(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node.group, "propose", lambda data, done: done(Unknown(5, 1)))
    answers = Answers()
    node.replica.append([b"x"], answers)
    node.replica.flush()
    assert isinstance(answers.last, Failed)
    assert answers.last.entry == (5, 1)


def test_a_callback_that_raises_does_not_cost_the_others_their_answers(node: Node) -> None:
    answers = Answers()

    def broken(_: object) -> None:
        raise RuntimeError("a link's own defect")

    node.replica.append([b"x"], broken)
    node.replica.append([b"y"], answers)
    node.turns()
    assert answers.offsets == [1]


def test_a_callback_may_append_again(node: Node) -> None:
    answers = Answers()
    node.replica.append([b"first"], lambda _: node.replica.append([b"second"], answers))
    node.turns()
    assert answers.offsets == [1]


def test_appends_are_refused_while_the_disk_is_nearly_full(node: Node) -> None:
    reason = Failed("disk_full", True, "node 1 has 3 MiB left; free space")
    node.append(b"x")
    node.replica.refuse_appends(reason)
    assert node.append(b"y").last == reason
    assert read_all(node.replica) == [(0, b"x")]
    node.replica.refuse_appends(None)
    assert node.append(b"z").offsets == [1]


def test_an_empty_append_is_the_callers_mistake(node: Node) -> None:
    with pytest.raises(ValueError, match="at least one"):
        node.replica.append([], Answers())


def test_a_deleted_partition_says_so_to_all_who_wait(node: Node) -> None:
    answers = Answers()
    node.replica.append([b"x"], answers)
    node.replica.close(deleted=True)
    node.replica.append([b"y"], answers)
    assert [one.kind for one in answers.all if isinstance(one, Failed)] == ["deleted", "deleted"]


def test_a_node_that_holds_damaged_bytes_decides_like_the_others(node: Node) -> None:
    """Committed garbage is a recorded rejection: it costs an index, no offset, and nobody's life."""
    outcomes: list[object] = []
    node.append(b"a")
    node.group.propose(b"\0\x63 nonsense", outcomes.append)
    node.turns()
    assert "unknown-command" in str(outcomes)
    assert node.append(b"b").offsets == [1]
    assert read_all(node.replica) == [(0, b"a"), (1, b"b")]


BODIES = [b"price of IBM: %d" % (number % 7) for number in range(200)]


def packed(codec: Codec = Codec.NONE) -> PackedBodies:
    found = packed_bodies(pack_joined(table_of(BODIES), (b"".join(BODIES),), codec, bodies=True), 1 << 20)
    assert found is not None
    return found


@pytest.mark.parametrize("codec", list(Codec))
def test_a_packed_batch_is_stored_as_the_bodies_in_it(node: Node, codec: Codec) -> None:
    answers = Answers()
    for records in (packed(codec), packed(codec).open()):
        node.replica.append(records, answers)
        node.turns()
    assert answers.offsets == [0, 200]
    one, other = (node.group.entry(node.group.last_index - back)[1] for back in (1, 0))
    assert one == other
    (batch,) = batches_in(one)
    assert batch.are_bodies
    assert batch.records() == BODIES


def test_a_packed_batch_that_does_not_decompress_is_refused_and_takes_no_room(node: Node) -> None:
    answers = Answers()
    node.replica.append(_spoiled(packed(Codec.ZSTD)), answers)
    (refused,) = answers.all
    assert isinstance(refused, Failed)
    assert (refused.kind, refused.retriable, refused.certainly_not_appended) == ("malformed", False, True)
    assert "does not decompress" in refused.detail
    assert (node.replica.in_flight_bytes, node.dirty) == (0, [])


def test_nothing_is_opened_that_there_is_no_room_for(tmp_path: Path) -> None:
    """It may be a thousand times as large as it came: it would be there before it was refused."""
    with Node(tmp_path, limits=PartitionLimits(in_flight_bytes=packed().size + 5)) as node:
        answers = Answers()
        node.replica.append([b"in front"], answers)
        unopened = packed(Codec.ZSTD)
        node.replica.append(unopened, answers)
        assert [one.kind for one in answers.all if isinstance(one, Failed)] == ["overloaded"]
        assert unopened._opened is None
        node.turns()
        node.replica.append(unopened, answers)
        node.turns()
        assert isinstance(answers.last, Appended)


def _spoiled(good: PackedBodies) -> PackedBodies:
    good._packed = good.packed()[:-20] + bytes(20)
    return good
