"""Which numbers an idempotent producer may send, and what it is told of those that the partition has seen."""

from __future__ import annotations

import msgspec
import pytest

from node.partition.idempotence import producer_state as rules
from node.partition.idempotence.producer_state import (
    ALLOCATED_FROM,
    EXPIRY_MS,
    FORGOTTEN,
    RENEWING_EXPIRY_MS,
    SEQUENCES,
    StoredAt,
)
from node.partition.raft_entry import join
from node.partition.state_machine import AppendAccepted, AppendRejected, LogState, PartitionMachine
from tests.batches import batch_of
from tests.unit.partition.idempotence.producing import DAY_MS, ProducedLog, code

LAST = SEQUENCES - 1


@pytest.fixture
def log() -> ProducedLog:
    return ProducedLog()


# ---------------------------------------------------------------- opening


def test_a_producer_that_knows_nothing_is_given_an_id_that_nobody_picks_by_hand(log: ProducedLog) -> None:
    first, second = log.opened(), log.opened()
    assert first.producer_id != second.producer_id
    for given in (first, second):
        assert ALLOCATED_FROM <= given.producer_id < 2 * ALLOCATED_FROM == 2**53
        assert (given.epoch, given.last_sequence) == (0, 0)


def test_replicas_give_out_the_same_ids_and_partitions_different_ones() -> None:
    one, other, elsewhere = ProducedLog(), ProducedLog(), ProducedLog()
    elsewhere.plain()
    assert one.opened() == other.opened() != elsewhere.opened()


@pytest.mark.parametrize(
    ("stated", "granted"),
    [
        ((7, None, None), (7, 0, 0)),
        ((7, 3, None), (7, 3, 0)),
        ((7, None, 40), (7, 0, 40)),
        ((7, 0, None), (7, 0, 0)),
    ],
)
def test_what_a_new_producer_leaves_open_is_filled_in(
    log: ProducedLog, stated: tuple[int | None, int | None, int | None], granted: tuple[int, int, int]
) -> None:
    found = log.opened(*stated)
    assert (found.producer_id, found.epoch, found.last_sequence) == granted


def test_an_id_may_be_left_open_though_the_rest_is_stated(log: ProducedLog) -> None:
    found = log.opened(None, 5, 99)
    assert (found.epoch, found.last_sequence) == (5, 99)


def test_a_producer_that_claims_a_past_which_is_not_known_is_refused(log: ProducedLog) -> None:
    """IS-6: it would number on from events that this log never saw."""
    assert code(log.open(7, 0, 10)) == "producer-unknown"
    log.opened(7)
    assert log.opened(7, 0, 10).last_sequence == 10


@pytest.mark.parametrize("wrong", [(-2, 0, 0), (2**63 - 1, 2**15, 0), (1, -5, 0), (1, 0, 2**31), (1, 0, -2)])
def test_numbers_that_cannot_be_are_refused(log: ProducedLog, wrong: tuple[int, int, int]) -> None:
    assert code(log.open(*wrong)) == "invalid-producer"


def test_who_comes_back_is_told_the_last_number_stored(log: ProducedLog) -> None:
    log.opened(7)
    log.send(7, 0, 1, "abc")
    assert log.opened(7).last_sequence == 3
    assert log.opened(7, 0).last_sequence == 3


def test_who_comes_back_with_a_number_of_its_own_goes_by_that(log: ProducedLog) -> None:
    """It may have missed an answer; what it sends again is compared."""
    log.opened(7)
    log.send(7, 0, 1, "abcde")
    assert log.opened(7, 0, 2).last_sequence == 2
    assert log.send(7, 0, 3, "cdefg") == AppendAccepted(5, log.now_ms, 2, (StoredAt(3, 2, log.now_ms),))


def test_a_start_that_was_announced_is_remembered_until_something_is_stored(log: ProducedLog) -> None:
    log.opened(7, 2, None)
    log.opened(7, None, 500)
    log.restart()
    assert log.opened(7).last_sequence == 500
    assert isinstance(log.send(7, 2, 501, "a"), AppendAccepted)
    assert log.opened(7).last_sequence == 501


# ---------------------------------------------------------------- epochs


