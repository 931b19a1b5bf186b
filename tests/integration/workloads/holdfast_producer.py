"""Our own producer, run beside synchronous test code, with the same story kept as `producers.OrderedProducer` does."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from holdfast.client.errors import HoldfastError, UndeliveredError
from holdfast.client.options import ProducerOptions
from holdfast.client.produce.delivery import Delivery, Done
from holdfast.client.producer import ProducerClient
from tests.integration.workloads.producing import PER_SECOND, Producing

PACE_S = 0.01
KEYS = 4
BODY = b"x" * 200


class HoldfastProducer(Producing):
    """`holdfast.client.ProducerClient` on a loop of its own thread. It names the partition of one half of
    its events, and gives the other half keys that belong there."""

    def __init__(
        self,
        servers: list[str],
        log: str,
        partition: str,
        name: str,
        *,
        per_second: int = PER_SECOND,
        idempotent: bool = False,
        patience_s: float = ProducerOptions.delivery_timeout_s,
    ) -> None:
        super().__init__(name)
        self.idempotent = idempotent
        self._patience_s = patience_s
        self.resent = 0  # an upper bound of the copies
        self._servers, self._log, self._partition = servers, log, partition
        self._keys: list[str] = []  # of the partition
        self._per_tick = max(1, int(per_second * PACE_S))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._paused, self._quiet = threading.Event(), threading.Event()

    @contextlib.contextmanager
    def paused(self, within_s: float) -> Iterator[bool]:
        """Nothing of it is unanswered until `go_on`, or the end of the block. False: not within this time."""
        self._quiet.clear()
        self._paused.set()
        try:
            yield self._quiet.wait(within_s)
        finally:
            self.go_on()

    def go_on(self) -> None:
        self._paused.clear()

    def let_go(self) -> None:
        super().let_go()
        self._finishing.set()
        if self._loop is not None and self._task is not None:
            with contextlib.suppress(RuntimeError):  # it has just ended by itself
                self._loop.call_soon_threadsafe(self._task.cancel)

    def _main(self) -> None:
        try:
            asyncio.run(self._produce())
        except (asyncio.CancelledError, HoldfastError):
            if not self._over.is_set():
                raise

    async def _produce(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        async with ProducerClient(self._servers, self._log, self._options()) as producer:
            belong = (key for key in map(str, itertools.count()) if producer.partition_of(key) == self._partition)
            self._keys = list(itertools.islice(belong, KEYS))
            while not self._finishing.is_set():
                if self._paused.is_set():
                    await producer.flush()
                    self._quiet.set()
                else:
                    await self._produce_some(producer, self._next_numbers(self._per_tick))
                await asyncio.sleep(PACE_S)
            await producer.flush()
            self.resent = producer.stats.resent + producer.stats.released

    def _options(self) -> ProducerOptions:
        return ProducerOptions(
            max_buffered_events=5000, idempotent=self.idempotent, delivery_timeout_s=self._patience_s
        )

    def _next_numbers(self, count: int) -> range:
        first, self.sent.numbers = self.sent.numbers, self.sent.numbers + count
        return range(first, first + count)

    async def _produce_some(self, producer: ProducerClient, numbers: range) -> None:
        for number in numbers:
            body = self.sent.body(number).encode()
            await producer.send(body, **self._place(number), done=self._done(number))

    def _place(self, number: int) -> dict[str, Any]:
        """The place of the event, or batch, that begins with this number."""
        if number // self._per_tick % 2:
            return {"partition": self._partition}
        return {"key": self._keys[number % KEYS]}

    def _done(self, number: int) -> Done:
        sent_s = time.monotonic()

        def done(error: HoldfastError | None) -> None:
            if error is not None:
                if not self._over.is_set():  # else it was given up, as its owner wanted
                    self.failure = self.failure or error
                return
            self.acks.append((time.monotonic(), sent_s))
            self.sent.acknowledged.add(number)

        return done


class BatchingProducer(HoldfastProducer):
    """The same, a batch at a time. An idempotent one gives up soon, and sends what it gave up again: the same batch."""

    IMPATIENT_S = 1.5

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.given_up = 0

    def _options(self) -> ProducerOptions:
        patience_s = self.IMPATIENT_S if self.idempotent else ProducerOptions.delivery_timeout_s
        return replace(super()._options(), delivery_timeout_s=patience_s)

    async def _produce_some(self, producer: ProducerClient, numbers: range) -> None:
        batch = await producer.create_batch(**self._place(numbers[0]))
        for number in numbers:
            batch.add(self.sent.body(number))
        sent_s = time.monotonic()
        while True:
            try:
                await producer.send_batch(batch)
                break
            except UndeliveredError:
                if not self.idempotent:
                    raise
                self.given_up += 1
        self.acks.append((time.monotonic(), sent_s))
        self.sent.acknowledged.update(numbers)


class ChunkProducer(HoldfastProducer):
    """The same, a single event and a chunk of all others in turn; nobody waits for the one before."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._confirming: set[asyncio.Task[None]] = set()

    async def _produce(self) -> None:
        await super()._produce()
        await asyncio.gather(*self._confirming)  # what they wait for is known by now

    async def _produce_some(self, producer: ProducerClient, numbers: range) -> None:
        await super()._produce_some(producer, numbers[:1])
        chunk = await producer.send_many(
            [self.sent.body(number).encode() for number in numbers[1:]], **self._place(numbers[0])
        )
        task = asyncio.ensure_future(self._confirmed(chunk, numbers[1:], time.monotonic()))
        self._confirming.add(task)
        task.add_done_callback(self._confirming.discard)

    async def _confirmed(self, chunk: Delivery, numbers: range, sent_s: float) -> None:
        try:
            result = await chunk
        except HoldfastError as error:
            self._done(numbers[0])(error)
            return
        assert result.count == len(numbers)
        self.acks.append((time.monotonic(), sent_s))
        self.sent.acknowledged.update(numbers)


def publish(servers: list[str], log: str, count: int, partitions: int = 2) -> None:
    """Numbered bodies, to the partitions by turns; returns when all are confirmed."""

    async def run() -> None:
        async with ProducerClient(servers, log) as producer:
            for number in range(count):
                await producer.send(b"%d %s" % (number, BODY), partition=str(number % partitions))
            await producer.flush()

    asyncio.run(run())
