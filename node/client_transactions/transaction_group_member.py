"""A member of a transaction group, held at this node for a client: one transaction, whose end its group decides.

The problem: the client says "commit" when it has written its part, and another process decides elsewhere, and later,
whether that counts. The rules: the client hears "done" when the coordinator has noted the member as prepared; from then
on nothing here ends it, neither the end of the link nor that of this node; before that, a client that goes silent or
away takes its member along.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from node.client_transactions.coordinator_lookup import Calls
from node.client_transactions.errors import TransactionFailed
from node.client_transactions.transactional_producer import (
    END_ATTEMPT_S,
    REGISTER_WITHIN_S,
    TransactionalProducer,
    failed_by,
)
from node.partition.api import Failed
from node.transaction_coordinator.coordinator_commands import Decided, EndTransaction
from node.transaction_coordinator.transaction_groups.group_commands import (
    Joined,
    JoinGroup,
    Prepared,
    PrepareMember,
    member_name,
)
from node.transaction_coordinator.transaction_groups.group_queries import Renewed, RenewLeases

log = logging.getLogger("holdfast.transactions")

RENEW_PERIOD_S = 0.5
"""Time between renewals of the leases of this node's members: a quarter of the shortest."""

DEFAULT_LEASE_MS = 45_000
"""Lease for clients that ask for none: they send a heartbeat every thirty seconds at the latest, since nodes ask for
it."""


@dataclass(frozen=True, slots=True)
class MemberTerms:
    """Terms of a client that joins a group: the group, and the part that it writes."""

    writer: str
    batch: int
    run: str
    part: str
    attempt: str = ""
    lease_ms: int = DEFAULT_LEASE_MS


class MemberProducer(TransactionalProducer):
    decides = False

    def __init__(self, calls: Calls, group: int, terms: MemberTerms) -> None:
        super().__init__(calls, "", group, 0)
        self.member = ""
        self.lease_ms = terms.lease_ms
        self._terms = terms
        self._begun = self._end_asked = False

    async def join(self) -> None:
        """Join the group. Raises TransactionFailed."""
        terms = self._terms
        question = JoinGroup(
            terms.writer, terms.batch, terms.run, terms.part, terms.attempt, self.holder, terms.lease_ms
        )
        answer = await self._calls.ask_until(self.group, question, REGISTER_WITHIN_S)
        if not isinstance(answer, Joined):
            raise failed_by(answer)
        self.member, self.name = answer.member, member_name(answer.member)
        self.pair = (answer.producer_id, answer.epoch)
        self.lease_ms, self.timeout_ms = answer.lease_ms, answer.timeout_ms

    async def ready(self) -> tuple[int, int]:
        if self._begun or self.pair is None:
            raise TransactionFailed("ended", "a member has one transaction: join the group again for another one")
        self._begun = True
        return self.pair

    async def end(self, pair: tuple[int, int], *, commit: bool, groups: Collection[int] = ()) -> Decided | Prepared:
        """Prepare the member, or abort it. Asks until the outcome is known. Raises TransactionFailed."""
        self._end_asked = True
        question: Any = PrepareMember(self.member) if commit else EndTransaction(self.name, *pair, commit=False)
        while True:
            answer = await self._calls.ask_until(self.group, question, END_ATTEMPT_S)
            if isinstance(answer, Prepared | Decided):
                return answer
            if not isinstance(answer, Failed) or not answer.retriable:
                raise failed_by(answer)
            log.warning("coordinator of %s (group %d) cannot be asked: %s", self.name, self.group, answer.detail)

    @property
    def is_left(self) -> bool:
        """True if the member joined, and nothing was begun or ended under it."""
        return self.pair is not None and not self._begun and not self._end_asked


@dataclass(slots=True)
class _Lease:
    producer: MemberProducer
    heard: Callable[[], bool]
    over: Callable[[str], None]
    due: bool = False  # its client was heard since the coordinator was told last


class LeaseRenewer:
    """Renews the leases of the members that are held at this node, while their clients are heard."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._held: dict[str, _Lease] = {}
        self._renewing: asyncio.Task[None] | None = None

    def keep(self, producer: MemberProducer, heard: Callable[[], bool], over: Callable[[str], None]) -> None:
        """Keep a member's lease. `heard`: whether anything came from its client since the last call. `over` is called
        when the member has no lease any more, and was not released."""
        self._held[producer.member] = _Lease(producer, heard, over)
        self._start()

    def _start(self) -> None:
        if self._renewing is None and self._held:
            self._renewing = asyncio.ensure_future(self._keep_renewing())
            self._renewing.add_done_callback(self._stopped)

    def _stopped(self, task: asyncio.Task[None]) -> None:
        """Start renewing again: a bug met for one member must not cost the others their leases."""
        self._renewing = None
        if task.cancelled():
            return
        if task.exception() is not None:
            log.error("renewing leases failed; it is begun anew", exc_info=task.exception())
        self._start()

    def let_go(self, producer: MemberProducer) -> None:
        self._held.pop(producer.member, None)

    async def _keep_renewing(self) -> None:
        while self._held:
            await asyncio.sleep(RENEW_PERIOD_S)
            by_group: dict[int, list[_Lease]] = {}
            for lease in self._held.values():
                lease.due = lease.heard() or lease.due
                by_group.setdefault(lease.producer.group, []).append(lease)
            await asyncio.gather(*(self._renew(group, leases) for group, leases in by_group.items()))

    async def _renew(self, group: int, leases: list[_Lease]) -> None:
        """Renew once: the next attempt is soon."""
        renewed = [lease for lease in leases if lease.due]
        silent = [lease.producer.member for lease in leases if not lease.due]
        answer = await self._calls.ask(group, RenewLeases([lease.producer.member for lease in renewed], silent))
        if not isinstance(answer, Renewed):
            return
        for lease in renewed:
            lease.due = False
        for lease in leases:
            member = lease.producer.member
            if member in answer.over and self._held.pop(member, None) is not None:
                lease.over(f"member {member} is over: its lease has ended, or its group was closed without it")

    async def close(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
