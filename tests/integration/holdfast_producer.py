"""Our own producer, run beside synchronous test code, with the same story kept as `producers.OrderedProducer` does."""

from __future__ import annotations

import asyncio
import threading
import time

from holdfast.client.errors import HoldfastError
from holdfast.client.options import ProducerOptions
from holdfast.client.producer import ProducerClient
from tests.integration.history import Sent
from tests.integration.plain import WAIT_S

PACE_S = 0.01


class _Abandoned(Exception):
    """Leaves the producer without its last flush."""


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
        self._thread.join(WAIT_S)

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
        except _Abandoned:
            return
        except BaseException as error:  # noqa: BLE001 - raised by finish
            self.failure = error

    async def _produce(self) -> None:
        options = ProducerOptions(max_buffered_events=5000, idempotent=self.idempotent)
        async with ProducerClient(self._servers, self._log, options) as producer:
            while not self._finishing.is_set():
                for _ in range(self._per_tick):
                    number, self.sent.numbers = self.sent.numbers, self.sent.numbers + 1
                    body = self.sent.body(number).encode()
                    await producer.send(body, partition=self._partition, done=self._done(number))
                await asyncio.sleep(PACE_S)
            if self._abandoned:
                raise _Abandoned
            await producer.flush()
            self.resent = producer.stats.resent + producer.stats.released

    def _done(self, number: int) -> object:
        sent_s = time.monotonic()

        def done(error: HoldfastError | None) -> None:
            if error is not None:
                self.failure = self.failure or error
                return
            self.acks.append((time.monotonic(), sent_s))
            self.sent.acknowledged.add(number)

        return done
