"""Programs written for stock proton talk to the engine over a socket, unmodified; our client role talks to proton."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from proton import Collector, ConnectionException, Described, Link, Message, Terminus, Timeout, symbol, ulong
from proton import Connection as ProtonConnection
from proton import Transport as ProtonTransport
from proton.handlers import MessagingHandler
from proton.reactor import AtLeastOnce, AtMostOnce, Container, Filter
from proton.utils import BlockingConnection, LinkDetached, SendException

from holdfast.amqp import (
    ConnectionClosed,
    ConnectionOpened,
    Credit,
    Engine,
    LinkOpened,
    Settlements,
    Transfers,
    Value,
    decode_message,
    encode_message,
)
from holdfast.amqp import Message as OurMessage
from tests.unit.amqp.shim import ShimConnection, ShimStore
from tests.unit.amqp.wire import each, only

TIMEOUT_S = 90


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[tuple[str, ShimStore]]:
    store = ShimStore()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: ShimConnection(store, **options), "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", store
    finally:
        server.close()
        for connection in store.connections:
            connection.transport.abort()
        await server.wait_closed()


async def test_blocking_connection_sends_and_receives() -> None:
    def program(address: str) -> list[Any]:
        connection = BlockingConnection(address, timeout=TIMEOUT_S)
        sender = connection.create_sender("log")
        for number in range(120):  # more than the credit given at once
            sender.send(Message(body={"n": number, "pad": "x" * 2000}, properties={"a": number}))
        big = "y" * 300_000
        sender.send(Message(body=big))
        receiver = connection.create_receiver("log", credit=10)
        bodies = []
        for _ in range(121):
            message = receiver.receive(timeout=TIMEOUT_S)
            bodies.append(message.body)
            receiver.accept()
        with pytest.raises(Timeout):
            receiver.receive(timeout=0.05)
        receiver.close()
        sender.close()
        connection.close()
        assert bodies[-1] == big
        return [body["n"] for body in bodies[:-1]]

    async with serving() as (address, store):
        assert await asyncio.to_thread(program, address) == list(range(120))
        assert len(store.logs["log"]) == 121
        assert store.closed == [None]


async def test_refusals_are_understood_by_stock_clients() -> None:
    def program(address: str) -> None:
        connection = BlockingConnection(address, timeout=TIMEOUT_S)
        with pytest.raises(LinkDetached) as refused:
            connection.create_sender("nowhere")
        assert "no log named nowhere" in str(refused.value)
        with pytest.raises(LinkDetached) as redirected:
            connection.create_receiver("elsewhere")
        assert redirected.value.condition == "amqp:link:redirect"
        connection.create_sender("log").send(Message(body="still here"))
        connection.close()

    async with serving() as (address, store):
        await asyncio.to_thread(program, address)
        assert len(store.logs["log"]) == 1


async def test_a_redirect_tells_a_stock_client_where_to_go() -> None:
    class Lost(MessagingHandler):
        def __init__(self, address: str) -> None:
            super().__init__()
            self.address = address
            self.condition: Any = None

        def on_start(self, event: Any) -> None:
            connection = event.container.connect(self.address, reconnect=False)
            event.container.create_receiver(connection, "elsewhere")

        def on_link_error(self, event: Any) -> None:
            self.condition = event.link.remote_condition
            event.connection.close()

    async with serving() as (address, _):
        lost = Lost(address)
        await asyncio.wait_for(asyncio.to_thread(Container(lost).run), TIMEOUT_S)
    assert lost.condition.name == "amqp:link:redirect"
    assert lost.condition.info == {"hostname": "node-2", "network-host": "10.0.0.2", "port": 5673, "address": "log"}


async def test_a_stock_client_hears_which_message_is_too_large() -> None:
    class Careless(MessagingHandler):
        def __init__(self, address: str) -> None:
            super().__init__()
            self.address = address
            self.heard: list[tuple[str, str]] = []

        def on_start(self, event: Any) -> None:
            connection = event.container.connect(self.address, reconnect=False)
            event.container.create_sender(connection, "log").send(Message(body=b"x" * 300_000))

        def on_rejected(self, event: Any) -> None:
            self.heard.append(("rejected", event.delivery.remote.condition.name))

        def on_released(self, event: Any) -> None:
            self.heard.append(("released", ""))

        def on_link_error(self, event: Any) -> None:
            self.heard.append(("detached", event.link.remote_condition.name))
            event.connection.close()

    async with serving(max_message_size=100_000) as (address, _):
        careless = Careless(address)
        await asyncio.wait_for(asyncio.to_thread(Container(careless).run), TIMEOUT_S)
    condition = "amqp:link:message-size-exceeded"
    assert careless.heard == [("rejected", condition), ("detached", condition)]


class Producer(MessagingHandler):
    """Sends as fast as credit allows, then reads everything back on the same connection."""

    def __init__(self, address: str, count: int, options: Any) -> None:
        super().__init__(prefetch=30)
        self.address, self.count, self.options = address, count, options
        self.sent = self.accepted = self.settled = 0
        self.received: list[int] = []

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self.address, reconnect=False)
        event.container.create_sender(connection, "log", options=self.options)

    def on_sendable(self, event: Any) -> None:
        while event.sender.credit and self.sent < self.count:
            event.sender.send(Message(body=self.sent))
            self.sent += 1
        if self.sent == self.count and isinstance(self.options, AtMostOnce):
            self._read_back(event)

    def on_accepted(self, event: Any) -> None:
        self.accepted += 1
        if self.accepted == self.count:
            self._read_back(event)

    def _read_back(self, event: Any) -> None:
        if not self.settled:
            self.settled = 1
            event.container.create_receiver(event.connection, "log", name="reader")

    def on_message(self, event: Any) -> None:
        self.received.append(event.message.body)
        if len(self.received) == self.count:
            event.receiver.close()
            event.connection.close()


@pytest.mark.parametrize("options", [AtLeastOnce(), AtMostOnce()])
async def test_messaging_handler_streams(options: Any) -> None:
    async with serving(idle_timeout_s=30.0) as (address, store):
        handler = Producer(address, 500, options)
        await asyncio.wait_for(asyncio.to_thread(Container(handler).run), TIMEOUT_S)
        assert handler.received == list(range(500))
        assert len(store.logs["log"]) == 500


async def test_what_a_stock_receiver_asks_for_is_read_and_echoed() -> None:
    asked: list[Any] = []

    class Asking(MessagingHandler):
        def __init__(self, address: str) -> None:
            super().__init__()
            self.address = address

        def on_start(self, event: Any) -> None:
            connection = event.container.connect(self.address, reconnect=False)
            filters = {symbol("start"): Described(ulong(0x200), {symbol("event-streams-offset"): symbol("00a1")})}
            event.container.create_receiver(connection, "log", options=Filter(filters))

        def on_link_opened(self, event: Any) -> None:
            asked.append(event.receiver.remote_source.filter)
            echoed = event.receiver.remote_source.filter
            echoed.rewind()
            echoed.next()
            asked[0] = echoed.get_object()
            event.connection.close()

    async with serving() as (address, _):
        await asyncio.wait_for(asyncio.to_thread(Container(Asking(address)).run), TIMEOUT_S)
    filters = asked[0]
    assert filters["start"].descriptor == 0x200
    assert filters["start"].value == {"event-streams-offset": "00a1"}


async def test_a_stock_transaction_controller_is_told_that_there_are_none() -> None:
    class Controller(MessagingHandler):
        def __init__(self, address: str) -> None:
            super().__init__()
            self.address = address
            self.condition: Any = None

        def on_start(self, event: Any) -> None:
            connection = event.container.connect(self.address, reconnect=False)
            sender = event.container.create_sender(connection, None, name="txn-ctrl", options=self)
            assert isinstance(sender, Link)

        def test(self, link: Any) -> bool:
            return True

        def apply(self, link: Any) -> None:
            link.target.type = Terminus.COORDINATOR

        def on_link_error(self, event: Any) -> None:
            self.condition = event.link.remote_condition
            event.connection.close()

    async with serving() as (address, _):
        controller = Controller(address)
        await asyncio.wait_for(asyncio.to_thread(Container(controller).run), TIMEOUT_S)
        assert controller.condition.name == "amqp:not-implemented"


async def test_rejected_sends_raise_in_the_blocking_client() -> None:
    def program(address: str) -> None:
        connection = BlockingConnection(address, timeout=TIMEOUT_S)
        sender = connection.create_sender("log")
        with pytest.raises((LinkDetached, SendException)):
            sender.send(Message(body="x" * 5000))
        connection.close()

    async with serving(max_message_size=1000) as (address, store):
        await asyncio.to_thread(program, address)
        assert store.logs["log"] == []


async def test_an_abrupt_end_of_a_stock_client_is_noticed() -> None:
    def program(address: str) -> None:
        connection = BlockingConnection(address, timeout=TIMEOUT_S)
        connection.create_sender("log").send(Message(body="last words"))
        connection.conn.transport.close_head()
        connection.conn.transport.close_tail()
        with pytest.raises(ConnectionException):
            connection.create_sender("log")

    async with serving() as (address, store):
        thread = threading.Thread(target=program, args=(address,))
        thread.start()
        await asyncio.wait_for(store.some_closed.wait(), TIMEOUT_S)
        await asyncio.to_thread(thread.join, TIMEOUT_S)
        assert len(store.logs["log"]) == 1


class ProtonServer:
    """proton's own server side, driven by a MessagingHandler, in memory."""

    def __init__(self, handler: MessagingHandler) -> None:
        self.handler = handler
        self.connection, self.collector = ProtonConnection(), Collector()
        self.connection.collect(self.collector)
        self.transport = ProtonTransport(ProtonTransport.SERVER)
        self.transport.sasl().allowed_mechs("ANONYMOUS")
        self.transport.require_auth(False)
        self.transport.bind(self.connection)

    def exchange(self, engine: Engine) -> None:
        idle = 0
        while idle < 2:
            data = engine.data_to_send()
            moved = bool(data)
            while data:
                taken = self.transport.push(data[: self.transport.capacity()])
                data = data[taken if taken is not None else len(data) :][: len(data)] if taken else b""
            while event := self.collector.peek():
                event.dispatch(self.handler)
                for handler in self.handler.handlers:
                    event.dispatch(handler)
                self.collector.pop()
            pending = self.transport.pending()
            if pending > 0:
                answer = bytes(self.transport.peek(pending))
                self.transport.pop(len(answer))
                engine.receive(answer)
                moved = True
            idle = 0 if moved else idle + 1


