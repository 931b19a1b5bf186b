"""A broker that says yes to everything and does nothing of it: what a suite that only looks at answers would let pass.

It offers the capability, echoes every property and filter, lets everybody in,
takes every message and hands each as it came to whoever is attached to the same address when it comes. Its `$info`
lists two partitions that it has never heard of.
"""

from __future__ import annotations

from typing import Any

from proton import Delivery, Message, symbol

from tests.conformance.broker import CAPABILITY
from tests.stock_broker import StockBroker

PARTITIONS = ("0", "1")
OFFSET = symbol("1")


class YesMan(StockBroker):
    def __init__(self) -> None:
        super().__init__(auto_settle=True)
        self._receivers: dict[str, list[Any]] = {}
        self._waiting: dict[str, list[bytes]] = {}  # by link name

    def on_connection_opening(self, event: Any) -> None:
        event.connection.offered_capabilities = [symbol(CAPABILITY)]

    def on_link_opening(self, event: Any) -> None:
        link = event.link
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        link.properties = link.remote_properties
        if link.is_sender:
            self._receivers.setdefault(link.remote_source.address, []).append(link)
        else:
            link.flow(1000)

    def on_link_closed(self, event: Any) -> None:
        for receivers in self._receivers.values():
            if event.link in receivers:
                receivers.remove(event.link)

    def on_delivery(self, event: Any) -> None:
        delivery, link = event.delivery, event.link
        if not link.is_receiver or not delivery.readable or delivery.partial:
            return
        data = link.recv(delivery.pending)
        link.advance()
        delivery.update(Delivery.ACCEPTED)
        delivery.settle()
        link.flow(1)
        for receiver in self._receivers.get(link.remote_target.address, []):
            self._waiting.setdefault(receiver.name, []).append(data)
            self._deliver(receiver)

    def _deliver(self, receiver: Any) -> None:
        waiting = self._waiting.get(receiver.name, [])
        while waiting and receiver.credit > 0:
            receiver.delivery(receiver.delivery_tag())
            receiver.stream(waiting.pop(0))
            receiver.advance()

    def on_sendable(self, event: Any) -> None:
        link = event.link
        if str(link.source.address).endswith("/$info"):
            entry = {"earliest-offset": OFFSET, "latest-offset": OFFSET}
            listed = [{"partition": symbol(partition), **entry} for partition in PARTITIONS]
            while link.credit > 0:
                link.send(Message(body={"partitions": listed}))
        self._deliver(link)
