"""Writers with transactional ids, each at some node, over the production's manager, producer and transaction.

A *session* is a holder of an id, at one life of a node. Another one may come while it writes, anywhere; the old one
goes on until it hears that it was fenced. Some sessions vanish in the middle of a transaction, some wait until its time
is over, some have their node taken from under them.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.records.record_batch import RecordBatch
from node.client_transactions.errors import TransactionFailed
from node.client_transactions.transaction import HeldTransaction, StagedPosition
from node.client_transactions.transactional_producer import TransactionalProducer
from node.partition.api import Appended, Begins, Failed
from node.partition.consumer_groups.group_state import Claim, Owned
from tests.batches import numbered
from tests.simulation.checker import Violation

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule
    from tests.simulation.transactions.judge import Ledger, TransactionsJudge
    from tests.simulation.transactions.node import TransactionalNode

GROUPS = ("transforming", "counting")
OWED = 2
"""One commit shows that a writer can; another, that it can go on from there."""
TIMEOUTS_MS = (600, 1500, 2500)
NAMELESS = "nameless"
LONG_MS = 600_000
"""Time of a transaction without an id: more than there is for healing, so it must not end by that."""
WRITE_WITHIN_S = 0.6
RETRY_S = 0.05
MOST_PARTITIONS = 4
MOST_WHEN_HEALING = 2
"""Where it is only to be seen that each can commit, and that all end alike."""
STAGING = 0.5
"""Of transactions."""
BEGINS_WITH_EVENTS = 0.8
"""Of partitions that it writes to; in the others it begins before."""
TAKEN_OVER = 0.1
"""Of the positions that are to move with a commit: somebody else claims their partitions ..."""
TAKEN_OVER_WITHIN_S = 0.1
"""... while they are staged, or decided, or just moved."""
ENDS = (("commit", "abort", "vanish", "wait"), (14, 4, 1, 1))
"""How a transaction is to end; to wait is to go on when its time is over."""
ENDS_OF_NAMELESS = (("commit", "abort"), (4, 1))


class SimWriters:
    """All of a schedule."""

    def __init__(self, schedule: Schedule, ledger: Ledger, names: int, session: type[WriterSession]) -> None:
        self.schedule = schedule
        self.session = session
        self.ledger = ledger
        self.partitions: list[TransactionsJudge] = []
        self.names = [*(f"writer-{number}" for number in range(names)), NAMELESS]
        self.committed = self.aborted = 0
        self.is_healing = False
        self.owed: dict[str, int] = {}
        """Since healing began: how often each name has to commit still, in one session."""
        self._last: dict[str, WriterSession] = {}

    def look(self) -> None:
        """Whoever has no session gets one; at times somebody else comes, while the old one is there."""
        chance = self.schedule.randomness
        for name in self.names:
            last = self._last.get(name)
            if self.is_healing and name not in self.owed:
                continue
            if last is None or last.is_over or (not self.is_healing and chance.random() < 0.08):
                nodes = [node for node in self.schedule.nodes.values() if node.is_running]
                ready = [node for node in nodes if node.transactions.coordinators.groups()]
                if ready:
                    if self.is_healing:
                        self.owed[name] = OWED
                    kind = NamelessSession if name == NAMELESS else self.session
                    self._last[name] = kind(self, chance.choice(ready), name)

    def begin_healing(self) -> None:
        self.is_healing = True
        self.owed = {name: OWED for name in self.names if name != NAMELESS}

    def ended(self, name: str, *, committed: bool) -> None:
        self.schedule.count("committed transaction" if committed else "aborted transaction")
        self.committed += committed
        self.aborted += not committed
        if committed and name in self.owed:
            self.owed[name] -= 1
            if not self.owed[name]:
                del self.owed[name]

    def claim_something(self) -> None:
        self.claim(self.schedule.randomness.choice(self.partitions).group_id, self.schedule.randomness.choice(GROUPS))

    def claim(self, group_id: int, key: str) -> None:
        """Somebody takes over a partition for a consumer group, and does nothing with it."""
        node = self.schedule.randomness.choice(list(self.schedule.nodes.values()))
        if node.is_running and not self.is_healing:
            claim = Claim(key, f"taker-{self.schedule.unique()}", "", epoch=0, equal_takes=True)
            with node.own_life.entered():
                asking = node.replicas.calls.ask_until(group_id, claim, 0.5)
                self.schedule.loop.create_task(asking, name="claim")


class WriterSession:
    ends: ClassVar = ENDS

    def __init__(self, writers: SimWriters, node: TransactionalNode, name: str) -> None:
        self.is_over = False
        self._writers, self._node, self._name = writers, node, name
        self._schedule = writers.schedule
        self._chance = writers.schedule.randomness
        self._sequence: dict[int, int] = {}
        self._holder = ""
        with node.own_life.entered():
            task = self._schedule.loop.create_task(self._live(), name=f"session of {name}")
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.is_over = True
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, Violation):
            self._schedule.loop.fail(Violation(f"{task.get_name()}: {error!r}"))

    async def _live(self) -> None:
        manager = self._node.transactions
        try:
            producer = await manager.hold(self._name, self._chance.choice(TIMEOUTS_MS), lambda _: None)
            self._holder = producer.holder
            while not self._writers.is_healing or self._name in self._writers.owed:
                if not await self._one(producer, await manager.begin(producer)):
                    return
                await asyncio.sleep(self._chance.uniform(0.0, 0.1))
        except TransactionFailed as error:
            self._ends(error)

    def _ends(self, error: TransactionFailed) -> None:
        self._schedule.count(f"session ends: {error.code}")
        if error.code == "fenced" and self._holder and not self._writers.ledger.was_taken(self._name, self._holder):
            raise Violation(f"holder {self._holder} of {self._name} is fenced, and nobody else took the id: {error}")

    # ---- one transaction

    async def _one(self, producer: TransactionalProducer, transaction: HeldTransaction) -> bool:
        """Whether the session goes on."""
        writers, chance = self._writers, self._chance
        most = MOST_WHEN_HEALING if writers.is_healing else MOST_PARTITIONS
        partitions = chance.sample(writers.partitions, min(len(writers.partitions), chance.randint(1, most)))
        self._sequence.clear()
        positions = []
        if chance.random() < STAGING:
            positions = await self._positions(chance.choice(writers.partitions))
        for _ in range(1 if writers.is_healing else chance.randint(1, 2)):
            await asyncio.gather(*(self._write(transaction, judge) for judge in partitions))
            if chance.random() < 0.3:
                await asyncio.sleep(chance.uniform(0.0, 0.3))
        how = "commit" if writers.is_healing else chance.choices(*self.ends)[0]
        groups = [judge.group_id for judge in partitions]
        self._schedule.trace(f"{self._node.id} {self._name} {transaction.pair}, groups {groups}, is to {how}")
        if how == "vanish":
            self._schedule.count("vanished writer")
            return False
        if how == "wait":
            await asyncio.sleep(producer.timeout_ms / 1000 + chance.uniform(0.0, 1.0))
        if how == "abort":
            await self._abort(transaction)
            self._told(transaction, committed=False)
            return True
        return await self._decide(transaction, positions)

    async def _abort(self, transaction: HeldTransaction) -> None:
        await transaction.abort()

    async def _commit(self, transaction: HeldTransaction, positions: list[StagedPosition]) -> None:
        await transaction.commit(positions)

    async def _decide(self, transaction: HeldTransaction, positions: list[StagedPosition]) -> bool:
        self._writers.ledger.positions[transaction.pair] = positions
        for one in positions:
            if self._chance.random() < TAKEN_OVER:
                after_s = self._chance.uniform(0.0, TAKEN_OVER_WITHIN_S)
                self._schedule.at(self._schedule.now + after_s, partial(self._writers.claim, one.group, one.key))
        try:
            await self._commit(transaction, positions)
        except TransactionFailed as error:
            if error.decided:
                self._told(transaction, committed=False)
            if error.code == "fenced":
                self._ends(error)
            return error.code != "fenced"
        self._told(transaction, committed=True)
        return True

    def _told(self, transaction: HeldTransaction, *, committed: bool) -> None:
        self._writers.ledger.told(transaction.pair, committed=committed)
        self._writers.ended(self._name, committed=committed)

    async def _write(self, transaction: HeldTransaction, judge: TransactionsJudge) -> None:
        group = judge.group_id
        begins = transaction.begins_with_events(group) if self._chance.random() < BEGINS_WITH_EVENTS else None
        if begins is None:
            if await transaction.join(group) is not None:
                return
            await self._write_records(transaction, judge, None)
            return
        failed: Failed | None = Failed("unknown", True, "nothing came of it")
        try:
            failed = await self._write_records(transaction, judge, begins)
        finally:
            transaction.begun(group, failed)

    async def _write_records(
        self, transaction: HeldTransaction, judge: TransactionsJudge, begins: tuple[int, int] | None
    ) -> Failed | None:
        records = self._records(transaction)
        first = self._sequence.get(judge.group_id, 0)
        self._sequence[judge.group_id] = first + len(records)
        self._writers.ledger.sends(transaction.pair, judge.group_id, records)
        batch = numbered(records, *transaction.pair, first, transactional=True)
        outcome: Appended | Failed = Failed("unknown", True, "there was no time")
        deadline_s = self._schedule.now + WRITE_WITHIN_S
        while self._schedule.now < deadline_s:
            outcome = await self._append(judge.group_id, batch, begins)
            if isinstance(outcome, Appended):
                return None
            if not outcome.retriable:
                break
            await asyncio.sleep(RETRY_S)
        transaction.must_roll_back("an event could not be written")
        assert isinstance(outcome, Failed)
        return outcome

    def _records(self, transaction: HeldTransaction) -> list[bytes]:
        unique = self._schedule.unique
        return [b"t%d.%d.%d" % (*transaction.pair, unique()) for _ in range(self._chance.randint(1, 3))]

    async def _append(self, group_id: int, batch: RecordBatch, begins: Begins | None) -> Appended | Failed:
        leader = self._node.replicas.leader_of(group_id)
        if leader is None and self._node.leads(group_id):
            leader = self._node.id
        if leader is None:
            return Failed("not_leader", True, "nobody leads")
        return await self._node.questions.append(self._node, leader, group_id, batch, begins)

    # ---- positions of a consumer group

    async def _positions(self, judge: TransactionsJudge) -> list[StagedPosition]:
        """Of groups that it has taken over just now."""
        found = []
        for key in GROUPS:
            member = f"{self._name}-{self._schedule.unique()}"
            claim = Claim(key, member, "", epoch=0, equal_takes=True)
            answer: Any = await self._node.replicas.calls.ask_until(judge.group_id, claim, 1.0)
            if isinstance(answer, Owned):
                position = min(len(judge.events), max(0, answer.position) + self._chance.randint(0, 5))
                found.append(StagedPosition(judge.group_id, key, answer.claim, position))
        return found


class NamelessSession(WriterSession):
    """A client that names no id, as most do. Nobody takes over what its node leaves open when it dies."""

    ends: ClassVar = ENDS_OF_NAMELESS

    async def _live(self) -> None:
        manager = self._node.transactions
        try:
            while not self._writers.is_healing:
                transaction = await manager.begin_anonymous(LONG_MS)
                await self._one(transaction.producer, transaction)
                manager.give_back(transaction)
                await asyncio.sleep(self._chance.uniform(0.0, 0.1))
        except TransactionFailed as error:
            self._schedule.count(f"nameless session ends: {error.code}")
