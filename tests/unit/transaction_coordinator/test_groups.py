"""Each cell of the table in `transaction_groups/group_state_machine.py`, each row of its transitions, and what is
recognised if repeated."""

from __future__ import annotations

from itertools import product

import pytest

from node.transaction_coordinator.coordinator_commands import Decided
from node.transaction_coordinator.transaction_groups import group_state_machine as writers_module
from node.transaction_coordinator.transaction_groups.group_commands import (
    GroupDecided,
    Joined,
    Prepared,
    WriterOpened,
    member_name,
)
from node.transaction_coordinator.transaction_groups.group_transitions import (
    GroupState,
    MemberFate,
    check_fate,
    check_group,
)
from node.transaction_coordinator.transitions import IllegalTransition, TransactionState
from tests.unit.transaction_coordinator.driving import (
    DONE,
    DrivenCoordinator,
    closed_at,
    code_of,
    opened,
    outcome,
    state_of,
)

DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def coordinator() -> DrivenCoordinator:
    return DrivenCoordinator()


# ---------------------------------------------------------------- transitions


def test_only_what_the_tables_say_may_follow() -> None:
    groups = {
        (GroupState.CLOSED, GroupState.OPEN), (GroupState.OPEN, GroupState.DECIDING),
        (GroupState.OPEN, GroupState.CLOSED), (GroupState.DECIDING, GroupState.CLOSED),
    }  # fmt: skip
    fates = {
        (MemberFate.JOINED, MemberFate.PREPARED), (MemberFate.JOINED, MemberFate.ABORTED),
        (MemberFate.PREPARED, MemberFate.ABORTED), (MemberFate.PREPARED, MemberFate.COMMITTED),
    }  # fmt: skip
    for before, after in product(GroupState, GroupState):
        if (before, after) in groups:
            assert check_group(before, after) is after
        else:
            with pytest.raises(IllegalTransition):
                check_group(before, after)
    for fate, next_fate in product(MemberFate, MemberFate):
        if (fate, next_fate) in fates:
            assert check_fate(fate, next_fate) is next_fate
        else:
            with pytest.raises(IllegalTransition):
                check_fate(fate, next_fate)


# ---------------------------------------------------------------- nothing open


def test_a_batch_above_the_last_closed_one_is_opened(coordinator: DrivenCoordinator) -> None:
    assert coordinator.open_group(4) == WriterOpened(False, -1, False, 60_000), "nobody knew the writer"
    assert coordinator.commit_group(batch=4) == DONE
    assert coordinator.open_group(9) == WriterOpened(False, 4, True, 60_000), "batches may leave numbers out"


def test_a_batch_at_or_below_the_last_closed_one_is_done(coordinator: DrivenCoordinator) -> None:
    closed_at(coordinator, 4)
    for batch in (4, 3, 0):
        assert coordinator.open_group(batch) == WriterOpened(True, 4, True, 60_000)
        assert coordinator.group is None
        assert coordinator.commit_group(batch=batch, run="another one") == DONE
        assert code_of(coordinator.abort_group(batch)) == "fenced", "it was committed"


def test_nobody_joins_what_is_not_open(coordinator: DrivenCoordinator) -> None:
    assert code_of(coordinator.join()) == "unknown-id"
    closed_at(coordinator, 4)
    assert code_of(coordinator.join(batch=4)) == "fenced"
    assert code_of(coordinator.join(batch=5)) == "fenced"


def test_nothing_is_committed_that_is_not_open_and_it_is_said_why(coordinator: DrivenCoordinator) -> None:
    assert code_of(coordinator.commit_group()) == "unknown-id"
    opened(coordinator.open_group(1))
    coordinator.live(60_000)
    assert coordinator.expire_group(1) == GroupDecided(False, True)
    result = coordinator.commit_group(batch=1)
    assert code_of(result) == "expired"
    assert "its time was over" in str(result)
    opened(coordinator.open_group(2))
    coordinator.abort_group(by_operator=True, batch=-1)
    assert "by an operator" in str(coordinator.commit_group(batch=2))
    assert code_of(coordinator.commit_group(batch=7)) == "ended"


# ---------------------------------------------------------------- open


def test_an_open_that_comes_again_is_the_same_one(coordinator: DrivenCoordinator) -> None:
    opened(coordinator.open_group(1))
    member = coordinator.joined("0", 11, batch=1)
    coordinator.restart()
    assert coordinator.open_group(1) == WriterOpened(False, -1, True, 60_000)
    assert state_of(coordinator, member) is TransactionState.ONGOING, "nothing has happened to its members"