def test_a_higher_epoch_fences_the_lower_one_and_numbers_begin_anew(log: ProducedLog) -> None:
    """IS-1, IS-3, IS-4."""
    log.opened(7)
    log.send(7, 0, 1, "abc")
    assert log.opened(7, 1).last_sequence == 0
    assert code(log.send(7, 0, 4, "d")) == "producer-stolen"
    assert code(log.send(7, 0, 3, "c")) == "producer-stolen", "not even what is known: it is not its producer any more"
    assert code(log.open(7, 0)) == "producer-stolen"
    assert isinstance(log.send(7, 1, 1, "x"), AppendAccepted)


def test_a_higher_epoch_may_go_on_with_the_old_numbers(log: ProducedLog) -> None:
    """IS-5, and rule 6 as Event Hubs has it: not only 0 may follow."""
    log.opened(7)
    log.send(7, 0, 1, "abc")
    assert log.opened(7, 1, 3).last_sequence == 3
    assert isinstance(log.send(7, 1, 4, "d"), AppendAccepted)
    assert code(log.send(7, 1, 3, "c")) == "out-of-order", "what an earlier epoch sent is not known to this one"


def test_an_epoch_that_was_not_opened_begins_with_0_or_not_at_all(log: ProducedLog) -> None:
    """Rules 6 and 7."""
    log.opened(7)
    log.send(7, 0, 1, "abc")
    assert code(log.send(7, 4, 4, "d")) == "out-of-order"
    assert isinstance(log.send(7, 4, 0, "d"), AppendAccepted)
    assert log.producer(7).epoch == 4
    assert code(log.send(7, 0, 4, "d")) == "producer-stolen"


def test_two_who_share_an_epoch_share_a_line_of_numbers(log: ProducedLog) -> None:
    """IS-2."""
    log.opened(7, 1)
    log.opened(7, 1)
    assert isinstance(log.send(7, 1, 1, "a"), AppendAccepted)
    assert isinstance(log.send(7, 1, 2, "b"), AppendAccepted)
    assert code(log.send(7, 1, 2, "other")) == "out-of-order"


def test_producers_and_plain_events_do_not_concern_each_other(log: ProducedLog) -> None:
    """IS-10."""
    log.opened(7)
    log.opened(8)
    log.plain()
    assert log.send(7, 0, 1, "ab") == AppendAccepted(1, log.now_ms, 2)
    log.plain(3)
    assert log.send(8, 0, 1, "a") == AppendAccepted(6, log.now_ms, 1)
    assert log.send(7, 0, 3, "c") == AppendAccepted(7, log.now_ms, 1)
    assert log.plain() == AppendAccepted(8, log.now_ms, 1)


# ---------------------------------------------------------------- numbers


@pytest.mark.parametrize("first", [0, 1, 77, LAST])
def test_the_first_number_of_an_epoch_is_free(log: ProducedLog, first: int) -> None:
    log.opened(7)
    assert isinstance(log.send(7, 0, first, "a"), AppendAccepted)


def test_gaps_and_old_numbers_are_out_of_order(log: ProducedLog) -> None:
    """IS-8."""
    log.opened(7)
    log.send(7, 0, 10, "abc")
    for first in (14, 9, 8, 0, LAST, 1000):
        assert code(log.send(7, 0, first, "z")) == "out-of-order"
    assert log.machine.state.next_offset == 3
    assert isinstance(log.send(7, 0, 13, "d"), AppendAccepted)


def test_who_was_never_opened_stores_nothing(log: ProducedLog) -> None:
    assert code(log.send(7, 0, 0, "a")) == "producer-unknown"
    assert log.machine.state.next_offset == 0


def test_numbers_go_on_at_0_after_the_last_also_inside_a_batch(log: ProducedLog) -> None:
    log.opened(7)
    log.send(7, 0, LAST - 1, "ab")
    assert isinstance(log.send(7, 0, 0, "c"), AppendAccepted)
    log.opened(8)
    assert log.send(8, 0, LAST - 1, "abcd") == AppendAccepted(3, log.now_ms, 4)
    assert log.producer(8).last == 1
    assert code(log.send(8, 0, 4, "z")) == "out-of-order"
    again = log.send(8, 0, LAST, "bcdef")
    assert again == AppendAccepted(7, log.now_ms, 2, (StoredAt(3, 4, log.now_ms),))
    assert isinstance(log.send(8, 0, 4, "g"), AppendAccepted)


