"""The clients of a schedule with transactions: the usual ones, writers with transactional ids, committed readers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cluster.metadata import COORDINATORS, LogRecord
from node.partition.api import After, Unconfirmed
from node.partition.reader import LocalReader
from tests.simulation.checker import Violation
from tests.simulation.transactions.judge import TransactionsJudge
from tests.simulation.transactions.writers import SimWriters, WriterSession
from tests.simulation.watched_groups import state_of
from tests.simulation.workload.load import ClusterLoad, _agrees

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule
    from tests.simulation.world.nodes import SimNode

COORDINATOR_GROUPS = (1, 1, 2)
LOOK_EVERY_S = 0.15
CLAIMS = 0.2
"""At so many looks somebody takes over a partition."""
READ_BYTES = 400


class CommittedReader:
    """One for ever, that goes on where it was, at whatever node leads."""

    def __init__(self, schedule: Schedule, judge: TransactionsJudge) -> None:
        self._schedule, self._judge = schedule, judge
        self._reader: LocalReader | None = None
        self._at: tuple[SimNode, int] | None = None
        self.position = 0

    def read(self) -> None:
        if self._at is None or self._reader is None or not self._is_good(*self._at):
            self._open()
        if self._at is None or self._reader is None:
            return
        node, life = self._at
        batches = self._reader.poll(50, READ_BYTES)
        if node.life != life or not node.is_running:  # it found its store damaged
            return
        after = self._reader.position
        self._judge.read_committed(node.id, self.position, batches, after)
        self.position = max(self.position, after)

    def _is_good(self, node: SimNode, life: int) -> bool:
        return node.is_running and node.life == life and self._reader is not None and self._reader.error is None

    def _open(self) -> None:
        self._reader = self._at = None
        leaders = [node for node in self._schedule.nodes.values() if node.leads(self._judge.group_id)]
        if leaders:
            node = self._schedule.randomness.choice(leaders)
            replica = node.partition(self._judge.group_id)
            if replica is not None:
                self._reader, self._at = replica.open_reader(After(self.position - 1), _nothing), (node, node.life)


class TransactionalLoad(ClusterLoad):
    SESSION: type[WriterSession] = WriterSession

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule)
        assert schedule.ledger is not None
        self.ledger = schedule.ledger
        self.writers = SimWriters(schedule, schedule.ledger, schedule.randomness.randint(2, 4), self.SESSION)
        self._readers: list[CommittedReader] = []
        self._coordinators: list[TransactionsJudge] = []

    def start(self) -> None:
        super().start()
        schedule = self._schedule
        self.admin.create_coordinators(schedule.randomness.choice(COORDINATOR_GROUPS), min(3, len(schedule.node_ids)))
        self._keep_looking()
        schedule.every(0.6, self._arm)

    @property
    def acknowledged(self) -> int:
        """Events of clients without transactions, and transactions."""
        return super().acknowledged + self.writers.committed

    def serves(self) -> bool:
        """Events stand in each partition, and a transaction was decided: some writers commit none for seconds.

        The administrator may have made another log already."""
        expected = sum(log.partitions for log in self._schedule.plan.logs)
        partitions = self.writers.partitions
        filled = len(partitions) >= expected and all(one.events for one in partitions)
        return filled and bool(self.writers.ledger.decisions)

    def _log_created(self, log: LogRecord) -> None:
        judges = [self._schedule.judge(partition.group, partition.replicas) for partition in log.partitions]
        for judge in judges:
            assert isinstance(judge, TransactionsJudge)
            if judge in self._coordinators or judge in self.writers.partitions:
                continue  # the administrator asked again, and was told again
            if log.name == COORDINATORS:
                self._coordinators.append(judge)
            else:
                self.writers.partitions.append(judge)
                self._readers.append(CommittedReader(self._schedule, judge))
        if log.name != COORDINATORS:
            super()._log_created(log)

    def _keep_looking(self) -> None:
        """To the end: writers come, readers read."""
        schedule = self._schedule
        schedule.at(schedule.now + schedule.randomness.expovariate(1 / LOOK_EVERY_S), self._keep_looking)
        if self.writers.partitions and self._coordinators:
            self.writers.look()
            if schedule.randomness.random() < CLAIMS:
                self.writers.claim_something()
        for reader in self._readers:
            reader.read()
        if self._readers:
            self._ask_stable(schedule.randomness.choice(self._readers)._judge)

    def _ask_stable(self, judge: TransactionsJudge) -> None:
        for node in self._schedule.nodes.values():
            replica = node.partition(judge.group_id)
            if replica is not None and replica.is_leader:
                with node.own_life.entered():
                    self._schedule.loop.create_task(self._hear_stable(node, replica, judge), name="last stable offset")

    async def _hear_stable(self, node: Any, replica: Any, judge: TransactionsJudge) -> None:
        floor = judge.told_stable
        try:
            info = await asyncio.wait_for(replica.info(), 2.0)
        except (Unconfirmed, TimeoutError):
            return
        judge.tell_stable(node.id, floor, info.stable_offset)

    def _arm(self) -> None:
        if self._schedule.chaos_begun:
            self._schedule.crash_points.arm()

    # ---- the end

    def begin_healing(self, healthy: Sequence[SimNode]) -> None:
        super().begin_healing(healthy)
        self._schedule.crash_points.armed.clear()
        self.writers.begin_healing()

    def is_healthy(self) -> bool:
        nodes = [node for node in self._healthy if not node.is_damaged]
        if not super().is_healthy() or self.writers.owed:
            return False
        if not all(_agrees(judge, nodes) for judge in self._coordinators):
            return False
        return not any(self._open(node) for node in nodes)

    def _open(self, node: SimNode) -> bool:
        """Something is not over there."""
        partitions, coordinators = node.replicas.all_open(), node.replicas.coordinators()
        return any(one._machine.transactions.open() for one in partitions) or any(
            one._machine.ongoing() or one._machine.decided() for one in coordinators
        )

    def finish(self) -> None:
        super().finish()
        self.ledger.finish()
        nodes = [node for node in self._schedule.nodes.values() if node.is_running]
        for judge in self.writers.partitions:
            for node in nodes:
                replica = node.partition(judge.group_id)
                if replica is not None:
                    start = replica.start_offset
                    reader = LocalReader(replica, start, None, _nothing)
                    judge.read_committed(node.id, start, reader.poll(1 << 40, 1 << 40), reader.position)
                    if reader.error is None and reader.position != len(judge.events):
                        raise Violation(f"group {judge.group_id}: a committed reader ends at {reader.position}")
        for judge in self._coordinators:
            found = [node.replicas.replica(judge.group_id) for node in nodes]
            states = {state_of(one) for one in found if one is not None}
            if len(states) > 1:
                raise Violation(f"coordinators of group {judge.group_id} differ at the end: {states}")


def _nothing() -> None:
    """The reader is polled by the clock."""
