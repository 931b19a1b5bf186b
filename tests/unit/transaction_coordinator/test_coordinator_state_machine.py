"""Each cell of the table in `state_machine.py`, each row of the transitions, and what is recognised after a lost
answer."""

from __future__ import annotations

from itertools import product

import pytest

from node.partition.state_machine import AppendAccepted, WrongCheckpoint
from node.partition.transactions import transaction_state
from node.partition.transactions.transaction_state import TransactionDone
from node.transaction_coordinator import state_machine as machine_module
from node.transaction_coordinator.coordinator_commands import Added, Decided, ForgetIdle, Forgotten, LastEnd, Registered
from node.transaction_coordinator.state_machine import CoordinatorMachine
from node.transaction_coordinator.transaction_groups.group_commands import member_name
from node.transaction_coordinator.transitions import IllegalTransition, check
from node.transaction_coordinator.transitions import TransactionState as State
from tests.unit.partition.transactions.driving import DrivenPartition
from tests.unit.transaction_coordinator.driving import GROUP, DrivenCoordinator, Pair, code_of

DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def coordinator() -> DrivenCoordinator:
    return DrivenCoordinator()


def ongoing(coordinator: DrivenCoordinator, *groups: int) -> Pair:
    pair = coordinator.registered()
    assert isinstance(coordinator.add(pair, *(groups or (11,))), Added)
    return pair


def decided(coordinator: DrivenCoordinator, *, commit: bool) -> Pair:
    pair = ongoing(coordinator)
    assert coordinator.end(pair, commit=commit) == Decided(commit, False, "client", *pair)
    return pair


# ---------------------------------------------------------------- transitions


def test_only_what_kafka_allows_may_follow() -> None:
    legal = {
        (State.EMPTY, State.EMPTY), (State.COMPLETE_COMMIT, State.EMPTY), (State.COMPLETE_ABORT, State.EMPTY),
        (State.ONGOING, State.ONGOING), (State.EMPTY, State.ONGOING), (State.COMPLETE_COMMIT, State.ONGOING),
        (State.COMPLETE_ABORT, State.ONGOING), (State.ONGOING, State.PREPARE_COMMIT),
        (State.ONGOING, State.PREPARE_ABORT), (State.EMPTY, State.PREPARE_ABORT),
        (State.COMPLETE_COMMIT, State.PREPARE_ABORT), (State.COMPLETE_ABORT, State.PREPARE_ABORT),
        (State.PREPARE_COMMIT, State.COMPLETE_COMMIT), (State.PREPARE_ABORT, State.COMPLETE_ABORT),
        (State.EMPTY, State.DEAD), (State.COMPLETE_COMMIT, State.DEAD), (State.COMPLETE_ABORT, State.DEAD),
    }  # fmt: skip
    for before, after in product(State, State):
        if (before, after) in legal:
            assert check(before, after) is after
        else:
            with pytest.raises(IllegalTransition):
                check(before, after)


# ---------------------------------------------------------------- register


def test_a_registration_that_is_repeated_is_the_same_until_it_is_used(coordinator: DrivenCoordinator) -> None:
    pair = coordinator.registered(holder="a")
    coordinator.restart()
    assert coordinator.registered(holder="a") == pair
    coordinator.add(pair, 11)
    coordinator.end(pair, commit=True)
    coordinator.complete(pair)
    assert code_of(coordinator.register(holder="a")) == "invalid", "it comes late: its pair was told, and is used"
    assert isinstance(coordinator.add((pair[0], 1), 11), Added), "and the holder goes on"
    assert code_of(coordinator.register(holder="a")) == "invalid"
    coordinator.end((pair[0], 1), commit=True)
    assert code_of(coordinator.register(holder="a")) == "invalid"
    coordinator.complete((pair[0], 1))


def test_a_holder_that_lost_its_pair_registers_again(coordinator: DrivenCoordinator) -> None:
    pair = coordinator.registered(holder="a")
    coordinator.end(pair, commit=True)
    later = coordinator.registered(holder="a", lost=pair)
    assert later == (pair[0], 2), "1 was of the registration before; this is a new one"
    coordinator.registered(holder="b")
    assert code_of(coordinator.register(holder="a", lost=later)) == "fenced"


