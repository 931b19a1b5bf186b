"""Ranges of the integers in messages: one table, checked where a message enters, before anything else.

The problem: protobuf gives whatever 64 bits hold, and a term travels on by itself: a member that adopts it writes it
down, answers with it and campaigns one above it. One wrong frame with the highest term there is was persisted, did not
fit a disk record one later, and stopped the node, at each restart again. The rules: every integer field of every
message has a range here, and a message with one outside is dropped as a whole, counted, and told of; a term may also
not lie further above the receiver's own than elections can lead (`MAX_TERM_LEAD`), so that what a single wrong frame
can make a group adopt is still a term like any other. An empty replica, which knows no term at all, takes any within
the range: it cannot tell. Its word cannot harm the others, who can, and it is repaired alone (docs/operate/recover.md);
so is a member that a wrong frame has put exactly where some of the others still follow and some do not.

The test that goes over all descriptors fails when a field is added and not listed.

Rejected: ending the stream of the sender, as for a frame that cannot be parsed. One group's poisoned member
would take the connection away from all the others, for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from cluster.raft.snapshot.bandwidth import LONGEST_REST_MS

Range = tuple[int, int]

MAX_TERM = 1 << 60
"""Far from the 64 bits of a disk record: sums and successors of terms never leave them."""

MAX_TERM_LEAD = 1 << 32
"""Above the receiver's own term. An election takes ten milliseconds at least, so a member would have had to be away for
a year of nothing but elections."""

TERM: Range = (0, MAX_TERM)
INDEX: Range = (0, 1 << 60)
"""Entries of a group: a million a second for thirty thousand years. Offsets and positions in bytes too."""
GROUP: Range = (0, (1 << 63) - 1)
"""The highest bit of a group number says in which space its entries lie (`log/key_layout.py`)."""
NODE: Range = (0, (1 << 31) - 1)
VERSION: Range = (0, (1 << 32) - 1)
BIRTH: Range = (0, (1 << 32) - 1)
COUNT: Range = (0, (1 << 32) - 1)
REST_MS: Range = (0, LONGEST_REST_MS)
"""A peer that says more would keep its copies waiting for longer than anybody remembers."""
SEQUENCE: Range = (0, 1 << 62)
"""Sequence numbers of one process's messages."""
ANY: Range = (0, (1 << 64) - 1)
"""Drawn at random, or a checksum: compared, never counted with."""

RAFT_RANGES: dict[str, Range] = {
    "RaftMessage.group": GROUP,
    "RaftMessage.version": BIRTH,
    "RaftMessage.term": TERM,
    "RaftMessage.to": BIRTH,
    "ReplicaRecord.node": NODE,
    "ReplicaRecord.birth": BIRTH,
    "ConfigurationRecord.version": INDEX,
    "ConfigurationRecord.move": INDEX,
    "ConfigurationRecord.ended": INDEX,
    "NotMember.version": INDEX,
    "AppendEntries.sequence": SEQUENCE,
    "AppendEntries.commit_index": INDEX,
    "AppendEntries.previous_index": INDEX,
    "AppendEntries.previous_term": TERM,
    "AppendEntries.entry_terms": TERM,
    "AppendEntries.retained_from": INDEX,
    "AppendEntries.release_index": INDEX,
    "AppendEntries.release_mark": ANY,
    "AppendEntries.acknowledged_index": INDEX,
    "AppendEntries.acknowledged_term": TERM,
    "AppendReply.sequence": SEQUENCE,
    "AppendReply.next_index": INDEX,
    "AppendReply.mute": ANY,
    "AppendReply.rest_ms": REST_MS,
    "NodeHeartbeat.life": ANY,
    "NodeHeartbeat.sequence": SEQUENCE,
    "NodeHeartbeat.quiet": ANY,
    "NodeHeartbeat.left": GROUP,
    "NodeHeartbeatReply.life": ANY,
    "NodeHeartbeatReply.asked_by": ANY,
    "NodeHeartbeatReply.sequence": SEQUENCE,
    "NodeHeartbeatReply.left": GROUP,
    "VoteRequest.last_index": INDEX,
    "VoteRequest.last_term": TERM,
    "VoteRequest.round": ANY,
    "VoteReply.round": ANY,
    "FetchRequest.group": GROUP,
    "FetchRequest.version": BIRTH,
    "FetchRequest.number": SEQUENCE,
    "FetchRequest.snapshot": ANY,
    "FetchRequest.entries_from": INDEX,
    "FetchRequest.state_from": INDEX,
    "FetchRequest.max_bytes": COUNT,
    "FetchReply.group": GROUP,
    "FetchReply.version": BIRTH,
    "FetchReply.number": SEQUENCE,
    "FetchReply.checksum": ANY,
    "FetchReply.active": VERSION,
    "FetchReply.rest_ms": REST_MS,
    "Manifest.snapshot": ANY,
    "Manifest.base_index": INDEX,
    "Manifest.base_term": TERM,
    "Manifest.index": INDEX,
    "Manifest.state_bytes": INDEX,
    "FetchBody.entry_terms": TERM,
}

