"""What a link finds of its deliveries by their numbers, in whatever order they are settled."""

from __future__ import annotations

import random

import pytest

from node.listener.outgoing import unsettled_deliveries as module
from node.listener.outgoing.unsettled_deliveries import UnsettledDeliveries


@pytest.mark.parametrize("numbers", [[0, 9, 2], [0, 2, 1], [2, 0, 1], [1, 2, 3], [0, 1, 2], [5], [0]])
def test_what_is_not_settled_is_found(numbers: list[int]) -> None:
    handed_out: UnsettledDeliveries[str] = UnsettledDeliveries()
    handed_out.sent(0, "cursor", [(100, 4), (200, 6)])
    offsets = [*range(100, 104), *range(200, 206)]
    handed_out.settled(numbers)
    found = [handed_out.find(number) for number in range(10)]
    assert found == [None if n in numbers else ("cursor", offsets[n]) for n in range(10)]


def test_it_keeps_up_with_any_order_of_settling() -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    handed_out: UnsettledDeliveries[int] = UnsettledDeliveries()
    open_: dict[int, tuple[int, int]] = {}
    sent = 0
    for turn in range(300):
        count = rng.randrange(8)
        handed_out.sent(sent, turn, [(sent * 10, count)] if count else [])
        open_.update({sent + at: (turn, sent * 10 + at) for at in range(count)})
        sent += count
        numbers = list(open_)[: rng.randrange(12)] if rng.random() < 0.6 else rng.sample(list(open_), len(open_) // 3)
        if rng.random() < 0.3:
            rng.shuffle(numbers)
        handed_out.settled(numbers)
        for number in numbers:
            del open_[number]
        assert {n: found for n in range(sent) if (found := handed_out.find(n)) is not None} == open_, f"seed {seed}"


def test_a_peer_that_keeps_some_for_ever_costs_no_more_than_those(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_EARLY", 100)
    handed_out: UnsettledDeliveries[str] = UnsettledDeliveries()
    kept = [0, 7, 4321]
    for first in range(0, 10_000, 10):
        handed_out.sent(first, "cursor", [(first * 2, 10)])
        handed_out.settled([number for number in range(first, first + 10) if number not in kept])
        assert len(handed_out._early) + len(handed_out._runs) < 200
    assert [number for number in range(10_000) if handed_out.find(number)] == kept
    assert handed_out.find(4321) == ("cursor", 8641)
    handed_out.settled(kept)
    assert not any(handed_out.find(number) for number in range(10_000))
    handed_out.sent(10_000, "cursor", [(0, 2)])
    handed_out.settled([10_000])
    assert handed_out.find(10_001) == ("cursor", 1)
    assert not handed_out._aside
