"""Consumers that divide a log's partitions through a real ZooKeeper, as processes that leave, die, hang and come back.

What they saw is judged by the same history as that of other groups (`group_history.py`): never two owners, nothing
skipped, nothing that was committed comes again. Epochs are judged here.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.conftest import number_from
from tests.integration.consumer_groups.test_group_faults import Group, Publisher, group  # noqa: F401 - a fixture
from tests.integration.judges.group_history import GroupJudgement, check
from tests.zookeeper import LoopbackZooKeeper, missing

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(bool(missing()), reason=missing())]

PARTITIONS = 6
SESSION_S = 2.0
SECONDS = number_from("HOLDFAST_GROUP_SECONDS", 12)
SEED = number_from("HOLDFAST_SEED", random.SystemRandom().randrange(1 << 32))


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[LoopbackZooKeeper]:
    server = LoopbackZooKeeper(tmp_path / "zookeeper")
    server.start()
    yield server
    server.kill()


class Story:
    """A log, somebody who publishes to it, and members who read it."""

    def __init__(
        self, cluster: Cluster, zookeeper: LoopbackZooKeeper, log: str, make: Callable[..., Group], *more: str
    ) -> None:
        self.cluster, self.log = cluster, cluster.create(log, PARTITIONS)
        everywhere = [cluster.address(node) for node in cluster.nodes]
        ownership = ("--ownership", f"zk://{zookeeper.address}/owners", "--session-s", str(SESSION_S))
        self.members = make(everywhere, log, *ownership, *more)
        self.publisher = Publisher(everywhere, log, PARTITIONS)

    def owners(self) -> dict[str, tuple[str, int]]:
        """Partition -> who has it, by its own word, and by which epoch."""
        now: dict[str, tuple[str, int]] = {}
        for fact in self.members.facts():
            partition, who = str(fact.get("partition")), str(fact["who"])
            if fact["what"] == "assigned":
                now[partition] = who, int(str(fact["epoch"]))
            elif fact["what"] == "revoked" and now.get(partition, ("", 0))[0] == who:
                del now[partition]
        return now

    def of(self, who: str) -> dict[str, int]:
        return {partition: epoch for partition, (owner, epoch) in self.owners().items() if owner == who}

    def wait_shared(self, *wanted: int) -> None:
        """Until the living have so many each, and no partition is without one."""

        def fair() -> bool:
            self.members.check_alive()
            return sorted(len(self.of(who)) for who in self.members.running) == sorted(wanted)

        assert sum(wanted) == PARTITIONS
        wait_until(fair, f"shares of {wanted}")

    def wait_progress(self, events: int = 50) -> None:
        """Each partition goes on."""
        before = self._reached()

        def on() -> bool:
            now = self._reached()
            return all(now[name] >= before[name] + events for name in now)

        wait_until(on, f"{events} more events of every partition")

    def _reached(self) -> dict[str, int]:
        reached = {str(number): 0 for number in range(PARTITIONS)}
        for fact in self.members.history():
            reached[fact.partition] = max(reached[fact.partition], fact.last + 1)
        return reached

    def judge(self) -> GroupJudgement:
        """When everything that was published has been read."""
        self.publisher.finish()
        stored = {name: int(info.details["next-offset"], 16) for name, info in self.cluster.info(self.log).items()}

        def everything() -> bool:
            self.members.check_alive()
            return self._reached() == stored

        try:
            wait_until(everything, f"all of {stored} to be got")
        finally:
            self.members.end()
            judgement = check(self.members.history(), stored)
            print(f"{self.members.lives} members in all; {sum(stored.values())} events; {judgement}")
        self._check_epochs()
        return judgement

    def _check_epochs(self) -> None:
        """Of a partition: each claim that is another member's has a greater one."""
        last: dict[str, tuple[str, int]] = {}
        for fact in self.members.facts():
            if fact["what"] == "assigned":
                partition, who, epoch = str(fact["partition"]), str(fact["who"]), int(str(fact["epoch"]))
                before = last.get(partition, ("", 0))
                assert epoch > before[1] or (epoch == before[1] and who == before[0]), f"{fact} after {before}"
                last[partition] = who, epoch


@pytest.fixture
def story(
    own_cluster: Cluster,
    zookeeper: LoopbackZooKeeper,
    log_name: str,
    group: Callable[..., Group],  # noqa: F811
) -> Callable[..., Story]:
    return lambda *more: Story(own_cluster, zookeeper, log_name, group, *more)


@pytest.mark.timeout(600)
def test_members_come_and_go_in_peace_and_no_event_comes_twice(story: Callable[..., Story]) -> None:
    tale = story()
    first, *_ = [tale.members.add() for _ in range(3)]
    tale.wait_shared(2, 2, 2)
    tale.wait_progress()
    tale.members.add()
    tale.wait_shared(2, 2, 1, 1)
    tale.wait_progress()
    left = tale.of(first)
    assert left
    tale.members.dismiss(first)
    tale.wait_shared(2, 2, 2)
    tale.wait_progress()
    now = tale.owners()
    assert all(now[partition][1] > epoch for partition, epoch in left.items())
    judgement = tale.judge()
    assert judgement.changes >= 1 + len(left), "one for the fourth member, and all that the first one had"
    assert judgement.repeated == 0


