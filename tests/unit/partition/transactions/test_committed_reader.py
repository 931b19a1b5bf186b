"""What readers get of transactions, on a real store: through restarts, snapshots of the index, and retention."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from node.partition import reader as reader_module
from node.partition.api import Appended, Earliest, Failed, Latest
from node.partition.partition_commands import encode_transaction_command
from node.partition.transactions.transaction_commands import Begin
from tests.batches import numbered
from tests.unit.partition.support import Answers, PartitionNode, flat, read_all
from tests.unit.partition.transactions.driving import marker

P = 1 << 40
EVERYTHING = 1 << 40


class Wakes:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


@pytest.fixture
def node(tmp_path: Path) -> Iterator[PartitionNode]:
    with PartitionNode(tmp_path) as node:
        yield node


def propose(node: PartitionNode, entry: bytes) -> None:
    node.group.propose(entry, lambda _: None)
    node.turns()


def begin(node: PartitionNode, producer: int = P, epoch: int = 0) -> None:
    propose(node, encode_transaction_command(Begin(producer, epoch, 3, 60_000, node.now_ms)))


def end(node: PartitionNode, producer: int = P, epoch: int = 0, *, commit: bool) -> None:
    propose(node, marker(producer, epoch, commit=commit, now_ms=node.now_ms))


def send(node: PartitionNode, *records: bytes, producer: int = P, epoch: int = 0, first: int = 0) -> Answers:
    answers = Answers()
    digests = b"".join(record[:1] * 4 for record in records)
    node.replica.append(numbered(records, producer, epoch, first, digests, transactional=True), answers)
    node.turns()
    return answers


def test_a_committed_reader_waits_at_the_last_stable_offset_and_is_woken_when_it_moves(node: PartitionNode) -> None:
    node.append(b"plain")
    begin(node)
    assert send(node, b"a", b"b").offsets == [1]
    node.append(b"behind")
    wakes, others = Wakes(), Wakes()
    committed = node.replica.open_reader(Earliest(), wakes)
    uncommitted = node.replica.open_reader(Earliest(), others, uncommitted=True)
    assert flat(committed.poll(100, EVERYTHING)) == [(0, b"plain")]
    assert committed.poll(100, EVERYTHING) == []
    assert [offset for offset, _ in flat(uncommitted.poll(100, EVERYTHING))] == [0, 1, 2, 3]
    end(node, commit=True)
    assert wakes.count == 1
    assert flat(committed.poll(100, EVERYTHING)) == [(1, b"a"), (2, b"b"), (3, b"behind")]


@pytest.mark.parametrize("reopen", [False, True])
def test_aborted_events_are_passed_over_also_by_a_node_that_starts_anew(node: PartitionNode, reopen: bool) -> None:
    begin(node)
    send(node, b"a", b"b")
    node.append(b"between")
    send(node, b"c", first=2)
    end(node, commit=False)
    node.append(b"behind")
    if reopen:
        node.reopen()
    committed = node.replica.open_reader(Earliest(), Wakes())
    assert flat(committed.poll(100, EVERYTHING)) == [(2, b"between"), (4, b"behind")]
    assert committed.position == 5
    assert [record for _, record in read_all(node.replica)] == [b"a", b"b", b"between", b"c", b"behind"]


def test_what_is_cached_for_tail_readers_knows_its_transaction(node: PartitionNode) -> None:
    """The batch was put into the cache when it was committed, before its transaction was decided."""
    first, second = (node.replica.open_reader(Latest(), Wakes()) for _ in range(2))
    assert first.poll(1, EVERYTHING) == second.poll(1, EVERYTHING) == []
    begin(node)
    send(node, b"a")
    send(node, b"b", first=1)
    end(node, commit=False)
    node.append(b"c")
    for reader in (first, second):
        assert flat(reader.poll(10, EVERYTHING)) == [(2, b"c")]


def test_latest_is_the_last_stable_offset_for_who_reads_committed(node: PartitionNode) -> None:
    begin(node)
    send(node, b"a")
    committed, uncommitted = (
        node.replica.open_reader(Latest(), Wakes(), uncommitted=isolation) for isolation in (False, True)
    )
    assert (committed.position, uncommitted.position) == (0, 1)
    info = node.replica.info_now()
    assert (info.stable_offset, info.next_offset, info.open_transactions) == (0, 1, 1)
    end(node, commit=True)
    assert flat(committed.poll(10, EVERYTHING)) == [(0, b"a")]


def test_a_long_aborted_stretch_is_passed_in_shares_and_never_forgotten(
    node: PartitionNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "ABORTED_BATCHES_PER_POLL", 4)
    begin(node)
    for number in range(10):
        send(node, b"%d" % number, first=number)
    end(node, commit=False)
    node.append(b"behind")
    wakes = Wakes()
    reader = node.replica.open_reader(Earliest(), wakes)
    found: list[tuple[int, bytes]] = []
    polls = 0
    while not found:
        before = wakes.count
        found = flat(reader.poll(10, EVERYTHING))
        polls += 1
        assert found or wakes.count == before + 1, "a reader that gave up for this turn wakes its link again"
    assert found == [(10, b"behind")]
    assert polls == 3


def test_an_append_after_the_end_is_refused_by_name(node: PartitionNode) -> None:
    assert _refusal(send(node, b"a")).kind == "transaction_ended"
    begin(node)
    end(node, commit=False)
    failure = _refusal(send(node, b"a"))
    assert (failure.kind, failure.retriable) == ("transaction_ended", False)


def test_numbers_of_a_transaction_and_of_a_producer_never_share_an_entry(node: PartitionNode) -> None:
    """The same id, the same epoch, and numbers that would connect: in one turn."""
    begin(node)
    answers = Answers()
    node.replica.append(numbered([b"a"], P, 0, 0, b"aaaa", transactional=True), answers)
    node.replica.append(numbered([b"b"], P, 0, 1, b"bbbb"), answers)
    node.replica.append(numbered([b"c"], P, 0, 1, b"cccc", transactional=True), answers)
    node.turns()
    kinds = sorted(one.kind if isinstance(one, Failed) else "stored" for one in answers.all)
    assert kinds == ["producer_unknown", "stored", "stored"]


def test_retention_stops_at_the_oldest_open_transaction(node: PartitionNode) -> None:
    node.append(b"old")
    begin(node)
    send(node, b"a")
    node.append(b"behind")
    node.now_ms += 10_000
    node.replica.enforce_retention(node.now_ms, 1, None)
    node.turns()
    assert node.replica.start_offset == 1
    end(node, commit=False)
    node.replica.enforce_retention(node.now_ms, 1, None)
    node.turns()
    assert node.replica.start_offset == 3
    assert node.replica._machine.transactions.aborted == 0


def test_duplicates_inside_a_transaction_are_answered_with_their_first_place(node: PartitionNode) -> None:
    begin(node)
    send(node, b"a", b"b")
    again = send(node, b"a", b"b").last
    assert isinstance(again, Appended)
    assert (again.base_offset, again.duplicates) == (0, 2)


def _refusal(answers: Answers) -> Failed:
    assert isinstance(answers.last, Failed)
    return answers.last
