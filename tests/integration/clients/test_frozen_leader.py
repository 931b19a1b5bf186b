"""A leader whose links to the other nodes stand still: whoever is connected to it is served elsewhere, while they do.

Every wait in here ends while the links are still frozen: nothing of it is owed to their thaw.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from proton import Message

from holdfast.client import (
    ConsumerClient,
    HoldfastError,
    ProducerClient,
    ProducerOptions,
    Start,
    TransactionRolledBackError,
)
from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.clusters.cuts import PeerWays
from tests.integration.clusters.proxied import proxy_server
from tests.integration.workloads.beside import Beside
from tests.integration.workloads.plain import (
    EARLIEST,
    LATEST,
    WAIT_S,
    Bound,
    LaterAnswer,
    Threaded,
    connected,
    send,
    starting,
)

pytestmark = pytest.mark.cluster

PATIENCE_S = 300.0
"""Of our clients: so that no call ends before the node that it waits for has told it to go elsewhere."""

PAUSE_S = 0.05

GIVEN_UP_S = 60.0


class Stock(Threaded):
    """A stock client with a list of servers, at work until it is let go."""

    def on_start(self, event: Any) -> None:
        self._look(event.container)

    def _look(self, container: Any) -> None:
        if self._over.is_set():
            container.stop()  # from its own thread: nobody else can wake it
        else:
            container.schedule(PAUSE_S, LaterAnswer(lambda: self._look(container)))

    def let_go(self) -> None:
        self._over.set()

    def on_link_error(self, event: Any) -> None:
        raise ConnectionError(f"the link failed: {event.link.remote_condition}")


class Sending(Stock):
    """Event by event, what was not answered again."""

    def __init__(self, servers: Sequence[str], log: str, partition: str) -> None:
        super().__init__(auto_settle=True)
        self.accepted: list[str] = []
        self.released = 0
        self.servers: list[str] = []  # that it was connected to, one after the other
        self._urls, self._log, self._partition = [f"amqp://{server}" for server in servers], log, partition
        self._unanswered: Any = None
        self._attached = False
        self._number = 0
        self._sender: Any = None

    def on_start(self, event: Any) -> None:
        super().on_start(event)
        self._attach(event.container, event.container.connect(urls=self._urls))

    def _attach(self, container: Any, connection: Any) -> None:
        name = str(uuid.uuid4())  # the last link, if there was one, may not have ended for the node
        self._sender = container.create_sender(connection, self._log, name=name, options=[Bound(self._partition)])

    def on_link_error(self, event: Any) -> None:
        """Nobody can know what became of what is under way: the node has said so, and it is sent again."""
        event.link.close()
        self._unanswered, self._attached = None, False
        self._attach(event.container, event.connection)

    def on_connection_opened(self, event: Any) -> None:
        self.servers.append(event.connection.connected_address)

    def on_sendable(self, event: Any) -> None:
        self._send()

    def _send(self) -> None:
        if self._attached and self._unanswered is None and self._sender.credit > 0:
            self._unanswered = self._sender.send(Message(body=f"{self._partition}:{self._number}"))

    def on_accepted(self, event: Any) -> None:
        self.accepted.append(f"{self._partition}:{self._number}")
        self._number += 1
        self._again(event)

    def on_released(self, event: Any) -> None:
        self.released += 1
        self._again(event)

    def on_modified(self, event: Any) -> None:
        self._again(event)

    def on_rejected(self, event: Any) -> None:
        raise AssertionError(f"rejected: {event.delivery.remote.condition}")

    def _again(self, event: Any) -> None:
        self._unanswered = None
        event.container.schedule(PAUSE_S, LaterAnswer(self._send))

    def on_link_opened(self, event: Any) -> None:
        self._attached = True

    def on_disconnected(self, event: Any) -> None:
        """What credit there was is still shown, and worth nothing."""
        self._unanswered, self._attached = None, False


class Receiving(Stock):
    """At the end of a partition."""

    def __init__(self, servers: Sequence[str], log: str, partition: str) -> None:
        super().__init__(prefetch=100)
        self.bodies: set[str] = set()
        self._urls, self._log, self._partition = [f"amqp://{server}" for server in servers], log, partition

    def on_start(self, event: Any) -> None:
        super().on_start(event)
        connection = event.container.connect(urls=self._urls)
        options = [Bound(self._partition), starting(**LATEST)]
        event.container.create_receiver(connection, self._log, options=options)

    def on_message(self, event: Any) -> None:
        self.bodies.add(_text(event.message.body))


class Asyncio(Beside):
    """A client of ours at work, until it is let go."""

    def __init__(self, servers: Sequence[str], log: str, partition: str) -> None:
        super().__init__(type(self).__name__)
        self.servers, self.log, self.partition = list(servers), log, partition
        self.done: list[str] = []  # that was acknowledged, or received

    def _main(self) -> None:
        asyncio.run(self._until_let_go())

    async def _until_let_go(self) -> None:
        """Who is in the midst of a call ends it, unless it takes too long."""
        work, spent_s = asyncio.ensure_future(self._work()), 0.0
        while not work.done() and spent_s < GIVEN_UP_S:
            await asyncio.wait({work}, timeout=PAUSE_S)
            spent_s += PAUSE_S if self._over.is_set() else 0.0
        work.cancel()
        await work

    async def _work(self) -> None:
        raise NotImplementedError


class Producing(Asyncio):
    def __init__(self, servers: Sequence[str], log: str, partition: str, *, idempotent: bool) -> None:
        super().__init__(servers, log, partition)
        self._options = ProducerOptions(idempotent=idempotent, delivery_timeout_s=PATIENCE_S)
        self._kind = "idempotent" if idempotent else "plain"

    async def _work(self) -> None:
        producer = ProducerClient(self.servers, self.log, self._options)
        try:
            await producer.start()
            for number in itertools.count():
                if self._over.is_set():
                    return
                await producer.send_and_confirm(f"{self._kind}:{number}".encode(), partition=self.partition)
                self.done.append(f"{self._kind}:{number}")
                await asyncio.sleep(PAUSE_S)
        finally:
            await producer.abandon()


class Committing(Asyncio):
    """Transaction by transaction; `lost` were rolled back, by the node's word."""

    def __init__(self, servers: Sequence[str], log: str, partition: str) -> None:
        super().__init__(servers, log, partition)
        self.lost: list[str] = []

    async def _work(self) -> None:
        options = ProducerOptions(
            transactional_id="frozen", transaction_timeout_s=PATIENCE_S, delivery_timeout_s=PATIENCE_S
        )
        producer = ProducerClient(self.servers, self.log, options)
        try:
            await producer.start()
            for number in itertools.count():
                if self._over.is_set():
                    return
                body, transaction = f"transaction:{number}", producer.transaction()
                try:
                    await transaction.begin()
                    await transaction.send_batch([body.encode()], partition=self.partition)
                    await transaction.commit()
                except TransactionRolledBackError:
                    self.lost.append(body)
                except HoldfastError:
                    self.lost.append(body)
                    await transaction.abort()
                else:
                    self.done.append(body)
                await asyncio.sleep(PAUSE_S)
        finally:
            await producer.abandon()


