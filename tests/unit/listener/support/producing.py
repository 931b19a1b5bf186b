"""Idempotent producers made by hand: link properties and annotations with the types that the wire wants."""

from __future__ import annotations

from typing import Any

from holdfast.amqp import Error, Message, SenderLink, encode_message, int32, short, symbol
from tests.unit.listener.support.peer import Peer
from tests.unit.listener.support.single import SingleNode

ID = "com.microsoft:producer-id"
EPOCH = "com.microsoft:producer-epoch"
SEQUENCE = "com.microsoft:producer-sequence-number"

STOLEN = "com.microsoft:producer-epoch-stolen"
OUT_OF_ORDER = "com.microsoft:out-of-order-sequence"
ARGUMENT_ERROR = "com.microsoft:argument-error"
OUT_OF_RANGE = "com.microsoft:argument-out-of-range"
OK = "accepted"


def terms(producer: int | None = None, epoch: int | None = None, sequence: int | None = None) -> dict[str, Any]:
    """All three, null where nothing is stated."""
    return {
        ID: producer,
        EPOCH: None if epoch is None else short(epoch),
        SEQUENCE: None if sequence is None else int32(sequence),
    }


def event(producer: int, epoch: int, sequence: int, body: bytes = b"x", **more: Any) -> bytes:
    annotations = terms(producer, epoch, sequence) | more.pop("message_annotations", {})
    return encode_message(Message(body=body, message_annotations=annotations, **more))


def events(producer: int, epoch: int, first: int, bodies: str) -> list[bytes]:
    """One event for each letter."""
    return [event(producer, epoch, (first + place) % 2**31, letter.encode()) for place, letter in enumerate(bodies)]


def open_producer(peer: Peer, properties: dict[str, Any], *, log: str = "trades", partition: str = "0") -> SenderLink:
    return peer.engine.open_sender(log, properties={"event-streams-partition": symbol(partition)} | properties)


async def attached(
    peer: Peer,
    producer: int | None = None,
    epoch: int | None = None,
    sequence: int | None = None,
    *,
    log: str = "trades",
    partition: str = "0",
) -> SenderLink:
    link = open_producer(peer, terms(producer, epoch, sequence), log=log, partition=partition)
    await peer._opened(link)
    await peer.until(lambda: link.credit > 0)
    return link


def granted(link: SenderLink) -> tuple[int, int, int]:
    properties = link.remote_properties
    return properties[ID], properties[EPOCH], properties[SEQUENCE]


def conditions(states: list[Any]) -> list[str]:
    """What became of each delivery: the error condition of a rejected one, else the name of the outcome."""
    return [
        state.error.condition if getattr(state, "error", None) is not None else type(state).__name__.lower()
        for state in states
    ]


async def refusal(peer: Peer, properties: dict[str, Any], **where: str) -> Error:
    return await peer.refused(open_producer(peer, properties, **where))


def stored(node: SingleNode, log: str = "trades", partition: str = "0") -> str:
    """The bodies, a letter each."""
    replica = node.logs[log][partition]
    return b"".join(record[5:] for batch in replica.read(0, 1 << 30) for record in batch.messages()).decode()
