"""A transaction group of a program without an event loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Self

from holdfast.client import transaction_group
from holdfast.client.sync.group_member import GroupMember
from holdfast.client.sync.producer import ProducerClient
from holdfast.client.sync.twin import Twin
from holdfast.client.transact.group_member import DEFAULT_LEASE_S, GroupNames
from holdfast.client.transaction_group import DEFAULT_GROUP_TIMEOUT_S, Opened
from holdfast.client.transport.network import NetworkOptions


class TransactionGroup(Twin[transaction_group.TransactionGroup]):
    """See `holdfast.client.TransactionGroup`."""

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
        super().__init__(
            lambda: transaction_group.TransactionGroup(
                servers, writer=writer, batch=batch, run=run, timeout_s=timeout_s, options=options
            ),
            f"transaction group of {writer}",
        )
        self.names: GroupNames = self._client.names

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._close(lambda client: client.close())

    @property
    def is_new_writer(self) -> bool | None:
        return self._client.is_new_writer

    @property
    def last_committed(self) -> int | None:
        return self._client.last_committed

    def open(self, *, query: str = "", group_timeout_s: float = DEFAULT_GROUP_TIMEOUT_S, once: bool = False) -> Opened:
        return self._run(lambda client: client.open(query=query, group_timeout_s=group_timeout_s, once=once))

    def member(
        self, producer: ProducerClient, *, part: str, attempt: str = "", lease_s: float = DEFAULT_LEASE_S
    ) -> GroupMember:
        names = self.names
        return producer.member(
            writer=names.writer, batch=names.batch, run=names.run, part=part, attempt=attempt, lease_s=lease_s
        )

    def commit(self, winners: Iterable[str]) -> None:
        named = list(winners)
        self._run(lambda client: client.commit(named))

    def abort(self) -> None:
        self._run(lambda client: client.abort())

    def describe(self) -> dict[str, Any]:
        return self._run(lambda client: client.describe())
