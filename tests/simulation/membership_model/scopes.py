"""Bounds of the searches, and the mutations that they must notice.

What is rare is reached by steps that are written down; from there on everything is searched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cluster.raft.membership.changes import Wish
from cluster.raft.membership.configuration import Replica, founding
from tests.simulation.membership_model.model import Scope

A_C_AND_B = Scope(
    founding([1, 2]), (Wish(1, 1, voter=Replica(3, 17)),), nodes=3, loses=2, losses=1,
)  # fmt: skip
SWAP_OF_TWO = Scope(
    founding([1, 3]), (Wish(1, 1, voter=Replica(2, 17), gone=Replica(3, 1)),), nodes=3, loses=2, losses=1
)
TO_AND_FRO = Scope(founding([1, 2, 3]), (Wish(1, 1, gone=Replica(3, 1)), Wish(2, 1, voter=Replica(3, 20))), nodes=3)
GROWING = Scope(founding([1]), (Wish(1, 1, voter=Replica(2, 17)),), nodes=2, terms=3, entries=1, loses=2, losses=1)
DEMOTING = Scope(founding([1, 2, 3]), (Wish(1, 1, learner=Replica(3, 1)),), nodes=3)
MOVE = Scope(
    founding([1, 2, 3]), (Wish(1, 1, voter=Replica(4, 17), gone=Replica(3, 1)),), nodes=4, entries=1, cancels=True
)
TWO_MOVES = replace(
    MOVE, cancels=False,
    wishes=(*MOVE.wishes, Wish(2, 1, voter=Replica(3, 20), gone=Replica(2, 1))),
)  # fmt: skip

SCOPES = {
    "two-and-one": A_C_AND_B,
    "swap-of-two": SWAP_OF_TWO,
    "to-and-fro": TO_AND_FRO,
    "growing": GROWING,
    "demoting": DEMOTING,
    "move": MOVE,
}

LED_BY_1 = [
    "1/1 campaigns in term 1", "2/1 votes for 1/1", "1/1 leads term 1", "2/1 has 1 entries of term 1", "term 1 commits",
    "node 1 learns of move 1",
]  # fmt: skip
LEARNING = ["term 1 appends v2", "2/1 has 2 entries of term 1", "term 1 commits", "node 4 learns of move 1"]
BY_1_3_4 = [
    "1/1 campaigns in term 1", "3/1 votes for 1/1", "1/1 leads term 1", "3/1 has 1 entries of term 1", "term 1 commits",
    "node 1 learns of move 1", "term 1 appends v2", "3/1 has 2 entries of term 1", "term 1 commits",
    "node 4 learns of move 1", "term 1 appends v3", "3/1 has 3 entries of term 1", "4/17 has 3 entries of term 1",
    "term 1 commits", "term 1 appends v4", "4/17 has 4 entries of term 1", "term 1 commits", "term 1 reports",
]  # fmt: skip
"""The whole first move, of which node 2 hears nothing."""
UNSEEN_BY_2 = ["node 3 learns of move 1", "node 3 learns of v4"]
BY_1_AFTER_2 = [
    "2/1 campaigns in term 1", "1/1 votes for 2/1", "2/1 leads term 1", "term 1 appends an entry",
    *(step.replace("term 1", "term 2") for step in BY_1_3_4),
]  # fmt: skip

GROWN_TO_2 = [
    "1/1 campaigns in term 1", "1/1 leads term 1", "term 1 commits", "node 1 learns of move 1", "term 1 appends v2",
    "node 2 learns of move 1", "term 1 commits", "2/17 has 2 entries of term 1", "term 1 appends v3",
    "2/17 has 3 entries of term 1", "term 1 commits", "term 1 appends v4", "2/17 has 4 entries of term 1",
    "term 1 commits", "term 1 reports", "node 1 loses its disk",
]  # fmt: skip
"""Node 1 forgets that it is not its whole group any more."""


@dataclass(frozen=True)
class ModelMutation:
    """A rule that does not hold. `most`: states within which the search must notice."""

    without: str
    scope: Scope
    steps: Sequence[str] = ()
    most: int = 20_000

    @property
    def mutated(self) -> Scope:
        return replace(self.scope, without=self.without)


MUTATIONS = (
    ModelMutation("the asker's word", A_C_AND_B, most=60_000),
    ModelMutation("the votes of all others", A_C_AND_B, most=60_000),
    ModelMutation(
        "a cancel is an entry", MOVE,
        [*LED_BY_1, "somebody cancels", "node 1 learns of cancel", "term 1 reports v1", "2/1 campaigns in term 2",
         "3/1 votes for 2/1", "2/1 leads term 2", "3/1 has 2 entries of term 2", "term 2 commits 2",
         "node 2 learns of move 1", "term 2 appends v2", "3/1 has 3 entries of term 2", "term 2 commits"],
        most=60_000,
    ),
    ModelMutation(
        "in force at the append", MOVE,
        [*LED_BY_1, *LEARNING, "term 1 appends v3", "2/1 has 3 entries of term 1", "term 1 commits",
         "term 1 appends v4", "2/1 has 4 entries of term 1", "term 1 commits", "term 1 appends an entry",
         "4/17 has 5 entries of term 1"],
    ),
    ModelMutation("learners do not count", MOVE, [*LED_BY_1, *LEARNING, "term 1 appends an entry"]),
    ModelMutation(
        "births in votes", TWO_MOVES, [*BY_1_3_4, *UNSEEN_BY_2, "move 2 begins", "node 3 learns of move 2"]
    ),
    ModelMutation(
        "births in acks", TWO_MOVES, [*BY_1_AFTER_2, *UNSEEN_BY_2, "move 2 begins", "node 3 learns of move 2"]
    ),
    ModelMutation("births are over when erased", TWO_MOVES, [*BY_1_3_4, *UNSEEN_BY_2]),
    ModelMutation("erased when the move is finished", MOVE),
    ModelMutation("finished when F is committed", replace(MOVE, cancels=False), [*LED_BY_1, *LEARNING]),
    ModelMutation("who has no memory leads nothing", replace(GROWING, loses=1), GROWN_TO_2),
    ModelMutation("one change at a time", replace(MOVE, cancels=False), [*LED_BY_1]),
)  # fmt: skip
