"""The words of the filter language: sections, the fields that the specification gives them, functions, reserved words.

Sections may be written in full or as one letter, with `_` or `-`; the fields of header, properties and delivery
annotations likewise, since the event stream text writes `d.event-streams-offset` where the filter text allows only
letters, digits and `_` outside brackets. Those three know all their fields, so a misspelt one is an error at the
attach, not a filter that never matches.
"""

from __future__ import annotations

from typing import Final

from node.filters.syntax_tree import Field, Section

OFFSET: Final = "event-streams-offset"
TIMESTAMP: Final = "event-streams-timestamp"
SOURCE_PARTITION: Final = "event-streams-source-partition"
GROUP_KEY: Final = "event-streams-group-key"
PARTITION: Final = "partition"
EARLIEST: Final = "@earliest"
LATEST: Final = "@latest"

SECTIONS: Final[dict[str, Section]] = {
    "h": "h", "header": "h",
    "d": "d", "delivery_annotations": "d",
    "m": "m", "message_annotations": "m",
    "p": "p", "properties": "p",
    "a": "a", "application_properties": "a",
    "f": "f", "footer": "f",
}  # fmt: skip

HEADER_FIELDS: Final = ("durable", "priority", "ttl", "first-acquirer", "delivery-count")
PROPERTY_FIELDS: Final = (
    "message-id", "user-id", "to", "subject", "reply-to", "correlation-id", "content-type", "content-encoding",
    "absolute-expiry-time", "creation-time", "group-id", "group-sequence", "reply-to-group-id",
)  # fmt: skip
DELIVERY_FIELDS: Final = (OFFSET, TIMESTAMP, SOURCE_PARTITION)

KNOWN_FIELDS: Final[dict[Section, tuple[str, ...]]] = {
    "h": HEADER_FIELDS,
    "p": PROPERTY_FIELDS,
    "d": DELIVERY_FIELDS,
}

EVENT_FIELDS: Final[dict[str, Field]] = {
    "key": Field("m", GROUP_KEY),
    "body": Field("b", "body"),
    PARTITION: Field("d", PARTITION),
    "offset": Field("d", OFFSET),
    "timestamp_ms": Field("d", TIMESTAMP),
}
"""Fields for names without a section in an event filter: those that clients show of every event. The partition is a
number there, which programs write as often as its text."""

HEADER_DEFAULTS: Final = (False, 4, None, False, 0)
"""Values of a header that is absent, or leaves fields out."""

FUNCTIONS: Final[dict[str, tuple[int, int]]] = {
    "LOWER": (1, 1),
    "UPPER": (1, 1),
    "LEFT": (2, 2),
    "RIGHT": (2, 2),
    "SUBSTRING": (2, 3),
    "UTC": (0, 0),
    "DATE": (1, 1),
}
"""Functions, with the least and the most arguments."""

RESERVED: Final = frozenset(
    {"AND", "OR", "NOT", "LIKE", "ESCAPE", "IN", "IS", "NULL", "TRUE", "FALSE", "EXISTS", "INF", "NAN", *FUNCTIONS}
)
