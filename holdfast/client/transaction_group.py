"""A batch that many processes write together, and one of them commits: all of it counts, once, or nothing does.

Problem: the process that plans a batch, those that write its parts, and the one that commits it share nothing but what
they were told; each of them may run twice, or die without a word; and a batch that was committed may be planned again.
Rules never broken:
 - every call may be made again, by any process that knows the writer, the batch and the run: what was decided stays;
 - a batch at or below the last one that was committed is "already done", and is written by nobody;
 - a batch that would be taken for done, and is another query's, raises WriterChangedError: a writer whose checkpoint
   was deleted counts from 0 again, and would drop what it reads without a word.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal

from holdfast.client.errors import (
    AdminError,
    GroupAbortedError,
    GroupFencedError,
    HoldfastError,
    NotPreparedError,
    WriterChangedError,
)
from holdfast.client.options import check_time
from holdfast.client.producer import ProducerClient
from holdfast.client.transact.group_member import DEFAULT_LEASE_S, GroupMember, GroupNames
from holdfast.client.transport.management_requests import request
from holdfast.client.transport.network import Network, NetworkOptions

log = logging.getLogger("holdfast.client")

KIND = "transaction-group"
DEFAULT_GROUP_TIMEOUT_S = 900.0

Opened = Literal["opened", "already done"]

_ERRORS: dict[str, type[HoldfastError]] = {
    "fenced": GroupFencedError,
    "group-aborted": GroupAbortedError,
    "not-prepared": NotPreparedError,
    "another-query": WriterChangedError,
}


class TransactionGroup:
    """One batch of one writer.

    async with TransactionGroup("127.0.0.1:5672", writer="orders", batch=7, run=run) as group:
        if await group.open() == "opened":
            ...                                     # members, elsewhere: see `GroupMember`
            await group.commit(winners)
    """

    names: GroupNames
    is_new_writer: bool | None = None
    """After `open`: whether the cluster knew nothing of the writer: it has never written, or was forgotten."""
    last_committed: int | None = None
    """After `open`: the writer's last batch that was committed."""

    def __init__(
        self,
        servers: str | Sequence[str],
        *,
        writer: str,
        batch: int,
        run: str,
        timeout_s: float = 60.0,
        options: NetworkOptions | None = None,
    ) -> None:
        """`writer`: the writer's name, which it keeps over restarts. `batch`: a number that grows. `run`: drawn anew at
        each start of the writer; the newest one that opens a batch has it. `timeout_s`: of each call."""
        self.names = GroupNames(writer, batch, run)
        check_time("timeout_s", timeout_s)
        self._timeout_s = timeout_s
        self._network = Network(servers, options)

    async def __aenter__(self) -> TransactionGroup:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends connections, and nothing else: the group stays as it is."""
        await self._network.close()

    # ---------------------------------------------------------------- the batch

    async def open(
        self, *, query: str = "", group_timeout_s: float = DEFAULT_GROUP_TIMEOUT_S, once: bool = False
    ) -> Opened:
        """Open the batch, before it is written. What an earlier run of the writer, or an earlier batch, has left open
        is rolled back. "already done": it was committed before; write nothing, and a commit of it succeeds.

        `query`: whose batches these are, when the writer's name is somebody's choice; a batch that would be "already
        done" and is another query's raises WriterChangedError. `group_timeout_s`: a batch that is neither committed nor
        aborted for so long is rolled back. `once`: the writer's name was drawn for this batch, and will not come again:
        an hour after it is closed the nodes forget it, instead of after 90 days. Raises GroupFencedError: a newer run
        has the writer.
        """
        given = {"query": query, "timeout_ms": round(group_timeout_s * 1000)} | ({"once": True} if once else {})
        answer = await self._request("open", given, self._timeout_s)
        self.is_new_writer = not answer.get("known", True)
        self.last_committed = answer.get("last_committed")
        if self.is_new_writer and self.names.batch > 0:
            log.warning(
                "the cluster knows nothing of writer %r, which comes with batch %d: it is new, or was forgotten",
                self.names.writer, self.names.batch,
            )  # fmt: skip
        return "already done" if answer.get("already_done") else "opened"

    def member(
        self, producer: ProducerClient, *, part: str, attempt: str = "", lease_s: float = DEFAULT_LEASE_S
    ) -> GroupMember:
        """Make a member that writes a part of the batch to the producer's log: see `ProducerClient.member`."""
        names = self.names
        return producer.member(
            writer=names.writer, batch=names.batch, run=names.run, part=part, attempt=attempt, lease_s=lease_s
        )

    async def commit(self, winners: Iterable[str]) -> None:
        """Commit these members, and nothing else of the batch. They count when this returns; or, if a partition is down
        for longer than the timeout, when that is back. Call it again after any failure that is retriable; what was
        committed stays so. Raises NotPreparedError (nothing was decided), GroupFencedError, GroupAbortedError (it was
        rolled back)."""
        given = {"winners": list(winners)}
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._timeout_s
        while True:
            answer = await self._request("commit", given, max(1.0, deadline_s - loop.time()))
            if answer.get("complete"):
                return
            if loop.time() >= deadline_s:
                names = self.names
                log.warning("batch %d of %r is committed, and some partition is down", names.batch, names.writer)
                return

    async def abort(self) -> None:
        """Roll the batch back: nothing of it counts. Idempotent, also if nobody has opened it. Raises GroupFencedError:
        it was committed, or a newer run has it."""
        try:
            await self._request("abort", {}, self._timeout_s)
        except AdminError as error:
            if error.code != "not-found":  # the nodes know nothing of the writer
                raise

    async def describe(self) -> dict[str, Any]:
        """The writer, and what it has open: see `AdminClient.describe_transaction_group`."""
        return await request(
            self._network, KIND, "describe", self.names.writer, {}, changes=False, timeout_s=self._timeout_s
        )

    async def _request(self, operation: str, given: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """Each may be repeated, whatever became of the one before."""
        arguments = {"batch": self.names.batch, "run": self.names.run, **given}
        try:
            return await request(
                self._network, KIND, operation, self.names.writer, arguments, changes=False, timeout_s=timeout_s
            )
        except AdminError as error:
            kind = _ERRORS.get(error.code)
            if kind is None:
                raise
            raise kind(str(error)) from error
