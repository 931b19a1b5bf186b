"""The JavaScript SDK of Event Hubs, unmodified, and its idempotent flag under kills."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.client import Start
from holdfast.client.sync import ConsumerClient
from tests.integration.clients.event_hubs.connection_strings import connection_string
from tests.integration.clients.event_hubs.floating_address import FloatingAddress
from tests.integration.clients.npm import NEEDS_NODE, installed
from tests.integration.clusters.cluster import Cluster, wait_until

HERE = Path(__file__).parent / "javascript"
WITHIN_S = 240
HUB = "orders"

pytestmark = [pytest.mark.cluster, NEEDS_NODE]


@pytest.fixture(scope="module")
def home() -> Path:
    return installed(HERE)


class Program:
    """One that runs until `finish`; `said` is what it wrote so far."""

    def __init__(self, home: Path, *words: str, **environment: str) -> None:
        self.said: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            ["node", str(HERE / "client.js"), *words],
            env={**os.environ, "SDK_HOME": str(home), **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.said.append(json.loads(line))

    def all(self, kind: str) -> list[Any]:
        return [one[kind] for one in list(self.said) if kind in one]

    def finish(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            status = self._process.wait(WITHIN_S)
        finally:
            self._process.kill()
        self._thread.join(WITHIN_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
        assert (status, self.all("failed")) == (0, [])


def test_a_tour_through_the_sdk(cluster: Cluster, log_name: str, home: Path) -> None:
    cluster.create(log_name, 4)
    cluster.wait_led(log_name)
    program = Program(home, "tour", connection_string(cluster.address(1), log_name))
    wait_until(lambda: len(program.all("refused")) == 2 or program.all("failed"), "the tour is over", WITHIN_S)
    program.finish()
    [hub] = program.all("hub")
    assert (hub["name"], hub["partitionIds"]) == (log_name, ["0", "1", "2", "3"])
    assert program.all("most") == [1024 * 1024]
    [partition] = program.all("partition")
    assert (partition["lastEnqueuedSequenceNumber"], partition["lastEnqueuedOffset"]) == (1, "1")
    refused, position = program.all("refused")
    assert refused["code"] == "ArgumentOutOfRangeError"
    assert "The supplied sequence number '71181' is invalid" in position["message"]
    events = [one for one in program.said if "event" in one]
    assert {(one["at"], one["sequence"], str(one["event"]), one.get("key")) for one in events} == {
        ("0", 0, "first", None), ("0", 1, "{'rich': True}", None),
        (partition_of_key(), 0, "keyed", "order-42"), (partition_of_key(), 1, "keyed too", "order-42"),
    }  # fmt: skip
    assert all(one["last"] == 1 for one in events)


def partition_of_key() -> str:
    """The partition of `order-42` among four: its code is 19 of 32."""
    return "3"


def test_with_its_idempotent_flag_each_event_is_stored_once_while_nodes_die(
    make_cluster: Callable[..., Cluster], home: Path
) -> None:
    cluster = make_cluster()
    cluster.start()
    cluster.create(HUB, 1)
    with FloatingAddress(lambda: [cluster.address(node) for node in cluster.running]) as name:
        text = connection_string(name.address, HUB)
        sender, reader = Program(home, "send", text, "0"), Program(home, "read", text)

        def both_go_on() -> None:
            wanted = len(sender.all("acknowledged")) + 5
            wait_until(lambda: len(sender.all("acknowledged")) >= wanted or sender.all("failed"), "sending", WITHIN_S)
            latest = sender.all("acknowledged")[-1][-1]
            wait_until(lambda: latest in reader.all("event") or reader.all("failed"), "reading", WITHIN_S)

        both_go_on()
        for node in list(cluster.nodes):
            cluster.kill(node)
            both_go_on()
            cluster.start(node)
            cluster.wait_led(HUB)
            both_go_on()
        sender.finish()
        acknowledged = [number for some in sender.all("acknowledged") for number in some]
        wait_until(lambda: set(acknowledged) <= set(reader.all("event")) or reader.all("failed"), "the rest", WITHIN_S)
        reader.finish()
    with ConsumerClient(cluster.addresses, HUB, start=Start.earliest()) as consumer:
        stored: list[int] = []
        while len(stored) < len(acknowledged):
            stored += [json.loads(event.body) for event in consumer.receive(1000, timeout_s=WITHIN_S)]
    assert [number for number, count in Counter(stored).items() if count > 1] == []
    assert stored == sorted(acknowledged)
    assert reader.all("event") == stored, "the reader misses none, and gets none twice"
