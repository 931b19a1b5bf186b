"""How many packed deliveries a reader asks for."""

from __future__ import annotations

import pytest

from holdfast.client.consume.packed_window import FADING, FIRST, MOST, WORTH_BYTES, WORTH_EVENTS, PackedWindow


@pytest.mark.parametrize(
    ("seen", "deliveries"),
    [
        ([], FIRST),
        ([(1, 100)], MOST),
        ([(2048, 200_000)], 4),
        ([(100, 500_000)], 8),
        ([(1, 64 << 20)], 1),
        ([(2048, 1), (1, 1)], int(8192 / (2048 * FADING))),
    ],
)
def test_what_may_come_is_within_what_is_welcome(seen: list[tuple[int, int]], deliveries: int) -> None:
    window = PackedWindow(8192, 4_000_000)
    for events, size in seen:
        window.saw(events, size)
    assert window.deliveries == deliveries


def test_what_a_program_has_not_taken_counts_as_deliveries() -> None:
    window = PackedWindow(8192, 1 << 24)
    window.saw(1000, 1000)
    assert [window.holding(events) for events in (0, 1, 1000, 1001)] == [0, 1, 1, 2]


def test_who_wants_little_is_better_off_without() -> None:
    assert PackedWindow(WORTH_EVENTS, WORTH_BYTES).is_worth_it
    assert not PackedWindow(WORTH_EVENTS - 1, WORTH_BYTES).is_worth_it
    assert not PackedWindow(WORTH_EVENTS, WORTH_BYTES - 1).is_worth_it
