"""Trades in, volumes out, exactly once: workers and nodes are killed, and workers that were replaced come back to life.

The draw is seeded; a failure shows the seed, and HOLDFAST_SEED replays the same faults (their timing is the machine's).
"""

from __future__ import annotations

import csv
import gzip
import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from holdfast.amqp import offset_text
from holdfast.cli.commands.demo import DEFAULT_FILE as FILE
from holdfast.cli.local_cluster import child_processes
from holdfast.client import ConsumerOptions, ProducerOptions, Start, sync
from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.conftest import number_from
from tests.integration.transactions.worker import HOLDS
from tests.integration.workloads.beside import Beside

pytestmark = pytest.mark.cluster

SECONDS = number_from("HOLDFAST_TRANSACTION_SECONDS", 10)
EVENTS_A_TICK, TICK_S = 80, 0.1
SEED = number_from("HOLDFAST_SEED", random.SystemRandom().randrange(1 << 32))
ENOUGH = {"node killed": 1, "worker killed": 2, "zombie": 1}
"""Fewer prove nothing."""
PARTITIONS = 4
WORKERS = 4
TIMEOUT_S = 10
"""Of the workers' transactions."""


def trades() -> Iterator[tuple[str, int]]:
    with gzip.open(FILE, "rt") as file:
        rows = csv.reader(file)
        next(rows)
        for _, symbol, _, size, *_ in rows:
            yield symbol, int(size)


class Publisher(Beside):
    """Writes trades into all partitions, each once, until it is told to stop."""

    def __init__(self, servers: list[str], log: str) -> None:
        super().__init__("publisher")
        self._servers, self._log = servers, log
        self.volume: dict[str, int] = defaultdict(int)
        self.ends: dict[str, int] = dict.fromkeys(map(str, range(PARTITIONS)), 0)

    def _main(self) -> None:
        rows = trades()
        with sync.ProducerClient(self._servers, self._log, ProducerOptions(idempotent=True)) as producer:
            while not self._over.wait(TICK_S):
                for symbol, size in islice(rows, EVENTS_A_TICK):
                    partition = str(sum(self.ends.values()) % PARTITIONS)
                    producer.send(f"{symbol},{size}".encode(), partition=partition)
                    self.ends[partition] += 1
                    self.volume[symbol] += size
                producer.flush()

    def finish(self) -> None:
        self.let_go()
        self.join(120)


class Workers:
    """Processes by name; a zombie is a stopped one that was replaced under its own name, and goes on later."""

    def __init__(self, cluster: Cluster, source: str, target: str, directory: Path) -> None:
        self._given = [*cluster.addresses, source, target]
        self._directory = directory
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.zombies: list[tuple[float, subprocess.Popen[bytes]]] = []
        self.awake: list[subprocess.Popen[bytes]] = []

    def start(self, name: str) -> None:
        command = [sys.executable, "-m", "tests.integration.transactions.worker", *self._given, name]
        with (self._directory / f"{name}.log").open("ab") as log:
            self.running[name] = child_processes.spawn(
                command, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL, cwd=Path(__file__).parents[3]
            )

    def kill(self, name: str) -> None:
        process = self.running.pop(name)
        process.kill()
        process.wait()
        self.start(name)

    def stop_and_replace(self, name: str, for_s: float) -> bool:
        """False: it has not had its name yet, and whoever takes that last has it."""
        process = self.running[name]
        if f"{process.pid} {HOLDS} {name}\n" not in (self._directory / f"{name}.log").read_text():
            return False
        del self.running[name]
        process.send_signal(signal.SIGSTOP)
        self.zombies.append((time.monotonic() + for_s, process))
        self.start(name)
        return True

    def wake_zombies(self, *, all_of_them: bool = False) -> None:
        for item in list(self.zombies):
            if all_of_them or time.monotonic() >= item[0]:
                self.zombies.remove(item)
                item[1].send_signal(signal.SIGCONT)
                self.awake.append(item[1])

    @property
    def fenced(self) -> int:
        """Zombies that were told so; one that has nothing to read does not ask."""
        return sum(process.poll() == 0 for process in self.awake)

    def check(self) -> None:
        for name, process in self.running.items():
            said = (self._directory / f"{name}.log").read_text()
            assert process.poll() is None, f"{name} ended by itself:\n{said}"
            assert "Traceback" not in said, f"{name} complains:\n{said}"

    def end(self) -> None:
        for process in [*self.running.values(), *self.awake, *(process for _, process in self.zombies)]:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
        self.running.clear()


