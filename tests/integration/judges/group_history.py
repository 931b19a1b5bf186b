"""What the members of a group saw, against what a group promises.

A history is a list of facts, each with the time (one clock for all processes of the machine), who, and what:

 - `got`: events [first, last] of a partition were handed out to the program, under a claim;
 - `committed`: the cluster confirmed to that program that all up to `last` is done, under a claim;
 - `revoked`: the program was told that the partition is not its own any more. Others need not have got anything before
   it has the partition again: a member whose connection was lost, and that could not be sure for long that nobody else
   reads, is told so and begins anew where the group stands.

A member is one life of one process. Claims of a partition are numbered by the cluster, later ones higher. For each
partition it must hold that
 - a claim is one member's;
 - members act one after the other: nobody gets anything after somebody got something under a later claim;
 - nothing is skipped: a member's first event follows, or repeats, what was got before it, and its later ones follow
   each other; in the end every event was got;
 - nothing is handed out twice to a member while no other was there and it was not revoked, nor to a later owner, or to
   the same one after a revocation, what was committed before.
An empty history proves nothing, so it fails.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Fact:
    at_s: float
    who: str
    what: Literal["got", "committed", "revoked"]
    partition: str
    claim: int = 0
    last: int = -1
    first: int = 0


@dataclass(frozen=True)
class GroupJudgement:
    owners: int  # lives of members that got something
    changes: int  # times that a partition went from one to another
    repeated: int  # events that were handed out again after that


def check(history: Iterable[Fact], events: Mapping[str, int]) -> GroupJudgement:
    """`events`: how many each partition holds. Raises AssertionError with the first violation."""
    by_partition: dict[str, list[Fact]] = defaultdict(list)
    for fact in sorted(history, key=lambda fact: fact.at_s):
        by_partition[fact.partition].append(fact)
    strangers = set(by_partition) - set(events)
    assert not strangers, f"nobody knows partitions {strangers}"
    changes = repeated = 0
    for partition, count in events.items():
        more, again = _check_partition(partition, by_partition[partition], count)
        changes, repeated = changes + more, repeated + again
    owners = {fact.who for facts in by_partition.values() for fact in facts if fact.what == "got"}
    return GroupJudgement(len(owners), changes, repeated)


def _check_partition(partition: str, facts: list[Fact], count: int) -> tuple[int, int]:
    where = f"partition {partition}"
    got = [fact for fact in facts if fact.what == "got"]
    assert got, f"{where}: nothing was got, so nothing is proven"
    _check_claims(where, facts)
    seen, changes, repeated = -1, 0, 0  # all up to `seen` were got
    committed = -1  # by members before the one that acts
    own_commit = -1
    actor, reached, revoked = "", -1, False
    for fact in facts:
        if fact.what == "committed":
            own_commit = max(own_commit, fact.last)
            continue
        if fact.what == "revoked":
            revoked = revoked or fact.who == actor
            continue
        assert 0 <= fact.first <= fact.last < count, f"{where}: {fact} is about events that are not there ({count})"
        if fact.who != actor or revoked:
            changes += bool(actor) and fact.who != actor
            revoked = False
            committed = max(committed, own_commit)
            assert fact.first <= seen + 1, f"{where}: {fact.who} skipped {seen + 1} to {fact.first - 1}: {fact}"
            assert fact.first > committed, f"{where}: {fact.who} got {fact.first} again, which was committed: {fact}"
            actor = fact.who
        else:
            assert fact.first <= reached + 1, f"{where}: {actor} skipped {reached + 1} to {fact.first - 1}: {fact}"
            assert fact.first > reached, f"{where}: {actor} got {fact.first} twice, and nobody else was there: {fact}"
        repeated += max(0, min(seen, fact.last) - fact.first + 1)
        reached = fact.last
        seen = max(seen, fact.last)
    assert seen == count - 1, f"{where}: {seen + 1} of {count} events were got"
    return changes, repeated


def _check_claims(where: str, facts: list[Fact]) -> None:
    whose: dict[int, str] = {}
    highest: Fact | None = None
    for fact in facts:
        if fact.what == "revoked":
            continue
        owner = whose.setdefault(fact.claim, fact.who)
        assert owner == fact.who, f"{where}: claim {fact.claim} is {owner}'s and {fact.who}'s: two active owners"
        if fact.what != "got":
            continue
        late = highest is not None and fact.claim < highest.claim
        assert not late, f"{where}: {fact} came after {highest}: two active owners"
        highest = fact