# ---------------------------------------------------------------- what comes again


def test_a_batch_that_comes_again_is_answered_with_its_first_place(log: ProducedLog) -> None:
    log.opened(7)
    log.plain(5)
    first = log.send(7, 0, 1, "abc")
    log.plain(2)
    log.now_ms += 50
    again = log.send(7, 0, 1, "abc")
    assert isinstance(first, AppendAccepted)
    assert isinstance(again, AppendAccepted)
    assert again.duplicate
    assert not first.duplicate
    assert (again.base_offset, again.timestamp_ms) == (first.base_offset, first.timestamp_ms) == (5, log.now_ms - 50)
    assert log.machine.state.next_offset == 10
    assert log.machine.state.duplicates == 3


def test_what_comes_again_is_known_however_it_is_cut(log: ProducedLog) -> None:
    log.opened(7)
    log.send(7, 0, 1, "ab")
    log.plain()
    log.send(7, 0, 3, "cde")
    log.now_ms += 1
    found = log.send(7, 0, 2, "bcd")
    assert isinstance(found, AppendAccepted)
    assert [found.place_of(position)[0] for position in range(3)] == [1, 3, 4]
    assert found.known == (StoredAt(1, 1, log.now_ms - 1), StoredAt(2, 3, log.now_ms - 1))
    for position, letter in enumerate("abcde", 1):
        assert isinstance(log.send(7, 0, position, letter), AppendAccepted)
    whole = log.send(7, 0, 1, "abcdefg")
    assert isinstance(whole, AppendAccepted)
    assert (whole.count, whole.base_offset) == (2, 6)
    assert [whole.place_of(position)[0] for position in range(7)] == [0, 1, 3, 4, 5, 6, 7]


def test_the_same_number_with_other_bytes_is_refused_and_so_is_what_stands_behind_it(log: ProducedLog) -> None:
    """The trap of IP-15: a client that gave up reuses its numbers for other events."""
    log.opened(7)
    log.send(7, 0, 1, "abcde")
    refused = log.send(7, 0, 3, "cDefg")
    assert isinstance(refused, AppendRejected)
    assert refused.code == "out-of-order"
    assert "number 4 was used before, for another event" in refused.detail
    assert refused.known == (StoredAt(1, 2, log.now_ms),)
    assert (refused.place_of(0), refused.place_of(1)) == ((2, log.now_ms), None)
    assert log.machine.state.next_offset == 5
    assert code(log.send(7, 0, 1, "ABCDEFGH")) == "out-of-order"


def test_five_batches_are_remembered_and_as_many_more_as_hold_the_events_of_two_windows(log: ProducedLog) -> None:
    log.opened(7)
    big = "x" * rules.REMEMBERED_EVENTS
    for turn in range(7):
        log.send(7, 0, turn * len(big), big)
    assert log.producer(7).remembered == rules.REMEMBERED_BATCHES * len(big)
    assert isinstance(log.send(7, 0, 2 * len(big), big), AppendAccepted)
    assert code(log.send(7, 0, len(big), big)) == "out-of-order"
    log.opened(8)
    for number in range(rules.REMEMBERED_EVENTS + 100):
        log.send(8, 0, number, "y")
    assert log.producer(8).remembered == rules.REMEMBERED_EVENTS
    assert isinstance(log.send(8, 0, 100, "y" * rules.REMEMBERED_EVENTS), AppendAccepted)
    assert code(log.send(8, 0, 99, "y")) == "out-of-order"


# ---------------------------------------------------------------- forgetting


def test_a_producer_is_forgotten_when_the_log_says_that_a_week_has_passed(log: ProducedLog) -> None:
    log.opened(7)
    log.opened(8)
    log.send(7, 0, 1, "a")
    log.live(EXPIRY_MS)
    log.send(8, 0, 1, "a")
    log.live(1)
    assert log.machine.producers.get(7) is None
    assert code(log.send(7, 0, 2, "b")) == "producer-unknown"
    assert code(log.open(7, 0, 1)) == "producer-unknown"
    assert isinstance(log.send(8, 0, 2, "b"), AppendAccepted), "it was heard of since"


