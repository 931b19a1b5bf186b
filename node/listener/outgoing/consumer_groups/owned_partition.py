"""A claim that a link holds on a partition: made before the attach is answered, used while the link lives, then let go.

Problem: the claim lives in the partition's log, the link on a socket of this node, and either may go first.
Rules never broken:
 - the attach is answered only when the claim is in force, and events come only over readers in its name;
 - when the link ends, the claim is ended as what happened says: for good when the receiver closed the link, in peace
   when it was detached or asked to go, lost when the socket died. It is *not* ended when the peer was told to attach
   again elsewhere: then the owner is on its way, and no other may slip in;
 - a position is committed only up to the oldest delivery that is not settled.

Commits of settled deliveries are gathered for a moment: a consumer that settles each of a thousand events a second is
one entry every fifth of a second. What was settled in the last moment before a crash is delivered again.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections import deque
from collections.abc import Coroutine, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, Protocol

from node.listener import errors
from node.listener.broker_interface import Broker
from node.listener.errors import Refused
from node.partition.api import After, Earliest, Failed, Question, ReaderClaim, Start
from node.partition.consumer_groups.group_state import (
    NOTHING,
    Commit,
    Denied,
    Done,
    End,
    EndClaim,
    Owned,
)

log = logging.getLogger("holdfast.listener")

COMMIT_DELAY_S = 0.2
"""Delay from a settlement to its commit: bounds what may be delivered again after a crash, and how many entries that
costs."""

RETRY_DELAY_S = 0.1
"""Delay between attempts while a partition has no leader."""

ATTEMPTS_S = 10.0
"""Time after which a claim whose end cannot be told is left to its lease."""


class Paced(Protocol):
    """Limits on what the links of a connection do at once."""

    letting_go: asyncio.Semaphore

    @property
    def pace(self) -> float:
        """Factor by which a waiting receiver waits longer between two questions for a partition."""
        ...


class BackgroundWork(Protocol):
    """The owner of work that outlives a connection."""

    def errand(self, work: Coroutine[Any, Any, None]) -> None: ...

    @property
    def attaches(self) -> Paced: ...


class OwnedPartition:
    def __init__(
        self,
        broker: Broker,
        errands: BackgroundWork,
        log_name: str,
        partition: str,
        key: str,
        owned: Owned,
        *,
        durable: bool,
    ) -> None:
        self.partition = partition
        self.owner = ReaderClaim(key, owned.claim)
        self.epoch = owned.epoch
        self.position = owned.position  # committed
        self.continued = owned.continued
        self._broker, self._errands, self._log = broker, errands, log_name
        self._durable = durable
        self._order: deque[tuple[int, int]] = deque()  # (delivery, offset), from the oldest that is not settled
        self._unsettled: set[int] = set()
        self._given_back: set[int] = set()  # of those: they come again, unless they are not stored any more
        self._reached = owned.position  # what may be committed
        self._staged = owned.position  # what the last transaction was asked to commit
        self._commit_timer: asyncio.TimerHandle | None = None
        self._committing = False
        self._ended = False

    @property
    def start(self) -> Start | None:
        """Start that the position says; None: there is no position."""
        if self.position == NOTHING:
            return None
        return After(self.position - 1) if self.position > 0 else Earliest()

    async def fix_position(self, position: int) -> None:
        """Replicate the first position: this one, or the end if that is lower. Raises Refused."""
        while True:
            answer = await self._ask(Commit(self.owner.key, self.owner.claim, position))
            if isinstance(answer, Done):
                self.position = self._reached = answer.position
                return
            if isinstance(answer, Denied) and answer.code == "out-of-range":
                position = min(position, await self._end())
            elif isinstance(answer, Denied):
                raise Refused(errors.claim_denied(answer, self._log, self.partition, self.owner.key))
            elif not answer.retriable:
                raise Refused(errors.group_failed(answer, self._log))
            else:
                await asyncio.sleep(RETRY_DELAY_S)

    async def _end(self) -> int:
        while True:
            try:
                return (await self._broker.handle(self._log, self.partition).info()).next_offset
            except (ConnectionError, LookupError, TimeoutError):
                if self._broker.describe(self._log) is None:
                    raise Refused(errors.log_deleted(self._log)) from None
                await asyncio.sleep(RETRY_DELAY_S)  # a new leader: the caller's timeout ends this

    # ------------------------------------------------------------ settlements

    def sent(self, numbers: range, runs: Sequence[tuple[int, int]], presettled: bool) -> None:
        """Note deliveries that are on their way; `runs` of (offset, count)."""
        if presettled and not self._durable:
            return
        offsets = chain.from_iterable(range(offset, offset + count) for offset, count in runs)
        for number, offset in zip(numbers, offsets, strict=False):
            if self._order and offset <= self._order[-1][1]:
                self._sent_again(number, offset)
            else:
                self._pass_over_what_is_gone()
                self._order.append((number, offset))
        if presettled:
            self.settled(())
        else:
            self._unsettled.update(numbers)

    def _sent_again(self, number: int, offset: int) -> None:
        """Let a delivery take the place of the one that was given back by a rollback."""
        at = bisect_left(self._order, offset, key=itemgetter(1))
        if self._order[at][1] != offset:  # its group's position has passed it
            return
        self._unsettled.discard(self._order[at][0])
        self._given_back.discard(self._order[at][0])
        self._order[at] = (number, offset)

    def given_back(self, number: int) -> None:
        """Note a delivery whose event is handed out again before anything new."""
        if number in self._unsettled:
            self._given_back.add(number)

    def _pass_over_what_is_gone(self) -> None:
        """Give up given-back deliveries that have not come again: something new is handed out, so retention took
        them."""
        self._unsettled -= self._given_back
        self._given_back.clear()

    def settled(self, numbers: Sequence[int]) -> None:
        """Note settled deliveries; by these alone the position moves only if the source is durable."""
        if self._advance(numbers) and self._durable:
            self._commit_soon()

    def _advance(self, numbers: Sequence[int]) -> bool:
        """Advance the position that may be committed. Returns whether it moved."""
        self._unsettled.difference_update(numbers)
        order, reached = self._order, self._reached
        while order and order[0][0] not in self._unsettled:
            reached = order.popleft()[1] + 1
        if reached <= self._reached:
            return False
        self._reached = reached
        return True

    def _commit_soon(self) -> None:
        if self._commit_timer is None and not self._committing and not self._ended:
            self._commit_timer = asyncio.get_running_loop().call_later(COMMIT_DELAY_S, self._commit_due)

    # ------------------------------------------------------------ transactions

    def position_with(self, numbers: Sequence[int]) -> int | None:
        """Position that a transaction with these deliveries stages; None: it does not move."""
        counted, reached = set(numbers), self._reached
        for number, offset in self._order:
            if number in self._unsettled and number not in counted:
                break
            reached = offset + 1
        self._staged = reached
        return reached if reached > self._reached else None

    def moved(self, numbers: Sequence[int]) -> None:
        """Note that a transaction has moved the position over these deliveries."""
        self.position = max(self.position, self._staged)
        if self._advance(numbers) and self._durable and self._reached > self.position:
            self._commit_soon()

    @property
    def all_settled(self) -> bool:
        return not self._unsettled

    def _commit_due(self) -> None:
        self._commit_timer = None
        self._committing = True
        self._errands.errand(self._commit_now())

    async def _commit_now(self) -> None:
        try:
            await self._commit()
        finally:
            self._committing = False
        if self._reached > self.position and not self._ended:
            self._commit_timer = asyncio.get_running_loop().call_later(COMMIT_DELAY_S, self._commit_due)

    async def _commit(self) -> None:
        """Commit the reached position; a claim that is not in force commits no more. Without a leader the next commit
        repeats it."""
        reached = self._reached
        answer = await self._ask(Commit(self.owner.key, self.owner.claim, reached))
        if isinstance(answer, Done):
            self.position = max(self.position, reached)
        elif isinstance(answer, Denied):
            self._durable = False

    # ------------------------------------------------------------ the end

    def end(self, how: End | None) -> None:
        """End the claim: the link is gone. None: the owner was told to attach again, and the claim waits for it.
        Idempotent."""
        if self._ended:
            return
        self._ended = True
        if self._commit_timer is not None:
            self._commit_timer.cancel()
            self._commit_timer = None
        self._errands.errand(self._let_go(how))

    async def _let_go(self, how: End | None) -> None:
        """Commit and release the claim, through an election; after ATTEMPTS_S without success the claim is left to its
        lease."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + ATTEMPTS_S
        if self._durable and self._reached > self.position:
            await self._told(Commit(self.owner.key, self.owner.claim, self._reached), deadline_s)
        if how is not None:
            await self._told(EndClaim(self.owner.key, self.owner.claim, how), deadline_s)

    async def _told(self, question: Question, deadline_s: float) -> None:
        loop = asyncio.get_running_loop()
        while True:
            async with self._errands.attaches.letting_go:  # not while it waits for a leader: others have theirs
                answer = await self._ask(question)
            if not (isinstance(answer, Failed) and answer.retriable):
                return
            if loop.time() > deadline_s:
                log.info("partition %s of %s was not told %s: %s", self.partition, self._log, question, answer.detail)
                return
            await asyncio.sleep(RETRY_DELAY_S)

    async def _ask(self, question: Question) -> Any:
        try:
            return await self._broker.handle(self._log, self.partition).ask(question)
        except KeyError:
            return Failed("deleted", False, f"log {self._log!r} was deleted")