class Consuming(Asyncio):
    async def _work(self) -> None:
        consumer = ConsumerClient(self.servers, self.log, partitions=[self.partition], start=Start.earliest())
        async with consumer:
            while not self._over.is_set():
                self.done += [event.offset for event in await consumer.receive(timeout_s=0.2)]


@dataclass
class Scene:
    cluster: Cluster
    ways: PeerWays
    log: str
    node: int  # leads partition `own`, and is a gateway to `other`
    own: str
    other: str

    @property
    def servers(self) -> list[str]:
        """The one that will be cut off first."""
        return [self.cluster.address(one) for one in self._order]

    @property
    def gateways(self) -> list[str]:
        return [self.cluster.address(one, "never") for one in self._order]

    @property
    def _order(self) -> list[int]:
        return [self.node, *(one for one in self.cluster.nodes if one != self.node)]


@pytest.fixture
def scene(make_cluster: Callable[..., Cluster], log_name: str, tmp_path: Path) -> Iterator[Scene]:
    with proxy_server(tmp_path) as server:
        cluster = make_cluster()
        ways = PeerWays(server, cluster)
        cluster.start()
        cluster.create(log_name, 3)
        leaders = cluster.leaders(log_name)
        other = next(partition for partition, leader in leaders.items() if leader != leaders["0"])
        yield Scene(cluster, ways, log_name, leaders["0"], "0", other)


