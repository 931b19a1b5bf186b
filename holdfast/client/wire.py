"""The words and addresses a client shares with nodes on the wire.

This is the client's own copy (a client never imports a node); the `$management` protocol is written out in full in
`docs/` and at the node. Rule never broken: every symbol that the client reads or writes stands in this file.
"""

from __future__ import annotations

from typing import Final

EVENT_STREAMS_CAPABILITY: Final = "AMQP_EVENT_STREAMS_V1_0"
LINK_REDIRECT_CAPABILITY: Final = "amqp:link:redirect"

LINK_PARTITION: Final = "event-streams-partition"
LINK_CONSUMER_GROUP: Final = "event-streams-consumer-group"
LINK_EPOCH: Final = "event-streams-epoch"
LINK_RESUME: Final = "holdfast:resume"  # asked: begin at the group's position, if it has one
LINK_CLAIM: Final = "holdfast:claim"  # told: what a commit is made in the name of
LINK_CONTINUED: Final = "holdfast:continued"  # told: nobody else read since this link did last
LINK_POSITION: Final = "holdfast:position"  # told: the last event that is done
LINK_STOLEN: Final = "amqp:link:stolen"
RESOURCE_LOCKED: Final = "amqp:resource-locked"
ANNOTATION_OFFSET: Final = "event-streams-offset"
ANNOTATION_TIMESTAMP: Final = "event-streams-timestamp"
ANNOTATION_SOURCE_PARTITION: Final = "event-streams-source-partition"
ANNOTATION_GROUP_KEY: Final = "event-streams-group-key"
OFFSET_EARLIEST: Final = "@earliest"
OFFSET_LATEST: Final = "@latest"

# The filter that a receiving link starts from: a described map, code 0x200, under a key of the client's choice.
START_FILTER_NAME: Final = "amqp:event-streams-delivery-annotations-filter"
START_FILTER_CODE: Final = 0x200
# The filter that chooses events: a described string, a condition in SQL.
SQL_FILTER_NAME: Final = "amqp:event-streams-sql-filter"
SQL_FILTER_CODE: Final = 0x201
INVALID_FIELD: Final = "amqp:invalid-field"

# Idempotent publishing: a capability of the attach; link properties and, by the same names, annotations of each event;
# conditions.
IDEMPOTENT_CAPABILITY: Final = "com.microsoft:idempotent-producer"
PRODUCER_ID: Final = "com.microsoft:producer-id"
PRODUCER_EPOCH: Final = "com.microsoft:producer-epoch"
PRODUCER_SEQUENCE: Final = "com.microsoft:producer-sequence-number"
# A link property: who says it, and is answered it, may leave the three out of an event whose number is the one behind
# that of the event before it on the link.
IMPLIED_NUMBERS: Final = "holdfast:implied-numbers"
PRODUCER_STOLEN: Final = "com.microsoft:producer-epoch-stolen"
OUT_OF_ORDER: Final = "com.microsoft:out-of-order-sequence"
NOT_ALLOWED: Final = "amqp:not-allowed"  # of an attach: numbers that the partition does not know (any more)

# An outcome of the nodes' own: accepted, and where. A link asks for it by listing it among its source's outcomes.
# Fields: base-offset ulong, count uint, partition symbol: of `count` sends from this one on, the n-th stands at
# base-offset + n. Those behind the first are answered `accepted`.
STORED: Final = "holdfast:stored:list"
STORED_CODE: Final = 0x484F4C44_00000001
OUTCOMES: Final = (
    "amqp:accepted:list",
    "amqp:rejected:list",
    "amqp:released:list",
    "amqp:modified:list",
    STORED,
)

INFO_SUFFIX: Final = "/$info"
INFO_PARTITIONS: Final = "partitions"
INFO_PARTITION: Final = "partition"
INFO_EARLIEST: Final = "earliest-offset"
INFO_LATEST: Final = "latest-offset"
INFO_LATEST_TIMESTAMP: Final = "latest-timestamp"
INFO_AVAILABLE: Final = "available"
INFO_NEXT_OFFSET: Final = "next-offset"

MANAGEMENT: Final = "$management"
