"""The judge of groups itself: each kind of violation is seen, and what is allowed is not taken for one."""

from __future__ import annotations

import pytest

from tests.integration.judges.group_history import Fact, GroupJudgement, check


def story(*steps: str) -> list[Fact]:
    """`a1:0-3`: a got events 0 to 3 under claim 1; `a1!3`: a committed up to 3; `a~`: a was told that it lost it. In
    this order, a second apart."""
    facts = []
    for at_s, step in enumerate(steps):
        if step.endswith("~"):
            facts.append(Fact(float(at_s), step[0], "revoked", "0"))
        elif "!" in step:
            name, last = step.split("!")
            facts.append(Fact(float(at_s), name[0], "committed", "0", int(name[1:]), int(last)))
        else:
            name, _, places = step.partition(":")
            first, _, last = places.partition("-")
            facts.append(Fact(float(at_s), name[0], "got", "0", int(name[1:]), int(last), int(first)))
    return facts


@pytest.mark.parametrize(
    ("steps", "judgement"),
    [
        (["a1:0-4", "a1:5-9"], GroupJudgement(1, 0, 0)),
        (["a1:0-4", "a2:5-9"], GroupJudgement(1, 0, 0)),  # it continued
        (["a1:0-4", "a1!4", "b2:5-9"], GroupJudgement(2, 1, 0)),
        (["a1:0-4", "a1!2", "b2:3-9"], GroupJudgement(2, 1, 2)),
        (["a1:0-4", "b2:0-9"], GroupJudgement(2, 1, 5)),
        (["a1:0-4", "b2:3-6", "a3:5-9"], GroupJudgement(2, 2, 4)),
        (["a1:0-4", "a~", "a2:0-9"], GroupJudgement(1, 0, 5)),  # it could not be sure that nobody else reads
        (["a1:0-4", "a1!2", "a~", "a2:3-9"], GroupJudgement(1, 0, 2)),
        (["a1:0-4", "b~", "a1:5-9"], GroupJudgement(1, 0, 0)),
        (["a1:0-4", "b2:2-6", "a1!3", "c3:4-9"], GroupJudgement(3, 2, 6)),  # the answer to a's commit came late
    ],
)
def test_what_is_allowed(steps: list[str], judgement: GroupJudgement) -> None:
    assert check(story(*steps), {"0": 10}) == judgement


@pytest.mark.parametrize(
    ("steps", "complaint"),
    [
        ([], "nothing is proven"),
        (["a1!4"], "nothing is proven"),
        (["a1:0-4", "b1:5-9"], "claim 1 is a's and b's: two active owners"),
        (["a1:0-4", "b2:3-6", "a1:5-9"], "two active owners"),
        (["a1:0-4", "b2:5-6", "a1:7-9"], "two active owners"),
        (["a1:0-4", "a1:6-9"], "a skipped 5 to 5"),
        (["a1:0-4", "b2:6-9"], "b skipped 5 to 5"),
        (["a1:1-9"], "a skipped 0 to 0"),
        (["a1:0-4", "a1:4-9"], "a got 4 twice"),
        (["a1:0-4", "a2:0-9"], "a got 0 twice"),
        (["a1:0-4", "b~", "a2:4-9"], "a got 4 twice"),
        (["a1:0-4", "a1!4", "a~", "a2:4-9"], "a got 4 again, which was committed"),
        (["a1:0-4", "a~", "a2:6-9"], "a skipped 5 to 5"),
        (["a1:0-4", "a~", "a2:2-6", "a2:6-9"], "a got 6 twice"),
        (["a1:0-4", "a1!4", "b2:4-9"], "b got 4 again, which was committed"),
        (["a1:0-4", "a1:5-8"], "9 of 10 events were got"),
        (["a1:0-10"], "events that are not there"),
    ],
)
def test_what_is_not(steps: list[str], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check(story(*steps), {"0": 10})


def test_every_partition_is_judged() -> None:
    with pytest.raises(AssertionError, match="partition 1: nothing was got"):
        check(story("a1:0-9"), {"0": 10, "1": 1})
    with pytest.raises(AssertionError, match="nobody knows"):
        check(story("a1:0-9"), {})
