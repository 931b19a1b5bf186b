"""Connections before the login: a flood pushes out itself."""

from __future__ import annotations

import pytest

from node.listener.limits import unauthenticated_connections
from node.listener.limits.unauthenticated_connections import UnauthenticatedConnections


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unauthenticated_connections, "UNOPENED_CONNECTIONS", 6)
    monkeypatch.setattr(unauthenticated_connections, "UNOPENED_FROM_ONE_ADDRESS", 4)


def test_a_flood_from_one_address_pushes_out_its_own_oldest() -> None:
    waiting: UnauthenticatedConnections[str] = UnauthenticatedConnections()
    assert waiting.add("honest", "a") is None
    cut = [waiting.add(f"flood{number}", "b") for number in range(7)]
    assert cut == [None] * 4 + ["flood0", "flood1", "flood2"]
    assert len(waiting) == 5


def test_where_there_are_too_many_in_all_the_address_with_most_makes_room() -> None:
    waiting: UnauthenticatedConnections[str] = UnauthenticatedConnections()
    waiting.add("honest", "a")
    for number in range(3):
        waiting.add(f"flood{number}", "b")
        waiting.add(f"other{number}", "c") if number < 2 else None
    assert waiting.add("late", "d") == "flood0"
    waiting.remove("flood0")  # as its connection ends
    assert len(waiting) == 6


def test_who_has_opened_or_gone_counts_no_more() -> None:
    waiting: UnauthenticatedConnections[str] = UnauthenticatedConnections()
    for number in range(20):
        assert waiting.add(f"brief{number}", "a") is None
        waiting.remove(f"brief{number}")
    assert not len(waiting)
    assert not waiting._by_address
