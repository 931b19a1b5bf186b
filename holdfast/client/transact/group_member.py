"""A member of a transaction group: the transaction of one task attempt, which writes a part of a batch.

The program that commits the batch decides elsewhere whether the part counts. A task can only say that it has written
all of the part, and it may be a zombie by then.

Rules:
 - a member returns its id only after the nodes have noted that it is prepared. So every winner is whole;
 - after any earlier failure the part does not count, and another attempt has to write it again;
 - the member beats at least four times in each lease. If beats stop, the nodes roll its part back, so that no reader
   waits for it. A process may live on while its program hangs: with an idle time, a member that gets no call for so
   long gives its part up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast import protocol
from holdfast.amqp.encoding.codec import uint
from holdfast.client.errors import (
    ConfigurationError,
    GroupFencedError,
    HoldfastError,
    InvalidOperationError,
    TransactionRolledBackError,
)
from holdfast.client.options import ProducerOptions
from holdfast.client.produce.delivery import PendingBatch
from holdfast.client.produce.partition_routing import Partitions
from holdfast.client.transact.transaction import BaseTransaction
from holdfast.client.transact.transaction_manager import Transactor
from holdfast.client.transport.network import Network

log = logging.getLogger("holdfast.client")

BEATS = 4  # in a lease: one may be late, and another lost in a change of the coordinator's leader
DEFAULT_LEASE_S = 10.0
MIN_LEASE_S, MAX_LEASE_S = 2.0, 300.0  # that the nodes accept


@dataclass(frozen=True)
class GroupNames:
    """Name of a group, which all processes that write a batch share.

    `run`: a new random name for each start of the writer."""

    writer: str
    batch: int
    run: str

    def __post_init__(self) -> None:
        if not self.writer or not self.run or self.writer.startswith("$"):
            raise ConfigurationError("a group has a writer, without a dollar sign in front of its name, and a run")
        if isinstance(self.batch, bool) or not isinstance(self.batch, int) or not 0 <= self.batch < 1 << 63:
            raise ConfigurationError(f"a batch is a number from 0 on, not {self.batch!r}")


@dataclass(frozen=True)
class MemberNames(GroupNames):
    """Name of a member: its group and its part of the batch; with the times after which it is let go."""

    part: str
    attempt: str
    lease_s: float
    idle_s: float | None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.part:
            raise ConfigurationError("a member writes a part of the batch: name it")
        if not MIN_LEASE_S <= self.lease_s <= MAX_LEASE_S:
            raise ConfigurationError(f"a lease is {MIN_LEASE_S:g} to {MAX_LEASE_S:g} seconds, not {self.lease_s:g}")


class MemberTransactor(Transactor):
    """The transactor of a member. Each of its connections is another member: events sent over a broken one are lost."""

    fenced_as = GroupFencedError

    def __init__(
        self, servers: str | Sequence[str], log_name: str, options: ProducerOptions, plain: Network, names: MemberNames
    ) -> None:
        super().__init__(servers, log_name, options, plain)
        self.names = names

    @property
    def what(self) -> str:
        return f"part {self.names.part!r} of batch {self.names.batch} of {self.names.writer!r}"

    def properties(self) -> dict[str, Any]:
        names = self.names
        return {
            protocol.GROUP_WRITER: names.writer,
            protocol.GROUP_BATCH: names.batch,
            protocol.GROUP_RUN: names.run,
            protocol.GROUP_PART: names.part,
            protocol.GROUP_ATTEMPT: names.attempt,
            protocol.GROUP_LEASE: uint(round(names.lease_s * 1000)),
        }

    @property
    def member(self) -> str | None:
        """Return the id of the member that this connection is. None: there is no connection, or the node is older."""
        told = None if self._open is None else self._open[1].properties.get(protocol.GROUP_MEMBER)
        return None if told is None else str(told)

    async def _unanswered(self, txn_id: bytes, why: HoldfastError, *, empty: bool) -> None:
        if isinstance(why, GroupFencedError):
            raise why
        raise TransactionRolledBackError(
            f"{self.what}: it is not known whether it is prepared ({why}); nobody was given its id, so that it cannot "
            "be among the winners"
        ) from why


class GroupMember(BaseTransaction):
    """A member of a transaction group, made by `ProducerClient.member` or `TransactionGroup.member`.

    async with group.member(producer, part="3", attempt="0") as member:
        await member.send(b"...", key="IBM")
        winner = await member.prepare()     # a short string, for the program that commits the group
    """

    _transactor: MemberTransactor

    def __init__(self, partitions: Partitions, transactor: MemberTransactor) -> None:
        super().__init__(partitions, transactor)
        self._prepared: str | None = None
        self._beating: asyncio.Task[None] | None = None
        self._heard_s = 0.0  # the program asked for something, or got an answer

    async def begin(self) -> None:
        """Join the group; `async with` does it. Raises GroupFencedError if it is closed or a newer run has it."""
        self._hear()
        if self._beating is None:
            self._beating = asyncio.get_running_loop().create_task(self._beat(), name="lease of a group's member")
        try:
            await super().begin()
        except BaseException:
            self._is_over()
            await self._transactor.close()
            raise

    async def _beat(self) -> None:
        transactor, loop = self._transactor, asyncio.get_running_loop()
        while True:
            if self._waits:
                self._hear()
            if transactor.ended is None:
                idle_s = transactor.names.idle_s
                if idle_s is not None and loop.time() - self._heard_s >= idle_s:
                    log.warning("%s: nothing was asked of its member for %g s, it is let go", transactor.what, idle_s)
                    await transactor.drop()
                else:
                    transactor.connection.beat()
            await asyncio.sleep(transactor.names.lease_s / BEATS)

    @property
    def _waits(self) -> bool:
        """True while something that was asked is not answered."""
        asking = not self._may_end or self._beginning.locked() or self._attaching.locked()
        return asking or self._accumulator.events > 0

    def _hear(self) -> None:
        self._heard_s = asyncio.get_running_loop().time()

    def settle(self, batch: PendingBatch, error: HoldfastError | None) -> None:
        self._hear()
        super().settle(batch, error)

    async def prepare(self) -> str:
        """Prepare the part, which then waits for the decision of its group; return the member's id for the commit.

        Call it when all of the part is written. Raises TransactionRolledBackError (write the part again, as another
        attempt) or GroupFencedError (stop)."""
        await self._end("prepared", self._commit)
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
            if self._may_end:
                await super().abort()
        finally:
            await self._transactor.close()

    def _is_over(self) -> None:
        super()._is_over()
        if self._beating is not None:
            self._beating.cancel()
