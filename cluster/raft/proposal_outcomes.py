"""Outcomes of a proposal, and the ways to refuse one.

The problem: "it failed" is not an answer in a replicated log. A client may repeat what is certainly not in
the log, and must not repeat (without numbers) what may still turn up there. The rule: `Discarded` is said
only when an entry applied at or before that index proves it; a truncated tail alone proves nothing, because
another member may still hold the entry and win an election.

Rejected: pysyncobj's FAIL_REASON numbers, which mix "not applied" and "who knows" in one enumeration
(L16 in docs/internals/pysyncobj.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from cluster.raft.interfaces import NodeId


@dataclass(frozen=True, slots=True)
class Committed:
    """Applied here; `result` is what the state machine returned."""

    index: int
    term: int
    result: object


@dataclass(frozen=True, slots=True)
class Discarded:
    """Certainly not in the log and never will be: safe to propose again."""

    index: int
    term: int


@dataclass(frozen=True, slots=True)
class Unknown:
    """May be in the log now, later, or never. Only a duplicate-safe proposal may be repeated."""

    index: int
    term: int


Outcome = Committed | Discarded | Unknown


@dataclass(frozen=True, slots=True)
class ApplyFailed:
    """The result of an entry whose `StateMachine.apply` raised: a defect in the machine, the same on every
    replica."""

    error: str


class RaftError(Exception):
    """Anything this package raises on purpose."""


class NotLeader(RaftError):
    """The proposal was not made: this node does not lead the group, or is handing it over. Retry at
    `leader`."""

    def __init__(self, leader: NodeId | None) -> None:
        where = "no leader is known; retry soon" if leader is None else f"node {leader} leads; retry there"
        super().__init__(f"this node takes no proposals for the group: {where}")
        self.leader = leader


class Overloaded(RaftError):
    """The proposal was not made: too many bytes wait for a majority. Retry when earlier proposals are
    answered."""


class ChangeRefused(RaftError):
    """The change of members was not proposed: it may not be made now, or never. Ask for the next step again later."""


class OtherBirth(RaftError):
    """The replica that is stored here, or was erased here, is a later life than the one to be opened: the metadata that
    asked for it are behind. Ask again when they have caught up."""


class InvariantBroken(RaftError):
    """A rule of Raft does not hold, here or at a peer. The group must stop on this node (`MultiRaft` sees to it); going
    on could destroy committed entries."""


class NodeUnfit(InvariantBroken):
    """The node lacks what all its groups need (memory, disk): the process must stop, whichever group met it."""


class UnknownEntry(InvariantBroken):
    """The log holds a command that this program does not know, since the cluster runs a newer version: replicas that
    know it carry it out, so this one must stop, and goes on when a newer program is installed on its node."""


class StateDamaged(InvariantBroken):
    """The disk returned other bytes than were written. The member must not vote with a damaged memory of its votes."""
