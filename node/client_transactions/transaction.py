"""One transaction, from its declaration to its end, at the node where its client is connected.

The problem: the coordinator must know of a partition before it could be needed to end the transaction there, and each
partition must have the transaction's begin before its first event; what fails on the way must never be committed. The
rules:
 - each partition is noted at the coordinator before its commit is decided, and before an offset is staged there;
 - what could not be written, or whose fate is not known, makes the transaction roll back, whatever its client asks for;
 - it is ended once: the first end that is asked for decides, and everything that comes later hears that it is over.

The partition's begin goes in front of the first events, in one round of replication with them, and the coordinator's
note goes with the end, in one round with the decision; one that lasts longer is noted before (`NOTE_AFTER_S`), so that
its time runs out there, and the next holder of its id ends it. So a partition may hold events of a transaction that the
coordinator has not heard of, when this node dies or the id has another holder: then it asks by itself, and what never
began at the coordinator never may (`FenceTransaction`). That takes the transaction's time, which for members of groups
is hours, while their leases are short; so members write nothing before both have confirmed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from cluster.crash_points import crash_point
from node.client_transactions.coordinator_lookup import Calls
from node.client_transactions.errors import TransactionFailed
from node.client_transactions.transactional_producer import TransactionalProducer
from node.partition.api import Failed
from node.partition.transactions.transaction_commands import Begin, StageOffset
from node.partition.transactions.transaction_state import TransactionDone, TransactionRefused
from node.transaction_coordinator.coordinator_commands import Added, AddPartitions, Declined

JOIN_WITHIN_S = 10.0
"""Time for a partition to take part: three elections. No longer than the transaction's own time."""


RETRY_DELAY_S = 0.05
"""Delay between attempts that may soon succeed."""

NOTE_AFTER_S = 1.0
"""Time that a transaction may write unknown to its coordinator, or a quarter of its own time, if that is less. A new
holder of its id, or an operator, finds nothing meanwhile; partitions ask about it later than that, by themselves."""


class HoldState(Enum):
    OPEN = auto()
    ENDING = auto()  # its end was asked for
    ENDED = auto()


@dataclass(frozen=True, slots=True)
class StagedPosition:
    """Position of a group that a transaction stages: at the commit everything below `position` is done for the group
    `key`, whose claim is `claim`, in the partition of the Raft group."""

    group: int
    key: str
    claim: int
    position: int


