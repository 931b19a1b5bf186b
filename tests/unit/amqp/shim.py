"""A server around the engine, as small as can be: each address is a list of messages that consumers get from its
beginning. It exists so that stock clients have something to talk to over a real socket."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.amqp import (
    ConnectionClosed,
    Credit,
    Engine,
    Error,
    LinkRequested,
    ReceiverLink,
    SenderLink,
    Transfers,
    errors,
    uint,
)

CREDIT = 50


class ShimStore:
    def __init__(self) -> None:
        self.logs: dict[str, list[bytes]] = {"log": []}
        self.connections: list[ShimConnection] = []
        self.closed: list[Error | None] = []
        self.some_closed = asyncio.Event()


class ShimConnection(asyncio.Protocol):
    """One socket; its links serve the logs of a store."""

    def __init__(self, store: ShimStore, **options: Any) -> None:
        self.store = store
        self.engine = Engine("server", container_id="shim", **options)
        self.readers: dict[SenderLink, int] = {}
        store.connections.append(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self.engine.receive(data)
        self._work()

    def eof_received(self) -> None:
        self.engine.receive_eof()
        self._work()

    def _work(self) -> None:
        for event in self.engine.events():
            if isinstance(event, LinkRequested):
                self._attach(event.link)
            elif isinstance(event, Transfers):
                self.store.logs[event.link.remote_address or ""] += event.payloads
                event.link.settle(event.deliveries)
                event.link.grant(len(event.payloads))
            elif isinstance(event, Credit):
                self._feed(event.link)
            elif isinstance(event, ConnectionClosed):
                self.store.closed.append(event.error)
                self.store.some_closed.set()
        for connection in self.store.connections:
            for link in list(connection.readers):
                connection._feed(link)
            connection._flush()

    def _attach(self, link: Any) -> None:
        if link.wants_coordinator:
            link.refuse(Error(errors.NOT_IMPLEMENTED, "no transactions here"))
        elif link.remote_address == "elsewhere":
            where = {"hostname": "node-2", "network-host": "10.0.0.2", "port": uint(5673), "address": "log"}
            link.refuse(Error(errors.LINK_REDIRECT, "not here", where))
        elif link.remote_address not in self.store.logs:
            link.refuse(Error(errors.NOT_FOUND, f"no log named {link.remote_address}"))
        elif isinstance(link, ReceiverLink):
            link.accept(properties={"partition": "0"})
            link.grant(CREDIT)
        else:
            link.accept()
            self.readers[link] = 0

    def _feed(self, link: SenderLink) -> None:
        if link in self.readers and link.is_open:
            start = self.readers[link]
            batch = self.store.logs[link.remote_address or ""][start : start + link.credit]
            link.send_many(batch)
            self.readers[link] = start + len(batch)
            if link.drain:
                link.drained()

    def _flush(self) -> None:
        while data := self.engine.data_to_send():
            self.transport.write(data)
        if self.engine.output_done:
            self.transport.close()
