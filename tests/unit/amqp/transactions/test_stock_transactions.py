"""The transactions of proton's Python client, unmodified, against the engine over a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from proton import Message
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import AtLeastOnce, AtMostOnce, Container

from holdfast.amqp import ACCEPTED, RELEASED, Transactional, Value, decode_message, encode_message
from holdfast.amqp import Message as OurMessage
from tests.unit.amqp.transactions.tiny_broker import TinyBroker, TinyConnection

TIMEOUT_S = 90


@asynccontextmanager
async def serving(broker: TinyBroker) -> AsyncIterator[str]:
    loop = asyncio.get_running_loop()
    connections: list[TinyConnection] = []

    def connect() -> TinyConnection:
        connections.append(TinyConnection(broker))
        return connections[-1]

    server = await loop.create_server(connect, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for connection in connections:
            connection.transport.abort()
        await server.wait_closed()


class Program(MessagingHandler, TransactionHandler):  # type: ignore[misc]
    """Begins a transaction at once; what it does in there is for its kind."""

    def __init__(self, address: str, *, settle_before_discharge: bool = False) -> None:
        super().__init__(prefetch=10, auto_accept=False)
        self.address = address
        self.settles = settle_before_discharge
        self.seen: list[str] = []

    def on_start(self, event: Any) -> None:
        self.container = event.container
        self.connection = event.container.connect(self.address, reconnect=False)
        self.begin()

    def begin(self) -> None:
        self.container.declare_transaction(self.connection, handler=self, settle_before_discharge=self.settles)

    def on_transaction_declare_failed(self, event: Any) -> None:
        self.seen.append("declare failed")
        self.connection.close()

    def on_transaction_committed(self, event: Any) -> None:
        self.seen.append("committed")
        self.ended()

    def on_transaction_aborted(self, event: Any) -> None:
        self.seen.append("aborted")
        self.ended()

    def on_transaction_commit_failed(self, event: Any) -> None:
        self.seen.append("commit failed")
        self.ended()

    def ended(self) -> None:
        raise NotImplementedError


class Sending(Program):
    """Sends `size` messages in each of `ends` transactions, which then end as said."""

    def __init__(self, address: str, ends: str, *, settled: bool, body: str = "m", size: int = 3) -> None:
        super().__init__(address)
        self.ends, self.size, self.body = list(ends), size, body
        self.options = AtMostOnce() if settled else AtLeastOnce()
        self.settled = settled
        self.sender: Any = None
        self.transaction: Any = None
        self.sent = self.answered = 0

    def on_start(self, event: Any) -> None:
        super().on_start(event)
        self.sender = event.container.create_sender(self.connection, "log", options=self.options)

    def on_transaction_declared(self, event: Any) -> None:
        self.transaction = event.transaction
        self.seen.append(bytes(self.transaction.id).decode())
        self.send()

    def on_sendable(self, event: Any) -> None:
        self.send()

    def send(self) -> None:
        if self.transaction is None or self.sender.credit < self.size:
            return
        transaction, self.transaction = self.transaction, None
        self.current = transaction
        for number in range(self.size):
            self.sent += 1
            transaction.send(self.sender, Message(body=f"{bytes(transaction.id).decode()}/{number} {self.body}"))
        if self.settled:
            self.end()

    def on_delivery(self, event: Any) -> None:
        if event.link == self.sender and event.delivery.remote_state == 0x34:
            data = event.delivery.remote.data
            assert (bytes(data[0]), data[1].descriptor) == (bytes(self.current.id), 0x24)
            self.answered += 1
            event.delivery.settle()
            if self.answered == self.sent:
                self.end()

    def end(self) -> None:
        if self.ends.pop(0) == "c":
            self.current.commit()
        else:
            self.current.abort()

    def ended(self) -> None:
        if self.ends:
            self.begin()
        else:
            self.connection.close()


@pytest.mark.parametrize("chunk_bytes", [65536, 1, 11])
@pytest.mark.parametrize("settled", [False, True])
async def test_what_is_sent_in_a_transaction_is_kept_when_it_commits(settled: bool, chunk_bytes: int) -> None:
    broker = TinyBroker(chunk_bytes)
    async with serving(broker) as address:
        program = Sending(address, "cac", settled=settled)
        await asyncio.wait_for(asyncio.to_thread(Container(program).run), TIMEOUT_S)
        await asyncio.wait_for(broker.closed.wait(), TIMEOUT_S)
    assert program.seen == ["txn-1", "committed", "txn-2", "aborted", "txn-3", "committed"]
    assert program.answered == (0 if settled else 9)
    assert broker.transactions == {}
    bodies = [decode_message(payload).body for payload in broker.log]
    assert bodies == [Value(f"txn-{number}/{index} m") for number in (1, 3) for index in range(3)]


async def test_messages_of_many_frames_are_in_their_transaction() -> None:
    broker = TinyBroker()
    async with serving(broker) as address:
        program = Sending(address, "c", settled=False, body="x" * 200_000)
        await asyncio.wait_for(asyncio.to_thread(Container(program).run), TIMEOUT_S)
    assert program.seen == ["txn-1", "committed"]
    assert [len(payload) > 200_000 for payload in broker.log] == [True] * 3


async def test_a_refused_commit_is_understood() -> None:
    broker = TinyBroker(refuse_commits=True)
    async with serving(broker) as address:
        program = Sending(address, "cc", settled=False)
        await asyncio.wait_for(asyncio.to_thread(Container(program).run), TIMEOUT_S)
    assert program.seen == ["txn-1", "commit failed", "txn-2", "commit failed"]
    assert broker.log == []


class Reading(Program):
    """Reads `size` messages in each transaction, accepts them in it, ends it as said. What is aborted comes again."""

    def __init__(self, address: str, ends: str, size: int, *, settles: bool) -> None:
        super().__init__(address, settle_before_discharge=settles)
        self.ends, self.size = list(ends), size
        self.transaction: Any = None
        self.waiting: list[Any] = []
        self.accepted = 0

    def on_start(self, event: Any) -> None:
        super().on_start(event)
        event.container.create_receiver(self.connection, "log")

    def on_transaction_declared(self, event: Any) -> None:
        self.transaction = event.transaction
        self.accept()

    def on_message(self, event: Any) -> None:
        self.waiting.append((event.message.body, event.delivery))
        self.accept()

    def accept(self) -> None:
        if self.transaction is None:
            return
        while self.waiting and self.accepted < self.size:
            body, delivery = self.waiting.pop(0)
            self.seen.append(body)
            self.transaction.accept(delivery)
            self.accepted += 1
        if self.accepted == self.size:
            transaction, self.transaction, self.accepted = self.transaction, None, 0
            if self.ends.pop(0) == "c":
                transaction.commit()
            else:
                transaction.abort()

    def ended(self) -> None:
        if self.ends:
            self.begin()
        else:
            self.connection.close()


@pytest.mark.parametrize("chunk_bytes", [65536, 1, 11])
async def test_what_is_accepted_in_an_aborted_transaction_is_given_back_and_comes_again(chunk_bytes: int) -> None:
    broker = TinyBroker(chunk_bytes, log=[encode_message(OurMessage(Value(name))) for name in "abcd"])
    async with serving(broker) as address:
        program = Reading(address, "caa", 2, settles=False)
        await asyncio.wait_for(asyncio.to_thread(Container(program).run), TIMEOUT_S)
    assert program.seen == ["a", "b", "committed", "c", "d", "aborted", "c", "d", "aborted"]
    accepted = [Transactional(b"txn-%d" % number, ACCEPTED, settled=False) for number in (1, 1, 2, 2, 3, 3)]
    assert broker.outcomes[:4] == accepted[:4]
    assert broker.outcomes[4:6] == [RELEASED, RELEASED]  # the client's word after the abort
    assert broker.outcomes[6:8] == accepted[4:]
    assert broker.committed == [b"txn-1"]


async def test_a_client_that_settles_at_once_says_all_in_one_state() -> None:
    broker = TinyBroker(log=[encode_message(OurMessage(Value(name))) for name in "abcd"])
    async with serving(broker) as address:
        program = Reading(address, "cc", 2, settles=True)
        await asyncio.wait_for(asyncio.to_thread(Container(program).run), TIMEOUT_S)
    assert program.seen == ["a", "b", "committed", "c", "d", "committed"]
    assert broker.outcomes == [Transactional(b"txn-%d" % number, ACCEPTED, settled=True) for number in (1, 1, 2, 2)]
