"""Every append is answered once, with offsets of its own, whatever happens to leadership meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.raft import Committed, Discarded, RaftOptions, Unknown
from holdfast.amqp import Message, decode_message, encode_message, symbol
from holdfast.records import record_batch
from holdfast.records.codec import Codec
from holdfast.records.decompression_limits import MAX_UNCOMPRESSED_BYTES
from holdfast.records.record_batch import RecordBatch, read_batch, with_heads
from node.partition import appender
from node.partition.api import Appended, Failed
from node.partition.limits import MAX_RECORD_BYTES, PartitionLimits
from node.partition.raft_entry import batches_in
from tests.batches import batch_of, numbered, of_bodies, promising, with_content, with_head
from tests.unit.partition.support import START_MS, Answers, PartitionNode, read_all


@pytest.fixture
def node(tmp_path: Path) -> Iterator[PartitionNode]:
    with PartitionNode(tmp_path) as node:
        yield node


def test_records_get_consecutive_offsets_and_the_leaders_time(node: PartitionNode) -> None:
    assert node.append(b"a", b"b").last == Appended(0, START_MS)
    node.now_ms += 5
    assert node.append(b"c").last == Appended(2, START_MS + 5)
    assert read_all(node.replica) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_the_calls_of_one_turn_share_an_entry_and_keep_their_order(node: PartitionNode) -> None:
    answers = Answers()
    before = node.group.last_index
    for number in range(50):
        node.replica.append(batch_of([b"%d-0" % number, b"%d-1" % number]), answers)
    assert answers.all == []
    node.turns()
    assert node.group.last_index == before + 1
    assert answers.offsets == list(range(0, 100, 2))
    assert [record for _, record in read_all(node.replica)][:4] == [b"0-0", b"0-1", b"1-0", b"1-1"]


def test_the_node_is_asked_for_a_flush_once_for_many_calls(node: PartitionNode) -> None:
    for _ in range(3):
        node.replica.append(batch_of([b"x"]), Answers())
    assert node.dirty == [node.replica]
    node.turns()
    assert node.dirty == []


def test_entries_are_bounded_and_batches_stay_whole(tmp_path: Path) -> None:
    with PartitionNode(tmp_path, limits=PartitionLimits(entry_bytes=1200)) as node:
        answers = Answers()
        before = node.group.last_index
        for number in range(20):
            node.replica.append(batch_of([bytes([number]) * 100] * 3), answers)
        node.turns()
        assert answers.offsets == list(range(0, 60, 3))
        assert node.group.last_index == before + 7  # three calls in an entry, the last has two
        assert all(len(batch.messages()) % 3 == 0 for batch in node.replica.read(0, 1 << 30))


def test_a_call_stays_in_one_entry_however_large(tmp_path: Path) -> None:
    with PartitionNode(tmp_path, limits=PartitionLimits(entry_bytes=1000)) as node:
        before = node.group.last_index
        assert node.append(*[bytes([number]) * 400 for number in range(50)]).offsets == [0]
        assert node.group.last_index == before + 1


def test_a_call_larger_than_an_entry_may_be_is_refused(tmp_path: Path) -> None:
    with PartitionNode(tmp_path, limits=PartitionLimits(entry_bytes=1000, call_bytes=4200)) as node:
        answers = Answers()
        for records in ([b"s" * 10], [b"b" * 400] * 11, [b"b" * 400] * 10):
            node.replica.append(batch_of(records), answers)
        (refused,) = [one for one in answers.all if isinstance(one, Failed)]
        assert (refused.kind, refused.certainly_not_appended) == ("too_large", True)
        node.turns()
        assert node.replica.next_offset == 11


def test_each_call_gets_the_result_of_its_own_batch(node: PartitionNode) -> None:
    before, first, unknown, last = node.group.last_index, Answers(), Answers(), Answers()
    node.replica.append(batch_of([b"x"] * 3), first)
    node.replica.append(numbered([b"y"], 5, 0, 7), unknown)
    node.replica.append(batch_of([b"z"]), last)
    node.turns()
    assert node.group.last_index == before + 1
    assert (first.offsets, last.offsets) == ([0], [3])
    assert isinstance(unknown.last, Failed)
    assert unknown.last.kind == "producer_unknown"


def test_one_record_may_be_larger_than_the_usual_entry_but_not_than_any(node: PartitionNode) -> None:
    big = b"b" * MAX_RECORD_BYTES
    assert node.append(b"a", big, b"c").offsets == [0]
    assert read_all(node.replica) == [(0, b"a"), (1, big), (2, b"c")]
    refused = node.append(b"a", big + b"!").last
    assert isinstance(refused, Failed)
    assert (refused.kind, refused.retriable, refused.certainly_not_appended) == ("too_large", False, True)
    assert node.replica.next_offset == 3


def test_what_waits_is_bounded_and_flows_again(tmp_path: Path) -> None:
    with PartitionNode(tmp_path, limits=PartitionLimits(in_flight_bytes=10 * batch_of([b"x" * 100]).size)) as node:
        answers = Answers()
        for _ in range(12):
            node.replica.append(batch_of([b"x" * 100]), answers)
        assert [one.kind for one in answers.all if isinstance(one, Failed)] == ["overloaded"] * 2
        assert node.replica.in_flight_bytes == node.replica.limits.in_flight_bytes
        node.turns()
        assert node.replica.in_flight_bytes == 0
        assert isinstance(node.append(b"y" * 5000).last, Appended)  # alone, even a large one passes


def test_the_groups_own_limit_is_answered_as_overload(tmp_path: Path) -> None:
    with PartitionNode(tmp_path, options=RaftOptions(max_uncommitted_bytes=1000)) as node:
        answers = Answers()
        for _ in range(4):
            node.replica.append(batch_of([b"x" * 600]), answers)
            node.replica.flush()
        node.turns()
        assert [type(one) for one in answers.all].count(Appended) == 1
        assert {one.kind for one in answers.all if isinstance(one, Failed)} == {"overloaded"}
        assert node.replica.in_flight_bytes == 0


def test_behind_an_entry_for_which_there_is_no_room_nothing_of_the_turn_is_proposed(tmp_path: Path) -> None:
    """A link that has sent both sends the first one again, and the second must not be in the log by then."""
    limits, options = PartitionLimits(entry_bytes=1000), RaftOptions(max_uncommitted_bytes=1000)
    with PartitionNode(tmp_path, limits=limits, options=options) as node:
        answers = Answers()
        node.replica.append(batch_of([b"before" * 50]), answers)
        node.replica.flush()
        for record in (b"first" * 180, b"second"):
            node.replica.append(batch_of([record]), answers)
        node.turns()
        assert [type(one) for one in answers.all] == [Failed, Failed, Appended]
        assert node.replica.in_flight_bytes == 0
        assert isinstance(node.append(b"again").last, Appended)


def test_a_follower_names_the_leader_it_knows(node: PartitionNode) -> None:
    node.step_down()
    failed = node.append(b"x").last
    assert isinstance(failed, Failed)
    assert (failed.kind, failed.retriable, failed.leader) == ("not_leader", True, None)
    assert "no leader is known" in failed.detail


def test_what_was_not_proposed_when_leadership_went_is_certainly_not_in_the_log(node: PartitionNode) -> None:
    answers = Answers()
    node.replica.append(batch_of([b"x"]), answers)
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
    node: PartitionNode, monkeypatch: pytest.MonkeyPatch, outcome: Unknown | Discarded, kind: str, certain: bool
) -> None:
    monkeypatch.setattr(node.group, "propose", lambda data, done: done(outcome))
    answers = Answers()
    node.replica.append(batch_of([b"x"]), answers)
    node.replica.append(batch_of([b"y"]), answers)
    node.replica.flush()
    assert len(answers.all) == 2
    for one in answers.all:
        assert isinstance(one, Failed)
        assert (one.kind, one.certainly_not_appended, one.retriable) == (kind, certain, True)
    assert node.replica.in_flight_bytes == 0


def test_an_entry_whose_outcome_was_lost_is_named(node: PartitionNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node.group, "propose", lambda data, done: done(Unknown(5, 1)))
    answers = Answers()
    node.replica.append(batch_of([b"x"]), answers)
    node.replica.flush()
    assert isinstance(answers.last, Failed)
    assert answers.last.entry == (5, 1)


def test_a_callback_that_raises_does_not_cost_the_others_their_answers(node: PartitionNode) -> None:
    answers = Answers()

    def broken(_: object) -> None:
        raise RuntimeError("a link's own defect")

    node.replica.append(batch_of([b"x"]), broken)
    node.replica.append(batch_of([b"y"]), answers)
    node.turns()
    assert answers.offsets == [1]


def test_a_callback_may_append_again(node: PartitionNode) -> None:
    answers = Answers()
    node.replica.append(batch_of([b"first"]), lambda _: node.replica.append(batch_of([b"second"]), answers))
    node.turns()
    assert answers.offsets == [1]


def test_appends_are_refused_while_the_disk_is_nearly_full(node: PartitionNode) -> None:
    reason = Failed("disk_full", True, "node 1 has 3 MiB left; free space")
    node.append(b"x")
    node.replica.refuse_appends(reason)
    assert node.append(b"y").last == reason
    assert read_all(node.replica) == [(0, b"x")]
    node.replica.refuse_appends(None)
    assert node.append(b"z").offsets == [1]


def test_an_empty_append_is_the_callers_mistake(node: PartitionNode) -> None:
    with pytest.raises(ValueError, match="1 to 65536 records, not 0"):
        node.replica.append(batch_of([]), Answers())


def test_a_deleted_partition_says_so_to_all_who_wait(node: PartitionNode) -> None:
    answers = Answers()
    node.replica.append(batch_of([b"x"]), answers)
    node.replica.close(deleted=True)
    node.replica.append(batch_of([b"y"]), answers)
    assert [one.kind for one in answers.all if isinstance(one, Failed)] == ["deleted", "deleted"]


def test_a_node_that_holds_damaged_bytes_decides_like_the_others(node: PartitionNode) -> None:
    """Committed garbage is a recorded rejection: it costs an index, no offset, and nobody's life."""
    outcomes: list[object] = []
    node.append(b"a")
    node.group.propose(b"\0\6\1 not a batch", outcomes.append)
    node.turns()
    assert "damaged" in str(outcomes)
    assert node.append(b"b").offsets == [1]
    assert read_all(node.replica) == [(0, b"a"), (1, b"b")]


