"""Pace of copies: bounded, slower while clients feel it, and never below its floor."""

from __future__ import annotations

from cluster.raft.membership.configuration import Replica
from cluster.raft.snapshot.bandwidth import FLOOR_BYTES_PER_S, SendBudget
from node.movement.pace import LOOK_EVERY_S, CopyPace
from tests.unit.raft.membership.moving import led, swap

MIB = 1 << 20


def test_a_budget_lets_so_many_bytes_through() -> None:
    budget = SendBudget(64 * MIB)
    sent, now = 0, 1000.0
    while now < 1010.0:
        opens_at = budget.opens_at(now)
        if opens_at is None:
            budget.charge(MIB // 2, now)
            sent += MIB // 2
        else:
            assert opens_at > now
            now = opens_at
    assert 640 * MIB <= sent <= 1.02 * 640 * MIB


def test_long_turns_slow_copies_down_to_a_floor_and_short_ones_let_them_recover() -> None:
    budget, turns = SendBudget(64 * MIB), [0, 0.0]
    pace, now = CopyPace(budget, lambda: (int(turns[0]), turns[1])), 1000.0

    def look(turn_s: float, count: int) -> float:
        nonlocal now
        for _ in range(count):
            now += LOOK_EVERY_S
            turns[0] += 10
            turns[1] += 10 * turn_s
            pace.look(now)
        return budget.bytes_per_s

    assert look(0.003, 5) == 64 * MIB
    assert 0.6 * 64 * MIB < look(0.05, 1) < 64 * MIB
    assert look(0.05, 40) == FLOOR_BYTES_PER_S
    assert look(0.003, 5) == 6 * FLOOR_BYTES_PER_S
    assert look(0.003, 40) == 64 * MIB


def test_turns_of_a_time_without_copies_do_not_count() -> None:
    budget, turns = SendBudget(64 * MIB), [0, 0.0]
    pace = CopyPace(budget, lambda: (int(turns[0]), turns[1]))
    turns[:] = [100, 50.0]
    pace.look(1000.0)
    assert budget.bytes_per_s == 64 * MIB


def test_a_replica_that_comes_is_sent_no_more_than_the_budget_and_others_do_not_wait() -> None:
    stage = led(fetch_bytes_per_s=4 * MIB)
    stage.propose(1, *["x" * 20_000 for _ in range(1000)])
    stage.run(0.5)
    held = stage.group(2).last_index
    assert held == stage.group(1).last_index, "followers that vote are not held up"
    stage.open(4, 17)
    stage.wish = swap(4, 17, Replica(3, 1))
    stage.run(1.0)
    arrived = stage.group(4).last_index
    assert 0.8 * 4 * MIB < arrived * 20_000 < 1.6 * 4 * MIB
    stage.until(lambda: stage.wish is None, 10.0)
    assert stage.machines[4].applied == stage.machines[1].applied
