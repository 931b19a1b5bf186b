"""A load driver on our own Python client, behind the plan and the report that all drivers share: what a program gets
that uses Holdfast as Holdfast means it.

An idempotent producer and single `send`s with a callback each; the consumer hands out events in lists, each of which
is opened and checked. Everything else is as the client comes, but for the window, which is the plan's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter_ns

import uvloop

from benchmarks.driver.bounded import POLL_S, BoundedLoad, Plan
from benchmarks.driver.link import LinkOptions
from benchmarks.driver.measure import Outcomes, Tally, Window
from benchmarks.driver.stamp import GREETING, Sequences, Template
from benchmarks.driver.wire import PeerError, Url
from holdfast.client import ConsumerClient, HoldfastError, ProducerClient, ProducerOptions, Start

PARTITION = "0"


class ClientSender:
    """Keeps up to `window` events unconfirmed until it is told to stop."""

    def __init__(
        self, url: Url, *, sender_id: int, body_bytes: int, window: int, count: int | None,
        tally: Tally, outcomes: Outcomes, something: Callable[[], None],
    ) -> None:  # fmt: skip
        self._template = Template(body_bytes, sender_id)
        self._window = window
        self._count = count
        self._left = 0
        self._tally, self._outcomes = tally, outcomes
        self._something = something
        self._sent_ns: deque[int] = deque()  # an idempotent producer's events are confirmed in the order of sending
        self._acked = 0
        self.sent = 0
        self.lost = self.hops = 0  # of AMQP's links: this client sends again and follows the leader by itself
        options = ProducerOptions(window=window, max_buffered_events=window + 1, idempotent=True)
        self._producer = ProducerClient(f"{url.host}:{url.port}", url.address, options)

    async def start(self) -> None:
        await self._producer.start()
        await self._producer.send_and_confirm(GREETING, partition=PARTITION)

    def begin(self) -> None:
        self._left = self._count if self._count is not None else 1 << 62

    def stop(self) -> None:
        """No more new events; what is in flight is still waited for."""
        self._left = 0

    @property
    def done(self) -> bool:
        return self._left <= 0 and not self._sent_ns

    @property
    def unsettled(self) -> int:
        return len(self._sent_ns)

    async def work(self) -> None:
        """Sends what the window allows."""
        number = min(self._window - len(self._sent_ns), self._left)
        if number <= 0:
            return
        send, settled = self._producer.send, self._on_settled
        stamp, body, sent_ns, now_ns = self._template.stamp, self._template.body, self._sent_ns, perf_counter_ns()
        sent_ns.extend([now_ns] * number)
        first, self.sent = self.sent, self.sent + number
        self._left -= number
        for sequence in range(first, first + number):
            stamp(sequence, now_ns)
            await send(bytes(body), partition=PARTITION, done=settled)

    def _on_settled(self, error: HoldfastError | None) -> None:
        sent_ns = self._sent_ns.popleft()
        if error is None:
            self._acked += 1
            self._tally.latencies_ns.append(perf_counter_ns() - sent_ns)
        else:
            self._outcomes.add(type(error).__name__, str(error))
        self._something()

    def counted(self, now_ns: int, window: Window) -> None:
        if self._acked:
            self._tally.count(self._acked, now_ns, window)
            self._acked = 0

    async def close(self) -> None:
        await self._producer.abandon()


class ClientReceiver:
    """Reads in a task of its own, which hands over what it read."""

    def __init__(
        self, url: Url, options: LinkOptions, *,
        credit: int, count: int | None, tally: Tally, latency: bool, something: Callable[[], None],
    ) -> None:  # fmt: skip
        self._at_once = credit
        self._left = count if count is not None else 1 << 62
        self._tally = tally
        self._latencies = tally.latencies_ns if latency else None
        self._something = something
        self._sequences = Sequences()
        self._got = 0
        self._reading: asyncio.Task[None] | None = None
        self.hops = 0
        start = {"earliest": Start.earliest(), "latest": Start.latest()}.get(options.start)
        start = start or Start.after(options.start)
        self._consumer = ConsumerClient(f"{url.host}:{url.port}", url.address, start=start, partitions=[PARTITION])

    async def start(self) -> None:
        await self._consumer.start()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while True:
            events = await self._consumer.receive(self._at_once)
            bodies = [body for event in events if (body := event.body) != GREETING]
            sent = self._sequences.take(bodies)
            self._got += len(bodies)
            if self._latencies is not None:
                now_ns = perf_counter_ns()
                self._latencies.extend(now_ns - sent_ns for sent_ns in sent)
            self._something()

    @property
    def gaps(self) -> int:
        return self._sequences.gaps

    @property
    def repeats(self) -> int:
        return self._sequences.repeats

    @property
    def foreign(self) -> int:
        return self._sequences.foreign

    def stop(self) -> None:
        self._left = 0

    @property
    def done(self) -> bool:
        return self._left <= 0

    def counted(self, now_ns: int, window: Window) -> None:
        """Raises what ended the reading, if anything did."""
        if self._reading is not None and self._reading.done():
            self._reading.result()
        if self._got:
            self._tally.count(self._got, now_ns, window)
            self._left -= self._got
            self._got = 0

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        await self._consumer.close()


class ClientLoad(BoundedLoad[ClientSender, ClientReceiver]):
    """Each turn runs the event loop until something was confirmed or received."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._loop = uvloop.new_event_loop()
        self._something = asyncio.Event()

    @property
    def _endpoints(self) -> list[ClientSender | ClientReceiver]:
        return [*self.senders, *self.receivers]

    def _attach(self, run: int) -> None:
        try:
            self._loop.run_until_complete(self._start(run))
        except HoldfastError as error:
            raise PeerError(f"{self.plan.name}: {error}") from error

    async def _start(self, run: int) -> None:
        plan, something = self.plan, self._something.set
        for index in range(plan.senders):
            sender = ClientSender(
                plan.send_urls[index % len(plan.send_urls)], sender_id=run << 8 | index & 0xFF, body_bytes=plan.size,
                window=plan.window, count=plan.count, tally=self.sent, outcomes=self.outcomes, something=something,
            )  # fmt: skip
            self.senders.append(sender)
            await sender.start()
        for index in range(plan.receivers):
            receiver = ClientReceiver(
                plan.receive_urls[index % len(plan.receive_urls)], plan.receive_options, credit=plan.credit,
                count=None if plan.senders else plan.count, tally=self.received, latency=plan.receive_latency,
                something=something,
            )  # fmt: skip
            self.receivers.append(receiver)
            await receiver.start()

    def _turn(self, window: Window) -> None:
        self._loop.run_until_complete(self._move())
        try:
            for endpoint in self._endpoints:
                endpoint.counted(perf_counter_ns(), window)
        except HoldfastError as error:
            raise PeerError(f"{self.plan.name}: {error}") from error

    async def _move(self) -> None:
        for sender in self.senders:
            await sender.work()
        try:
            async with asyncio.timeout(POLL_S):
                await self._something.wait()
        except TimeoutError:
            return
        self._something.clear()

    def _close(self) -> None:
        for endpoint in self._endpoints:
            self._loop.run_until_complete(endpoint.close())
        self._loop.close()
