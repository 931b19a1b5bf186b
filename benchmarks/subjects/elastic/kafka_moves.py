"""Rounds of 3 -> 5 -> 3 brokers of Apache Kafka under the same load: what its clients notice of reassignments.

Kafka moves with its own tool, at the same pace, and is as it ships: it does not sync what it acknowledges.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.driver.measure import percentiles_ms
from benchmarks.peers.base import LOOPBACK, PeerFailed, free_ports, wait_until
from benchmarks.peers.kafka import NODES, START_TIMEOUT_S, Kafka
from benchmarks.subjects.elastic.figures import REST_S, STAGES, Rows, Stages, SteadyLoad, spread

BODY = b"x" * 1024
PACE = 64 << 20
SETTLE_S = 5.0
WARM_UP_S = 30.0
"""Time after which a Java VM has compiled what is often used."""


class GrowingKafka(Kafka):
    def join(self, number: int) -> None:
        """Start a further broker, which is no controller."""
        self.ports += free_ports(1)
        self._controller_ports.append(0)
        home = self._home(number)
        (home / "tmp").mkdir(parents=True)
        (home / "server.properties").write_text(self._of_broker(number))
        formatting = self._java(
            number, "kafka.tools.StorageTool", "format", "-t", self._cluster, "-c", "server.properties"
        )
        formatting.wait()
        self._launch(number)
        wait_until(
            lambda: number in self._client().list_topics(timeout=30).brokers, f"broker {number}", START_TIMEOUT_S
        )

    def _of_broker(self, number: int) -> str:
        """Return the configuration of a broker that joins: that of the first ones, without their controllers."""
        told = dict(line.split("=", 1) for line in self.properties(number).splitlines())
        voters = told["controller.quorum.voters"].split(",")[:NODES]
        listeners = told["listeners"].split(",")[0]
        told |= {"process.roles": "broker", "controller.quorum.voters": ",".join(voters), "listeners": listeners}
        return "".join(f"{name}={value}\n" for name, value in told.items())

    def leave(self, number: int) -> None:
        server = self._servers.pop(f"broker{number}")
        server.terminate()
        server.wait()

    def reassign(self, topic: str, wished: dict[int, list[int]]) -> None:
        """Move partitions by Kafka's own tool, with its throttle, and wait until they have."""
        plan = {
            "version": 1,
            "partitions": [{"topic": topic, "partition": one, "replicas": nodes} for one, nodes in wished.items()],
        }
        (self._home(1) / "plan.json").write_text(json.dumps(plan))
        self._tool("--execute", "--throttle", str(PACE))
        wait_until(lambda: self._replicas(topic) == wished, "the reassignment", 600.0)
        self._tool("--verify")  # ends the throttle

    def _replicas(self, topic: str) -> dict[int, list[int]]:
        found = self._client().list_topics(topic, timeout=30).topics[topic].partitions
        return {number: list(one.replicas) for number, one in found.items() if set(one.isrs) == set(one.replicas)}

    def _tool(self, *words: str) -> None:
        tool, server = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand", f"{LOOPBACK}:{self.ports[0]}"
        command = [tool, "--bootstrap-server", server, "--reassignment-json-file", "plan.json", *words]
        if self._java(1, *command).wait():
            raise PeerFailed(f"Kafka's tool does not reassign: {self._log_tail(1)}")


class SteadySender(threading.Thread):
    """Sends single events to all partitions in turn at a fixed rate, in a thread of its own."""

    def __init__(self, kafka: GrowingKafka, topic: str, partitions: int, rate: int) -> None:
        super().__init__(daemon=True)
        self._servers = ",".join(f"{LOOPBACK}:{port}" for port in kafka.ports[:NODES])
        self._topic, self._partitions, self._rate = topic, partitions, rate
        self._over = threading.Event()
        self.part = SteadyLoad(answered_ns={str(number): [] for number in range(partitions)})

    def run(self) -> None:
        from confluent_kafka import Producer

        producer = Producer(
            {"bootstrap.servers": self._servers, "acks": "all", "enable.idempotence": True, "linger.ms": 0}
        )
        for partition in range(self._partitions):
            producer.produce(self._topic, BODY, None, partition)
        producer.flush(30)
        began_ns, count = time.monotonic_ns(), 0
        while not self._over.is_set():
            due_ns = began_ns + count * 1_000_000_000 // self._rate
            while (wait_s := (due_ns - time.monotonic_ns()) / 1e9) > 0:
                producer.poll(wait_s)
            partition = count % self._partitions
            producer.produce(self._topic, BODY, None, partition, partial(self._done, due_ns, partition))
            producer.poll(0)
            count += 1
        producer.flush(30)

    def _done(self, due_ns: int, partition: int, error: object, _: object) -> None:
        now_ns = time.monotonic_ns()
        if error is None:
            self.part.latencies_ns.append(now_ns - due_ns)
            self.part.answered_ns[str(partition)].append(now_ns)
        else:
            self.part.failed.append(str(error))

    def end(self) -> SteadyLoad:
        self._over.set()
        self.join()
        return self.part


