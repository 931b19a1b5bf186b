"""Each row of the table in `transaction_state.py`, and the two rules behind it: consumer groups, and what is stable."""

from __future__ import annotations

import pytest

from holdfast.client.transact.transaction import MOST_UNDER_WAY
from node.partition.consumer_groups.group_state import (
    Claim,
    Commit,
    Delete,
    Denied,
    Done,
    End,
    EndClaim,
    Owned,
    terminus_key,
)
from node.partition.partition_commands import Trim, encode_group_command
from node.partition.state_machine import AppendAccepted, AppendRejected, Trimmed
from node.partition.transactions import transaction_state
from node.partition.transactions.transaction_commands import Begin
from node.partition.transactions.transaction_state import TransactionDone, TransactionsRow, TransactionTable
from tests.unit.partition.transactions.driving import DrivenPartition, code_of

P, Q = 1 << 40, 5


@pytest.fixture
def partition() -> DrivenPartition:
    return DrivenPartition()


def begun(partition: DrivenPartition, producer: int = P, epoch: int = 0) -> None:
    assert partition.begin(producer, epoch) == TransactionDone()


# ---------------------------------------------------------------- begin


def test_a_begin_that_comes_again_is_done_and_changes_nothing(partition: DrivenPartition) -> None:
    begun(partition)
    partition.send(P, 0, 0, "ab")
    before = partition.machine.transactions.row()
    begun(partition)
    assert partition.machine.transactions.row() == before


@pytest.mark.parametrize("commit", [True, False])
def test_a_begin_that_comes_after_the_end_is_refused(partition: DrivenPartition, commit: bool) -> None:
    begun(partition, epoch=3)
    partition.end(P, 3, commit=commit)
    for late in (3, 2):
        assert code_of(partition.begin(P, late)) == "ended"
    begun(partition, epoch=4)


def test_a_begin_that_is_overtaken_by_the_end_never_opens_anything(partition: DrivenPartition) -> None:
    """The coordinator told the partition of an abort before the begin arrived."""
    assert partition.end(P, 0, commit=False) == TransactionDone()
    partition.restart()
    assert code_of(partition.begin(P, 0)) == "ended"
    assert partition.machine.transactions.open() == []


def test_the_next_transaction_waits_for_the_marker_of_the_one_before(partition: DrivenPartition) -> None:
    begun(partition)
    assert code_of(partition.begin(P, 1)) == "undecided"
    partition.end(P, 0, commit=True)
    begun(partition, epoch=1)
    assert code_of(partition.begin(P, 0)) == "ended"


@pytest.mark.parametrize(
    ("producer", "epoch", "timeout_ms"),
    [(-1, 0, 1000), (2**63 - 1, -1, 1000), (1, 32768, 1000), (1, 0, 0), (1, 0, 4 * 3600 * 1000 + 1)],
)
def test_nonsense_is_refused(partition: DrivenPartition, producer: int, epoch: int, timeout_ms: int) -> None:
    assert code_of(partition._told(Begin(producer, epoch, 3, timeout_ms, partition.now_ms))) == "invalid"


def test_open_transactions_are_bounded(partition: DrivenPartition, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_state, "MAX_OPEN", 2)
    begun(partition, 1)
    begun(partition, 2)
    assert code_of(partition.begin(3, 0)) == "too-many"
    begun(partition, 1)  # again: known
    partition.end(2, 0, commit=False)
    begun(partition, 3)


# ---------------------------------------------------------------- events


def test_events_are_stored_once_each_however_they_are_cut(partition: DrivenPartition) -> None:
    begun(partition)
    assert partition.send(P, 0, 0, "abc") == AppendAccepted(0, partition.now_ms, 3)
    partition.plain(2)
    again = partition.send(P, 0, 1, "bcd")
    assert isinstance(again, AppendAccepted)
    assert (again.base_offset, again.count, [one.base_offset for one in again.known]) == (5, 1, [1])
    assert partition.machine.state.next_offset == 6


def test_what_two_windows_hold_is_recognised_when_it_comes_again(partition: DrivenPartition) -> None:
    begun(partition)
    count = 2 * MOST_UNDER_WAY
    for number in range(count):
        partition.send(P, 0, number, "a")
    again = partition.send(P, 0, 0, "a" * count)
    assert isinstance(again, AppendAccepted)
    assert (again.duplicate, partition.machine.state.next_offset) == (True, count)


