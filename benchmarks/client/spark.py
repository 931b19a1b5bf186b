"""Command `python -m benchmarks.client.spark`: measures how fast Spark reads a log into a DataFrame.

A rate into Spark combines a node that reads, a client that receives, Arrow, a pipe, and Spark. So the client alone
(RangeClient, one process, columns) reads the same events in the same run, in turns. Its share tells how much of Spark's
time the source takes. Spark's sink is `noop`: every column of every row is made, and nothing is kept.

Nodes, Python workers and Spark share the machine's cores, as on a laptop. The CPU of all of them for each event is
reported, too, since other load on the machine changes it less than the rate.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import click
import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.peers.base import end_on_signals, running
from benchmarks.peers.holdfast import Holdfast
from benchmarks.places import scratch
from holdfast.client.blocks.event_arrays import arrays_of
from holdfast.client.sync import Event, ProducerClient, RangeClient

ROOT = Path(__file__).resolve().parents[2]
WORTH_PER_S = 120_000
PARTITIONS = 4
SENT_AT_ONCE = 2_000


def fill(servers: list[str], log: str, events: int, size: int) -> None:
    batch = [Event(bytes(size)) for _ in range(SENT_AT_ONCE)]
    with ProducerClient(servers, log) as producer:
        for number in range(events // SENT_AT_ONCE):
            producer.send_batch(batch, partition=str(number % PARTITIONS))


def by_client(servers: list[str], log: str) -> tuple[int, float]:
    """Read the log with the client alone; return events and seconds."""
    began_s, seen = time.perf_counter(), 0
    with RangeClient(servers) as client:
        for extent in client.extents(log):
            for block in client.read(log, extent.partition, extent.start, extent.end):
                arrays_of(block)
                seen += len(block)
    return seen, time.perf_counter() - began_s


def session(cores: int) -> Any:
    from pyspark.sql import SparkSession

    os.environ.update(PYSPARK_PYTHON=sys.executable, PYTHONPATH=str(ROOT), SPARK_LOCAL_IP="127.0.0.1")
    builder = SparkSession.builder.master(f"local[{cores}]").appName("benchmark").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.ui.showConsoleProgress", "false")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def by_spark(spark: Any, servers: list[str], log: str, **options: str) -> float:
    began_s = time.perf_counter()
    frame = spark.read.format("holdfast").options(servers=",".join(servers), log=log, **options).load()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began_s


class Used:
    """CPU meter of the nodes, this process and its descendants, in seconds."""

    def __init__(self, peer: Holdfast) -> None:
        self._nodes = list(peer.processes().values())

    def __call__(self) -> float:
        own = psutil.Process()
        mine = [own, *own.children(recursive=True)]
        others = [process for process in self._nodes if process not in mine]
        ours = sum(sum(process.cpu_times()[:4]) for process in mine)  # includes children that have ended
        return ours + sum(sum(process.cpu_times()[:2]) for process in others)


def outside(rates: dict[str, list[float]]) -> float:
    """Return the share of Spark's time that nodes and client take, which is the time outside Spark."""
    return statistics.median(rates["all columns"]) / statistics.median(rates["the client alone"])


@click.command()
@click.option("--events", default=1_000_000, show_default=True, type=click.IntRange(SENT_AT_ONCE))
@click.option("--size", default=100, show_default=True, type=click.IntRange(0), help="Bytes in the body of an event.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@click.option("--cores", default=2, show_default=True, type=click.IntRange(1), help="Cores of Spark's local mode.")
@click.option("--json", "as_json", is_flag=True, help="Print all rounds as JSON, for programs.")
def main(events: int, size: int, rounds: int, cores: int, as_json: bool) -> None:
    """Read events of a log into a DataFrame, with all columns and with the body alone."""
    end_on_signals()
    found: dict[str, list[float]] = {"the client alone": [], "all columns": [], "body and offset": []}
    load, cpu_us = os.getloadavg()[0], list[float]()
    with scratch() as directory, running(Holdfast("replicated", directory)) as peer:
        assert isinstance(peer, Holdfast)
        log, _ = peer.create_log(PARTITIONS)
        servers = peer.addresses
        fill(servers, log, events, size)
        spark, used_s = session(cores), Used(peer)
        by_spark(spark, servers, log)  # warms up Java and the Python workers
        for _ in range(rounds):
            seen, took_s = by_client(servers, log)
            found["the client alone"].append(seen / took_s)
            before_s = used_s()
            found["all columns"].append(seen / by_spark(spark, servers, log))
            cpu_us.append((used_s() - before_s) / seen * 1e6)
            found["body and offset"].append(seen / by_spark(spark, servers, log, columns="body,offset"))
        spark.stop()
    if as_json:
        click.echo(
            json.dumps({"load_before": load, "events": events, "size": size, "events_per_s": found, "cpu_us": cpu_us})
        )
    else:
        table = Table(title=f"{events:,} events of {size} bytes, {PARTITIONS} partitions, load {load:.1f} before")
        for name in ("", "events/s, median", "rounds"):
            table.add_column(name, justify="right" if name else "left")
        for what, rates in found.items():
            table.add_row(what, f"{statistics.median(rates):,.0f}", ", ".join(f"{rate:,.0f}" for rate in rates))
        console = Console(width=None if sys.stdout.isatty() else 160)
        console.print(table)
        console.print(f"all columns: {statistics.median(cpu_us):.1f} us of CPU for an event, nodes and Spark together")
        console.print(f"the client alone takes {outside(found):.0%} of the time that Spark takes with it, all columns")
    if statistics.median(found["all columns"]) < WORTH_PER_S:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
