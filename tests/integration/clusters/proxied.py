"""Programs that reach a cluster through proxies, and what goes wrong on the way. See `chaos/proxies.py`."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chaos.proxies import HOW_TO_GET, ProxyServer, Way, find_server
from holdfast.client.errors import HoldfastError
from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.workloads.beside import Beside
from tests.integration.workloads.holdfast_producer import HoldfastProducer

STORED_UNHEARD = 8
"""Events that are stored while their answers are swallowed, before the connection ends. Each is sent again. Our client
sends so many without an answer: it has up to sixteen batches unanswered, each of one event or more."""

PATIENCE_S = 15.0
"""For that, and for the producer to be quiet before. The leader may be killed meanwhile: then it has not happened."""


@contextlib.contextmanager
def proxy_server(directory: Path) -> Iterator[ProxyServer]:
    """Skips the test where there is none."""
    pytest.importorskip("toxiproxy", reason="toxiproxy-python is not installed: pip install -e '.[dev]'")
    program = find_server()
    if program is None:
        pytest.skip(f"there is no Toxiproxy server: {HOW_TO_GET}")
    with ProxyServer(program, directory / "toxiproxy.log") as server:
        yield server


class Ways:
    """From the clients of two listeners to each node; the nodes hand out no other address to them."""

    LISTENERS = ("default", "never")

    def __init__(self, server: ProxyServer, cluster: Cluster) -> None:
        self.by_listener: dict[str, dict[int, Way]] = {}
        for listener in self.LISTENERS:
            ways = {node: server.way(f"{listener}-{node}", cluster.address(node, listener)) for node in cluster.nodes}
            self.by_listener[listener] = ways
            cluster.hand_out(listener, {node: way.address for node, way in ways.items()})

    def addresses(self, listener: str) -> list[str]:
        return [way.address for way in self.by_listener[listener].values()]

    @property
    def all(self) -> list[Way]:
        return [way for ways in self.by_listener.values() for way in ways.values()]


class Mishaps(Beside):
    """What goes wrong with connections, one after the other, by chance; on a thread of its own until `finish`.

    `stored(partition)` counts the events of a partition, asked of the nodes by another way; `producers` by the
    listener that they produce through, with the partition: each sends more than STORED_UNHEARD events without waiting
    for an answer."""

    def __init__(
        self,
        ways: Ways,
        chance: random.Random,
        producers: dict[str, tuple[str, HoldfastProducer]],
        stored: Callable[[str], int],
    ) -> None:
        super().__init__("mishaps")
        self.count = Counter[str]()
        self._ways, self._chance, self._producers, self._stored = ways, chance, producers, stored
        self._kinds: list[Callable[[], str]] = [
            self._lose_answers,
            self._lose_answers,  # what this is about
            self._lose_events,
            self._reset,
            self._refuse,
            self._cut_frames,
            self._freeze,
        ]

    def finish(self) -> Counter[str]:
        """Every way is whole again."""
        self.let_go()
        self.join(30)
        return self.count

    def _main(self) -> None:
        while not self._over.is_set():
            for kind in self._chance.sample(self._kinds, len(self._kinds)):
                self.count[kind()] += 1
                if self._over.wait(self._chance.uniform(0.1, 0.5)):
                    return

    def _some(self) -> Way:
        return self._chance.choice(self._ways.all)

    def _for(self, most_s: float) -> None:
        self._over.wait(self._chance.uniform(0.05, most_s))

    def _lose_answers(self) -> str:
        """Until events are stored for which nobody heard an answer; then the connections end.

        The producer is quiet before: else what it may have unanswered could be stored before anybody counted."""
        listener = self._chance.choice(Ways.LISTENERS)
        partition, producer = self._producers[listener]
        with producer.paused(PATIENCE_S) as is_quiet, contextlib.ExitStack() as broken:
            if not is_quiet:
                return "answers lost, perhaps"
            goal = self._stored(partition) + STORED_UNHEARD
            for way in self._ways.by_listener[listener].values():
                broken.enter_context(way.swallowing("downstream"))
            producer.go_on()
            return "answers lost" if self._until_stored(partition, goal) else "answers lost, perhaps"

    def _until_stored(self, partition: str, goal: int) -> bool:
        deadline_s = time.monotonic() + PATIENCE_S
        while self._stored(partition) < goal:
            if time.monotonic() > deadline_s:
                return False
            self._over.wait(0.01)
        return True

    def _lose_events(self) -> str:
        with self._some().swallowing("upstream"):
            self._for(0.4)
        return "events lost"

    def _reset(self) -> str:
        with self._some().resetting():
            self._for(0.4)
        return "connections reset"

    def _refuse(self) -> str:
        with self._some().refusing():
            self._for(0.4)
        return "connections refused"

    def _cut_frames(self) -> str:
        direction = self._chance.choice(("upstream", "downstream"))
        with self._some().cutting_after(self._chance.randint(1, 60_000), direction):
            self._for(0.4)
        return f"cut in the midst of a frame, {direction}"

    def _freeze(self) -> str:
        direction = self._chance.choice(("upstream", "downstream"))
        with self._some().frozen(direction):
            self._for(1.0)
        return f"frozen, {direction}"


class Assassin:
    """Kills the leader of a partition by chance every so many seconds, and lets it come back a while later."""

    def __init__(self, cluster: Cluster, log: str, chance: random.Random, every_s: float) -> None:
        self.kills = 0
        self._cluster, self._log, self._chance, self._every_s = cluster, log, chance, every_s

    def work_for(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        next_s = time.monotonic() + self._every_s / 2
        while next_s < end_s:
            time.sleep(max(0.0, next_s - time.monotonic()))
            leaders = self._cluster.leaders(self._log)
            victim = leaders[self._chance.choice(sorted(leaders))]
            self._cluster.kill(victim)
            self.kills += 1
            time.sleep(self._chance.uniform(0.0, self._every_s / 2))
            self._cluster.start(victim)
            next_s += self._every_s
        time.sleep(max(0.0, end_s - time.monotonic()))


def stored_in(cluster: Cluster, log: str) -> Callable[[str], int]:
    """How many events a partition holds, by its leader's own word, asked past the proxies."""

    def ask(partition: str) -> list[int]:
        try:
            infos = cluster.call(lambda admin: admin.log_info(log), cluster.addresses)
        except HoldfastError as error:
            if not error.retriable:
                raise
            return []
        return [int(info.details["events"]) for info in infos if info.partition == partition and info.available]

    def count(partition: str) -> int:
        return int(wait_until(lambda: ask(partition), f"the leader of partition {partition} to be asked")[0])

    return count