@pytest.mark.timeout(600)
def test_who_was_killed_is_replaced_when_its_session_is_over_with_greater_epochs(story: Callable[..., Story]) -> None:
    tale = story()
    victim, *_ = [tale.members.add() for _ in range(3)]
    tale.wait_shared(2, 2, 2)
    tale.wait_progress()
    before = tale.of(victim)
    tale.members.kill(victim)
    tale.wait_shared(3, 3)
    tale.wait_progress()
    now = tale.owners()
    assert all(now[partition][1] > epoch for partition, epoch in before.items())
    tale.judge()


@pytest.mark.timeout(600)
def test_an_owner_that_hung_and_was_replaced_can_neither_commit_nor_read_on(story: Callable[..., Story]) -> None:
    """Stopped in the midst of its work, with events received and not yet handed out."""
    tale = story("--work-s", "0.15")
    victim, *_ = [tale.members.add() for _ in range(3)]
    tale.wait_shared(2, 2, 2)
    tale.wait_progress()
    process, at_work = tale.members.running[victim], None
    while at_work is None:
        process.send_signal(signal.SIGSTOP)
        own = [fact for fact in tale.members.facts() if fact["who"] == victim]
        if own[-1]["what"] == "got":
            at_work = own[-1]
        else:
            process.send_signal(signal.SIGCONT)
            time.sleep(0.02)  # until it has got something else
    before = tale.of(victim)
    others = set(tale.members.running) - {victim}
    wait_until(lambda: {tale.owners()[partition][0] for partition in before} <= others, "its partitions to be taken")
    tale.wait_progress(10)
    process.send_signal(signal.SIGCONT)

    def refused() -> bool:
        own = tale.members.facts()
        said = [fact for fact in own if fact["who"] == victim and fact["what"] == "refused"]
        return any(fact["partition"] == at_work["partition"] and fact["claim"] == at_work["claim"] for fact in said)

    wait_until(refused, "its commit to be refused")
    tale.wait_shared(2, 2, 2)
    tale.wait_progress(10)
    judgement = tale.judge()
    assert judgement.changes >= 2


class Trouble:
    """What happens to members, nodes and ZooKeeper, by chance, one thing after the other."""

    def __init__(self, tale: Story, zookeeper: LoopbackZooKeeper, chance: random.Random) -> None:
        self.count = Counter[str]()
        self._tale, self._zookeeper, self._chance = tale, zookeeper, chance

    def work_for(self, seconds: float) -> Counter[str]:
        kinds = [self._kill, self._kill, self._hang, self._hang, self._leave, self._lose_zookeeper, self._lose_node]
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            for kind in self._chance.sample(kinds, len(kinds)):
                self._tale.members.check_alive()
                kind()
                self.count[kind.__name__.strip("_")] += 1
                time.sleep(self._chance.uniform(0.2, 1.0))
        return self.count

    def _anybody(self) -> str:
        return self._chance.choice(sorted(self._tale.members.running))

    def _kill(self) -> None:
        self._tale.members.kill(self._anybody())
        self._tale.members.add()

    def _leave(self) -> None:
        self._tale.members.dismiss(self._anybody())
        self._tale.members.add()

    def _hang(self) -> None:
        """Long enough to be replaced, or not."""
        process = self._tale.members.running[self._anybody()]
        process.send_signal(signal.SIGSTOP)
        time.sleep(self._chance.uniform(0.5, 2.5) * SESSION_S)
        process.send_signal(signal.SIGCONT)

    def _lose_zookeeper(self) -> None:
        self._zookeeper.kill()
        time.sleep(self._chance.uniform(0.1, 1.5) * SESSION_S)
        self._zookeeper.start()

    def _lose_node(self) -> None:
        node = self._chance.choice(sorted(self._tale.cluster.nodes))
        self._tale.cluster.kill(node)
        time.sleep(self._chance.uniform(0.0, 1.5))
        self._tale.cluster.start(node)


@pytest.mark.slow
@pytest.mark.skipif(
    "HOLDFAST_GROUP_SECONDS" not in os.environ, reason="part of `make soak` (HOLDFAST_GROUP_SECONDS=60 runs it)"
)
@pytest.mark.timeout(600 + 6 * SECONDS)
def test_never_two_owners_whatever_happens(story: Callable[..., Story], zookeeper: LoopbackZooKeeper) -> None:
    """Seeded: HOLDFAST_SEED replays the same troubles (their timing is the machine's)."""
    print(f"HOLDFAST_SEED={SEED}")
    tale = story()
    for _ in range(4):
        tale.members.add()
    tale.wait_shared(2, 2, 1, 1)
    tale.wait_progress()
    count = Trouble(tale, zookeeper, random.Random(SEED)).work_for(SECONDS)
    tale.wait_shared(2, 2, 1, 1)
    judgement = tale.judge()
    print(dict(count))
    assert judgement.changes >= 3
