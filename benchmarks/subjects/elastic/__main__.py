"""Command `python -m benchmarks.subjects.elastic`: measures what clients notice while a cluster grows and shrinks.

    python -m benchmarks.subjects.elastic --rounds 10        # 3 -> 5 -> 3 nodes under load
    python -m benchmarks.subjects.elastic --kafka 3          # the same rounds of Apache Kafka
    python -m benchmarks.subjects.elastic --empty 10         # a node with so many GiB is emptied
    python -m benchmarks.subjects.elastic --cancel 50        # moves are cancelled at random moments
    python -m benchmarks.subjects.elastic --rack             # a rack is lost in the middle of 100 swaps
    python -m benchmarks.subjects.elastic --return --partitions 1000    # a node comes back that is preferred by a third
    python -m benchmarks.subjects.elastic --full-disk /mnt/small     # a file system of a few GiB is filled and relieved
    python -m benchmarks.subjects.elastic --idle-nodes 31 --partitions 1000

Each part has a cluster of its own on this machine, one after the other. All of it shares the machine's cores, so times
say something of this machine only; what is lost, doubled or out of order must be 0 everywhere.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.peers.base import end_on_signals
from benchmarks.places import scratch
from benchmarks.subjects.elastic import full_disk, kafka_moves, parts, returning
from benchmarks.subjects.elastic.figures import Rows
from benchmarks.subjects.elastic.growing import ElasticCluster

Part = Callable[[ElasticCluster], Awaitable[Rows]]


def measured(
    nodes: int, part: Part, racks: Mapping[int, str] | None = None, data: Mapping[int, Path] | None = None
) -> Rows:
    """Run one part on a cluster of its own."""
    with scratch() as directory:
        cluster = ElasticCluster(directory, nodes, racks)
        for node, place in (data or {}).items():
            cluster.put_data(node, place)
        try:
            cluster.start()
            return asyncio.run(_awaited(part(cluster)))
        finally:
            cluster.stop()


async def _awaited(rows: Awaitable[Rows]) -> Rows:
    return await rows


@click.command()
@click.option("--rounds", default=0, type=click.IntRange(0), help="Grow from 3 nodes to 5 and shrink again, so often.")
@click.option("--kafka", "kafka", default=0, type=click.IntRange(0), help="Do the same rounds with Apache Kafka.")
@click.option("--rate", default=600, show_default=True, type=click.IntRange(1), help="Events a second meanwhile.")
@click.option("--quiet", "quiet_s", default=30.0, show_default=True, help="Seconds without moves before the rounds.")
@click.option("--empty", "gib", default=0.0, help="Empty a node that has so many GiB.")
@click.option("--cancel", "cancels", default=0, type=click.IntRange(0), help="Cancel so many moves.")
@click.option("--rack", is_flag=True, help="Lose a rack in the middle of 100 swaps.")
@click.option("--return", "returns", is_flag=True, help="Let a node return that leads a third of the partitions.")
@click.option("--full-disk", "small", type=click.Path(path_type=Path), help="Fill this directory's small disk.")
@click.option("--idle-nodes", default=0, type=click.IntRange(0, 31), help="Watch so many idle nodes.")
@click.option("--idle", "idle_s", default=30.0, show_default=True, help="Watch them for so many seconds.")
@click.option("--partitions", default=0, help="Partitions of the log (12; of idle nodes 1,000; with --rack 100).")
def main(
    rounds: int, kafka: int, rate: int, quiet_s: float, gib: float, cancels: int, rack: bool, returns: bool,
    small: Path | None, idle_nodes: int, idle_s: float, partitions: int,
) -> None:  # fmt: skip
    """Measure the parts that are asked for."""
    end_on_signals()
    found: dict[str, parts.Rows] = {}
    if rounds:
        found["3 -> 5 -> 3 nodes under load"] = measured(
            3, lambda cluster: parts.rounds(cluster, rounds, partitions or 12, rate, quiet_s)
        )
    if kafka:
        with scratch() as directory:
            found["3 -> 5 -> 3 brokers of Kafka under load"] = kafka_moves.kafka_rounds(
                directory, kafka, partitions or 12, rate, quiet_s
            )
    if gib:
        found["a node is emptied"] = measured(4, lambda cluster: parts.empty(cluster, gib))
    if cancels:
        found["moves are cancelled"] = measured(4, lambda cluster: parts.cancel(cluster, cancels))
    if rack:
        found["a rack is lost amid swaps"] = measured(
            6, lambda cluster: parts.rack(cluster, partitions or parts.SWAPPED), parts.RACKS
        )
    if returns:
        found["a preferred leader returns"] = measured(
            3, lambda cluster: returning.returning(cluster, partitions or 1000, rate)
        )
    if small is not None:
        directory = small / "data"
        found["a disk is relieved"] = measured(
            4, lambda cluster: full_disk.relieve(cluster, small, rate), data={full_disk.NODE: directory}
        )
    if idle_nodes:
        found["idle nodes"] = measured(
            idle_nodes, lambda cluster: parts.idle(cluster, idle_nodes, partitions or 1000, idle_s)
        )
    if not found:
        raise click.UsageError("nothing was asked for: name one of the parts, such as --rounds 3 (--help lists them)")
    console = Console(width=None if sys.stdout.isatty() else 120)
    for title, rows in found.items():
        table = Table("", "", title=title)
        for row in rows:
            table.add_row(*row)
        console.print(table)


if __name__ == "__main__":
    main()