def test_a_command_of_a_later_version_puts_the_replica_into_quarantine(node: PartitionNode) -> None:
    outcomes: list[object] = []
    node.append(b"a")
    node.group.propose(b"\0\x63 of a later version", outcomes.append)
    node.turns()
    assert "command tag 99, which this program does not know" in (node.group.quarantined or "")
    assert not any(isinstance(outcome, Committed) for outcome in outcomes)


BODIES = [b"price of IBM: %d" % (number % 7) for number in range(200)]


def body_of(message: bytes) -> bytes:
    body = decode_message(message).body
    assert isinstance(body, bytes)
    return body


def came(batch: RecordBatch) -> RecordBatch:
    """The batch as it comes from elsewhere, and is looked at."""
    return read_batch(bytes(batch))[0]


def sealed(codec: Codec = Codec.NONE) -> RecordBatch:
    return came(of_bodies(BODIES, codec))


def refusal(node: PartitionNode, batch: RecordBatch) -> str:
    """Why it is refused; nothing of it reaches the log."""
    answers, before = Answers(), node.group.last_index
    node.replica.append(batch, answers)
    node.turns()
    (refused,) = answers.all
    assert isinstance(refused, Failed), refused
    assert (refused.kind, refused.retriable, refused.certainly_not_appended) == ("malformed", False, True)
    assert (node.group.last_index, node.replica.in_flight_bytes) == (before, 0)
    return refused.detail


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_is_stored_as_the_bytes_that_came(node: PartitionNode, codec: Codec) -> None:
    answers, batch = Answers(), sealed(codec)
    node.replica.compress(Codec.GZIP if codec else Codec.NONE)
    node.replica.append(batch, answers)
    node.turns()
    assert answers.offsets == [0]
    (stored,) = batches_in(node.group.entry(node.group.last_index)[1])
    assert stored.content == batch.content, "whatever the log's setting: it came compressed"
    assert stored.head == batch.head._replace(time_ms=node.now_ms)
    assert [body_of(record) for _, record in read_all(node.replica)] == BODIES


