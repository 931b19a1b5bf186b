"""A member of a transaction group, of a synchronous producer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from holdfast.client.events import Event
from holdfast.client.loop_thread import LoopThread
from holdfast.client.produce.chunks.delivery import DeliveryResult
from holdfast.client.produce.event_batch import EventBatch
from holdfast.client.sync.delivery import ChunkDelivery, Delivery
from holdfast.client.transact import group_member


class GroupMember:
    """See `holdfast.client.GroupMember`. Its client's thread keeps the lease: it lives as long as the process does."""

    def __init__(self, background: LoopThread, inner: group_member.GroupMember) -> None:
        self._background, self._inner = background, inner

    def begin(self) -> None:
        self._background.run(self._inner.begin)

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.abort()

    @property
    def is_open(self) -> bool:
        return self._inner.is_open

    @property
    def producer_id(self) -> int | None:
        return self._inner.producer_id

    @property
    def epoch(self) -> int | None:
        return self._inner.epoch

    @property
    def prepared(self) -> str | None:
        return self._inner.prepared

    def send(
        self,
        event: Event | bytes | str,
        *,
        key: str | None = None,
        partition: str | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> Delivery:
        where: dict[str, Any] = {"key": key, "partition": partition, "properties": properties}
        return Delivery(self._background, self._background.run(lambda: self._inner.send(event, **where)))

    def send_many(
        self, events: Sequence[Event | bytes | str], *, key: str | None = None, partition: str | None = None
    ) -> ChunkDelivery:
        inner = self._background.run(lambda: self._inner.send_many(events, key=key, partition=partition))
        return ChunkDelivery(self._background, inner)

    def send_batch(
        self,
        batch: EventBatch | Sequence[Event | bytes | str],
        *,
        partition: str | None = None,
        key: str | None = None,
    ) -> DeliveryResult:
        return self._background.run(lambda: self._inner.send_batch(batch, partition=partition, key=key))

    def prepare(self) -> str:
        return self._background.run(self._inner.prepare)

    def abort(self) -> None:
        self._background.run(self._inner.abort)
