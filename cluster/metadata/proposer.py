"""Getting a command into the metadata group from any node.

The problem: the node that takes a command (a client's `$management` link, a node registering itself) may not be the
group's leader, and the leader may fall while it works. The rules: a command carries a random request id, and the state
machine answers a repeated id with the first answer, so a command whose outcome is not known is simply tried again,
within its time; when time is up the caller hears `unavailable` (certainly not done) or `unknown` (perhaps done), never
a guess. Rejected: forwarding inside Raft (pysyncobj does it, and loses answers without saying so).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection
from typing import Protocol

from google.protobuf.message import DecodeError

from cluster.metadata import metadata_pb2 as pb
from cluster.metadata.codec import decode_result, encode_result
from cluster.metadata.command_validation import command_fault
from cluster.metadata.types import CommandResult, Ok, Refusal
from cluster.raft import ENTRY_REGULAR, Committed, Discarded, NodeId, NotLeader, Outcome, Overloaded

log = logging.getLogger("holdfast.metadata")

EXECUTE_TIMEOUT_S = 10.0
"""Three elections long. A caller that waits longer should hear that the cluster has no majority."""

RETRY_S = 0.1
"""Pause between attempts when nothing tells that the leader has changed: a tenth of an election."""

CONFIRM_TIMEOUT_S = 5.0
"""Two elections long, and shorter than what asks for it waits."""

REQUEST_ID_BYTES = 16

NO_LEADER = "the metadata group has no leader now; a majority of the nodes must be up"

Forward = Callable[[NodeId, bytes, float], Awaitable[bytes]]
"""(leader, encoded command, timeout in seconds) -> encoded result. Raises NotLeader, or ConnectionError, whose `sent`
attribute (when there is one) is False if the command certainly did not reach the node."""


Confirm = Callable[[NodeId, float], Awaitable[int]]
"""(leader, timeout in seconds) -> the index that it confirmed. Raises NotLeader or ConnectionError."""


class NotConfirmed(Exception):
    """The metadata known here may be old, and no leader could confirm them. Retry when a majority is up."""


class MetadataGroup(Protocol):
    @property
    def is_leader(self) -> bool: ...
    @property
    def leader(self) -> NodeId | None: ...
    def propose(self, data: bytes, done: Callable[[Outcome], None]) -> int: ...
    def read_index(self, done: Callable[[int | None], None]) -> None: ...
    def when_applied(self, index: int, done: Callable[[int | None], None]) -> None: ...


class CommandProposer:
    """`execute` for callers on this node; `execute_here` for peers that take this node for the leader."""

    def __init__(
        self,
        group: MetadataGroup,
        self_id: NodeId,
        forward: Forward,
        confirm: Confirm | None = None,
        cut_off: Callable[[], bool] = lambda: False,
        others: Callable[[], Collection[NodeId]] = tuple,
    ) -> None:
        """`cut_off`: this node waits in vain, and its clients had better ask another one. `others`: nodes to ask for
        the leader while this one has no place in the group, and hears of none."""
        self._others = others
        self._asked = 0
        self._told: NodeId | None = None
        self._cut_off = cut_off
        self._group = group
        self._self_id = self_id
        self._forward = forward
        self._confirm = confirm
        self._changed = asyncio.Event()

    def leader_changed(self) -> None:
        """Called when the group's leader changes: waiting commands try again at once."""
        self._changed.set()

    async def execute(self, command: pb.Command, timeout_s: float = EXECUTE_TIMEOUT_S) -> CommandResult:
        """Carry a command out once, or answer with `unavailable` or `unknown`."""
        if not command.request_id:
            command = pb.Command.FromString(command.SerializeToString())
            command.request_id = secrets.token_bytes(REQUEST_ID_BYTES)
        fault = command_fault(command)
        if fault is not None:
            return Refusal("invalid-argument", fault)
        data = command.SerializeToString()
        now = asyncio.get_running_loop().time
        deadline = now() + timeout_s
        answer = Refusal("unavailable", NO_LEADER)
        uncertain = False
        while (left_s := deadline - now()) > 0:
            self._changed.clear()
            result = await self._attempt(data, left_s)
            if isinstance(result, Ok) or result.code not in ("unavailable", "unknown"):
                return result
            uncertain = uncertain or result.code == "unknown"
            answer = result
            if self._cut_off():
                break
            await self._wait_for_change(min(RETRY_S, left_s))
        return Refusal("unknown", f"perhaps done, look before trying again: {answer.message}") if uncertain else answer

    async def execute_here(self, data: bytes) -> bytes:
        """Carry out an encoded command as leader of the group, and return the encoded result; raises NotLeader.
        Implements `cluster.rpc.AdminHost.execute`."""
        try:
            fault = command_fault(pb.Command.FromString(data))
        except DecodeError:
            fault = "not a command of the metadata group"
        if fault is not None:
            return encode_result(Refusal("invalid-argument", fault))
        return encode_result(await self._propose(data, EXECUTE_TIMEOUT_S))

    # -- reading

    async def current(self, timeout_s: float = CONFIRM_TIMEOUT_S) -> None:
        """Wait until this node has applied all metadata that anybody was told before the call. Raises NotConfirmed."""
        now = asyncio.get_running_loop().time
        deadline = now() + timeout_s
        why = NO_LEADER
        while (left_s := deadline - now()) > 0:
            self._changed.clear()
            try:
                async with asyncio.timeout(left_s):
                    await self._applied(await self._confirmed(left_s))
                return
            except TimeoutError:
                why = f"no majority has confirmed that the metadata leader still leads within {timeout_s:g} s"
            except NotLeader as error:
                why = NO_LEADER if error.leader is None else str(error)
            except ConnectionError as error:
                why = str(error)
            if self._cut_off():
                break
            await self._wait_for_change(min(RETRY_S, max(0.0, deadline - now())))
        raise NotConfirmed(why)

    async def confirm_here(self) -> int:
        """Confirm the read index as leader; raises NotLeader. Implements `cluster.rpc.AdminHost.confirm`."""
        answer: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._group.read_index(_into(answer))
        index = await answer
        if index is None:
            raise NotLeader(self._group.leader)
        return index

    async def _confirmed(self, timeout_s: float) -> int:
        leader = self._group.leader
        if self._group.is_leader:
            return await self.confirm_here()
        if leader is None or leader == self._self_id or self._confirm is None:
            raise NotLeader(None)
        return await self._confirm(leader, timeout_s)

    async def _applied(self, index: int) -> None:
        answer: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._group.when_applied(index, _into(answer))
        if await answer is None:
            raise NotLeader(None)

    # -- writing

    async def _attempt(self, data: bytes, timeout_s: float) -> CommandResult:
        leader = self._leader()
        try:
            if self._group.is_leader:
                return await self._propose(data, timeout_s)
            if leader is None or leader == self._self_id:
                return Refusal("unavailable", NO_LEADER)
            return decode_result(await self._forward(leader, data, timeout_s))
        except NotLeader as error:
            self._told = error.leader
            return Refusal("unavailable", str(error))
        except DecodeError as error:
            return Refusal("unknown", f"node {leader} answered what cannot be ({error})")
        except ConnectionError as error:
            return Refusal("unknown" if getattr(error, "sent", True) else "unavailable", str(error))

    def _leader(self) -> NodeId | None:
        """The node to ask: the leader, if one is known here or was told, else the next of the others."""
        told, self._told = self._told, None
        others = sorted(self._others())
        if self._group.leader is not None or not others:
            return self._group.leader
        self._asked += 1
        return told if told in others else others[self._asked % len(others)]

    async def _propose(self, data: bytes, timeout_s: float) -> CommandResult:
        outcome_of: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def done(outcome: Outcome) -> None:
            if not outcome_of.done():
                outcome_of.set_result(outcome)

        try:
            self._group.propose(ENTRY_REGULAR + data, done)
            async with asyncio.timeout(timeout_s):
                outcome = await outcome_of
        except Overloaded as error:
            return Refusal("unavailable", str(error))
        except TimeoutError:
            return Refusal("unknown", f"no majority has confirmed the command within {timeout_s:.1f} s")
        return self._result(outcome)

    def _result(self, outcome: Outcome) -> CommandResult:
        if isinstance(outcome, Committed):
            if isinstance(outcome.result, Ok | Refusal):
                return outcome.result
            log.error("metadata entry %d was applied with %r", outcome.index, outcome.result)
            return Refusal("internal-error", f"the command could not be applied: {outcome.result}")
        if isinstance(outcome, Discarded):
            raise NotLeader(self._group.leader)  # certainly not done: another leader's entry took its place
        return Refusal("unknown", "this node lost leadership of the metadata group meanwhile")

    async def _wait_for_change(self, at_most_s: float) -> None:
        try:
            async with asyncio.timeout(at_most_s):
                await self._changed.wait()
        except TimeoutError:
            return


def _into(answer: asyncio.Future[int | None]) -> Callable[[int | None], None]:
    def done(index: int | None) -> None:
        if not answer.done():  # the caller may have given up
            answer.set_result(index)

    return done
