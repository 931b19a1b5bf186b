"""The trace of lone events: which of the nodes' times belong to one event."""

from __future__ import annotations

import pytest

from benchmarks.client.hops.event_hops import AT_FOLLOWER, NAMES, TO_CLIENT, TO_FOLLOWERS, Steps, follow, way

SENT, ANSWERED = 100, 300


def leader() -> dict[str, list[int]]:
    return {
        "received from the client": [50, 110, 400],
        "gathered": [60, 120, 410],
        "turn begun": [70, 130, 220, 420],
        "written to a node": [80, 140, 430],
        "received from a node": [90, 210, 215, 440],
        "written to clients": [95, 125, 230, 450],
    }


def follower(first_ns: int) -> Steps:
    return {name: [first_ns + 5 * number] for number, name in enumerate(AT_FOLLOWER[:-1])} | {
        "written to a node": [first_ns + 5 * len(AT_FOLLOWER)]
    }


def test_an_events_steps_are_the_first_after_those_before_at_the_follower_that_answers_first() -> None:
    found = way(leader(), [follower(160), follower(150)], SENT, ANSWERED)
    assert found == [100, 110, 120, 130, 140, 150, 155, 160, 165, 170, 180, 210, 220, 230, 300]
    assert len(found) == len(NAMES) + 1


@pytest.mark.parametrize("step", [*TO_FOLLOWERS, *TO_CLIENT])
def test_an_event_without_one_of_its_steps_is_left_out(step: str) -> None:
    steps = leader()
    steps[step] = [time for time in steps[step] if time < SENT]
    assert way(steps, [follower(150)], SENT, ANSWERED) is None


def test_an_event_whose_steps_are_those_of_another_is_left_out() -> None:
    assert way(leader(), [follower(150)], SENT, 225) is None, "the leader wrote after the client knew"
    assert way(leader(), [], SENT, ANSWERED) is None
    assert follow({"gathered": []}, ["gathered"], SENT) is None