def test_time_that_goes_back_with_a_new_leader_forgets_nobody_and_keeps_nobody(log: ProducedLog) -> None:
    log.opened(7)
    log.live(3 * DAY_MS)
    log.now_ms -= 2 * DAY_MS
    log.opened(8)
    assert log.producer(8).touched_ms == log.now_ms + 2 * DAY_MS
    log.live(EXPIRY_MS - 3 * DAY_MS + 1)
    assert log.machine.producers.get(7) is None
    assert log.machine.producers.get(8) is not None


def test_a_leap_of_a_leaders_clock_forgets_nobody_and_puts_nothing_off(log: ProducedLog) -> None:
    """However often leaders with a right and a wrong clock take turns: it counts a minute at most each time."""
    log.opened(7)
    log.send(7, 0, 1, "a")
    for _ in range(10):
        log.now_ms += 30 * DAY_MS
        log.plain()
        assert isinstance(log.send(7, 0, 1, "a"), AppendAccepted)
        log.now_ms -= 30 * DAY_MS
        log.plain()
    assert isinstance(log.send(7, 0, 2, "b"), AppendAccepted)
    log.live(EXPIRY_MS)
    assert log.machine.producers.get(7) is not None
    log.live(1)
    assert log.machine.producers.get(7) is None, "although no time in an entry is beyond the one of the leap"