def test_a_registration_of_who_lost_its_pair_that_comes_late_fences_nobody(coordinator: DrivenCoordinator) -> None:
    lost = coordinator.registered(holder="a")
    coordinator.add(lost, 11)
    coordinator.end(lost, commit=False)
    assert code_of(coordinator.register(holder="a", lost=lost)) == "busy"
    coordinator.complete(lost)
    pair = coordinator.registered(holder="a", lost=lost)
    assert coordinator.registered(holder="a", lost=lost) == pair, "its answer got lost"
    coordinator.restart()
    coordinator.add(pair, 11)
    assert code_of(coordinator.register(holder="a", lost=lost)) == "invalid"
    assert coordinator.end(pair, commit=True) == Decided(True, False, "client", *pair)
    assert code_of(coordinator.register(holder="a", lost=lost)) == "invalid"
    coordinator.complete(pair)
    assert code_of(coordinator.register(holder="a", lost=lost)) == "invalid"
    assert isinstance(coordinator.add((pair[0], pair[1] + 1), 11), Added)


def test_who_comes_back_is_let_in_only_if_nobody_came_since(coordinator: DrivenCoordinator) -> None:
    assert code_of(coordinator.register(holder="b", succeeds="a")) == "fenced", "nobody knows the id"
    first = coordinator.registered(holder="a")
    back = coordinator.register(holder="b", succeeds="a")
    assert isinstance(back, Registered)
    assert (back.producer_id, back.epoch) == (first[0], first[1] + 1), "what `a` still sends is of a pair that is over"
    coordinator.restart()
    assert coordinator.register(holder="b", succeeds="a") == back, "its answer got lost: asked once more"
    coordinator.registered(holder="c")
    assert code_of(coordinator.register(holder="b", succeeds="a")) == "fenced"
    assert code_of(coordinator.register(holder="d", succeeds="b")) == "fenced"
    assert isinstance(coordinator.register(holder="d", succeeds="c"), Registered)


@pytest.mark.parametrize("is_open", [False, True])
def test_a_late_try_of_the_first_attach_takes_nothing_from_its_successor(
    coordinator: DrivenCoordinator, is_open: bool
) -> None:
    """The client was answered at another node, and has attached once more since, in the same name of an id."""
    coordinator.registered(holder="a")
    result = coordinator.register(holder="b", succeeds="a")
    assert isinstance(result, Registered)
    pair = (result.producer_id, result.epoch)
    if is_open:
        coordinator.add(pair, 11)
    coordinator.restart()
    assert code_of(coordinator.register(holder="a")) == "fenced"
    assert isinstance(coordinator.add(pair, 11), Added), "and the holder goes on"
    assert coordinator.end(pair, commit=True) == Decided(True, False, "client", *pair)


def test_another_holder_fences_the_one_before(coordinator: DrivenCoordinator) -> None:
    first = coordinator.registered(holder="a")
    second = coordinator.registered(holder="b")
    assert second == (first[0], first[1] + 1)
    assert code_of(coordinator.add(first, 11)) == "fenced"
    assert code_of(coordinator.end(first, commit=True)) == "fenced", "nothing of it was ever decided, nor will be"
    assert isinstance(coordinator.add(second, 11), Added)


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_that_may_have_been_decided_otherwise_is_forgotten(coordinator: DrivenCoordinator, commit: bool) -> None:
    first = ongoing(coordinator, 11)
    coordinator.end(first, commit=True)
    coordinator.complete(first)
    for holder in ("b", "c"):
        pair = coordinator.registered(holder=holder)
        coordinator.add(pair, 11)
        coordinator.end(pair, commit=False)
        coordinator.complete(pair)
    coordinator.registered(holder="d")
    coordinator.restart()
    assert code_of(coordinator.end(first, commit=commit)) == "forgotten", "it was committed"
    never = coordinator.registered(holder="e")
    coordinator.registered(holder="f")
    assert code_of(coordinator.end(never, commit=commit)) == "fenced", "a registration passed it over"


