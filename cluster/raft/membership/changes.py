"""The leader's next step towards a wish of the metadata: one entry, a handing over, or a reason to wait.

The problem: the wish comes late, twice, or from metadata that are behind, and the leader that began may not be the one
that ends. The rules: the next step is a function of the wish, of the latest configuration and of what the leader knows
of the others, with no memory of its own; nothing is appended before an entry of the leader's own term and the latest
configuration are committed; from J on the log alone says how it goes on; what the log says is over is never begun
again, since a cancel is an entry, too; and a leader that is to leave hands over first. (A single voter cannot: its
successor takes over inside the joint phase.)

Rejected: counting on the two majorities to come. A joint configuration without them stops the group, so both must be
there before it is entered.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from cluster.raft.interfaces import NodeId
from cluster.raft.membership.configuration import (
    Configuration,
    Replica,
    ended,
    final,
    joint,
    with_learner,
    with_standing_learner,
)
from cluster.raft.membership.quorum import Quorum


@dataclass(frozen=True, slots=True)
class Wish:
    """A move as the metadata want it: at most one replica becomes a voter, and at most one loses its place."""

    move: int
    version: int
    """Of the configuration that it was planned for."""
    voter: Replica | None = None
    """Is to vote. It is a learner first, if it is none yet."""
    learner: Replica | None = None
    """Is to be a learner for good, whether it votes now or is not here at all."""
    gone: Replica | None = None
    """Is to have no place in the group."""
    is_cancelled: bool = False

    @property
    def leaving(self) -> Replica | None:
        """The replica that is to vote no more, if it does."""
        return self.gone or self.learner


@dataclass(frozen=True, slots=True)
class LeaderView:
    """Facts that the leader has at this moment."""

    node: NodeId
    may_append: bool
    """An entry of its own term is committed, and so is the latest configuration."""
    near: Collection[NodeId]
    """Connected, with a memory, and with nearly all of the log; the leader is among them."""


@dataclass(frozen=True, slots=True)
class AppendConfiguration:
    configuration: Configuration


@dataclass(frozen=True, slots=True)
class HandLeadershipOver:
    """The leader is to leave, and first gives the leadership to one of these."""

    candidates: frozenset[NodeId]


@dataclass(frozen=True, slots=True)
class AwaitCondition:
    why: str


@dataclass(frozen=True, slots=True)
class MoveEnded:
    """The move is over, in this version of the configuration or before: that says how it ended."""

    version: int


NextStep = AppendConfiguration | HandLeadershipOver | AwaitCondition | MoveEnded


def next_step(wish: Wish | None, latest: Configuration, view: LeaderView) -> NextStep:
    if not view.may_append:
        return AwaitCondition("the latest configuration, or an entry of this leadership, is not committed yet")
    if latest.is_joint:
        return _leave_joint(latest, view)
    if wish is None:
        return AwaitCondition("nothing is wished")
    if wish.move <= latest.ended:
        return MoveEnded(latest.version)
    if latest.move not in (0, wish.move):
        return AwaitCondition(f"move {latest.move} is under way, which these metadata do not wish")
    if wish.is_cancelled:
        return AppendConfiguration(ended(latest, wish.move, without=wish.voter if latest.move else None))
    if not latest.move and latest.version != wish.version:
        return AwaitCondition(f"the move was planned for version {wish.version}, this is version {latest.version}")
    return _towards(wish, latest, view)


def _leave_joint(latest: Configuration, view: LeaderView) -> NextStep:
    voters = {replica.node for replica in latest.voters}
    return AppendConfiguration(final(latest)) if view.node in voters else _hand_over(voters, view)


def _towards(wish: Wish, latest: Configuration, view: LeaderView) -> NextStep:
    add = None if wish.voter in latest.voters else wish.voter
    remove = wish.leaving if wish.leaving in latest.voters else None
    if add is None and remove is None:
        return _of_learners(wish, latest)
    if add is not None and add not in latest.learners:
        return AppendConfiguration(with_learner(latest, add, wish.move))
    if add is not None and add.node not in view.near:
        return AwaitCondition(f"replica {add} is not near enough to the end of the log")
    new = joint(latest, wish.move, add=add, remove=remove, demote=wish.gone is None)
    staying = {replica.node for replica in latest.voters & new.voters}
    if staying and view.node not in staying:
        return _hand_over(staying, view)
    quorum, near = Quorum(new), frozenset(view.near)
    if not quorum.is_reached(near):
        away = ", ".join(str(node) for node in sorted(quorum.nodes - near))
        return AwaitCondition(f"without node {away} the old or the new voters would be no majority")
    return AppendConfiguration(new)


def _of_learners(wish: Wish, latest: Configuration) -> NextStep:
    """Take the one entry of a move that has no part in who votes."""
    if wish.gone is None and wish.learner is not None and wish.learner not in latest.learners:
        return AppendConfiguration(with_standing_learner(latest, wish.learner, wish.move))
    return AppendConfiguration(ended(latest, wish.move, without=wish.gone))


def _hand_over(voters: Collection[NodeId], view: LeaderView) -> NextStep:
    able = frozenset(view.near).intersection(voters) - {view.node}
    return HandLeadershipOver(able) if able else AwaitCondition("no voter that stays is near enough to lead")
