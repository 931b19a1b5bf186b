"""A steady idempotent load on a log, a reader beside it, and the judgement of both; run inside a client's namespace.

    load.py SERVERS LOG PARTITIONS EVENTS_PER_SECOND [USER PASSWORD_FILE]

Produces until standard input ends, then reads everything back. Prints two JSON lines: one when the first events are
acknowledged, and at the end what was sent and acknowledged, the longest pause between acknowledgements, and what is
lost, doubled or out of order: in the log as it lies then, or for the reader, who read along all the time.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from itertools import pairwise

from holdfast.client import (
    ConsumerClient,
    ConsumerOptions,
    HoldfastError,
    NetworkOptions,
    ProducerClient,
    ProducerOptions,
    ReceivedEvent,
    Security,
    Start,
)

PACE_S = 0.01
BUFFER = 50_000
PAUSE_S = 0.2
READ_WITHIN_S = 120.0
"""So long the reader may take for the rest, once nothing more is sent."""


class AnsibleLoad:
    def __init__(self, servers: list[str], log: str, partitions: int, per_second: int, login: Security) -> None:
        self._servers, self._log, self._partitions = servers, log, partitions
        self._network = NetworkOptions(security=login)
        self._per_tick = per_second * PACE_S / partitions
        self.sent = [0] * partitions
        self.acknowledged: list[set[int]] = [set() for _ in range(partitions)]
        self.acks_s: list[float] = []
        self.errors: list[str] = []
        self.read: list[list[int]] = [[] for _ in range(partitions)]
        self._run = f"{time.time_ns():x}"

    async def produce(self, ended: asyncio.Event) -> None:
        options = ProducerOptions(
            idempotent=True, max_buffered_events=BUFFER, delivery_timeout_s=60.0, network=self._network
        )
        async with ProducerClient(self._servers, self._log, options) as producer:
            started_s, owed = time.monotonic(), 0
            while not ended.is_set():
                due = int((time.monotonic() - started_s) / PACE_S * self._per_tick)
                for _ in range(max(0, due - owed)):
                    for partition in range(self._partitions):
                        await self._send(producer, partition)
                owed = max(owed, due)
                await asyncio.sleep(PACE_S)
            await producer.flush()
        self.took_s = time.monotonic() - started_s

    async def _send(self, producer: ProducerClient, partition: int) -> None:
        number = self.sent[partition]
        self.sent[partition] += 1

        def done(error: HoldfastError | None) -> None:
            if error is not None:
                self.errors.append(str(error))
                return
            self.acks_s.append(time.monotonic())
            if len(self.acks_s) == 1:
                print(json.dumps({"event": "running"}), flush=True)
            self.acknowledged[partition].add(number)

        await producer.send(f"{self._run}:{number}".encode(), partition=str(partition), done=done)

    async def read_along(self, produced: asyncio.Event) -> None:
        """Read while events are produced, and after that what was acknowledged."""
        options = ConsumerOptions(network=self._network)
        reading = ConsumerClient(self._servers, self._log, start=Start.earliest(), options=options)
        within_s = 0.0
        try:
            async with reading as consumer:
                while not produced.is_set() or (not self._all_read() and time.monotonic() < within_s):
                    for event in await consumer.receive(timeout_s=PAUSE_S):
                        self._note(event, self.read[int(event.partition)])
                    if not produced.is_set():
                        within_s = time.monotonic() + READ_WITHIN_S
        except HoldfastError as error:
            self.errors.append(f"the reader: {error}")

    def _all_read(self) -> bool:
        ends = zip(self.acknowledged, self.read, strict=True)
        return all(not acknowledged or (read and read[-1] >= max(acknowledged)) for acknowledged, read in ends)

    def _note(self, event: ReceivedEvent, found: list[int]) -> None:
        run, _, number = event.body.decode().partition(":")
        if run == self._run:
            found.append(int(number))

    async def judge(self) -> dict[str, object]:
        wrong: Counter[str] = Counter()
        for partition in range(self._partitions):
            for numbers in (await self._stored(str(partition)), self.read[partition]):
                counts = Counter(numbers)
                wrong["lost"] += len(self.acknowledged[partition] - counts.keys())
                wrong["doubled"] += sum(count - 1 for count in counts.values())
                wrong["disordered"] += sum(later <= earlier for earlier, later in pairwise(numbers))
                wrong["strange"] += sum(number >= self.sent[partition] for number in counts)
        pauses = [later - earlier for earlier, later in pairwise(self.acks_s)]
        return {
            "sent": sum(self.sent),
            "acknowledged": sum(map(len, self.acknowledged)),
            "per_second": round(sum(self.sent) / self.took_s),
            "longest_pause_s": round(max(pauses), 3),
            "read": sum(map(len, self.read)),
            **wrong,
            "errors": self.errors[:3],
        }

    async def _stored(self, partition: str) -> list[int]:
        """The numbers of this run, in the order of the log."""
        options = ConsumerOptions(until_end=True, network=self._network)
        reading = ConsumerClient(
            self._servers, self._log, start=Start.earliest(), partitions=[partition], options=options
        )
        found = []
        async with reading as consumer:
            async for event in consumer:
                self._note(event, found)
        return found


async def main() -> None:
    servers, log, partitions, per_second, *login = sys.argv[1:]
    security = Security(user=login[0], password_file=login[1]) if login else Security()
    load = AnsibleLoad(servers.split(","), log, int(partitions), int(per_second), security)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, ended.set)
    produced = asyncio.Event()
    reader = asyncio.create_task(load.read_along(produced))
    await load.produce(ended)
    produced.set()
    await reader
    print(json.dumps(await load.judge()), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
