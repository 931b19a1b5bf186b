"""A three-node Apache Kafka cluster (KRaft) on loopback, in one temporary directory; a node is broker and controller.

Kafka comes as scripts that expect an installation. In the end they need only a class path and a properties file. So the
jars that scripts/kafka.sh fetched are started directly, on free ports, with the flags of Kafka's own script except for
a smaller heap.

Two kinds of topic are measured, both with three replicas; an event is acknowledged once all in-sync replicas have it,
two at least. `log` is Kafka's default, in page caches. `flush` has flush.messages=1: every replica syncs each batch
before it answers. The other settings keep the cluster small or allow a body of 1 MiB.

    python -m benchmarks.peers.kafka        # starts a cluster, prints its addresses, ends it at Ctrl-C
"""

from __future__ import annotations

import base64
import importlib.util
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from benchmarks.driver.bounded import LoadPlan
from benchmarks.driver.link import LinkOptions
from benchmarks.driver.wire import PeerError, Url
from benchmarks.peers.base import (
    LOOPBACK,
    PeerFailed,
    PeerUnavailable,
    TargetLog,
    accepts,
    free_ports,
    wait_until,
)
from benchmarks.peers.maven import MavenBrokers
from benchmarks.peers.servers import ServerCluster, play

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

BROKERS = MavenBrokers("kafka")
NODES = 3
START_TIMEOUT_S = 120.0
REQUEST_TIMEOUT_S = 30.0
WARM_UP_S = 4.0
WARM_UP_WINDOW = 100
HEAP = ("-Xms512m", "-Xmx512m")
# Flags of Kafka's own start script; then only IPv4, and no files outside the node's directory.
FLAGS = (
    "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15", "-Djava.awt.headless=true",
    "-Djava.net.preferIPv4Stack=true", "-XX:-UsePerfData", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)  # fmt: skip
KINDS: dict[str, dict[str, str]] = {
    "log": {},
    "flush": {"flush.messages": "1"},
}
"""Kind -> further settings of its topics."""
LINGER_0 = "linger0"
TOPIC = {"min.insync.replicas": "2", "max.message.bytes": str(2 << 20)}


def has_client() -> bool:
    return importlib.util.find_spec("confluent_kafka") is not None


def missing() -> str | None:
    """Say why Kafka cannot run here and how to mend that; None if it can."""
    lacking = BROKERS.lacking()
    if not has_client():
        lacking.append("its client (pip install -r benchmarks/kafka/requirements.lock)")
    return f"Kafka's rows are left out; missing: {', '.join(lacking)}" if lacking else None


