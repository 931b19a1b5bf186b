"""Transactions that a coordinator's leader ends by itself: their time is over, or their node is gone.

The rules: each ends by a replicated command of its own, and an earlier decision stays. A node that dies may leave
thousands behind: as many at a time are proposed as a turn can bear, the next when those are done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from node.partition.api import Failed
from node.partition.raft_group import GroupLike
from node.transaction_coordinator.coordinator_commands import Expire, NodeStart
from node.transaction_coordinator.dead_nodes import GoneNodes
from node.transaction_coordinator.state import TransactionalId
from node.transaction_coordinator.state_machine import CoordinatorMachine

log = logging.getLogger(__name__)

AT_ONCE = 200
"""Ends proposed at a time: commands of 50 bytes, and as many markers for each partition: some ten milliseconds of the
loop."""


class ExpiringLeader(Protocol):
    """The coordinator's replica on this node, while it leads."""

    @property
    def what(self) -> str: ...
    @property
    def group(self) -> GroupLike: ...
    async def propose(self, command: Any, step: str) -> Any: ...


class Expiry:
    def __init__(
        self, leader: ExpiringLeader, machine: CoordinatorMachine, gone: GoneNodes, now_ms: Callable[[], int]
    ) -> None:
        self._leader = leader
        self._machine = machine
        self._gone = gone
        self._now_ms = now_ms
        self._ending: asyncio.Task[None] | None = None

    def tick(self) -> None:
        """End what is over. The leader calls it about twice a second."""
        if self._ending is None and self._machine.ongoing():
            self._ending = asyncio.ensure_future(self._end_all())
            self._ending.add_done_callback(self._ended)

    def not_leading(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None

    def _ended(self, task: asyncio.Task[None]) -> None:
        if self._ending is task:
            self._ending = None
        if not task.cancelled() and task.exception() is not None:
            log.error("%s: ending what is over failed", self._leader.what, exc_info=task.exception())

    async def _end_all(self) -> None:
        await self._end(self._machine.overdue(self._now_ms()), None, "its time is over")
        held = {one.at for one in self._machine.ongoing() if one.at is not None and not one.writer}
        for start in sorted(await self._gone.among(held, self._leader.group), key=lambda start: start.node):
            ongoing = [one for one in self._machine.ongoing() if one.at == start and not one.writer]
            await self._end(ongoing, start, f"node {start.node}, where it is held, is gone")

    async def _end(self, found: list[TransactionalId], gone: NodeStart | None, why: str) -> None:
        """Propose now what can be proposed, and leave the rest to a later tick."""
        due = [(one.name, one.pair) for one in found]
        for first in range(0, len(due), AT_ONCE):
            some = due[first : first + AT_ONCE]
            for name, pair in some:
                log.info("%s: %r ends (producer %d, epoch %d): %s", self._leader.what, name, *pair, why)
            commands = [Expire(name, *pair, gone=gone) for name, pair in some]
            answers = await asyncio.gather(*(self._leader.propose(command, "expire") for command in commands))
            if any(isinstance(answer, Failed) for answer in answers):
                return
