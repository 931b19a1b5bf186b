"""Bounds of the searches, and the mutations that they must notice.

What is rare is reached by steps that are written down; from there on everything is searched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cluster.raft.membership.changes import Wish
from cluster.raft.membership.configuration import Replica, founding
from tests.simulation.membership_model.model import Scope
from tests.simulation.membership_model.transactions import TransactionScope

A_C_AND_B = Scope(
    founding([1, 2]), (Wish(1, 1, voter=Replica(3, 17)),), nodes=3, loses=frozenset({2}), losses=1,
)  # fmt: skip
SWAP_OF_TWO = Scope(
    founding([1, 3]), (Wish(1, 1, voter=Replica(2, 17), gone=Replica(3, 1)),), nodes=3, loses=frozenset({2}), losses=1
)
TO_AND_FRO = Scope(founding([1, 2, 3]), (Wish(1, 1, gone=Replica(3, 1)), Wish(2, 1, voter=Replica(3, 20))), nodes=3)
READMITTED = Scope(founding([1, 2, 3]), (), nodes=3, recovers=True, entries=1, losses=1, loses=frozenset({3}))
READMITTED_OF_TWO = Scope(founding([1, 2]), (), nodes=2, recovers=True, entries=1, losses=2, loses=frozenset({2}))
READMITTED_OF_FIVE = replace(READMITTED, start=founding(range(1, 6)), nodes=5, loses=frozenset({5}))
GROWING = Scope(
    founding([1]), (Wish(1, 1, voter=Replica(2, 17)),), nodes=2, terms=3, entries=1, loses=frozenset({2}), losses=1
)
DEMOTING = Scope(founding([1, 2, 3]), (Wish(1, 1, learner=Replica(3, 1)),), nodes=3)
MOVE = Scope(
    founding([1, 2, 3]), (Wish(1, 1, voter=Replica(4, 17), gone=Replica(3, 1)),), nodes=4, entries=1, cancels=True
)
TWO_MOVES = replace(
    MOVE, cancels=False,
    wishes=(*MOVE.wishes, Wish(2, 1, voter=Replica(3, 20), gone=Replica(2, 1))),
)  # fmt: skip
TRANSACTION = TransactionScope(partitions=2)
TRANSACTIONS = TransactionScope(transactions=2, registrations=1)
"""One after the other, and another holder of their id."""

SCOPES: dict[str, Scope | TransactionScope] = {
    "two-and-one": A_C_AND_B,
    "swap-of-two": SWAP_OF_TWO,
    "to-and-fro": TO_AND_FRO,
    "readmitted": READMITTED,
    "readmitted-of-two": READMITTED_OF_TWO,
    "growing": GROWING,
    "demoting": DEMOTING,
    "move": MOVE,
    "transaction": TRANSACTION,
    "transactions": TRANSACTIONS,
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
FORGOTTEN_VOTE = [
    *LED_BY_1[:5], "2/1 campaigns in term 2", "3/1 votes for 2/1 in 2", "node 3 loses its disk"
]  # fmt: skip
"""Node 2 has what it needs to lead term 2, by a vote that node 3 forgets."""
FORGOTTEN_ENTRY = [*LED_BY_1[:5], "term 1 appends an entry", "3/1 has 2 entries of term 1"]
MOVED_BUT_FOR_F = [
    "1/1 campaigns in term 1", "3/1 votes for 1/1", "1/1 leads term 1", "3/1 has 1 entries of term 1", "term 1 commits",
    "node 1 learns of move 1", "term 1 appends v2", "3/1 has 2 entries of term 1", "term 1 commits",
    "node 4 learns of move 1", "term 1 appends v3", "3/1 has 3 entries of term 1", "4/17 has 3 entries of term 1",
    "term 1 commits", "term 1 appends v4", "3/1 campaigns in term 2", "2/1 votes for 3/1 in 2",
    "node 2 loses its disk", "2/1 answers in term 1", "4/17 answers in term 1",
]  # fmt: skip
"""Node 3 is to leave, has not heard that it left, and has a vote that node 2 forgets."""


@dataclass(frozen=True)
class ModelMutation:
    """A rule that does not hold. `most`: states within which the search must notice."""

    without: str
    scope: Scope | TransactionScope
    steps: Sequence[str] = ()
    most: int = 20_000

    @property
    def mutated(self) -> Scope | TransactionScope:
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
    ModelMutation("who has no memory leads nothing", replace(GROWING, loses=frozenset({1})), GROWN_TO_2),
    ModelMutation("answers of all others", READMITTED, FORGOTTEN_VOTE),
    ModelMutation("answers to what was sent since", READMITTED, FORGOTTEN_VOTE),
    ModelMutation(
        "of all others, not of a majority", READMITTED_OF_FIVE,
        ["1/1 campaigns in term 1", "3/1 votes", "4/1 votes", "1/1 leads term 1", "2/1 has 1 entries of term 1",
         "3/1 has 1 entries of term 1", "4/1 has 1 entries of term 1", "term 1 commits", "2/1 campaigns in term 2",
         "5/1 votes for 2/1 in 2", "node 5 loses its disk", "5/1 answers in term 1", "3/1 answers in term 1",
         "4/1 answers in term 1", "5/1 votes again, with 1 of term 1", "3/1 votes for 2/1 in 2", "2/1 leads term 2"],
    ),
    ModelMutation("what it confirmed before is void", READMITTED, [*FORGOTTEN_ENTRY, "node 3 loses its disk"]),
    ModelMutation(
        "it has everything up to there", READMITTED, [*FORGOTTEN_ENTRY, "term 1 commits 2", "node 3 loses its disk"]
    ),
    ModelMutation(
        "a commit of its own first",
        replace(MOVE, cancels=False, entries=0, recovers=True, losses=1, loses=frozenset({2})), MOVED_BUT_FOR_F,
    ),
    ModelMutation(
        "a release is for one life", replace(READMITTED, losses=2),
        [*LED_BY_1[:5], "node 3 loses its disk", "3/1 answers in term 1", "2/1 answers in term 1",
         "3/1 votes again, with 1 of term 1", *FORGOTTEN_VOTE[5:]],
    ),
    ModelMutation(
        "a vote is for one life of the candidate", READMITTED,
        [*FORGOTTEN_ENTRY, "3/1 campaigns in term 2", "node 3 loses its disk", "3/1 answers in term 1",
         "2/1 answers in term 1"],
    ),
    ModelMutation(
        "nor do two of them", replace(READMITTED, losses=2, loses=frozenset({2, 3})),
        ["2/1 campaigns in term 1", "3/1 votes", "2/1 leads term 1", "3/1 has 1 entries of term 1", "term 1 commits"],
    ),
    ModelMutation("it confirms nothing", READMITTED, FORGOTTEN_VOTE[:-1]),
    ModelMutation("noted before its commit", TRANSACTION),
    ModelMutation("what is unknown rolls back", TRANSACTION),
    ModelMutation("a majority confirms who answers", TRANSACTION),
    ModelMutation("fenced before it is said to be over", TRANSACTION),
    ModelMutation("an event begins nothing", TRANSACTION),
    ModelMutation("ends are in the checkpoint", TRANSACTION),
    ModelMutation("state is of one birth", TRANSACTION),
    ModelMutation("one change at a time", replace(MOVE, cancels=False), [*LED_BY_1]),
)  # fmt: skip
