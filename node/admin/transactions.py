"""Transactions as operators see and end them: asked of coordinators and partitions, through any node.

The rule: the answer is the leaders' word; one that cannot be asked makes the whole answer "unavailable", never a list
that looks complete. A transaction that a partition holds open for longer than its timeout is shown with its
coordinator's answer, since that alone can end it.

Ids that the nodes draw themselves, for clients that name none, are listed while a transaction of theirs is under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from cluster.metadata import INTERNAL_PREFIX, MetadataView
from holdfast import protocol
from node.admin.errors import AdminRequestFailed
from node.client_transactions.coordinator_lookup import Calls, Coordinators
from node.client_transactions.errors import TransactionFailed
from node.client_transactions.transactional_ids import OWN_PREFIX
from node.partition.api import Failed
from node.partition.transactions.transaction_queries import ListTransactions, OpenTransactionRow, OpenTransactions
from node.transaction_coordinator.coordinator_commands import Decided, Declined
from node.transaction_coordinator.coordinator_queries import (
    LIST_LIMIT,
    Abort,
    AskOutcome,
    IdList,
    IdRow,
    ListIds,
    TransactionOutcome,
)

OPERATIONS = frozenset({"transaction.list", "transaction.describe", "transaction.abort", "transaction.hanging"})

ASK_WITHIN_S = 10.0
"""Time for the leader of a coordinator or partition to answer: three elections."""

ASKED_AT_ONCE = 50
"""Partitions, when all are asked."""

MARGIN_MS = 10_000
"""A transaction whose time is over is ended by its coordinator within a moment; one that is open for longer hangs."""

MAX_HANGING = 1000
"""Hanging transactions in one answer: the oldest."""


class TransactionAdministration:
    def __init__(
        self,
        view: MetadataView,
        calls: Calls,
        coordinators: Coordinators,
        current: Callable[[], Awaitable[None]],
        leader_of: Callable[[int], int | None],
    ) -> None:
        """`current`: returns when this node knows all metadata; raises AdminRequestFailed."""
        self._view = view
        self._leader_of = leader_of
        self._calls = calls
        self._coordinators = coordinators
        self._current = current
        self._operations = {
            "transaction.list": self._list,
            "transaction.describe": self._describe,
            "transaction.abort": self._abort,
            "transaction.hanging": self._hanging,
        }

    async def run(self, operation: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """Run an operation. Raises AdminRequestFailed."""
        await self._current()
        return await self._operations[operation](args)

    # ---------------------------------------------------------------- ids

    async def _list(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """List a page of all ids by name; `next`: the name after which the next page begins."""
        question = ListIds("", str(args.get("after_id") or ""), LIST_LIMIT)
        pages = await asyncio.gather(*(self._ids(group, question) for group in self._coordinators.groups()))
        full = [page[-1].name for page in pages if len(page) >= LIST_LIMIT]
        horizon = min(full, default=None)
        rows = [row for page in pages for row in page if horizon is None or row.name <= horizon]
        shown = sorted((row for row in rows if _is_shown(row)), key=lambda row: row.name)
        return {"transactions": [_row(row) for row in shown], "next": horizon}

    async def _describe(self, args: Mapping[str, Any]) -> dict[str, Any]:
        name = str(args["name"])
        group = await self._coordinator_of(name)
        row = await self._find(name, group)
        coordinator = {**self._place(group), "leader": self._leader_of(group)}  # the one that has just answered
        return {**_row(row), "partitions": [self._place(one) for one in row.groups], "coordinator": coordinator}

    async def _abort(self, args: Mapping[str, Any]) -> dict[str, Any]:
        name = str(args["name"])
        group = await self._coordinator_of(name)
        answer = await self._calls.ask_until(group, Abort(name), ASK_WITHIN_S)
        if isinstance(answer, Declined):
            code = "not-found" if answer.code == "unknown-id" else "not-allowed"
            raise AdminRequestFailed(code, f"nothing was aborted: {answer.detail}")
        if not isinstance(answer, Decided):
            raise _unasked(f"the coordinator of {name!r}", answer)
        return await self._describe(args)

    async def _coordinator_of(self, name: str) -> int:
        """Asking for an id makes no coordinators."""
        if not self._coordinators.groups():
            raise _unknown(name)
        try:
            return await self._coordinators.group_of(name)
        except TransactionFailed as error:
            raise AdminRequestFailed("unavailable", error.detail) from error

    async def _find(self, name: str, group: int) -> IdRow:
        rows = await self._ids(group, ListIds(name))
        if not rows:
            raise _unknown(name)
        return rows[0]

    async def _ids(self, group: int, question: ListIds) -> list[IdRow]:
        answer = await self._calls.ask_until(group, question, ASK_WITHIN_S)
        if not isinstance(answer, IdList):
            raise _unasked(f"coordinator {self._place(group)['partition']}", answer)
        return answer.rows

    def _place(self, group: int) -> dict[str, Any]:
        found = self._view.group(group)
        if found is None:  # it was deleted since
            return {"raft_group": group, "log": None, "partition": None}
        return {"raft_group": group, "log": found[0].name, "partition": found[1].name}

    # ---------------------------------------------------------------- what hangs

    async def _hanging(self, args: Mapping[str, Any]) -> dict[str, Any]:
        margin_ms = args.get("margin_ms")
        margin_ms = MARGIN_MS if margin_ms is None else margin_ms
        if margin_ms < 0:
            raise AdminRequestFailed("invalid-argument", f"margin_ms: is 0 or more, not {margin_ms}")
        if not self._coordinators.groups():
            return {"transactions": []}
        at_once = asyncio.Semaphore(ASKED_AT_ONCE)
        groups = [
            partition.group
            for name, record in self._view.logs.items()
            if not name.startswith(INTERNAL_PREFIX)
            for partition in record.partitions
        ]
        found = await asyncio.gather(*(self._overdue(group, margin_ms, at_once) for group in groups))
        rows = sorted((row for some in found for row in some), key=lambda one: -one[1].open_ms)[:MAX_HANGING]
        names = await self._names({row.coordinator for _, row in rows})
        said = await asyncio.gather(*(self._said(row, at_once) for _, row in rows))
        return {
            "transactions": [
                {
                    **self._place(group),
                    "transactional_id": names.get(row.producer_id),
                    "coordinator": self._place(row.coordinator)["partition"],
                    "producer_id": row.producer_id,
                    "epoch": row.epoch,
                    "open_ms": row.open_ms,
                    "timeout_ms": row.timeout_ms,
                    "first_offset": _offset(row.first_offset),
                    "prepared": row.prepared,
                    "coordinator_says": words,
                }
                for (group, row), words in zip(rows, said, strict=True)
            ]
        }

    async def _overdue(
        self, group: int, margin_ms: int, at_once: asyncio.Semaphore
    ) -> Iterable[tuple[int, OpenTransactionRow]]:
        async with at_once:
            answer = await self._calls.ask_until(group, ListTransactions(), ASK_WITHIN_S)
        if isinstance(answer, Failed) and answer.kind == "deleted":
            return []
        if not isinstance(answer, OpenTransactions):
            place = self._place(group)
            raise _unasked(f"partition {place['partition']} of {place['log']!r}", answer)
        return [(group, row) for row in answer.rows if row.open_ms > row.timeout_ms + margin_ms]

    async def _said(self, row: OpenTransactionRow, at_once: asyncio.Semaphore) -> str:
        """A coordinator that cannot be asked may be the very reason."""
        async with at_once:
            answer = await self._calls.ask(row.coordinator, AskOutcome(row.producer_id, row.epoch))
        if not isinstance(answer, TransactionOutcome):
            return "cannot be asked"
        return {True: "committed", False: "aborted", None: "not decided"}[answer.committed]

    async def _names(self, coordinators: set[int]) -> dict[int, str]:
        """The transactional ids of the producers that these coordinators know; those that cannot be asked tell none."""
        names: dict[int, str] = {}
        for group in coordinators:
            after = ""
            while True:
                answer = await self._calls.ask(group, ListIds("", after, LIST_LIMIT))
                rows = answer.rows if isinstance(answer, IdList) else []
                names |= {row.producer_id: row.name for row in rows}
                if len(rows) < LIST_LIMIT:
                    break
                after = rows[-1].name
        return names


def _is_shown(row: IdRow) -> bool:
    return row.open_ms >= 0 or not row.name.startswith(OWN_PREFIX)


def _row(row: IdRow) -> dict[str, Any]:
    return {
        "transactional_id": row.name,
        "state": row.state.replace("_", " "),
        "producer_id": row.producer_id,
        "epoch": row.epoch,
        "timeout_ms": row.timeout_ms,
        "open_ms": row.open_ms if row.open_ms >= 0 else None,
        "partition_count": len(row.groups) if row.open_ms >= 0 else 0,
        "last": row.last or None,
    }


def _offset(offset: int) -> str | None:
    return f"{offset:0{protocol.OFFSET_DIGITS}x}" if offset >= 0 else None


def _unknown(name: str) -> AdminRequestFailed:
    return AdminRequestFailed(
        "not-found", f"no coordinator knows a transactional id {name!r}; `holdfast txn list` shows them"
    )


def _unasked(what: str, answer: object) -> AdminRequestFailed:
    if isinstance(answer, Failed) and answer.kind == "unknown":
        return AdminRequestFailed("unknown", f"{what} was asked, and did not answer: {answer.detail}")
    detail = answer.detail if isinstance(answer, Failed) else f"it answered {answer}"
    return AdminRequestFailed("unavailable", f"{what} could not be asked: {detail}; try again")
