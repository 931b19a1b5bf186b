"""Changes of one group's members at this replica: proposed by its leader, in force at each append and truncation.

The problem: a change reaches the library, the progress of followers, silent groups, snapshots and votes that come back,
and it may be taken back with its entry. The rule: whatever moved the latest configuration, `in_force` brings all of
them to it in the same call, and nothing of one life of a node is left for the next.

Rejected: to wait for the commit. A leader and a candidate would act on configurations that are generations apart.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from cluster.raft.heartbeats.quiescence import QuietLinks
from cluster.raft.interfaces import NodeId
from cluster.raft.log.log_store import LogStore
from cluster.raft.membership.changes import LeaderView
from cluster.raft.membership.configuration import Configuration, is_legal
from cluster.raft.membership.membership import Membership
from cluster.raft.proposal_outcomes import ChangeRefused
from cluster.raft.pysyncobj.core import Core
from cluster.raft.pysyncobj.member import RaftMember
from cluster.raft.pysyncobj.private_names import LEADER
from cluster.raft.replication.append_sender import AppendSender
from cluster.raft.replication.step import Stepper
from cluster.raft.snapshot.sender import SnapshotSender

log = logging.getLogger(__name__)

NEAR_ENTRIES = 64
"""A replica that lacks no more is near the end of the log: it has that within a round trip or two."""


class MemberChanges:
    def __init__(
        self,
        name: str,
        membership: Membership,
        log_store: LogStore,
        core: Core,
        step: Stepper,
        append_sender: AppendSender,
        links: QuietLinks,
        snapshot_sender: SnapshotSender,
        is_up: Callable[[NodeId], bool],
    ) -> None:
        self._name = name
        self._membership = membership
        self._log_store = log_store
        self._core = core
        self._step = step
        self._append_sender = append_sender
        self._links = links
        self._snapshot_sender = snapshot_sender
        self._is_up = is_up
        self._leaving: list[RaftMember] = []

    # ---- the leader

    def view(self, now: float, heard_within_s: float, *, is_ready: bool) -> LeaderView:
        """Look at the followers. `heard_within_s`: one that was not heard for so long may have lost its disk meanwhile.
        `is_ready`: this leader has applied an entry of its own term."""
        core, membership = self._core, self._membership
        self._links.hear()
        near = {
            node
            for node, member in membership.peers.items()
            if member in core.connected
            and now - core.last_response.heard_at(member) < heard_within_s
            and not self._step.vote_recovery.is_mute(node)
            and (held := core.match.get(member, 0)) > 0  # it has answered: a short log alone brings nobody near
            and held + NEAR_ENTRIES >= self._log_store.last
        }
        return LeaderView(membership.node, is_ready and membership.is_committed, near | {membership.node})

    def require(self, new: Configuration, *, is_ready: bool) -> None:
        """Raise ChangeRefused unless this leader may append the configuration now."""
        membership, latest = self._membership, self._membership.configuration
        if not membership.may_change:
            raise ChangeRefused("the cluster's active version has no changes of members: finalize its upgrade first")
        if not is_ready or not membership.is_committed:
            raise ChangeRefused("the latest configuration, or an entry of this leadership, is not committed yet")
        if latest is None or not is_legal(latest, new):
            raise ChangeRefused(f"{new} may not follow {latest}")
        staying = latest.voters & new.voters
        if membership.own not in (staying or new.all_voters):
            raise ChangeRefused(f"this leader would have no vote in {new}: hand the leadership over first")

    def begin_leadership(self) -> None:
        self._leaving.clear()

    def tell_who_left(self) -> None:
        """Tell those that left with the configuration which is committed now; runs in each tick of a leader."""
        if self._leaving and self._membership.is_committed:
            for member in self._leaving:
                self._step.tell_gone(member)
            self._leaving.clear()

    # ---- in force

    def in_force(self, now: float) -> None:
        """Take over another configuration: a newer one, or an older one after a truncation, or that of a snapshot."""
        core, membership = self._core, self._membership
        gone, come = membership.update()
        log.info("%s: members are %s", self._name, membership.configuration)
        core.voters_changed()
        for member in gone:
            self._links.forget(member.id)
            self._snapshot_sender.forget(member.id)
            self._step.progress.pop(member.id, None)
            core.forget_member(member)
        leads = core.state == LEADER
        for member in come:
            if self._is_up(member.id):
                core.connected.add(member)
            if leads:
                self._append_sender.begin_member(member, now)
        self._step.vote_recovery.members_changed(self._step.next_sequence)
        if leads:
            self._leaving += gone
            self._links.wake_all(now)
            core.append_time = 0.0
