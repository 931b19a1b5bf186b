"""A tiny broker to drive the driver against.

It accepts what is sent, except what a test tells it to reject, release or redirect, and hands out what a test put
on its shelf.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proton import Condition, Delivery, Endpoint, Terminus, symbol

from tests.stock_broker import StockBroker


class EchoBroker(StockBroker):
    """Outcomes are chosen by `outcome_of(index)`; `shelf` holds the bodies a receiver gets."""

    def __init__(self) -> None:
        super().__init__()
        self.received = 0
        self.last = b""  # as it came: all sections
        self.links: list[dict[str, Any]] = []
        self.desired: list[Any] = []
        self.shelf: list[bytes] = []
        self.outcome_of: Callable[[int], int] = lambda index: Delivery.ACCEPTED
        self.redirect_to: Any = None
        self.refusal: Condition | None = None

    def on_connection_opening(self, event: Any) -> None:
        self.desired.append(event.connection.remote_desired_capabilities)

    def _condition(self) -> Condition | None:
        if self.redirect_to is not None:
            return Condition("amqp:link:redirect", "elsewhere", self.redirect_to)
        return self.refusal

    def on_link_opening(self, event: Any) -> None:
        link = event.link
        if self._condition() is None:
            link.source.copy(link.remote_source)
            link.target.copy(link.remote_target)
        self.links.append({"properties": link.remote_properties, "sender": link.is_sender, "filter": _filter_of(link)})

    def on_link_opened(self, event: Any) -> None:
        link = event.link
        if (condition := self._condition()) is not None:
            if link.state & Endpoint.LOCAL_ACTIVE:
                link.condition = condition
                link.close()
        elif link.is_receiver:
            link.flow(10)

    def on_delivery(self, event: Any) -> None:
        delivery, link = event.delivery, event.link
        if not link.is_receiver or not delivery.readable or delivery.partial:
            return
        self.last = link.recv(delivery.pending)
        link.advance()
        outcome = self.outcome_of(self.received)
        self.received += 1
        if outcome == Delivery.REJECTED:
            delivery.local.condition = Condition("test:no", "not this one")
        delivery.update(outcome)
        delivery.settle()
        link.flow(1)

    def on_sendable(self, event: Any) -> None:
        link = event.link
        while link.credit and self.shelf:
            delivery = link.delivery(link.delivery_tag())
            link.stream(self.shelf.pop(0))
            link.advance()
            if link.remote_snd_settle_mode == 1:
                delivery.settle()


def _filter_of(link: Any) -> Any:
    if link.remote_source.type == Terminus.UNSPECIFIED:
        return None
    data = link.remote_source.filter
    data.rewind()
    return data.get_object() if data.next() else None


def redirect_info(host: str, port: int, address: str) -> dict[Any, Any]:
    return {symbol("network-host"): host, symbol("port"): port, symbol("address"): address}