class Echo(MessagingHandler):
    """Accepts every link; what is sent to it comes back on the receivers."""

    def __init__(self) -> None:
        super().__init__(prefetch=20)
        self.senders: list[Any] = []

    def on_connection_opening(self, event: Any) -> None:
        event.connection.container = "proton-server"

    def on_link_opening(self, event: Any) -> None:
        event.link.source.copy(event.link.remote_source)
        event.link.target.copy(event.link.remote_target)
        if event.link.is_sender:
            self.senders.append(event.link)

    def on_message(self, event: Any) -> None:
        for sender in self.senders:
            sender.send(Message(body=["echo", event.message.body]))


def test_our_client_role_against_protons_server_side() -> None:
    server, client = ProtonServer(Echo()), Engine("client", container_id="ours")
    client.open()
    receiver = client.open_receiver("q")
    receiver.grant(10)
    sender = client.open_sender("q")
    server.exchange(client)
    events = client.events()
    only(events, ConnectionOpened)
    assert client.remote_container == "proton-server"
    assert len(each(events, LinkOpened)) == 2
    assert each(events, Credit)
    sender.send_many([encode_message(OurMessage(Value(number))) for number in range(5)])
    server.exchange(client)
    events = client.events()
    assert len(only(events, Settlements).outcomes) == 5
    received = [payload for event in each(events, Transfers) for payload in event.payloads]
    assert [decode_message(payload).body for payload in received] == [Value(["echo", number]) for number in range(5)]
    for event in each(events, Transfers):
        event.link.settle(event.deliveries)
    client.close()
    server.exchange(client)
    assert only(client.events(), ConnectionClosed).error is None
    assert client.output_done
