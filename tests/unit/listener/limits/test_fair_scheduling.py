"""Whose turn it is: input by pieces, each connection behind the others, and who asks for little is not delayed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from node.listener.limits import fair_scheduling as module
from node.listener.limits.fair_scheduling import ANSWERS, ENDING_S, INPUT_S, OUTPUT_S, WAITING_S, Turns
from tests.unit.listener.support.cluster import ListenerCluster


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "clock_s", lambda: clock.now_s)
    return clock


class Greedy:
    """Each piece of its input, or share of its output, takes 60 % of a turn."""

    def __init__(self, turns: Turns, clock: Clock, name: str, served: list[str], pieces: int) -> None:
        self.turns, self.clock, self.name, self.served, self.pieces = turns, clock, name, served, pieces

    def work_on(self) -> bool:
        self.served.append(self.name)
        self.clock.now_s += 0.6 * WAITING_S
        self.pieces -= 1
        return self.pieces > 0

    def send_on(self) -> None:
        self.served.append(self.name)
        self.turns.used_output(0.6 * OUTPUT_S)
        self.pieces -= 1
        if self.pieces:
            self.turns.wait_to_give(self)


@pytest.mark.parametrize("direction", ["input", "output"])
async def test_each_waits_behind_the_others_and_a_turn_ends(clock: Clock, direction: str) -> None:
    turns, served = Turns(), []
    for name in "abc":
        greedy = Greedy(turns, clock, name, served, 4)
        (turns.wait_to_take if direction == "input" else turns.wait_to_give)(greedy)
    seen: list[int] = []
    while len(served) < 12:
        before = len(served)
        await asyncio.sleep(0)
        seen.append(len(served) - before)
    assert "".join(served) == "abcabcabcabc"
    assert max(seen) == 2  # the second one begins while there is time left


async def test_what_comes_now_does_not_stand_behind_what_waits(clock: Clock) -> None:
    turns, served = Turns(), []
    turns.wait_to_take(Greedy(turns, clock, "a", served, 1000))
    await asyncio.sleep(0)
    assert served
    assert not turns.input_over
    turns.used_input(INPUT_S)
    assert turns.input_over  # and more of it in one turn waits as well
    await asyncio.sleep(0)
    assert not turns.input_over


async def test_attaches_that_took_a_while_are_answered_a_few_in_a_turn_in_their_order(clock: Clock) -> None:
    turns, answered = Turns(), []

    async def answer(number: int) -> None:
        await turns.until_answer()
        answered.append(number)

    tasks = [asyncio.create_task(answer(number)) for number in range(3 * ANSWERS)]
    tasks[ANSWERS + 1].cancel()  # its connection has gone
    seen: list[int] = []
    while len(answered) < len(tasks) - 1:
        before = len(answered)
        await asyncio.sleep(0)
        seen.append(len(answered) - before)
    assert max(seen) == ANSWERS
    assert answered == [number for number in range(3 * ANSWERS) if number != ANSWERS + 1]
    await turns.until_answer()  # and who comes later waits for nobody


async def test_what_lost_connections_leave_is_released_a_little_in_a_turn(clock: Clock) -> None:
    turns, released = Turns(), []

    def release(name: str) -> bool:
        released.append(name)
        clock.now_s += 0.6 * ENDING_S
        return released.count(name) == 3

    turns.wait_to_end(lambda: release("a"))
    turns.wait_to_end(lambda: release("b"))
    seen: list[int] = []
    while len(released) < 6:
        before = len(released)
        await asyncio.sleep(0)
        seen.append(len(released) - before)
    assert "".join(released) == "aaabbb"
    assert max(seen) == 2


async def test_output_is_flushed_once_in_a_turn_or_earlier_if_somebody_likes() -> None:
    turns, flushed = Turns(), []
    turns.flush_soon(lambda: flushed.append("a"))
    turns.flush_soon(lambda: flushed.append("b"))
    turns.flush()
    assert flushed == ["a", "b"]
    turns.flush_soon(lambda: flushed.append("c"))
    await asyncio.sleep(0)
    assert flushed == ["a", "b", "c"]


async def test_the_turn_of_a_nodes_groups_flushes_before_a_write_that_nobody_waits_for(tmp_path: Path) -> None:
    async with ListenerCluster(tmp_path) as cluster:
        node, flushed = cluster.nodes[1], []
        node._turns.flush_soon(lambda: flushed.append("a"))
        assert node._multiraft.on_answers is not None
        node._multiraft.on_answers()
        assert flushed == ["a"]
