"""Benchmark of Event Hubs' SDKs: the nodes' CPU for an event that they publish, beside our own client's.

A batch of an SDK is one message, which a node opens, checks and seals anew; our client seals its batches itself. What
that costs shows in the nodes' CPU, whatever the client needs. So this program publishes events of 100 bytes to one
partition of a cluster of three: the SDKs in full batches of 1 MiB at the node that leads it, one at a time, our client
by `send_many` of as many events. They take turns, and the medians of each are compared. What idle nodes use is taken
off: an SDK may publish so slowly that it would count. The Go SDK gives each event a message-id, which is stored with
it; what so many bytes cost is shown by our client with events of that size.

    python -m benchmarks.client.event_hubs --seconds 5
"""

from __future__ import annotations

import asyncio
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.peers.base import PeerFailed, end_on_signals, running
from benchmarks.peers.holdfast import PARTITION, Holdfast
from benchmarks.places import scratch
from benchmarks.subjects.partitions import cpu_s
from holdfast.client import Delivery, ProducerClient

SIZE_BYTES = 100
BATCH_BYTES = 1 << 20
WITH_ID_BYTES = 155
"""Size of an event of the Go SDK with its message-id, as it is stored."""
UNDER_WAY = 4
"""Calls of our client under way, which bounds its memory."""
GOAL = 1.5
SETTLE_S = 2.0
IDLE_S = 3.0
GO = Path(__file__).parent / "event_hubs_go"
BUILD_WITHIN_S = 600
OWN, PYTHON, GO_SDK = "our client, send_many", "Python SDK", "Go SDK"
OWN_LARGER = f"our client, events of {WITH_ID_BYTES} bytes"
JUDGED = (PYTHON, GO_SDK)
COLUMNS = ("published through", "events/s", "nodes' CPU for an event", "ratio to our client's")


@dataclass(frozen=True)
class PublishingRun:
    events: int
    took_s: float
    cpu_s: float  # of all nodes, beyond what they use when idle

    @property
    def cpu_us(self) -> float:
        return self.cpu_s / self.events * 1e6


@dataclass(frozen=True)
class PublishingCost:
    """Cost of one way to publish, as medians of its runs."""

    title: str
    events_per_s: float
    cpu_us: float


Way = Callable[[str, str, float], int]
"""(address of a node, log, seconds) -> events that were confirmed."""


def by_python_sdk(address: str, log: str, seconds: float) -> int:
    from azure.eventhub import EventData, EventHubProducerClient  # a second of imports, for this one

    with EventHubProducerClient.from_connection_string(connection_string(address, log)) as producer:
        batch, body = producer.create_batch(partition_id=PARTITION), bytes(SIZE_BYTES)
        while True:
            try:
                batch.add(EventData(body))
            except ValueError:  # it is full
                break
        events, until_s = 0, time.monotonic() + seconds
        while time.monotonic() < until_s:
            producer.send_batch(batch)
            events += len(batch)
    return events


def by_own_client(size: int) -> Way:
    return lambda address, log, seconds: asyncio.run(_send_many(address, log, seconds, size))


