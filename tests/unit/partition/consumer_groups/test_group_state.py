"""Claims, commits and their ends, as every replica applies them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from node.partition.consumer_groups.group_state import (
    FORGET_MS,
    MAX_EPOCH,
    NOTHING,
    Claim,
    Commit,
    Delete,
    Denied,
    Done,
    End,
    EndClaim,
    GroupCommand,
    GroupTable,
    NoteCheckpoint,
    NoteOwner,
    Ousted,
    Owned,
    OwnerNoted,
    lag,
    terminus_key,
)
from node.partition.partition_commands import decode, encode_group_command
from node.partition.state_machine import AppendRejected, PartitionMachine

NOW_MS = 1_700_000_000_000


class Table:
    """Applies commands one after the other; `index` is that of the last one."""

    def __init__(self) -> None:
        self.ownership = GroupTable()
        self.index = 0
        self.now_ms = NOW_MS
        self.ousted: list[Ousted] = []

    def __call__(self, command: GroupCommand, next_offset: int = 100) -> Any:
        self.index += 1
        self.ownership.expire(self.now_ms)
        result, ousted = self.ownership.apply(command, self.index, self.now_ms, next_offset)
        if ousted is not None:
            self.ousted.append(ousted)
        return result

    def claim(self, who: str, epoch: int | None = None, key: str = "g", **more: Any) -> Any:
        return self(Claim(key, who, f"{who}/link", epoch, **more))

    def end(self, owned: Owned, how: End, key: str = "g") -> Any:
        return self(EndClaim(key, owned.claim, how))

    @property
    def row(self) -> Any:
        return self.ownership.get("g")


@pytest.fixture
def table() -> Table:
    return Table()


def denied(result: object) -> str:
    assert isinstance(result, Denied), result
    return result.code


def test_the_first_claim_gets_the_counters_first_value(table: Table) -> None:
    assert table.claim("a") == Owned(1, 0, NOTHING)
    assert table.row.member == "a"


@pytest.mark.parametrize("epoch", [None, 0, 4, 5])
def test_while_an_owner_is_active_nothing_but_a_greater_epoch_takes_over(table: Table, epoch: int | None) -> None:
    first = table.claim("a", 5)
    assert denied(table.claim("b", epoch)) == "owned"
    assert table.ousted == []
    second = table.claim("b", 6)
    assert second == Owned(3, 6, NOTHING)
    assert table.ousted == [Ousted("g", first.claim, 6)]


def test_event_hubs_rule_lets_the_same_epoch_take_over(table: Table) -> None:
    table.claim("a", 5)
    assert denied(table.claim("b", 4, equal_takes=True)) == "owned"
    assert table.claim("b", 5, equal_takes=True) == Owned(3, 5, NOTHING)


def test_event_hubs_rule_knows_only_of_receivers_that_are_there(table: Table) -> None:
    owned = table.claim("a", 5, equal_takes=True)
    table.end(owned, End.LOST)
    assert table.claim("b", 3, equal_takes=True).epoch == 3
    assert denied(table.claim("c", 2, equal_takes=True)) == "owned"


def test_after_a_lost_owner_the_counter_stays_and_keeps_the_outbid_out(table: Table) -> None:
    owned = table.claim("a", 5)
    assert table.end(owned, End.LOST) == Done(NOTHING)
    assert denied(table.claim("b", 4)) == "behind"
    assert table.claim("b") == Owned(4, 5, NOTHING)


def test_a_receiver_that_closes_its_link_resets_the_counter(table: Table) -> None:
    owned = table.claim("a", 5)
    table.end(owned, End.CLOSED)
    assert table.row is None
    assert table.claim("b", 1).epoch == 1


def test_a_reset_counter_does_not_cost_the_group_its_position(table: Table) -> None:
    owned = table.claim("a", 5)
    assert table(Commit("g", owned.claim, 42)) == Done(42)
    table.end(owned, End.CLOSED)
    assert table.claim("b") == Owned(4, 0, 42)


def test_released_in_peace_the_counter_stays(table: Table) -> None:
    owned = table.claim("a", 5)
    table.end(owned, End.RELEASED)
    assert table.claim("b") == Owned(3, 5, NOTHING)


def test_the_same_link_continues_only_when_its_leader_saw_it_gone(table: Table) -> None:
    first = table.claim("a", 5)
    assert denied(table.claim("a", 5)) == "owned"
    assert denied(table.claim("a", 5, gone=first.claim - 1)) == "owned"
    assert denied(table.claim("b", 5, gone=first.claim)) == "owned"
    again = table.claim("a", 5, gone=first.claim)
    assert again == Owned(table.index, 5, NOTHING, continued=True)
    assert table.ousted == [Ousted("g", first.claim, 5)]


@pytest.mark.parametrize(("how", "between", "continued"), [
    (End.LOST, False, True), (End.RELEASED, False, True), (End.LOST, True, False), (End.CLOSED, False, False)
])  # fmt: skip
def test_a_link_that_comes_back_is_told_whether_another_was_there(
    table: Table, how: End, between: bool, continued: bool
) -> None:
    table.end(table.claim("a"), how)
    if between:
        table.end(table.claim("b"), End.LOST)
    assert table.claim("a").continued is continued


def test_a_link_without_identity_never_continues(table: Table) -> None:
    first = table(Claim("g", "a", ""))
    assert denied(table(Claim("g", "a", "", gone=first.claim))) == "owned"


def test_an_old_claim_can_end_and_commit_nothing(table: Table) -> None:
    old = table.claim("a", 1)
    new = table.claim("b", 2)
    assert denied(table.end(old, End.CLOSED)) == "not-owner"
    assert denied(table(Commit("g", old.claim, 3))) == "not-owner"
    assert table(Commit("g", new.claim, 3)) == Done(3)
    assert table.row.active


def test_the_last_owner_may_still_commit_until_another_claims(table: Table) -> None:
    owned = table.claim("a")
    table(Commit("g", owned.claim, 1))
    table.end(owned, End.RELEASED)
    assert table(Commit("g", owned.claim, 7)) == Done(7)
    assert table.claim("b").position == 7
    assert denied(table(Commit("g", owned.claim, 9))) == "not-owner"


def test_an_owners_commit_never_goes_back_and_never_beyond_the_end(table: Table) -> None:
    owned = table.claim("a")
    assert table(Commit("g", owned.claim, 10)) == Done(10)
    assert table(Commit("g", owned.claim, 4)) == Done(10)
    assert denied(table(Commit("g", owned.claim, 101))) == "out-of-range"
    assert denied(table(Commit("g", owned.claim, -1))) == "out-of-range"


def test_an_operator_sets_and_forgets_positions_only_while_nobody_reads(table: Table) -> None:
    assert table(Commit("g", 0, 50)) == Done(50)
    assert table(Commit("g", 0, 20)) == Done(20)
    owned = table.claim("a")
    assert owned.position == 20
    assert denied(table(Commit("g", 0, 0))) == "active"
    assert denied(table(Delete("g"))) == "active"
    table.end(owned, End.LOST)
    assert table(Commit("g", 0, NOTHING)) == Done(NOTHING)
    assert table(Delete("g")) == Done(NOTHING)
    assert denied(table(Delete("g"))) == "unknown-group"


def test_the_last_owner_does_not_undo_what_an_operator_set(table: Table) -> None:
    owned = table.claim("a")
    table(Commit("g", owned.claim, 50))
    table.end(owned, End.LOST)
    assert table(Commit("g", 0, 10)) == Done(10)
    assert denied(table(Commit("g", owned.claim, 60))) == "not-owner"
    back = table.claim("a")
    assert (back.position, back.continued) == (10, False)


def test_a_group_without_position_is_forgotten_after_a_week_one_with_a_position_never(table: Table) -> None:
    table.end(table.claim("a", 5), End.LOST)
    table.end(table.claim("a", 5, "kept"), End.LOST, "kept")
    table(Commit("kept", 2 + 1, 1))
    table.now_ms += FORGET_MS - 1
    assert denied(table.claim("b", 4)) == "behind"
    table.now_ms += 1
    assert table.claim("b", 4).epoch == 4
    assert table.ownership.get("kept").position == 1  # type: ignore[union-attr]


def test_a_terminus_is_taken_over_by_its_own_link_and_expires_in_the_logs_time(table: Table) -> None:
    key = terminus_key("a/link")
    first = table(Claim(key, "a", "a/link", steal=True, expiry_s=60))
    table(Commit(key, first.claim, 9))
    second = table(Claim(key, "a", "a/link", steal=True, expiry_s=60))
    assert second.position == 9
    assert table.ousted == [Ousted(key, first.claim, 0)]
    table(EndClaim(key, second.claim, End.LOST))
    table.now_ms += 59_999
    third = table(Claim(key, "a", "a/link", steal=True, expiry_s=60))
    assert third.position == 9
    table(EndClaim(key, third.claim, End.LOST))
    table.now_ms += 60_000
    assert table(Claim(key, "a", "a/link", steal=True, expiry_s=60)).position == NOTHING


@pytest.mark.parametrize(("expiry_s", "how", "kept"), [(0, End.LOST, False), (-1, End.LOST, True), (-1, 0, False)])
def test_when_a_terminus_ends(table: Table, expiry_s: int, how: End, kept: bool) -> None:
    key = terminus_key("a/link")
    owned = table(Claim(key, "a", "a/link", steal=True, expiry_s=expiry_s))
    table(Commit(key, owned.claim, 9))
    table(EndClaim(key, owned.claim, how))
    table.now_ms += 100 * FORGET_MS
    table.ownership.expire(table.now_ms)
    assert (table.ownership.get(key) is not None) is kept


@pytest.mark.parametrize("command", [Claim("", "a", "i"), Claim("g" * 513, "a", "i"), Claim("g", "a", "i", -1)])
def test_nonsense_is_denied(table: Table, command: GroupCommand) -> None:
    assert denied(table(command)) == "invalid"
    assert len(table.ownership) == 0
    assert denied(table(Claim("g", "a", "i", MAX_EPOCH + 1))) == "invalid"


def test_the_number_of_groups_is_bounded(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node.partition.consumer_groups.group_state.MAX_GROUPS", 2)
    table.claim("a", key="1")
    table(Commit("2", 0, 1))
    assert denied(table.claim("a", key="3")) == "too-many"
    assert denied(table(Commit("3", 0, 1))) == "too-many"
    assert isinstance(table.claim("b", 1, key="2"), Owned)


@pytest.mark.parametrize(
    "command",
    [
        Claim("g", "a", "i", 3, True, True, 7, 9, NOW_MS),
        Claim("g", "a", "i"),
        EndClaim("g", 4, 2, NOW_MS),
        Commit("g", 4, 5, NOW_MS),
        Delete("g", NOW_MS),
    ],
)
def test_commands_survive_the_log(command: GroupCommand) -> None:
    assert decode(encode_group_command(command)) == command


def test_a_damaged_command_is_a_recorded_rejection() -> None:
    machine = PartitionMachine()
    entry = encode_group_command(Delete("g"))
    for index, damaged in enumerate([entry[:-1], entry[:3], entry[:3] + b"\x91\x04"]):
        result, effects = machine.apply(index + 1, damaged)
        assert isinstance(result, AppendRejected), result
        assert effects == ()


def test_replicas_stay_equal_whenever_they_are_restored_from_a_checkpoint() -> None:
    rng = random.Random(11)
    whole, restored = PartitionMachine(), PartitionMachine()
    for index in range(1, 3000):
        key = rng.choice(["g", "h", terminus_key("a/link")])
        time_ms = NOW_MS + index * rng.choice([1, FORGET_MS // 40])
        claims = [row.claim for row in whole.ownership] or [0]
        command = rng.choice(
            [
                Claim(key, "a", rng.choice(["x", "y"]), rng.choice([None, 0, index % 7]), False, key > "\x00h",
                      rng.choice([-1, 0, 5]), rng.choice(claims), time_ms),
                EndClaim(key, rng.choice(claims), rng.choice([0, 1, 2]), time_ms),
                Commit(key, rng.choice([*claims, 0]), rng.choice([-1, 0, 1]), time_ms),
                Delete(key, time_ms),
            ]
        )  # fmt: skip
        entry = encode_group_command(command)
        if rng.random() < 0.2:
            checkpoint = restored.checkpoint()
            restored = PartitionMachine()
            restored.restore(checkpoint)
        assert whole.apply(index, entry) == restored.apply(index, entry)
        assert whole.checkpoint() == restored.checkpoint()
        active = sorted(row.claim for row in whole.ownership if row.active)
        for machine in (whole, restored):
            assert sorted(row.claim for row in machine.ownership.active) == active
    assert len(whole.ownership) > 0


@pytest.mark.parametrize("seed", range(5))
def test_whatever_comes_one_claim_is_in_force_and_nobody_outbid_returns(table: Table, seed: int) -> None:
    """Random claims, ends and commits: owners change only by the rules, each change is told to the one who lost it, and
    what was committed never goes back under an owner."""
    rng = random.Random(seed)
    owner: Owned | None = None
    counter, position = 0, NOTHING
    for _ in range(2000):
        before = len(table.ousted)
        if rng.random() < 0.6:
            epoch = rng.choice([None, counter - 1, counter, counter + 1])
            if epoch is not None and epoch < 0:
                epoch = None
            result = table.claim(rng.choice("abc"), epoch)
            if isinstance(result, Denied):
                assert owner is not None or (epoch is not None and epoch < counter)
                assert len(table.ousted) == before
                continue
            if owner is not None:
                assert epoch is not None
                assert epoch > counter
                assert table.ousted[before:] == [Ousted("g", owner.claim, epoch)]
            assert result.position == position
            assert result.epoch >= counter
            owner, counter = result, result.epoch
        elif owner is not None and rng.random() < 0.5:
            wanted = rng.randrange(101)
            position = max(position, wanted)
            assert table(Commit("g", owner.claim, wanted)) == Done(position)
        elif owner is not None:
            how = rng.choice(list(End))
            table.end(owner, how)
            assert table.ousted[before:] == [Ousted("g", owner.claim, None)]
            counter = 0 if how == End.CLOSED else counter
            owner = None
        assert [row.claim for row in table.ownership.active] == ([] if owner is None else [owner.claim])


def test_those_that_committed_last_are_found_first_also_after_a_restart() -> None:
    table = Table()
    for key in ("a", "b", "c", "a"):
        table.now_ms += 1
        assert table(Commit(key, 0, 5)) == Done(5)
    table.ownership.commit_staged("b", 0, 6, table.now_ms + 1)
    assert [row.key for row in table.ownership.latest(2)] == ["b", "a"]
    again = GroupTable(table.ownership.rows())
    assert [row.key for row in again.latest(10)] == ["b", "a", "c"]


@pytest.mark.parametrize(
    ("position", "start", "end", "behind"),
    [(NOTHING, 0, 9, None), (0, 0, 9, 9), (3, 5, 9, 4), (9, 0, 9, 0), (9, 0, 7, 0)],
)
def test_the_lag_counts_what_is_kept_and_not_done(position: int, start: int, end: int, behind: int | None) -> None:
    assert lag(position, start, end) == behind


# ---------------------------------------------------------------- processors of Event Hubs


def test_an_ownership_changes_by_its_revision_alone() -> None:
    table = Table()
    first = table(NoteOwner("g", "one", 0))
    assert first == OwnerNoted(1, NOW_MS)
    assert table(NoteOwner("g", "two", 0)).code == "revision-changed"
    renewed = table(NoteOwner("g", "one", first.revision))
    assert renewed.revision > first.revision
    assert table(NoteOwner("g", "two", first.revision)).code == "revision-changed"
    assert (table.row.owner, table.row.owner_revision) == ("one", renewed.revision)
    assert table(NoteOwner("g", "", renewed.revision, removed=True)).revision == 0
    assert table(NoteOwner("g", "two", 0)).revision == table.index
    assert table(NoteOwner("g", "three", NOTHING)).revision == table.index, "without a condition"


def test_an_ownership_and_a_claim_do_not_touch_each_other() -> None:
    table = Table()
    owned = table.claim("reader", 1)
    noted = table(NoteOwner("g", "one", 0))
    assert table.ownership.holds("g", owned.claim)
    table.end(owned, End.CLOSED)
    assert table.row.owner_revision == noted.revision, "a reader that closes forgets no ownership"


def test_a_checkpoint_needs_no_claim_and_may_go_back() -> None:
    table = Table()
    owned = table.claim("reader", 1)
    assert table(NoteCheckpoint("g", 50)) == Done(50)
    assert table(NoteCheckpoint("g", 20)) == Done(20)
    assert table.ownership.holds("g", owned.claim), "the reader goes on"
    assert table(NoteCheckpoint("g", 101)).code == "out-of-range"
    assert table(NoteCheckpoint("g", -2)).code == "out-of-range"
    assert table(NoteCheckpoint("g", NOTHING)) == Done(NOTHING)


def test_an_ownership_without_a_checkpoint_is_forgotten_in_time() -> None:
    table = Table()
    table(NoteOwner("g", "one", 0))
    table.now_ms += FORGET_MS - 1
    table(NoteOwner("other", "one", 0))
    assert table.row is not None
    table.now_ms += 1
    table(NoteCheckpoint("other", 5))
    assert table.row is None
    table.now_ms += FORGET_MS
    table(NoteOwner("x", "one", 0))
    assert table.ownership.get("other") is not None, "a position stays"


def test_groups_of_processors_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node.partition.consumer_groups.group_state.MAX_GROUPS", 1)
    table = Table()
    table(NoteOwner("g", "one", 0))
    assert table(NoteOwner("h", "one", 0)).code == "too-many"
    assert table(NoteCheckpoint("h", 1)).code == "too-many"
    assert table(NoteOwner("g", "x" * 513, NOTHING)).code == "invalid"


@pytest.mark.parametrize("command", [NoteOwner("g", "one", 7, True, 9), NoteCheckpoint("g", 7, 9)])
def test_commands_of_processors_survive_their_bytes(command: GroupCommand) -> None:
    assert decode(encode_group_command(command)) == command