def test_a_batch_that_came_plain_is_compressed_under_the_same_seal(node: PartitionNode) -> None:
    answers, batch = Answers(), sealed()
    node.replica.compress(Codec.ZSTD)
    node.replica.append(batch, answers)
    node.turns()
    (stored,) = batches_in(node.group.entry(node.group.last_index)[1])
    assert (stored.codec, stored.head.seal) == (Codec.ZSTD, batch.head.seal)
    assert stored.size < batch.size / 2
    assert stored.records() == BODIES


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
@pytest.mark.parametrize("off", [-1, 1, 1 << 20])
def test_a_batch_that_does_not_decompress_to_what_it_says_is_refused(
    node: PartitionNode, codec: Codec, off: int
) -> None:
    assert "does not decompress" in refusal(node, came(promising(codec, (2 << 20) + off, 2 << 20)))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_a_batch_that_is_too_large_by_its_own_word_is_refused_before_it_is_decompressed(
    node: PartitionNode, codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_batch, "decompress", None)
    assert "at most 16842752 are taken" in refusal(node, came(promising(codec, MAX_UNCOMPRESSED_BYTES + 1, 1000)))


def test_the_leader_believes_nobody_that_the_checksum_was_looked_at(node: PartitionNode) -> None:
    whole = bytearray(bytes(sealed()))
    whole[-1] ^= 1
    assert "checksum" in refusal(node, read_batch(bytes(whole))[0])


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        (batch_of([b"x"], control=True), "control"),
        (with_head(of_bodies(BODIES), base_offset=0), "place"),
        (with_head(of_bodies(BODIES), first=1, events=199), "place"),
        (with_head(of_bodies(BODIES), events=199), "place"),
        (with_head(of_bodies(BODIES), producer_epoch=0), "no producer"),
        (with_head(of_bodies(BODIES), base_sequence=0), "no producer"),
        (batch_of([b"x"], transactional=True), "no producer"),
    ],
    ids=["control", "offset", "first", "events", "epoch", "number", "transaction"],
)
def test_what_a_head_may_not_say_to_a_leader_is_refused(node: PartitionNode, batch: RecordBatch, why: str) -> None:
    assert why in refusal(node, came(batch))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (with_content(of_bodies([b"abc"]), b"\0\0\0\4abc"), "have 4 bytes, but 3 are there"),
        (with_content(of_bodies([b"abc"]), b"\0\0\0\2abc"), "have 2 bytes, but 3 are there"),
        (with_content(of_bodies([b"abc"]), b"\0\0\0\3abc", seal=1), "seal"),
    ],
    ids=["more", "less", "seal"],
)
def test_a_table_that_does_not_fit_is_refused(node: PartitionNode, content: RecordBatch, why: str) -> None:
    assert why in refusal(node, came(content))


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"", "empty"),
        (b"nothing like it", "section"),
        (encode_message(Message(body=b"x"))[:-1], "longer than what holds it"),
        (encode_message(Message(delivery_annotations={symbol("a"): 1}, body=b"x")), "delivery annotations"),
    ],
)
def test_a_message_that_no_reader_could_decode_is_refused(node: PartitionNode, message: bytes, why: str) -> None:
    good = encode_message(Message(body=b"x", application_properties={"a": 1}))
    assert node.replica.next_offset == 0
    told = refusal(node, came(batch_of([good, message, good])))
    assert told.startswith("the batch cannot be read: message 1 of the batch")
    assert why in told


