"""Main job, and what it measures on the way; `demo` is the command around it.

Three things run at once on one loop: publishing through one node, reading back through another, and the accident:
kill -9 of the node that leads the busiest partition, and its return. They end together, or not at all: the first that
fails cancels the others. Only the leaders of the partitions are polled, which no node
announces.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.amqp.key_partitioner import partition_index
from holdfast.cli.local_cluster.processes import LocalCluster
from holdfast.cli.main_job.trades import Published, ReadBack, read_trades
from holdfast.cli.shared.output import Output, ProgressBar
from holdfast.client.admin import AdminClient
from holdfast.client.consumer import ConsumerClient
from holdfast.client.options import ConsumerOptions
from holdfast.client.produce.partition_sender import ProducerStats
from holdfast.client.producer import ProducerClient
from holdfast.client.start_position import Start
from holdfast.client.transport.network import NetworkOptions

LOG = "trades"
PARTITIONS = 4
REPLICAS = 3
KILL_AT_SHARE = 0.3  # of the events confirmed: early enough that most of the load comes after it
HOLD_AT_SHARE = 0.6  # of the events published: the rest waits for the kill, so that a fast run cannot be over before
RESUMED_EVENTS = 1000  # confirmed on every partition that lost its leader: then the log flows again
STALE_ANSWER_S = 0.05  # answers that the dead node had sent before have been read by then
RESTART_BOUND_S = 30.0  # the dead node is started again then, flowing or not; and has as long to become ready
ASK_INTERVAL_S = 0.05


class Failover:
    """The kill, and the silence it causes on the partitions that the dead node led."""

    def __init__(self, victim: int) -> None:
        self.victim = victim
        self.partitions: list[str] = []  # those that it leads when it is killed
        self.killed_s = self.dead_s = 0.0
        self.restarted_after_s: float | None = None
        self.resumed = asyncio.Event()  # every partition flows again
        self._last_s: dict[str, float] = {}
        self._gap_s: dict[str, float] = {}
        self._after: Counter[str] = Counter()

    def on_confirmed(self, partition: str | None, events: int) -> None:
        """Note that events were confirmed just now."""
        if partition is None:
            return
        now_s = time.monotonic()
        silence_s = now_s - self._last_s.get(partition, self.killed_s)
        self._last_s[partition] = now_s
        if partition not in self.partitions:
            return
        if not self.resumed.is_set():
            self._gap_s[partition] = max(silence_s, self._gap_s.get(partition, 0.0))
        if self.dead_s and now_s > self.dead_s + STALE_ANSWER_S:
            self._after[partition] += events
            if all(self._after[name] >= RESUMED_EVENTS for name in self.partitions):
                self.resumed.set()

    @property
    def gap_s(self) -> float | None:
        """The longest time between two confirmations around the kill. None: a partition was never confirmed again."""
        if not self._gap_s or not all(self._after[name] for name in self.partitions):
            return None
        return max(self._gap_s.values())


@dataclass
class Job:
    """One run and what is known of it so far."""

    run_id: str
    local: LocalCluster
    file: Path
    published: Published = field(default_factory=Published)
    read_back: ReadBack = field(init=False)
    stats: ProducerStats = field(default_factory=ProducerStats)
    failover: Failover | None = None
    publish_s: float = 0.0
    read_s: float = 0.0
    entry_node: int = 0
    exit_node: int = 0
    reader_links: int = 0

    def __post_init__(self) -> None:
        self.read_back = ReadBack(self.run_id)

    def address(self, node_id: int) -> str:
        return self.local.plan.node(node_id).amqp


async def run_job(job: Job, output: Output) -> None:
    """Do all of it; the caller bounds it and judges what `job` then says."""
    counts = Counter(trade.symbol for trade in read_trades(job.file))
    async with AdminClient(job.local.plan.servers[:1]) as admin:
        await admin.create_log(LOG, partitions=PARTITIONS, replicas=REPLICAS)
        leaders = await _leaders(admin)
    busiest = _load_by_partition(counts).most_common(1)[0][0]
    victim = leaders[busiest]
    job.failover = Failover(victim)
    job.entry_node, job.exit_node = [node.id for node in job.local.plan.nodes if node.id != victim][:2]
    output.say(
        f"log {LOG}: {PARTITIONS} partitions led by nodes {', '.join(str(leaders[p]) for p in sorted(leaders))}\n"
        f"publishing {counts.total():,} trades through node {job.entry_node}, "
        f"reading them back through node {job.exit_node}"
    )
    await _Run(job, job.failover, output, busiest, counts.total()).run()


async def _leaders(admin: AdminClient) -> dict[str, int]:
    """Leader of each partition, once all of them are led."""
    while True:
        description = await admin.describe_log(LOG)
        leaders = {str(entry["partition"]): entry.get("leader") for entry in description["partitions"]}
        if all(leaders.values()):
            return {partition: int(leader) for partition, leader in leaders.items() if leader}
        await asyncio.sleep(ASK_INTERVAL_S)


def _load_by_partition(counts: Counter[str]) -> Counter[str]:
    load: Counter[str] = Counter()
    for symbol, count in counts.items():
        load[str(partition_index(symbol, PARTITIONS))] += count
    return load


class _Run:
    """The three things that happen at once."""

    def __init__(self, job: Job, failover: Failover, output: Output, busiest: str, total: int) -> None:
        self.job, self.failover, self.output, self.busiest, self.total = job, failover, output, busiest, total
        self.confirmed = 0
        self.kill_due = asyncio.Event()
        self.killed = asyncio.Event()
        self.ends: dict[str, str] | None = None  # the last offset of each partition, once publishing is over
        self.bar: ProgressBar = output.bars({"published": total, "read back": total})

    async def run(self) -> None:
        with self.bar:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.read_back())
                tasks.create_task(self.accident())
                tasks.create_task(self.publish())

    def on_confirmed(self, partition: str | None, events: int) -> None:
        self.confirmed += events
        if self.confirmed >= self.total * KILL_AT_SHARE:
            self.kill_due.set()
        self.failover.on_confirmed(partition, events)

    async def publish(self) -> None:
        job, started_s = self.job, time.monotonic()
        prefix = job.run_id.encode("ascii")
        async with ProducerClient(job.address(job.entry_node), LOG) as producer:
            job.stats = producer.stats
            producer.on_confirmed = self.on_confirmed
            for trade in read_trades(job.file):
                if trade.number >= self.total * HOLD_AT_SHARE:
                    await self.killed.wait()
                await producer.send(b"%s,%d,%s" % (prefix, trade.number, trade.line), key=trade.symbol)
                job.published.add(trade)
                if trade.number % 5000 == 0:
                    self.bar.update(self.confirmed, _rate(self.confirmed, started_s), 0)
            await producer.flush()
        job.publish_s = time.monotonic() - started_s
        self.bar.update(self.confirmed, _rate(self.confirmed, started_s), 0)
        self.failover.resumed.set()  # nothing more will be confirmed
        async with AdminClient(job.local.plan.servers) as admin:
            infos = await admin.log_info(LOG, complete=True)
        self.ends = {info.partition: end for info in infos if (end := info.last_stable_offset) is not None}

    async def read_back(self) -> None:
        """Read back through one node, which serves as a gateway what it does not lead; until the end of every
        partition."""
        job, started_s = self.job, time.monotonic()
        options = ConsumerOptions(network=NetworkOptions(follow_redirects=False))
        async with ConsumerClient(job.address(job.exit_node), LOG, start=Start.earliest(), options=options) as consumer:
            while self.ends is None or any(consumer.positions.get(name, "") < end for name, end in self.ends.items()):
                for event in await consumer.receive(timeout_s=0.5):
                    job.read_back.add(event)
                self.bar.update(job.read_back.distinct, _rate(job.read_back.distinct, started_s), 1)
            job.read_s = time.monotonic() - started_s
            job.reader_links = consumer.links_opened

    async def accident(self) -> None:
        """Kill a node by kill -9 in the middle; the node comes back when the others have taken over."""
        failover, local = self.failover, self.job.local
        await self.kill_due.wait()
        async with AdminClient(local.plan.servers) as admin:
            leaders = await _leaders(admin)
        if failover.victim not in leaders.values():
            failover.victim = leaders[self.busiest]  # leadership has moved meanwhile
        failover.partitions = sorted(p for p, leader in leaders.items() if leader == failover.victim)
        failover.killed_s = time.monotonic()
        await asyncio.to_thread(local.kill, failover.victim)
        failover.dead_s = time.monotonic()
        self.killed.set()
        self.output.say(
            f"kill -9 of node {failover.victim}, the leader of partition {', '.join(failover.partitions)}, "
            f"after {self.confirmed:,} confirmed events"
        )
        await asyncio.wait({asyncio.create_task(failover.resumed.wait())}, timeout=RESTART_BOUND_S)
        starting = local.spawn(failover.victim)
        await asyncio.to_thread(starting.wait, time.monotonic() + RESTART_BOUND_S)
        failover.restarted_after_s = time.monotonic() - failover.killed_s
        self.output.say(f"node {failover.victim} is back, {failover.restarted_after_s:.1f} s after its death")


def _rate(count: int, since_s: float) -> str:
    return f"{count / (time.monotonic() - since_s + 1e-9):,.0f}/s"
