"""Receivers in a group's name, and durable ones, as the tests attach them."""

from __future__ import annotations

from typing import Any

from holdfast.amqp import Error, ReceiverLink, Source, Transfers, symbol
from tests.unit.listener.support.peer import Peer
from tests.unit.listener.support.reading import place, start_at

STOLEN, LOCKED, INVALID = "amqp:link:stolen", "amqp:resource-locked", "amqp:invalid-field"


def terms(group: Any = "g", epoch: Any = None, partition: str | None = "0", **more: Any) -> dict[str, Any]:
    properties = {"event-streams-consumer-group": group, "event-streams-epoch": epoch} | more
    if partition is not None:
        properties["event-streams-partition"] = symbol(partition)
    return {key: value for key, value in properties.items() if value is not None}


def ask(peer: Peer, properties: dict[str, Any], source: Source | None = None, **options: Any) -> ReceiverLink:
    """Attaches and does not wait for the answer."""
    return peer.engine.open_receiver(source or start_at("trades", "@earliest"), properties=properties, **options)


async def attached(
    peer: Peer, properties: dict[str, Any], source: Source | None = None, *, credit: int = 0, **options: Any
) -> ReceiverLink:
    link = ask(peer, properties, source, **options)
    await peer._opened(link)
    if credit:
        await peer.grant(link, credit)
    return link


async def refusal(peer: Peer, properties: dict[str, Any], source: Source | None = None, **options: Any) -> Error:
    return await peer.refused(ask(peer, properties, source, **options))


async def offsets(peer: Peer, link: ReceiverLink, count: int) -> list[int]:
    """Of the first `count` events that arrive."""
    await peer.until(lambda: len(peer.received.get(link, [])) >= count)
    return [place(payload)[1] for payload in peer.received[link]]


def epoch_of(link: ReceiverLink) -> Any:
    return link.remote_properties["event-streams-epoch"]


def durable(address: str = "trades", policy: str = "never", timeout_s: int = 0, **more: Any) -> Source:
    earliest = start_at(address, "@earliest")
    return Source(address=address, durable=2, expiry_policy=policy, timeout_s=timeout_s, filter=earliest.filter, **more)


async def settle(peer: Peer, link: ReceiverLink, count: int, first: int = 0) -> None:
    """Those of the deliveries of the link that lie between `first` and `first + count`, in order of arrival."""
    deliveries = [
        one for event in peer.history if isinstance(event, Transfers) and event.link is link for one in event.deliveries
    ]
    link.settle(deliveries[first : first + count])
    await peer.flush()
