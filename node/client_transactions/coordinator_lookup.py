"""The coordinator of each transactional id, and questions to it.

The rule: an id has the same coordinator for ever, since their number never changes (`cluster.metadata.COORDINATORS`).
They are made when the first id is asked for: a cluster without transactions does not pay for them.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from cluster.metadata import COORDINATORS, CommandResult, MetadataView, Refusal, create_coordinators
from node.client_transactions.errors import TransactionFailed
from node.transaction_coordinator.transaction_groups.group_commands import coordinator_of

MADE_WITHIN_S = 5.0
"""Time for the coordinators to be made, and known at this node."""


class Calls(Protocol):
    """Questions to groups' leaders, as `node.leader_calls.LeaderCalls` asks them."""

    async def ask(self, group: int, question: Any) -> Any: ...
    async def ask_until(self, group: int, question: Any, within_s: float) -> Any: ...


class Coordinators:
    def __init__(
        self,
        view: MetadataView,
        execute: Callable[[Any], Awaitable[CommandResult]],
        until: Callable[[Callable[[], bool], float], Awaitable[bool]],
    ) -> None:
        """`execute`: runs a command of the metadata group. `until`: waits for a state of the metadata."""
        self._view = view
        self._execute = execute
        self._until = until
        self._making: asyncio.Future[None] | None = None

    def groups(self) -> list[int]:
        """Raft groups of the coordinators; [] when there are none yet."""
        log = self._view.log(COORDINATORS)
        return [] if log is None else [partition.group for partition in log.partitions]

    async def group_of(self, transactional_id: str) -> int:
        """Raft group of an id's coordinator, or of a writer of groups; members of its groups are kept with it. Raises
        TransactionFailed."""
        if not self.groups():
            await self._made()
        of_member = coordinator_of(transactional_id)
        if of_member in self.groups():
            return of_member
        groups = self.groups()
        return groups[zlib.crc32(transactional_id.encode()) % len(groups)]

    async def _made(self) -> None:
        if self._making is None:
            self._making = asyncio.ensure_future(self._make())
        try:
            await asyncio.shield(self._making)
        finally:
            if self._making is not None and self._making.done():
                self._making = None

    async def _make(self) -> None:
        now_ms = time.time_ns() // 1_000_000
        result = await self._execute(create_coordinators(now_ms=now_ms, nodes=self._view.able_nodes))
        if isinstance(result, Refusal) and result.code != "already-exists":
            raise TransactionFailed("unavailable", f"there are no transaction coordinators yet: {result.message}")
        if not await self._until(lambda: bool(self.groups()), MADE_WITHIN_S):
            raise TransactionFailed("unavailable", "the transaction coordinators were made, and are not known here yet")
