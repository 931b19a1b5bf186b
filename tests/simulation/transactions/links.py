"""Clients of transactions as links see them, at any node: what a connection does, above the partitions' handles.

* A session sends by the production `ClientTransaction`, its queues and gateways, and asks for the end of a transaction
  before it has heard what became of its events.
* Readers are the production cursor of a receiving link: some take record batches, some have a filter on a property that
  the events of transactions have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast import protocol
from holdfast.amqp import DeliveryState, Described, Message, decode_message, encode_message, symbol
from holdfast.records.batch_transfer import batches_in
from holdfast.records.record_batch import RecordBatch
from node.client_transactions.transaction import HeldTransaction, StagedPosition
from node.listener.amqp_transactions.connection_transaction import ClientTransaction
from node.listener.incoming.append_queue import Deliveries, QueuedBatch
from node.listener.outgoing.batch_deliveries import BatchDeliveries
from node.listener.outgoing.partition_cursor import PartitionCursor
from node.listener.outgoing.source_filters import select
from node.partition.api import After
from tests.batches import batch_of
from tests.simulation.checker import Violation
from tests.simulation.transactions.judge import TransactionsJudge
from tests.simulation.transactions.load import READ_BYTES, TransactionalLoad
from tests.simulation.transactions.writers import WriterSession
from tests.simulation.workload.gateway_links import broker_of

if TYPE_CHECKING:
    from cluster.metadata import LogRecord
    from tests.simulation.schedule import Schedule
    from tests.simulation.world.nodes import SimNode

LEADER_WAIT_S = 0.6
NEWS_EVERY_S = 0.05
"""A session with a transaction hears of new leaders so often."""
AWAITED = 0.3
"""Share of events whose session goes on when it has heard of them."""
WANTED = 3
"""One in so many events of transactions passes the filter."""
FILTER = "number = 0"
EARLIEST: Mapping[str, Described] = {
    "start": Described(symbol(protocol.START_FILTER_NAME), {symbol(protocol.ANNOTATION_OFFSET): symbol("@earliest")})
}
MESSAGE = b"\x00"
"""How each AMQP message begins, and no event of clients without transactions."""
EVENTS_A_READ = 50
CREDITS = (0, 0, 1, EVENTS_A_READ)
LARGEST = (0, 200)
"""Bytes that a peer takes in one message."""


class LinkSession(WriterSession):
    """Implements `SendingLink` and `TransactionHost` for its transactions."""

    def __init__(self, *arguments: Any) -> None:
        self.transactions: dict[bytes, ClientTransaction] = {}
        self._own: ClientTransaction | None = None
        self._unanswered: dict[tuple[bytes, ...], asyncio.Future[None]] = {}  # by their records
        super().__init__(*arguments)

    # ---- one transaction

    def _of(self, transaction: HeldTransaction) -> ClientTransaction:
        if self._own is None or self._own.transaction is not transaction:
            self._own = ClientTransaction(self, transaction, LEADER_WAIT_S)
            self._tell_of_leaders(self._own)
        return self._own

    def _tell_of_leaders(self, own: ClientTransaction) -> None:
        own.on_change()
        if not own.is_over:
            asyncio.get_running_loop().call_later(NEWS_EVERY_S, self._tell_of_leaders, own)

    async def _write(self, transaction: HeldTransaction, judge: TransactionsJudge) -> None:
        found = self._node.view.group(judge.group_id)
        if found is None:
            transaction.must_roll_back("this node has not heard of the log")
            return
        log, partition = found
        records = self._records(transaction)
        self._writers.ledger.sends(transaction.pair, judge.group_id, records)
        batch = QueuedBatch(records, batch_of(records), len(records), sum(map(len, records)))
        answered = self._unanswered[tuple(records)] = asyncio.get_running_loop().create_future()
        self._of(transaction).send(self, broker_of(self._node), log.name, partition.name, batch)
        if self._chance.random() < AWAITED:
            await answered

    def _records(self, transaction: HeldTransaction) -> list[bytes]:
        numbers = [self._schedule.unique() for _ in range(self._chance.randint(1, 3))]
        return [
            encode_message(
                Message(body=b"t%d.%d.%d" % (*transaction.pair, number), application_properties=_properties(number))
            )
            for number in numbers
        ]

    async def _commit(self, transaction: HeldTransaction, positions: list[StagedPosition]) -> None:
        own = self._of(transaction)
        for position in positions:
            own.stage(position)
        await own.commit()

    async def _abort(self, transaction: HeldTransaction) -> None:
        await self._of(transaction).abort()

    # ---- what it hears

    def answer_in_transaction(self, deliveries: Deliveries, state: DeliveryState) -> None:
        records = tuple(deliveries.handles)
        waiting = self._unanswered.pop(records, None)
        if waiting is None:
            raise Violation(f"a batch of {self._name} is answered twice, now {state}: {records}")
        if not waiting.done():  # else its session ended with its node
            waiting.set_result(None)

    def fail(self, error: BaseException) -> None:
        self._schedule.loop.fail(Violation(f"a transaction of {self._name} broke: {error!r}"))

    def flush_soon(self) -> None:
        """Nothing is written anywhere."""


def _properties(number: int) -> dict[str, int]:
    return {"number": number % WANTED}


# ---------------------------------------------------------------- readers


class LinkReader:
    """A committed reader of one partition, from its start to the end of the schedule, at one node after the other."""

    KIND = ""
    FILTERS: Mapping[str, Described] = {}
    WHOLE = False
    """Batches are not looked into."""

    def __init__(self, schedule: Schedule, judge: TransactionsJudge, log: str, partition: str) -> None:
        self._schedule, self._judge = schedule, judge
        self._log, self._partition = log, partition
        self._at: tuple[SimNode, int] | None = None
        self._cursor = PartitionCursor(partition, select({**EARLIEST, **self.FILTERS}))
        self._next = 0  # where its reader stands, by what it was given
        self._given: list[int] = []

    def read(self) -> None:
        cursor = self._cursor
        if self._at is None or not self._stands(*self._at):
            self._attach()
        reader = cursor.reader
        if reader is None or self._at is None:
            return
        node, life = self._at
        batches = reader.poll(EVENTS_A_READ, READ_BYTES, self.WHOLE)
        if node.life != life or not node.is_running:  # it found its store damaged
            return
        behind = max(self._next, reader.position) if getattr(reader, "resolved", True) else self._next
        self._judge.read_committed(node.id, self._next, batches, behind)
        self._next = behind
        if batches and not node.leads(self._judge.group_id):
            self._schedule.count(f"{self.KIND} read through a gateway")
        for offset, event in self._deliver(batches):
            if self._given and offset <= self._given[-1]:
                raise Violation(f"group {self._judge.group_id}: a {self.KIND} reader is given {offset} again, or late")
            if event != self._judge.events[offset] or not self._wants(event):
                raise Violation(f"group {self._judge.group_id}: a {self.KIND} reader is given {event!r} as {offset}")
            self._given.append(offset)

    def _deliver(self, batches: Sequence[RecordBatch]) -> Iterable[tuple[int, bytes]]:
        """Gives the peer what it is to have: offsets, and events as they are stored."""
        raise NotImplementedError

    def _wants(self, event: bytes) -> bool:
        return True

    def _stands(self, node: SimNode, life: int) -> bool:
        reader = self._cursor.reader
        return node.is_running and node.life == life and reader is not None and reader.error is None

    def _attach(self) -> None:
        self._cursor.drop_reader()
        self._at = None
        running = [node for node in self._schedule.nodes.values() if node.is_running]
        nodes = [node for node in running if node.view.partition(self._log, self._partition) is not None]
        if nodes:
            start = self._cursor.start
            self._next = start.offset + 1 if isinstance(start, After) else 0
            node = self._schedule.randomness.choice(nodes)
            handle = broker_of(node).handle(self._log, self._partition)
            with node.own_life.entered():
                self._cursor.reader = handle.open_reader(start, _nothing)
            self._at = node, node.life

    # ---- the end

    @property
    def has_all(self) -> bool:
        return self._next == len(self._judge.events) and not self._cursor.holds

    def finish(self) -> None:
        judge, given = self._judge, set(self._given)
        for offset in range(judge.start_offset, len(judge.events)):
            if offset not in given and judge.ended_as(offset) and self._wants(judge.events[offset]):
                raise Violation(f"group {judge.group_id}: a {self.KIND} reader was never given {offset}")


class LinkBatchReader(LinkReader):
    KIND = "batch"
    WHOLE = True

    def __init__(self, schedule: Schedule, judge: TransactionsJudge, log: str, partition: str) -> None:
        super().__init__(schedule, judge, log, partition)
        self._deliveries = BatchDeliveries(LARGEST[judge.group_id % 2], lambda *_: None)

    def _deliver(self, batches: Sequence[RecordBatch]) -> Iterable[tuple[int, bytes]]:
        self._deliveries.payloads(self._cursor, batches)
        for transfer in self._deliveries.release(self._cursor, 1 << 30):
            for batch in batches_in(transfer):
                yield from enumerate(batch.messages(), batch.offset)


class FilteredReader(LinkReader):
    KIND = "filtered"
    FILTERS: Mapping[str, Described] = {"chosen": Described(symbol(protocol.SQL_FILTER_NAME), FILTER)}

    def _deliver(self, batches: Sequence[RecordBatch]) -> Iterable[tuple[int, bytes]]:
        """With credit for some of it: the rest is held."""
        cursor = self._cursor
        if cursor.payloads(batches):
            raise Violation(f"group {self._judge.group_id}: a filter lets through what it has not looked at")
        payloads = cursor.release(self._schedule.randomness.choice(CREDITS))
        for (offset, _), payload in zip(cursor.take_runs(), payloads, strict=True):
            message = decode_message(payload)
            yield (
                offset,
                encode_message(
                    Message(body=message.body, application_properties=dict(message.application_properties or {}))
                ),
            )

    def _wants(self, event: bytes) -> bool:
        return event.startswith(MESSAGE) and dict(decode_message(event).application_properties or {}) == _properties(0)


class LinkLoad(TransactionalLoad):
    """The clients of a schedule with transactions, and these."""

    SESSION = LinkSession

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule)
        self._links: list[LinkReader] = []

    def _log_created(self, log: LogRecord) -> None:
        known = len(self.writers.partitions)
        super()._log_created(log)
        added = {judge.group_id: judge for judge in self.writers.partitions[known:]}
        for partition in log.partitions:
            if partition.group in added:
                judge = added[partition.group]
                for kind in (LinkBatchReader, FilteredReader):
                    self._links.append(kind(self._schedule, judge, log.name, partition.name))

    def _keep_looking(self) -> None:
        super()._keep_looking()
        for reader in self._links:
            reader.read()

    def is_healthy(self) -> bool:
        return super().is_healthy() and all(reader.has_all for reader in self._links)

    def finish(self) -> None:
        super().finish()
        for reader in self._links:
            reader.finish()


def _nothing() -> None:
    """The reader is polled by the clock."""
