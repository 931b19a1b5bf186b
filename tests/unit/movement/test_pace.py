"""Pace of copies: bounded, slower while clients feel it, and never below its floor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from cluster.raft import RaftOptions
from cluster.raft.membership.configuration import Replica
from cluster.raft.snapshot.bandwidth import (
    BURST_S,
    ENTRY_COST_BYTES,
    FLOOR_BYTES_PER_S,
    LONGEST_REST_MS,
    PACED_APPEND_ENTRIES,
    CopyBudget,
    CopyBudgets,
    FetchBudget,
)
from node.movement.client_waits import FEWEST_SAMPLES, ClientWaits
from node.movement.pace import CALM_SAMPLE_EVERY_S, COPIES_END_S, LOOK_EVERY_S, SAMPLE_EVERY_S, CopyPace
from tests.unit.listener.support.cluster import ListenerCluster
from tests.unit.listener.support.peer import eventually
from tests.unit.raft.cluster import GROUP
from tests.unit.raft.membership.moving import MovingStage, led, swap

MIB = 1 << 20
PIECE = MIB // 2


def passed(budget: CopyBudget, began: float, seconds: float, entries: int = 0) -> int:
    """Bytes that a budget lets through."""
    sent, now = 0, began
    while now < began + seconds:
        opens_at = budget.opens_at(now, "copy")
        if opens_at is None:
            budget.charge(PIECE, now, entries)
            sent += PIECE
        else:
            assert opens_at > now
            now = opens_at
    return sent


def test_a_budget_lets_so_many_bytes_through() -> None:
    assert 640 * MIB <= passed(CopyBudget(64 * MIB), 1000.0, 10.0) <= 1.02 * 640 * MIB


def test_many_small_entries_cost_more_than_their_bytes() -> None:
    entries = 4 * PIECE // ENTRY_COST_BYTES
    assert 160 * MIB <= passed(CopyBudget(64 * MIB), 1000.0, 10.0, entries) <= 1.05 * 160 * MIB


def test_who_is_asked_to_rest_sends_that_node_nothing_meanwhile() -> None:
    budget = CopyBudget(64 * MIB)
    budget.rest(4, 1001.0)
    assert budget.opens_at(1000.0, "copy", 4) == 1001.0
    assert budget.opens_at(1000.0, "another", 5) is None
    assert budget.opens_at(1001.0, "copy", 4) is None


def test_copies_take_turns_and_one_that_stops_asking_loses_its_turn() -> None:
    budget, went = CopyBudget(64 * MIB), ""
    asks = dict.fromkeys("abc", 1000.0)
    for _ in range(1000):
        copy = min(asks, key=lambda one: (asks[one], one))
        now = asks[copy]
        at = budget.opens_at(now, copy)
        if at is None:
            budget.charge(PIECE, now)
            went += copy
        else:
            asks[copy] = at
        if len(went) == 38:
            asks.pop("b", None)
        if len(went) == 60:
            break
    assert went[8:38] == 10 * "bca", "behind what may go at once"
    assert set(went[38:]) == {"a", "c"}


@pytest.mark.parametrize("senders", [1, 2, 3])
def test_what_a_node_takes_in_by_itself_has_a_share_beside_what_it_is_sent(senders: int) -> None:
    budget, answer_s = FetchBudget(RaftOptions(fetch_bytes_per_s=8 * MIB)), 0.004
    came, fetched = 0, 0
    asks = {f"node {number}": 1000.0 + 0.01 * number for number in range(senders)} | {"own": 1000.5}
    while min(asks.values()) < 1030.0:
        one = min(asks, key=lambda name: asks[name])
        now = asks[one]
        if one != "own":
            budget.charge(PIECE, now)
            came += PIECE
            asks[one] = now + answer_s + budget.rest_ms(now) / 1000
        elif (opens_at := budget.opens_at(now, one)) is None:
            budget.charge(PIECE, now)
            fetched += PIECE
        else:
            asks[one] = opens_at
    assert fetched > 0.5 * came / senders
    assert 0.9 * 30 * 8 * MIB < came + fetched < 1.1 * 30 * 8 * MIB


def test_the_rest_that_is_asked_for_is_bounded() -> None:
    budget = CopyBudget(FLOOR_BYTES_PER_S)
    assert budget.rest_ms(1000.0) == 0
    budget.charge(FLOOR_BYTES_PER_S, 1000.0)
    assert budget.rest_ms(1000.0) == round(1000 * (1 - BURST_S))
    budget.charge(100 * FLOOR_BYTES_PER_S, 1000.0)
    assert budget.rest_ms(1000.0) == LONGEST_REST_MS


def test_a_lower_limit_holds_at_once_and_a_higher_one_is_grown_into() -> None:
    budget = CopyBudget(64 * MIB)
    budget.most = 8 * MIB
    assert budget.bytes_per_s == 8 * MIB
    budget.most = 64 * MIB
    assert budget.bytes_per_s == 8 * MIB
    for _ in range(20):
        budget.adapt(is_busy=False)
    assert budget.bytes_per_s == 64 * MIB


class Paced:
    """A pace whose node has turns of a length, and clients that wait."""

    def __init__(self) -> None:
        self.now, self.turns, self.turn_s, self.wait_s, self.calm_wait_s = 1000.0, [0, 0.0], 0.003, 0.0, 0.0
        self.budgets, paced = CopyBudgets(RaftOptions()), self

        class Told(ClientWaits):
            def recent_s(self) -> float:
                return paced.wait_s

            def calm_s(self) -> float:
                return paced.calm_wait_s

        waits = Told({}, lambda: self.now)
        turns = lambda: (int(self.turns[0]), self.turns[1])  # noqa: E731
        self.limit = 64 * MIB
        self.pace = CopyPace(self.budgets, lambda: self.limit, turns, waits, lambda: self.now)

    def copy(self, looks: int) -> float:
        """Copy, for so many looks at how clients fare. Returns the pace after them."""
        for _ in range(looks):
            self.now += LOOK_EVERY_S
            self.turns[0] += 10
            self.turns[1] += 10 * self.turn_s
            self.budgets.out.charge(1, self.now)
            self.pace.look()
        return self.budgets.out.bytes_per_s

    def pause(self) -> None:
        self.now += COPIES_END_S
        self.pace.look()


def test_copies_begin_slowly_and_reach_the_limit_in_seconds() -> None:
    paced = Paced()
    paced.pause()
    assert paced.budgets.out.bytes_per_s == paced.budgets.into.bytes_per_s == FLOOR_BYTES_PER_S
    assert paced.copy(16) == paced.budgets.into.bytes_per_s == 64 * MIB
    paced.pause()
    assert paced.budgets.out.bytes_per_s == FLOOR_BYTES_PER_S


def test_long_turns_slow_copies_down_to_a_floor_and_short_ones_let_them_recover() -> None:
    paced = Paced()
    assert paced.copy(16) == 64 * MIB
    paced.turn_s = 0.05
    assert 0.6 * 64 * MIB < paced.copy(1) < 64 * MIB
    assert paced.copy(40) == FLOOR_BYTES_PER_S
    paced.turn_s = 0.003
    assert paced.copy(16) == 64 * MIB


def test_the_limit_may_change_at_any_time() -> None:
    paced = Paced()
    assert paced.copy(16) == 64 * MIB
    paced.limit = 8 * MIB
    assert paced.copy(1) == paced.budgets.into.bytes_per_s == 8 * MIB
    paced.limit = 128 * MIB
    assert paced.copy(31) == paced.budgets.into.bytes_per_s == 128 * MIB


def test_clients_that_wait_slow_copies_down() -> None:
    paced = Paced()
    assert paced.copy(16) == 64 * MIB
    paced.wait_s = 0.03
    assert paced.copy(1) < 64 * MIB
    paced.calm_wait_s = 0.025
    assert paced.copy(16) == 64 * MIB, "they wait nearly as long without copies"


def test_turns_of_a_time_without_copies_do_not_count() -> None:
    paced = Paced()
    paced.turn_s = 1.0
    paced.turns[:] = [100, 50.0]
    paced.pause()
    paced.turn_s = 0.003
    paced.copy(2)
    assert paced.budgets.out.bytes_per_s > FLOOR_BYTES_PER_S


def test_it_looks_seldom_while_nothing_is_copied() -> None:
    paced = Paced()
    assert paced.pace.look() == CALM_SAMPLE_EVERY_S
    paced.budgets.into.charge(1, paced.now)
    assert paced.pace.look() == SAMPLE_EVERY_S


# ---- clients' waits


def sampled(stage: MovingStage, waits: ClientWaits, count: int, *, is_calm: bool) -> None:
    for _ in range(count):
        stage.propose(1, "x")
        waits.sample(is_calm=is_calm)
        stage.run(0.02)


def test_waits_are_those_of_what_is_under_way() -> None:
    stage = led()
    waits = ClientWaits(stage.multirafts[1].groups, stage.clock.monotonic)
    for _ in range(FEWEST_SAMPLES):
        waits.sample(is_calm=False)
        stage.run(0.01)
    assert waits.recent_s() == 0.0, "nothing was under way"
    sampled(stage, waits, FEWEST_SAMPLES - 1, is_calm=False)
    assert waits.recent_s() == 0.0, "too few to say"
    sampled(stage, waits, 1, is_calm=False)
    assert 0.0 < waits.recent_s() < 0.02
    assert waits.calm_s() == 0.0
    sampled(stage, waits, FEWEST_SAMPLES, is_calm=True)
    assert 0.0 < waits.calm_s() < 0.02
    stage.run(2.0)
    assert waits.recent_s() == 0.0, "that is long ago"


def test_what_is_never_applied_is_no_sample() -> None:
    stage = led()
    waits = ClientWaits(stage.multirafts[1].groups, stage.clock.monotonic)
    for _ in range(FEWEST_SAMPLES):
        stage.propose(1, "x")
        waits.sample(is_calm=False)
    stage.multirafts[1].close_group(GROUP, erase=False)
    assert waits.recent_s() == 0.0


def test_what_another_leader_has_applied_is_no_sample() -> None:
    stage = led()
    waits = ClientWaits(stage.multirafts[1].groups, stage.clock.monotonic)
    stage.isolate(1)
    for _ in range(FEWEST_SAMPLES):
        stage.propose(1, "x")
        waits.sample(is_calm=True)
    stage.until(lambda: stage.group(2).is_leader or stage.group(3).is_leader, 10.0)
    stage.heal()
    leader = 2 if stage.group(2).is_leader else 3
    stage.propose(leader, *"abcdefgh")
    stage.until(lambda: stage.group(1).applied_index == stage.group(leader).last_index, 10.0)
    assert waits.calm_s() == 0.0


# ---- the way of the bytes


def long_log(entries: int, size: int, **options: int) -> MovingStage:
    stage = led(**options)
    stage.propose(1, *["x" * size for _ in range(entries)])
    stage.run(0.5)
    return stage


def test_a_replica_that_comes_is_sent_no_more_than_the_budget_and_others_do_not_wait() -> None:
    stage = long_log(1000, 20_000, fetch_bytes_per_s=4 * MIB)
    assert stage.group(2).last_index == stage.group(1).last_index, "followers that vote are not held up"
    stage.open(4, 17)
    stage.wish = swap(4, 17, Replica(3, 1))
    stage.run(1.0)
    arrived = stage.group(4).last_index
    assert 0.8 * 4 * MIB < arrived * 20_000 < 1.6 * 4 * MIB
    stage.until(lambda: stage.wish is None, 10.0)
    assert stage.machines[4].applied == stage.machines[1].applied


def test_a_replica_comes_nearer_however_much_clients_write() -> None:
    stage = long_log(300, 10, fetch_bytes_per_s=PACED_APPEND_ENTRIES * ENTRY_COST_BYTES)
    stage.open(4, 17)
    stage.wish = swap(4, 17, Replica(3, 1))
    lacks = []
    for _ in range(40):
        for _ in range(10):  # 200 a second, and the pace is 64 a second
            stage.propose(1, *["x"] * 20)
            stage.run(0.1)
        lacks.append(stage.group(1).last_index - stage.group(4).last_index)
    assert lacks[0] > PACED_APPEND_ENTRIES
    assert lacks[-1] <= PACED_APPEND_ENTRIES


def test_a_receiver_tells_its_senders_to_rest() -> None:
    stage = long_log(1000, 20_000, fetch_bytes_per_s=64 * MIB)
    stage.multirafts[4].copies.into.most = 4 * MIB
    stage.open(4, 17)
    stage.wish = swap(4, 17, Replica(3, 1))
    stage.run(1.0)
    sent_before_it_says_so = 4 * MIB
    assert stage.group(4).last_index * 20_000 < 1.2 * 4 * MIB + sent_before_it_says_so
    stage.until(lambda: stage.wish is None, 10.0)
    assert stage.machines[4].applied == stage.machines[1].applied


def test_appends_to_a_replica_that_is_far_behind_are_small() -> None:
    stage = long_log(1000, 10)
    stage.open(4, 17)
    stage.wish = swap(4, 17, Replica(3, 1))
    stage.until(lambda: stage.wish is None, 10.0)
    sizes = [len(message.append.entry_terms) for _, node, message in stage.sent if node == 4]
    assert 0 < max(sizes) <= PACED_APPEND_ENTRIES


async def test_a_node_copies_at_the_pace_of_the_cluster_or_at_its_own_if_that_is_lower(tmp_path: Path) -> None:
    cluster = ListenerCluster(tmp_path)
    own = cluster.nodes[2]
    own.config = structs.replace(own.config, storage=structs.replace(own.config.storage, catch_up_bytes_per_s=4 * MIB))

    def limits() -> list[tuple[int, int]]:
        copies = [node._multiraft.copies for node in cluster.nodes.values()]
        return [(one.out.most, one.into.most) for one in copies]

    def are(*mibs: int) -> Callable[[], bool]:
        return lambda: limits() == [(mib * MIB, mib * MIB) for mib in mibs]

    async with cluster:
        await eventually(are(64, 4, 64))
        await cluster.broker(1).admin("cluster.settings", {"pace_bytes_per_s": 8 * MIB})
        await eventually(are(8, 4, 8))
        await cluster.broker(3).admin("cluster.settings", {"pace_bytes_per_s": 2 * MIB})
        await eventually(are(2, 2, 2))
