"""The rules of the OASIS Event Stream Extensions for AMQP 1.0 (committee specification draft 01), an entry for each, in
our own words, and the readings that we chose where the text contradicts itself or is silent.

Level: M must, N must not, S should, O may; of two the first is the one that is tested. Party: who is bound by it.
"""

from __future__ import annotations

from dataclasses import dataclass


class NotApplicable(Exception):
    """The rule does not bind this broker; the text says by which sentence of the specification."""


@dataclass(frozen=True, slots=True)
class Rule:
    id: str
    level: str
    party: str
    section: str
    text: str


def _rules(*rows: tuple[str, str, str, str]) -> dict[str, Rule]:
    return {
        f"ES-{number}": Rule(f"ES-{number}", level, party, section, text)
        for number, (level, party, section, text) in enumerate(rows, 1)
    }


RULES = _rules(
    ("O", "client", "1, 5", "A receiver may say at which offset to start; without it, only later events come."),
    ("M", "node", "1", "What a client leaves unused keeps its default behaviour."),
    ("M", "node", "3.1, 8", "The node offers AMQP_EVENT_STREAMS_V1_0 when a connection is opened."),
    ("M", "any", "3.1", "Who desires the capability, and is offered it, uses the extensions."),
    ("O", "all", "3.2", "Plain AMQP producers and consumers work unchanged, with or without the capability."),
    ("M", "node", "3.2", "A link that asks for no partition is bound to one, or left agnostic."),
    ("M", "node", "3.2", "Without hints the node chooses the partition of an event."),
    ("M", "node", "3.2", "No filter means only events accepted after the attach, like @latest."),
    ("M", "node", "3.2", "The node remembers what a link was given; the client need not while the link lives."),
    ("O", "node", "3.2", "A durable source resumes where it was after a disconnect."),
    ("O", "node", "4", "Partitions may share an address, or have addresses of their own."),
    ("O", "all", "4", "Links are bound to a partition or agnostic."),
    ("O", "node", "4", "A node may send a link elsewhere by a link redirect."),
    ("O", "client", "4, 4.1, 4.3", "A link may ask for a partition."),
    ("M", "node", "4, 4.1, 4.3", "A partition that is missing or not granted: the attach is refused."),
    ("O", "node", "4, 4.1, 4.3", "A link that asked for nothing may be bound."),
    ("M", "node", "4.1, 4.3", "The answer to a link that ends up bound names its partition."),
    ("O", "node", "4", "To move bound links the node closes them gracefully; consumers attach again."),
    ("-", "all", "4", "Partition ids are opaque symbols, learned through $info."),
    ("O", "producer", "4.2", "On an agnostic link an event may carry a target partition or a group key."),
    ("M", "node", "4.2, 4.6.6", "On a bound link an event for another partition is rejected."),
    ("M", "node", "4.6.6", "An event for a partition that does not exist is rejected."),
    ("M", "node", "4.6.6", "Otherwise an event goes to exactly its target partition."),
    ("M", "node", "4.6.6", "The target partition is stripped, never stored or delivered."),
    ("M", "node", "4.4", "On an agnostic link every delivery names its source partition."),
    ("O", "node", "4.4", "On a bound link a source partition, if given, is the link's."),
    ("M", "node", "4.6.4", "Of a partitioned log every delivery names its source partition."),
    ("M", "client", "4.6.4, 4.6.5", "Who forwards an event strips the node's annotations of partitions."),
    ("O", "client", "4.5", "A receiving link may be bound to a consumer group."),
    ("O", "node", "4.5, 4.6.2", "The attach may make the group, or fail when it was not configured."),
    ("N", "node", "4.5", "The node puts no consumer in a group by itself."),
    ("M", "node", "4.5, 4.6.2", "A link of a group is bound to a partition."),
    ("M", "node", "4.5", "At most one link of a group is active on a partition."),
    ("O", "node", "4.5.1", "For a group without a partition the node may choose one."),
    ("O", "node", "4.5.1", "More members than partitions: refused with detach-forced, or held until one is free."),
    ("S", "node", "4.5.1", "To split a group anew its links are closed gracefully; members attach again."),
    ("O", "node", "4.5.1", "A group's links may instead be agnostic, and be told of changes."),
    ("M", "node", "4.5.2", "Each partition and group has an epoch from 0, told on every attach."),
    ("M", "node", "4.5.2", "While a link is active, only a strictly greater epoch is let in."),
    ("M", "node", "4.5.2", "A strictly greater epoch closes the old link, attaches the new, and is recorded."),
    ("O", "node", "4.5.2, 4.6.3", "When its receiver closes the last link, the epoch may return to 0."),
    ("S", "node", "4.6.5", "An agnostic link is told of changed partitions on the next transfer."),
    ("S", "node", "4.6.7", "The same group key sticks to a partition while their number is the same."),
    ("-", "all", "4.6.7", "The group key is not the group-id property."),
    ("M", "node", "5.1", "Every delivery carries its offset and its time."),
    ("N", "client", "5.1.1", "A client neither interprets nor builds offsets."),
    ("M", "node", "5.1.1", "Offsets strictly increase, as texts, along the log."),
    ("O", "client", "5.1.1", "@earliest and @latest may be compared with."),
    ("O", "node", "5.1.2", "Times may be equal, or go back when the owner changes."),
    ("N", "all", "5.1.2", "Times do not order events; they only find a start."),
    ("O", "client", "5.2", "Any filter that the source supports may be used."),
    ("M", "node", "5.2", "A filter selects from all retained events, earliest to latest."),
    ("M", "node", "5.2.1", "The delivery-annotations filter: offset, time; every one must be exceeded."),
    ("M", "node", "6, 8", "Every log has an address <log>/$info."),
    ("M", "client", "6", "One message with a map comes from $info for each credit."),
    ("O", "node", "6", "With more credit the map comes again, at intervals of the node's choice."),
    ("M", "node", "6", "$info lists every partition with its earliest and latest offset."),
    ("O", "node", "6", "Other keys in the map are the application's."),
    ("M", "node", "8", "Conformance is the capability, $info and at least one of the two filters."),
)

READINGS: dict[str, Rule] = {
    f"D{number}": Rule(f"D{number}", "-", "node", section, text)
    for number, (section, text) in enumerate(
        (
            ("4.5.1, 4.6.5", "Changed partitions are told by event-streams-associated-partitions-changed."),
            ("4.5.2, 4.6.3", "An epoch may be any integer from 0; it is answered as a long."),
            ("4.5, 4.5.1", "A link of a group is always bound."),
            ("4.4, 4.6.4", "The source partition is on every delivery, bound or not."),
            ("5.2.2", "Integers compared with times are milliseconds."),
            ("5.2.2", "d.event-streams-offset and d.[event-streams-offset] are the same field."),
            ("4.5.2", "An equal epoch is refused."),
            ("4.5.2", "The link that lost is told amqp:link:stolen, who came in vain amqp:resource-locked."),
            ("4, 4.6.6", "Unknown partition: amqp:not-found; target that is not the link's: amqp:precondition-failed."),
            ("5.2.2, 8", "The SQL filter is also known as amqp:sql-filter, 0x120."),
            ("4.5.2", "Who first claims without an epoch is told 0."),
            ("4.5.2", "An owner whose connection broke keeps its epoch; a lower one is refused afterwards."),
        ),
        1,
    )
}
