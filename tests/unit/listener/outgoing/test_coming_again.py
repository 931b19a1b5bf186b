"""What is handed out again after a rollback, where a cursor stood at the end of what can pass, or the log lost it."""

from __future__ import annotations

from typing import Any

import pytest

from node.listener.outgoing.consumer_groups.owned_partition import OwnedPartition
from node.partition.api import After
from node.partition.consumer_groups.group_state import Owned
from tests.unit.listener.outgoing.test_sql_reading import Shelf, batch, bodies, cursor_for


@pytest.mark.parametrize(
    ("text", "handed_out", "again"),
    [
        (f"d.event-streams-offset < '{10:016x}'", 10, [3, 5]),  # cut by bounds alone
        (f"number >= 0 AND d.event-streams-offset < '{10:016x}'", 10, [3, 5]),  # each event is looked at
        (f"number >= 0 AND d.event-streams-offset < '{10:016x}'", 7, [3, 5, 7, 8, 9]),  # three are held
    ],
)
def test_at_the_end_of_what_can_pass_only_what_was_given_back_comes_again(
    text: str, handed_out: int, again: list[int]
) -> None:
    cursor = cursor_for(text)
    sent = bodies(cursor.payloads([batch(0, 6), batch(6, 6)]) + cursor.release(handed_out))
    assert sent == list(range(handed_out))
    assert isinstance(cursor.reader, Shelf)
    cursor.reader.position = 12
    assert cursor.done
    cursor.finish()
    cursor.give_back(3)
    cursor.give_back(5)
    cursor.rewind()
    assert cursor.start == After(2)
    assert not cursor.holds
    assert bodies(cursor.payloads([batch(3, 3), batch(6, 6), batch(12, 2)]) + cursor.release(100)) == again


def test_what_retention_took_is_not_looked_for_again() -> None:
    cursor = cursor_for("TRUE", batch(0, 6))
    assert isinstance(cursor.reader, Shelf)
    cursor.payloads(cursor.reader.poll(100, 100))
    cursor.release(6)
    cursor.give_back(1)
    cursor.give_back(4)
    cursor.rewind()
    assert bodies(cursor.payloads([batch(3, 3), batch(6, 6)]) + cursor.release(100)) == [4, *range(6, 12)]
    cursor.give_back(8)
    cursor.rewind()
    assert cursor.start == After(7)


def owned() -> OwnedPartition:
    nobody: Any = None
    return OwnedPartition(nobody, nobody, "trades", "0", "g", Owned(1, 1, -1, False), durable=False)


def test_what_was_given_back_and_is_not_stored_any_more_does_not_hold_the_position() -> None:
    one = owned()
    one.sent(range(4), [(0, 4)], False)
    for number in range(4):
        one.given_back(number)
    one.sent(range(4, 6), [(2, 2)], False)  # retention took the first two
    assert one.position_with([4, 5]) is None
    one.sent(range(6, 8), [(4, 2)], False)
    assert one.position_with([4, 5]) == 4
    assert one.position_with([4, 5, 6]) == 5
    assert one.position_with([6, 7]) == 2
    one.moved([4, 5, 6, 7])
    assert one.all_settled


def test_what_was_given_back_holds_the_position_until_it_has_come_again() -> None:
    one = owned()
    one.sent(range(4), [(0, 4)], False)
    one.given_back(1)
    assert one.position_with([0, 2, 3]) == 1
    one.sent(range(4, 5), [(1, 1)], False)
    one.sent(range(5, 6), [(4, 1)], False)
    assert one.position_with([0, 2, 3, 5]) == 1
    assert one.position_with([0, 2, 3, 4]) == 4
