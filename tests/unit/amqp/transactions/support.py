"""What the tests of transactions share: how frames are made, and what events told."""

from __future__ import annotations

from typing import Any

from holdfast.amqp import (
    Coordinator,
    DeliveryState,
    Described,
    LinkRequested,
    ReceiverLink,
    Settlements,
    Transfers,
    symbol,
    uint,
    ulong,
)
from holdfast.amqp.transactions import (
    LOCAL_TRANSACTIONS,
)
from tests.unit.amqp.wire import RawPeer, each, frame, only

TXN, OTHER = b"txn-1", b"another transaction, of 32 bytes"
SYMBOL = symbol("amqp:transactional-state:list")
ACCEPTED_VALUE = Described(ulong(0x24), [])


def told(events: list[Any]) -> list[tuple[bytes, bytes | None]]:
    """(payload, transaction) of each message in order."""
    found: list[tuple[bytes, bytes | None]] = []
    for event in each(events, Transfers):
        named = event.transactions or (None,) * len(event.payloads)
        found += zip(event.payloads, named, strict=True)
    return found


def outcomes(events: list[Any]) -> list[tuple[int, DeliveryState]]:
    return [outcome for event in each(events, Settlements) for outcome in event.outcomes]


def state(fields: Any, descriptor: Any = None) -> Described:
    return Described(ulong(0x34) if descriptor is None else descriptor, fields)


def transfer(number: int, payload: bytes = b"m", *, handle: int = 0, of: Any = None, **flags: Any) -> bytes:
    """A transfer frame whose state is `of`."""
    settled, more = flags.get("settled", False), flags.get("more", False)
    tag = flags.get("tag", b"%d" % number)
    fields = [uint(handle), uint(number), tag, uint(0), settled, more, None, of]
    return frame(0, 0x14, fields, payload)


def disposition(first: int, of: Any, *, settled: bool, last: int | None = None) -> bytes:
    return frame(0, 0x15, [True, uint(first), None if last is None else uint(last), settled, of])


def control(peer: RawPeer, handle: int = 9, credit: int = 10, **attach: Any) -> ReceiverLink:
    """A control link from a raw peer that is open already."""
    target = Described(ulong(0x30), [symbol(LOCAL_TRANSACTIONS)])
    link = only(peer.say(peer.attach(f"control-{handle}", handle, target=target, **attach)), LinkRequested).link
    assert isinstance(link, ReceiverLink)
    link.accept(target=Coordinator((LOCAL_TRANSACTIONS,)))
    link.grant(credit)
    peer.hear()
    return link


GARBAGE = [[], [None], [TXN.decode()], [uint(7)], [b"x" * 33], [symbol("txn")], [[TXN]]]
"""Fields of states that name no transaction."""
