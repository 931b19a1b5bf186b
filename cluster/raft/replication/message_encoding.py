"""Building the messages of a group. Reading them is `step`'s work; the wire types are in
proto/cluster/raft/raft.proto.

The problem: entry bodies are the bulk of all traffic, and protobuf copies them three times for each receiver (into the
message, into its encoder's memory, into the result) and twice more where they are read. The rules: nothing leaves
without group, births and term; small entries are copied once, when the message is encoded, and a message
that goes to several followers is encoded once; large ones are not copied at all, but travel beside their message.

For small ones that needs no other format: protobuf parsers join the parts of a submessage that occurs twice, so an
append is its protobuf head followed by another `append` field with nothing but entries. Measured for 256 KiB to two
followers: 540 us through protobuf, 50 us so.

Rejected: every entry beside its message. What travels by itself is a call more at both ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cluster.raft.interfaces import GroupId
from cluster.raft.membership.configuration import FOUNDING_BIRTH
from cluster.raft.raft_pb2 import RaftMessage

APPEND_FIELD = b"\x22"
"""Tag of RaftMessage.append (field 4, length-delimited)."""
ENTRIES_FIELD = b"\x32"
"""Tag of AppendEntries.entries (field 6, length-delimited)."""
ENTRIES_BESIDE = APPEND_FIELD + b"\x02\x70\x01"
"""AppendEntries.entries_beside (field 14) is true."""

BESIDE_FROM_BYTES = 256 * 1024
"""Mean size of an append's entries from which they go beside it: from here on a copy costs more than a call."""

MAX_ENTRIES_BESIDE = 64
"""Limit for one append; more than the largest append (`max_append_bytes`) has of such entries."""


def varint(value: int) -> bytes:
    """The number in protobuf's encoding, seven bits a byte."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class EncodedAppend:
    """An append with entries on its way out: its protobuf encoding, made when first asked for, and only then."""

    __slots__ = ("_element", "_encoded", "_entries", "_front_bytes", "_head", "beside", "group", "sequence")

    def __init__(self, head: RaftMessage, entries: Sequence[bytes]) -> None:
        self.group = head.group
        self.sequence = head.append.sequence
        self._head = head
        self._entries = entries
        self._encoded = self._element = b""
        self._front_bytes = 0
        few = 0 < len(entries) <= MAX_ENTRIES_BESIDE
        large = few and sum(map(len, entries)) >= len(entries) * BESIDE_FROM_BYTES
        self.beside = tuple(entries) if large else ()
        """Entries that are not in `element`, and follow it on its way: all of them, or none."""

    def SerializeToString(self) -> bytes:
        """Encode the whole message, with its entries."""
        if not self._encoded:
            joined = b"" if self.beside else self._element[self._front_bytes :]
            self._encoded = joined or b"".join(self._parts())
        return self._encoded

    def element(self, tag: bytes) -> bytes:
        """Encode the message as an element of a repeated field: the field's tag, the length, and the message without
        what goes beside it. Encoded once for all receivers: it is the same field for all."""
        if not self._element:
            if self.beside:
                parts = [self._head.SerializeToString(), ENTRIES_BESIDE]
            else:
                parts = [self._encoded] if self._encoded else self._parts()
            front = tag + varint(sum(map(len, parts)))
            self._element, self._front_bytes = b"".join([front, *parts]), len(front)
            if not self.beside:
                self._entries = ()
        return self._element

    def _parts(self) -> list[bytes]:
        parts = [self._head.SerializeToString(), APPEND_FIELD, b""]
        size = 0
        for entry in self._entries:
            head = ENTRIES_FIELD + varint(len(entry))
            parts += (head, entry)
            size += len(head) + len(entry)
        parts[2] = varint(size)
        return parts


class ReceivedAppend(NamedTuple):
    """An append that came with its entries beside it."""

    message: RaftMessage
    entries: Sequence[bytes]

    @property
    def group(self) -> GroupId:
        return self.message.group


IncomingMessage = RaftMessage | ReceivedAppend

OutgoingMessage = RaftMessage | EncodedAppend
"""Message that a host hands to its transport: anything whose SerializeToString() is an encoded RaftMessage."""


class Stamp:
    """Makes messages of one replica with its birth on them."""

    __slots__ = ("_group", "birth")

    def __init__(self, group: GroupId, birth: int) -> None:
        self._group = group
        self.birth = birth

    def _message(self, term: int) -> RaftMessage:
        return RaftMessage(group=self._group, version=self.birth, term=term)

    def append(
        self,
        term: int,
        sequence: int,
        commit_index: int,
        previous: tuple[int, int] | None,
        *,
        retained_from: int = 0,
        release: tuple[int, int] | None = None,
        acknowledged: tuple[int, int] | None = None,
        quiesce: bool = False,
    ) -> RaftMessage:
        """Make a heartbeat; without `previous` it promises nothing about logs."""
        message = self._message(term)
        body = message.append
        body.sequence = sequence
        body.commit_index = commit_index
        if previous is not None:
            body.has_previous = True
            body.previous_index, body.previous_term = previous
        body.retained_from = retained_from
        if release is not None:
            body.release_index, body.release_mark = release
        if acknowledged is not None:
            body.acknowledged_index, body.acknowledged_term = acknowledged
        body.quiesce = quiesce
        return message

    def append_entries(
        self,
        term: int,
        sequence: int,
        commit_index: int,
        previous: tuple[int, int],
        entries: Sequence[bytes],
        entry_terms: Sequence[int],
        to: int = FOUNDING_BIRTH,
        *,
        paced: bool = False,
    ) -> EncodedAppend:
        """Make an append for all followers with this birth."""
        head = self.append(term, sequence, commit_index, previous)
        if to != FOUNDING_BIRTH:
            head.to = to
        if paced:
            head.append.paced = True
        head.append.entry_terms.extend(entry_terms)
        return EncodedAppend(head, entries)

    def append_reply(
        self,
        term: int,
        sequence: int,
        next_index: int,
        *,
        success: bool,
        reset: bool,
        mute: int = 0,
        quiesced: bool = False,
        rest_ms: int = 0,
    ) -> RaftMessage:
        message = self._message(term)
        body = message.append_reply
        body.sequence = sequence
        body.next_index = next_index
        body.success = success
        body.reset = reset
        body.mute = mute
        body.quiesced = quiesced
        if rest_ms:
            body.rest_ms = rest_ms
        return message

    def vote_request(
        self,
        term: int,
        last: tuple[int, int],
        *,
        pre: bool = False,
        transfer: bool = False,
        round_number: int = 0,
        others_grant: bool = False,
    ) -> RaftMessage:
        message = self._message(term)
        body = message.vote_request
        body.last_index, body.last_term = last
        body.pre = pre
        body.transfer = transfer
        body.round = round_number
        body.others_grant = others_grant
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

    def resigned(self, term: int) -> RaftMessage:
        message = self._message(term)
        message.resigned.SetInParent()
        return message

    def not_member(self, term: int, version: int) -> RaftMessage:
        message = self._message(term)
        message.not_member.version = version
        return message

    def stale_term(self, term: int) -> RaftMessage:
        message = self._message(term)
        message.stale_term.SetInParent()
        return message
