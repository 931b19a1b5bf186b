"""What is not settled is taken back in the order of sending, however answers come: judged against a plain list."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.client.produce.in_flight_window import InFlightWindow

STEPS = st.lists(
    st.tuples(st.sampled_from(["sent", "settled", "came back", "taken back"]), st.integers(0, 30)), max_size=80
)


class PlainList:
    """The same by a list of [item, number, why], where False stands for no answer."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, int, str | bool | None]] = []

    def row(self, number: int) -> tuple[str, int, str | bool | None] | None:
        return next((row for row in self.rows if row[1] == number and row[2] is False), None)


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_a_window_does_what_a_list_of_all_that_was_sent_would(steps: list[tuple[str, int]]) -> None:
    window: InFlightWindow[str, str] = InFlightWindow()
    model, next_number, sent = PlainList(), 0, 0
    taken: list[str] = []
    for step, number in steps:
        row = model.row(number)
        if step == "sent" and window.is_open:
            window.sent(next_number, f"item {sent}")
            model.rows.append((f"item {sent}", next_number, False))
            next_number, sent = next_number + 1, sent + 1
        elif step == "settled":
            assert window.settled(number) == (None if row is None else row[0])
            model.rows = [one for one in model.rows if one is not row]
        elif step == "came back":
            why = f"why {number}" if number % 2 else None
            assert window.came_back(number, why) == (None if row is None else row[0])
            model.rows = [(one[0], one[1], why) if one is row else one for one in model.rows]
        elif step == "taken back":
            found = window.take_back()
            assert found == [(item, why or None) for item, _, why in model.rows]
            taken += [item for item, _ in found]
            model.rows = []
        assert list(window) == [item for item, _, _ in model.rows]
        assert (len(window), window.first) == (len(model.rows), next(iter(window), None))
        assert window.unanswered == sum(why is False for _, _, why in model.rows)
        assert window.is_open == (window.unanswered == len(window))
    order = [int(item.split()[1]) for item in taken]
    assert order == sorted(order), "in the order of sending"


def test_nothing_is_sent_behind_what_came_back_until_all_is_taken_back() -> None:
    window: InFlightWindow[str, str] = InFlightWindow()
    window.sent(1, "a")
    window.sent(2, "b")
    window.came_back(1, "later")
    with pytest.raises(AssertionError, match="stand behind"):
        window.sent(3, "c")
    assert window.settled(1) is None, "it was answered"
    assert window.take_back() == [("a", "later"), ("b", None)]
    window.sent(3, "a")
    assert list(window) == ["a"]


def test_a_number_has_one_meaning_at_a_time() -> None:
    window: InFlightWindow[str, str] = InFlightWindow()
    window.sent(7, "a")
    with pytest.raises(AssertionError, match="used before"):
        window.sent(7, "b")
    assert window.settled(7) == "a"
    window.sent(7, "b")
