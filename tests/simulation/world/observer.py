"""What a node says and commits, told to the judges of its groups."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from cluster.raft import RaftGroup, RaftMessage
from cluster.raft.membership.configuration import Configuration
from tests.simulation.checker import GroupJudge
from tests.simulation.watched_groups import term_at

if TYPE_CHECKING:
    from tests.simulation.world.nodes import SimNode


class Observer:
    """Of one life of a node."""

    def __init__(self, node: SimNode) -> None:
        self._node = node
        self._seen: dict[int, tuple[int, int]] = {}  # by group: what is committed, and the term that it led last

    def opened(self, group: RaftGroup) -> None:
        self._seen[group.group_id] = (group.first_index - 1, 0)

    def said(self, peer: int, message: RaftMessage) -> None:
        node, judges = self._node, self._node.schedule.judges
        kind = message.WhichOneof("body")
        if kind == "append_reply" or (kind == "vote_reply" and not message.vote_reply.pre):
            held = message.append_reply.next_index - 1 if message.append_reply.success else 0
            judges[message.group].speaks(node.id, message.version, held)
        if kind == "append_reply" and not message.append_reply.mute:
            node.readmission.speaks_as_voter(message.group)
        elif kind == "vote_request" and not message.vote_request.pre:
            judges[message.group].votes(node.id, message.term, node.id)
        elif kind == "vote_reply" and not message.vote_reply.pre:
            if message.vote_reply.granted:
                judges[message.group].votes(node.id, message.term, peer)
            node.schedule.faults.voted(node)

    def look(self, groups: Iterable[RaftGroup]) -> None:
        """After each turn of the node, at those that had a part in it: nothing of the others has changed."""
        node = self._node
        for group in groups:
            group_id = group.group_id
            judge = node.schedule.judges[group_id]
            node.readmission.observe(group)
            commit, led = self._seen[group_id]
            if group.commit_index > max(commit, group.first_index - 1):
                commit = group.commit_index
                term = group.log_store.term_at(commit)
                judge.commits(node.id, commit, term, group.term)
                if group.is_leader:
                    assert group.configuration is not None
                    lacking = self._lacking(judge, group.configuration, commit, term)
                    judge.rests_on(node.id, commit, lacking, group.configuration)
            judge.look_at(node.id, group)
            if group.is_leader and led != group.term:
                led = group.term
                node.schedule.trace(f"{node.id} LEADS group {group_id} term {group.term}")
                judge.leads(node.id, group.term, partial(term_at, group))
            self._seen[group_id] = (commit, led)

    def _lacking(self, judge: GroupJudge, configuration: Configuration, index: int, term: int) -> list[int]:
        """Voters whose log has another entry there, or none."""
        nodes = self._node.schedule.nodes
        logs = {
            one.node: nodes[one.node].observer.log_of(judge.group_id, one.birth) for one in configuration.all_voters
        }
        return [node for node, log in logs.items() if log is not None and term_at(log, index) not in (term, None)]

    def log_of(self, group_id: int, birth: int) -> RaftGroup | None:
        """Of a voter with this birth, as far as it can be held to what it said."""
        node = self._node
        is_known = node.is_running and not (node.readmission.was_rolled_back and node.lacks_memory)
        group = node.multiraft.groups.get(group_id) if is_known else None
        return None if group is None or group.log_store.mute or group.birth != birth else group
