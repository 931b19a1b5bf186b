"""Consumers that go on through failures, each by its own means; what they handed out is compared with the log."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any

from proton.reactor import Container

from holdfast.client.consumer import ConsumerClient
from holdfast.client.start_position import Start
from tests.integration.workloads.beside import Beside
from tests.integration.workloads.plain import (
    EARLIEST,
    WAIT_S,
    Bound,
    LaterAnswer,
    Received,
    Threaded,
    starting,
)

RETRY_S = 0.05


class ResumingConsumer(Threaded):
    """Stock proton: reads a partition from the start; after a lost connection, from behind the last offset it got."""

    def __init__(self, servers: list[str], log: str, partition: str) -> None:
        super().__init__(prefetch=200)
        self.events: list[Received] = []
        self.reattached = -1
        self._servers, self._log, self._partition = deque(servers), log, partition
        self._connection: Any = None
        self._retrying = False
        self._stopped = False

    def on_start(self, event: Any) -> None:
        self._attach()

    def _attach(self) -> None:
        self._servers.rotate(-1)
        self._retrying = False
        self.reattached += 1
        container: Container = self.container
        start = {"offset": self.events[-1].offset} if self.events else EARLIEST
        self._connection = container.connect(self._servers[0], reconnect=False, heartbeat=2)
        container.create_receiver(self._connection, self._log, options=[Bound(self._partition), starting(**start)])

    def on_message(self, event: Any) -> None:
        if event.connection == self._connection:
            self.events.append(Received.of(event.message))

    def _again(self, event: Any) -> None:
        if self._retrying or self._stopped or event.connection != self._connection:
            return
        self._retrying = True
        self._connection.close()
        self._connection = None
        self.container.schedule(RETRY_S, LaterAnswer(self._attach))

    on_transport_error = _again
    on_connection_error = _again
    on_link_error = _again
    on_disconnected = _again

    def wait_for(self, count: int, within_s: float = 2 * WAIT_S) -> list[str]:
        """The bodies of the first `count` events."""
        wait_length(self.events, count, self, within_s)
        self.let_go()
        self.join()
        return [event.body for event in self.events]

    def let_go(self) -> None:
        self._stopped = True
        super().let_go()


class HoldfastConsumer(Beside):
    """`holdfast.client.ConsumerClient` on a loop of its own thread; reads one partition from the start."""

    def __init__(self, servers: list[str], log: str, partition: str) -> None:
        super().__init__("consumer")
        self.bodies: list[bytes] = []
        self._servers, self._log, self._partition = servers, log, partition

    def wait_for(self, count: int, within_s: float = 2 * WAIT_S) -> list[str]:
        wait_length(self.bodies, count, self, within_s)
        self.let_go()
        self.join()
        return [body.decode() for body in self.bodies]

    def _main(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        consumer = ConsumerClient(self._servers, self._log, start=Start.earliest(), partitions=[self._partition])
        async with consumer:
            while not self._over.is_set():
                self.bodies += [event.body for event in await consumer.receive(timeout_s=0.1)]


def wait_length(found: list[Any], count: int, owner: Any, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while len(found) < count:
        assert owner.failure is None, f"the consumer failed: {owner.failure!r}"
        assert time.monotonic() < deadline, f"{len(found)} of {count} events came within {within_s:g} s"
        time.sleep(0.01)
