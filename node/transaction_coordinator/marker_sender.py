"""Markers on their way: for each decided transaction, until every partition has confirmed its own.

The problem: a partition may be without a leader for long, or be deleted, while others of the same transaction are
there; none may be forgotten, and a transaction of a thousand partitions must not be a thousand questions at once. The
rules: a partition is done when its leader has said so, or when the cluster says that it was deleted; any other answer
is tried again, without end; and when this node stops leading the coordinator, it stops sending, since its term is over.

Rejected: remembering in the coordinator's log which partitions are done. A marker that comes again does no harm, and
those of a transaction that is complete are never asked for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from cluster.crash_points import crash_point
from node.partition.api import Failed
from node.partition.transactions.transaction_queries import WriteMarker
from node.partition.transactions.transaction_state import TransactionDone
from node.transaction_coordinator.state import TransactionalId
from node.transaction_coordinator.transitions import DECIDED, TransactionState

log = logging.getLogger(__name__)

FIRST_DELAY_S = 0.05
LONGEST_DELAY_S = 1.0
"""Delay between attempts at one partition, doubled from the first to the longest: elections take less than that."""

AT_ONCE = 64
"""Markers of one transaction under way at a time."""

AskGroup = Callable[[int, Any], Awaitable[Any]]
"""(Raft group, question) -> answer of its leader or Failed, `deleted` when the cluster says that it is gone."""


class MarkerSender:
    def __init__(
        self,
        what: str,
        get: Callable[[str], TransactionalId | None],
        ask: AskGroup,
        complete: Callable[[str, tuple[int, int]], None],
    ) -> None:
        """The log calls the coordinator `what`. `complete` is called when all partitions of a transaction are done,
        and again when the coordinator still has it as decided then."""
        self._what = what
        self._get = get
        self._ask = ask
        self._complete = complete
        self._sending: dict[tuple[int, int], asyncio.Task[None]] = {}

    def send(self, name: str, term: int) -> None:
        """Send the markers of a decided transactional id, if they are not under way. May be called inside a turn."""
        one = self._get(name)
        if one is None or one.state not in DECIDED or one.pair in self._sending:
            return
        pair = one.pair
        question = WriteMarker(*pair, one.state is TransactionState.PREPARE_COMMIT, term)
        task = asyncio.ensure_future(self._send_all(name, tuple(one.groups), question))
        self._sending[pair] = task
        task.add_done_callback(lambda done: self._sent(pair, done))

    def stop(self) -> None:
        """Stop sending: this node does not lead any more."""
        sending, self._sending = self._sending, {}
        for task in sending.values():
            task.cancel()

    def _sent(self, pair: tuple[int, int], task: asyncio.Task[None]) -> None:
        if self._sending.get(pair) is task:
            del self._sending[pair]
        if not task.cancelled() and task.exception() is not None:
            log.error("%s: sending the markers of %s failed", self._what, pair, exc_info=task.exception())

    async def _send_all(self, name: str, groups: tuple[int, ...], question: WriteMarker) -> None:
        room = asyncio.Semaphore(AT_ONCE)

        async def one(group: int) -> None:
            async with room:
                await self._send_one(group, question)

        await asyncio.gather(*map(one, groups))
        self._complete(name, (question.producer_id, question.epoch))

    async def _send_one(self, group: int, question: WriteMarker) -> None:
        delay_s = FIRST_DELAY_S
        while True:
            answer = await self._ask(group, question)
            if isinstance(answer, TransactionDone) or (isinstance(answer, Failed) and answer.kind == "deleted"):
                crash_point("coordinator-after-a-marker")
                return
            if not isinstance(answer, Failed) or not answer.retriable:
                log.error("%s: group %d does not take %s: %s", self._what, group, question, answer)
                delay_s = LONGEST_DELAY_S
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, LONGEST_DELAY_S)
