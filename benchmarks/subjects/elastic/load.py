"""Producers that send at a fixed rate and number their events, and a reader that says what of that is stored."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Sequence

from benchmarks.subjects.elastic.figures import SteadyLoad, StoredVerdict, judge
from holdfast.client import ConsumerClient, ConsumerOptions, HoldfastError, ProducerClient, ProducerOptions, Start

BODY_BYTES = 1024
NUMBER_BYTES = 8


class SteadyProducer:
    """Sends single events to all partitions in turn, and waits for no answer before the next one (open loop)."""

    def __init__(self, servers: Sequence[str], log: str, partitions: int, rate: int) -> None:
        self._servers, self._log = list(servers), log
        self._partitions, self._rate = [str(number) for number in range(partitions)], rate
        self._next = dict.fromkeys(self._partitions, 0)
        self.all: dict[str, list[int]] = defaultdict(list)
        """Numbers that were acknowledged, over all parts."""
        self.latencies_ns: list[int] = []
        """Times to the acknowledgement, in its order, over all parts."""

    async def run(self, over: asyncio.Event) -> SteadyLoad:
        """Send until told to stop, and wait for what is on its way."""
        part = SteadyLoad(
            answered_ns={one: [] for one in self._partitions}, acknowledged={one: [] for one in self._partitions}
        )
        async with ProducerClient(self._servers, self._log, ProducerOptions(latency_target_s=None)) as producer:
            for partition in self._partitions:  # connect before the clock starts
                await producer.send_and_confirm(self._body(partition), partition=partition)
            began_ns, count = time.monotonic_ns(), 0
            while not over.is_set():
                due_ns = began_ns + count * 1_000_000_000 // self._rate
                if (wait_s := (due_ns - time.monotonic_ns()) / 1e9) > 0:
                    await asyncio.sleep(wait_s)
                partition = self._partitions[count % len(self._partitions)]
                await self._send(producer, partition, due_ns, part)
                count += 1
            await producer.flush()
        for partition, numbers in part.acknowledged.items():
            self.all[partition] += numbers
        return part

    def _body(self, partition: str) -> bytes:
        number = self._next[partition]
        self._next[partition] = number + 1
        return number.to_bytes(NUMBER_BYTES, "big").ljust(BODY_BYTES, b"x")

    async def _send(self, producer: ProducerClient, partition: str, due_ns: int, part: SteadyLoad) -> None:
        number = self._next[partition]

        def done(error: HoldfastError | None) -> None:
            now_ns = time.monotonic_ns()
            if error is None:
                part.latencies_ns.append(now_ns - due_ns)
                self.latencies_ns.append(now_ns - due_ns)
                part.answered_ns[partition].append(now_ns)
                part.acknowledged[partition].append(number)
            else:
                part.failed.append(str(error))

        await producer.send(self._body(partition), partition=partition, done=done)


async def stored(servers: Sequence[str], log: str, acknowledged: dict[str, list[int]]) -> StoredVerdict:
    """Read the whole log, and judge what was acknowledged."""
    found: dict[str, list[int]] = defaultdict(list)
    options = ConsumerOptions(until_end=True)
    async with ConsumerClient(list(servers), log, start=Start.earliest(), options=options) as consumer:
        async for events in consumer.batches():
            for event in events:
                found[str(event.partition)].append(int.from_bytes(event.body[:NUMBER_BYTES], "big"))
    verdict = StoredVerdict()
    for partition, numbers in acknowledged.items():
        verdict += judge(numbers, found[partition])
    return verdict


async def fill(servers: Sequence[str], log: str, partitions: int, size: int) -> None:
    """Write about so many bytes to each partition."""
    bodies = [b"y" * 64 * 1024] * 16
    async with ProducerClient(list(servers), log) as producer:
        for _ in range(0, size, len(bodies) * len(bodies[0])):
            for partition in range(partitions):
                await producer.send_many(bodies, partition=str(partition))
        await producer.flush()


async def beside(producer: SteadyProducer, work: Awaitable[None]) -> SteadyLoad:
    """Publish while the work is done."""
    over = asyncio.Event()
    sending = asyncio.ensure_future(producer.run(over))
    try:
        await work
    finally:
        over.set()
    return await sending
