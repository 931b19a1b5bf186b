"""Command `python -m benchmarks.client.spark_sink`: measures how fast Spark writes a DataFrame into a log.

As with reading (`benchmarks.client.spark`), a rate combines Spark, a pipe, Arrow, a client that sends, and nodes that
store. All of them share the machine's cores. So Spark makes the rows beforehand and keeps them in its memory. Its
`noop` sink takes the same rows in the same run, in turns, which shows Spark's own share. Each guarantee is measured.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.client.spark import PARTITIONS, session
from benchmarks.peers.base import end_on_signals, running
from benchmarks.peers.holdfast import Holdfast
from benchmarks.places import scratch
from holdfast.client.sync import RangeClient

WORTH_PER_S = 50_000
GUARANTEES = ("exactly-once", "at-least-once")


def rows(spark: Any, events: int, size: int, tasks: int) -> Any:
    """Make rows in Spark's memory, with different bodies of the size."""
    frame = spark.range(events, numPartitions=tasks).selectExpr(f"encode(lpad(id, {size}, '0'), 'utf-8') AS body")
    frame = frame.cache()
    frame.count()
    return frame


def into_noop(frame: Any) -> float:
    began_s = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began_s


def into_log(frame: Any, servers: list[str], log: str, guarantee: str) -> float:
    began_s = time.perf_counter()
    options = {"servers": ",".join(servers), "log": log, "guarantee": guarantee}
    frame.write.format("holdfast").options(**options).mode("append").save()
    return time.perf_counter() - began_s


def stored(servers: list[str], log: str) -> int:
    with RangeClient(servers) as client:
        return sum(
            len(block)
            for extent in client.extents(log)
            for block in client.read(log, extent.partition, extent.start, extent.end)
        )


@click.command()
@click.option("--events", default=1_000_000, show_default=True, type=click.IntRange(1))
@click.option("--size", default=100, show_default=True, type=click.IntRange(1), help="Bytes in the body of an event.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@click.option("--cores", default=2, show_default=True, type=click.IntRange(1), help="Cores of Spark's local mode.")
@click.option("--json", "as_json", is_flag=True, help="Print all rounds as JSON, for programs.")
def main(events: int, size: int, rounds: int, cores: int, as_json: bool) -> None:
    """Write rows into a log, by each guarantee."""
    end_on_signals()
    found: dict[str, list[float]] = {"noop": [], **{guarantee: [] for guarantee in GUARANTEES}}
    load = os.getloadavg()[0]
    with scratch() as directory, running(Holdfast("replicated", directory)) as peer:
        assert isinstance(peer, Holdfast)
        log, _ = peer.create_log(PARTITIONS)
        servers = peer.addresses
        spark = session(cores)
        frame = rows(spark, events, size, cores)
        for guarantee in GUARANTEES:  # warms up Java, the Python workers and the coordinators
            into_log(frame, servers, log, guarantee)
        for _ in range(rounds):
            found["noop"].append(events / into_noop(frame))
            for guarantee in GUARANTEES:
                found[guarantee].append(events / into_log(frame, servers, log, guarantee))
        spark.stop()
        wanted, there = events * (rounds + 1) * len(GUARANTEES), stored(servers, log)
        if there != wanted:
            raise SystemExit(f"{there:,} events are in the log, and should be {wanted:,}")
    if as_json:
        click.echo(json.dumps({"load_before": load, "events": events, "size": size, "events_per_s": found}))
    else:
        table = Table(title=f"{events:,} events of {size} bytes, {PARTITIONS} partitions, load {load:.1f} before")
        for name in ("", "events/s, median", "rounds"):
            table.add_column(name, justify="right" if name else "left")
        for what, rates in found.items():
            table.add_row(what, f"{statistics.median(rates):,.0f}", ", ".join(f"{rate:,.0f}" for rate in rates))
        Console(width=None if sys.stdout.isatty() else 160).print(table)
    if statistics.median(found["exactly-once"]) < WORTH_PER_S:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
