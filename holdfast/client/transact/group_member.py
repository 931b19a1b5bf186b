"""A member of a transaction group: the transaction of one task attempt, which writes a part of a batch.

Problem: whether the part counts is decided elsewhere, by whoever commits the batch; a task can only say that it has
written all of it, and it may be a zombie by then.
Rules never broken:
 - the id of a member is given out when the nodes have noted that it is prepared, and not before: so what is named as a
   winner is whole;
 - whatever goes wrong before that, the part does not count, and has to be written again by another attempt;
 - the nodes hear from this process at least four times in each lease: from whoever hangs, they do not, and then they
   roll its part back, so that no reader waits for it. A process may live on while the program in it hangs: with an
   idle time, a member of which nothing is asked for so long lets its part go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar

from holdfast import protocol
from holdfast.amqp.encoding.codec import uint
from holdfast.client.errors import (
    ConfigurationError,
    GroupFencedError,
    HoldfastError,
    InvalidOperationError,
    TransactionRolledBackError,
)
from holdfast.client.events import Event
from holdfast.client.options import ProducerOptions
from holdfast.client.produce.chunks.delivery import ChunkDelivery, DeliveryResult
from holdfast.client.produce.chunks.single_events import Delivery
from holdfast.client.produce.event_batch import EventBatch
from holdfast.client.transact.control_link import CoordinatorWish, NotSent, Unanswered
from holdfast.client.transact.transaction import ProducerSide, Transaction
from holdfast.client.transact.transactor import Transactor, TransactorSession

log = logging.getLogger("holdfast.client")

BEATS = 4
"""Heartbeats in a lease: one may be late, and one lost in a change of the coordinator's leader."""

DEFAULT_LEASE_S = 10.0
MIN_LEASE_S, MAX_LEASE_S = 2.0, 300.0
"""What the nodes take."""


@dataclass(frozen=True)
class GroupNames:
    """What all processes that work on a batch know of it. `run`: drawn anew at each start of the writer."""

    writer: str
    batch: int
    run: str

    def check(self) -> None:
        if not self.writer or not self.run or self.writer.startswith("$"):
            raise ConfigurationError("a group has a writer, without a dollar sign in front of its name, and a run")
        if isinstance(self.batch, bool) or not isinstance(self.batch, int) or not 0 <= self.batch < 1 << 63:
            raise ConfigurationError(f"a batch is a number from 0 on, not {self.batch!r}")


@dataclass(frozen=True)
class MemberWish(CoordinatorWish):
    """Of the attach of a control link: to be a member."""

    names: GroupNames = GroupNames("", 0, "")
    part: str = ""
    attempt: str = ""
    lease_s: float = DEFAULT_LEASE_S

    fenced: ClassVar[type[HoldfastError]] = GroupFencedError

    def check(self) -> None:
        self.names.check()
        if not self.part:
            raise ConfigurationError("a member writes a part of the batch: name it")
        if not MIN_LEASE_S <= self.lease_s <= MAX_LEASE_S:
            raise ConfigurationError(f"a lease is {MIN_LEASE_S:g} to {MAX_LEASE_S:g} seconds, not {self.lease_s:g}")

    @property
    def what(self) -> str:
        return f"part {self.part!r} of batch {self.names.batch} of {self.names.writer!r}"

    def properties(self) -> dict[str, Any]:
        return {
            protocol.GROUP_WRITER: self.names.writer,
            protocol.GROUP_BATCH: self.names.batch,
            protocol.GROUP_RUN: self.names.run,
            protocol.GROUP_PART: self.part,
            protocol.GROUP_ATTEMPT: self.attempt,
            protocol.GROUP_LEASE: uint(round(self.lease_s * 1000)),
        }