def goes_on(work: Beside, done: Sequence[str] | set[str], what: str, beyond: int = 0) -> None:
    def more() -> bool:
        if work.failure is not None:
            raise work.failure
        return len(done) > beyond

    wait_until(more, what)


def test_whoever_is_connected_to_a_leader_that_is_frozen_off_goes_on_elsewhere_while_it_is(scene: Scene) -> None:
    log, own, other = scene.log, scene.own, scene.other
    plain = Producing(scene.servers, log, own, idempotent=False)
    idempotent = Producing(scene.servers, log, own, idempotent=True)
    committing = Committing(scene.servers, log, own)
    consuming = Consuming(scene.servers, log, own)
    sending = Sending(scene.servers, log, own)
    through_gateway = Sending(scene.gateways, log, other)
    receiving = Receiving(scene.servers, log, own)
    at_work: list[tuple[Beside, Any]] = [
        (plain, plain.done), (idempotent, idempotent.done), (committing, committing.done), (consuming, consuming.done),
        (sending, sending.accepted), (through_gateway, through_gateway.accepted), (receiving, receiving.bodies),
    ]  # fmt: skip
    for work, done in at_work:
        work.begin()
        goes_on(work, done, f"{type(work).__name__} to begin")
    with scene.ways.cut(scene.node, hears=False, is_heard=False, freezes=True):
        frozen_at = [len(done) for _, done in at_work]
        for (work, done), count in zip(at_work, frozen_at, strict=True):
            # What was on its way when the links froze may still be told; the one behind it comes from elsewhere.
            goes_on(work, done, f"{type(work).__name__} to go on while the links are frozen", count + 1)
        assert len(set(sending.servers)) > 1, "the stock sender is at another server"
        for work, _ in at_work:
            work.let_go()
        for work, _ in at_work:
            work.join()
        assert sending.released == through_gateway.released == 0, "what is not known is not said"
    scene.cluster.wait_led(log)
    bodies = _all(scene, own)
    acknowledged = [*plain.done, *idempotent.done, *committing.done, *sending.accepted]
    assert set(acknowledged) <= set(bodies), "nothing that was acknowledged is lost"
    once = [*idempotent.done, *committing.done]
    assert [body for body in once if bodies.count(body) != 1] == []
    assert not set(committing.lost) & set(bodies), "what was said to be rolled back is"
    assert len(consuming.done) == len(set(consuming.done)), "nobody is given an event twice"


def _text(body: Any) -> str:
    return body if isinstance(body, str) else bytes(body).decode()


def _all(scene: Scene, partition: str) -> list[str]:
    """What committed readers get, up to an event that is sent for this."""
    send(scene.gateways[1], scene.log, ["the end"], partition)
    with connected(scene.gateways[1]) as connection:
        receiver = connection.create_receiver(scene.log, credit=100, options=[Bound(partition), starting(**EARLIEST)])
        found: list[str] = []
        while not found or found[-1] != "the end":
            event = receiver.receive(timeout=WAIT_S)  # to be held: its body is a view of it
            found.append(_text(event.body))
            receiver.accept()
    return found
