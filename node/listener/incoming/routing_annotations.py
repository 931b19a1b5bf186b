"""Routing hints of messages, remembered by the bytes that carry them.

Problem: a keyed producer puts the same few keys into the message annotations of millions of messages; decoding that
section each time costs more (6 us) than everything else a node does for the message.
Rule never broken: a hint that is remembered is the one that decoding the same bytes gave. Only whole sections of
message annotations at the very start of a message are remembered (in front of them there can be nothing of concern),
and the memory is bounded in entries and in bytes of each. A producer's numbers on a link that was not attached for
them are refused: their producer believes that they count.
Rejected: decoding only the one annotation out of the map; it needs a second decoder, and is still ten times as slow.
"""

from __future__ import annotations

from holdfast import protocol
from holdfast.amqp import Ingested, ingest, message_annotations
from holdfast.amqp.messages.message_validation import check_message
from node.listener import errors
from node.listener.errors import Refused

ENTRIES = 8192
"""Sections remembered. A full memory is dropped as a whole: annotations that never repeat gain nothing anyway."""

_START = b"\x00Sr\xc1"
_HEAD_BYTES = 5  # _START and the size of a map8: what lies behind is at most 255 bytes

_known: dict[bytes, str | None] = {}


def read(payload: bytes) -> Ingested:
    """Routing of a message that every reader can decode, as `holdfast.amqp.ingest` tells it. Raises MalformedMessage,
    or Refused for a message with a producer's numbers."""
    if payload[:4] != _START or len(payload) <= _HEAD_BYTES:
        return _ingest_plain(payload)
    section = payload[: _HEAD_BYTES + payload[4]]
    try:
        hint = _known[section]
    except KeyError:
        message = _ingest_plain(payload)
    else:
        check_message(payload)
        return Ingested(payload, None, hint)
    if len(_known) >= ENTRIES:
        _known.clear()
    _known[section] = message.group_key
    return message


def _ingest_plain(payload: bytes) -> Ingested:
    message = ingest(payload)
    check_message(message.stored)
    if protocol.PRODUCER_PREFIX in payload:  # seldom, and then most likely in the annotations
        found = message_annotations(message.stored)
        if found is not None and any(entry.key in protocol.PRODUCER_NAMES for entry in found.entries):
            raise Refused(errors.numbers_unasked())
    return message
