"""A node that lost what its disk had promised to keep, judged from outside until it counts again.

* Nobody is without a vote whose disk lost nothing.
* Whoever has its vote back has everything that was called committed when it lost its disk.
* Its vote in the term in which it came back is given: nobody can be elected by it there.
* A leader that knows that it comes without a memory takes it to hold nothing that it does not hold now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.raft import RaftGroup
from tests.simulation.checker import Violation
from tests.simulation.watched_groups import term_at

if TYPE_CHECKING:
    from tests.simulation.world.nodes import SimNode

VOTES_FOR_SURE_S = 0.35
"""A vote that a wiped member got back is on its disk after this time: longer than any sync takes here, unless the disk
is slow for good."""


class Readmission:
    """Of one node, over all its lives."""

    def __init__(self, node: SimNode) -> None:
        self._node = node
        self.lacks_memory = self.was_rolled_back = False
        self._committed: dict[int, int] = {}  # by group, when the disk was lost
        self.begin_life()

    def begin_life(self) -> None:
        """A process starts."""
        self._speaks_as_voter: set[int] = set()
        self._votes_since: float | None = None
        self._terms: dict[int, tuple[int, bool]] = {}  # by group, when it was looked at last; and whether it was mute
        self.has_been_mute_in: set[int] = set()

    def disk_lost(self, *, rolled_back: bool = False) -> None:
        self.lacks_memory, self.was_rolled_back = True, rolled_back
        if not rolled_back:
            for judge in self._node.schedule.judges.values():
                judge.disk_lost(self._node.id)
        self._committed = {group_id: judge.highest for group_id, judge in self._node.schedule.judges.items()}

    def memory_is_back(self) -> None:
        """The original disk was only away."""
        self.lacks_memory = self.was_rolled_back = False

    @property
    def was_robbed(self) -> bool:
        """Of something that a disk of this node had promised to keep."""
        return self.was_rolled_back or self._node.incarnation > 1000 * self._node.id

    # ---- whether it counts again

    def speaks_as_voter(self, group_id: int) -> None:
        """It has said something without saying that it is without a vote: its disk has that it has one."""
        self._speaks_as_voter.add(group_id)

    def look(self) -> None:
        """Whether the node counts again, in all its groups, for good."""
        node = self._node
        if not self.lacks_memory or (self.was_rolled_back and node.schedule.faults.copies.awaited):
            return
        groups = node.multiraft.groups if node.is_running else {}
        hosted = [partition.group for _, partition in node.view.hosted_by(node.id)] if node.is_running else []
        knows = node.is_running and node.view.incarnation(node.id) == node.incarnation
        if not knows or not all(group in groups for group in hosted) or not all(map(self.counts, groups.values())):
            self._votes_since = None
        elif all(map(self._shows_its_vote, groups.values())):
            self._readmitted()
        elif node.disk.slow:
            self._votes_since = None
        elif self._votes_since is None:
            self._votes_since = node.schedule.now
        elif node.schedule.now - self._votes_since > VOTES_FOR_SURE_S:
            self._readmitted()

    def _readmitted(self) -> None:
        self.lacks_memory = False
        self._node.schedule.count("readmitted")

    def counts(self, group: RaftGroup) -> bool:
        """As a voter, or as a learner that remembers."""
        return group.quarantined is None and not group.log_store.mute

    def _shows_its_vote(self, group: RaftGroup) -> bool:
        return group.is_leader or group.group_id in self._speaks_as_voter

    def group_ended(self, group_id: int) -> None:
        """The replica is erased; another one of the group is another replica."""
        for known in (self._terms, self._committed):
            known.pop(group_id, None)  # type: ignore[attr-defined]

    # ---- what must hold

    def observe(self, group: RaftGroup) -> None:
        """After each turn of the node."""
        log_store, number = group.log_store, group.group_id
        term, was_mute = self._terms.get(number, (0, False))
        if log_store.mute:
            self.has_been_mute_in.add(number)
            if not self.was_robbed:
                raise Violation(f"node {self._node.id} has no vote in group {number}, and its disk lost nothing")
        elif was_mute and group.term:
            self._vote_is_back(group, same_term=term == group.term)
        self._terms[number] = (group.term, log_store.mute)
        if group.is_leader and self._node.schedule.somebody_lacks_memory:
            self._knows_who_holds_what(group)

    def _vote_is_back(self, group: RaftGroup, *, same_term: bool) -> None:
        node, number = self._node, group.group_id
        if same_term and not group.log_store.vote:
            raise Violation(f"node {node.id} has its vote in group {number} back, to be given in the same term")
        owed = self._committed.get(number, 0)
        judge = node.schedule.judges[number]
        if owed and term_at(group, owed) not in (judge.term_of(owed), None):
            raise Violation(
                f"node {node.id} has its vote in group {number} back and ends at entry {group.last_index}; entry "
                f"{owed} was committed before it lost its disk"
            )

    def _knows_who_holds_what(self, group: RaftGroup) -> None:
        known = group._step.vote_recovery._mute
        for other_id, mute in known.items():
            other = self._node.schedule.nodes[other_id]
            held = other.multiraft.groups.get(group.group_id) if other.is_running else None
            if held is None or held.term != group.term or held._step._mark != mute.mark:
                continue
            if group.match_index(other_id) > max(held.last_index, held.first_index - 1):
                raise Violation(
                    f"node {self._node.id} takes node {other_id} to hold entry {group.match_index(other_id)} of group "
                    f"{group.group_id}, of which it lost everything and has {held.last_index} again"
                )
