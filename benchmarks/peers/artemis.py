"""An Apache ActiveMQ Artemis pair on loopback, in one temporary directory: a primary and its backup.

Artemis comes as an installation from which an instance is created. In the end both need only a class path and a
broker.xml. So the jars that scripts/artemis.sh fetched are started directly, on free ports, by Artemis' main class for
embedding, with the flags and settings of `artemis create`.

There are two brokers, not three: a primary replicates to one backup, however many others wait. A durable message is
acknowledged when the primary's journal has it and the backup has answered. The backup answers from its memory: it
appends to its journal without waiting for a sync or a write (`ReplicationEndpoint`; it syncs only large messages, which
have files of their own). So the two kinds of pair differ in the primary:

- `fsync`: it syncs its journal, which is Artemis' default;
- `cached`: it writes into its page cache and does not sync, as with `artemis create --no-fsync`. (With
  journal-sync-non-transactional=false it would not even wait for the write.)

Artemis speaks AMQP 1.0, so the driver of Holdfast and RabbitMQ drives it. It stores only messages whose header says
that they are durable, so the driver sets that for Artemis. Its journal is Java's (NIO), not the one on libaio.

    python -m benchmarks.peers.artemis        # starts a pair that syncs, prints its addresses, ends it at Ctrl-C
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any, Literal
from xml.sax.saxutils import escape

import psutil
from proton import Message, ProtonException
from proton.utils import BlockingConnection, SyncRequestResponse

from benchmarks import machine
from benchmarks.driver.bounded import LoadPlan
from benchmarks.driver.link import LinkOptions
from benchmarks.driver.load import Load
from benchmarks.driver.wire import PeerError, Url
from benchmarks.peers.base import LOOPBACK, PeerFailed, PeerUnavailable, TargetLog, accepts, free_ports, wait_until
from benchmarks.peers.maven import MavenBrokers
from benchmarks.peers.servers import ServerCluster, play

BROKERS = MavenBrokers("artemis")
PRIMARY, BACKUP = "primary", "backup"
ROLES = (PRIMARY, BACKUP)
START_TIMEOUT_S = 120.0
REQUEST_TIMEOUT_S = 30.0
WARM_UP_S = 5.0
WARM_UP_WINDOW = 100
MAIN = "org.apache.activemq.artemis.core.server.embedded.Main"
HEAP = ("-Xms1g", "-Xmx1g")
# Flags of an instance that `artemis create` makes; then only IPv4, and no files outside the broker's directory.
FLAGS = (
    "-XX:AutoBoxCacheMax=20000", "-XX:+UseG1GC", "-XX:+UseStringDeduplication", "-Djava.awt.headless=true",
    "-Djava.net.preferIPv4Stack=true", "-XX:-UsePerfData", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)  # fmt: skip
MANAGEMENT = "activemq.management"
BROKER = "broker"  # the management's name for the broker itself

Durability = Literal["fsync", "cached"]
DURABILITIES: dict[Durability, dict[str, str]] = {
    "fsync": {"journal-datasync": "true"},
    "cached": {"journal-datasync": "false", "large-message-sync": "false"},
}
"""Settings of each kind for syncing. In both, senders wait for the journal (journal-sync-non-transactional)."""

# A broker that comes back as a backup copies everything again. By default it keeps two old copies; here, none. By
# default the pair gives up if the copy takes 30 s, which can happen on a busy machine.
_KEPT = (
    "<max-saved-replicated-journals-size>0</max-saved-replicated-journals-size>"
    "<initial-replication-sync-timeout>120000</initial-replication-sync-timeout>"
)
HA = {
    # A primary that comes back checks whether its backup has become active, and then becomes the backup.
    PRIMARY: f"<primary><check-for-active-server>true</check-for-active-server>{_KEPT}</primary>",
    BACKUP: f"<backup><allow-failback>false</allow-failback>{_KEPT}</backup>",
}


def missing() -> str | None:
    """Say why Artemis cannot run here and how to mend that; None if it can."""
    lacking = BROKERS.lacking()
    return f"Artemis' rows are left out; missing: {', '.join(lacking)}" if lacking else None


class Artemis(ServerCluster):
    def __init__(self, durability: Durability = "fsync", directory: Path | None = None) -> None:
        reason = missing()
        if reason is not None:
            raise PeerUnavailable(reason)
        self.name = f"artemis-{durability}"
        super().__init__(directory)
        self.durability = durability
        self.ports = dict(zip(ROLES, free_ports(len(ROLES)), strict=True))
        self.active = PRIMARY  # which of the two serves clients
        self._gather_ns = 0

    # life of the pair

    def _bring_up(self) -> None:
        # The journal gathers writes for as long as a sync takes here; `artemis create` measures that, too.
        self._gather_ns = round(machine.sync_ms(self._root) * 1_000_000)
        for role in ROLES:
            home = self._home(_number(role))
            (home / "etc").mkdir(parents=True)
            (home / "tmp").mkdir()
            (home / "etc" / "broker.xml").write_text(self.configuration(role), encoding="utf-8")
        self._launch(PRIMARY)
        wait_until(self._serves, "the start of Artemis", START_TIMEOUT_S)
        self._launch(BACKUP)
        self._until_replicated("the first replication of Artemis")
        self._warm_up()

    def start_again(self, node: str) -> None:
        """Start the dead active broker again; it becomes the backup of the other one and copies everything from it."""
        self._servers.pop(node).wait()
        self.active = BACKUP if node == PRIMARY else PRIMARY
        self._launch(node)
        self._until_replicated(f"the return of {node}")

    def _launch(self, role: str) -> None:
        home = self._home(_number(role))
        words = ["java", *FLAGS, *HEAP, f"-Djava.io.tmpdir={home / 'tmp'}", "-cp", BROKERS.class_path, MAIN, str(home)]
        self._servers[role] = self._spawn(words, _number(role))

    def configuration(self, role: str) -> str:
        """Return the broker.xml of one broker; `settings` have the names of its elements."""
        settings = {
            "name": role,
            "security-enabled": "false",
            "cluster-user": "pair",
            "cluster-password": "pair",
            "journal-type": "NIO",
            **DURABILITIES[self.durability],
            "journal-directory": "data/journal",
            "bindings-directory": "data/bindings",
            "large-messages-directory": "data/large-messages",
            "paging-directory": "data/paging",
            "journal-min-files": "2",
            "journal-pool-files": "10",
            "journal-buffer-timeout": str(self._gather_ns),
            "page-sync-timeout": str(self._gather_ns),
            "max-disk-usage": "-1",  # by default senders are blocked at 90 %, while other brokers go on
        }
        other = BACKUP if role == PRIMARY else PRIMARY
        return BROKER_XML.format(
            settings="".join(f"    <{name}>{escape(value)}</{name}>\n" for name, value in settings.items()),
            own=f"{LOOPBACK}:{self.ports[role]}", other=f"{LOOPBACK}:{self.ports[other]}", ha=HA[role],
        )  # fmt: skip

    def _serves(self) -> bool:
        for role, server in self._servers.items():
            if server.poll() is not None:
                tail = self._log_tail(_number(role))
                raise PeerFailed(f"{role} ended with status {server.returncode}; its log ends: {tail}")
        return accepts(self.ports[self.active])

    def _until_replicated(self, what: str) -> None:
        """Wait until the backup is in step; an error quotes both logs, which say why the brokers did not meet."""
        try:
            wait_until(self._is_replicated, what, START_TIMEOUT_S)
        except PeerFailed as error:
            logs = "\n".join(f"{role}: {self._log_tail(_number(role))}" for role in self._servers)
            raise PeerFailed(f"{error}; the brokers' logs end:\n{logs}") from error

    def _is_replicated(self) -> bool:
        if not self._serves():
            return False
        with contextlib.suppress(PeerFailed):  # a broker that took over accepts connections before it answers
            return bool(self.ask(BROKER, {"_AMQ_Attribute": "ReplicaSync"}))
        return False

    def _warm_up(self) -> None:
        """Write and read a queue for a while: a broker that has just started runs bytecode that is not compiled yet."""
        target = self.create("queue")
        plan = LoadPlan(
            senders=1, receivers=1, send_urls=(target.send_url,), receive_urls=(target.receive_url,),
            size=100, window=WARM_UP_WINDOW, seconds=WARM_UP_S, warmup_s=0.0,
            send_options=target.send_options, receive_options=target.tail_options, name="warm-up",
        )  # fmt: skip
        try:
            Load(plan).run()
        except PeerError as error:
            raise PeerFailed(f"Artemis did not take the first events: {error}") from error
        self.delete(target)

    # queues

    def create(self, kind: str, partitions: int = 1) -> TargetLog:
        """Create a queue (the only `kind`). Its readers begin with the oldest message that was not taken."""
        if partitions != 1:
            raise PeerFailed("a queue has no partitions")
        self._until_replicated("the replication of Artemis")
        name = self._next_name(kind)
        declaration = {"name": name, "address": name, "routing-type": "ANYCAST", "durable": True}
        self._order("createQueue", json.dumps({**declaration, "auto-create-address": True}))
        url = Url(LOOPBACK, self.ports[self.active], name)
        return TargetLog(
            name, url, LinkOptions(durable=True), url, LinkOptions(), LinkOptions(), self.active, keeps=False
        )

    def delete(self, target: TargetLog) -> None:
        """Delete a queue. Also raises PeerFailed if the backup was lost: the primary then acknowledges alone."""
        self._order("destroyQueue", target.name, True, True)  # with its links and its address
        if not self._is_replicated():
            raise PeerFailed("there is no backup in step with the primary")

    def processes(self) -> dict[str, psutil.Process]:
        return {role: psutil.Process(server.pid) for role, server in self._servers.items()}

    def version(self) -> str:
        return f"Artemis {BROKERS.version} (primary and backup)"

    def _order(self, operation: str, *arguments: str | bool) -> None:
        self.ask(BROKER, {"_AMQ_OperationName": operation}, *arguments)

    def ask(self, resource: str, question: dict[str, str], *arguments: str | bool) -> Any:
        """Ask Artemis' management for an attribute of a resource (the broker, or `queue.<name>`), or give it an order.

        The management is an address; question and answer are messages.
        """
        message = Message(body=json.dumps(arguments), properties={"_AMQ_ResourceName": resource, **question})
        what = f"{' '.join(question.values())} of {resource}"
        try:
            connection = BlockingConnection(f"{LOOPBACK}:{self.ports[self.active]}", timeout=REQUEST_TIMEOUT_S)
            try:
                answer = SyncRequestResponse(connection, MANAGEMENT).call(message)
            finally:
                connection.close()
        except (ProtonException, OSError) as error:
            raise PeerFailed(f"Artemis did not answer ({what}): {error}") from error
        told = answer.body if isinstance(answer.body, str) else "[null]"
        properties: dict[str, Any] = answer.properties or {}
        if not properties.get("_AMQ_OperationSucceeded"):
            raise PeerFailed(f"Artemis refused ({what}): {told}")
        (result,) = json.loads(told)
        return result


def _number(role: str) -> int:
    return ROLES.index(role) + 1


# As `artemis create` writes the acceptor for AMQP and the settings of addresses: a queue that does not fit into memory
# (half of the heap for all queues) is paged; no message is dropped and no sender is blocked.
BROKER_XML = """\
<configuration xmlns="urn:activemq">
  <core xmlns="urn:activemq:core">
{settings}
    <connectors>
      <connector name="own">tcp://{own}</connector>
      <connector name="other">tcp://{other}</connector>
    </connectors>
    <acceptors>
      <acceptor name="all">tcp://{own}?protocols=CORE,AMQP;useEpoll=true;tcpSendBufferSize=1048576;\
tcpReceiveBufferSize=1048576;amqpCredits=1000;amqpLowCredits=300;amqpMinLargeMessageSize=102400;\
amqpDuplicateDetection=true</acceptor>
    </acceptors>
    <cluster-connections>
      <cluster-connection name="pair">
        <connector-ref>own</connector-ref>
        <message-load-balancing>OFF</message-load-balancing>
        <max-hops>1</max-hops>
        <static-connectors>
          <connector-ref>other</connector-ref>
        </static-connectors>
      </cluster-connection>
    </cluster-connections>
    <ha-policy>
      <replication>
        {ha}
      </replication>
    </ha-policy>
    <address-settings>
      <address-setting match="#">
        <dead-letter-address>DLQ</dead-letter-address>
        <expiry-address>ExpiryQueue</expiry-address>
        <max-size-bytes>-1</max-size-bytes>
        <page-size-bytes>10M</page-size-bytes>
        <address-full-policy>PAGE</address-full-policy>
      </address-setting>
    </address-settings>
  </core>
</configuration>
"""


if __name__ == "__main__":
    play(Artemis(), ("queue",), lambda target: f"amqp://{LOOPBACK}:{target.send_url.port}/{target.name} (durable only)")
