"""How a member without a memory gets its vote back: the leader's side, by the production code.

A leader waits for answers to appends that it sent since it saw the member mute. Here an append and its answer are one
step: an answer that comes later says the same. What the leader tells the member stays under way, as everything does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, cast

from cluster.raft.elections.vote_recovery import VoteRecovery, _Mute
from cluster.raft.membership.configuration import Configuration, Replica
from cluster.raft.membership.membership import Membership
from cluster.raft.membership.quorum import Quorum

SENT_SINCE = 1
"""Sequence of each append that is answered: no earlier one is told."""


class ModelMute(NamedTuple):
    """A member that its leader saw mute, and what the leader waits for."""

    replica: Replica
    mark: int
    missing: frozenset[int]
    index: int = 0


class ModelRelease(NamedTuple):
    """Word of a leader to one life of a member: from this index on it may vote."""

    term: int
    replica: Replica
    mark: int
    index: int


@dataclass(frozen=True)
class ModelMembers:
    """What `VoteRecovery` asks of a `Membership`."""

    node: int
    configuration: Configuration
    is_committed: bool

    @property
    def quorum(self) -> Quorum:
        return Quorum(self.configuration)

    @property
    def peers(self) -> set[int]:
        return {replica.node for replica in self.configuration.replicas} - {self.node}


class ModelRecovery:
    """`VoteRecovery` of one leader, made anew from a state, and read back."""

    def __init__(self, members: ModelMembers, mutes: frozenset[ModelMute]) -> None:
        self._births = {replica.node: replica for replica in members.configuration.replicas}
        self._recovery = VoteRecovery(cast(Membership, members))
        for mute in mutes:
            known = _Mute(mute.mark, SENT_SINCE, set(mute.missing), mute.index)
            self._recovery._mute[mute.replica.node] = known

    @property
    def replicas(self) -> set[Replica]:
        return set(self._births.values())

    def heard(self, node: int, mark: int) -> bool:
        return self._recovery.heard(node, mark, SENT_SINCE, SENT_SINCE)

    def members_changed(self) -> None:
        self._recovery.members_changed(SENT_SINCE)

    def release(self, node: int, commit_index: int, own_from: int) -> tuple[int, int] | None:
        return self._recovery.release(node, commit_index, own_from)

    def waits_for_none_of(self, nodes: set[int]) -> None:
        """Leave a rule out: these need not answer."""
        for mute in self._recovery._mute.values():
            mute.missing -= nodes

    def waits_for_a_majority(self) -> None:
        """Leave a rule out: half of the others are enough, and the leader."""
        for mute in self._recovery._mute.values():
            if 2 * len(mute.missing) < len(self._births) - 1:
                mute.missing.clear()

    @property
    def mutes(self) -> frozenset[ModelMute]:
        return frozenset(
            ModelMute(self._births[node], mute.mark, frozenset(mute.missing), mute.index)
            for node, mute in self._recovery._mute.items()
        )
