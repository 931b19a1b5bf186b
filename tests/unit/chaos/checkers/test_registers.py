"""C22 says of a history exactly what a search through all orders of its calls says."""

from __future__ import annotations

import random

import pytest

from chaos.checkers.cluster.registers import conflicts, zones_of
from chaos.history.tables import INFO, INITIAL, OK, READ, WRITE, RegisterRow

LATEST = 12


def has_an_order(calls: list[RegisterRow]) -> bool:
    """By search: each call in turn that nobody else must come before, with the value that the register has then."""

    def search(left: frozenset[int], value: int) -> bool:
        if not any(calls[one].type == OK for one in left):
            return True  # what is not certain need not have happened
        first_end = min(end(calls[one]) for one in left)
        for one in left:
            call = calls[one]
            if call.t_inv_ns > first_end:
                continue  # somebody else had ended before it began
            if call.f == WRITE and search(left - {one}, call.value or 0):
                return True
            if call.f == READ and call.value == value and search(left - {one}, value):
                return True
        return False

    return search(frozenset(range(len(calls))), INITIAL)


def end(call: RegisterRow) -> float:
    return float("inf") if call.type != OK or call.t_end_ns is None else call.t_end_ns


def drawn(chance: random.Random) -> list[RegisterRow]:
    """Calls of a few clients; what is read is mostly what a register would say, and sometimes anything."""
    calls = []
    writes = 0
    for number in range(chance.randint(2, 7)):
        begin = chance.randint(0, LATEST)
        until = begin + chance.randint(0, 4)
        if chance.random() < 0.45:
            writes += 1
            outcome = INFO if chance.random() < 0.25 else OK
            calls.append(RegisterRow(number, "r", WRITE, writes, outcome, begin, until))
        else:
            calls.append(RegisterRow(number, "r", READ, chance.randint(0, 3), OK, begin, until))
    return calls


@pytest.mark.parametrize("seed", range(8))
def test_zones_say_what_a_search_through_all_orders_says(seed: int) -> None:
    chance = random.Random(f"registers {seed}")
    orders = 0
    for _ in range(1500):
        calls = drawn(chance)
        expected = has_an_order(calls)
        orders += expected
        assert (not list(conflicts(zones_of(calls)))) == expected, calls
    assert 200 < orders < 1300, "both kinds were drawn"
