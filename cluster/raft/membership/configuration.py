"""Configuration of a group: its voters and learners, and the rules by which the next one may follow.

The problem: two leaders of one term, or a lost entry, come from two sets of voters of which neither knows the other.
The rules: a configuration is an entry of the group's own log, in force from its append on; one follows the other by a
single step (`is_legal`), in which at most one voter comes and at most one leaves; while that happens both majorities
decide (`outgoing` is the old set); and a replica is a node *and* its birth, so what came back to a node is another
replica than what left it.

    L    a learner is added, for a move
    J    the learner votes, and who is to leave votes on in `outgoing` only
    F    the old set is over; who was `demoted` is a learner now
    L'   the move ends without J: the learner is taken out again

A move is numbered, and `ended` is the number of the last one that ended here. A number up to that can begin nothing any
more, whatever an old metadata replica still wishes.

Rejected: single steps without a joint phase. A replica that is exchanged for one in the same rack would make four
voters, of which the loss of that rack takes two.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from cluster.raft.interfaces import NodeId

FOUNDING_BIRTH = 1
"""Birth of the replicas with which a group begins. All others get theirs from the metadata, none twice."""

FOUNDING_VERSION = 1

MOST_FOUNDING_VOTERS = 7
VOTERS_OF_MANY = 5
"""A group that begins with more nodes than seven has five voters: a majority of more costs more than it protects."""


class Replica(NamedTuple):
    """One life of a group's member on one node."""

    node: NodeId
    birth: int

    def __str__(self) -> str:
        return f"{self.node}/{self.birth}"


Replicas = frozenset[Replica]
NOBODY: Replicas = frozenset()


@dataclass(frozen=True, slots=True)
class Configuration:
    version: int
    voters: Replicas
    outgoing: Replicas = NOBODY
    """The voters before, while both sets decide; empty: they do not."""
    learners: Replicas = NOBODY
    demoted: Replicas = NOBODY
    """Those in `outgoing` that stay, as learners, when the old set is over."""
    move: int = 0
    """Number of the move that is under way; 0: none."""
    ended: int = 0
    """Number of the last move that ended here, in whichever way."""

    @property
    def is_joint(self) -> bool:
        return bool(self.outgoing)

    @property
    def all_voters(self) -> Replicas:
        """Old and new ones."""
        return self.voters | self.outgoing

    @property
    def replicas(self) -> Replicas:
        return self.voters | self.outgoing | self.learners

    def __str__(self) -> str:
        parts = [f"v{self.version} voters {_shown(self.voters)}"]
        named = (("outgoing", self.outgoing), ("learners", self.learners), ("demoted", self.demoted))
        parts += [f"{name} {_shown(replicas)}" for name, replicas in named if replicas]
        numbers = ((f"move {self.move}", self.move), (f"ended {self.ended}", self.ended))
        return ", ".join([*parts, *(text for text, number in numbers if number)])


def founding(nodes: Iterable[NodeId]) -> Configuration:
    """The configuration with which a group begins. Of more than seven nodes the five lowest vote."""
    replicas = [Replica(node, FOUNDING_BIRTH) for node in sorted(nodes)]
    voters = replicas if len(replicas) <= MOST_FOUNDING_VOTERS else replicas[:VOTERS_OF_MANY]
    return Configuration(FOUNDING_VERSION, frozenset(voters), learners=frozenset(replicas) - frozenset(voters))


# ---- the steps


def with_learner(old: Configuration, learner: Replica, move: int) -> Configuration:
    """L, for a move that makes a voter of the learner later."""
    return replace(old, version=old.version + 1, learners=old.learners | {learner}, move=move)


def with_standing_learner(old: Configuration, learner: Replica, move: int) -> Configuration:
    """The move is to have a learner, and this entry ends it."""
    return replace(old, version=old.version + 1, learners=old.learners | {learner}, ended=move)