def test_one_turn_looks_at_so_much_and_no_more(node: PartitionNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest keeps its order, and counts as waiting meanwhile."""
    given = [[b"%d" % number * 100] * 10 for number in range(5)]
    batches = [came(of_bodies(bodies, Codec.ZSTD)) for bodies in given]
    monkeypatch.setattr(appender, "CONTENTS_A_TURN", 2 * appender.effort_of(batches[0]))
    answers = Answers()
    for batch in batches:
        node.replica.append(batch, answers)
    waiting = []
    while node.dirty:
        waiting.append(node.replica._appender._waiting_bytes // batches[0].size)
        node.dirty.pop().flush()
    assert waiting == [5, 3, 1]
    node.turns()
    assert answers.offsets == [0, 10, 20, 30, 40]
    assert [body_of(record) for _, record in read_all(node.replica)] == [body for bodies in given for body in bodies]


def test_what_waits_for_the_next_turn_does_not_overtake_what_was_refused_in_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appender, "CONTENTS_A_TURN", 1)
    with PartitionNode(tmp_path, options=RaftOptions(max_uncommitted_bytes=1000)) as node:
        answers = Answers()
        node.replica.append(batch_of([b"before" * 50]), answers)
        node.replica.flush()
        for size in (900, 10):
            node.replica.append(came(batch_of(with_heads([bytes(size)]))), answers)
        node.turns()
        assert [type(one) for one in answers.all] == [Failed, Failed, Appended]


def test_nothing_is_looked_at_that_there_is_no_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be a thousand times as large when it is decompressed."""
    batch = sealed(Codec.ZSTD)
    with PartitionNode(tmp_path, limits=PartitionLimits(in_flight_bytes=batch.size + 5)) as node:
        answers = Answers()
        node.replica.append(batch_of([b"in front"]), answers)
        node.replica.append(batch, answers)
        assert [one.kind for one in answers.all if isinstance(one, Failed)] == ["overloaded"]
        node.turns()
        node.replica.append(batch, answers)
        node.turns()
        assert isinstance(answers.last, Appended)
