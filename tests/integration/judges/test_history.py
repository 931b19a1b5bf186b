"""The judge itself: each kind of violation is seen, and what is allowed is not taken for one."""

from __future__ import annotations

import pytest

from tests.integration.judges.history import Sent, check


def story(numbers: int, acknowledged: set[int], resent: set[int] | None = None) -> Sent:
    return Sent("p", numbers, acknowledged, resent or set())


def bodies(*numbers: int) -> list[str]:
    return [f"p:{number}" for number in numbers]


def test_what_is_allowed() -> None:
    assert check(story(4, {0, 1, 2, 3}), bodies(0, 1, 2, 3)) == 0
    assert check(story(4, {0, 1}), bodies(0, 1, 3)) == 0, "what was not acknowledged may be there, or not"
    assert check(story(4, {0, 1, 2, 3}, {1, 2}), bodies(0, 1, 2, 1, 2, 3)) == 2, "copies of what was resent"
    assert check(story(3, {0, 1, 2}), bodies(0, 1, 1, 2), copies_allowed=range(3)) == 1


@pytest.mark.parametrize(
    ("sent", "found", "complaint"),
    [
        (story(3, set()), bodies(0, 1, 2), "nothing was acknowledged"),
        (story(3, {0, 1, 2}), bodies(0, 2), "1 acknowledged events are lost"),
        (story(3, {0, 1, 2}), bodies(0, 2, 1), "order broken at place 2"),
        (story(3, {0, 1, 2}, {1}), bodies(0, 1, 1, 2, 2), r"stored more than once: \[2\]"),
        (story(3, {0, 1, 2}), bodies(0, 1, 2, 3), "never sent"),
        (story(3, {0}), ["q:0"], "somebody else"),
    ],
)
def test_what_is_not(sent: Sent, found: list[str], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check(sent, found)