def joint(
    old: Configuration, move: int, *, add: Replica | None, remove: Replica | None, demote: bool = False
) -> Configuration:
    """J. `add` is a learner, `remove` a voter; `demote`: it stays, as a learner."""
    coming, going = _set_of(add), _set_of(remove)
    return replace(
        old,
        version=old.version + 1,
        voters=(old.voters | coming) - going,
        outgoing=old.voters,
        learners=old.learners - coming,
        demoted=going if demote else NOBODY,
        move=move,
    )


def final(old: Configuration) -> Configuration:
    """F. What J began ends with it."""
    learners = old.learners | old.demoted
    return Configuration(old.version + 1, old.voters, learners=learners, ended=old.move)


def ended(old: Configuration, move: int, *, without: Replica | None = None) -> Configuration:
    """L': the move is over, and this learner, if any, is none any more."""
    learners = old.learners - _set_of(without)
    return replace(old, version=old.version + 1, learners=learners, move=0, ended=move)


def learner_of_move(configuration: Configuration) -> Replica | None:
    """The learner for which L of the move under way was appended: the youngest, since births only rise."""
    if not configuration.move or configuration.is_joint:
        return None
    return max(configuration.learners, key=lambda replica: replica.birth)


# ---- the rules


def fault(configuration: Configuration) -> str | None:
    """Why no group can have this configuration, whatever came before; None: one can."""
    one, replicas = configuration, configuration.replicas
    if min([one.version, *(min(replica) for replica in replicas)]) < 1:
        return "a version, a node or a birth is below 1"
    if not one.voters:
        return "nobody votes"
    if len({replica.node for replica in replicas}) < len(replicas):
        return "a node has two births"
    if one.learners & one.all_voters:
        return "a learner votes"
    if not one.demoted <= one.outgoing - one.voters:
        return "somebody is demoted that does not leave the voters"
    if one.outgoing == one.voters:
        return "both sets of voters are the same"
    if one.is_joint and not one.move:
        return "it is joint without a move"
    if one.move and one.move <= one.ended:
        return f"move {one.move} is under way, and move {one.ended} has ended"
    return None


def is_legal(old: Configuration, new: Configuration) -> bool:
    """True if `new` may follow `old`: the next version, by one of the four steps."""
    if new.version != old.version + 1 or fault(new) is not None:
        return False
    if old.is_joint:
        return new == final(old)
    if new.is_joint:
        return _is_legal_joint(old, new)
    if new.voters != old.voters:
        return False
    return _is_legal_begin(old, new) if new.move else _is_legal_end(old, new)


def _is_legal_joint(old: Configuration, new: Configuration) -> bool:
    coming, going = new.voters - old.voters, old.voters - new.voters
    if max(len(coming), len(going)) > 1 or not coming <= old.learners:
        return False
    of_this_move = old.move in (0, new.move) and new.ended == old.ended
    if old.move and learner_of_move(old) not in coming:
        return False
    return of_this_move and new.outgoing == old.voters and new.learners == old.learners - coming


def _is_legal_begin(old: Configuration, new: Configuration) -> bool:
    return old.move == 0 and new.ended == old.ended and _is_one_new_learner(old, new)


def _is_legal_end(old: Configuration, new: Configuration) -> bool:
    if new.ended <= old.ended:
        return False
    if old.move:
        return new == ended(old, old.move, without=learner_of_move(old))
    gone = old.learners - new.learners
    return (new.learners <= old.learners and len(gone) <= 1) or _is_one_new_learner(old, new)


def _is_one_new_learner(old: Configuration, new: Configuration) -> bool:
    """One learner came, nobody else, and its birth is above all that are known: the metadata draw them in order."""
    coming = new.learners - old.learners
    births = max(replica.birth for replica in old.replicas)
    return old.learners <= new.learners and len(coming) == 1 and min(coming).birth > births


def _set_of(replica: Replica | None) -> Replicas:
    return NOBODY if replica is None else frozenset({replica})


def _shown(replicas: Replicas) -> str:
    return " ".join(str(replica) for replica in sorted(replicas))
