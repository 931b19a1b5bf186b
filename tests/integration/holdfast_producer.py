"""Our own producer, run beside synchronous test code, with the same story kept as `producers.OrderedProducer` does."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from typing import Any

from holdfast.client.errors import HoldfastError, UndeliveredError
from holdfast.client.options import ProducerOptions
from holdfast.client.producer import ProducerClient
from tests.integration.history import Sent
from tests.integration.plain import WAIT_S

PACE_S = 0.01


class HoldfastProducer:
    """`holdfast.client.ProducerClient` on a loop of its own thread."""

    def __init__(
        self,
        servers: list[str],
        log: str,
        partition: str,
        name: str,
        *,
        per_second: int = 2000,
        idempotent: bool = False,
    ) -> None:
        self.idempotent = idempotent
        self.sent = Sent(name)
        self.acks: list[tuple[float, float]] = []
        self.resent = 0  # an upper bound of the copies
        self.failure: BaseException | None = None
        self._servers, self._log, self._partition = servers, log, partition
        self._per_tick = max(1, int(per_second * PACE_S))
        self._finishing = threading.Event()
        self._abandoned = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)

    @property
    def acknowledged(self) -> int:
        return len(self.sent.acknowledged)

    def begin(self) -> HoldfastProducer:
        self._thread.start()
        return self

    def finish(self, within_s: float = 2 * WAIT_S) -> Sent:
        self._finishing.set()
        self._thread.join(within_s)
        if self.failure is not None:
            raise self.failure
        assert not self._thread.is_alive(), f"{self.sent.producer} did not end within {within_s:g} s"
        return self.sent

    def abandon(self) -> None:
        """Never send again; what is unanswered stays so."""
        self._abandoned = True
        self._finishing.set()
        if self._loop is not None and self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), f"{self.sent.producer} goes on"

    def wait_for(self, more: int, within_s: float = WAIT_S) -> None:
        goal, deadline = self.acknowledged + more, time.monotonic() + within_s
        while self.acknowledged < goal:
            assert self.failure is None, f"the producer failed: {self.failure!r}"
            assert time.monotonic() < deadline, f"{self.sent.producer}: no further acknowledgements in {within_s:g} s"
            time.sleep(0.005)

    def resumed_after(self, moment_s: float) -> float | None:
        """From `moment_s` to the first acknowledgement of an event that was produced after it."""
        for answered_s, sent_s in list(self.acks):
            if sent_s > moment_s:
                return answered_s - moment_s
        return None

    def _main(self) -> None:
        try:
            asyncio.run(self._produce())
        except BaseException as error:  # noqa: BLE001 - raised by finish
            if not self._abandoned:
                self.failure = error

    async def _produce(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        async with ProducerClient(self._servers, self._log, self._options()) as producer:
            while not self._finishing.is_set():
                await self._produce_some(producer, self._next_numbers(self._per_tick))
                await asyncio.sleep(PACE_S)
            await producer.flush()
            self.resent = producer.stats.resent + producer.stats.released

    def _options(self) -> ProducerOptions:
        return ProducerOptions(max_buffered_events=5000, idempotent=self.idempotent)

    def _next_numbers(self, count: int) -> range:
        first, self.sent.numbers = self.sent.numbers, self.sent.numbers + count
        return range(first, first + count)

    async def _produce_some(self, producer: ProducerClient, numbers: range) -> None:
        for number in numbers:
            body = self.sent.body(number).encode()
            await producer.send(body, partition=self._partition, done=self._done(number))

    def _done(self, number: int) -> object:
        sent_s = time.monotonic()

        def done(error: HoldfastError | None) -> None:
            if error is not None:
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
        batch = await producer.create_batch(partition=self._partition)
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
