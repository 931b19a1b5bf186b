"""pysyncobj's `SyncObj` with the overrides it needs, and readable names for its private state.

What stays the library's: terms and votes, the reaction to each message, replication progress per member, and
the commit rule. What is replaced, because it is slow, unsafe or in the way: its timers' randomness, its
command queue (A13: proposals are appended synchronously by `RaftGroup`), apply (it hides index and term, A10-A11,
L1-L2), sending appends (no window, no way to tell a new entry from a heartbeat, L9-L11), and log compaction
(L13).

The rule: an override keeps the contract its callers in the library rely on; anything more belongs into
`step` or `group`.

Rejected: overriding `_onTick` and `__onMessageReceived` too. That would be a new Raft; these two are what was
audited.
"""

from __future__ import annotations

import threading
from typing import Any, Protocol, cast

from pysyncobj import SyncObjConf
from pysyncobj.syncobj import SyncObj
from pysyncobj.transport import Transport

from cluster.raft.log.log_store import LogStore
from cluster.raft.membership.membership import Membership
from cluster.raft.options import MAX_ENTRY_BYTES, RaftOptions
from cluster.raft.proposal_outcomes import InvariantBroken
from cluster.raft.pysyncobj.commit_quorum import LastResponse, MatchIndex, own_copy_counts
from cluster.raft.pysyncobj.log_view import LazySlice
from cluster.raft.pysyncobj.member import RaftMember
from cluster.raft.pysyncobj.private_names import FOLLOWER

NEVER = 10**12
"""Entries or seconds before the library would compact its log: our log store trims, never it (L13)."""


class CoreOwner(Protocol):
    """Callbacks of the library's ticks; implemented by `RaftGroup`."""

    def random_timeout(self) -> float: ...
    def apply_committed(self) -> None: ...
    def send_appends(self) -> None: ...
    def state_changed(self, old: int, new: int) -> None: ...


class _NoPoller:
    """The library polls its sockets at the end of a tick; it has none here."""

    def poll(self, timeout: float) -> None:
        del timeout


def _configuration(log_store: LogStore, options: RaftOptions) -> SyncObjConf:
    return SyncObjConf(
        autoTick=False,
        journalFile=log_store,
        raftMinTimeout=options.election_min_s,
        raftMaxTimeout=options.election_max_s,
        appendEntriesPeriod=options.heartbeat_s,
        leaderFallbackTimeout=options.quorum_check_s,
        connectionTimeout=max(options.election_max_s, 1.0),
        appendEntriesUseBatch=True,
        appendEntriesBatchSizeBytes=2 * MAX_ENTRY_BYTES,
        commandsQueueSize=1,
        logCompactionMinEntries=NEVER,
        logCompactionMinTime=NEVER,
        dynamicMembershipChange=False,
        useFork=False,
    )


