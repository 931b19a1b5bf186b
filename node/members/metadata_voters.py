"""Voters on metadata: the next wish of the metadata group, as a pure function.

The problem: every node needs the metadata, and a majority of all of them is slow, and lost sooner than it need be. The
rules: all nodes hold the metadata, and an odd number of them, five at most, votes; the others follow (*learners*). Who
votes is not leaving and was heard within a minute, and voters stand in as many racks as they can. A cluster keeps the
voters that it began with, up to seven, as long as nothing has to change. One change at a time: a learner comes before
it votes, and who votes no more stays as a learner.

From one voter the group goes on to two and three only when both others are near: with two, the loss of either would
stop it. (A cluster of two nodes has no choice.)

Rejected: to change voters whenever the result would be a little better. Each change is a moment with two majorities.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from cluster.raft import NodeId
from cluster.raft.membership.changes import Wish
from cluster.raft.membership.configuration import FOUNDING_BIRTH, FOUNDING_VERSION, Configuration, Replica

MOST_VOTERS = 5


@dataclass(frozen=True, slots=True)
class Standing:
    """Standing of a registered node, as far as the metadata leader knows."""

    birth: int
    rack: str = ""
    is_leaving: bool = False
    is_away: bool = False


@dataclass(frozen=True, slots=True)
class KnownCluster:
    """Nodes of the cluster, as far as the metadata leader knows."""

    leader: NodeId
    nodes: Mapping[NodeId, Standing]
    removed: Collection[NodeId] = ()
    announced: int = 0
    """Nodes that are still to come."""
    near: Collection[NodeId] = ()
    """Nodes whose replicas could count at once."""


def wanted_voters(nodes: int) -> int:
    """Number of voters of a cluster of so many nodes: 1, 2, 3, 3, 5, 5 and so on."""
    return min(MOST_VOTERS, nodes if nodes <= 3 else (nodes - 1) // 2 * 2 + 1)


def metadata_wish(latest: Configuration, cluster: KnownCluster) -> Wish | None:
    """The next change of the metadata group's members. None: nothing is to change, or a change is under way."""
    if latest.is_joint or latest.move:
        return None
    return _Chooser(latest, cluster).wish()


class _Chooser:
    def __init__(self, latest: Configuration, cluster: KnownCluster) -> None:
        self._latest = latest
        self._cluster = cluster
        self._voters = sorted(latest.voters)
        self._staying = [one for one in self._voters if not self._standing(one).is_leaving and not self._is_gone(one)]
        self._candidates = [one for one in sorted(latest.learners) if self._may_vote(one)]

    def _standing(self, replica: Replica) -> Standing:
        """A voter that the metadata do not know is one of a cluster that begins, and has not registered yet."""
        return self._cluster.nodes.get(replica.node) or Standing(replica.birth)

    def _is_gone(self, replica: Replica) -> bool:
        return replica.node in self._cluster.removed

    def _may_vote(self, learner: Replica) -> bool:
        known = self._cluster.nodes.get(learner.node)
        is_there = known is not None and not known.is_leaving and not known.is_away
        return is_there and learner.node in self._cluster.near

    def wish(self) -> Wish | None:
        return self._of_gone() or self._of_new() or self._of_voters()

    def _wish(
        self, *, voter: Replica | None = None, learner: Replica | None = None, gone: Replica | None = None
    ) -> Wish:
        return Wish(self._latest.ended + 1, self._latest.version, voter, learner, gone)

    def _of_gone(self) -> Wish | None:
        """Take the place of a node that was removed away."""
        gone = next((one for one in sorted(self._latest.replicas) if self._is_gone(one)), None)
        if gone is None:
            return None
        lacks_one = gone in self._voters and len(self._staying) < self._wanted()
        return self._wish(gone=gone, voter=self._best() if lacks_one else None)

    def _of_new(self) -> Wish | None:
        """Give a node that came its place, in the order of births: a group takes them only so."""
        placed = {replica.node for replica in self._latest.replicas}
        new = [
            Replica(node, known.birth)
            for node, known in self._cluster.nodes.items()
            if node not in placed and known.birth != FOUNDING_BIRTH
        ]
        return self._wish(learner=min(new, key=lambda one: one.birth)) if new else None

    def _of_voters(self) -> Wish | None:
        leaving = next((one for one in self._voters if one not in self._staying), None)
        if len(self._staying) < self._wanted() and (best := self._best()) is not None:
            return self._wish(voter=best, learner=leaving) if self._may_leave_one() else None
        if leaving is not None:
            return self._wish(learner=leaving) if self._staying else None
        away = next((one for one in self._staying if self._standing(one).is_away), None)
        if away is not None and (best := self._best(without=away)) is not None:
            return self._wish(voter=best, learner=away)
        if len(self._staying) > self._wanted() and not self._keeps_founders():
            return self._wish(learner=self._least_needed(self._staying))
        return self._of_racks()

    def _wanted(self) -> int:
        return wanted_voters(self._nodes())

    def _nodes(self) -> int:
        known = sum(not one.is_leaving for one in self._cluster.nodes.values())
        return known + sum(one.node not in self._cluster.nodes for one in self._staying)

    def _may_leave_one(self) -> bool:
        """True unless it would be two of three: from one voter on only if the third is near, too."""
        will_be = self._nodes() + self._cluster.announced
        return len(self._voters) != 1 or wanted_voters(will_be) < 3 or len(self._candidates) > 1

    def _keeps_founders(self) -> bool:
        """True of the voters of a cluster that began with more than it would get now."""
        are_founders = all(one.birth == FOUNDING_BIRTH for one in self._voters)
        return are_founders and (self._latest.version == FOUNDING_VERSION or len(self._voters) % 2 == 1)

    def _best(self, without: Replica | None = None) -> Replica | None:
        """The candidate that shares its rack with the fewest voters."""
        voters = [one for one in self._staying if one != without]
        return min(self._candidates, key=lambda one: (self._crowd(one, voters), one.node), default=None)

    def _crowd(self, replica: Replica, voters: Collection[Replica]) -> int:
        """Others of these in the same rack; a node that names none has one of its own."""
        rack = self._standing(replica).rack
        return sum(one != replica and self._standing(one).rack == rack for one in voters) if rack else 0

    def _least_needed(self, voters: Collection[Replica]) -> Replica:
        return max(
            voters,
            key=lambda one: (one.node != self._cluster.leader, self._crowd(one, self._staying), one.node),
        )

    def _of_racks(self) -> Wish | None:
        """Exchange one of several voters of a rack for a candidate of a rack that has none."""
        crowded = [one for one in self._staying if self._crowd(one, self._staying)]
        apart = [one for one in self._candidates if self._standing(one).rack and not self._crowd(one, self._staying)]
        if not crowded or not apart:
            return None
        return self._wish(voter=apart[0], learner=self._least_needed(crowded))