INTEGERS = frozenset(
    {
        FieldDescriptor.CPPTYPE_INT32,
        FieldDescriptor.CPPTYPE_INT64,
        FieldDescriptor.CPPTYPE_UINT32,
        FieldDescriptor.CPPTYPE_UINT64,
    }
)

Check = Callable[[Any], str | None]
"""Check of one message: returns what is wrong with it, or None."""


class RangeTable:
    """Checks of messages whose integer fields are listed, made when a kind of message is first met."""

    def __init__(self, ranges: Mapping[str, Range]) -> None:
        self._ranges = ranges
        self._checks: dict[type[Any], Check] = {}

    def fault(self, message: Any) -> str | None:
        """Name a field outside its range, for people; None: there is none."""
        check = self._checks.get(type(message))
        if check is None:
            check = self._checks[type(message)] = self._check_of(message.DESCRIPTOR)
        return check(message)

    def _check_of(self, descriptor: Descriptor) -> Check:
        single: list[tuple[str, int, int]] = []
        repeated: list[tuple[str, int, int]] = []  # all unsigned
        inner: list[tuple[str, bool]] = []
        choices = [choice.name for choice in descriptor.oneofs if any(field.message_type for field in choice.fields)]
        for field in descriptor.fields:
            if field.cpp_type in INTEGERS:
                low, high = self._ranges[f"{descriptor.name}.{field.name}"]
                (repeated if field.is_repeated else single).append((field.name, low, high))
            elif field.message_type and (field.containing_oneof is None or field.containing_oneof.name not in choices):
                inner.append((field.name, field.is_repeated))

        def check(message: Any) -> str | None:
            for name, low, high in single:
                if not low <= getattr(message, name) <= high:
                    return _said(descriptor, name, getattr(message, name), low, high)
            for name, low, high in repeated:
                values = getattr(message, name)
                if values and max(values) > high:
                    return _said(descriptor, name, max(values), low, high)
            for choice in choices:
                chosen = message.WhichOneof(choice)
                fault = None if chosen is None else self.fault(getattr(message, chosen))
                if fault is not None:
                    return fault
            for name, is_repeated in inner:
                if is_repeated or message.HasField(name):
                    part = getattr(message, name)
                    fault = self._first_fault(part) if is_repeated else self.fault(part)
                    if fault is not None:
                        return fault
            return None

        return check

    def _first_fault(self, messages: Iterable[Any]) -> str | None:
        return next((fault for fault in map(self.fault, messages) if fault is not None), None)


def _said(descriptor: Descriptor, name: str, value: int, low: int, high: int) -> str:
    return f"{descriptor.name}.{name} is {value}, outside {low} to {high}"


RAFT = RangeTable(RAFT_RANGES)


def term_fault(term: int, own_term: int) -> str | None:
    """A term within its range that no election can have led to."""
    if own_term and term > own_term + MAX_TERM_LEAD:
        return f"term {term} lies more than {MAX_TERM_LEAD} above this member's, {own_term}"
    return None
