"""A partition's part in transactions, at its leader: it turns questions into commands, and asks coordinators about
transactions that wait too long.

The problem: a marker may never come (its coordinator's leader died, and the next one believes that all were told; a
begin was delayed until after the end), and as long as a transaction is open committed readers wait. So the partition
does not only wait to be told: when a transaction is open for longer than it was given, or others wait for its end, the
leader asks the coordinator, whose leader answers after a majority has confirmed it.

The rule: only a decision ends a transaction here. An answer that does not come, or says that nothing is decided,
changes nothing; it is asked for again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from msgspec import structs

from cluster.crash_points import crash_point
from cluster.raft import NotLeader, Overloaded
from node.partition.api import Failed
from node.partition.leader_queries import TransactionAnswer, TransactionQuestion
from node.partition.partition_commands import encode_transaction_command
from node.partition.raft_group import Proposer, propose
from node.partition.state_machine import PartitionMachine
from node.partition.transactions.control_record import ControlType, Marker
from node.partition.transactions.transaction_commands import Begin, Prepare, StageOffset
from node.partition.transactions.transaction_queries import (
    ListTransactions,
    OpenTransactionRow,
    OpenTransactions,
    WriteMarker,
)
from node.partition.transactions.transaction_state import OpenTransaction, TransactionDone, TransactionRefused

log = logging.getLogger(__name__)

GRACE_S = 3.0
"""Time after a transaction's timeout before the partition asks: the coordinator ends overdue ones by itself, and
tells."""

FIRST_ASKED_AFTER_S = 3.0
"""Time before an open transaction is first asked about, and again when it has been open for twice as long. One that
began with its first events may have ended without the coordinator ever having heard of this partition."""

ASK_AGAIN_S = 1.0
"""Time between questions about one overdue transaction."""


class KnownOutcome(Protocol):
    """A coordinator's answer about a transaction. `soon`: it is not decided, and worth asking again at once."""

    @property
    def committed(self) -> bool | None: ...
    @property
    def coordinator_epoch(self) -> int: ...
    @property
    def soon(self) -> bool: ...


AskOutcome = Callable[[int, int, int, bool], Awaitable[KnownOutcome | None]]
"""(coordinator's Raft group, producer id, epoch, whether its time is over here) -> its answer; None: it could not be
asked."""


