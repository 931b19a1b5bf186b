"""Producers of every kind for one log, each with what it knows of its events: the producers' half of a simple model.

A producer is asked for rounds of work, so that a test decides what happens between them, or beside them.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from dataclasses import dataclass
from typing import Any

from proton import Message, ProtonException, symbol
from proton.utils import BlockingConnection

from holdfast.client import (
    Delivery,
    DeliveryResult,
    Event,
    NetworkOptions,
    PartitionPublishingOptions,
    ProducerClient,
    ProducerOptions,
    TransactionOutcomeUnknownError,
    TransactionRolledBackError,
)
from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.workloads.plain import GROUP_KEY, WAIT_S, Bound
from tests.integration.workloads.producers import OrderedProducer

KEYS = ("ann", "bob", "cy")


@dataclass
class MixedScene:
    """A log on a cluster, and the chance that everything about it is drawn by."""

    cluster: Cluster
    log: str
    chance: random.Random
    partitions: list[str]

    def servers(self, listener: str = "default") -> list[str]:
        """Addresses of all nodes, in an order that is drawn."""
        addresses = [self.cluster.address(node, listener) for node in self.cluster.nodes]
        return self.chance.sample(addresses, len(addresses))

    def network(self) -> NetworkOptions:
        """Draw whether a client goes to the leaders, or to one node that is the gateway to them."""
        return NetworkOptions(follow_redirects=self.chance.random() < 0.5)


@dataclass
class SentEvent:
    """An event as its producer knows it. `counts`: whether readers must be given it; None if nobody can tell yet."""

    event: Event
    partition: str | None = None
    offset: int | None = None
    counts: bool | None = None

    @property
    def name(self) -> str:
        return name_in(self.event.body)


def name_in(body: bytes) -> str:
    """The name of an event: its producer and number."""
    return body.split(b" ", 1)[0].decode()


class MixedPublisher:
    """A producer, and what it knows of its events. `once`: no event may be stored twice."""

    once = False

    def __init__(self, scene: MixedScene, name: str) -> None:
        self.name, self.scene, self.chance = name, scene, scene.chance
        self.sent: list[SentEvent] = []
        self.doubted: list[list[SentEvent]] = []  # the events of each transaction of which nobody can tell yet

    def made(self, count: int, *, key: str | None = None, partition: str | None = None) -> list[SentEvent]:
        """New events, all of them with properties or none."""
        rich = self.chance.random() < 0.5
        first = len(self.sent)
        for number in range(first, first + count):
            body = f"{self.name}:{number} " + "text " * self.chance.choice((0, 1, 40))
            self.sent.append(SentEvent(Event(body, key=key, properties={"n": number} if rich else None), partition))
        return self.sent[first:]

    async def open(self) -> None:
        pass

    async def round(self) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError


@dataclass
class ClientCall:
    """Events given to our client by one call, and its answer: of the first of them, or of all that went together."""

    sent: list[SentEvent]
    answer: Delivery | DeliveryResult

    async def confirmed(self) -> None:
        together = isinstance(self.answer, DeliveryResult)
        result = self.answer if isinstance(self.answer, DeliveryResult) else await self.answer
        assert result.count == len(self.sent)
        for place, sent in enumerate(self.sent):
            sent.counts, sent.partition = True, result.partition
            if result.offset is not None and (together or place == 0):
                sent.offset = int(result.offset, 16) + place


class OwnClient(MixedPublisher):
    """Our own client; `more` are options of its producer."""

    def __init__(self, scene: MixedScene, name: str, **more: Any) -> None:
        super().__init__(scene, name)
        compression = self.chance.choice(("none", "gzip", "zstd"))
        self.options = ProducerOptions(compression=compression, network=scene.network(), **more)
        self.once = self.options.idempotent
        self.producer = ProducerClient(scene.servers(), scene.log, self.options)

    async def open(self) -> None:
        await self.producer.start()

    async def close(self) -> None:
        await self.producer.close()

    async def round(self) -> None:
        """Make some calls, and then wait for their answers."""
        calls = [call for _ in range(self.chance.randint(1, 3)) for call in await self.call(self.producer)]
        for call in calls:
            await call.confirmed()

    async def call(self, to: Any) -> list[ClientCall]:
        """Give events to the producer, or to a transaction."""
        place = self.chance.choice(
            [{"partition": self.chance.choice(self.scene.partitions)}, {"key": self.chance.choice(KEYS)}, {}]
        )
        sent = self.made(self.chance.choice((1, 4, 60)), **place)
        events = [one.event for one in sent]
        match self.chance.choice(("each", "many", "list", "batch")):
            case "each":
                return [ClientCall([one], await to.send(one.event, **place)) for one in sent]
            case "many":
                return [ClientCall(sent, await to.send_many(events, **place))]
            case "list":
                return [ClientCall(sent, await to.send_batch(events, **place))]
        batch = await self.producer.create_batch(**place)
        for event in events:
            batch.add(Event(event.body, properties=event.properties))
        return [ClientCall(sent, await to.send_batch(batch))]


class NamedClient(OwnClient):
    """Our own client as producers that the program names: a batch at a time, to a partition."""

    def __init__(self, scene: MixedScene, name: str) -> None:
        owners = {partition: PartitionPublishingOptions(producer_group_id=7) for partition in scene.partitions}
        super().__init__(scene, name, partition_options=owners)

    async def call(self, to: Any) -> list[ClientCall]:
        partition = self.chance.choice(self.scene.partitions)
        sent = self.made(20, partition=partition)
        return [ClientCall(sent, await to.send_batch([one.event for one in sent], partition=partition))]


class TransactingClient(OwnClient):
    """Our own client with transactions, of which some are rolled back."""

    async def round(self) -> None:
        first = len(self.sent)
        counts: bool | None = False
        try:
            async with self.producer.transaction() as transaction:
                calls = [call for _ in range(self.chance.randint(1, 3)) for call in await self.call(transaction)]
                if self.chance.random() < 0.5:
                    for call in calls:
                        await call.confirmed()
                if self.chance.random() < 0.6:
                    await transaction.commit()
                    counts = True
                else:
                    await transaction.abort()
        except TransactionRolledBackError:
            pass
        except TransactionOutcomeUnknownError:
            counts = None
            self.doubted.append(self.sent[first:])
        for sent in self.sent[first:]:
            sent.counts = counts


class StockSender(MixedPublisher):
    """A blocking sender of stock proton: it follows no redirect, and sends again what nobody answered."""

    def __init__(self, scene: MixedScene, name: str) -> None:
        super().__init__(scene, name)
        self._servers = itertools.cycle(scene.servers(self.chance.choice(("default", "never"))))
        self._partition = self.chance.choice([None, *scene.partitions])
        self._connection: Any = None
        self._sender: Any = None

    async def round(self) -> None:
        key = None if self._partition else self.chance.choice([None, *KEYS])
        for sent in self.made(3, key=key, partition=self._partition):
            message = Message(body=sent.event.body, properties=sent.event.properties)
            if key is not None:
                message.annotations = {symbol(GROUP_KEY): key}
            await asyncio.to_thread(wait_until, lambda message=message: self._accepted(message), "an answer")
            sent.counts = True

    def _accepted(self, message: Message) -> bool:
        try:
            if self._sender is None:
                self._connection = BlockingConnection(next(self._servers), timeout=WAIT_S)
                self._sender = self._connection.create_sender(self.scene.log, options=[Bound(self._partition)])
            self._sender.send(message)
        except (ProtonException, OSError):
            self._sender = None
        return self._sender is not None

    async def close(self) -> None:
        await asyncio.to_thread(self._connection.close)


class StockSenderAhead(MixedPublisher):
    """Stock proton with many messages under way, which follows redirects, or is served by gateways."""

    async def open(self) -> None:
        self._partition = self.chance.choice(self.scene.partitions)
        servers = self.scene.servers(self.chance.choice(("default", "never")))
        self._producer = OrderedProducer(servers, self.scene.log, self._partition, self.name, per_second=200).begin()

    async def round(self) -> None:
        await asyncio.to_thread(self._producer.wait_for, 10)

    async def close(self) -> None:
        told = await asyncio.to_thread(self._producer.finish)
        for number in range(told.numbers):
            self.sent.append(SentEvent(Event(told.body(number)), self._partition, counts=True))


def producers_of_every_kind(scene: MixedScene) -> list[MixedPublisher]:
    return [
        OwnClient(scene, "numbered"),
        OwnClient(scene, "plain", idempotent=False),
        NamedClient(scene, "named"),
        TransactingClient(scene, "transactor", transactional_id=f"{scene.log}-writer"),
        TransactingClient(scene, "nameless"),
        StockSender(scene, "stock"),
        StockSenderAhead(scene, "ahead"),
    ]