def test_another_holder_ends_what_is_under_way_before_it_gets_an_epoch(coordinator: DrivenCoordinator) -> None:
    first = ongoing(coordinator, 11, 12)
    assert code_of(coordinator.register(holder="zombie's successor")) == "busy"
    (one,) = coordinator.machine.decided()
    assert (one.state, one.groups, one.pair) == (State.PREPARE_ABORT, [11, 12], first)
    assert code_of(coordinator.register(holder="zombie's successor")) == "busy"
    assert code_of(coordinator.end(first, commit=True)) == "fenced", "the zombie comes back, and is told"
    coordinator.complete(first)
    result = coordinator.register(holder="zombie's successor")
    assert isinstance(result, Registered)
    assert (result.epoch, result.last) == (2, LastEnd(*first, False, "fenced"))
    assert code_of(coordinator.end(first, commit=True)) == "fenced"
    assert code_of(coordinator.add(first, 11)) == "fenced"


@pytest.mark.parametrize("epochs", [2, 3, 4, 32767])
@pytest.mark.parametrize("wrote", [True, False])
@pytest.mark.parametrize("commit", [True, False])
def test_who_repeats_its_end_after_another_has_registered_hears_it_and_gets_no_pair_of_the_other(
    epochs: int, wrote: bool, commit: bool
) -> None:
    """The answer was lost, and a successor came meanwhile."""
    coordinator = DrivenCoordinator(epochs=epochs)
    first = coordinator.registered(holder="a")
    if wrote:
        coordinator.add(first, 11)
        coordinator.end(first, commit=commit)
        coordinator.complete(first)
    else:
        coordinator.end(first, commit=commit)
    second = coordinator.registered(holder="b")
    coordinator.restart()
    assert coordinator.end(first, commit=commit) == Decided(commit, True, "client", *first), "its own, which is over"
    assert code_of(coordinator.end(first, commit=not commit)) == "ended"
    assert code_of(coordinator.add(first, 11)) == "fenced"
    assert isinstance(coordinator.add(second, 11), Added)
    coordinator.end(second, commit=True)
    coordinator.complete(second)
    assert isinstance(coordinator.end(second, commit=True), Decided), "of the other one that is the last now"
    assert coordinator.end(first, commit=commit) == Decided(commit, True, "client", *first), "it may ask late"
    coordinator.registered(holder="c")
    coordinator.restart()
    assert isinstance(coordinator.end(second, commit=True), Decided), "of the holder before the present one"
    assert code_of(coordinator.end(first, commit=commit)) == "forgotten", "of the one before that"


def test_who_was_fenced_and_gives_up_gets_no_pair_to_go_on_with(coordinator: DrivenCoordinator) -> None:
    first = ongoing(coordinator)
    assert code_of(coordinator.register(holder="b")) == "busy"
    assert coordinator.end(first, commit=False) == Decided(False, False, "fenced", *first)
    assert coordinator.complete(first) == Decided(False, True, "fenced", *first), "b comes again in a moment"
    assert coordinator.end(first, commit=False) == Decided(False, True, "fenced", *first)
    assert code_of(coordinator.add(first, 11)) == "fenced"
    second = coordinator.registered(holder="b")
    assert coordinator.end(first, commit=False) == Decided(False, True, "fenced", *first)
    assert isinstance(coordinator.add(second, 11), Added)


def test_what_was_decided_is_never_undone_by_a_new_holder(coordinator: DrivenCoordinator) -> None:
    first = decided(coordinator, commit=True)
    assert code_of(coordinator.register(holder="b")) == "busy"
    assert coordinator.machine.outcome(*first) is True
    coordinator.complete(first)
    result = coordinator.register(holder="b")
    assert isinstance(result, Registered)
    assert result.last == LastEnd(*first, True, "client"), "who comes after a crash learns how it ended"


@pytest.mark.parametrize(
    ("name", "holder", "timeout_ms"),
    [("", "h", 1000), ("x" * 257, "h", 1000), ("t", "", 1000), ("t", "h", 0), ("t", "h", 15 * 60 * 1000 + 1)],
)
def test_nonsense_is_not_registered(coordinator: DrivenCoordinator, name: str, holder: str, timeout_ms: int) -> None:
    assert code_of(coordinator.register(name, holder, timeout_ms)) == "invalid"
    assert list(coordinator.machine) == []


def test_ids_are_bounded(coordinator: DrivenCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "MAX_IDS", 2)
    pair = coordinator.registered("a")
    coordinator.registered("b")
    assert code_of(coordinator.register("c")) == "too-many"
    assert coordinator.registered("a", "h") == pair, "one that is known is no new one"