class Participant:
    def __init__(self, partition: str, machine: Callable[[], PartitionMachine], now_ms: Callable[[], int]) -> None:
        self.ask_outcome: AskOutcome | None = None
        """Way to ask a coordinator; the node sets it, until then nothing is asked."""
        self._partition = partition
        self._machine = machine
        self._now_ms = now_ms
        self._overdue_at_s: dict[tuple[int, int], float] = {}  # by transaction, on the leader's own clock
        self._ask_at_s: dict[tuple[int, int], float] = {}
        self._urgent: set[tuple[int, int]] = set()  # a claim or a transaction waits for its end
        self._asking: dict[tuple[int, int], asyncio.Task[None]] = {}

    def not_leading(self) -> None:
        for task in self._asking.values():
            task.cancel()
        self._asking.clear()
        self._overdue_at_s.clear()
        self._ask_at_s.clear()
        self._urgent.clear()

    # ------------------------------------------------------------ questions

    async def ask(self, group: Proposer, question: TransactionQuestion) -> TransactionAnswer | Failed:
        """Answer as leader. Repeating a question does no harm."""
        match question:
            case WriteMarker():
                answer = await propose(group, self._marker(question), "the partition")
                crash_point("partition-after-marker")
            case Begin() | StageOffset() | Prepare():
                stamped = structs.replace(question, timestamp_ms=self._now_ms())
                answer = await propose(group, encode_transaction_command(stamped), "the partition")
                crash_point(f"partition-after-{type(question).__name__.lower()}")
            case ListTransactions():
                return self._list()
        if isinstance(answer, TransactionRefused) and answer.code == "undecided":
            self.stands_in_the_way(question.producer_id)
        if isinstance(answer, TransactionDone | TransactionRefused | Failed):
            return answer
        return Failed("rejected", False, f"the partition did not do it: {answer}")

    def _marker(self, question: WriteMarker) -> bytes:
        end = ControlType.COMMIT if question.committed else ControlType.ABORT
        marker = Marker(question.producer_id, question.epoch, end, question.coordinator_epoch, self._now_ms())
        return marker.encode()

    def _list(self) -> OpenTransactions:
        machine = self._machine()
        rows = [self._row(one) for one in machine.transactions.open()]
        return OpenTransactions(rows, machine.stable_offset, machine.state.next_offset)

    def _row(self, one: OpenTransaction) -> OpenTransactionRow:
        return OpenTransactionRow(
            producer_id=one.producer.producer_id,
            epoch=one.producer.epoch,
            coordinator=one.coordinator,
            timeout_ms=one.timeout_ms,
            open_ms=max(0, self._now_ms() - one.begun_ms),
            first_offset=one.first_offset,
            staged=len(one.staged),
            prepared=one.prepared,
            doomed=one.doomed,
        )

    # ------------------------------------------------------------ what waits too long

    def claim_waits(self, key: str) -> None:
        """Note a claim for a consumer group that was put off, since a transaction that moves its position is being
        decided."""
        deciding = self._machine().transactions.prepared_for(key)
        if deciding is not None:
            self._urgent.add(deciding.key)

    def stands_in_the_way(self, producer_id: int) -> None:
        """Note that the producer's open transactions keep its next one from beginning here."""
        self._urgent |= {one.key for one in self._machine().transactions.open() if one.key[0] == producer_id}

    def check(self, group: Proposer, now_s: float) -> None:
        """Ask about transactions that are due. The leader calls it every half second or so."""
        open_now = {one.key: one for one in self._machine().transactions.open()}
        if not open_now:
            if self._ask_at_s:
                self.not_leading()
            return
        for key in [key for key in self._ask_at_s if key not in open_now]:
            del self._ask_at_s[key], self._overdue_at_s[key]
        self._urgent &= open_now.keys()
        for key, one in open_now.items():
            overdue_s = self._overdue_at_s.setdefault(key, now_s + one.timeout_ms / 1000 + GRACE_S)
            ask_s = self._ask_at_s.setdefault(key, min(overdue_s, now_s + self._first_asked_in_s(one)))
            if (now_s >= ask_s or key in self._urgent) and key not in self._asking and self.ask_outcome is not None:
                self._urgent.discard(key)
                overdue = now_s >= overdue_s
                open_s = now_s - (overdue_s - one.timeout_ms / 1000 - GRACE_S)
                later_s = min(overdue_s, now_s + max(open_s, FIRST_ASKED_AFTER_S))
                self._ask_at_s[key] = now_s + ASK_AGAIN_S if overdue else later_s
                task = asyncio.ensure_future(self._find_out(group, one.coordinator, key, overdue))
                self._asking[key] = task
                task.add_done_callback(partial(self._asked, key))

    def _first_asked_in_s(self, one: OpenTransaction) -> float:
        """Seconds until a transaction is first asked about. A new leader does not count from zero: the client's node
        may have died with the earlier leader."""
        open_s = (self._now_ms() - one.begun_ms) / 1000
        return FIRST_ASKED_AFTER_S - min(max(0.0, open_s), FIRST_ASKED_AFTER_S)

    def _asked(self, key: tuple[int, int], task: asyncio.Task[None]) -> None:
        if self._asking.get(key) is task:
            del self._asking[key]
        if not task.cancelled() and task.exception() is not None:
            what = "partition %s: asking about transaction %s failed"
            log.error(what, self._partition, key, exc_info=task.exception())

    async def _find_out(self, group: Proposer, coordinator: int, key: tuple[int, int], overdue: bool) -> None:
        assert self.ask_outcome is not None
        outcome = await self.ask_outcome(coordinator, *key, overdue)
        if outcome is None or self._machine().transactions.get(*key) is None:
            return
        if outcome.committed is None:
            if outcome.soon:
                self._urgent.add(key)
            return
        log.info(
            "partition %s: no marker came for the transaction of producer %d, epoch %d; its coordinator says: %s",
            self._partition, *key, "committed" if outcome.committed else "aborted",
        )  # fmt: skip
        marker = WriteMarker(*key, outcome.committed, outcome.coordinator_epoch)
        try:
            group.propose(self._marker(marker), _unheard)
        except (NotLeader, Overloaded) as error:  # it is asked again, here or by the next leader
            log.debug("partition %s: the end of transaction %s was not proposed: %s", self._partition, key, error)


def _unheard(_: object) -> None:
    """Ignore the outcome: no caller waits for it."""
