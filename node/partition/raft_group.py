"""The part of a Raft group (`cluster.raft.Group`) that a partition needs, and the way from a command to its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from cluster.raft import Committed, Discarded, NotLeader, Outcome, Overloaded
from node.partition.api import Failed


class Proposer(Protocol):
    """A Raft group, as far as proposing needs it."""

    @property
    def is_leader(self) -> bool: ...
    @property
    def leader(self) -> int | None: ...
    def propose(self, data: bytes, done: Callable[[Outcome], None]) -> int: ...


class GroupLike(Proposer, Protocol):
    """A Raft group, as far as a replica needs it."""

    on_role_change: Callable[[Any], None] | None

    @property
    def ready(self) -> bool: ...
    @property
    def members(self) -> tuple[int, ...]: ...
    @property
    def first_index(self) -> int: ...
    @property
    def applied_index(self) -> int: ...
    @property
    def term(self) -> int: ...
    def entry(self, index: int) -> tuple[int, bytes]: ...
    def trim(self, index: int) -> None: ...
    def safe_trim_index(self) -> int: ...
    def read_index(self, done: Callable[[int | None], None]) -> None: ...


async def propose(group: Proposer, command: bytes, what: str) -> Any:
    """Propose a command, and return the state machine's result, or Failed. `what` names the group in error texts. Only
    for commands that may be repeated: nobody knows whether one that failed as `unknown` was applied."""
    answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def resolved(outcome: Outcome) -> None:
        if not answer.done():  # the caller may have given up
            answer.set_result(outcome)

    try:
        group.propose(command, resolved)
    except NotLeader as error:
        return Failed("not_leader", True, f"this node does not lead {what}", error.leader)
    except Overloaded as error:
        return Failed("overloaded", True, str(error))
    outcome = await answer
    if isinstance(outcome, Committed):
        return outcome.result
    if isinstance(outcome, Discarded):
        return Failed("not_leader", True, "another leader went on without it; retry")
    return Failed("unknown", True, f"the leadership of {what} was lost before it was known to be done; retry")


async def confirm_leadership(group: GroupLike) -> bool:
    """Tell whether a majority confirms that this node leads, and it has applied all that was known to be committed
    before."""
    answer: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

    def done(index: int | None) -> None:
        if not answer.done():
            answer.set_result(index)

    group.read_index(done)
    return await answer is not None
