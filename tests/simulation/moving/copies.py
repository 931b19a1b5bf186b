"""Copies that a node sends to replicas which do not vote, seen from outside: they keep to the pace.

* What was copied is never ahead of the pace by more than the burst and one piece.
* A replica that is far behind is sent no more entries beside the pace than its leader's term has brought.

Pieces of snapshots are counted, too, but are of some hundred bytes here, and hardly ever wait.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from cluster.raft import FetchReply, FetchRequest
from cluster.raft.interfaces import GroupId, NodeId
from cluster.raft.raft_pb2 import FetchBody, RaftMessage
from cluster.raft.replication.append_sender import FAR_ENTRIES
from cluster.raft.replication.message_encoding import EncodedAppend
from cluster.raft.snapshot.bandwidth import BURST_S, ENTRY_COST_BYTES
from tests.simulation.checker import Violation
from tests.simulation.moving.judge import MovingJudge
from tests.simulation.watched_groups import WatchedMultiRaft


class MeteredMultiRaft(WatchedMultiRaft):
    def __init__(self, *values: Any, **options: Any) -> None:
        super().__init__(*values, **options)
        self._ahead, self._looked_at = 0.0, 0.0  # bytes ahead of the pace, and when
        self._beside: Counter[tuple[GroupId, int, NodeId]] = Counter()

    def serve_fetch(self, sender: NodeId, request: FetchRequest) -> FetchReply:
        reply = super().serve_fetch(sender, request)
        if reply.body and not FetchBody.FromString(reply.body).refusal:
            self._copies(request.group, sender, len(reply.body))
        return reply

    def _emit(self, node: NodeId, message: Any) -> None:
        self._look_at(node, message)
        super()._emit(node, message)

    def _emit_early(self, node: NodeId, message: Any) -> None:
        self._look_at(node, message)
        super()._emit_early(node, message)

    def _look_at(self, node: NodeId, message: Any) -> None:
        if not isinstance(message, EncodedAppend):
            return  # nothing but appends of entries is encoded early
        sent = RaftMessage.FromString(message.SerializeToString())
        group, entries = self.groups[sent.group], sent.append.entries
        if group.configuration is None or node in {voter.node for voter in group.configuration.all_voters}:
            return
        end = min(group.last_index, group._membership.sendable_up_to(group._peers[node]))
        if end - sent.append.previous_index - 1 < FAR_ENTRIES:
            return
        if sent.append.paced:
            self._copies(sent.group, node, max(sum(map(len, entries)), len(entries) * ENTRY_COST_BYTES))
            return
        copy = sent.group, sent.term, node
        self._beside[copy] += len(entries)
        judge = self.node.schedule.judge(sent.group, ())
        assert isinstance(judge, MovingJudge)
        first = judge.first_of(group)
        if self._beside[copy] > group.last_index - first + 1:
            raise Violation(
                f"group {sent.group}: node {self.node_id} has sent node {node} {self._beside[copy]} entries beside the "
                f"pace, and leads since entry {first} of {group.last_index}"
            )

    def _copies(self, group: GroupId, node: NodeId, size: int) -> None:
        pace = self.options.fetch_bytes_per_s
        self._ahead = max(0.0, self._ahead - (self.now - self._looked_at) * pace)
        self._looked_at = self.now
        if self._ahead > BURST_S * pace + 1:
            raise Violation(
                f"group {group}: node {self.node_id} copies to node {node}, and is {self._ahead:.0f} bytes ahead of "
                "its pace"
            )
        self._ahead += size
        self.node.schedule.count("copied")
