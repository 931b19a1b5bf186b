"""`holdfast bench`: a simple load through the client library, with percentiles.

It answers "how fast is this cluster for a Python program", not "how fast is Holdfast": client and nodes share this
machine's cores. Latency is measured on a sample of the events, from `send` to confirmation and from `send` to the
reader.
"""

from __future__ import annotations

import asyncio
import os
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from holdfast.cli.shared.command_frame import CommandFrame, command_frame, run
from holdfast.cli.shared.errors import CliError
from holdfast.client.consumer import ConsumerClient
from holdfast.client.errors import AdminError, HoldfastError
from holdfast.client.options import ConsumerOptions, ProducerOptions
from holdfast.client.producer import ProducerClient
from holdfast.client.start_position import Start

SAMPLE_EVERY = 50  # events; a callback per event would measure the callbacks
_STAMP = struct.Struct(">dQ")  # monotonic seconds, run id: what the reader needs, at the front of each body
MIN_SIZE = _STAMP.size


@dataclass
class BenchLoad:
    """Load of a benchmark."""

    log: str
    events: int
    size: int
    window: int
    rate: float | None
    run_id: int = field(default_factory=lambda: int.from_bytes(os.urandom(8), "big"))


@dataclass
class BenchFigures:
    """Figures of a benchmark."""

    confirmed_ms: list[float] = field(default_factory=list)
    end_to_end_ms: list[float] = field(default_factory=list)
    produce_s: float = 0.0
    consume_s: float = 0.0
    produced: int = 0
    consumed: int = 0


@click.command()
@click.option("--log", "log_name", default=None, help="Use this log (default: a new one, deleted afterwards).")
@click.option(
    "--events", type=click.IntRange(min=1), default=100_000, show_default=True, help="Publish so many events."
)
@click.option(
    "--size", type=click.IntRange(min=MIN_SIZE), default=1024, show_default=True, help="Give each event so many bytes."
)
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="Give the new log so many partitions.",
)
@click.option(
    "--window",
    type=click.IntRange(min=1),
    default=2000,
    show_default=True,
    help="Have so many events unconfirmed at most.",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=1),
    default=None,
    help="Publish so many events a second (default: as fast as it goes).",
)
@command_frame()
def bench(
    frame: CommandFrame, log_name: str | None, events: int, size: int, partitions: int, window: int, rate: float | None
) -> None:
    """Publish and read back a load; print throughput and latency."""
    load = BenchLoad(log_name or f"bench-{os.getpid()}-{int(time.time())}", events, size, window, rate)
    measured = run(_bench(frame, load, None if log_name else partitions))
    frame.output.result(_document(load, measured))
    rows = []
    for name, seconds, count, latencies in (
        ("produce, confirmed", measured.produce_s, measured.produced, measured.confirmed_ms),
        ("consume, end to end", measured.consume_s, measured.consumed, measured.end_to_end_ms),
    ):
        p = percentiles(latencies)
        per_s = count / seconds if seconds else 0.0
        numbers = [f"{p[key]:.1f}" for key in ("p50", "p95", "p99", "max")]
        rows.append([name, f"{count:,}", f"{per_s:,.0f}", f"{per_s * size / (1 << 20):.1f}", *numbers])
    frame.output.table(
        f"{events:,} events of {size} bytes, window {window}",
        ["", "events>", "events/s>", "MiB/s>", "p50 ms>", "p95 ms>", "p99 ms>", "max ms>"],
        rows,
    )


async def _bench(frame: CommandFrame, load: BenchLoad, partitions: int | None) -> BenchFigures:
    async with frame.admin() as admin:
        if partitions is not None:
            await admin.create_log(load.log, partitions=partitions)
        try:
            return await _run_load(frame, load)
        finally:
            if partitions is not None:
                try:
                    await admin.delete_log(load.log)
                except (AdminError, HoldfastError) as error:
                    frame.output.note(f"log {load.log} was left behind: {error}")


