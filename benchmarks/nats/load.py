"""Publishers and consumers of nats-py behind the plan and the report that all drivers share.

The settings are the client's defaults, but for the number of acknowledgements that it may wait for.
"""

from __future__ import annotations

import asyncio
import contextlib
from asyncio import Future
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import nats
import uvloop
from nats.errors import Error
from nats.js.api import ConsumerConfig, DeliverPolicy

from benchmarks.driver.bounded import POLL_S, LoadPlan
from benchmarks.driver.library import AT_ONCE, LibraryLoad, LibraryReceiver, LibrarySender, LinkEnd
from benchmarks.driver.measure import Window
from benchmarks.driver.stamp import GREETING
from benchmarks.driver.wire import PeerError, Url

ANSWER_TIMEOUT_S = 15.0
SPARE = 1000  # acknowledgements beyond the window: the client's own bound must never be the one that holds
PENDING_BYTES = 1 << 30  # events that the client may keep for a consumer; one that has more drops them


class NatsSender(LibrarySender):
    def __init__(self, end: LinkEnd, something: Callable[[], None]) -> None:
        super().__init__(end, end.plan.fixed_window)
        self._connection: Any = None
        self._most = end.plan.fixed_window
        self._url, self._subject, self._something = end.url, end.url.address, something

    async def start(self) -> None:
        self._connection = await _connected(self._url)
        self._publisher = self._connection.jetstream(publish_async_max_pending=self._most + SPARE)
        await self._publisher.publish(self._subject, GREETING, timeout=ANSWER_TIMEOUT_S)

    async def work(self) -> None:
        number = min(self.room, AT_ONCE)
        if number <= 0:
            return
        partition, bodies, now_ns = self.next_bodies(number)
        self._sent_ns[partition].extend([now_ns] * number)
        publish, subject, settled = self._publisher.publish_async, self._subject, self._on_settled
        for body in bodies:
            (await publish(subject, body)).add_done_callback(settled)

    def _on_settled(self, answer: Future[Any]) -> None:
        if (error := answer.exception()) is None:
            self.confirmed(0)
        else:
            self.refused(0, type(error).__name__, str(error))
        self._something()

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()


class NatsReceiver(LibraryReceiver):
    """An ordered consumer, which JetStream pushes events to."""

    def __init__(self, end: LinkEnd, something: Callable[[], None]) -> None:
        super().__init__(end)
        self._end, self._something = end, something
        self._connection: Any = None
        self._bodies: list[bytes] = []

    async def start(self) -> None:
        self._connection = await _connected(self._end.url)
        policy = {"earliest": DeliverPolicy.ALL, "latest": DeliverPolicy.NEW}[self._end.options.start]
        await self._connection.jetstream().subscribe(
            self._end.url.address, cb=self._on_message, ordered_consumer=True,
            config=ConsumerConfig(deliver_policy=policy), pending_msgs_limit=-1, pending_bytes_limit=PENDING_BYTES,
        )  # fmt: skip

    async def _on_message(self, message: Any) -> None:
        self._bodies.append(message.data)
        self._something()

    async def work(self) -> None:
        if self._bodies:
            bodies, self._bodies = self._bodies, []
            self.take(bodies)

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()


class NatsLoad(LibraryLoad[NatsSender, NatsReceiver]):
    """A run on nats-py. Each turn runs the event loop until events were confirmed or received, or may be sent."""

    def __init__(self, plan: LoadPlan) -> None:
        super().__init__(plan)
        self._loop = uvloop.new_event_loop()
        self._something = asyncio.Event()

    def _attach(self, run: int) -> None:
        try:
            self._loop.run_until_complete(self._start(run))
        except (Error, OSError, TimeoutError) as error:
            raise PeerError(f"{self.plan.name}: {error or type(error).__name__}") from error

    async def _start(self, run: int) -> None:
        self.receivers += [NatsReceiver(end, self._something.set) for end in self._receiving_ends(run)]
        self.senders += [NatsSender(end, self._something.set) for end in self._sending_ends(run)]
        for endpoint in self._endpoints:
            await endpoint.start()

    def _drive(self, window: Window) -> None:
        """Take all turns in one run of the event loop, since starting and ending it for each turn is expensive."""
        self._loop.run_until_complete(self._take_turns(window))

    async def _take_turns(self, window: Window) -> None:
        for _ in self._turns(window):
            await self._take_turn(window)

    def _turn(self, window: Window) -> None:
        self._loop.run_until_complete(self._take_turn(window))

    async def _take_turn(self, window: Window) -> None:
        try:
            await self._move()
        except Error as error:
            raise PeerError(f"{self.plan.name}: {error}") from error
        for endpoint in self._endpoints:
            endpoint.counted(perf_counter_ns(), window)

    async def _move(self) -> None:
        for endpoint in self._endpoints:
            await endpoint.work()
        if any(sender.room > 0 for sender in self.senders):
            await asyncio.sleep(0)  # the client's own tasks write and read
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(POLL_S):
                await self._something.wait()
        self._something.clear()

    def _close(self) -> None:
        self._loop.run_until_complete(self._end())
        self._loop.close()

    async def _end(self) -> None:
        for endpoint in self._endpoints:
            await endpoint.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}  # the client leaves tasks of ordered consumers behind
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _connected(url: Url) -> Any:
    async def ignore(error: Exception) -> None:
        """Ignore an error, since acknowledgements show its effects."""

    return await nats.connect(
        f"nats://{url.host}:{url.port}", error_cb=ignore, connect_timeout=int(ANSWER_TIMEOUT_S),
        allow_reconnect=False, max_reconnect_attempts=1,
    )  # fmt: skip