class Kafka(ServerCluster):
    name = "kafka"

    def __init__(self, directory: Path | None = None, settings: Mapping[str, str] | None = None) -> None:
        """Prepare a cluster. `settings`: further settings of the brokers."""
        reason = missing()
        if reason is not None:
            raise PeerUnavailable(reason)
        super().__init__(directory)
        self._settings = settings or {}
        ports = free_ports(2 * NODES)
        self.ports, self._controller_ports = ports[:NODES], ports[NODES:]
        self._cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self._admin: AdminClient | None = None

    # life of the cluster

    def _bring_up(self) -> None:
        for number in range(1, NODES + 1):
            home = self._home(number)
            (home / "tmp").mkdir(parents=True)
            (home / "server.properties").write_text(self.properties(number))
            self._helpers.append(
                self._java(number, "kafka.tools.StorageTool", "format", "-t", self._cluster, "-c", "server.properties")
            )
        formatting = self._helpers
        wait_until(lambda: all(one.poll() is not None for one in formatting), "formatting of storage", START_TIMEOUT_S)
        for number, process in enumerate(formatting, start=1):
            if process.returncode:
                raise PeerFailed(f"the storage of broker {number} was not formatted: {self._log_tail(number)}")
        for number in range(1, NODES + 1):
            self._launch(number)
        wait_until(self._is_whole, "the start of Kafka", START_TIMEOUT_S)
        self._warm_up()

    def stop(self) -> None:
        self._admin = None
        super().stop()

    def start_again(self, node: str) -> None:
        """Start a dead broker again, with its data."""
        self._servers.pop(node).wait()
        self._launch(int(node.removeprefix("broker")))
        wait_until(self._is_whole, f"the return of {node}", START_TIMEOUT_S)

    def _launch(self, number: int) -> None:
        self._servers[f"broker{number}"] = self._java(number, *HEAP, "kafka.Kafka", "server.properties")

    def _java(self, number: int, *words: str) -> subprocess.Popen[bytes]:
        home = self._home(number)
        flags = [*FLAGS, f"-Djava.io.tmpdir={home / 'tmp'}", "-cp", BROKERS.class_path]
        return self._spawn(["java", *flags, *words], number)

    def properties(self, number: int) -> str:
        """Return the configuration of a broker."""
        port, controller = self.ports[number - 1], self._controller_ports[number - 1]
        voters = ",".join(f"{n}@{LOOPBACK}:{p}" for n, p in enumerate(self._controller_ports, start=1))
        settings = {
            "process.roles": "broker,controller",
            "node.id": str(number),
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self._home(number) / "data"),
            "auto.create.topics.enable": "false",
            "default.replication.factor": str(NODES),
            "min.insync.replicas": "2",
            "log.segment.delete.delay.ms": "1000",  # a deleted topic is gone before the next measurement
            **self._settings,
        }
        return "".join(f"{name}={value}\n" for name, value in settings.items())

    def _is_whole(self) -> bool:
        for node, server in self._servers.items():
            if server.poll() is not None:
                tail = self._log_tail(int(node.removeprefix("broker")))
                raise PeerFailed(f"{node} ended with status {server.returncode}; its log ends: {tail}")
        if not all(accepts(port) for port in self.ports):
            return False
        from confluent_kafka import KafkaException

        try:
            return len(self._client().list_topics(timeout=REQUEST_TIMEOUT_S).brokers) == NODES
        except KafkaException:
            return False

    def _warm_up(self) -> None:
        """Write and read both kinds of topic for a while: a new broker runs bytecode that is not compiled yet.

        Batches are small, because the compiler counts calls, and most methods are called once for a batch.
        """
        from benchmarks.kafka.load import KafkaLoad

        for kind in KINDS:
            target = self.create(f"{kind}-{LINGER_0}")
            plan = LoadPlan(
                senders=1, receivers=1, send_urls=(target.send_url,), receive_urls=(target.receive_url,),
                size=100, window=WARM_UP_WINDOW, seconds=WARM_UP_S, warmup_s=0.0,
                send_options=target.send_options, receive_options=target.tail_options, name="warm-up",
            )  # fmt: skip
            try:
                KafkaLoad(plan).run()
            except PeerError as error:
                raise PeerFailed(f"Kafka did not take the first events: {error}") from error
            self.delete(target)

    # topics

    def _client(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        if self._admin is None:
            servers = ",".join(f"{LOOPBACK}:{port}" for port in self.ports)
            self._admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        return self._admin

    def create(self, kind: str, partitions: int = 1) -> TargetLog:
        """Create a topic. `kind`: log or flush; the suffix `-linger0` is for a producer that does not linger.

        The client finds the leaders from any broker.
        """
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import NewTopic

        topic_kind, _, client = kind.partition("-")
        name = self._next_name(kind)
        topic = NewTopic(name, num_partitions=partitions, replication_factor=NODES, config=TOPIC | KINDS[topic_kind])
        try:
            self._client().create_topics([topic])[name].result(REQUEST_TIMEOUT_S)
        except KafkaException as error:
            raise PeerFailed(f"Kafka did not create {name}: {error}") from error
        leaders: list[str] = []

        def led() -> bool:
            leaders[:] = self.leaders(name)
            return len(leaders) == partitions

        wait_until(led, f"the election of leaders for {name}", START_TIMEOUT_S)
        url = Url(LOOPBACK, self.ports[0], name)
        properties = {"linger.ms": "0"} if client == LINGER_0 else {}
        return TargetLog(
            name, url, LinkOptions(properties=properties), url,
            LinkOptions(start="latest"), LinkOptions(start="earliest"), leaders[0], driver="kafka",
        )  # fmt: skip

    def leaders(self, topic: str) -> list[str]:
        """Return the leaders of the topic's partitions that all three brokers have."""
        from confluent_kafka import KafkaException

        try:
            found = self._client().list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic].partitions
        except KafkaException:
            return []
        whole = [one for _, one in sorted(found.items()) if one.leader > 0 and len(one.isrs) == NODES]
        return [f"broker{one.leader}" for one in whole]

    def delete(self, target: TargetLog) -> None:
        from confluent_kafka import KafkaException

        try:
            self._client().delete_topics([target.name])[target.name].result(REQUEST_TIMEOUT_S)
        except KafkaException as error:
            raise PeerFailed(f"Kafka did not delete {target.name}: {error}") from error

    def processes(self) -> dict[str, psutil.Process]:
        return {name: psutil.Process(server.pid) for name, server in self._servers.items()}

    def version(self) -> str:
        import confluent_kafka

        return f"Kafka {BROKERS.version} (client: confluent-kafka {confluent_kafka.__version__})"


if __name__ == "__main__":
    play(Kafka(), KINDS, lambda target: f"{LOOPBACK}:{target.send_url.port} topic {target.name}")
