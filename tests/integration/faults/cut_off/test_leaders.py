"""A leader of real nodes that cannot hear, cannot be heard, or neither: it is replaced, and answers nothing any more.

The same is shown on a virtual clock, for any number of schedules (`tests/simulation`); what is real here is the way
between the nodes. How long it took is told, not asserted: 1.5 s until a leader that sends without hearing is replaced,
and two election timeouts until a leader that is cut off says nothing, are promises for a machine that has time.
"""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest

from holdfast.client.errors import HoldfastError
from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.clusters.cuts import PeerWays
from tests.integration.workloads.plain import read, send

pytestmark = pytest.mark.cluster

QUESTION_S = 1.0
"""Longer than an answer takes that is given at all."""

ANSWERS_BEFORE = 5
"""The leader answers questions before it is cut off: the test would notice if it went on."""

QUESTIONS_AFTER = 3

SAYS = re.compile(
    r"^(?P<at>\S+ \S+) INFO \S+ group (?P<group>\d+) at node \d+: (?P<what>leads|steps down in) term", re.MULTILINE
)


@dataclass(frozen=True)
class Answer:
    asked_s: float
    latest_offset: int


class Questioner:
    """Asks one node, and no other, how far the only partition of a log reaches, over and over."""

    def __init__(self, cluster: Cluster, node: int, log: str) -> None:
        self.answers: list[Answer] = []
        self.asked = 0
        self._cluster, self._server, self._log = cluster, cluster.address(node), log
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._main, name="questioner", daemon=True)
        self._failure: BaseException | None = None

    def __enter__(self) -> Questioner:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(30.0)
        assert not self._thread.is_alive()
        if self._failure is not None:
            raise self._failure

    def _main(self) -> None:
        try:
            while not self._over.wait(0.02):
                self._ask()
        except BaseException as error:  # noqa: BLE001 - raised at the end of the block
            self._failure = error

    def _ask(self) -> None:
        asked_s = time.time()
        try:
            infos = self._cluster.call(lambda admin: admin.log_info(self._log), [self._server], timeout_s=QUESTION_S)
        except HoldfastError as error:
            if not error.retriable:
                raise
        else:
            self.answers += [Answer(asked_s, int(i.latest_offset or "0", 16)) for i in infos if i.available]
        self.asked += 1


def said(cluster: Cluster, node: int, group: int, what: str, after_s: float) -> float | None:
    """When the node said so for the first time after that moment."""
    for found in SAYS.finditer(cluster.log(node)):
        at_s = datetime.strptime(found["at"], "%Y-%m-%d %H:%M:%S,%f").timestamp()
        if (int(found["group"]), found["what"]) == (group, what) and at_s >= after_s:
            return at_s
    return None


def first_to_say(cluster: Cluster, nodes: list[int], group: int, what: str, after_s: float) -> float:
    def found() -> float | None:
        times = [at_s for node in nodes if (at_s := said(cluster, node, group, what, after_s)) is not None]
        return min(times, default=None)

    return float(wait_until(found, f"one of the nodes {nodes} to say that it {what} a term of group {group}"))


@pytest.mark.parametrize(
    ("hears", "is_heard"), [(False, True), (True, False), (False, False)], ids=["sends only", "hears only", "isolated"]
)
def test_a_leader_that_is_cut_off_is_replaced_and_says_nothing_any_more(
    ways: tuple[Cluster, PeerWays], log_name: str, measured: Any, hears: bool, is_heard: bool
) -> None:
    cluster, between = ways
    cluster.create(log_name, 1)
    group = int(cluster.describe(log_name)["partitions"][0]["group"])
    old = cluster.leaders(log_name)["0"]
    others = [node for node in cluster.nodes if node != old]
    before = [f"before {number}" for number in range(20)]
    send(cluster.address(old), log_name, before, "0")
    with Questioner(cluster, old, log_name) as questioner:
        wait_until(lambda: len(questioner.answers) >= ANSWERS_BEFORE, "the leader to answer while all is well")
        cutting_s = time.time()
        with between.cut(old, hears=hears, is_heard=is_heard):
            cut_s = time.time()
            replaced_s = first_to_say(cluster, others, group, "leads", cutting_s) - cutting_s
            stepped_down_s = first_to_say(cluster, [old], group, "steps down in", cutting_s) - cutting_s
            send(cluster.address(others[0], "never"), log_name, ["after the cut"], "0")
            asked = questioner.asked
            wait_until(lambda: questioner.asked >= asked + QUESTIONS_AFTER, "more questions to the one that is cut off")
    without = [answer.asked_s for answer in questioner.answers if answer.latest_offset < len(before)]
    assert max(without) <= cut_s, "the leader that was cut off has answered, though nobody could confirm it"
    kind = "sends only" if is_heard else "hears only" if hears else "isolated"
    measured(
        f"a leader that is cut off ({kind}): replaced after {replaced_s:.2f} s, stepped down after "
        f"{stepped_down_s:.2f} s; its last answer was to a question of {max(without) - cutting_s:+.2f} s after the cut"
    )
    servers = [cluster.address(old)]
    wait_until(
        lambda: all(node["up"] for node in cluster.call(lambda admin: admin.list_nodes(), servers)),
        "the one that was cut off to be in touch again",
    )
    cluster.wait_led(log_name)
    found = [event.body for event in read(cluster.address(old, "never"), log_name, len(before) + 1, "0")]
    assert found == [*before, "after the cut"]