@pytest.mark.parametrize(("batch", "run"), [(1, "newer"), (0, "newer"), (2, "r"), (5, "newer")])
def test_a_newer_run_or_a_later_batch_aborts_what_is_open(coordinator: DrivenCoordinator, batch: int, run: str) -> None:
    opened(coordinator.open_group(1))
    writing, prepared = coordinator.joined("0", 11, batch=1), coordinator.joined("1", 12, batch=1)
    coordinator.prepare(prepared)
    opened(coordinator.open_group(batch, run))
    assert state_of(coordinator, writing) is state_of(coordinator, prepared) is TransactionState.PREPARE_ABORT
    assert code_of(coordinator.write(writing, 13)) == "fenced"
    assert code_of(coordinator.join("2", batch=1, run="r")) == "fenced"
    coordinator.mark_all()
    assert coordinator.group is not None
    assert (coordinator.group.batch, coordinator.group.members) == (batch, [])
    assert outcome(coordinator, prepared) is False


def test_a_run_that_was_succeeded_stays_so(coordinator: DrivenCoordinator) -> None:
    opened(coordinator.open_group(1, "old"))
    opened(coordinator.open_group(1, "new"))
    coordinator.restart()
    assert code_of(coordinator.open_group(1, "old")) == "fenced"
    assert code_of(coordinator.open_group(2, "old")) == "fenced"
    assert code_of(coordinator.join(batch=1, run="old")) == "fenced"
    assert code_of(coordinator.commit_group(batch=1, run="old")) == "fenced"
    assert code_of(coordinator.abort_group(batch=1, run="old")) == "fenced"
    assert coordinator.group is not None
    assert coordinator.group.run == "new"
    assert code_of(coordinator.commit_group(batch=1, run="never opened")) == "fenced"


def test_a_new_run_that_replays_a_closed_batch_fences_the_one_before(coordinator: DrivenCoordinator) -> None:
    closed_at(coordinator, 1, "old")
    opened(coordinator.open_group(2, "old"))
    assert opened(coordinator.open_group(1, "old")).already_done, "its own earlier batch, asked for late"
    assert coordinator.group is not None
    assert opened(coordinator.open_group(1, "new")).already_done
    assert coordinator.group is None
    assert code_of(coordinator.commit_group(batch=2, run="old")) == "fenced"


def test_a_run_goes_back_to_no_batch_before_the_open_one(coordinator: DrivenCoordinator) -> None:
    opened(coordinator.open_group(5))
    assert code_of(coordinator.open_group(4)) == "fenced"
    assert coordinator.group is not None
    assert coordinator.group.batch == 5


def test_runs_that_are_remembered_are_bounded(coordinator: DrivenCoordinator) -> None:
    for number in range(writers_module.MAX_RUNS + 5):
        opened(coordinator.open_group(1, f"run-{number}"))
    writer = coordinator.machine.writers.get("w")
    assert writer is not None
    assert len(writer.earlier_runs) == writers_module.MAX_RUNS
    assert code_of(coordinator.open_group(1, f"run-{writers_module.MAX_RUNS}")) == "fenced"


# ---------------------------------------------------------------- another query


def test_another_query_with_an_old_batch_is_an_error_and_never_a_silent_skip(coordinator: DrivenCoordinator) -> None:
    closed_at(coordinator, 7, "r1", "q1")
    for batch in (0, 6, 7):
        result = coordinator.open_group(batch, "r2", "q2")
        assert code_of(result) == "another-query"
        assert "Was its checkpoint deleted?" in str(result)
    assert opened(coordinator.open_group(7, "r1", "q1")).already_done, "it has not succeeded the run that is there"
    assert not opened(coordinator.open_group(8, "r2", "q2")).already_done, "it goes on where the other one ended"


def test_a_query_that_only_opened_a_batch_has_not_written_it(coordinator: DrivenCoordinator) -> None:
    closed_at(coordinator, 7, "r1", "q1")
    opened(coordinator.open_group(8, "r2", "q2"))
    coordinator.abort_group(8, "r2")
    assert opened(coordinator.open_group(7, "r3", "q1")).already_done
    assert code_of(coordinator.open_group(7, "r4", "q2")) == "another-query"


# ---------------------------------------------------------------- members


def test_a_join_that_comes_again_is_the_same_member(coordinator: DrivenCoordinator) -> None:
    opened(coordinator.open_group())
    first = coordinator.joined("3", 11)
    coordinator.restart()
    assert coordinator.join("3") == first
    assert coordinator.join("3", holder="another attempt") != first, "several attempts of one part may be alive"
    assert coordinator.group is not None
    assert len(coordinator.group.members) == 2
    coordinator.prepare(first)
    assert code_of(coordinator.join("3")) == "fenced"


