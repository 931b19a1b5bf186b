"""Identity of an idempotent producer in a partition, and the numbers of its events.

Rule never broken: the numbers of one producer group and owner level in a partition run without a gap, from 0 to
2^31 - 1 and then again from 0, and a number never means two events.

The words are those of the Event Hubs proposal; on the wire `producer-id` is the group, `producer-epoch` the owner
level. The starting number is that of the last event published: so saved properties are the options to go on with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast import protocol
from holdfast.amqp.encoding.codec import int32, short
from holdfast.client.errors import UnsupportedError
from holdfast.client.options import (
    MAX_GROUP_ID,
    MAX_OWNER_LEVEL,
    MAX_SEQUENCE,
    PartitionPublishingOptions,
    PartitionPublishingProperties,
)
from holdfast.records.record_batch import SEQUENCES, Numbering


def following(number: int, steps: int = 1) -> int:
    """The number `steps` after this one."""
    return (number + steps) % SEQUENCES


class ProducerIdentity:
    """Group, level and last published number in one partition: what the options say until the node has answered, then
    what the node said, then what was published."""

    def __init__(self, options: PartitionPublishingOptions, *, renews: bool) -> None:
        """`renews`: the program has named nothing of it, so it can go on under a higher level, or another group."""
        self.renews = renews
        self.group_id = options.producer_group_id
        self.owner_level = options.owner_level
        self.last = options.starting_sequence_number
        self.next = 0  # of the event that is sent next
        self.known = False  # the node has answered once
        self.is_renewed = False  # and nothing was published since
        self.has_doubt = False  # numbers from `next` on were given to what may be stored, and was given up

    def link_properties(self) -> Mapping[str, Any]:
        """Properties for the attach. Null: to be filled in by the node."""
        level, last = self.owner_level, self.last
        return {
            protocol.PRODUCER_ID: self.group_id,
            protocol.PRODUCER_EPOCH: None if level is None else short(level),
            protocol.PRODUCER_SEQUENCE: None if last is None else int32(last),
            **({protocol.PRODUCER_RENEWS: True} if self.renews else {}),
        }

    def renew(self) -> None:
        """Begin with new numbers, under the next level; a group without any more levels is left for another one."""
        if self.owner_level is None or self.owner_level == MAX_OWNER_LEVEL:
            self.group_id = self.owner_level = None
        else:
            self.owner_level += 1
        self.last, self.next, self.known, self.is_renewed, self.has_doubt = None, 0, False, True, False

    def adopt(self, properties: Mapping[str, Any], what: str, *, is_publishing: bool) -> None:
        """Take over what the node answered. `is_publishing`: numbers were given that are not accepted yet."""
        names = (protocol.PRODUCER_ID, protocol.PRODUCER_EPOCH, protocol.PRODUCER_SEQUENCE)
        values = [properties.get(name) for name in names]
        if any(not isinstance(value, int) or isinstance(value, bool) for value in values):
            raise UnsupportedError(
                f"{what}: the node does not say who an idempotent producer is there (it answers {values})",
                advice="connect to a node that supports idempotent publishing, or publish without it",
            )
        group_id, level, last = (int(value) for value in values)  # type: ignore[arg-type]
        if not (0 <= group_id <= MAX_GROUP_ID and 0 <= level <= MAX_OWNER_LEVEL and -1 <= last <= MAX_SEQUENCE):
            raise UnsupportedError(f"{what}: the node answers nonsense about the producer: {values}")
        self.group_id, self.owner_level = group_id, level
        self.last = None if last == -1 else last  # -1: nothing was published, 0 comes first
        self.known = True
        if not is_publishing:
            self.go_back()

    def take(self, events: int) -> int:
        """The number of the first of so many events, which are sent now."""
        first, self.next = self.next, following(self.next, events)
        return first

    def go_back(self) -> None:
        """Take back the numbers that were given and not accepted."""
        self.next = 0 if self.last is None else following(self.last)

    def published_up_to(self, first_open: int | None) -> None:
        """Everything before this number is published; None: everything that was numbered."""
        self.is_renewed = False
        self.last = following(self.next if first_open is None else first_open, -1)

    def numbering(self, first: int) -> Numbering:
        """The numbers that a batch says, of which the first event has this one."""
        group_id, level = self.group_id, self.owner_level
        assert group_id is not None, "the link is open"
        assert level is not None, "the link is open"
        return Numbering(group_id, level, first)

    def properties(self) -> PartitionPublishingProperties:
        return PartitionPublishingProperties(True, self.group_id, self.owner_level, self.last)