def test_what_the_log_has_lived_survives_in_the_checkpoint(log: ProducedLog) -> None:
    log.opened(7)
    log.live(EXPIRY_MS // 2)
    log.restart()
    log.live(EXPIRY_MS // 2)
    assert log.machine.producers.get(7) is not None
    log.live(1)
    assert log.machine.producers.get(7) is None


def test_one_too_many_costs_the_one_that_was_silent_longest(log: ProducedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MAX_PRODUCERS", 3)
    for producer in (1, 2, 3):
        log.opened(producer)
        log.send(producer, 0, 1, "a")
    log.send(1, 0, 2, "b")
    log.restart()
    log.opened(4)
    assert sorted(row.producer_id for row in log.machine.producers.rows()) == [1, 3, 4]


@pytest.mark.parametrize("restarted", [False, True])
def test_who_opens_too_many_and_sends_nothing_pushes_out_its_own(
    log: ProducedLog, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    monkeypatch.setattr(rules, "MAX_PRODUCERS", 4)
    for producer in (1, 2):
        log.opened(producer)
        log.send(producer, 0, 1, "a")
    log.opened(2, 1)  # a new epoch in which nothing was sent yet
    for producer in range(10, 20):
        log.opened(producer)
        if restarted:
            log.restart()
    assert sorted(row.producer_id for row in log.machine.producers.rows()) == [1, 17, 18, 19]
    log.send(17, 0, 1, "a")
    log.opened(20)
    assert sorted(row.producer_id for row in log.machine.producers.rows()) == [1, 17, 19, 20]
    assert isinstance(log.send(1, 0, 2, "b"), AppendAccepted)


def test_memory_is_bounded_and_losing_it_doubles_nothing(log: ProducedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MEMORY_BYTES", 200)
    for producer in (1, 2, 3):
        log.opened(producer)
        log.send(producer, 0, 1, "abcdefghijklmnop")
    log.opened(1)  # heard of last, though it sent first
    log.restart()
    assert log.machine.producers.memory_bytes == 2 * (20 + 64)
    assert [log.producer(producer).remembered for producer in (1, 2, 3)] == [0, 16, 16]
    again = log.send(1, 0, 16, "p")
    assert again == AppendAccepted(FORGOTTEN, 0, 0, (StoredAt(1, FORGOTTEN, 0),))
    assert log.machine.state.next_offset == 48
    assert isinstance(log.send(1, 0, 17, "q"), AppendAccepted)


@pytest.mark.parametrize("restarted", [False, True])
def test_where_memory_is_scarce_everybody_keeps_the_least_before_anybody_loses_all(
    log: ProducedLog, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    monkeypatch.setattr(rules, "REMEMBERED_EVENTS", 64)
    monkeypatch.setattr(rules, "LEAST_EVENTS", 8)
    monkeypatch.setattr(rules, "MEMORY_BYTES", 3 * 8 * (20 + 4) + 10 * (20 + 4))
    for producer in (1, 2, 3):
        log.opened(producer)
        for number in range(1, 9 if producer == 2 else 65):
            log.send(producer, 0, number, "a")
            if restarted and number % 7 == 0:
                log.restart()
    # 1 was silent for longest, then 2, which has no more than the least; what is left is for 3, which sends
    assert [log.producer(producer).remembered for producer in (1, 2, 3)] == [8, 8, 18]
    for number in range(9, 30):
        log.send(2, 0, number, "b")
    assert [log.producer(producer).remembered for producer in (1, 2, 3)] == [8, 18, 8]
    assert isinstance(log.send(1, 0, 57, "a" * 8), AppendAccepted)
    assert code(log.send(1, 0, 57, "b" * 8)) == "out-of-order"
    assert log.send(1, 0, 56, "a") == AppendAccepted(FORGOTTEN, 0, 0, (StoredAt(1, FORGOTTEN, 0),))


# ---------------------------------------------------------------- checkpoints


def test_a_checkpoint_has_the_order_of_touches_and_all_that_later_decisions_need(log: ProducedLog) -> None:
    for producer in (9, 2, 5):
        log.opened(producer)
        log.send(producer, 0, 1, "abc")
    log.restart()
    state = msgspec.msgpack.decode(log.machine.checkpoint(), type=LogState)
    assert [row.producer_id for row in state.producers] == [9, 2, 5]
    assert isinstance(log.send(5, 0, 2, "bcd"), AppendAccepted)
    assert code(log.send(5, 0, 2, "bXd")) == "out-of-order"


def test_replicas_agree_on_who_was_silent_longest_within_one_entry(
    log: ProducedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "MEMORY_BYTES", 3 * 24)
    for producer in (1, 2, 3):
        log.opened(producer)
    batches = [
        batch_of([b"a"], log.now_ms, producer_id=producer, producer_epoch=0, base_sequence=1, digests=b"aaaa")
        for producer in (3, 1, 2)
    ]
    log.apply(join(batches))
    other = PartitionMachine()
    other.restore(log.machine.checkpoint())
    entry = batch_of([b"b"], log.now_ms, producer_id=2, producer_epoch=0, base_sequence=2, digests=b"bbbb")
    for machine in (log.machine, other):
        machine.apply(log.index + 1, join([entry]))
        forgotten = [row.producer_id for row in machine.producers.rows() if not row.remembered]
        assert forgotten == [3], "it was the first of its entry"
    assert log.machine.checkpoint() == other.checkpoint()


@pytest.mark.parametrize("restarted", [False, True])
def test_producers_that_renew_themselves_make_room_for_others(
    log: ProducedLog, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    monkeypatch.setattr(rules, "MAX_PRODUCERS", 4)
    for producer in (1, 2):
        log.opened(producer)
        log.send(producer, 0, 1, "a")
    for producer in range(10, 20):
        log.opened(producer, renews=True)
        log.send(producer, 0, 1, "a")
        if restarted:
            log.restart()
    assert sorted(row.producer_id for row in log.machine.producers.rows()) == [1, 2, 18, 19]
    log.opened(18)  # by somebody who keeps its state
    log.opened(20)
    assert sorted(row.producer_id for row in log.machine.producers.rows()) == [1, 2, 18, 20]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_producer_that_renews_itself_is_forgotten_after_a_day(log: ProducedLog, restarted: bool) -> None:
    log.opened(7, renews=True)
    log.opened(8)
    for producer in (7, 8):
        log.send(producer, 0, 1, "a")
    log.live(RENEWING_EXPIRY_MS)
    if restarted:
        log.restart()
    assert log.producer(7).renews
    log.live(1)
    assert log.machine.producers.get(7) is None
    assert not log.producer(8).renews
