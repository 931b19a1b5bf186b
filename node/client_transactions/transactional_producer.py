"""A transactional id that is held at this node: the pair (producer id, epoch) of its next transaction.

The problem: each end of a transaction raises the epoch, an answer may be lost, and another node may take the id at any
moment. The rule: a pair is used for one transaction only, and only a pair that the coordinator has told as *the next*
is used; while the coordinator has not finished with the last transaction, the next one waits.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Collection
from typing import Any

from node.client_transactions.coordinator_lookup import Calls
from node.client_transactions.errors import Code, TransactionFailed
from node.partition.api import Failed
from node.transaction_coordinator.coordinator_commands import (
    Added,
    AddPartitions,
    Decided,
    Declined,
    EndTransaction,
    LastEnd,
    NodeStart,
    Register,
    Registered,
)
from node.transaction_coordinator.coordinator_queries import AwaitEnd, DecideTransaction, NoteAndEnd
from node.transaction_coordinator.transaction_groups.group_commands import Prepared

log = logging.getLogger("holdfast.transactions")

BUSY_DELAY_S = 0.05
"""Delay between attempts at a coordinator that is still ending the last transaction."""

REGISTER_WITHIN_S = 10.0
"""Time for a coordinator to have a leader, and for the transaction of an earlier holder to be ended."""

FINISH_WITHIN_S = 30.0
"""Time for the markers of a decided transaction to be everywhere, before its id is given up: a partition may be
down."""

END_ATTEMPT_S = 5.0
"""Time of one attempt to ask for a decision. The caller never gives up, but each attempt ends, so that a change of
leader is noticed."""

DECIDED = ("fenced", "ended", "expired")
"""Codes of an answer to an end that say that the transaction was aborted."""

OVER = (*DECIDED, "unknown-id")
"""Codes of an answer to a note that say that it begins nothing any more."""

_CODES: dict[str, Code] = {
    "forgotten": "fenced",
    "busy": "unavailable",
    "fenced": "fenced",
    "unknown-id": "ended",
    "ended": "ended",
    "expired": "timeout",
    "invalid": "invalid",
    "too-many": "too-many",
    "not-prepared": "invalid",
    "another-query": "invalid",
}


class TransactionalProducer:
    decides = True
    """True if the end of a transaction decides it; a member of a group only prepares its own, even an empty one."""

    def __init__(
        self, calls: Calls, name: str, group: int, timeout_ms: int, *, holder: str = "", succeeds: str = "",
        at: NodeStart | None = None,
    ) -> None:  # fmt: skip
        """`group`: its coordinator. `holder`: the client's name for itself; "": one is drawn. `succeeds`: the holder
        that comes back as this one. `at`: this start of this node."""
        self.name = name
        self.group = group
        self.timeout_ms = timeout_ms
        self.holder = holder or secrets.token_hex(12)
        self.pair: tuple[int, int] | None = None  # of the next transaction, or of the one that is open
        self.last: LastEnd | None = None  # how the transaction before the registration ended
        self.fenced = ""  # why it can do nothing any more
        self._calls = calls
        self._succeeds = succeeds
        self._at = at
        self._finishing: asyncio.Task[None] | None = None

    async def register(self, *, lost: tuple[int, int] | None = None) -> None:
        """Register the id. `lost`: the pair of a transaction that was ended without us; then only if no other holder
        has registered the id since. Raises TransactionFailed."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + REGISTER_WITHIN_S
        question = Register(self.name, self.holder, self.timeout_ms, lost=lost, succeeds=self._succeeds, at=self._at)
        while True:
            left_s = deadline_s - loop.time()
            answer = await self._calls.ask_until(self.group, question, max(0.0, left_s))
            if isinstance(answer, Registered):
                self.pair, self.last = (answer.producer_id, answer.epoch), answer.last
                return
            if isinstance(answer, Declined) and answer.retriable and left_s > 0:
                await asyncio.sleep(BUSY_DELAY_S)
                continue
            raise failed_by(answer)

    async def ready(self) -> tuple[int, int]:
        """The pair for the next transaction; waits for the end of the last one. Raises TransactionFailed."""
        if self._finishing is not None:
            await asyncio.shield(self._finishing)
        if self.fenced:
            raise TransactionFailed("fenced", self.fenced)
        if self.pair is None:
            raise TransactionFailed("unavailable", f"the last transaction of {self.name!r} is not over yet; try again")
        return self.pair

    async def end(self, pair: tuple[int, int], *, commit: bool, groups: Collection[int] = ()) -> Decided | Prepared:
        """End the transaction, and return the final decision: when committed readers see it, or after a while. Asks
        until it is known: without a coordinator to ask, nothing is. `groups`: partitions that take part, and may be
        unknown to the coordinator. Raises TransactionFailed when it was decided otherwise."""
        return await self._end(EndTransaction(self.name, *pair, commit), pair, commit=commit, groups=groups)

    async def decide(self, pair: tuple[int, int], *, commit: bool, groups: Collection[int] = ()) -> Decided | Prepared:
        """End the transaction as `end` does, but return at the decision: only the next one waits for the markers
        (`ready`)."""
        return await self._end(DecideTransaction(self.name, *pair, commit), pair, commit=commit, groups=groups)

    async def _end(
        self,
        question: EndTransaction | DecideTransaction,
        pair: tuple[int, int],
        *,
        commit: bool,
        groups: Collection[int],
    ) -> Decided:
        answer = await self._at_once(question, pair, groups) if groups else None
        while True:
            answer = answer or await self._calls.ask_until(self.group, question, END_ATTEMPT_S)
            if isinstance(answer, Decided):
                break
            if not isinstance(answer, Failed) or not answer.retriable:
                failed = failed_by(answer)
                self._over(failed, pair)
                raise failed
            log.warning("coordinator of %r (group %d) cannot be asked: %s", self.name, self.group, answer.detail)
            answer = None
        if answer.how == "node":  # the coordinator has the id at a start of a node that is gone: tell it of this one
            self._registers_again(pair)
        elif answer.complete:
            self._goes_on(answer, pair)
        else:
            self.pair = None
            self._finishing = asyncio.ensure_future(self._finish(pair, commit=commit))
        return answer

    async def _at_once(
        self, question: EndTransaction | DecideTransaction, pair: tuple[int, int], groups: Collection[int]
    ) -> Any:
        """End the transaction with one question that also notes these partitions. One attempt: an older node does not
        know the question. Then the partitions are noted alone, and the answer is None when the coordinator knows them,
        or has nothing open for them."""
        decide = isinstance(question, DecideTransaction)
        answer = await self._calls.ask(self.group, NoteAndEnd(self.name, *pair, question.commit, list(groups), decide))
        note = AddPartitions(self.name, *pair, list(groups))
        while isinstance(answer, Failed | Declined) and answer.retriable:
            answer = await self._calls.ask_until(self.group, note, END_ATTEMPT_S)
            if isinstance(answer, Added) or (isinstance(answer, Declined) and answer.code in OVER):
                return None
            await asyncio.sleep(BUSY_DELAY_S)
        return answer

    async def _finish(self, pair: tuple[int, int], *, commit: bool) -> None:
        """Wait until every partition has its marker, and the next pair is told. A coordinator that does not know the
        decision, or the question, is asked for the decision again."""
        waits, decides = AwaitEnd(self.name, *pair), EndTransaction(self.name, *pair, commit)
        question: AwaitEnd | EndTransaction = waits
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + FINISH_WITHIN_S
        try:
            while loop.time() < deadline_s:
                answer = await self._calls.ask_until(self.group, question, END_ATTEMPT_S)
                if isinstance(answer, Decided) and answer.complete:
                    self._goes_on(answer, pair)
                    return
                if isinstance(answer, Declined) and not answer.retriable:
                    self._over(failed_by(answer), pair)
                    return
                question = waits if isinstance(answer, Decided) else decides
                await asyncio.sleep(BUSY_DELAY_S)
        finally:
            self._finishing = None

    def _goes_on(self, answer: Decided, pair: tuple[int, int]) -> None:
        self.pair = (answer.producer_id, answer.epoch)
        if self.pair == pair:  # the pair to go on with is told to the holder alone
            self.pair, self.fenced = None, f"another holder has {self.name!r} now"

    def _over(self, why: TransactionFailed, pair: tuple[int, int]) -> None:
        """Note a decision that was made without us. After a timeout the id is still ours, with a pair that has to be
        asked for."""
        if why.code == "fenced":
            self.pair, self.fenced = None, why.detail
        else:
            self._registers_again(pair)

    def _registers_again(self, lost: tuple[int, int]) -> None:
        self.pair = None
        if self._finishing is None:
            self._finishing = asyncio.ensure_future(self._register_again(lost))

    async def _register_again(self, lost: tuple[int, int]) -> None:
        try:
            await self.register(lost=lost)
        except TransactionFailed as error:
            if error.code == "fenced":
                self.fenced = error.detail
            log.info("transactional id %r could not be registered again: %s", self.name, error.detail)
        finally:
            self._finishing = None


def failed_by(answer: object) -> TransactionFailed:
    if isinstance(answer, Declined):
        return TransactionFailed(_CODES[answer.code], answer.detail, decided=answer.code in DECIDED)
    if isinstance(answer, Failed):
        return TransactionFailed("unavailable" if answer.retriable else "invalid", answer.detail)
    return TransactionFailed("unavailable", f"a coordinator answered {answer}")