def test_a_member_without_a_sign_of_life_is_aborted(coordinator: DrivenCoordinator) -> None:
    opened(coordinator.open_group())
    silent, empty = coordinator.joined("0", 11), coordinator.joined("1")
    for member in (silent, empty):
        assert coordinator.expire_member(member) == GroupDecided(False, False)
        assert code_of(coordinator.expire_member(member)) == "ended"
        result = coordinator.prepare(member)
        assert code_of(result) == "expired"
        assert "silent for as long as its lease" in str(result)
    assert (state_of(coordinator, silent), state_of(coordinator, empty)) == (TransactionState.PREPARE_ABORT, None)
    assert outcome(coordinator, silent) is False
    assert code_of(coordinator.write(silent, 12)) == "expired"
    coordinator.mark_all()
    assert code_of(coordinator.write(silent, 12)) == "fenced"
    assert coordinator.group is not None, "the group goes on without it"


def test_a_prepared_member_has_no_lease_and_writes_no_more(coordinator: DrivenCoordinator) -> None:
    opened(coordinator.open_group())
    member = coordinator.joined("0", 11)
    assert coordinator.prepare(member) == Prepared(member.member)
    coordinator.restart()
    assert coordinator.prepare(member) == Prepared(member.member)
    assert code_of(coordinator.expire_member(member)) == "ended"
    assert code_of(coordinator.write(member, 12)) == "ended"
    pair = (member.producer_id, member.epoch)
    assert code_of(coordinator.end(pair, commit=False, name=member_name(member.member))) == "ended"
    assert outcome(coordinator, member) is None


def test_a_member_gives_up_by_itself_and_never_commits_by_itself(coordinator: DrivenCoordinator) -> None:
    opened(coordinator.open_group())
    member, empty = coordinator.joined("0", 11), coordinator.joined("1")
    pair, name = (member.producer_id, member.epoch), member_name(member.member)
    assert code_of(coordinator.end(pair, commit=True, name=name)) == "invalid"
    assert coordinator.end(pair, commit=False, name=name) == Decided(False, False, "client", *pair)
    coordinator.mark_all()
    assert coordinator.end(pair, commit=False, name=name) == Decided(False, True, "client", *pair), "asked again"
    pair, name = (empty.producer_id, empty.epoch), member_name(empty.member)
    assert coordinator.end(pair, commit=False, name=name) == Decided(False, True, "client", *pair)
    assert code_of(coordinator.commit_group(member)) == "not-prepared"


def test_nobody_registers_the_id_of_a_member(coordinator: DrivenCoordinator) -> None:
    opened(coordinator.open_group())
    member = coordinator.joined("0", 11)
    assert code_of(coordinator.register(member_name(member.member))) == "invalid"


def test_the_time_of_a_member_is_that_of_its_group(coordinator: DrivenCoordinator) -> None:
    opened(coordinator.open_group())
    member = coordinator.joined("0", 11)
    coordinator.prepare(member)
    coordinator.live(60_000)
    assert coordinator.machine.overdue(coordinator.now_ms) == []
    pair = (member.producer_id, member.epoch)
    assert code_of(coordinator.expire(pair, member_name(member.member))) == "ended"
    assert [group.batch for _, group in coordinator.machine.writers.overdue(coordinator.machine.now_ms)] == [0]
    assert coordinator.expire_group() == GroupDecided(False, True)
    assert state_of(coordinator, member) is TransactionState.PREPARE_ABORT


def test_a_group_ends_by_its_time_and_not_before(coordinator: DrivenCoordinator) -> None:
    opened(coordinator.open_group())
    coordinator.live(59_999)
    assert code_of(coordinator.expire_group()) == "ended"
    assert coordinator.machine.writers.overdue(coordinator.machine.now_ms) == []
    assert coordinator.group is not None


# ---------------------------------------------------------------- the decision


def test_one_command_commits_the_winners_and_aborts_all_others(coordinator: DrivenCoordinator) -> None:
    opened(coordinator.open_group(3))
    winner, other = coordinator.joined("0", 11, 12, batch=3), coordinator.joined("1", 11, batch=3)
    loser = coordinator.joined("0", 11, batch=3, attempt="1")
    writing, dead = coordinator.joined("2", 13, batch=3), coordinator.joined("3", 14, batch=3)
    coordinator.prepare(winner, other, loser)
    coordinator.expire_member(dead)
    assert coordinator.commit_group(winner, other, batch=3) == GroupDecided(True, False)
    coordinator.restart()
    assert [outcome(coordinator, one) for one in (winner, other, loser, writing, dead)] == [
        True, True, False, False, False,
    ]  # fmt: skip
    assert coordinator.closed == -1, "not before the markers are out"
    assert code_of(coordinator.join("9", batch=3)) == "fenced"
    assert code_of(coordinator.write(writing, 15)) == "fenced"
    assert code_of(coordinator.open_group(4)) == "busy"
    assert code_of(coordinator.abort_group(3)) == "ended"
    assert code_of(coordinator.abort_group(-1, by_operator=True)) == "ended"
    assert coordinator.commit_group(batch=3, run="whoever") == GroupDecided(True, False), "decided once, and for all"
    for one in coordinator.machine.decided():
        assert coordinator.closed == -1
        coordinator.complete(one.pair, one.name)
    assert coordinator.closed == 3
    assert coordinator.group is None
    assert len(coordinator.machine) == 0, "members are gone with their group"
    assert coordinator.commit_group(winner, batch=3) == DONE
    assert code_of(coordinator.prepare(writing)) == "forgotten"
    assert code_of(coordinator.write(winner, 16)) == "fenced"
    assert opened(coordinator.open_group(3, "replay")).already_done


