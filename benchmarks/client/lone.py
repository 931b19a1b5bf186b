"""Benchmark of lone events: how long one takes that no other event waits with.

A program sends single events of 1 KiB at a rate and never waits for an answer before it sends the next one (open loop).
At 200 a second each travels alone. At 2,000 some meet. In the part `beside bulk` another program sends batches to a
second log with the same leaders, at half of what it can. An event's time runs from the call that sends it to its
acknowledgement. Python's garbage collector is off in the sender, since it would add pauses that are no broker's.

Clusters take their turns, and all are up at the same time. Rivals are those that sync before they acknowledge, as
Holdfast does here; one that is not installed is left out. `--before CHECKOUT` adds nodes of an earlier checkout.

    python -m benchmarks.client.lone
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import multiprocessing
import statistics
import sys
import threading
import time
from array import array
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import click
import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.driver.measure import percentiles_ms
from benchmarks.driver.wire import Url
from benchmarks.peers import kafka, nats
from benchmarks.peers.base import PeerSystem, PeerUnavailable, end_on_signals, running
from benchmarks.peers.holdfast import Holdfast
from benchmarks.places import scratch
from benchmarks.subjects.pairs import environment_of
from holdfast.client import ProducerClient, ProducerOptions

BODY = b"x" * 1024
BULK_EVENTS = 500  # in a batch
FULL_S = 3.0
"""Time in which the bulk's sender finds out what it can."""
WARM_EVENTS = 100
PERCENTILES = ("p50", "p99", "p99.9")

Answer = Callable[[str | None], None]
"""Told of an outcome: None, or what went wrong."""
Send = Callable[[Answer], Any]
"""Sends one event; what it returns is awaited."""


@dataclass(frozen=True)
class LonePart:
    name: str
    rate: int
    beside_bulk: bool = False


SLOW, FAST, BESIDE = LonePart("200/s", 200), LonePart("2,000/s", 2000), LonePart("200/s beside bulk", 200, True)


@dataclass
class LoneCluster:
    """A cluster and what was measured on it: by part, the percentiles in ms of each repeat."""

    title: str
    peer: PeerSystem
    kind: str
    sender: Callable[[Url], AbstractAsyncContextManager[Send]]
    parts: tuple[LonePart, ...] = (SLOW, FAST)
    found: dict[str, list[dict[str, float]]] = field(default_factory=dict)

    def median_ms(self, part: LonePart, percentile: str) -> float:
        return statistics.median(one[percentile] for one in self.found[part.name])


# ------------------------------------------------------------------------------------------------------------ senders


@asynccontextmanager
async def holdfast_sender(url: Url) -> AsyncIterator[Send]:
    async with ProducerClient(f"{url.host}:{url.port}", url.address, ProducerOptions()) as producer:

        async def send(answer: Answer) -> None:
            await producer.send(BODY, done=lambda error: answer(None if error is None else str(error)))

        yield send


@asynccontextmanager
async def nats_sender(url: Url) -> AsyncIterator[Send]:
    import nats as client

    connection = await client.connect(f"nats://{url.host}:{url.port}", allow_reconnect=False)
    stream, subject = connection.jetstream(), url.address

    async def send(answer: Answer) -> None:
        def told(future: asyncio.Future[Any]) -> None:
            error = future.exception()
            answer(None if error is None else repr(error))

        (await stream.publish_async(subject, BODY)).add_done_callback(told)

    try:
        yield send
    finally:
        await connection.close()


@asynccontextmanager
async def kafka_sender(url: Url) -> AsyncIterator[Send]:
    from confluent_kafka import Producer

    servers = f"{url.host}:{url.port}"
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "enable.idempotence": True, "linger.ms": 0})
    over = threading.Event()

    def poll() -> None:
        while not over.is_set():
            producer.poll(0.1)

    async def send(answer: Answer) -> None:
        def told(error: Any, _: Any) -> None:
            answer(None if error is None else str(error))

        producer.produce(url.address, BODY, None, 0, told)

    polling = threading.Thread(target=poll)
    polling.start()
    try:
        yield send
    finally:
        over.set()
        polling.join()


# ------------------------------------------------------------------------------------------------------- measurements


async def latencies_ns(sender: AbstractAsyncContextManager[Send], rate: int, seconds: float) -> array[int]:
    """Send at a rate for so many seconds; return the time of each event. Raises RuntimeError if one fails."""
    taken, failed = array("q"), []
    async with sender as send:

        async def one() -> None:
            began_ns = time.perf_counter_ns()

            def told(problem: str | None) -> None:
                taken.append(time.perf_counter_ns() - began_ns)
                if problem is not None:
                    failed.append(problem)

            await send(told)

        async def answered(number: int) -> None:
            while len(taken) < number and not failed:  # noqa: ASYNC110 - Kafka answers in a thread
                await asyncio.sleep(0.001)

        for number in range(WARM_EVENTS):
            await one()
            await answered(number + 1)
        del taken[:]
        began_s, number = time.perf_counter(), 0
        while number < rate * seconds and not failed:
            wait_s = began_s + number / rate - time.perf_counter()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            await one()
            number += 1
        await answered(number)
    if failed:
        raise RuntimeError(f"an event failed: {failed[0]}")
    return taken