async def _send_many(address: str, log: str, seconds: float, size: int) -> int:
    bodies, events = [bytes(size)] * (BATCH_BYTES // (size + 5)), 0  # about as many as 1 MiB of an SDK holds
    async with ProducerClient(address, log) as producer:
        under_way: deque[Delivery] = deque()
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            under_way.append(await producer.send_many(bodies, partition=PARTITION))
            events += len(bodies)
            if len(under_way) >= UNDER_WAY:
                await under_way.popleft()
        for delivery in under_way:
            await delivery
    return events


def go_sdk(directory: Path) -> Way:
    """Build the program on the Go SDK. Raises PeerFailed."""
    if shutil.which("go") is None:
        raise PeerFailed("go is not installed")
    program = directory / "event_hubs_go"
    words = ["go", "build", "-o", str(program), "."]
    done = subprocess.run(words, cwd=GO, capture_output=True, text=True, timeout=BUILD_WITHIN_S, check=False)
    if done.returncode:
        raise PeerFailed(f"the Go SDK is not to be had: {done.stderr.strip()[-200:]}")

    def publish(address: str, log: str, seconds: float) -> int:
        said = subprocess.run(
            [str(program), connection_string(address, log), str(SIZE_BYTES), str(seconds)],
            capture_output=True,
            text=True,
            check=False,
        )
        if said.returncode:
            raise PeerFailed(f"the Go SDK gave up: {said.stderr.strip()[-200:]}")
        return int(said.stdout)

    return publish


def connection_string(address: str, log: str) -> str:
    """The string of an open cluster."""
    key = "SharedAccessKeyName=any;SharedAccessKey=SAS_KEY_VALUE"
    return f"Endpoint=sb://{address};{key};UseDevelopmentEmulator=true;EntityPath={log}"


def measure(peer: Holdfast, ways: dict[str, Way], repeats: int, seconds: float) -> list[PublishingCost]:
    """Publish by each way in turns, and return the medians, in the order of `ways`."""
    runs: dict[str, list[PublishingRun]] = {title: [] for title in ways}
    for repeat in range(repeats):
        for title in sorted(ways, reverse=bool(repeat % 2)):
            runs[title].append(_run(peer, ways[title], seconds))
    return [
        PublishingCost(
            title,
            statistics.median(run.events / run.took_s for run in found),
            statistics.median(run.cpu_us for run in found),
        )
        for title, found in runs.items()
    ]


def _run(peer: Holdfast, way: Way, seconds: float) -> PublishingRun:
    log, leaders = peer.create_log(1)
    nodes = list(peer.processes())
    address = peer.addresses[nodes.index(leaders[PARTITION])]
    time.sleep(SETTLE_S)
    before_s, began_s = cpu_s(peer), time.monotonic()
    time.sleep(IDLE_S)
    idle_cores = (cpu_s(peer) - before_s) / (time.monotonic() - began_s)
    before_s, began_s = cpu_s(peer), time.monotonic()
    events = way(address, log, seconds)
    took_s = time.monotonic() - began_s
    found = PublishingRun(events, took_s, cpu_s(peer) - before_s - idle_cores * took_s)
    peer.delete_log(log)
    return found


def ratio(one: PublishingCost, published: Sequence[PublishingCost]) -> float:
    """CPU for an event, in times that of our client."""
    return one.cpu_us / next(own.cpu_us for own in published if own.title == OWN)


def rows(published: Sequence[PublishingCost]) -> list[tuple[str, ...]]:
    return [
        (one.title, f"{one.events_per_s:,.0f}", f"{one.cpu_us:.2f} us", f"{ratio(one, published):.2f}")
        for one in published
    ]


def ways(directory: Path) -> tuple[dict[str, Way], list[str]]:
    """The ways to publish that there are here, and remarks on those that are not."""
    found: dict[str, Way] = {
        OWN: by_own_client(SIZE_BYTES), OWN_LARGER: by_own_client(WITH_ID_BYTES), PYTHON: by_python_sdk,
    }  # fmt: skip
    try:
        found[GO_SDK] = go_sdk(directory)
    except PeerFailed as why:
        return found, [f"{GO_SDK}: {why}"]
    return found, []


@click.command()
@click.option("--seconds", default=5.0, show_default=True, type=click.FloatRange(1), help="Seconds of a run.")
@click.option("--repeats", default=3, show_default=True, type=click.IntRange(1), help="Runs of each.")
@click.option("--durability", default="fsync", show_default=True, type=click.Choice(["fsync", "replicated"]))
def main(seconds: float, repeats: int, durability: str) -> None:
    """Compare the nodes' CPU for an event of the SDKs and of our client; exit status 1 beyond the goal."""
    end_on_signals()
    console = Console(width=None if sys.stdout.isatty() else 120)
    with scratch() as directory, running(peer := Holdfast(durability, directory)):
        found, remarks = ways(Path(tempfile.mkdtemp(dir=directory)))
        published = measure(peer, found, repeats, seconds)
    table = Table(*COLUMNS)
    for row in rows(published):
        table.add_row(*row)
    console.print(table)
    for remark in remarks:
        console.print(remark, highlight=False)
    if any(ratio(one, published) > GOAL for one in published if one.title in JUDGED):
        sys.exit(1)


if __name__ == "__main__":
    main()
