"""A group in numbers, for people and for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cluster.raft.group import Group

ROLES = ("follower", "candidate", "leader")


def describe(group: Group) -> dict[str, Any]:
    core = group._core
    return {
        "group": group.group_id,
        "role": ROLES[core.state],
        "ready": group.ready,
        "term": core.term,
        "leader": group.leader,
        "commit": core.commit_index,
        "applied": core.applied_index,
        "first": group.first_index,
        "last": group.last_index,
        "uncommitted_bytes": group.uncommitted_bytes,
        "votes": group.has_vote(group._self_id),
        "catching_up": group._catch_up.progress(),
        "members": {node: _member(group, node) for node in group.members},
    }


def _member(group: Group, node: int) -> dict[str, Any]:
    own = node == group._self_id
    return {
        "match": group.match_index(node),
        "connected": own or group._peers[node] in group._core.connected,
        "votes": group.has_vote(node),
        "fetches": None if own else group._catch_up.snapshot_sender.progress(node),
    }
