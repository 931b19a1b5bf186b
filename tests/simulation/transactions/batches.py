"""Drivers that plan batches and commit them, and task attempts that write their parts, each at some node.

A driver is one run of its writer: it goes on behind the last batch that it has noted as done, dies before or after a
commit at times, and the next one replays. Attempts hang, vanish, come twice, go on as zombies; what each of them says
to its driver is no business of the nodes, and gets there at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from node.client_transactions.errors import TransactionFailed
from node.client_transactions.transaction_group_member import MemberTerms
from node.partition.api import Failed
from node.transaction_coordinator.coordinator_commands import Declined
from node.transaction_coordinator.transaction_groups.group_commands import (
    AbortGroup,
    CommitGroup,
    GroupDecided,
    OpenGroup,
    WriterOpened,
)
from tests.simulation.checker import Violation
from tests.simulation.transactions.load import TransactionalLoad
from tests.simulation.transactions.writers import SimWriters, WriterSession

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule
    from tests.simulation.transactions.judge import Ledger
    from tests.simulation.transactions.node import TransactionalNode
    from tests.simulation.world.nodes import SimNode

WRITERS = ("orders", "fills")
PARTS = ("0", "1")
OWED = 2
LEASE_MS = 2000
TIMEOUTS_MS = (1500, 2500, 4000)
"""Of a group; what has begun somewhere, and was never noted, is asked about so much later at the latest."""
ASK_S = 1.0
PATIENCE_S = (4.0, 1.0)
"""Of a driver, for its tasks; the second when nothing fails any more."""
ENDS = (("well", "hang", "vanish", "die"), (12, 2, 2, 1))
"""Of an attempt: to hang is to be silent for a while, and to go on; to vanish, to leave by a closed connection; to die,
without a word."""


class Batches:
    """All of a schedule."""

    def __init__(self, schedule: Schedule, ledger: Ledger, writers: SimWriters) -> None:
        self.schedule, self.ledger, self.writers = schedule, ledger, writers
        self.is_healing = False
        self.owed: dict[str, int] = {}
        self.noted: dict[str, int] = dict.fromkeys(WRITERS, -1)
        """What a driver that begins knows: the last batch that one before noted as done."""
        self._last: dict[str, BatchDriver] = {}

    def look(self) -> None:
        """Whoever has no driver gets one; at times another one comes, while the old one is there."""
        chance = self.schedule.randomness
        for name in WRITERS:
            last = self._last.get(name)
            if self.is_healing and name not in self.owed:
                continue
            if last is None or last.is_over or (not self.is_healing and chance.random() < 0.04):
                node = self.some_node()
                if node is not None:
                    self._last[name] = BatchDriver(self, node, name)

    def some_node(self) -> TransactionalNode | None:
        """That knows the coordinators."""
        nodes: Any = self.schedule.nodes.values()
        ready = [node for node in nodes if node.is_running and node.transactions.coordinators.groups()]
        return self.schedule.randomness.choice(ready) if ready else None

    def begin_healing(self) -> None:
        self.is_healing = True
        self.owed = dict.fromkeys(WRITERS, OWED)

    def done(self, writer: str, batch: int) -> None:
        self.ledger.groups.told_done(writer, batch)
        self.schedule.count("committed batch")
        if writer in self.owed:
            self.owed[writer] -= 1
            if not self.owed[writer]:
                del self.owed[writer]


class BatchDriver:
    """One run."""

    def __init__(self, batches: Batches, node: TransactionalNode, writer: str) -> None:
        self.is_over = False
        self.batches, self.writer = batches, writer
        self.run = f"run-{batches.schedule.unique()}"
        self.prepared: dict[str, str] = {}  # by part: the member that told first
        self.changed = asyncio.Event()
        self._node, self._chance = node, batches.schedule.randomness
        with node.own_life.entered():
            task = batches.schedule.loop.create_task(self._live(), name=f"driver of {writer}")
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.is_over = True
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.batches.schedule.loop.fail(
                error if isinstance(error, Violation) else Violation(f"{task.get_name()}: {error!r}")
            )

    async def _live(self) -> None:
        batches = self.batches
        batch = batches.noted[self.writer] + 1
        while not batches.is_healing or self.writer in batches.owed:
            self.prepared = {}
            answer = await self._ask(OpenGroup(self.writer, batch, self.run, "q", self._chance.choice(TIMEOUTS_MS)))
            if not isinstance(answer, WriterOpened):
                batches.schedule.count(f"driver ends: {answer.code}")
                return
            if answer.already_done:
                batches.schedule.count("replayed batch")
            elif not await self._write(batch):
                return
            if not batches.is_healing and self._chance.random() < 0.1:
                return  # before it notes that
            batches.noted[self.writer] = max(batch, batches.noted[self.writer])
            batch += 1

    async def _write(self, batch: int) -> bool:
        """Whether the batch is done, and this driver goes on."""
        for part in PARTS:
            for _ in range(self._chance.choice((1, 1, 2))):
                self._start(batch, part)
        while len(self.prepared) < len(PARTS):
            self.changed.clear()
            try:
                await asyncio.wait_for(self.changed.wait(), PATIENCE_S[self.batches.is_healing])
            except TimeoutError:
                if self._chance.random() < 0.2:
                    await self._ask(AbortGroup(self.writer, batch, self.run))
                    return False
                for part in PARTS:
                    if part not in self.prepared:
                        self._start(batch, part)
                again = OpenGroup(self.writer, batch, self.run, "q", TIMEOUTS_MS[-1])
                answer = await self._ask(again)  # it may be over: who is fenced stops
                if not isinstance(answer, WriterOpened) or answer.already_done:
                    return False
        if not self.batches.is_healing and self._chance.random() < 0.1:
            self.batches.schedule.count("driver gone before its commit")
            return False
        return await self._commit(batch)

    def _start(self, batch: int, part: str) -> None:
        node = self.batches.some_node()
        if node is not None:
            BatchAttempt(self, node, batch, part)

    async def _commit(self, batch: int) -> bool:
        command = CommitGroup(self.writer, batch, self.run, sorted(self.prepared.values()))
        while True:
            answer = await self._ask(command)
            if not isinstance(answer, GroupDecided):
                self.batches.schedule.count(f"batch not committed: {answer.code}")
                return False
            if answer.complete:
                self.batches.done(self.writer, batch)
                return True

    async def _ask(self, command: Any) -> Any:
        """Until there is an answer that time does not change."""
        manager = self._node.transactions
        group = await manager.coordinators.group_of(self.writer)
        while True:
            answer = await self._node.replicas.calls.ask_until(group, command, ASK_S)
            if isinstance(answer, Failed) or (isinstance(answer, Declined) and answer.retriable):
                await asyncio.sleep(0.1)
                continue
            return answer


class BatchAttempt(WriterSession):
    """A task attempt: it writes a part."""

    def __init__(self, driver: BatchDriver, node: TransactionalNode, batch: int, part: str) -> None:
        self._driver, self._batch, self._part = driver, batch, part
        self._heard = driver.prepared
        super().__init__(driver.batches.writers, node, f"{driver.writer}, batch {batch}, part {part}")

    async def _live(self) -> None:
        driver, chance, manager = self._driver, self._chance, self._node.transactions
        how = "well" if driver.batches.is_healing else chance.choices(*ENDS)[0]
        silent = how in ("hang", "die")
        try:
            terms = MemberTerms(driver.writer, self._batch, driver.run, self._part, "", LEASE_MS)
            producer = await manager.join(terms)
            manager.leases.keep(producer, lambda: not silent, lambda _: None)
            transaction = await manager.begin(producer)
            partitions = self._writers.partitions
            for judge in chance.sample(partitions, min(len(partitions), chance.randint(1, 3))):
                await self._write(transaction, judge)
            if how == "hang":
                self._schedule.count("hanging member")
                await asyncio.sleep(chance.uniform(1.0, 6.0))
                await self._write(transaction, chance.choice(partitions))
            if how == "vanish":
                manager.let_go(producer)
                await transaction.abort()  # as its link does
                return
            if how == "die":
                manager.leases.let_go(producer)
                return
            await transaction.commit()
            manager.leases.let_go(producer)
            self._heard.setdefault(self._part, producer.member)
            driver.changed.set()
        except TransactionFailed as error:
            self._schedule.count(f"attempt ends: {error.code}")
            driver.changed.set()


class GroupLoad(TransactionalLoad):
    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule)
        del self.writers.names[1:]
        self.batches = Batches(schedule, self.ledger, self.writers)

    def _keep_looking(self) -> None:
        super()._keep_looking()
        if self.writers.partitions and self._coordinators:
            self.batches.look()

    def begin_healing(self, healthy: Sequence[SimNode]) -> None:
        super().begin_healing(healthy)
        self.batches.begin_healing()

    def is_healthy(self) -> bool:
        return not self.batches.owed and super().is_healthy()

    def _open(self, node: SimNode) -> bool:
        groups = any(one._machine.writers.open_groups() for one in node.replicas.coordinators())
        return groups or super()._open(node)