class Core(SyncObj):
    _SyncObj__newAppendEntriesTime = 0.0  # read by a property while the library's constructor still runs

    def __init__(
        self,
        membership: Membership,
        log_store: LogStore,
        transport: Transport,
        owner: CoreOwner,
        options: RaftOptions,
    ) -> None:
        self._log = log_store
        self._owner = owner
        self._membership = membership
        voting, own = list(membership.voting), RaftMember(membership.node)
        super().__init__(own, voting, _configuration(log_store, options), transport=transport)
        self._poller = _NoPoller()
        self._SyncObj__raftMatchIndex = MatchIndex()
        self._SyncObj__lastResponseTime = LastResponse()
        # One thread ever ticks; a lock per group is only memory.
        assert isinstance(self._SyncObj__onTickCallbacksLock, type(threading.Lock()))

    # ---- readable names

    @property
    def state(self) -> int:
        return self._SyncObj__raftState

    @property
    def term(self) -> int:
        return self._SyncObj__raftCurrentTerm

    @property
    def leader(self) -> RaftMember | None:
        return self._SyncObj__raftLeader

    def forget_leader(self) -> None:
        self._SyncObj__raftLeader = None

    @property
    def commit_index(self) -> int:
        return self._SyncObj__raftCommitIndex

    @property
    def applied_index(self) -> int:
        return self._SyncObj__raftLastApplied

    @applied_index.setter
    def applied_index(self, index: int) -> None:
        self._SyncObj__raftLastApplied = index

    def jump_to(self, index: int) -> None:
        """Jump to an installed snapshot: everything up to here is committed and applied."""
        self._SyncObj__raftCommitIndex = index
        self._SyncObj__raftLastApplied = index

    def commit_to(self, index: int) -> None:
        """Commit up to an index, because the log agrees with what is known to be committed."""
        self._log.setRaftCommitIndex(index)
        self._SyncObj__raftCommitIndex = index

    def follow_term(self, term: int) -> None:
        """Adopt a greater term, whose leader is not known yet."""
        assert term > self.term, (term, self.term)
        self._SyncObj__setCurrentTerm(term, None)
        self._SyncObj__setState(FOLLOWER)
        self._SyncObj__raftLeader = None

    def vote_for(self, member: RaftMember) -> None:
        """Vote for the leader of the current term: no other member can have this vote."""
        self._SyncObj__setCurrentTerm(self.term, member.id)

    @property
    def noop_index(self) -> int | None:
        """Index of the entry with which this node began its own term as leader."""
        return getattr(self, "_SyncObj__noopIDx", None)

    @property
    def election_deadline(self) -> float:
        return self._SyncObj__raftElectionDeadline

    @election_deadline.setter
    def election_deadline(self, at: float) -> None:
        self._SyncObj__raftElectionDeadline = at

    @property
    def append_time(self) -> float:
        """Time at which the next tick of a leader calls `send_appends`; 0: at once."""
        return self._SyncObj__newAppendEntriesTime

    @append_time.setter
    def append_time(self, at: float) -> None:
        self._SyncObj__newAppendEntriesTime = at

    @property
    def transfer_ordered(self) -> bool:
        """True if the leader told this node to start an election now."""
        return self._SyncObj__transferInProgress

    def forget_transfer(self) -> None:
        self._SyncObj__transferInProgress = False

    @property
    def connected(self) -> set[RaftMember]:
        return self._SyncObj__connectedNodes

    @property
    def next_index(self) -> dict[RaftMember, int]:
        return getattr(self, "_SyncObj__raftNextIndex", {})

    @property
    def match(self) -> MatchIndex:
        """Match index of each member: `get` tells the truth, `[]` what the commit rule may use."""
        return cast(MatchIndex, getattr(self, "_SyncObj__raftMatchIndex", None))

    @property
    def may_commit(self) -> bool:
        """True if a quorum holds durable entries that are not committed."""
        return self.match.held_by_quorum(self._membership, self._log.durable) > self.commit_index

    @property
    def last_response(self) -> LastResponse:
        """Last answer of each member: `heard_at` tells the truth, `[]` what the rule for stepping down may use."""
        return self._SyncObj__lastResponseTime

    # ---- members

    def count_answers(self) -> None:
        """Tell the library's rules what a quorum has answered; before each tick of a leader."""
        self.match.count(self._membership, self._log.last)
        self.last_response.count(self._membership)

    def voters_changed(self) -> None:
        """Take over who votes beside this member: the library counts, asks and hands over to nobody else."""
        self._SyncObj__otherNodes = set(self._membership.voting)

    def begin_member(self, member: RaftMember, now: float) -> None:
        """Begin with a follower, of which the leader knows nothing yet. The library does it for voters only."""
        self.next_index[member] = self._log.last + 1
        self.match[member] = 0
        self.last_response[member] = now

    def forget_member(self, member: RaftMember) -> None:
        for known in (self.next_index, self.match, self.last_response):
            known.pop(member, None)
        self.connected.discard(member)

    # ---- overrides

    def __dir__(self) -> list[str]:
        """The library looks through all names, twice for each group that is opened, for methods that it is to
        replicate. There are none, and none may become one (A12)."""
        return []

    def _SyncObj__generateRaftTimeout(self) -> float:
        return self._owner.random_timeout()

    def _SyncObj__getCurrentLogIndex(self) -> int:
        return self._log.last

    def _SyncObj__getCurrentLogTerm(self) -> int:
        return self._log.last_term

    def _SyncObj__getEntries(
        self, fromIDx: int | None, count: int | None = None, maxSizeBytes: int | None = None
    ) -> LazySlice | list[Any]:
        """The commit rule asks for single entries: one that is not durable here does not exist for it
        (A9)."""
        log = self._log
        if fromIDx is None or fromIDx < log.base_index:
            return []
        if count == 1 and not own_copy_counts(log, fromIDx):
            return []
        end = log.last + 1 if count is None else min(log.last + 1, fromIDx + count)
        return LazySlice(log, fromIDx, end)

    def _SyncObj__applyLogEntries(self) -> bool:
        self._owner.apply_committed()
        return False

    def _SyncObj__sendAppendEntries(self) -> None:
        self._owner.send_appends()

    def _SyncObj__setState(self, newState: int) -> None:
        old = self.state
        if newState != FOLLOWER and not self._membership.is_voter:
            raise InvariantBroken(f"a replica that does not vote campaigns: {self._membership.configuration}")
        self._SyncObj__raftState = newState
        if old != newState:
            self._owner.state_changed(old, newState)

    def _SyncObj__tryLogCompaction(self) -> None:
        """L13: nothing here may be pickled."""

    def _checkCommandsToApply(self) -> None:
        """A13: there is no queue. `RaftGroup.propose` appends to the log store itself."""

    def _applyCommand(self, command: Any, callback: Any, commandType: Any = None) -> None:
        raise InvariantBroken("a command was queued inside pysyncobj; proposals go through Group.propose (A12, A13)")