async def _send_bulk(server: str, log: str, ready: Event, over: Event) -> None:
    async with ProducerClient(server, log, ProducerOptions()) as producer:
        bodies = [BODY] * BULK_EVENTS
        began_s, batches = time.perf_counter(), 0
        while (took_s := time.perf_counter() - began_s) < FULL_S:
            await producer.send_many(bodies)
            batches += 1
        await producer.flush()
        period_s = 2 * took_s / batches
        ready.set()
        began_s, number = time.perf_counter(), 0
        while not over.is_set():
            await asyncio.sleep(max(0.0, began_s + number * period_s - time.perf_counter()))
            await producer.send_many(bodies)
            number += 1


def _bulk(server: str, log: str, ready: Event, over: Event) -> None:
    uvloop.run(_send_bulk(server, log, ready, over))


@contextlib.contextmanager
def bulk(server: str, log: str) -> Iterator[None]:
    """Run a program that sends batches to a log, at half of the rate that it reaches alone."""
    spawn = multiprocessing.get_context("spawn")
    ready, over = spawn.Event(), spawn.Event()
    program = spawn.Process(target=_bulk, args=(server, log, ready, over), daemon=True)
    program.start()
    try:
        while not ready.wait(0.5):
            if not program.is_alive():
                raise RuntimeError("the bulk's sender has ended; its error stands above")
        yield
    finally:
        over.set()
        program.join(10.0)
        if program.is_alive():
            program.terminate()


def measure(cluster: LoneCluster, part: LonePart, seconds: float) -> None:
    target = cluster.peer.create(cluster.kind)
    bulky = contextlib.ExitStack()
    with bulky:
        if part.beside_bulk:
            other = cluster.peer.create(cluster.kind)
            bulky.callback(cluster.peer.delete, other)
            bulky.enter_context(bulk(f"{other.send_url.host}:{other.send_url.port}", other.name))
        gc.collect()
        gc.freeze()
        gc.disable()
        try:
            found = uvloop.run(latencies_ns(cluster.sender(target.send_url), part.rate, seconds))
        finally:
            gc.enable()
            gc.unfreeze()
    cluster.peer.delete(target)
    cluster.found.setdefault(part.name, []).append(percentiles_ms(found))


def contestants(directory: Path, before: Path | None, *, rivals: bool) -> tuple[list[LoneCluster], list[str]]:
    """Return the clusters, ours first, and why others are left out."""
    everything = (SLOW, FAST, BESIDE)
    found = [LoneCluster("Holdfast fsync", Holdfast("fsync", directory), "log", holdfast_sender, everything)]
    if before is not None:
        earlier = Holdfast("fsync", directory, environment_of(before))
        found.append(LoneCluster("Holdfast fsync, before", earlier, "log", holdfast_sender, everything))
    notes: list[str] = []
    makers: tuple[Callable[[], LoneCluster], ...] = (
        lambda: LoneCluster("NATS JetStream, sync always", nats.Nats("always", directory), "stream", nats_sender),
        lambda: LoneCluster("Kafka, flush.messages=1, linger 0", kafka.Kafka(directory), "flush-linger0", kafka_sender),
    )
    for make in makers if rivals else ():
        try:
            found.append(make())
        except PeerUnavailable as reason:
            notes.append(str(reason))
    return found, notes


def run(clusters: Sequence[LoneCluster], repeats: int, seconds: float, console: Console) -> None:
    with contextlib.ExitStack() as life:
        for cluster in clusters:
            with console.status(f"starting {cluster.title}"):
                life.enter_context(running(cluster.peer))
        for repeat in range(repeats):
            for part in (SLOW, FAST, BESIDE):
                for cluster in clusters if repeat % 2 else reversed(clusters):
                    if part in cluster.parts:
                        with console.status(f"{part.name}, {cluster.title}, {repeat + 1} of {repeats}"):
                            measure(cluster, part, seconds)


COLUMNS = ("lone events of 1 KiB", "contestant", *(f"{percentile} ms" for percentile in PERCENTILES))


def rows(clusters: Sequence[LoneCluster]) -> list[tuple[str, ...]]:
    return [
        (part.name, cluster.title, *(f"{cluster.median_ms(part, percentile):.2f}" for percentile in PERCENTILES))
        for part in (SLOW, FAST, BESIDE)
        for cluster in clusters
        if part in cluster.parts
    ]


@click.command()
@click.option("--repeats", type=click.IntRange(1), default=3, show_default=True, help="Measure each part so often.")
@click.option(
    "--seconds", type=click.FloatRange(1), default=10.0, show_default=True, help="Let a part last so many seconds."
)
@click.option(
    "--before", type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    help="Measure nodes of this earlier checkout, too.",
)  # fmt: skip
@click.option("--rivals/--no-rivals", default=True, show_default=True, help="Measure NATS and Kafka, too.")
def main(repeats: int, seconds: float, before: Path | None, rivals: bool) -> None:
    """Measure how long lone events take."""
    end_on_signals()
    console = Console(width=None if sys.stdout.isatty() else 120)
    with scratch() as directory:
        clusters, notes = contestants(directory, before, rivals=rivals)
        run(clusters, repeats, seconds, console)
    table = Table(title=f"medians of {repeats}")
    for head in COLUMNS:
        table.add_column(head, justify="right" if head.endswith("ms") else "left")
    for row in rows(clusters):
        table.add_row(*row)
    console.print(table)
    for note in notes:
        console.print(note, highlight=False)


if __name__ == "__main__":
    main()