class MemberTransactor(Transactor):
    """Each connection of it is another member: what was sent over one that broke is lost with it."""

    def __init__(
        self,
        servers: str | Sequence[str],
        log_name: str,
        options: ProducerOptions,
        wish: MemberWish,
        idle_s: float | None = None,
    ) -> None:
        super().__init__(servers, log_name, options)
        self._wish, self._idle_s = wish, idle_s
        self._beating: asyncio.Task[None] | None = None
        self._asked, self._asked_last_s = 0, 0.0  # calls of the program that are under way; when there was one last

    @contextmanager
    def asked(self) -> Iterator[None]:
        """The program waits for something."""
        self._asked += 1
        try:
            yield
        finally:
            self._asked -= 1
            self._asked_last_s = asyncio.get_running_loop().time()

    @property
    def is_idle(self) -> bool:
        if self._idle_s is None or self._asked:
            return False
        return asyncio.get_running_loop().time() - self._asked_last_s >= self._idle_s

    def wish(self) -> CoordinatorWish:
        return self._wish

    def opened(self, session: TransactorSession) -> None:
        super().opened(session)
        self._stop_beating()
        self._beating = asyncio.get_running_loop().create_task(self._beat(session), name="lease of a group's member")

    async def _beat(self, session: TransactorSession) -> None:
        while session.ended is None:
            if self.is_idle:
                log.warning("%s: nothing was asked of its member for %g s, it is let go", self._wish.what, self._idle_s)
                await session.close()
                return
            session.connection.beat()
            await asyncio.sleep(self._wish.lease_s / BEATS)

    def _stop_beating(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
            self._beating = None

    async def drop(self) -> None:
        self._stop_beating()
        await super().drop()

    async def commit(self, session: TransactorSession, txn_id: bytes, *, empty: bool) -> None:
        """Returns when it is prepared."""
        try:
            await session.control.discharge(txn_id, fail=False, bound_s=self.options.delivery_timeout_s)
        except (NotSent, Unanswered) as lost:
            await self.drop()
            why = lost.args[0]
            if isinstance(why, GroupFencedError):
                raise why from lost
            raise TransactionRolledBackError(
                f"{self._wish.what}: it is not known whether it is prepared ({why}); nobody was given its id, so that "
                "it cannot be among the winners"
            ) from lost


class GroupMember:
    """Made by `ProducerClient.member`, or `TransactionGroup.member`.

    async with group.member(producer, part="3", attempt="0") as member:
        await member.send(b"...", key="IBM")
        winner = await member.prepare()     # a short string, for whoever commits the group
    """

    def __init__(self, side: ProducerSide, transactor: MemberTransactor) -> None:
        self._transactor = transactor
        self._transaction = Transaction(side, transactor)
        self._prepared: str | None = None

    async def begin(self) -> None:
        """`async with` does it: joins the group. Raises GroupFencedError: it is closed, or a newer run has it."""
        try:
            with self._transactor.asked():
                await self._transaction.begin()
        except BaseException:
            await self._transactor.close()
            raise

    async def __aenter__(self) -> GroupMember:
        await self.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """What was not prepared is rolled back."""
        await self.abort()

    @property
    def is_open(self) -> bool:
        """Events can be sent under it."""
        return self._transaction.is_open

    @property
    def producer_id(self) -> int | None:
        """With `epoch`, the name of its transaction in the cluster."""
        return self._transaction.producer_id

    @property
    def epoch(self) -> int | None:
        return self._transaction.epoch

    async def send(
        self,
        event: Event | bytes | str,
        *,
        key: str | None = None,
        partition: str | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> Delivery:
        """As `Transaction.send`."""
        with self._transactor.asked():
            return await self._transaction.send(event, key=key, partition=partition, properties=properties)

    async def send_many(
        self, events: Sequence[Event | bytes | str], *, key: str | None = None, partition: str | None = None
    ) -> ChunkDelivery:
        """As `Transaction.send_many`."""
        with self._transactor.asked():
            return await self._transaction.send_many(events, key=key, partition=partition)

    async def send_batch(
        self,
        batch: EventBatch | Sequence[Event | bytes | str],
        *,
        partition: str | None = None,
        key: str | None = None,
    ) -> DeliveryResult:
        """As `Transaction.send_batch`."""
        with self._transactor.asked():
            return await self._transaction.send_batch(batch, partition=partition, key=key)

    async def prepare(self) -> str:
        """All of the part is written, and waits for the decision of its group. Returns the member's id, for whoever
        commits that. Raises TransactionRolledBackError (write the part again, as another attempt), GroupFencedError
        (stop)."""
        with self._transactor.asked():
            await self._transaction.commit()
        member = self._transactor.member
        if member is None:
            raise InvalidOperationError(
                "the node has not told the member's id", advice="the nodes are older than this client"
            )
        self._prepared = member
        await self._transactor.close()
        return member

    @property
    def prepared(self) -> str | None:
        """The member's id, when it is prepared."""
        return self._prepared

    async def abort(self) -> None:
        """Nothing of it counts, if it is not prepared. Idempotent."""
        if self._prepared is not None:
            return
        try:
            await self._transaction.__aexit__(HoldfastError, None, None)  # if it can still be ended
        finally:
            await self._transactor.close()
