"""What must hold at every moment of a schedule for one group, judged from outside by one who sees all nodes.

* Election safety: at most one leader per term.
* Committed entries never change: whatever index a node commits or applies, every node that ever does so sees the same
  term and data there, and its state machine answers the same.
* Votes: a member votes for one candidate in a term, also if it has lost its disk meanwhile; but for a vote for itself
  that was the only one.
* Quorums: what a leader calls committed is in the logs of a majority, those left out of account that are down or have
  no vote.
* Leader completeness: whoever becomes leader holds what was committed before.
* Honest outcomes: an entry answered with Committed is committed at that index with that term; one answered with
  Discarded is nowhere; nobody is answered twice.
* Confirmed reads: what a leader answers is not older than what anybody was told before the question.
* State machines agree: a checkpoint at an index has the same bytes on all nodes, also after restarts.

A violation is raised at the step that causes it, so the trace ends where the damage was done. It is no `Exception`:
those that state machines and callbacks raise are caught on purpose (a group must outlive them), and a verdict must not
be.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from cluster.raft import RaftGroup
from cluster.raft.membership.configuration import Configuration

COMPLETENESS_DEPTH = 8
"""Committed entries that a new leader is asked for, the newest first. Entries of equal index and term being equal is
checked where they are applied, so the newest speak for those before them."""


class Violation(BaseException):
    """An invariant does not hold."""


class Empty(Violation):
    """The schedule proved nothing: too little was done, or nothing broken."""


Answer = Callable[[str, int, int], None]


class GroupJudge:
    def __init__(self, group_id: int) -> None:
        self.group_id = group_id
        self.members: tuple[int, ...] = ()
        self.committed: dict[int, tuple[int, bytes]] = {}
        self.results: dict[int, object] = {}
        self.leaders: dict[int, int] = {}
        self._votes: dict[tuple[int, int], int] = {}
        self.unanswered: dict[int, int] = {}
        self.highest = 0
        self.acknowledged_index = 0
        self.confirmed_reads = 0
        self.outcomes = {"Committed": 0, "Discarded": 0, "Unknown": 0}
        self._terms: dict[int, int] = {}
        self._committed_in: dict[int, int] = {}  # a node's current term -> how far such a node called the log committed
        self._discarded: set[tuple[int, int]] = set()
        self._checkpoints: dict[int, bytes] = {}
        self._token = 0

    # ---- roles and logs

    def votes(self, node: int, term: int, candidate: int) -> None:
        """`node` has said so, in whichever life. Of two members only what the other one is told counts: the candidate
        cannot be without it."""
        if node == candidate and len(self.members) == 2:
            return
        before = self._votes.setdefault((node, term), candidate)
        if before != candidate:
            raise Violation(f"group {self.group_id}: node {node} votes in term {term} for {before} and for {candidate}")

    def disk_lost(self, node: int) -> None:
        """What `node` voted for itself, and nobody else did, only the candidate could count; and that is no more."""
        own = [(voter, term) for (voter, term), chosen in self._votes.items() if voter == node == chosen]
        for voter, term in own:
            others = [other for other in self.members if other != node]
            if all(self._votes.get((other, term)) != node for other in others):
                del self._votes[voter, term]

    def rests_on(self, node: int, index: int, lacking: Collection[int], configuration: Configuration) -> None:
        """`node` leads with this configuration, and calls the entry committed; those voters that are `lacking` it are
        up, and have votes."""
        for voters in filter(None, (configuration.voters, configuration.outgoing)):
            without = {replica.node for replica in voters}.intersection(lacking)
            if 2 * len(without) >= len(voters):
                raise Violation(
                    f"group {self.group_id}: node {node} commits entry {index}, which the voters {sorted(without)} of "
                    f"{configuration} have not"
                )

    def speaks(self, node: int, birth: int, held: int) -> None:
        """A replica has promised something. `held`: entries that it says to hold."""

    def look_at(self, node: int, group: RaftGroup) -> None:
        """After a turn of the node, in which the group had a part."""

    def leads(self, node: int, term: int, term_at: Callable[[int], int | None]) -> None:
        """`node` is leader of `term`; called when it became so. `term_at` answers None for what is trimmed there."""
        other = self.leaders.setdefault(term, node)
        if other != node:
            raise Violation(f"group {self.group_id}: nodes {other} and {node} both lead term {term}")
        asked = 0
        # An old term's entry may have been committed by a later leader than this one, whose votes came late: what a
        # leader must have is what was committed in the terms before its own.
        owed = max((index for earlier, index in self._committed_in.items() if earlier < term), default=0)
        for index in range(owed, 0, -1):
            entry_term = self._terms.get(index)
            if entry_term is None:
                continue
            if term_at(index) not in (entry_term, None):
                raise Violation(
                    f"group {self.group_id}: node {node} leads term {term} without committed entry {index} of term "
                    f"{entry_term}; it has term {term_at(index)} there"
                )
            asked += 1
            if asked == COMPLETENESS_DEPTH:
                return

    def commits(self, node: int, index: int, term: int, current_term: int) -> None:
        """`index` is the highest that `node` calls committed; its entry is of `term`."""
        self._is_committed(node, index, term)
        self._committed_in[current_term] = max(index, self._committed_in.get(current_term, 0))

    def _is_committed(self, node: int, index: int, term: int) -> None:
        known = self._terms.setdefault(index, term)
        if known != term:
            raise Violation(
                f"group {self.group_id}: node {node} commits an entry of term {term} at index {index}, where one of "
                f"term {known} was committed"
            )
        self.highest = max(self.highest, index)

    def applies(self, node: int, index: int, term: int, data: bytes) -> bool:
        """True: nobody applied it before."""
        self._is_committed(node, index, term)
        known = self.committed.get(index)
        if known is None:
            self.committed[index] = (term, data)
            return True
        if known != (term, data):
            raise Violation(
                f"group {self.group_id}: node {node} applies {data!r} of term {term} at index {index}, where "
                f"{known[1]!r} of term {known[0]} was committed"
            )
        return False

    def answers(self, node: int, index: int, result: object) -> None:
        """What the state machine made of it."""
        known = self.results.setdefault(index, result)
        if known != result:
            raise Violation(f"group {self.group_id}: entry {index} gave {known} before, and at node {node} {result}")

    def checkpoint(self, node: int, index: int, state: bytes) -> None:
        """`index`: of the last entry that the machine was given."""
        known = self._checkpoints.setdefault(index, state)
        if known != state:
            raise Violation(
                f"group {self.group_id}: node {node} has another state than others after entry {index}: {state!r}, "
                f"there it was {known!r}"
            )

    def last_command(self, index: int) -> int:
        """The last entry up to `index` that a state machine is given."""
        while index > 0 and index not in self.committed:
            index -= 1
        return index

    def term_of(self, index: int) -> int | None:
        """Of the entry that was committed there."""
        return self._terms.get(index)

    # ---- proposals

    def proposed(self, node: int) -> Answer:
        self._token += 1
        token = self._token
        self.unanswered[token] = node

        def answered(kind: str, index: int, term: int) -> None:
            if token not in self.unanswered:
                raise Violation(f"group {self.group_id}: a proposal at {index} was answered twice, now with {kind}")
            del self.unanswered[token]
            self.outcomes[kind] += 1
            if kind == "Committed" and self._terms.get(index) != term:
                found = self._terms.get(index)
                raise Violation(f"group {self.group_id}: {index} of term {term} was acknowledged, but there is {found}")
            if kind == "Committed":
                self.acknowledged_index = max(self.acknowledged_index, index)
            elif kind == "Discarded":
                self._discarded.add((index, term))

        return answered

    def confirmed(self, node: int, asked_at: int, index: int, applied: int) -> None:
        """A read was answered from `index`; it was asked when `asked_at` was the last that anybody knew of."""
        self.confirmed_reads += 1
        if not asked_at <= index <= applied:
            raise Violation(
                f"group {self.group_id}: node {node} answers a read at {index} (it applied {applied}), asked when "
                f"{asked_at} was acknowledged"
            )

    def refused(self) -> None:
        """The proposal that was announced last was not taken."""
        del self.unanswered[self._token]

    def forget(self, node: int) -> None:
        """It crashed: nobody waits for its answers any more."""
        self.unanswered = {token: at for token, at in self.unanswered.items() if at != node}

    def finish(self) -> None:
        wrong = [place for place in self._discarded if self._terms.get(place[0]) == place[1]]
        if wrong:
            raise Violation(f"group {self.group_id}: answered as discarded, but committed: {sorted(wrong)}")