def test_no_two_ids_and_no_two_coordinators_share_a_producer_id(coordinator: DrivenCoordinator) -> None:
    seen = {coordinator.registered(f"t{number}")[0] for number in range(50)}
    assert len(seen) == 50
    assert {producer >> 32 for producer in seen} == {GROUP}
    assert all(0 < producer < 1 << 63 for producer in seen)


# ---------------------------------------------------------------- partitions


def test_partitions_gather_and_keep_the_time_of_the_first(coordinator: DrivenCoordinator) -> None:
    pair = coordinator.registered(timeout_ms=5_000)
    assert coordinator.add(pair, 11) == Added(5_000)
    coordinator.live(4_000)
    assert coordinator.add(pair, 12, 11, 12) == Added(5_000)
    one = coordinator.machine.get("t")
    assert one is not None
    assert (one.groups, one.deadline_ms - coordinator.machine.state.lived_ms) == ([11, 12], 1_000)


def test_nothing_is_added_to_what_is_decided(coordinator: DrivenCoordinator) -> None:
    pair = decided(coordinator, commit=True)
    assert code_of(coordinator.add(pair, 12)) == "ended"
    coordinator.complete(pair)
    assert code_of(coordinator.add(pair, 12)) == "ended"


def test_what_cannot_be_a_partition_is_refused(coordinator: DrivenCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = coordinator.registered()
    assert code_of(coordinator.add(pair)) == "invalid"
    assert code_of(coordinator.add(pair, 0)) == "invalid"
    monkeypatch.setattr(machine_module, "MAX_PARTITIONS", 2)
    assert code_of(coordinator.add(pair, 1, 2, 3)) == "too-many"
    one = coordinator.machine.get("t")
    assert one is not None
    assert one.state is State.EMPTY, "what was refused begins nothing"
    assert isinstance(coordinator.add(pair, 1, 2), Added)
    assert code_of(coordinator.add(pair, 3)) == "too-many"
    assert isinstance(coordinator.add(pair, 2), Added)


# ---------------------------------------------------------------- the end


@pytest.mark.parametrize("commit", [True, False])
def test_a_lost_answer_is_found_again_before_and_after_the_markers(
    coordinator: DrivenCoordinator, commit: bool
) -> None:
    pair = decided(coordinator, commit=commit)
    coordinator.restart()
    assert coordinator.end(pair, commit=commit) == Decided(commit, False, "client", *pair)
    assert coordinator.complete(pair) == Decided(commit, True, "client", pair[0], 1)
    coordinator.restart()
    assert coordinator.end(pair, commit=commit) == Decided(commit, True, "client", pair[0], 1)
    assert code_of(coordinator.end(pair, commit=not commit)) == "ended"
    coordinator.add((pair[0], 1), 11)
    assert coordinator.end(pair, commit=commit) == Decided(commit, True, "client", pair[0], 1), "in the next one, too"


@pytest.mark.parametrize("commit", [True, False])
def test_the_other_decision_comes_too_late(coordinator: DrivenCoordinator, commit: bool) -> None:
    pair = decided(coordinator, commit=commit)
    assert code_of(coordinator.end(pair, commit=not commit)) == "ended"
    (one,) = coordinator.machine.decided()
    assert (one.state is State.PREPARE_COMMIT) == commit


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_that_wrote_nothing_ends_as_asked_without_a_marker(
    coordinator: DrivenCoordinator, commit: bool
) -> None:
    """Its pair is over all the same: the same request, delayed, must not end the next transaction."""
    pair = coordinator.registered()
    following = (pair[0], pair[1] + 1)
    answer = Decided(commit, True, "client", *following)
    assert coordinator.end(pair, commit=commit) == answer
    assert coordinator.machine.decided() == []
    assert code_of(coordinator.add(pair, 11)) == "ended"
    assert isinstance(coordinator.add(following, 11), Added)
    assert coordinator.end(pair, commit=commit) == answer
    assert code_of(coordinator.end(pair, commit=not commit)) == "ended"
    assert coordinator.machine.decided() == []


def test_complete_is_for_what_is_decided(coordinator: DrivenCoordinator) -> None:
    pair = ongoing(coordinator)
    assert code_of(coordinator.complete(pair)) == "ended"
    coordinator.end(pair, commit=True)
    assert code_of(coordinator.complete((pair[0], 1))) == "ended"
    coordinator.complete(pair)
    assert code_of(coordinator.complete(pair)) == "ended"


def test_an_unknown_id_is_told_so(coordinator: DrivenCoordinator) -> None:
    for result in (coordinator.add((1, 0), 11), coordinator.end((1, 0), commit=True), coordinator.expire((1, 0))):
        assert code_of(result) == "unknown-id"
    assert code_of(coordinator.complete((1, 0))) == "ended"


def test_epochs_run_out_and_the_id_goes_on_under_another_producer() -> None:
    coordinator = DrivenCoordinator(epochs=2)
    pairs = [coordinator.registered()]
    for _ in range(4):
        pair = pairs[-1]
        coordinator.add(pair, 11)
        coordinator.end(pair, commit=True)
        answer = coordinator.complete(pair)
        assert isinstance(answer, Decided)
        coordinator.restart()
        assert coordinator.end(pair, commit=True) == answer, "a lost answer is found across the seam"
        pairs.append((answer.producer_id, answer.epoch))
    assert [epoch for _, epoch in pairs] == [0, 1, 0, 1, 0]
    assert len(set(pairs)) == 5


# ---------------------------------------------------------------- time


def test_a_transaction_aborts_when_its_time_is_over_and_not_before(coordinator: DrivenCoordinator) -> None:
    pair = coordinator.registered(timeout_ms=5_000)
    coordinator.add(pair, 11)
    coordinator.now_ms += 4_999
    assert coordinator.machine.overdue(coordinator.now_ms) == []
    assert code_of(coordinator.expire(pair)) == "ended"
    coordinator.now_ms += 1
    assert [one.name for one in coordinator.machine.overdue(coordinator.now_ms)] == ["t"]
    assert coordinator.expire(pair) == Decided(False, False, "timeout", *pair)
    late = coordinator.end(pair, commit=True)
    assert code_of(late) == "expired"
    assert "time was over" in str(late)
    coordinator.complete(pair)
    assert "time was over" in str(coordinator.end(pair, commit=True))


def test_time_that_is_over_undoes_no_decision(coordinator: DrivenCoordinator) -> None:
    pair = decided(coordinator, commit=True)
    coordinator.live(DAY_MS)
    assert coordinator.expire(pair) == Decided(True, False, "client", *pair)


@pytest.mark.parametrize("leap_ms", [-30 * DAY_MS, -1, 30 * DAY_MS])
def test_a_clock_that_leaps_counts_for_a_minute_at_most(coordinator: DrivenCoordinator, leap_ms: int) -> None:
    pair = coordinator.registered(timeout_ms=120_000)
    coordinator.add(pair, 11)
    coordinator.now_ms += leap_ms
    assert coordinator.machine.overdue(coordinator.now_ms) == []
    assert code_of(coordinator.expire(pair)) == "ended", "nothing is overdue"
    coordinator.live(120_000)
    assert coordinator.expire(pair) == Decided(False, False, "timeout", *pair)


def test_a_leap_forgets_no_id(coordinator: DrivenCoordinator) -> None:
    coordinator.registered()
    coordinator.now_ms += 30 * DAY_MS
    assert coordinator.forget_idle() == Forgotten(0)


def test_idle_ids_are_forgotten_after_a_week_and_begin_anew(coordinator: DrivenCoordinator) -> None:
    first = coordinator.registered("idle")
    busy = coordinator.registered("busy")
    coordinator.live(1000)
    coordinator.add(busy, 11, name="busy")
    coordinator.live(7 * DAY_MS - 1000)
    assert coordinator.forget_idle() == Forgotten(0)
    coordinator.now_ms += 1
    assert coordinator.forget_idle() == Forgotten(1)
    coordinator.restart()
    assert code_of(coordinator.add(first, 11, name="idle")) == "unknown-id"
    assert coordinator.machine.outcome(*first) is False
    again = coordinator.registered("idle")
    assert again[0] != first[0]
    coordinator.live(30 * DAY_MS)
    assert coordinator.forget_idle() == Forgotten(1), "the one with an open transaction stays"


# ---------------------------------------------------------------- what a partition may ask


def test_a_partition_learns_the_decision_and_nothing_before_it(coordinator: DrivenCoordinator) -> None:
    pair = coordinator.registered()
    assert coordinator.machine.outcome(*pair) is None, "it may have begun in a partition"
    coordinator.add(pair, 11)
    assert coordinator.machine.outcome(*pair) is None
    coordinator.end(pair, commit=True)
    assert coordinator.machine.outcome(*pair) is True
    coordinator.complete(pair)
    assert coordinator.machine.outcome(*pair) is False, "who has its marker does not ask: it came again"
    coordinator.restart()
    assert coordinator.machine.outcome(*pair) is False
    assert coordinator.machine.outcome(pair[0], 77) is False
    assert coordinator.machine.outcome(999, 0) is False


@pytest.mark.parametrize("restarted", [False, True])
def test_what_was_committed_and_comes_again_when_its_end_is_forgotten_counts_once(
    coordinator: DrivenCoordinator, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    """A begin with its event that was delayed behind the ends of ten thousand other producers."""
    monkeypatch.setattr(transaction_state, "MAX_ENDED", 1)
    partition, pair = DrivenPartition(), ongoing(coordinator, 11)
    for again in (False, True):
        assert isinstance(partition.begin(*pair), TransactionDone)
        assert isinstance(partition.send(*pair, 0, "a"), AppendAccepted)
        if not again:
            coordinator.end(pair, commit=True)
            partition.end(*pair, commit=True)
            coordinator.complete(pair)
            partition.end(1, 0, commit=True)  # of another producer
    if restarted:
        coordinator.restart()
    partition.end(*pair, commit=coordinator.machine.outcome(*pair) is True)
    transactions = partition.machine.transactions
    assert [transactions.is_aborted(pair, offset) for offset in (0, 1)] == [False, True]


def test_what_has_not_begun_here_never_does_when_a_partition_has_waited_too_long(
    coordinator: DrivenCoordinator,
) -> None:
    pair = coordinator.registered()
    assert isinstance(coordinator.fence(pair), Decided)
    assert coordinator.machine.outcome(*pair) is False
    assert code_of(coordinator.add(pair, 11)) == "expired"
    assert code_of(coordinator.end(pair, commit=True)) == "expired"
    again = coordinator.registered(lost=pair)
    assert again > pair
    assert isinstance(coordinator.add(again, 11), Added)


def test_the_next_transaction_may_have_begun_while_the_last_one_is_being_ended(coordinator: DrivenCoordinator) -> None:
    pair = coordinator.registered()
    following = (pair[0], pair[1] + 1)
    coordinator.add(pair, 11)
    assert coordinator.machine.outcome(*following) is False, "its holder cannot know of it"
    coordinator.end(pair, commit=True)
    assert coordinator.machine.outcome(*following) is None
    coordinator.complete(pair)
    assert coordinator.machine.outcome(*following) is None
    assert isinstance(coordinator.add(following, 11), Added)


def test_what_has_begun_is_not_fenced_by_a_partition(coordinator: DrivenCoordinator) -> None:
    pair = coordinator.registered()
    coordinator.add(pair, 11)
    assert code_of(coordinator.fence(pair)) == "ended"
    assert coordinator.machine.outcome(*pair) is None
    coordinator.end(pair, commit=True)
    assert code_of(coordinator.fence(pair)) == "ended"
    assert coordinator.machine.outcome(*pair) is True
    coordinator.complete(pair)
    coordinator.fence(pair)
    assert isinstance(coordinator.end(pair, commit=True), Decided), "it stays committed"


def test_a_member_of_a_group_is_ended_by_its_group_alone(coordinator: DrivenCoordinator) -> None:
    coordinator.open_group()
    member = coordinator.joined()
    assert code_of(coordinator.fence((member.producer_id, member.epoch), member_name(member.member))) == "ended"
    assert isinstance(coordinator.write(member, 11), Added)


# ---------------------------------------------------------------- bytes


def test_what_is_no_command_is_declined_and_takes_its_index(coordinator: DrivenCoordinator) -> None:
    coordinator.index += 1
    assert code_of(coordinator.machine.apply(coordinator.index, b"\xc1 nonsense")) == "invalid"
    assert coordinator.machine.state.applied_index == coordinator.index


def test_a_checkpoint_of_another_layout_is_refused() -> None:
    machine = CoordinatorMachine(GROUP)
    with pytest.raises(WrongCheckpoint):
        machine.restore(b"\x91\x63")
    with pytest.raises(WrongCheckpoint):
        machine.restore(b"garbage")
    machine.restore(None)
    assert list(machine) == []
    assert ForgetIdle(5).timestamp_ms == 5