async def _run_load(frame: CommandFrame, load: BenchLoad) -> BenchFigures:
    measured = BenchFigures()
    options = ConsumerOptions(reconnect_timeout_s=frame.timeout_s, network=frame.network())
    async with ConsumerClient(frame.servers, load.log, start=Start.latest(), options=options) as consumer:
        reading = asyncio.create_task(_consume(frame, load, consumer, measured))
        try:
            await _produce(frame, load, measured)
            await reading
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
    return measured


async def _produce(frame: CommandFrame, load: BenchLoad, measured: BenchFigures) -> None:
    filler = os.urandom(load.size - MIN_SIZE)
    # The buffer is the window, so that latency is the cluster's and not that of a queue in this process.
    options = ProducerOptions(
        window=load.window,
        max_buffered_events=load.window,
        delivery_timeout_s=frame.timeout_s,
        network=frame.network(),
    )
    async with ProducerClient(frame.servers, load.log, options) as producer:
        started_s = time.monotonic()
        with frame.output.progress("publishing", load.events) as bar:
            for number in range(load.events):
                if load.rate is not None:
                    await _pace(started_s + number / load.rate)
                sent_s = time.monotonic()
                body = _STAMP.pack(sent_s, load.run_id) + filler
                done = _sampler(sent_s, measured.confirmed_ms) if number % SAMPLE_EVERY == 0 else None
                await producer.send(body, done=done)
                if number % 10_000 == 0:
                    bar.update(producer.stats.accepted, f"{number / (sent_s - started_s + 1e-9):,.0f}/s")
            await producer.flush()
        measured.produce_s = time.monotonic() - started_s
        measured.produced = producer.stats.accepted


async def _pace(due_s: float) -> None:
    if (early_s := due_s - time.monotonic()) > 0:
        await asyncio.sleep(early_s)


def _sampler(sent_s: float, into: list[float]) -> Any:
    def done(error: HoldfastError | None) -> None:
        if error is None:
            into.append((time.monotonic() - sent_s) * 1000)

    return done


async def _consume(frame: CommandFrame, load: BenchLoad, consumer: ConsumerClient, measured: BenchFigures) -> None:
    first_s = 0.0
    while measured.consumed < load.events:
        events = await consumer.receive(timeout_s=frame.timeout_s)
        now_s = time.monotonic()
        if not events:
            raise CliError(
                f"nothing came for {frame.timeout_s:g} s although {load.events - measured.consumed} events are due"
            )
        first_s = first_s or now_s
        sent_s, run_id = _STAMP.unpack_from(events[-1].body)
        if run_id != load.run_id:
            raise CliError(f"somebody else publishes to log {load.log}", advice="use a log of its own")
        measured.consumed += len(events)
        measured.end_to_end_ms.append((now_s - sent_s) * 1000)
        measured.consume_s = now_s - first_s


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """p50, p95, p99 and max of the values; nearest rank."""
    if not values:
        return {"p50": 0.0, "p95": 0.0, "p99": 0.0, "max": 0.0}
    ordered = sorted(values)
    rank = {name: ordered[min(len(ordered) - 1, int(share * len(ordered)))] for name, share in _SHARES}
    return {**rank, "max": ordered[-1]}


_SHARES = (("p50", 0.50), ("p95", 0.95), ("p99", 0.99))


def _document(load: BenchLoad, measured: BenchFigures) -> dict[str, Any]:
    def side(count: int, seconds: float, latencies: list[float]) -> dict[str, Any]:
        return {
            "events": count,
            "seconds": round(seconds, 3),
            "events_per_second": round(count / seconds) if seconds else 0,
            "latency_ms": {name: round(value, 3) for name, value in percentiles(latencies).items()},
        }

    return {
        "log": load.log,
        "size": load.size,
        "window": load.window,
        "produce": side(measured.produced, measured.produce_s, measured.confirmed_ms),
        "consume": side(measured.consumed, measured.consume_s, measured.end_to_end_ms),
    }
