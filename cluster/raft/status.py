"""A group in numbers, for people and for tests."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

from cluster.raft.interfaces import GroupId, NodeId
from cluster.raft.pysyncobj.core import Core
from cluster.raft.pysyncobj.member import RaftMember
from cluster.raft.snapshot.catch_up import CatchUp

ROLES = ("follower", "candidate", "leader")


class DescribedGroup(Protocol):
    """The parts of a group that are shown."""

    group_id: GroupId
    _self_id: NodeId
    _core: Core
    _peers: dict[NodeId, RaftMember]
    _catch_up: CatchUp
    quarantined: str | None

    @property
    def members(self) -> Collection[NodeId]: ...
    @property
    def may_count(self) -> bool: ...
    @property
    def ready(self) -> bool: ...
    @property
    def is_quiet(self) -> bool: ...
    @property
    def leader(self) -> NodeId | None: ...
    @property
    def first_index(self) -> int: ...
    @property
    def last_index(self) -> int: ...
    @property
    def uncommitted_bytes(self) -> int: ...
    @property
    def refused_messages(self) -> int: ...
    def has_vote(self, node: NodeId) -> bool: ...
    def match_index(self, node: NodeId) -> int: ...


def describe(group: DescribedGroup) -> dict[str, Any]:
    core = group._core
    return {
        "group": group.group_id,
        "role": ROLES[core.state] if group.quarantined is None else "quarantined",
        "quarantined": group.quarantined,
        "refused_messages": group.refused_messages,
        "ready": group.ready,
        "quiet": group.is_quiet,
        "term": core.term,
        "leader": group.leader,
        "commit": core.commit_index,
        "applied": core.applied_index,
        "first": group.first_index,
        "last": group.last_index,
        "uncommitted_bytes": group.uncommitted_bytes,
        "votes": group.may_count,
        "catching_up": group._catch_up.progress(),
        "members": {node: _member(group, node) for node in group.members},
    }


def _member(group: DescribedGroup, node: int) -> dict[str, Any]:
    own = node == group._self_id
    return {
        "match": group.match_index(node),
        "connected": own or group._peers[node] in group._core.connected,
        "votes": group.has_vote(node),
        "fetches": None if own else group._catch_up.snapshot_sender.progress(node),
    }
