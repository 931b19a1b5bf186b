"""Mutations of how groups change their members. What they are for: mutations/catalogue.py."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

from cluster.raft import RaftMessage
from cluster.raft.elections.election import Election, may_grant
from cluster.raft.group import RaftGroup
from cluster.raft.interfaces import NodeId
from cluster.raft.log.log_store import LogStore
from cluster.raft.membership import changes, configuration_rows
from cluster.raft.membership.changes import AppendConfiguration, LeaderView, MoveEnded, NextStep, Wish
from cluster.raft.membership.configuration import Configuration, final
from cluster.raft.membership.configuration_rows import ConfigurationRows
from cluster.raft.membership.member_changes import MemberChanges
from cluster.raft.membership.membership import Membership
from cluster.raft.membership.quorum import Quorum
from cluster.raft.pysyncobj.private_names import LEADER
from cluster.raft.raft_pb2 import VoteRequest
from cluster.raft.replication.progress import Progress
from cluster.raft.replication.step import Stepper
from cluster.raft.snapshot.bandwidth import CopyBudget
from cluster.raft.snapshot.receiver import SnapshotReceiver
from tests.simulation.moving import node as moving_node
from tests.simulation.moving.board import Board, GroupWishes
from tests.simulation.moving.node import MovingNode

Hole = Iterator[None]


@contextlib.contextmanager
def in_force_when_committed() -> Hole:
    """A configuration is in force once it is committed, as far as the replica knows."""
    tick = RaftGroup.tick

    def committed(membership: Membership) -> Configuration | None:
        return membership._log_store.configurations.as_of(membership._log_store.commit)

    def late(group: RaftGroup, now: float) -> None:
        latest = group.configuration
        known = {one.replica for one in group._peers.values()}
        replicas = latest.replicas if latest is not None else frozenset()
        if known != {one for one in replicas if one.node != group._self_id}:
            group._changes.in_force(now)
        tick(group, now)

    with (
        mock.patch.object(Membership, "configuration", property(committed)),
        mock.patch.object(RaftGroup, "tick", late),
    ):
        yield


@contextlib.contextmanager
def _quorum_of(choose: Any) -> Hole:
    begin = Quorum.__init__

    def otherwise(quorum: Quorum, configuration: Configuration | None) -> None:
        begin(quorum, configuration)
        if configuration is not None:
            sets = [frozenset(replica.node for replica in one) for one in choose(configuration) if one]
            quorum._halves = tuple((nodes, len(nodes) // 2 + 1) for nodes in sets)

    with mock.patch.object(Quorum, "__init__", otherwise):
        yield


def a_majority_of_the_union_is_enough() -> contextlib.AbstractContextManager[None]:
    """While both sets decide, so many of all of them are enough."""
    return _quorum_of(lambda one: (one.all_voters,))


def the_new_set_alone_is_enough() -> contextlib.AbstractContextManager[None]:
    """While both sets decide the old one is not asked."""
    return _quorum_of(lambda one: (one.voters,))


def learners_count() -> contextlib.AbstractContextManager[None]:
    """A learner is as good as a voter."""
    return _quorum_of(lambda one: (one.voters | one.learners, one.outgoing))


@contextlib.contextmanager
def _without(kind: str) -> Hole:
    """Messages of a kind count whatever birth they are from."""
    receive = Stepper.receive

    def any_birth(step: Stepper, sender: NodeId, message: RaftMessage, now: float) -> None:
        found = getattr(message, "message", message)
        member = step._members.get(sender)
        if member is not None and found.WhichOneof("body") == kind:
            found.version = member.birth
        if found.WhichOneof("body") in ("append", "vote_request"):
            found.to = step._log_store.birth
        receive(step, sender, message, now)

    with mock.patch.object(Stepper, "receive", any_birth):
        yield


def births_are_ignored_in_votes() -> contextlib.AbstractContextManager[None]:
    return _without("vote_reply")


def births_are_ignored_in_acks() -> contextlib.AbstractContextManager[None]:
    return _without("append_reply")


@contextlib.contextmanager
def changes_overtake_each_other() -> Hole:
    """A change is appended over one that is not committed."""
    view = MemberChanges.view

    def eager(changes: MemberChanges, *values: Any, is_ready: bool) -> LeaderView:
        found = view(changes, *values, is_ready=is_ready)
        return LeaderView(found.node, is_ready, found.near)

    def require(changes: MemberChanges, new: Configuration, *, is_ready: bool) -> None:
        """Anything may follow anything."""

    with mock.patch.object(MemberChanges, "view", eager), mock.patch.object(MemberChanges, "require", require):
        yield


@contextlib.contextmanager
def rows_are_not_stored() -> Hole:
    """The configuration of an entry is in memory only."""

    def put(rows: ConfigurationRows, index: int, configuration: Configuration) -> None:
        rows._rows.append((index, configuration))

    with mock.patch.object(ConfigurationRows, "_put", put):
        yield


@contextlib.contextmanager
def rows_outlive_their_entries() -> Hole:
    """What is cut off stays in force."""
    with mock.patch.object(ConfigurationRows, "truncated"):
        yield


@contextlib.contextmanager
def rows_are_trimmed_like_entries() -> Hole:
    """A trim forgets the configuration with its entry."""

    def trimmed(rows: ConfigurationRows, base_index: int) -> None:
        rows._delete(0, base_index + 1)
        rows._rows = [(index, one) for index, one in rows._rows if index > base_index]

    with mock.patch.object(ConfigurationRows, "trimmed", trimmed):
        yield


@contextlib.contextmanager
def snapshots_bring_no_configuration() -> Hole:
    with mock.patch.object(SnapshotReceiver, "manifest_configuration", return_value=None):
        yield


@contextlib.contextmanager
def restarts_begin_with_the_founding_members() -> Hole:
    """NATS 7850: what is stored of the members is not read."""
    begin = ConfigurationRows.__init__

    def forgetful(rows: ConfigurationRows, *values: Any) -> None:
        begin(rows, *values)
        rows._rows = []

    with (
        mock.patch.object(ConfigurationRows, "__init__", forgetful),
        mock.patch.object(configuration_rows, "is_legal", return_value=True),
    ):
        yield


@contextlib.contextmanager
def erased_when_the_move_begins() -> Hole:
    """Who is to leave does so at once."""
    birth_on = GroupWishes.birth_on

    def leaving(known: GroupWishes, node: int) -> int | None:
        gone = known.wish.gone if known.wish is not None else None
        return None if gone is not None and gone.node == node else birth_on(known, node)

    with (
        mock.patch.object(GroupWishes, "birth_on", leaving),
        mock.patch.object(moving_node, "is_over", return_value=True),
    ):
        yield


@contextlib.contextmanager
def metadata_that_are_behind_erase() -> Hole:
    """A node erases what its metadata do not know, however old they are."""
    with mock.patch.object(moving_node, "is_over", return_value=True), _confirmed_at_once():
        yield


@contextlib.contextmanager
def metadata_are_not_confirmed() -> Hole:
    """A node that reads its metadata anew opens and erases by what they say on the way."""
    with _confirmed_at_once():
        yield


@contextlib.contextmanager
def _confirmed_at_once() -> Hole:
    follow = MovingNode._follow

    def at_once(node: MovingNode) -> None:
        node._is_confirmed = True
        follow(node)

    with mock.patch.object(MovingNode, "_follow", at_once):
        yield


@contextlib.contextmanager
def moves_are_finished_before_they_are_committed() -> Hole:
    step = MovingNode._step

    def early(node: MovingNode, group: RaftGroup, known: GroupWishes) -> None:
        latest = group.configuration
        if latest is not None and latest.is_joint and known.wish is not None:
            node.board.finish(group.group_id, known.wish, final(latest))
        step(node, group, known)

    with mock.patch.object(MovingNode, "_step", early):
        yield


@contextlib.contextmanager
def a_cancel_is_no_entry() -> Hole:
    """Where no learner was added yet, a leader calls the move cancelled and leaves no trace of it in the log."""
    next_step = RaftGroup.next_step

    def step(group: RaftGroup, wish: Wish | None) -> NextStep:
        found, latest = next_step(group, wish), group.configuration
        unbegun = wish is not None and latest is not None and wish.is_cancelled and not latest.move
        return MoveEnded(latest.version) if unbegun and latest is not None else found

    finish = Board.finish

    def told(board: Board, group: int, wish: Wish, configuration: Configuration) -> None:
        if configuration.version > wish.version:
            finish(board, group, wish, configuration)
        else:
            board.judges[group].told_cancelled.add(wish.move)

    with mock.patch.object(RaftGroup, "next_step", step), mock.patch.object(Board, "finish", told):
        yield


@contextlib.contextmanager
def _anything_may_follow() -> Hole:
    """Neither the leader nor who hears of a change looks whether it may be made."""
    with (
        mock.patch.object(MemberChanges, "require"),
        mock.patch.object(configuration_rows, "is_legal", return_value=True),
    ):
        yield


@contextlib.contextmanager
def a_cancel_takes_back_what_both_sets_decide() -> Hole:
    """Redpanda 8322. A cancel is not too late when it meets J: the old set alone is to decide again."""
    next_step = RaftGroup.next_step

    def back(group: RaftGroup, wish: Wish | None) -> NextStep:
        found, latest = next_step(group, wish), group.configuration
        if wish is None or latest is None or not (wish.is_cancelled and latest.is_joint):
            return found
        if isinstance(found, changes.AwaitCondition):
            return found
        return AppendConfiguration(
            replace(
                latest, version=latest.version + 1, voters=latest.outgoing, outgoing=frozenset(),
                learners=frozenset(), move=0, ended=latest.move,
            )
        )  # fmt: skip

    with mock.patch.object(RaftGroup, "next_step", back), _anything_may_follow():
        yield


@contextlib.contextmanager
def leaders_that_left_go_on() -> Hole:
    """A leader ends the joint phase also where it votes no more, and stays."""

    def at_once(latest: Configuration, view: LeaderView) -> NextStep:
        return AppendConfiguration(final(latest))

    with mock.patch.object(changes, "_leave_joint", at_once), _anything_may_follow():
        yield


@contextlib.contextmanager
def learners_campaign() -> Hole:
    """Who has no vote asks for those of others."""

    def anybody(membership: Membership) -> bool:
        return membership.configuration is not None

    with mock.patch.object(Membership, "may_campaign", property(anybody)):
        yield


@contextlib.contextmanager
def groups_rest_amid_a_move() -> Hole:
    with mock.patch.object(Membership, "is_settled", True):
        yield


@contextlib.contextmanager
def learners_refuse_their_votes() -> Hole:
    """A learner that has not heard of its promotion grants nothing (etcd 10998)."""
    may_grant = Election.may_grant

    def voters_only(election: Election, request: VoteRequest) -> bool:
        return election._membership.is_voter and may_grant(election, request)

    with mock.patch.object(Election, "may_grant", voters_only):
        yield


@contextlib.contextmanager
def who_has_no_memory_leads_alone() -> Hole:
    """A replica without a memory that knows of no other voter leads, though its group may have grown before."""
    before_tick = Election.before_tick

    def at_once(election: Election, now: float) -> None:
        core, is_alone = election.core, election._membership.is_alone
        if core.state != LEADER and core.election_deadline <= now and is_alone:
            core.election_deadline = 0.0
        else:
            before_tick(election, now)

    with mock.patch.object(Election, "before_tick", at_once):
        yield


@contextlib.contextmanager
def a_hint_tells_who_has_no_memory_of_two_voters() -> Hole:
    """A replica without a memory grants its vote also when it was told at its opening that there are two voters, and
    not by the candidate alone (H1 of the review)."""

    def by_hint(election: Election, request: VoteRequest) -> bool:
        others_grant = request.others_grant or election._membership.quorum.is_pair()
        return may_grant(mute=election._log_store.mute, others_grant=others_grant)

    with mock.patch.object(Election, "may_grant", by_hint):
        yield


@contextlib.contextmanager
def state_is_kept_by_node() -> Hole:
    """What a leader knows of a replica is taken for what the next one on that node has (H8)."""
    in_force = MemberChanges.in_force

    def inherited(changes: MemberChanges, now: float) -> None:
        match = changes._core.match
        known: dict[NodeId, int] = changes.__dict__.setdefault("known", {})
        known |= {node: match.get(member, 0) for node, member in changes._membership.peers.items()}
        in_force(changes, now)
        if changes._core.state == LEADER:
            for node, member in changes._membership.peers.items():
                match[member] = max(match.get(member, 0), known.get(node, 0))

    with mock.patch.object(MemberChanges, "in_force", inherited):
        yield


@contextlib.contextmanager
def copies_are_not_paced() -> Hole:
    """Who is far behind is sent all that it lacks as fast as it takes it."""
    with mock.patch.object(CopyBudget, "opens_at", return_value=None):
        yield


@contextlib.contextmanager
def all_entries_count_as_new() -> Hole:
    """What a log had before a copy began is sent beside the pace, like the entries that came since."""
    looked_at = Progress.looked_at

    def from_nothing(progress: Progress, last: int, *, is_far: bool) -> None:
        looked_at(progress, last, is_far=is_far)
        progress.grown_from = 0

    with mock.patch.object(Progress, "looked_at", from_nothing):
        yield


@contextlib.contextmanager
def strangers_are_not_heard() -> Hole:
    """An append of a leader that is not known as a member is dropped."""
    with mock.patch.object(Membership, "may_change", False), mock.patch.object(MemberChanges, "require"):
        yield


@contextlib.contextmanager
def births_are_not_stored() -> Hole:
    """A replica forgets its birth with its process."""
    flush = LogStore.flush

    def founding_always(log_store: LogStore) -> None:
        birth, log_store.birth = log_store.birth, 1
        try:
            flush(log_store)
        finally:
            log_store.birth = birth

    with mock.patch.object(LogStore, "flush", founding_always):
        yield
