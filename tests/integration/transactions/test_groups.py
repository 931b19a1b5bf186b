"""Batches of many tasks, over processes that die: nodes between any two steps, tasks that hang, drivers that replay."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.local_cluster import child_processes
from holdfast.client import (
    ConsumerOptions,
    GroupFencedError,
    HoldfastError,
    ProducerClient,
    Start,
    TransactionGroup,
    sync,
)
from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.transactions.task import PARTITIONS

pytestmark = pytest.mark.cluster

PARTS = ("0", "1")
TRIES = 40
WRITER = "orders"

POINTS = [
    "coordinator-before-open-group",
    "coordinator-after-open-group",
    "coordinator-before-join-group",
    "coordinator-after-join-group",
    "coordinator-before-prepare-member",
    "coordinator-after-prepare-member",
    "coordinator-before-commit-group",  # asked for, and not decided
    "coordinator-after-commit-group",  # decided, and no marker has left
    "coordinator-after-a-marker",
    "partition-after-marker",
    "coordinator-before-complete",
    "coordinator-after-complete",
    "manager-before-end",  # written, and the node that its task is connected to dies before it asks to prepare it
    "manager-after-end",  # prepared, and the task has not heard
]


class Driver:
    """Of one query: a run plans a batch, its tasks write it, and it commits it; each from the names alone."""

    def __init__(self, cluster: Cluster, log: str) -> None:
        self.cluster, self.log = cluster, log
        self.replayed = 0

    def group(self, batch: int, run: str) -> TransactionGroup:
        return TransactionGroup(self.cluster.addresses, writer=WRITER, batch=batch, run=run)

    async def write(self, batch: int) -> str:
        """Until it is committed, by as many runs as that takes. The last run."""
        for _ in range(TRIES):
            run = uuid.uuid4().hex
            try:
                if await self._once(batch, run):
                    return run
            except HoldfastError:
                self.replayed += 1
        raise AssertionError(f"batch {batch} cannot be committed")

    async def _once(self, batch: int, run: str) -> bool:
        async with self.group(batch, run) as planning:
            if await planning.open() == "already done":
                return True
        winners = await asyncio.gather(*(self.part(batch, run, part) for part in PARTS))
        async with self.group(batch, run) as committing:
            await committing.commit(winners)
        return True

    async def part(self, batch: int, run: str, part: str) -> str:
        """Attempts, until one is prepared."""
        failed: HoldfastError | None = None
        for attempt in range(TRIES):
            try:
                return await self.attempt(batch, run, part, str(attempt))
            except GroupFencedError:
                raise
            except HoldfastError as error:
                failed = error
        assert failed is not None
        raise failed

    async def attempt(self, batch: int, run: str, part: str, attempt: str) -> str:
        async with (
            ProducerClient(self.cluster.addresses, self.log) as producer,
            self.group(batch, run) as group,
            group.member(producer, part=part, attempt=attempt) as member,
        ):
            for partition in range(PARTITIONS):
                await member.send(f"{batch}-{part}", partition=str(partition))
            return await member.prepare()

    def judge(self, batches: int) -> None:
        """Each part of each batch is in each partition once, and nothing else is."""
        expected = {f"{batch}-{part}": 1 for batch in range(batches) for part in PARTS}
        for partition in map(str, range(PARTITIONS)):
            assert read(self.cluster, self.log, partition) == expected, f"partition {partition}"


def read(cluster: Cluster, log: str, partition: str) -> dict[str, int]:
    start, options = Start.earliest(), ConsumerOptions(until_end=True)
    given: dict[str, Any] = {"start": start, "partitions": [partition], "options": options}
    with sync.ConsumerClient(cluster.addresses, log, **given) as consumer:
        return dict(Counter(bytes(event.body).decode() for event in consumer))


def test_a_crash_between_any_two_steps_writes_each_batch_once(
    tmp_path: Path, make_cluster: Callable[..., Cluster]
) -> None:
    directory = tmp_path / "crash-points"
    directory.mkdir()
    cluster = make_cluster(crash_points=directory)
    cluster.start()
    driver = Driver(cluster, cluster.create("trades", partitions=PARTITIONS))
    cluster.wait_settled(driver.log)

    async def story() -> None:
        await driver.write(0)
        for batch, point in enumerate(POINTS, start=1):
            (directory / point).touch()
            crossed = asyncio.ensure_future(driver.write(batch))
            dead = await asyncio.to_thread(cluster.wait_any_exit)
            run = await crossed
            async with driver.group(batch, run) as again:  # the driver died before it noted that
                await again.commit([])
                assert await again.open() == "already done", point
            await asyncio.to_thread(cluster.start, dead)
            await asyncio.to_thread(driver.judge, batch + 1)

    asyncio.run(story())


# ---------------------------------------------------------------- tasks that hang


class Task:
    def __init__(self, arguments: list[str]) -> None:
        module = "tests.integration.transactions.task"
        program = [sys.executable, "-m", module, *arguments]
        self.process = child_processes.spawn(
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]
        )

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def prepare(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def tasks() -> Iterator[list[Task]]:
    started: list[Task] = []
    yield started
    for task in started:
        task.end()


def test_a_task_that_hangs_holds_readers_for_no_longer_than_its_lease(cluster: Cluster, tasks: list[Task]) -> None:
    """Its process stands still, with its connection open; another attempt of its part wins; when it comes back it is
    refused, and what it wrote is nobody's."""
    driver = Driver(cluster, cluster.create("trades", partitions=PARTITIONS))
    cluster.wait_settled(driver.log)
    writer = f"{WRITER}-{uuid.uuid4().hex[:8]}"
    with sync.TransactionGroup(cluster.addresses, writer=writer, batch=0, run="r") as group:
        assert group.open() == "opened"
        hanging, healthy = (started(tasks, driver, writer, attempt) for attempt in ("0", "1"))
        assert hanging.hear() == healthy.hear() == {"written": True}
        hanging.process.send_signal(signal.SIGSTOP)
        with sync.ProducerClient(cluster.addresses, driver.log) as producer:
            for partition in range(PARTITIONS):
                producer.send_and_confirm("plain", partition=str(partition))
        wait_until(lambda: state_of(group, "0") == "aborted", "the hanging member lost its lease")
        assert state_of(group, "1") == "joined", "it has sent nothing either, and its process lives"
        healthy.prepare()
        group.commit([healthy.hear()["member"]])
        for partition in map(str, range(PARTITIONS)):
            assert read(cluster, driver.log, partition) == {"plain": 1, "0-0-1": 1}
        hanging.process.send_signal(signal.SIGCONT)
        hanging.prepare()
        assert hanging.hear()["error"] in ("TransactionRolledBackError", "GroupFencedError")
    for partition in map(str, range(PARTITIONS)):
        assert read(cluster, driver.log, partition) == {"plain": 1, "0-0-1": 1}


def started(tasks: list[Task], driver: Driver, writer: str, attempt: str) -> Task:
    arguments = [*driver.cluster.addresses, driver.log, writer, "0", "r", "0", attempt]
    task = Task(arguments)
    tasks.append(task)
    return task


def state_of(group: sync.TransactionGroup, attempt: str) -> str:
    return str(next(one["state"] for one in group.describe()["group_members"] if one["attempt"] == attempt))
