"""What must hold for a group that changes its members, beside what must hold for every group.

* Committed configurations are numbered without a gap, each may follow the one before it, and of a leader's log one at
  most is not committed.
* A leader votes in its latest configuration. A group with a move rests nowhere.
* A move that was called cancelled is never carried out.
* A leader counts of a replica no more entries than this life of it has said to hold.
* A replica is erased only when a committed configuration has no place for it, and none begins anew with a vote that has
  promised something.

That copies keep to the pace, `copies.py` says.
"""

from __future__ import annotations

from cluster.raft import RaftGroup
from cluster.raft.membership.configuration import Configuration, Replica, is_legal
from tests.simulation.checker import GroupJudge, Violation


class MovingJudge(GroupJudge):
    def __init__(self, group_id: int) -> None:
        super().__init__(group_id)
        self.configurations: dict[int, Configuration] = {}
        """Committed ones, by version."""
        self.at: dict[int, Configuration] = {}
        self.told_cancelled: set[int] = set()
        self.heard: dict[Replica, int] = {}
        """Replicas that have promised something, and how many entries each has said to hold."""
        self._first: dict[int, int] = {}  # entry of each term

    @property
    def latest(self) -> Configuration:
        return self.configurations[max(self.configurations)]

    def votes(self, node: int, term: int, candidate: int) -> None:
        """What a candidate says to itself counts with another's vote only."""
        if node != candidate:
            super().votes(node, term, candidate)

    def disk_lost(self, node: int) -> None:
        """A vote for itself is not noted."""

    def speaks(self, node: int, birth: int, held: int) -> None:
        replica = Replica(node, birth)
        self.heard[replica] = max(held, self.heard.get(replica, 0))

    def first_of(self, group: RaftGroup) -> int:
        """Index of the first entry that a leader's term brought."""
        return self._first.setdefault(group.term, group.log_store.first_of_term_at(group.last_index))

    def look_at(self, node: int, group: RaftGroup) -> None:
        rows, commit = group.log_store.configurations, group.commit_index
        stored = rows._rows or [(group.log_store.base_index, rows.latest)]
        for index, configuration in stored:
            if configuration is not None and index <= commit:
                self._is_committed_configuration(node, index, configuration)
        if not group.is_leader:
            return
        self.first_of(group)
        if sum(index > commit for index, _ in stored) > 1:
            raise Violation(f"group {self.group_id}: node {node} leads with two changes that are not committed")
        latest = group.configuration
        if latest is None or Replica(node, group.birth) not in latest.all_voters:
            raise Violation(f"group {self.group_id}: node {node} leads, and does not vote in {latest}")
        for replica in latest.replicas - {Replica(node, group.birth)}:
            counted, had = group.match_index(replica.node), self.heard.get(replica, 0)
            if counted > had:
                raise Violation(f"group {self.group_id}: node {node} counts {counted} entries of {replica}, not {had}")
        if group.is_quiet and latest.move:
            raise Violation(f"group {self.group_id} rests amid a move: {latest}")

    def _is_committed_configuration(self, node: int, index: int, configuration: Configuration) -> None:
        version = configuration.version
        known = self.configurations.setdefault(version, configuration)
        if known != configuration:
            raise Violation(
                f"group {self.group_id}: node {node} has {configuration} committed, where others have {known}"
            )
        before, after = self.configurations.get(version - 1), self.configurations.get(version + 1)
        if before is not None and not is_legal(before, configuration):
            raise Violation(f"group {self.group_id}: {configuration} follows {before}")
        if after is not None and not is_legal(configuration, after):
            raise Violation(f"group {self.group_id}: {after} follows {configuration}")
        self.check_told()

    def check_told(self) -> None:
        done = {one.move for one in self.configurations.values() if one.is_joint}
        if done & self.told_cancelled:
            raise Violation(f"group {self.group_id}: moves {sorted(done & self.told_cancelled)} were called cancelled")

    def opens(self, replica: Replica) -> None:
        """A replica is opened with nothing, and with a vote."""
        if replica in self.heard:
            raise Violation(f"group {self.group_id}: replica {replica} has forgotten what it promised, and votes")

    def erases(self, replica: Replica) -> None:
        if replica in self.latest.all_voters:
            raise Violation(f"group {self.group_id}: replica {replica} is erased, and votes in {self.latest}")

    def finish(self) -> None:
        super().finish()
        versions = sorted(self.configurations)
        if versions != list(range(1, len(versions) + 1)):
            raise Violation(f"group {self.group_id}: configurations {versions} were committed")