def test_a_commit_of_who_is_not_prepared_decides_nothing_and_names_it(coordinator: DrivenCoordinator) -> None:
    opened(coordinator.open_group())
    ready, late, dead = coordinator.joined("0", 11), coordinator.joined("7", 12), coordinator.joined("8", 13)
    coordinator.prepare(ready)
    coordinator.expire_member(dead)
    result = coordinator.commit_group(ready, late, dead)
    assert code_of(result) == "not-prepared"
    assert f"{late.member} (part '7', attempt '0') is not prepared" in str(result)
    assert f"{dead.member} (part '8', attempt '0') is aborted" in str(result)
    assert outcome(coordinator, ready) is None
    coordinator.prepare(late)
    assert coordinator.commit_group(ready, late) == GroupDecided(True, False)


def test_winners_are_members_each_once_and_each_of_another_part(coordinator: DrivenCoordinator) -> None:
    opened(coordinator.open_group())
    one, twin = coordinator.joined("0", 11), coordinator.joined("0", 12, attempt="1")
    coordinator.prepare(one, twin)
    strange = Joined("7-7", 7, 7, 1, 1)
    for winners, code in (((one, strange), "not-prepared"), ((one, one), "invalid"), ((one, twin), "invalid")):
        assert code_of(coordinator.commit_group(*winners)) == code
        assert outcome(coordinator, one) is None


def test_a_member_of_an_earlier_batch_wins_no_later_one(coordinator: DrivenCoordinator) -> None:
    opened(coordinator.open_group(1))
    earlier = coordinator.joined("0", 11, batch=1)
    coordinator.prepare(earlier)
    opened(coordinator.open_group(2))
    assert code_of(coordinator.commit_group(earlier, batch=2)) == "not-prepared"
    coordinator.mark_all()
    later = coordinator.joined("0", 11, batch=2)
    assert later.producer_id == earlier.producer_id, "producer ids are used again, when nothing of them is under way"
    assert later.epoch == earlier.epoch + 1
    assert code_of(coordinator.commit_group(earlier, batch=2)) == "not-prepared"


def test_producer_ids_are_used_again_until_their_epochs_are_used_up() -> None:
    coordinator = DrivenCoordinator(epochs=2)
    pairs = []
    for batch in range(4):
        opened(coordinator.open_group(batch))
        member = coordinator.joined("0", 11, batch=batch)
        coordinator.prepare(member)
        coordinator.commit_group(member, batch=batch)
        coordinator.restart()
        coordinator.mark_all()
        pairs.append((member.producer_id, member.epoch))
    first, third = pairs[0][0], pairs[2][0]
    assert pairs == [(first, 0), (first, 1), (third, 0), (third, 1)]
    assert third == first + 1


def test_an_empty_batch_closes_at_once(coordinator: DrivenCoordinator) -> None:
    opened(coordinator.open_group())
    idle = coordinator.joined("0")
    coordinator.prepare(idle)
    assert coordinator.commit_group(idle) == DONE
    assert (coordinator.closed, state_of(coordinator, idle)) == (0, None)


def test_an_abort_leaves_the_writer_where_it_was(coordinator: DrivenCoordinator) -> None:
    closed_at(coordinator, 4)
    opened(coordinator.open_group(5))
    member = coordinator.joined("0", 11, batch=5)
    coordinator.prepare(member)
    assert coordinator.abort_group(5) == GroupDecided(False, True)
    assert coordinator.abort_group(5) == GroupDecided(False, True), "asked again"
    assert outcome(coordinator, member) is False
    assert code_of(coordinator.commit_group(member, batch=5)) == "ended"
    assert coordinator.closed == 4
    assert not opened(coordinator.open_group(5)).already_done


def test_an_operator_aborts_whatever_is_open(coordinator: DrivenCoordinator) -> None:
    assert code_of(coordinator.abort_group(-1, "", by_operator=True)) == "unknown-id"
    opened(coordinator.open_group(5, "some run"))
    assert coordinator.abort_group(-1, "", by_operator=True) == GroupDecided(False, True)
    assert code_of(coordinator.abort_group(-1, "", by_operator=True)) == "ended"
