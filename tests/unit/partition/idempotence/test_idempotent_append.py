"""Appends of idempotent producers through a real group and disk: gathered, answered, read back, found after a crash."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.records.record_batch import Numbering
from node.partition.api import Appended, Failed, Latest, ProducerInfo, ProducerOpened, ProducerRequest
from node.partition.idempotence.producer_state import EXPIRY_MS, SEQUENCES
from node.partition.raft_entry import batches_in
from node.partition.state_machine import LONGEST_STEP_MS
from tests.batches import batch_of, numbered
from tests.unit.partition.idempotence.producing import digests_of
from tests.unit.partition.support import START_MS, Answers, PartitionNode, read_all


@pytest.fixture
def node(tmp_path: Path) -> Iterator[PartitionNode]:
    with PartitionNode(tmp_path) as node:
        opened(node, 7)
        yield node


def opened(
    node: PartitionNode, producer_id: int | None = None, epoch: int | None = None, last: int | None = None
) -> ProducerOpened | Failed:
    async def ask() -> ProducerOpened | Failed:
        asking = asyncio.ensure_future(node.replica.open_producer(ProducerRequest(producer_id, epoch, last)))
        await asyncio.sleep(0)
        node.turns()
        return await asking

    return asyncio.run(ask())


def send(
    node: PartitionNode, first: int, contents: str, answers: Answers, *, producer: int = 7, epoch: int = 0
) -> None:
    records = [letter.encode() for letter in contents]
    node.replica.append(numbered(records, producer, epoch, first, digests_of(contents)), answers)


def stored(node: PartitionNode) -> str:
    return b"".join(record for _, record in read_all(node.replica)).decode()


def test_calls_whose_numbers_connect_share_an_entry(node: PartitionNode) -> None:
    answers, before = Answers(), node.group.last_index
    for first, contents in ((1, "ab"), (3, "c"), (4, "def")):
        send(node, first, contents, answers)
    node.turns()
    assert node.group.last_index == before + 1
    assert answers.offsets == [0, 2, 3]
    assert stored(node) == "abcdef"


def test_batches_of_producers_and_plain_ones_share_an_entry_in_their_order(node: PartitionNode) -> None:
    opened(node, 8)
    answers, before = Answers(), node.group.last_index
    for turn in range(1, 6):
        send(node, turn, "x", answers)
        send(node, turn, "y", answers, producer=8)
        node.replica.append(batch_of([b"p"]), answers)
    node.turns()
    assert node.group.last_index == before + 1
    assert len(batches_in(node.group.entry(before + 1)[1])) == 15
    assert sorted(answers.offsets) == list(range(15))
    assert stored(node) == "xypxypxypxypxyp"


def test_numbers_that_do_not_connect_begin_a_new_entry_and_keep_their_order(node: PartitionNode) -> None:
    answers = Answers()
    send(node, 1, "ab", answers)
    send(node, 9, "z", answers)
    send(node, 3, "c", answers)
    node.turns()
    good, gap, then = answers.all
    assert (good, then) == (Appended(0, START_MS), Appended(2, START_MS))
    assert isinstance(gap, Failed)
    assert (gap.kind, gap.retriable, gap.certainly_not_appended) == ("out_of_order", False, True)
    assert "number 9 is neither the next one, 3," in gap.detail


def test_what_comes_again_is_answered_with_the_first_place_and_stored_once(node: PartitionNode) -> None:
    first, again = Answers(), Answers()
    send(node, 1, "abc", first)
    node.turns()
    node.append(b"p")
    node.now_ms += 1000
    send(node, 1, "ab", again)
    send(node, 3, "cde", again)
    node.turns()
    assert again.all == [Appended(0, START_MS, 2), Appended(2, START_MS, 1, ((1, 2), (2, 4)))]
    send(node, 2, "bcdefg", again)
    node.turns()
    assert again.last == Appended(1, START_MS, 4, ((2, 1), (4, 4)))
    assert read_all(node.replica) == [
        (0, b"a"), (1, b"b"), (2, b"c"), (3, b"p"), (4, b"d"), (5, b"e"), (6, b"f"), (7, b"g")
    ]  # fmt: skip


def test_two_copies_in_flight_at_once_make_one_event(node: PartitionNode) -> None:
    answers = Answers()
    send(node, 1, "abc", answers)
    node.replica.flush()
    send(node, 1, "abc", answers)
    node.turns()
    assert answers.all == [Appended(0, START_MS), Appended(0, START_MS, 3)]
    assert stored(node) == "abc"


def test_a_refusal_says_how_much_before_it_is_known(node: PartitionNode) -> None:
    answers = Answers()
    send(node, 1, "abcde", answers)
    node.turns()
    again = Answers()
    send(node, 2, "b", again)
    send(node, 3, "cD", again)
    send(node, 5, "e", again)
    node.turns()
    known, mixed, behind = again.all
    assert known == Appended(1, START_MS, 1)
    assert isinstance(mixed, Failed)
    assert (mixed.kind, mixed.known) == ("out_of_order", 1)
    assert behind == Appended(4, START_MS, 1)
    assert stored(node) == "abcde"


def test_readers_at_the_tail_see_each_event_once(node: PartitionNode) -> None:
    woken: list[int] = []
    reader = node.replica.open_reader(Latest(), lambda: woken.append(1))
    assert reader.poll(100, 1 << 20) == []
    answers = Answers()
    for first, contents in ((1, "abc"), (2, "bcd"), (1, "abcde"), (5, "ef"), (1, "abcdef")):
        send(node, first, contents, answers)
        node.turns()
    found = [record for batch in reader.poll(100, 1 << 20) for record in batch.messages()]
    assert b"".join(found) == b"abcdef"
    assert woken


def test_batches_of_one_entry_are_judged_one_by_one(node: PartitionNode) -> None:
    opened(node, 7)
    before = node.group.last_index
    answers = Answers()
    for first, contents in (
        (SEQUENCES - 3, "ab"),
        (SEQUENCES - 1, "cde"),
        (SEQUENCES - 3, "abcde"),
        (9, "x"),
        (2, "f"),
    ):
        send(node, first, contents, answers)
    node.turns()
    assert node.group.last_index == before + 1
    stored_now, behind, again, out_of_order, last = answers.all
    assert (stored_now, behind) == (Appended(0, START_MS), Appended(2, START_MS))
    assert again == Appended(0, START_MS, 5)
    assert isinstance(out_of_order, Failed)
    assert out_of_order.kind == "out_of_order"
    assert last == Appended(5, START_MS)
    assert stored(node) == "abcdef"
    node.crash()
    assert stored(node) == "abcdef"


@pytest.mark.parametrize("how", ["crash", "reopen"])
def test_producers_survive_a_restart_with_and_without_a_checkpoint(node: PartitionNode, how: str) -> None:
    answers = Answers()
    send(node, 1, "abc", answers)
    node.turns()
    opened(node, 7, 1)
    send(node, 1, "xyz", answers, epoch=1)
    node.turns()
    before = node.replica.digest()
    getattr(node, how)()
    assert node.replica.digest() == before
    send(node, 1, "xyz!", answers, epoch=1)
    send(node, 4, "d", answers)
    node.turns()
    again, stolen = answers.all[-2:]
    assert again == Appended(3, START_MS, 3)
    assert isinstance(stolen, Failed)
    assert stolen.kind == "producer_stolen"
    assert stored(node) == "abcxyz!"


def test_old_readers_skip_what_was_known_also_after_a_restart(node: PartitionNode) -> None:
    answers = Answers()
    send(node, 1, "abc", answers)
    node.turns()
    send(node, 2, "bcdef", answers)
    node.turns()
    node.crash()
    assert read_all(node.replica, 2) == [(2, b"c"), (3, b"d"), (4, b"e"), (5, b"f")]


def test_events_that_retention_removed_are_still_known(node: PartitionNode) -> None:
    answers = Answers()
    send(node, 1, "abc", answers)
    node.turns()
    node.now_ms += 10_000
    node.append(b"p")
    assert node.replica.enforce_retention(node.now_ms, 5_000, None) is not None
    node.turns()
    assert node.replica.start_offset == 3
    send(node, 1, "abc", answers)
    node.turns()
    assert answers.last == Appended(0, START_MS, 3)


def test_opening_is_agreed_on_by_the_log_and_answers_what_it_refuses(node: PartitionNode) -> None:
    given = opened(node)
    assert isinstance(given, ProducerOpened)
    assert opened(node, given.producer_id, 2) == ProducerOpened(given.producer_id, 2, 0)
    for wish, kind in (((given.producer_id, 1), "producer_stolen"), ((99, 0, 5), "producer_unknown")):
        refused = opened(node, *wish)
        assert isinstance(refused, Failed)
        assert (refused.kind, refused.retriable) == (kind, False)
    node.step_down()
    refused = opened(node, 7)
    assert isinstance(refused, Failed)
    assert (refused.kind, refused.retriable) == ("not_leader", True)


def test_who_watches_a_producer_hears_of_the_epoch_that_takes_its_place(node: PartitionNode) -> None:
    heard: list[tuple[str, int]] = []
    ends = [node.replica.watch_producer(7, lambda epoch, name=name: heard.append((name, epoch))) for name in "ab"]
    node.replica.watch_producer(8, lambda epoch: heard.append(("other", epoch)))
    opened(node, 7, 0)
    assert heard == []
    opened(node, 7, 3)
    ends[0]()
    opened(node, 7, 4)
    assert heard == [("a", 3), ("b", 3), ("b", 4)]


def listed(node: PartitionNode, after: int, limit: int) -> list[ProducerInfo]:
    async def ask() -> list[ProducerInfo]:
        asking = asyncio.ensure_future(node.replica.producers(after, limit))
        await asyncio.sleep(0)
        node.turns()
        return await asking

    return asyncio.run(ask())


def test_producers_are_listed_by_id_in_pages(node: PartitionNode) -> None:
    answers = Answers()
    for producer in (9, 3, 5):
        opened(node, producer)
    send(node, 1, "abc", answers, producer=5)
    node.turns()
    page = listed(node, -1, 2)
    assert [one.producer_id for one in page] == [3, 5]
    assert (page[0].last_sequence, page[0].last_offset, page[0].remembered) == (None, None, 0)
    assert (page[1].last_sequence, page[1].last_offset, page[1].remembered) == (3, 2, 3)
    assert [one.producer_id for one in listed(node, 5, 100)] == [7, 9]


def test_a_producer_that_was_forgotten_is_told_to_open_anew(node: PartitionNode) -> None:
    for _ in range(-(-EXPIRY_MS // LONGEST_STEP_MS) + 1):
        node.now_ms += LONGEST_STEP_MS
        node.replica._machine._advance(node.now_ms)
    answers = Answers()
    send(node, 1, "a", answers)
    node.turns()
    assert isinstance(answers.last, Failed)
    assert (answers.last.kind, answers.last.retriable) == ("producer_unknown", False)


@pytest.mark.parametrize(
    "numbers",
    [
        Numbering(-2, 0, 1),
        Numbering(2**63, 0, 1),
        Numbering(7, 2**15, 1),
        Numbering(7, -1, 1),
        Numbering(7, 0, -1),
        Numbering(7, 0, 2**31),
    ],
)
def test_numbers_that_cannot_be_never_reach_the_log(node: PartitionNode, numbers: Numbering) -> None:
    answers, before = Answers(), node.group.last_index
    node.replica.append(batch_of([b"a", b"b"]).numbered(numbers), answers)
    node.turns()
    assert isinstance(answers.last, Failed)
    assert (answers.last.kind, answers.last.retriable) == ("producer_invalid", False)
    assert node.group.last_index == before


@pytest.mark.parametrize("wish", [(-1, None, None), (2**63, None, None), (1, -1, 0), (1, 2**15, 0), (1, 0, 2**31)])
def test_a_wish_that_cannot_be_is_refused_before_the_log(node: PartitionNode, wish: tuple[int | None, ...]) -> None:
    before = node.group.last_index
    refused = asyncio.run(node.replica.open_producer(ProducerRequest(*wish)))
    assert isinstance(refused, Failed)
    assert refused.kind == "producer_invalid"
    assert node.group.last_index == before
