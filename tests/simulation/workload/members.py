"""Members of one consumer group, who take a partition from each other and commit how far they have come.

They speak the replicated commands directly: what a listener adds (who is alive, when a lease is over) is its own. A
member goes on committing under its claim until it is refused, also when another one has taken over meanwhile.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from cluster.raft import Committed, Outcome, RaftError
from node.partition.api import Earliest, ReaderClaim
from node.partition.consumer_groups.group_state import (
    Claim,
    Commit,
    Denied,
    Done,
    End,
    EndClaim,
    GroupCommand,
    Owned,
)
from node.partition.partition_commands import encode_group_command
from node.partition.reader import LocalReader
from tests.simulation.checker import Violation
from tests.simulation.world.events import PartitionJudge

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule
    from tests.simulation.world.nodes import SimNode

GROUP = "readers"


class SimGroupMember:
    def __init__(self, schedule: Schedule, judge: PartitionJudge, name: str) -> None:
        self._schedule = schedule
        self._judge = judge
        self._name = name
        self._claim = 0
        self._epoch = 0
        self._reader: LocalReader | None = None
        self._read_at: tuple[SimNode, int, int] | None = None  # a life of a node, and the claim

    def act(self, node: SimNode) -> None:
        """One command, at a node that believes it leads; and a look at what the member reads there."""
        self._read(node)
        self._propose(node, self._wish(node.cluster_clock.now_ms()))

    def _read(self, node: SimNode) -> None:
        """In the name of the claim. It is told nothing any more where that is no longer in force."""
        replica, claim = node.partition(self._judge.group_id), self._claim
        if replica is None or not claim:
            return
        if self._reader is None or self._read_at != (node, node.life, claim):
            if self._reader is not None:
                self._reader.close()
            self._reader = replica.open_reader(Earliest(), _nothing, ReaderClaim(GROUP, claim))
            self._read_at = (node, node.life, claim)
        if self._reader.error is None and not replica._machine.ownership.holds(GROUP, claim):
            raise Violation(f"group {self._judge.group_id}: node {node.id} serves claim {claim}, which is not in force")

    def _wish(self, now_ms: int) -> GroupCommand:
        randomness = self._schedule.randomness
        if not self._claim:
            epoch = self._epoch + randomness.choice((0, 1, 1))
            return Claim(GROUP, self._name, "", epoch=epoch, timestamp_ms=now_ms)
        if randomness.random() < 0.1:
            return EndClaim(GROUP, self._claim, randomness.choice(list(End)), now_ms)
        return Commit(GROUP, self._claim, randomness.randint(0, len(self._judge.events)), now_ms)

    def _propose(self, node: SimNode, command: GroupCommand) -> None:
        def done(outcome: Outcome) -> None:
            if isinstance(outcome, Committed):
                self._answered(command, outcome.result)

        with contextlib.suppress(RaftError):
            node.multiraft.groups[self._judge.group_id].propose(encode_group_command(command), done)

    def _answered(self, command: GroupCommand, result: object) -> None:
        if isinstance(result, Owned):
            self._claim, self._epoch = result.claim, result.epoch
        elif isinstance(result, Denied):
            self._claim = 0
            self._epoch = min(self._epoch + 1, 1 << 30)
        elif not isinstance(result, Done):
            raise Violation(f"group {self._judge.group_id}: {command} -> {result}")
        elif isinstance(command, EndClaim):
            self._claim = self._epoch = 0


def _nothing() -> None:
    """The reader is looked at by the clock."""
