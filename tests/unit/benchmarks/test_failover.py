"""From the kill of a leader to the table: what a producer waited, and when the figure is doubtful."""

from __future__ import annotations

from typing import Any

from benchmarks.client.failover import GIVEN_UP_S, TUNED, SurvivedKill, judged, markdown, rows


def report(**changed: Any) -> dict[str, Any]:
    return {"send": {"longest_gap_ms": 1250.0, "unsettled": 0, "outcomes": {}} | changed}


def test_the_longest_time_without_an_acknowledgement_is_what_a_producer_waited() -> None:
    assert judged(report(), was_killed=True) == SurvivedKill(1.25, ())


def test_a_kill_that_did_not_happen_is_told() -> None:
    assert judged(report(), was_killed=False).problems == ("the leader was not killed",)


def test_events_that_were_lost_or_never_settled_are_told() -> None:
    assert judged(report(outcomes={"_MSG_TIMED_OUT": 3}), was_killed=True) == SurvivedKill(1.25, ("3 _MSG_TIMED_OUT",))
    never = judged(report(unsettled=7), was_killed=True)
    assert never.waited_s == GIVEN_UP_S
    assert "7 never settled" in never.problems[0]


def test_medians_are_held_against_the_first_contestant_and_who_has_none_is_left_out() -> None:
    found = {
        "Holdfast": [SurvivedKill(s, ()) for s in (0.1, 0.2, 0.9)],
        "Kafka": [SurvivedKill(s, ()) for s in (9.0, 11.0, 10.0)],
        "Kafka, tuned": [],
    }
    assert rows(found) == [
        ("Holdfast", "3", "0.20", "0.10", "0.90", "1.0"),
        ("Kafka", "3", "10.00", "9.00", "11.00", "50.0"),
    ]
    text = markdown({"cores": 2, "load_before": 1, "sync_ms": 0.1, "python": "3"}, rows(found), ["a reason"])
    assert "| Kafka | 3 | 10.00 | 9.00 | 11.00 | 50.0 |" in text
    assert "- a reason" in text
    assert all(f"{name}={value}" in text for name, value in TUNED.items())
