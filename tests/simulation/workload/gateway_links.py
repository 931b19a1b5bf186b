"""Clients that cannot follow a redirect: their links end at some node, which asks whoever leads.

A link is the production `AppendQueue` over the production `NodeBroker`, gateway and call: it goes on through changes
of leader, and a reader beside it does not. What must hold:

* each batch is answered once; accepted is stored, at the place that was named; refused or turned away is nowhere;
* what a link stored stands in the order in which the link received it, whatever was submitted again;
* a reader through a gateway passes over nothing, and sees what was stored.

Every other batch of a link is one that its producer has sealed, of bodies, and that goes as it came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import NonCallableMock

from holdfast.records.record_batch import OpenBatch, read_batch, with_heads
from node.broker import NodeBroker
from node.listener.incoming.append_queue import AppendQueue, Deliveries, QueuedBatch
from node.partition.api import After, Appended, Earliest, Failed
from tests.batches import batch_of
from tests.simulation.checker import Violation
from tests.simulation.world.events import PartitionJudge
from tests.simulation.world.rpc.calls import SimNetwork

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule
    from tests.simulation.world.nodes import SimNode

PATIENCE_S = 1.0
"""Of a link, while nobody leads."""
SIZES = (0, 10, 200)
READ_BYTES = 400
MOST_BATCHES = 4
"""At once, so that several are under way when a leader is lost."""


class _Link:
    """Of one life of a node. Implements `QueueOwner`."""

    def __init__(self, clients: GatewayClients, node: SimNode, name: bytes) -> None:
        self.node, self._clients, self._name = node, clients, name
        self.sent: list[bytes] = []
        self.waiting: set[bytes] = set()
        self._marks: set[bytes] = set()
        self._sealed: set[bytes] = set()  # of those sent, in batches of a producer
        self.is_over = False
        self._broker = broker_of(node)
        self.queue = AppendQueue(
            self,
            self._broker,
            clients.log,
            clients.partition,
            wait_s=PATIENCE_S,
            follow=True,  # type: ignore[arg-type]
        )
        self._reader: Any = None
        self._position = -1
        node.call(self._ended)

    def _ended(self) -> None:
        """With its node. What was not answered may be stored."""
        self.is_over = True
        self.waiting.clear()

    @property
    def is_remote(self) -> bool:
        return not self.node.leads(self._clients.judge.group_id)

    def send(self, records: list[bytes]) -> None:
        records = with_heads(records)
        self.sent += records
        self.waiting.update(records)
        self.queue.submit(QueuedBatch(records, batch_of(records), len(records), sum(map(len, records))))

    def send_sealed(self, bodies: list[bytes]) -> None:
        piece = OpenBatch()
        piece.extend(bodies, bodies=True)
        batch, _ = read_batch(bytes(piece.seal()))
        records = batch.messages()
        self.sent += records
        self.waiting.update(records)
        self._sealed.update(records)
        self.queue.submit(QueuedBatch(records, batch, 1, batch.size))

    def record(self) -> bytes:
        filling = self._clients.schedule.randomness.choice(SIZES)
        return b"%s.%d." % (self._name, len(self.sent)) + b"x" * filling

    # ---- answers

    def _answered(self, deliveries: Deliveries) -> bool:
        if self.is_over:
            return False
        records = deliveries.handles
        if not self.waiting.issuperset(records):
            raise Violation(f"a batch of link {self._name!r} is answered twice: {records}")
        self.waiting.difference_update(records)
        return True

    def accepted(self, deliveries: Deliveries, stored: Appended, partition: str) -> None:
        if self._answered(deliveries):
            self._clients.judge.acknowledge(deliveries.handles, stored)
            self._clients.schedule.count("through a gateway" if self.is_remote else "at the leader")
            if self.is_remote and self._sealed.issuperset(deliveries.handles):
                self._clients.schedule.count("sealed through a gateway")
            self._clients.accepted += 1

    def uncertain(self, deliveries: Deliveries, why: Failed, partition: str) -> None:
        if self._answered(deliveries):
            self._clients.schedule.count("unknown at a link")

    def refused(self, deliveries: Deliveries, why: Failed) -> None:
        if why.kind == "malformed":
            raise Violation(f"a good batch of link {self._name!r} is refused: {why}")
        if self._answered(deliveries):
            self._clients.judge.never(deliveries.handles)

    def turned_away(self, deliveries: Deliveries, why: str) -> None:
        if self._answered(deliveries):
            self._clients.schedule.count("turned away at a link")
            self._clients.judge.never(deliveries.handles)

    def broken(self, error: BaseException) -> None:
        self._clients.schedule.loop.fail(Violation(f"link {self._name!r} broke: {error!r}"))

    def in_order(self) -> None:
        stored = [offset for record in self.sent if (offset := self._clients.judge.offset_of(record)) is not None]
        if stored != sorted(stored):
            raise Violation(f"what link {self._name!r} sent in order is stored at {stored}")

    # ---- reading

    def read(self) -> None:
        judge = self._clients.judge
        if self.is_over:
            return
        if self._reader is not None and self._reader.error is not None:
            self._reader.close()
            self._reader = None
        if self._reader is None:
            try:
                handle = self._broker.handle(self._clients.log, self._clients.partition)
            except KeyError:  # the log is deleted, or not known here yet
                return
            self._reader = handle.open_reader(After(self._position) if self._position >= 0 else Earliest(), _nothing)
        start = max(self._position + 1, 0)
        batches = self._reader.poll(50, READ_BYTES)
        if judge.read_on(self.node.id, start, batches) and self.is_remote:
            self._clients.schedule.count("read through a gateway")
        start = batches[-1].next_offset if batches else start
        self._position = start - 1


class GatewayClients:
    """Of one partition: a link at a time, at any node."""

    def __init__(self, schedule: Schedule, judge: PartitionJudge, log: str, partition: str) -> None:
        self.schedule, self.judge, self.log, self.partition = schedule, judge, log, partition
        self.accepted = 0
        self._links: list[_Link] = []
        self._wanted = 0

    def _link(self) -> _Link | None:
        """The last one, while its node lives."""
        if self._links and not self._links[-1].is_over:
            return self._links[-1]
        running = [node for node in self.schedule.nodes.values() if node.is_running]
        nodes = [node for node in running if node.view.partition(self.log, self.partition) is not None]
        if not nodes:
            return None
        node = self.schedule.randomness.choice(nodes)
        self._links.append(_Link(self, node, b"g%d" % self.schedule.unique()))
        return self._links[-1]

    def send(self) -> None:
        link = self._link()
        if link is not None:
            for _ in range(self.schedule.randomness.randint(1, MOST_BATCHES)):
                (link.send_sealed if len(link.sent) % 2 else link.send)([link.record()])
            link.queue.attempt()  # leaders may have changed

    def read(self) -> None:
        link = self._link()
        if link is not None:
            link.read()

    def begin_healing(self) -> None:
        self._wanted = self.accepted + 1

    def drain(self) -> bool:
        """One more was accepted through whatever node, and nobody waits."""
        link = self._link()
        if link is None:
            return True
        link.queue.attempt()
        if self.accepted < self._wanted and not link.waiting:
            link.send([link.record()])
        return self.accepted >= self._wanted and not link.waiting

    def finish(self) -> None:
        for link in self._links:
            link.in_order()


def broker_of(node: SimNode) -> NodeBroker:
    """The node's, made once for each of its lives."""
    if node.broker is None:
        wire: Any = node.schedule.wire
        if node.network is None:
            node.network = SimNetwork(wire, node)
            node.replicas.attach(node.network)
        network = node.network
        nobody: Any = NonCallableMock()  # what links of plain clients never ask
        node.broker = NodeBroker(
            node.id, f"simulated-{node.id}", nobody, node.view, node.replicas, network, nobody, nobody, nobody, nobody
        )
    return node.broker


def _nothing() -> None:
    """The reader is polled by the clock."""
