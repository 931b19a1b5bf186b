"""The synchronous producer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from holdfast.client import producer
from holdfast.client.events import Event
from holdfast.client.options import ProducerOptions
from holdfast.client.produce.chunks.delivery import DeliveryResult, Done
from holdfast.client.produce.event_batch import EventBatch
from holdfast.client.produce.idempotent.producer_identity import (
    PartitionPublishingOptions,
    PartitionPublishingProperties,
)
from holdfast.client.produce.partition_sender import ProducerStats
from holdfast.client.sync.delivery import ChunkDelivery, Delivery
from holdfast.client.sync.group_member import GroupMember
from holdfast.client.sync.transaction import Transaction
from holdfast.client.sync.twin import Twin
from holdfast.client.transact.control_link import LastTransaction
from holdfast.client.transact.group_member import DEFAULT_LEASE_S


class ProducerClient(Twin[producer.ProducerClient]):
    """See `holdfast.client.ProducerClient`."""

    def __init__(
        self,
        servers: str | Sequence[str],
        log: str,
        options: ProducerOptions | None = None,
        *,
        idempotent: bool | None = None,
        partition_options: Mapping[str, PartitionPublishingOptions] | None = None,
        transactional_id: str | None = None,
    ) -> None:
        super().__init__(
            lambda: producer.ProducerClient(
                servers,
                log,
                options,
                idempotent=idempotent,
                partition_options=partition_options,
                transactional_id=transactional_id,
            ),
            f"producer for {log}",
        )
        self.log, self.options, self.stats = log, self._client.options, self._client.stats

    options: ProducerOptions
    stats: ProducerStats

    def start(self) -> None:
        self._run(lambda client: client.start())

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.abandon()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def close(self) -> None:
        self._close(lambda client: client.close())

    def abandon(self) -> None:
        self._close(lambda client: client.abandon())

    @property
    def partitions(self) -> list[str]:
        return self._client.partitions

    def partition_of(self, key: str) -> str:
        return self._call(lambda client: client.partition_of(key))

    @property
    def outstanding(self) -> int:
        return self._client.outstanding

    @property
    def on_confirmed(self) -> Callable[[str | None, int], None] | None:
        return self._client.on_confirmed

    @on_confirmed.setter
    def on_confirmed(self, callback: Callable[[str | None, int], None] | None) -> None:
        self._client.on_confirmed = callback

    def send(
        self,
        event: Event | bytes | str,
        *,
        key: str | None = None,
        partition: str | None = None,
        properties: Mapping[str, Any] | None = None,
        done: Done | None = None,
    ) -> Delivery:
        where: dict[str, Any] = {"key": key, "partition": partition, "properties": properties, "done": done}
        return Delivery(self._background, self._run(lambda client: client.send(event, **where)))

    def send_nowait(
        self,
        event: Event | bytes | str,
        *,
        key: str | None = None,
        partition: str | None = None,
        properties: Mapping[str, Any] | None = None,
        done: Done | None = None,
    ) -> Delivery:
        where: dict[str, Any] = {"key": key, "partition": partition, "properties": properties, "done": done}
        return Delivery(self._background, self._call(lambda client: client.send_nowait(event, **where)))

    def send_many(
        self, events: Sequence[Event | bytes | str], *, key: str | None = None, partition: str | None = None
    ) -> ChunkDelivery:
        inner = self._run(lambda client: client.send_many(events, key=key, partition=partition))
        return ChunkDelivery(self._background, inner)

    def send_and_confirm(
        self,
        event: Event | bytes | str,
        *,
        key: str | None = None,
        partition: str | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> DeliveryResult:
        where: dict[str, Any] = {"key": key, "partition": partition, "properties": properties}
        return self._run(lambda client: client.send_and_confirm(event, **where))

    def flush(self) -> None:
        self._run(lambda client: client.flush())

    def create_batch(
        self, *, partition: str | None = None, key: str | None = None, max_bytes: int | None = None
    ) -> EventBatch:
        return self._run(lambda client: client.create_batch(partition=partition, key=key, max_bytes=max_bytes))

    def send_batch(
        self,
        batch: EventBatch | Sequence[Event | bytes | str],
        *,
        partition: str | None = None,
        key: str | None = None,
    ) -> DeliveryResult:
        return self._run(lambda client: client.send_batch(batch, partition=partition, key=key))

    def get_partition_publishing_properties(self, partition: str) -> PartitionPublishingProperties:
        return self._run(lambda client: client.get_partition_publishing_properties(partition))

    def transaction(self) -> Transaction:
        return Transaction(self._background, self._call(lambda client: client.transaction()))

    def member(
        self,
        *,
        writer: str,
        batch: int,
        run: str,
        part: str,
        attempt: str = "",
        lease_s: float = DEFAULT_LEASE_S,
        idle_s: float | None = None,
    ) -> GroupMember:
        names: dict[str, Any] = {"writer": writer, "batch": batch, "run": run, "part": part, "attempt": attempt}
        inner = self._call(lambda client: client.member(**names, lease_s=lease_s, idle_s=idle_s))
        return GroupMember(self._background, inner)

    @property
    def last_transaction(self) -> LastTransaction | None:
        return self._client.last_transaction