def disturb(cluster: Cluster, workers: Workers, chance: random.Random) -> Counter[str]:
    """Until the time is over and enough has happened."""
    happened: Counter[str] = Counter()
    until_s = time.monotonic() + SECONDS
    down: tuple[int, float] | None = None

    def over() -> bool:
        return time.monotonic() >= until_s and all(happened[kind] >= count for kind, count in ENOUGH.items())

    while not over() or down is not None:
        time.sleep(chance.uniform(0.2, 1.0))
        workers.check()
        workers.wake_zombies()
        if down is not None and time.monotonic() >= down[1]:
            cluster.start(down[0])
            down = None
        elif down is None and chance.random() < 0.3:
            node = chance.choice(cluster.running)
            cluster.kill(node)
            down = (node, time.monotonic() + chance.uniform(0.5, 3.0))
            happened["node killed"] += 1
        elif chance.random() < 0.6:
            workers.kill(chance.choice(sorted(workers.running)))
            happened["worker killed"] += 1
        elif not workers.zombies:
            name, for_s = chance.choice(sorted(workers.running)), chance.uniform(2.0, 2.0 * TIMEOUT_S)
            happened["zombie"] += workers.stop_and_replace(name, for_s)
    workers.wake_zombies(all_of_them=True)
    return happened


def read_all(cluster: Cluster, log: str, isolation: str) -> list[dict[str, Any]]:
    start, options = Start.earliest(), ConsumerOptions(until_end=True)
    with sync.ConsumerClient(cluster.addresses, log, start=start, isolation=isolation, options=options) as consumer:
        return [json.loads(bytes(event.body)) for event in consumer]


def test_each_trade_is_counted_once_whoever_dies(own_cluster: Cluster, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    cluster = own_cluster
    source, target = (cluster.create(name, partitions=PARTITIONS) for name in ("trades", "volumes"))
    cluster.wait_settled(source)
    cluster.wait_settled(target)
    publisher = Publisher(cluster.addresses, source)
    publisher.begin()

    def all_counted() -> bool:
        group = cluster.call(lambda admin: admin.describe_group(source, "volumes"))
        return all(
            one["committed_offset"] == offset_text(publisher.ends[one["partition"]] - 1) for one in group["partitions"]
        )

    workers = Workers(cluster, source, target, tmp_path)
    try:
        for number in range(WORKERS):
            workers.start(f"worker-{number}")
        happened = disturb(cluster, workers, chance)
        publisher.finish()
        wait_until(all_counted, "every trade is counted")
    finally:
        workers.end()
    wait_until(lambda: nothing_open(cluster, target), "no transaction is open", TIMEOUT_S + 10 + 120)
    committed = read_all(cluster, target, "committed")
    context = f"seed {SEED}, {dict(happened)}, {sum(publisher.ends.values())} trades, fenced {workers.fenced}"
    judge(committed, publisher.ends, dict(publisher.volume), context)
    everything = read_all(cluster, target, "uncommitted")
    print(f"{context}; {len(everything)} events written, {len(everything) - len(committed)} of them were rolled back")


def nothing_open(cluster: Cluster, log: str) -> bool:
    return all(info.open_transactions == 0 for info in cluster.info(log).values())


def judge(found: list[dict[str, Any]], ends: dict[str, int], expected: dict[str, int], context: str) -> None:
    counted = Counter((str(partition), offset) for one in found for partition, offset in one["of"])
    doubled = [place for place, times in counted.items() if times > 1]
    lost = [(name, offset) for name, end in ends.items() for offset in range(end) if (name, offset) not in counted]
    assert not doubled, f"{len(doubled)} counted twice, {doubled[:5]}; {context}"
    assert not lost, f"{len(lost)} not counted, {lost[:5]}; {context}"
    volume: dict[str, int] = defaultdict(int)
    for one in found:
        volume[one["symbol"]] += one["volume"]
    assert dict(volume) == expected, context
