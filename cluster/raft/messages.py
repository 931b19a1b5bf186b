"""Building the messages of a group. Reading them is the guard's work; the wire types are in
proto/cluster/raft/raft.proto.

The rule: nothing leaves without group, configuration version and term (exactly-once 5.5, rules 1-3). Entry
bodies are set on the message that is sent, never on a part that is copied into it afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence

from cluster.raft.interfaces import GroupId
from cluster.raft.raft_pb2 import RaftMessage


class Stamp:
    """Makes messages of one group with its configuration version on them."""

    __slots__ = ("_group", "_version")

    def __init__(self, group: GroupId, version: int) -> None:
        self._group = group
        self._version = version

    def _message(self, term: int) -> RaftMessage:
        return RaftMessage(group=self._group, version=self._version, term=term)

    def append(
        self,
        term: int,
        sequence: int,
        commit_index: int,
        previous: tuple[int, int] | None,
        entries: Sequence[bytes] = (),
        entry_terms: Sequence[int] = (),
    ) -> RaftMessage:
        message = self._message(term)
        body = message.append
        body.sequence = sequence
        body.commit_index = commit_index
        if previous is not None:
            body.has_previous = True
            body.previous_index, body.previous_term = previous
            if entries:
                body.entries.extend(entries)
                body.entry_terms.extend(entry_terms)
        return message

    def append_reply(self, term: int, sequence: int, next_index: int, *, success: bool, reset: bool) -> RaftMessage:
        message = self._message(term)
        body = message.append_reply
        body.sequence = sequence
        body.next_index = next_index
        body.success = success
        body.reset = reset
        return message

    def vote_request(
        self, term: int, last: tuple[int, int], *, pre: bool = False, transfer: bool = False, round_number: int = 0
    ) -> RaftMessage:
        message = self._message(term)
        body = message.vote_request
        body.last_index, body.last_term = last
        body.pre = pre
        body.transfer = transfer
        body.round = round_number
        message.vote_request.SetInParent()
        return message

    def vote_reply(self, term: int, *, granted: bool, pre: bool = False, round_number: int = 0) -> RaftMessage:
        message = self._message(term)
        body = message.vote_reply
        body.pre = pre
        body.granted = granted
        body.round = round_number
        message.vote_reply.SetInParent()
        return message

    def timeout_now(self, term: int) -> RaftMessage:
        message = self._message(term)
        message.timeout_now.SetInParent()
        return message

    def stale_term(self, term: int) -> RaftMessage:
        message = self._message(term)
        message.stale_term.SetInParent()
        return message
