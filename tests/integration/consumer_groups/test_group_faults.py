"""More members than partitions, and anybody may be killed at any moment: the promises of consumer groups hold.

The draw is seeded; a failure shows the seed, and HOLDFAST_SEED replays the same faults (their timing is the machine's).
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.client import HoldfastError, ProducerOptions, UndeliveredError, sync
from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.conftest import number_from
from tests.integration.judges.group_history import Fact, check
from tests.integration.workloads.beside import Beside

pytestmark = pytest.mark.cluster

SECONDS = number_from("HOLDFAST_GROUP_SECONDS", 12)
ENOUGH = {"node": 1, "member": 3}
"""Fewer kills prove nothing."""
SEED = number_from("HOLDFAST_SEED", random.SystemRandom().randrange(1 << 32))
PARTITIONS = 10
MEMBERS = 12
EVENTS_A_TICK, TICK_S = 40, 0.05
GROUP = "workers"
LEAVE_WITHIN_S = 90.0


class Publisher(Beside):
    """Adds events to all partitions until it is told to stop."""

    def __init__(self, servers: list[str], log: str, partitions: int = PARTITIONS) -> None:
        super().__init__("publisher")
        self._servers, self._log, self._partitions = servers, log, partitions
        self.begin()

    def _main(self) -> None:
        options = ProducerOptions(after_failure="continue")
        with sync.ProducerClient(self._servers, self._log, options) as producer:
            turn = 0
            while not self._over.wait(TICK_S):
                for _ in range(EVENTS_A_TICK):
                    turn += 1
                    producer.send(b"x" * 100, partition=str(turn % self._partitions))
                try:
                    producer.flush()
                except HoldfastError as error:  # what is there counts, not what was wanted
                    if not (error.retriable or isinstance(error, UndeliveredError)):
                        raise

    def finish(self) -> None:
        self.let_go()
        self.join(60)


class Group:
    """Processes; one that is killed has a successor with another name. `more`: their options."""

    def __init__(self, servers: list[str], log: str, directory: Path, *more: str) -> None:
        self._servers, self._log, self._directory, self._more = servers, log, directory, more
        self.path = directory / "history"
        self.path.touch()
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.lives = 0
        self._facts: list[dict[str, object]] = []
        self._judged: list[Fact] = []
        self._read_bytes = 0

    def add(self) -> str:
        self.lives += 1
        who = f"m{self.lives}"
        program = [sys.executable, "-m", "tests.integration.workloads.group_member", *self._more]
        given = [str(self.path), who, self._log, GROUP, *self._servers]
        with (self._directory / f"{who}.log").open("wb") as log:
            self.running[who] = subprocess.Popen([*program, *given], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        return who

    def kill(self, who: str) -> None:
        process = self.running.pop(who)
        process.kill()
        process.wait()

    def dismiss(self, who: str) -> None:
        """It is asked to leave."""
        process = self.running.pop(who)
        process.terminate()
        ended = process.wait(LEAVE_WITHIN_S)
        # Asked before it listens for that, it simply ends.
        assert ended in (0, -signal.SIGTERM), (ended, (self._directory / f"{who}.log").read_text())

    def end(self) -> None:
        for who in list(self.running):
            self.kill(who)

    def check_alive(self) -> None:
        for who, process in self.running.items():
            said = (self._directory / f"{who}.log").read_text()
            assert process.poll() is None, f"{who} ended by itself:\n{said}"
            assert "Traceback" not in said, f"{who} complains:\n{said}"

    def facts(self) -> list[dict[str, object]]:
        """The last line may be half written, by a process that was killed. Asked again and again while one waits: what
        was read before is not read again."""
        with self.path.open("rb") as file:
            file.seek(self._read_bytes)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        for line in whole.splitlines():
            fact = json.loads(line)
            self._facts.append(fact)
            if fact["what"] in ("got", "committed", "revoked"):
                self._judged.append(Fact(**fact))
        return self._facts

    def history(self) -> list[Fact]:
        self.facts()
        return self._judged


@pytest.fixture
def group(tmp_path: Path) -> object:
    made: list[Group] = []

    def make(servers: list[str], log: str, *more: str) -> Group:
        made.append(Group(servers, log, tmp_path, *more))
        return made[-1]

    yield make
    for one in made:
        one.end()


def disturb(cluster: Cluster, members: Group, chance: random.Random) -> dict[str, int]:
    """Kills until the time is over and enough was killed, however slow the machine is; what it killed."""
    killed = {"node": 0, "member": 0}
    until_s = time.monotonic() + SECONDS
    down: tuple[int, float] | None = None  # a node, and when it starts again

    def over() -> bool:
        return time.monotonic() >= until_s and all(killed[kind] >= count for kind, count in ENOUGH.items())

    while not over() or down is not None:
        time.sleep(chance.uniform(0.1, 0.8))
        members.check_alive()
        if down is not None and time.monotonic() >= down[1]:
            cluster.start(down[0])
            down = None
        if over():
            continue
        kind = chance.random()
        if kind < 0.35 and down is None:
            node = chance.choice(sorted(cluster.nodes))
            cluster.kill(node)
            killed["node"] += 1
            down = (node, time.monotonic() + chance.uniform(0.0, 2.5))
        elif kind < 0.8:
            for who in chance.sample(sorted(members.running), chance.choice([1, 1, 2])):
                members.kill(who)
                killed["member"] += 1
                members.add()
    return killed


@pytest.mark.timeout(600 + 3 * SECONDS)
def test_no_two_owners_nothing_skipped_nothing_repeated_without_reason(
    make_cluster: Callable[..., Cluster], log_name: str, group: Callable[..., Group], tmp_path: Path
) -> None:
    print(f"HOLDFAST_SEED={SEED}")
    chance = random.Random(SEED)
    cluster = make_cluster()
    cluster.start()
    cluster.create(log_name, PARTITIONS)
    everywhere = [cluster.address(node) for node in cluster.nodes]
    members = group(everywhere, log_name)
    for _ in range(MEMBERS):
        members.add()
    publisher = Publisher(everywhere, log_name)
    wait_until(lambda: len({fact.partition for fact in members.history()}) == PARTITIONS, "events of every partition")
    killed = disturb(cluster, members, chance)
    publisher.finish()
    stored = {name: int(info.details["next-offset"], 16) for name, info in cluster.info(log_name).items()}

    def everything() -> bool:
        members.check_alive()
        reached = dict.fromkeys(stored, 0)
        for fact in members.history():  # what was revoked reaches nothing
            reached[fact.partition] = max(reached[fact.partition], fact.last + 1)
        return reached == stored

    try:
        wait_until(everything, f"all of {stored} to be got")
    finally:
        members.end()
        judgement = check(members.history(), stored)
        print(f"{killed} killed; {members.lives} members in all; {sum(stored.values())} events; {judgement}")
    assert all(killed[kind] >= count for kind, count in ENOUGH.items()), killed
    assert judgement.changes >= 1  # of twelve members two own nothing, and may be those that were killed
