"""Workload W4: transactions over partitions, and workers that read one log and write another in transactions.

A worker commits its group's position with its events. Some transactions are rolled back on purpose. A worker that did
so starts again, so it must get its inputs again from the group's position. A worker that crashes pauses between the
position and the commit.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine, Sequence
from typing import Any

from chaos.history.tables import FAIL, INFO, OK, CommitRow, InputRow, SendRow, TransactionRow
from chaos.history.values import body_of, read_value
from chaos.workloads.group_members import STANDS_STILL_S
from chaos.workloads.producers import BODY_BYTES
from chaos.workloads.readers import PATIENCE_S, POLL_ENDS_S, POLL_S, Notes
from chaos.workloads.world import CLIENT_ERRORS, LogName, World, outcome_of
from holdfast import client
from holdfast.client import ConsumerClient, ConsumerOptions, ProducerClient, ProducerOptions, Start
from holdfast.client.events import ReceivedEvent

TIMEOUT_S = 8.0
"""Timeout of a transaction; one whose client is gone blocks committed readers for so long."""
CALL_S = 40.0
"""Bound for a call; a client asks for the outcome of a commit whose answer got lost until a node answers."""
ROLLED_BACK = 0.15
"""Share of transactions that are rolled back on purpose."""
AT_ONCE = 20


class _Teller:
    """Recorder of one client's transactions, one at a time."""

    def __init__(self, world: World, log: LogName, name: str) -> None:
        self.world, self.log, self.name = world, log, name
        self._numbers = itertools.count()
        self._values = itertools.count()
        self._begun_ns = 0
        self.txn = ""

    def begin(self, begun_ns: int) -> None:
        self.txn, self._begun_ns = f"{self.name}/{next(self._numbers)}", begun_ns

    def next_value(self) -> str:
        return f"{self.name}:{next(self._values)}"

    async def send(self, transaction: client.Transaction, partition: int, values: Sequence[str]) -> None:
        recorder, told = self.world.recorder, self.log.told(partition)
        call = recorder.begin(self.name, "produce", within_s=CALL_S)
        outcome: str = INFO
        why: BaseException | None = None
        try:
            bodies = [body_of(value, told, BODY_BYTES) for value in values]
            await transaction.send_batch(bodies, partition=str(partition))
            outcome = OK
        except BaseException as error:
            outcome, why = outcome_of(error), error
            raise
        finally:
            recorder.history.sends += [
                SendRow(call.op_id, value, told, self.name, None, None, self.txn, outcome, None) for value in values
            ]
            recorder.end(call, outcome, why)

    async def decide(self, transaction: client.Transaction, decision: str) -> None:
        """Commit or abort a transaction and record the outcome. Raises the client's errors.

        An abort counts as done whatever the answer, since no commit was asked for."""
        recorder = self.world.recorder
        call = recorder.begin(self.name, f"txn-{decision}", within_s=CALL_S)
        outcome: str = OK if decision == "abort" else INFO
        why: BaseException | None = None
        try:
            await (transaction.commit() if decision == "commit" else transaction.abort())
            outcome = OK
        except BaseException as error:
            if decision == "commit":
                outcome = outcome_of(error)
            why = error
            raise
        finally:
            recorder.end(call, outcome, why)
            recorder.history.transactions.append(
                TransactionRow(self.txn, self.name, call.op_id, decision, outcome, self._begun_ns)
            )

    def given_up(self, why: BaseException) -> None:
        """Record a transaction that failed before its commit was asked for."""
        call = self.world.recorder.begin(self.name, "txn-abort", within_s=CALL_S)
        self.world.recorder.end(call, OK, why)
        self.world.recorder.history.transactions.append(
            TransactionRow(self.txn, self.name, call.op_id, "abort", OK, self._begun_ns)
        )

    async def whole(self, transaction: client.Transaction, work: Coroutine[Any, Any, None], decision: str) -> None:
        """Begin a transaction, do the work, and end it as decided."""
        call = self.world.recorder.begin(self.name, "txn-begin", within_s=CALL_S)
        try:
            await transaction.begin()
        except BaseException as error:
            self.world.recorder.end(call, INFO, error)
            work.close()
            raise
        self.world.recorder.end(call)
        self.begin(call.t_inv_ns)
        try:
            await work
        except BaseException as error:
            self.given_up(error)
            await transaction.abort()
            raise
        await self.decide(transaction, decision)