def kafka_rounds(directory: Path, rounds: int, partitions: int, rate: int, quiet_s: float) -> Rows:
    """Let two brokers join, spread the topic over all five, and let them leave, while clients publish."""
    kafka = GrowingKafka(directory)
    try:
        kafka.start()
        topic = kafka.create("log-linger0", partitions).name
        kafka.reassign(topic, {one: _turned([1, 2, 3], one) for one in range(partitions)})
        time.sleep(SETTLE_S)
        _beside(SteadySender(kafka, topic, partitions, rate), partial(time.sleep, WARM_UP_S))
        quiet = _beside(SteadySender(kafka, topic, partitions, rate), partial(time.sleep, quiet_s))
        found, began = [], time.monotonic()
        stages = Stages()
        for number in range(rounds):
            new = [4 + 2 * number, 5 + 2 * number]
            sender = SteadySender(kafka, topic, partitions, rate)
            stages.watch(sender.part.latencies_ns)
            found.append(_beside(sender, partial(_there_and_back, kafka, topic, partitions, new, stages)))
        took_s = (time.monotonic() - began) / max(1, rounds) - REST_S
    finally:
        kafka.stop()
    gaps = spread([gap for one in found for gap in one.longest_gaps_ms().values()])
    calm_gaps = spread(list(quiet.longest_gaps_ms().values()))
    calm, (resting, late) = percentiles_ms(quiet.latencies()), stages.rest_and_moves()
    return [
        ("rounds, and the time of one", f"{rounds}, {took_s:.0f} s"),
        ("events acknowledged meanwhile", f"{sum(len(one.latencies_ns) for one in found):,}"),
        ("refused or given up", str(sum(len(one.failed) for one in found))),
        ("longest gap of acknowledgements of a partition: median, longest", f"{gaps[0]:.0f} ms, {gaps[1]:.0f} ms"),
        ("the same without moves", f"{calm_gaps[0]:.0f} ms, {calm_gaps[1]:.0f} ms"),
        ("p50 and p99 without moves", f"{calm['p50']:.1f} ms, {calm['p99']:.1f} ms"),
        ("p50 and p99 with moves", f"{late['p50']:.1f} ms, {late['p99']:.1f} ms"),
        ("p99 with moves, times that of three brokers at rest", f"{late['p99'] / calm['p99']:.1f}"),
        ("p99 with moves, times that of five at rest", f"{late['p99'] / resting['p99']:.1f}"),
        *stages.rows(),
    ]


def _turned(nodes: list[int], by: int) -> list[int]:
    return [nodes[(by + place) % len(nodes)] for place in range(NODES)]


def _there_and_back(kafka: GrowingKafka, topic: str, partitions: int, new: list[int], stages: Stages) -> None:
    def join() -> None:
        for broker in new:
            kafka.join(broker)

    def move() -> None:
        kafka.reassign(topic, {one: _turned([1, 2, 3, *new], one) for one in range(partitions)})

    def rest() -> None:
        time.sleep(REST_S)

    def leave() -> None:
        kafka.reassign(topic, {one: _turned([1, 2, 3], one) for one in range(partitions)})
        for broker in new:
            kafka.leave(broker)

    for act, stage in zip((join, move, rest, leave), STAGES, strict=True):
        with stages.during(stage):
            act()


def _beside(sender: SteadySender, work: Callable[[], None]) -> SteadyLoad:
    """Publish while the work is done."""
    sender.start()
    try:
        work()
    finally:
        part = sender.end()
    return part
