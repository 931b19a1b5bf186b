"""How many deliveries of record batches a reader asks for."""

from __future__ import annotations

import pytest

from holdfast.client.consume.batch_credit import EXPECTED_BYTES, EXPECTED_EVENTS, FADING, FIRST, MOST, BatchWindow


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
    window = BatchWindow(8192, 4_000_000)
    for events, size in seen:
        window.saw(events, size)
    assert window.deliveries == deliveries


def test_what_a_program_has_not_taken_counts_as_deliveries() -> None:
    window = BatchWindow(8192, 1 << 24)
    window.saw(1000, 1000)
    assert [window.holding(events) for events in (0, 1, 1000, 1001)] == [0, 1, 1, 2]


@pytest.mark.parametrize(
    ("events", "size", "first"),
    [
        (FIRST * EXPECTED_EVENTS, FIRST * EXPECTED_BYTES, FIRST),
        (FIRST * EXPECTED_EVENTS - 1, 1 << 30, FIRST - 1),
        (1 << 30, FIRST * EXPECTED_BYTES - 1, FIRST - 1),
        (1, 1, 1),
    ],
)
def test_who_wants_little_asks_for_one_at_a_time(events: int, size: int, first: int) -> None:
    window = BatchWindow(events, size)
    assert window.deliveries == first
    window.saw(4096, 1 << 20)
    assert window.deliveries >= 1