class HeldTransaction:
    answers_early = False
    """True if the end is answered when it is decided, before committed readers see it."""

    def __init__(self, calls: Calls, producer: TransactionalProducer, pair: tuple[int, int]) -> None:
        self.producer = producer
        self.pair = pair
        self.state = HoldState.OPEN
        self.rollback_only = ""
        """Reason why it can only be rolled back; "": it can be committed."""
        self._calls = calls
        self._joined: dict[int, asyncio.Future[Failed | None]] = {}  # by Raft group
        self._begun: dict[int, asyncio.Future[Failed | None]] = {}  # of those that begin with their first events
        self._to_add: list[int] = []
        self._adding: asyncio.Task[Failed | None] | None = None
        self._joining: set[asyncio.Task[None]] = set()
        self._unnoted: list[int] = []  # take part, and the coordinator was not told
        self._noting: asyncio.Task[None] | None = None
        self._is_telling = False

    @property
    def takes_part(self) -> bool:
        """True if a partition may know of the transaction."""
        return bool(self._joined)

    def must_roll_back(self, why: str) -> None:
        """Mark the transaction as one that can only be rolled back. The first reason counts."""
        self.rollback_only = self.rollback_only or why

    # ------------------------------------------------------------ taking part

    def join(self, group: int) -> asyncio.Future[Failed | None]:
        """Let the partition take part. The future has None when it does, or the failure; then the transaction must roll
        back."""
        return self._joined.get(group) or self._joins(group, self._add(group), self._begin(group))

    def begins_with_events(self, group: int) -> tuple[int, int] | None:
        """The partition's `Begins`, for a caller that puts it on the first events, and tells by `begun` what has become
        of them. None: the events must wait until the partition has joined."""
        if group in self._joined or not self.producer.decides:
            return None
        told = self._begun[group] = asyncio.get_running_loop().create_future()
        self._note_later(group)
        self._joins(group, self._told(told))
        return self.producer.group, self.producer.timeout_ms

    def begun(self, group: int, failed: Failed | None) -> None:
        """Note that the first events of the partition are stored, or failed, or are in doubt."""
        told = self._begun[group]
        if not told.done():
            told.set_result(failed)

    async def _told(self, told: asyncio.Future[Failed | None]) -> Failed | None:
        try:
            async with asyncio.timeout(JOIN_WITHIN_S):
                return await told
        except TimeoutError:
            return Failed("unknown", True, f"its first events there were not stored within {JOIN_WITHIN_S:g} s")

    def _joins(self, group: int, *steps: Coroutine[Any, Any, Failed | None]) -> asyncio.Future[Failed | None]:
        joined = self._joined[group] = asyncio.get_running_loop().create_future()
        task = asyncio.ensure_future(self._join(steps, joined))
        self._joining.add(task)
        task.add_done_callback(self._joining.discard)
        return joined

    async def _join(
        self, steps: tuple[Coroutine[Any, Any, Failed | None], ...], joined: asyncio.Future[Failed | None]
    ) -> None:
        failed: Failed | None = Failed("unknown", True, "the node is stopping")
        try:
            failed = next((one for one in await asyncio.gather(*steps) if one is not None), None)
        finally:
            if failed is not None:
                self.must_roll_back(failed.detail)
            if not joined.done():
                joined.set_result(failed)

    async def _begin(self, group: int) -> Failed | None:
        producer = self.producer
        begin = Begin(*self.pair, producer.group, producer.timeout_ms)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + JOIN_WITHIN_S
        while True:
            answer = await self._calls.ask_until(group, begin, max(0.0, deadline_s - loop.time()))
            waits = isinstance(answer, TransactionRefused) and answer.code == "undecided" and loop.time() < deadline_s
            if not waits:
                return _failed(answer, TransactionDone)
            await asyncio.sleep(RETRY_DELAY_S)  # the end of an earlier transaction of this id is on its way there

    async def _add(self, group: int) -> Failed | None:
        """Add a partition at the coordinator; those of one turn of the loop are one command."""
        self._to_add.append(group)
        if self._adding is None:
            self._adding = asyncio.ensure_future(self._add_gathered())
        return await self._adding

    async def _add_gathered(self) -> Failed | None:
        await asyncio.sleep(0)
        groups, self._to_add, self._adding = self._to_add, [], None
        return await self._add_all(groups)

    async def _add_all(self, groups: list[int]) -> Failed | None:
        question = AddPartitions(self.producer.name, *self.pair, groups)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + JOIN_WITHIN_S
        while True:
            answer = await self._calls.ask_until(self.producer.group, question, max(0.0, deadline_s - loop.time()))
            if not (isinstance(answer, Declined) and answer.retriable and loop.time() < deadline_s):
                return _failed(answer, Added)
            await asyncio.sleep(RETRY_DELAY_S)  # the coordinator is ending the last transaction of this id

    # ------------------------------------------------------------ what the coordinator is told later

    def _note_later(self, group: int) -> None:
        self._unnoted.append(group)
        if self._noting is None:
            self._noting = asyncio.ensure_future(self._note_in(min(NOTE_AFTER_S, self.producer.timeout_ms / 4000)))

    async def _note_in(self, after_s: float) -> None:
        """Tell the coordinator of partitions when the end has not come by then: it may be far."""
        while self._unnoted and not self.rollback_only:
            await asyncio.sleep(after_s)
            self._is_telling = True
            await self._note()
            self._is_telling = False
        self._noting = None

    async def _note(self) -> None:
        groups, self._unnoted = self._unnoted, []
        failed = await self._add_all(groups)
        if failed is not None:
            self._unnoted += groups  # the end tells of them
            self.must_roll_back(failed.detail)

    async def _noted(self) -> list[int]:
        """Wait for notes under way. Returns the partitions that the coordinator may not know: the caller must tell
        it."""
        while self._noting is not None:
            if self._is_telling:
                await asyncio.wait([self._noting])
            else:
                self._noting.cancel()
                self._noting = None
        return self._unnoted

    # ------------------------------------------------------------ the end

    async def abort(self) -> None:
        """Roll back. When this returns nothing of the transaction ever counts, unless it was ended before."""
        if not self._end_begins():
            return
        try:
            await self._roll_back()
        finally:
            self.state = HoldState.ENDED

    async def commit(self, positions: Iterable[StagedPosition] = ()) -> None:
        """Commit. All events count when this returns, or will in a moment in partitions that are down. Raises
        TransactionFailed: none of them ever will. The caller has seen each event written."""
        if not self._end_begins():
            raise TransactionFailed("ended", "the transaction has been ended before", decided=True)
        try:
            if not self.rollback_only:
                await self._all_joined()
            if not self.rollback_only:
                await self._stage_all(list(positions))
            if self.rollback_only:
                await self._roll_back()
                raise TransactionFailed("ended", f"it was rolled back: {self.rollback_only}", decided=True)
            crash_point("manager-before-end")
            if self._must_be_told:
                await self._decide(commit=True)
            crash_point("manager-after-end")
        finally:
            self.state = HoldState.ENDED

    @property
    def _must_be_told(self) -> bool:
        """True if the coordinator waits for the end."""
        return bool(self._joined) or not self.producer.decides

    async def _roll_back(self) -> None:
        """Roll back. Without partitions there is nothing to decide, and the next transaction has the same pair."""
        if self._must_be_told:
            try:
                await self._decide(commit=False)
            except TransactionFailed as error:
                if error.code not in ("fenced", "ended", "timeout"):
                    raise

    def _end_begins(self) -> bool:
        if self.state is not HoldState.OPEN:
            return False
        self.state = HoldState.ENDING
        return True

    async def _decide(self, *, commit: bool) -> None:
        await self._all_joined()  # what is begun behind its end would wait for its timeout
        groups = await self._noted()
        end = self.producer.decide if self.answers_early else self.producer.end
        await end(self.pair, commit=commit, groups=groups)

    async def _all_joined(self) -> None:
        """Wait until every partition has joined, or has failed to."""
        if self._joined:
            await asyncio.wait(list(self._joined.values()))

    async def _stage_all(self, positions: list[StagedPosition]) -> None:
        if positions and await self._noted():
            await self._note()
        by_group: dict[int, list[StagedPosition]] = {}
        for one in positions:
            by_group.setdefault(one.group, []).append(one)
        await asyncio.gather(*(self._stage(group, wanted) for group, wanted in by_group.items()))

    async def _stage(self, group: int, wanted: list[StagedPosition]) -> None:
        """Stage positions in one partition. The last one prepares it: from then on no claim takes over what is staged
        there."""
        failed = await self.join(group)
        for one in wanted:
            if failed is not None:
                self.must_roll_back(failed.detail)
                return
            question = StageOffset(*self.pair, one.key, one.claim, one.position, prepare=one is wanted[-1])
            answer = await self._calls.ask_until(group, question, JOIN_WITHIN_S)
            failed = _failed(answer, TransactionDone)
        if failed is not None:
            self.must_roll_back(failed.detail)


def _failed(answer: object, wanted: type) -> Failed | None:
    if isinstance(answer, wanted):
        return None
    if isinstance(answer, Failed):
        return answer
    return Failed("transaction_ended", False, getattr(answer, "detail", str(answer)))