class TransactionWriter:
    """A client that writes some events to each partition of a log in one transaction, again and again."""

    def __init__(self, world: World, log: LogName, name: str) -> None:
        self._world, self._log, self._name = world, log, name
        self._crash = world.can_crash()
        self._id = world.prefix + name
        world.transactional_ids.append(self._id)

    async def run(self) -> None:
        for life in itertools.count():
            if self._world.over.is_set():
                return
            teller = _Teller(self._world, self._log, f"{self._name}.{life}")
            options = ProducerOptions(
                transactional_id=self._id, transaction_timeout_s=TIMEOUT_S, delivery_timeout_s=PATIENCE_S,
                network=self._world.network,
            )  # fmt: skip
            producer = ProducerClient(self._world.servers["producers"], self._log.name, options)
            self._crash.clear()
            try:
                await producer.start()
                while not self._world.over.is_set() and not self._crash.is_set():
                    await self._one(producer, teller)
                    await self._world.pause(AT_ONCE / 2 / self._world.per_second)
            except CLIENT_ERRORS:
                await self._world.pause(0.1)
            finally:
                await producer.abandon()

    async def _one(self, producer: ProducerClient, teller: _Teller) -> None:
        transaction = producer.transaction()

        async def work() -> None:
            for partition in self._log.own:
                for _ in range(2):
                    await teller.send(transaction, partition, [teller.next_value() for _ in range(3)])

        decision = "abort" if self._world.chance.random() < ROLLED_BACK else "commit"
        try:
            await teller.whole(transaction, work(), decision)
        except client.TransactionRolledBackError:
            return  # rolled back; the next one follows


class Worker:
    """A client that reads `source` as a member of a group and writes one event to `target` for each."""

    def __init__(self, world: World, source: LogName, target: LogName, group: str, name: str) -> None:
        self._world, self._source, self._target, self._group, self._name = world, source, target, group, name
        self._crash = world.can_crash()
        self._id = world.prefix + name
        world.transactional_ids.append(self._id)

    async def run(self) -> None:
        for life in itertools.count():
            if self._world.over.is_set():
                return
            try:
                await self._live(f"{self._name}.{life}")
            except CLIENT_ERRORS:
                await self._world.pause(0.1)

    async def _live(self, member: str) -> None:
        self._crash.clear()
        options = ProducerOptions(
            transactional_id=self._id, transaction_timeout_s=TIMEOUT_S, delivery_timeout_s=PATIENCE_S,
            network=self._world.network,
        )  # fmt: skip
        producer = ProducerClient(self._world.servers["producers"], self._target.name, options)
        consumer = ConsumerClient(
            self._world.servers["consumers"], self._source.name, group=self._group, start=Start.earliest(),
            options=ConsumerOptions(reconnect_timeout_s=PATIENCE_S, prefetch=200, network=self._world.network),
        )  # fmt: skip
        teller, notes = _Teller(self._world, self._target, member), dict[int, Notes]()
        try:
            await producer.start()
            await consumer.start()
            while not self._world.over.is_set() and not self._crash.is_set():
                events, claim = await self._receive(consumer, member, notes)
                if events and not await self._one(producer, consumer, teller, events, claim):
                    return  # a new consumer gets the rolled-back inputs again
        finally:
            await producer.abandon()
            await consumer.close()

    async def _receive(
        self, consumer: ConsumerClient, member: str, notes: dict[int, Notes]
    ) -> tuple[list[ReceivedEvent], int]:
        call = self._world.recorder.begin(member, "poll", within_s=POLL_ENDS_S + PATIENCE_S)
        try:
            events = await consumer.receive(AT_ONCE, timeout_s=POLL_S)
        except BaseException as error:
            self._world.recorder.end(call, INFO, error)
            raise
        claim = consumer.assignment.get(events[0].partition, 0) if events else 0
        if claim:
            session = notes.setdefault(claim, Notes(self._world.recorder, self._source, member, claim))
            session.note(call.op_id, events, group=self._group, generation=claim)
        self._world.recorder.end(call)
        return (events, claim) if claim else ([], 0)

    async def _one(
        self, producer: ProducerClient, consumer: ConsumerClient, teller: _Teller, events: Sequence[ReceivedEvent],
        claim: int,
    ) -> bool:  # fmt: skip
        """Play one transaction; return True if it was to be committed."""
        transaction, history = producer.transaction(), self._world.recorder.history
        place = self._source.told(events[0].partition)
        outputs = [(event, read_value(event.body).msg_id, teller.next_value()) for event in events]

        async def work() -> None:
            history.inputs.extend(
                InputRow(teller.txn, output, place, int(event.offset, 16), source) for event, source, output in outputs
            )
            count = self._target.partitions
            for partition in self._target.own:
                values = [output for event, _, output in outputs if int(event.offset, 16) % count == partition]
                if values:
                    await teller.send(transaction, partition, values)
            await transaction.commit_offsets(consumer)
            if self._crash.is_set():  # if another member takes over meanwhile, this must not be committed
                consumer.pause()
                await asyncio.sleep(STANDS_STILL_S)

        decision = "abort" if self._world.chance.random() < ROLLED_BACK else "commit"
        try:
            await teller.whole(transaction, work(), decision)
        finally:
            told = history.transactions[-1] if history.transactions else None
            if told is not None and told.txn == teller.txn and told.decision == "commit" and told.outcome != FAIL:
                history.commits.append(
                    CommitRow(told.op_id, self._group, teller.name, claim, place, int(events[-1].offset, 16), told.txn)
                )
        return decision == "commit"