def test_events_begin_with_number_0_and_leave_no_gap(partition: DrivenPartition) -> None:
    begun(partition)
    assert code_of(partition.send(P, 0, 1, "b")) == "out-of-order"
    partition.send(P, 0, 0, "a")
    assert code_of(partition.send(P, 0, 2, "c")) == "out-of-order"
    assert code_of(partition.send(P, 0, 0, "x")) == "out-of-order", "other bytes under a number that was used"
    assert partition.machine.state.next_offset == 1


def test_without_a_begin_and_after_the_end_events_are_refused(partition: DrivenPartition) -> None:
    assert code_of(partition.send(P, 0, 0, "a")) == "transaction-ended"
    begun(partition)
    assert code_of(partition.send(P, 1, 0, "a")) == "transaction-ended"
    partition.end(P, 0, commit=True)
    assert code_of(partition.send(P, 0, 0, "a")) == "transaction-ended"
    begun(partition, epoch=1)
    assert code_of(partition.send(P, 0, 0, "a")) == "transaction-ended", "delayed into the next transaction"
    assert partition.machine.state.next_offset == 0


def test_a_transaction_has_nothing_to_do_with_an_idempotent_producer_of_its_id(partition: DrivenPartition) -> None:
    begun(partition, 5)
    partition.send(5, 0, 0, "a")
    assert partition.machine.producers.get(5) is None


# ---------------------------------------------------------------- what is stable


def test_the_stable_offset_stands_before_the_oldest_open_transaction(partition: DrivenPartition) -> None:
    partition.plain(2)
    begun(partition, P)
    begun(partition, Q)
    assert partition.stable_offset == 2, "a begin without an event holds nothing up"
    partition.send(Q, 0, 0, "a")
    partition.send(P, 0, 0, "b")
    partition.plain(3)
    assert partition.stable_offset == 2
    partition.end(P, 0, commit=True)
    assert partition.stable_offset == 2, "the other one is older"
    partition.restart()
    assert partition.stable_offset == 2
    partition.end(Q, 0, commit=False)
    assert partition.stable_offset == partition.machine.state.next_offset == 7
    assert partition.machine.transactions.is_aborted((Q, 0), 2)
    assert not partition.machine.transactions.is_aborted((P, 0), 3)


def test_a_marker_takes_no_offset_and_comes_as_often_as_it_likes(partition: DrivenPartition) -> None:
    begun(partition)
    partition.send(P, 0, 0, "a")
    for _ in range(3):
        assert partition.end(P, 0, commit=False) == TransactionDone()
    assert partition.machine.state.next_offset == 1
    assert partition.machine.transactions.aborted == 1


def test_a_delayed_marker_of_an_older_epoch_ends_nothing(partition: DrivenPartition) -> None:
    begun(partition, epoch=0)
    partition.end(P, 0, commit=True)
    begun(partition, epoch=1)
    partition.send(P, 1, 0, "a")
    assert partition.end(P, 0, commit=False) == TransactionDone()
    assert partition.machine.transactions.get(P, 1) is not None
    assert partition.stable_offset == 0


def test_a_marker_from_beyond_an_open_epoch_is_refused(partition: DrivenPartition) -> None:
    begun(partition, epoch=0)
    assert code_of(partition.end(P, 1, commit=True)) == "undecided"
    assert partition.machine.transactions.get(P, 0) is not None


