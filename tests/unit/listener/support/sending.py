"""Messages that say where they belong, and what a node has stored."""

from __future__ import annotations

from typing import Any

from holdfast.amqp import Message, encode_message, symbol
from tests.unit.listener.support.single import SingleNode

TARGET = symbol("event-streams-target-partition")
KEY = symbol("event-streams-group-key")


def to_partition(name: Any) -> bytes:
    return encode_message(Message(body=b"t", delivery_annotations={TARGET: name}))


def keyed(key: Any) -> bytes:
    return encode_message(Message(body=b"k", message_annotations={KEY: key}))


def stored(node: SingleNode, log: str) -> dict[str, list[bytes]]:
    """Everything a log holds."""
    return {
        name: [record for batch in replica.read(0, 1 << 30) for record in batch.messages()]
        for name, replica in node.logs[log].items()
    }
