"""A member of a transaction group: the transaction of one task attempt, which writes a part of a batch.

The program that commits the batch decides elsewhere whether the part counts. A task can only say that it has written
all of the part, and it may be a zombie by then.

Rules:
 - a member returns its id only after the nodes have noted that it is prepared. So every winner is whole;
 - after any earlier failure the part does not count, and another attempt has to write it again;
 - the member beats at least four times in each lease. If beats stop, the nodes roll its part back, so that no reader
   waits for it. A process may live on while its program hangs. So with an idle time, a member that gets no call for so
   long gives its part up.
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
from holdfast.client.produce.delivery import Delivery, DeliveryResult
from holdfast.client.produce.event_batch import EventBatch
from holdfast.client.transact.control_link import CoordinatorWish, NotSent, Unanswered
from holdfast.client.transact.transaction import ProducerSide, Transaction
from holdfast.client.transact.transactor import Transactor, TransactorSession

log = logging.getLogger("holdfast.client")

BEATS = 4
"""Heartbeats in a lease: one may be late, and another lost in a change of the coordinator's leader."""

DEFAULT_LEASE_S = 10.0
MIN_LEASE_S, MAX_LEASE_S = 2.0, 300.0
"""Leases that the nodes accept."""


@dataclass(frozen=True)
class GroupNames:
    """Name of a group, which all processes that write a batch share.

    `run`: a new random name for each start of the writer."""

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
    """An attach of a control link as a member of a group."""

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
    """The transactor of a member. Each of its connections is another member: events sent over a broken one are lost."""

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
        self._asked, self._asked_last_s = 0, 0.0  # calls of the program under way; time of the last one

    @contextmanager
    def asked(self) -> Iterator[None]:
        """Count a call of the program as under way inside the block."""
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
        """Prepare the member's transaction."""
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
    """A member of a transaction group, made by `ProducerClient.member` or `TransactionGroup.member`.

    async with group.member(producer, part="3", attempt="0") as member:
        await member.send(b"...", key="IBM")
        winner = await member.prepare()     # a short string, for the program that commits the group
    """

    def __init__(self, side: ProducerSide, transactor: MemberTransactor) -> None:
        self._transactor = transactor
        self._transaction = Transaction(side, transactor)
        self._prepared: str | None = None

    async def begin(self) -> None:
        """Join the group; `async with` does it. Raises GroupFencedError if it is closed or a newer run has it."""
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
        """Roll back a member that is not prepared."""
        await self.abort()

    @property
    def is_open(self) -> bool:
        """True while events can be sent."""
        return self._transaction.is_open

    @property
    def producer_id(self) -> int | None:
        """Producer id of its transaction; with `epoch`, its name in the cluster."""
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
        """Buffer one event, as `Transaction.send` does."""
        with self._transactor.asked():
            return await self._transaction.send(event, key=key, partition=partition, properties=properties)

    async def send_many(
        self, events: Sequence[Event | bytes | str], *, key: str | None = None, partition: str | None = None
    ) -> Delivery:
        """Buffer events, as `Transaction.send_many` does."""
        with self._transactor.asked():
            return await self._transaction.send_many(events, key=key, partition=partition)

    async def send_batch(
        self,
        batch: EventBatch | Sequence[Event | bytes | str],
        *,
        partition: str | None = None,
        key: str | None = None,
    ) -> DeliveryResult:
        """Send a batch to one partition, as `Transaction.send_batch` does."""
        with self._transactor.asked():
            return await self._transaction.send_batch(batch, partition=partition, key=key)

    async def prepare(self) -> str:
        """Prepare the part, which then waits for the decision of its group; return the member's id for the commit.

        Call it when all of the part is written. Raises TransactionRolledBackError (write the part again, as another
        attempt) or GroupFencedError (stop)."""
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
        """The member's id if it is prepared, else None."""
        return self._prepared

    async def abort(self) -> None:
        """Roll the member back, unless it is prepared. Idempotent."""
        if self._prepared is not None:
            return
        try:
            await self._transaction.__aexit__(HoldfastError, None, None)  # if it can still be ended
        finally:
            await self._transactor.close()
