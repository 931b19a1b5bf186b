"""A server around the engine with transactions, as small as can be, for stock clients to talk to over a socket: one log
in memory, which gets what is sent at once or on commit; readers get it from the beginning, and what they give back
again."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from holdfast.amqp import (
    ACCEPTED,
    ConnectionClosed,
    Coordinator,
    Credit,
    Declared,
    Engine,
    Error,
    LinkDetached,
    LinkRequested,
    ReceiverLink,
    Rejected,
    SenderLink,
    Settlements,
    Transactional,
    Transfers,
    errors,
)
from holdfast.amqp.transactions import LOCAL_TRANSACTIONS, Declare, decode_control

CREDIT = 20


@dataclass
class TinyTransaction:
    posts: list[bytes] = field(default_factory=list)
    retired: dict[int, SenderLink] = field(default_factory=dict)


@dataclass
class TinyBroker:
    """What is left when the clients are gone. chunk_bytes: how input is cut."""

    chunk_bytes: int = 65536
    log: list[bytes] = field(default_factory=list)
    transactions: dict[bytes, TinyTransaction] = field(default_factory=dict)
    declared: int = 0
    committed: list[bytes] = field(default_factory=list)
    rolled_back: list[bytes] = field(default_factory=list)
    outcomes: list[Any] = field(default_factory=list)
    """Each that a reader said, in order."""
    refuse_commits: bool = False
    closed: asyncio.Event = field(default_factory=asyncio.Event)


class TinyConnection(asyncio.Protocol):
    """One socket."""

    def __init__(self, broker: TinyBroker) -> None:
        self.broker = broker
        self.engine = Engine("server", container_id="tiny")
        self.readers: dict[SenderLink, list[bytes]] = {}
        self.sent: dict[tuple[SenderLink, int], bytes] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        size = self.broker.chunk_bytes
        for start in range(0, len(data), size):
            self.engine.receive(data[start : start + size])
            self._work()

    def _work(self) -> None:
        for event in self.engine.events():
            match event:
                case LinkRequested():
                    self._attach(event.link)
                case Transfers() if event.link.wants_coordinator:
                    for delivery, payload in zip(event.deliveries, event.payloads, strict=True):
                        self._control(event.link, delivery, payload)
                case Transfers():
                    self._post(event)
                case Settlements():
                    self._retire(event)
                case Credit():
                    self._feed(event.link)
                case LinkDetached(link=SenderLink() as link):
                    self.readers.pop(link, None)
                case ConnectionClosed():
                    self.broker.closed.set()
        for link in list(self.readers):
            self._feed(link)
        while data := self.engine.data_to_send():
            self.transport.write(data)
        if self.engine.output_done:
            self.transport.close()

    def _attach(self, link: Any) -> None:
        if link.wants_coordinator:
            link.accept(target=Coordinator((LOCAL_TRANSACTIONS,)))
        else:
            link.accept()
        if isinstance(link, ReceiverLink):
            link.grant(CREDIT)
        else:
            self.readers[link] = list(self.broker.log)

    def _control(self, link: ReceiverLink, delivery: Any, payload: bytes) -> None:
        said = decode_control(payload)
        link.grant(1)
        if isinstance(said, Declare):
            self.broker.declared += 1
            txn_id = b"txn-%d" % self.broker.declared
            self.broker.transactions[txn_id] = TinyTransaction()
            link.settle([delivery], Declared(txn_id))
            return
        txn = self.broker.transactions.pop(said.txn_id, None)
        if txn is None:
            link.settle([delivery], Rejected(Error(errors.TRANSACTION_UNKNOWN_ID, "no such transaction")))
        elif said.fail or self.broker.refuse_commits:
            self.broker.rolled_back.append(said.txn_id)
            rollback = Rejected(Error(errors.TRANSACTION_ROLLBACK, "it was rolled back"))
            link.settle([delivery], ACCEPTED if said.fail else rollback)
        else:
            self.broker.committed.append(said.txn_id)
            self.broker.log += txn.posts
            link.settle([delivery], ACCEPTED)
            for number, reader in txn.retired.items():
                reader.settle([number], Transactional(said.txn_id, ACCEPTED))

    def _post(self, event: Transfers) -> None:
        deliveries = event.deliveries or [None] * len(event.payloads)
        named = event.transactions or (None,) * len(event.payloads)
        for delivery, payload, txn_id in zip(deliveries, event.payloads, named, strict=True):
            if txn_id is None:
                self.broker.log.append(payload)
            else:
                self.broker.transactions[txn_id].posts.append(payload)
            if delivery is not None:
                event.link.settle([delivery], ACCEPTED if txn_id is None else Transactional(txn_id, ACCEPTED))
        event.link.grant(len(event.payloads))

    def _retire(self, event: Settlements) -> None:
        for number, state in event.outcomes:
            self.broker.outcomes.append(state)
            if isinstance(state, Transactional):
                self.broker.transactions[state.txn_id].retired[number] = event.link
            elif state != ACCEPTED:  # given back
                with suppress(KeyError):
                    self.readers[event.link].append(self.sent[event.link, number])

    def _feed(self, link: SenderLink) -> None:
        waiting = self.readers.get(link)
        if waiting and link.is_open and link.credit:
            batch, self.readers[link] = waiting[: link.credit], waiting[link.credit :]
            for number, payload in zip(link.send_many(batch), batch, strict=True):
                self.sent[link, number] = payload
