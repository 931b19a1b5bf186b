"""Transaction groups: opened, committed and aborted by the writers of batches, and shown to operators.

The rule: each of these requests may be repeated, by any client that knows the writer, the batch and the run, through
any node; a decision stays. If only time stands in the way of an answer, the node waits for a while; then the answer
says so, and the client asks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from cluster.metadata import MetadataView
from node.admin.errors import AdminRequestFailed
from node.client_transactions.coordinator_lookup import Calls, Coordinators
from node.client_transactions.errors import TransactionFailed
from node.partition.api import Failed
from node.transaction_coordinator.coordinator_commands import Declined
from node.transaction_coordinator.transaction_groups.group_commands import (
    AbortGroup,
    CommitGroup,
    ForgetWriter,
    GroupDecided,
    OpenGroup,
    WriterForgotten,
    WriterOpened,
)
from node.transaction_coordinator.transaction_groups.group_queries import (
    LIST_LIMIT,
    ListWriters,
    MemberRow,
    WriterList,
    WriterRow,
)
from node.transaction_coordinator.transaction_groups.group_state import NONE_CLOSED

KIND = "transaction-group"
OPERATIONS = frozenset(f"{KIND}.{operation}" for operation in ("open", "commit", "abort", "forget", "list", "describe"))

ASK_WITHIN_S = 10.0
"""Time for the leader of the coordinator to answer, and for markers to be everywhere: three elections."""

BUSY_DELAY_S = 0.05
"""Delay between attempts while the earlier batch is being closed."""

DEFAULT_TIMEOUT_MS = 15 * 60 * 1000
"""Default timeout of a group: its prepared members wait so long for the decision, and committed readers for them."""

_CODES = {
    "fenced": "fenced",
    "busy": "unavailable",
    "unknown-id": "not-found",
    "ended": "group-aborted",
    "expired": "group-aborted",
    "invalid": "invalid-argument",
    "too-many": "not-allowed",
    "in-use": "not-allowed",
    "not-prepared": "not-prepared",
    "another-query": "another-query",
}


class TransactionGroupAdministration:
    def __init__(
        self,
        view: MetadataView,
        calls: Calls,
        coordinators: Coordinators,
        current: Callable[[], Awaitable[None]],
    ) -> None:
        """`current`: waits until this node knows all metadata; raises AdminRequestFailed."""
        self._view = view
        self._calls = calls
        self._coordinators = coordinators
        self._current = current
        self._operations = {
            f"{KIND}.open": self._open,
            f"{KIND}.commit": self._commit,
            f"{KIND}.abort": self._abort,
            f"{KIND}.forget": self._forget,
            f"{KIND}.list": self._list,
            f"{KIND}.describe": self._describe,
        }

    async def run(self, operation: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """Run an operation. Raises AdminRequestFailed."""
        return await self._operations[operation](args)

    # ---------------------------------------------------------------- a batch

    async def _open(self, args: Mapping[str, Any]) -> dict[str, Any]:
        timeout_ms = args.get("timeout_ms")
        command = OpenGroup(
            str(args["name"]), _batch(args), _run(args), str(args.get("query") or ""),
            DEFAULT_TIMEOUT_MS if timeout_ms is None else int(timeout_ms), once=bool(args.get("once")),
        )  # fmt: skip
        answer = await self._ask(command.writer, command, WriterOpened)
        return {
            "already_done": answer.already_done,
            "last_committed": _committed(answer.closed),
            "known": answer.known,
            "timeout_ms": answer.timeout_ms,
        }

    async def _commit(self, args: Mapping[str, Any]) -> dict[str, Any]:
        winners = [str(one) for one in args.get("winners") or []]
        command = CommitGroup(str(args["name"]), _batch(args), _run(args), winners)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + ASK_WITHIN_S
        while True:
            answer = await self._ask(command.writer, command, GroupDecided)
            if answer.complete or loop.time() >= deadline_s:
                return {"committed": answer.committed, "complete": answer.complete}

    async def _abort(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Abort a group: for the run that has it open, or, without a run, for an operator."""
        by_operator = args.get("run") is None
        batch = NONE_CLOSED if by_operator and args.get("batch") is None else _batch(args)
        command = AbortGroup(str(args["name"]), batch, "" if by_operator else _run(args), by_operator)
        await self._ask(command.writer, command, GroupDecided)
        return {"committed": False}

    async def _forget(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Forget a writer, by an operator's word that it will not come again. An unknown one is most likely misspelt;
        one that this very request has made unknown is forgotten."""
        row = await self._row_of(str(args["name"]))
        try:
            await self._ask(row.name, ForgetWriter(row.name), WriterForgotten)
        except AdminRequestFailed as error:
            if error.code != "not-found":
                raise
        return {"last_committed": _committed(row.closed)}

    async def _ask(self, writer: str, command: Any, wanted: type) -> Any:
        """Ask the writer's coordinator, again while the earlier batch is being closed."""
        group = await self._coordinator_of(writer)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + ASK_WITHIN_S
        while True:
            answer = await self._calls.ask_until(group, command, max(0.0, deadline_s - loop.time()))
            if isinstance(answer, wanted):
                return answer
            if isinstance(answer, Declined) and answer.retriable and loop.time() < deadline_s:
                await asyncio.sleep(BUSY_DELAY_S)
                continue
            raise _refused(writer, answer)

    async def _coordinator_of(self, writer: str) -> int:
        try:
            return await self._coordinators.group_of(writer)
        except TransactionFailed as error:
            raise AdminRequestFailed("unavailable", error.detail) from error

    # ---------------------------------------------------------------- what is shown

    async def _list(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """List a page of all writers by name; `next`: the name after which the next page begins."""
        await self._current()
        question = ListWriters("", str(args.get("after_writer") or ""))
        pages = await asyncio.gather(*(self._writers(group, question) for group in self._coordinators.groups()))
        horizon = min((page[-1].name for page in pages if len(page) >= LIST_LIMIT), default=None)
        rows = [row for page in pages for row in page if horizon is None or row.name <= horizon]
        return {"writers": [_row(row) for row in sorted(rows, key=lambda row: row.name)], "next": horizon}

    async def _describe(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Describe a writer, with the members of its open batch after `after_member`, a number; `next` likewise."""
        after = max(0, int(args.get("after_member") or 0))
        row = await self._row_of(str(args["name"]), after)
        behind = after + len(row.rows)
        members = [self._member(one) for one in row.rows]
        return {**_row(row), "group_members": members, "next": behind if behind < row.members and members else None}

    async def _row_of(self, name: str, after_member: int = 0) -> WriterRow:
        await self._current()
        rows: list[WriterRow] = []
        if self._coordinators.groups():
            group = await self._coordinator_of(name)
            rows = await self._writers(group, ListWriters(name, after_member=after_member))
        if not rows:
            raise AdminRequestFailed(
                "not-found", f"no coordinator knows a writer {name!r}; `holdfast txn groups` shows them"
            )
        return rows[0]

    async def _writers(self, group: int, question: ListWriters) -> list[WriterRow]:
        answer = await self._calls.ask_until(group, question, ASK_WITHIN_S)
        if not isinstance(answer, WriterList):
            raise _refused(question.name or "all", answer)
        return answer.rows

    def _member(self, one: MemberRow) -> dict[str, Any]:
        return {
            "member": one.id,
            "part": one.part,
            "attempt": one.attempt,
            "state": one.fate,
            "why": one.how or None,
            "open_ms": one.open_ms,
            "lease_ms": one.lease_ms,
            "partitions": [self._place(group) for group in one.groups],
        }

    def _place(self, group: int) -> dict[str, Any]:
        found = self._view.group(group)
        if found is None:  # it was deleted since
            return {"raft_group": group, "log": None, "partition": None}
        return {"raft_group": group, "log": found[0].name, "partition": found[1].name}


def _row(row: WriterRow) -> dict[str, Any]:
    is_open = row.batch >= 0
    return {
        "writer": row.name,
        "run": row.run,
        "last_committed": _committed(row.closed),
        "query": row.query,
        "aborted": row.aborted or None,
        "batch": row.batch if is_open else None,
        "state": row.state if is_open else "closed",
        "open_ms": row.open_ms if is_open else None,
        "timeout_ms": row.timeout_ms if is_open else None,
        "members": row.members,
        "prepared": row.prepared,
        "oldest_member_ms": row.oldest_member_ms if is_open and row.oldest_member_ms > 0 else None,
    }


def _committed(closed: int) -> int | None:
    return None if closed == NONE_CLOSED else closed


def _batch(args: Mapping[str, Any]) -> int:
    batch = args.get("batch")
    if not isinstance(batch, int) or not 0 <= batch < 1 << 63:
        raise AdminRequestFailed("invalid-argument", f"batch: must be a number from 0 on, not {batch!r}")
    return batch


def _run(args: Mapping[str, Any]) -> str:
    run = args.get("run")
    if not isinstance(run, str) or not run:
        raise AdminRequestFailed("invalid-argument", "run: must be a text, drawn anew at each start of the writer")
    return run


def _refused(writer: str, answer: object) -> AdminRequestFailed:
    if isinstance(answer, Declined):
        return AdminRequestFailed(_CODES[answer.code], answer.detail)
    # Even if it is not known whether it was done: a repeated request finds it done.
    detail = answer.detail if isinstance(answer, Failed) else f"it answered {answer}"
    return AdminRequestFailed(
        "unavailable", f"the coordinator of writer {writer!r} could not be asked: {detail}; try again"
    )