@pytest.mark.parametrize("ends", ["in memory", "from a checkpoint"])
def test_what_was_committed_stays_so_when_its_end_was_forgotten_and_it_came_again(
    partition: DrivenPartition, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """A begin and an event that were delayed behind the ends of ten thousand others: the partition aborts them."""
    monkeypatch.setattr(transaction_state, "MAX_ENDED", 1)
    begun(partition)
    partition.send(P, 0, 0, "a")
    partition.end(P, 0, commit=True)
    partition.end(Q, 0, commit=True)
    begun(partition)
    partition.send(P, 0, 0, "a")
    partition.end(P, 0, commit=False)
    if ends == "from a checkpoint":
        partition.restart()
    assert not partition.machine.transactions.is_aborted((P, 0), 0), "a committed reader has seen it"
    assert partition.machine.transactions.is_aborted((P, 0), 1)


def test_what_was_aborted_twice_stays_aborted_when_the_first_time_is_trimmed(
    partition: DrivenPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_state, "MAX_ENDED", 1)
    for others in range(2):
        begun(partition)
        partition.send(P, 0, 0, "a")
        partition.end(P, 0, commit=False)
        partition.end(Q, others, commit=True)
    half = partition.machine.state.total_bytes // 2
    assert isinstance(partition.apply(Trim(1, 2, half).encode()), Trimmed)
    assert partition.machine.transactions.is_aborted((P, 0), 1)


def test_retention_never_takes_what_is_undecided(partition: DrivenPartition) -> None:
    partition.plain(4)
    begun(partition)
    partition.send(P, 0, 0, "ab")
    assert isinstance(partition.apply(Trim(6, 3, 1).encode()), AppendRejected)
    total = partition.machine.state.total_bytes
    partition.end(P, 0, commit=False)
    assert isinstance(partition.apply(Trim(6, 3, total).encode()), Trimmed)
    assert partition.machine.transactions.aborted == 0, "nobody can ask about them any more"


def test_producers_that_ended_are_remembered_in_a_bounded_number(
    partition: DrivenPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_state, "MAX_ENDED", 3)
    for producer in (1, 2, 3, 1, 4):
        epoch = 1 if producer == 1 and partition.machine.transactions.row().ended else 0
        partition.begin(producer, epoch)
        partition.end(producer, epoch, commit=True)
    assert [one.producer_id for one in partition.machine.transactions.row().ended] == [3, 1, 4]


# ---------------------------------------------------------------- offsets of consumer groups


def test_a_staged_offset_counts_when_the_transaction_commits(partition: DrivenPartition) -> None:
    partition.plain(10)
    claim = partition.claimed("g").claim
    begun(partition)
    assert partition.stage(P, 0, "g", claim, 4) == TransactionDone()
    assert partition.stage(P, 0, "g", claim, 7) == TransactionDone()
    assert partition.stage(P, 0, "g", claim, 5) == TransactionDone(), "late: the position never goes back"
    assert partition.position("g") == -1
    partition.restart()
    assert partition.prepare(P, 0) == TransactionDone()
    assert partition.position("g") == -1
    partition.end(P, 0, commit=True)
    assert partition.position("g") == 7


def test_a_staged_offset_is_gone_when_the_transaction_aborts(partition: DrivenPartition) -> None:
    partition.plain(10)
    claim = partition.claimed("g").claim
    begun(partition)
    partition.stage(P, 0, "g", claim, 4)
    partition.end(P, 0, commit=False)
    assert partition.position("g") == -1
    assert partition.machine.transactions.aborted == 0, "it wrote no event"


def test_a_claim_that_takes_over_dooms_what_was_staged(partition: DrivenPartition) -> None:
    """The hole of KIP-447: frozen between offset and commit, replaced, thawed."""
    partition.plain(10)
    claim = partition.claimed("g", 1).claim
    begun(partition)
    partition.stage(P, 0, "g", claim, 4)
    assert partition.claimed("g", 2).position == -1
    partition.restart()
    assert code_of(partition.prepare(P, 0)) == "doomed"
    assert code_of(partition.stage(P, 0, "g", claim, 5)) == "not-owner"
    partition.end(P, 0, commit=False)
    assert partition.position("g") == -1


def test_a_claim_that_is_refused_dooms_nothing(partition: DrivenPartition) -> None:
    partition.plain(10)
    claim = partition.claimed("g", 2).claim
    begun(partition)
    partition.stage(P, 0, "g", claim, 4)
    assert isinstance(partition.claim("g", 1), Denied)
    assert partition.prepare(P, 0) == TransactionDone()


def test_while_it_is_being_decided_nobody_takes_over(partition: DrivenPartition) -> None:
    partition.plain(10)
    claim = partition.claimed("g", 1).claim
    begun(partition)
    partition.stage(P, 0, "g", claim, 4)
    partition.prepare(P, 0)
    denied = partition.claim("g", 2)
    assert isinstance(denied, Denied)
    assert denied.code == "deciding"
    partition.end(P, 0, commit=True)
    assert partition.claimed("g", 2).position == 4


def test_an_owner_that_leaves_for_good_leaves_its_prepared_offset(partition: DrivenPartition) -> None:
    partition.plain(10)
    claim = partition.claimed("g").claim
    begun(partition)
    partition.stage(P, 0, "g", claim, 4)
    partition.prepare(P, 0)
    assert isinstance(partition.apply(encode_group_command(EndClaim("g", claim, 0, partition.now_ms))), Done)
    partition.end(P, 0, commit=True)
    assert partition.position("g") == 4


@pytest.mark.parametrize("prepared", [True, False])
def test_an_operator_who_moves_the_group_comes_before_or_after_never_between(
    partition: DrivenPartition, prepared: bool
) -> None:
    partition.plain(10)
    claim = partition.claimed("g").claim
    begun(partition)
    partition.stage(P, 0, "g", claim, 4)
    partition.apply(encode_group_command(EndClaim("g", claim, 1, partition.now_ms)))
    if prepared:
        partition.prepare(P, 0)
    result = partition.apply(encode_group_command(Commit("g", 0, 2, partition.now_ms)))
    if prepared:
        assert isinstance(result, Denied)
        assert result.code == "deciding"
        deleted = partition.apply(encode_group_command(Delete("g", partition.now_ms)))
        assert isinstance(deleted, Denied)
    else:
        assert result == Done(2)
        assert code_of(partition.prepare(P, 0)) == "doomed"


@pytest.mark.parametrize("how", [End.CLOSED, End.LOST])
def test_a_terminus_that_is_gone_does_not_come_back_by_a_commit(partition: DrivenPartition, how: End) -> None:
    partition.plain(10)
    key = terminus_key("link")
    owned = partition.apply(encode_group_command(Claim(key, "m", "link", expiry_s=0, timestamp_ms=partition.now_ms)))
    assert isinstance(owned, Owned)
    begun(partition)
    assert partition.stage(P, 0, key, owned.claim, 5) == partition.prepare(P, 0) == TransactionDone()
    partition.apply(encode_group_command(EndClaim(key, owned.claim, how, partition.now_ms)))
    partition.end(P, 0, commit=True)
    assert partition.machine.ownership.get(key) is None


def test_after_an_operators_word_nobody_stages_without_a_claim(partition: DrivenPartition) -> None:
    """His commit takes every claim out of force, and stands there as claim 0."""
    partition.plain(10)
    begun(partition)
    assert partition.apply(encode_group_command(Commit("g", 0, 2, partition.now_ms))) == Done(2)
    assert code_of(partition.stage(P, 0, "g", 0, 7)) == "not-owner"
    partition.end(P, 0, commit=True)
    assert partition.position("g") == 2


def test_staging_is_refused_to_who_does_not_own_and_beyond_the_log(partition: DrivenPartition) -> None:
    partition.plain(10)
    claim = partition.claimed("g").claim
    assert code_of(partition.stage(P, 0, "g", claim, 4)) == "ended"
    begun(partition)
    assert code_of(partition.stage(P, 0, "g", claim + 1, 4)) == "not-owner"
    assert code_of(partition.stage(P, 0, "other", claim, 4)) == "not-owner"
    for position in (-1, 11):
        assert code_of(partition.stage(P, 0, "g", claim, position)) == "invalid"
    assert partition.stage(P, 0, "g", claim, 10) == TransactionDone()


def test_what_a_transaction_moves_is_bounded(partition: DrivenPartition, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_state, "MAX_STAGED", 1)
    partition.plain(1)
    one, two = partition.claimed("one").claim, partition.claimed("two").claim
    begun(partition)
    partition.stage(P, 0, "one", one, 1)
    assert code_of(partition.stage(P, 0, "two", two, 1)) == "too-many"


def test_a_prepare_of_what_is_not_open_is_refused(partition: DrivenPartition) -> None:
    assert code_of(partition.prepare(P, 0)) == "unknown"
    begun(partition)
    assert code_of(partition.prepare(P, 1)) == "unknown"
    claim = partition.claimed("g").claim
    assert partition.prepare(P, 0) == TransactionDone()
    assert partition.prepare(P, 0) == TransactionDone()
    assert code_of(partition.stage(P, 0, "g", claim, 0)) == "invalid", "nothing comes in behind a prepare"


# ---------------------------------------------------------------- a snapshot anywhere


def test_a_checkpoint_between_begin_and_first_event_keeps_the_transaction(partition: DrivenPartition) -> None:
    begun(partition)
    partition.restart()
    assert isinstance(partition.send(P, 0, 0, "a"), AppendAccepted)
    partition.restart()
    partition.end(P, 0, commit=True)
    assert partition.stable_offset == 1


def test_a_checkpoint_that_knew_no_transactions_is_read() -> None:
    assert TransactionTable(TransactionsRow()).stable_offset(9) == 9
