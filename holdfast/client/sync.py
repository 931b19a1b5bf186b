"""The client for programs without an event loop: the same names, the same arguments, calls that wait.

    from holdfast.client.sync import ProducerClient

    with ProducerClient("127.0.0.1:5672", "trades") as producer:
        producer.send(b"...", key="IBM")
        producer.flush()

Each client here is one of `holdfast.client` that lives on a thread of its own; every method hands its call over and
waits. What is said there holds here, errors included. Differences: iteration is plain `for`; a `Delivery` is not
awaited but asked for its `result()`; callbacks (`done`, `on_confirmed`) run on the client's thread, and must not call
the client. Clients may be shared between threads. For many events prefer `send_batch`, or `send` with a `flush` at the
end; to confirm them one by one costs a round trip each.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from holdfast.client import admin, consumer, producer
from holdfast.client.consume.zookeeper.ownership import ZooKeeperOwnership
from holdfast.client.errors import ClosedError, TimeoutExpiredError
from holdfast.client.events import Event, ReceivedEvent
from holdfast.client.loop_thread import LoopThread
from holdfast.client.options import ConsumerOptions, ProducerOptions
from holdfast.client.produce import delivery
from holdfast.client.produce.delivery import DeliveryResult, Done
from holdfast.client.produce.event_batch import EventBatch
from holdfast.client.produce.idempotent.producer_identity import (
    PartitionPublishingOptions,
    PartitionPublishingProperties,
)
from holdfast.client.produce.partition_sender import ProducerStats
from holdfast.client.start_position import Start
from holdfast.client.transport.log_info import PartitionInfo
from holdfast.client.transport.network import NetworkOptions

C = TypeVar("C")
T = TypeVar("T")

__all__ = ["AdminClient", "ConsumerClient", "Delivery", "Event", "EventBatch", "ProducerClient", "Start"]


class _Twin(Generic[C]):
    """A client on a thread of its own."""

    def __init__(self, make: Callable[[], C], what: str) -> None:
        self._background = LoopThread(f"holdfast {what}")
        try:
            self._client = self._background.call(make)
        except BaseException:
            self._background.close()
            raise

    def _run(self, call: Callable[[C], Coroutine[Any, Any, T]]) -> T:
        return self._background.run(lambda: call(self._client))

    def _call(self, call: Callable[[C], T]) -> T:
        return self._background.call(lambda: call(self._client))

    def _close(self, call: Callable[[C], Coroutine[Any, Any, None]]) -> None:
        """The last call; then the thread ends, whatever came of it. Idempotent."""
        self._background.check_thread()
        try:
            self._run(call)
        except ClosedError:
            pass
        finally:
            self._background.close()


class Delivery:
    """One event on its way."""

    def __init__(self, background: LoopThread, inner: delivery.Delivery) -> None:
        self._background, self._inner = background, inner

    @property
    def is_done(self) -> bool:
        return self._inner.is_done

    @property
    def partition(self) -> str | None:
        return self._inner.partition

    @property
    def sequence_number(self) -> int | None:
        return self._inner.sequence_number

    def result(self, timeout_s: float | None = None) -> DeliveryResult:
        """Wait for it; raises if the event was not stored, or may not be."""

        async def wait() -> DeliveryResult:
            return await self._inner

        if self._inner.is_done:  # also when the client is closed by now
            return self._inner.result()
        try:
            return self._background.run(wait, timeout_s)
        except TimeoutError:
            raise TimeoutExpiredError(f"the event was not confirmed within {timeout_s:g} s") from None


class ProducerClient(_Twin[producer.ProducerClient]):
    """See `holdfast.client.ProducerClient`."""

    def __init__(
        self,
        servers: str | Sequence[str],
        log: str,
        options: ProducerOptions | None = None,
        *,
        idempotent: bool | None = None,
        partition_options: Mapping[str, PartitionPublishingOptions] | None = None,
    ) -> None:
        super().__init__(
            lambda: producer.ProducerClient(
                servers, log, options, idempotent=idempotent, partition_options=partition_options
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


class ConsumerClient(_Twin[consumer.ConsumerClient]):
    """See `holdfast.client.ConsumerClient`."""

    def __init__(
        self,
        servers: str | Sequence[str],
        log: str,
        *,
        start: Start | Mapping[str, Start] | None = None,
        partitions: Sequence[str] | None = None,
        group: str | None = None,
        epoch: int | None = None,
        on_assigned: Callable[[str], None] | None = None,
        on_revoked: Callable[[str], None] | None = None,
        ownership: ZooKeeperOwnership | None = None,
        filter: str | None = None,
        options: ConsumerOptions | None = None,
    ) -> None:
        super().__init__(
            lambda: consumer.ConsumerClient(
                servers,
                log,
                start=start,
                partitions=partitions,
                group=group,
                epoch=epoch,
                on_assigned=on_assigned,
                on_revoked=on_revoked,
                ownership=ownership,
                filter=filter,
                options=options,
            ),
            f"consumer of {log}",
        )
        self.log, self.options = log, self._client.options

    options: ConsumerOptions

    def start(self) -> None:
        self._run(lambda client: client.start())

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._close(lambda client: client.close())

    @property
    def positions(self) -> dict[str, str]:
        return self._client.positions

    @property
    def assignment(self) -> dict[str, int]:
        return self._client.assignment

    @property
    def epochs(self) -> dict[str, int]:
        return self._client.epochs

    def commit(self, event: ReceivedEvent | None = None) -> dict[str, str]:
        return self._run(lambda client: client.commit(event))

    @property
    def links_opened(self) -> int:
        return self._client.links_opened

    @property
    def at_end(self) -> bool:
        return self._client.at_end

    @property
    def paused(self) -> set[str]:
        return self._client.paused

    def pause(self, *partitions: str) -> None:
        self._call(lambda client: client.pause(*partitions))

    def resume(self, *partitions: str) -> None:
        self._call(lambda client: client.resume(*partitions))

    def lag(self) -> dict[str, int | None]:
        return self._run(lambda client: client.lag())

    def receive(self, max_events: int = 1000, timeout_s: float | None = None) -> list[ReceivedEvent]:
        return self._run(lambda client: client.receive(max_events, timeout_s))

    def batches(self) -> Iterator[list[ReceivedEvent]]:
        while events := self.receive():
            yield events

    def __iter__(self) -> Iterator[ReceivedEvent]:
        for events in self.batches():
            yield from events


class AdminClient(_Twin[admin.AdminClient]):
    """See `holdfast.client.AdminClient`."""

    def __init__(
        self, servers: str | Sequence[str], *, timeout_s: float = 30.0, options: NetworkOptions | None = None
    ) -> None:
        super().__init__(lambda: admin.AdminClient(servers, timeout_s=timeout_s, options=options), "administration")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._close(lambda client: client.close())

    def create_log(
        self,
        name: str,
        *,
        partitions: int = 1,
        replicas: int | None = None,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
    ) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "partitions": partitions,
            "replicas": replicas,
            "retention_ms": retention_ms,
            "retention_bytes": retention_bytes,
        }
        return self._run(lambda client: client.create_log(name, **arguments))

    def list_logs(self) -> list[dict[str, Any]]:
        return self._run(lambda client: client.list_logs())

    def describe_log(self, name: str) -> dict[str, Any]:
        return self._run(lambda client: client.describe_log(name))

    def alter_log(self, name: str, **changes: int | None) -> dict[str, Any]:
        return self._run(lambda client: client.alter_log(name, **changes))

    def delete_log(self, name: str) -> None:
        self._run(lambda client: client.delete_log(name))

    def dump_log(
        self, name: str, partition: str = "0", *, after: int = 0, offset: str | None = None, limit: int = 100
    ) -> dict[str, Any]:
        return self._run(lambda client: client.dump_log(name, partition, after=after, offset=offset, limit=limit))

    def list_producers(self, log: str, *, partition: str | None = None) -> list[dict[str, Any]]:
        return self._run(lambda client: client.list_producers(log, partition=partition))

    def describe_producer(self, log: str, partition: str, producer_group_id: int) -> dict[str, Any]:
        return self._run(lambda client: client.describe_producer(log, partition, producer_group_id))

    def list_groups(self, log: str) -> list[dict[str, Any]]:
        return self._run(lambda client: client.list_groups(log))

    def describe_group(self, log: str, group: str) -> dict[str, Any]:
        return self._run(lambda client: client.describe_group(log, group))

    def commit_group(
        self, log: str, group: str, partition: str, offset: str, *, claim: int | None = None
    ) -> dict[str, Any]:
        return self._run(lambda client: client.commit_group(log, group, partition, offset, claim=claim))

    def reset_group(self, log: str, group: str, to: str, *, partition: str | None = None) -> dict[str, Any]:
        return self._run(lambda client: client.reset_group(log, group, to, partition=partition))

    def delete_group(self, log: str, group: str) -> None:
        self._run(lambda client: client.delete_group(log, group))

    def node_status(self, node: int | None = None) -> dict[str, Any]:
        return self._run(lambda client: client.node_status(node))

    def drain_node(self, node: int) -> dict[str, Any]:
        return self._run(lambda client: client.drain_node(node))

    def repair_group(self, node: int, raft_group: int) -> dict[str, Any]:
        return self._run(lambda client: client.repair_group(node, raft_group))

    def resume_node(self, node: int) -> dict[str, Any]:
        return self._run(lambda client: client.resume_node(node))

    def describe_node(self, node: int) -> dict[str, Any]:
        return self._run(lambda client: client.describe_node(node))

    def readmit_node(self, node: int, *, incarnation: int | None = None) -> dict[str, Any]:
        return self._run(lambda client: client.readmit_node(node, incarnation=incarnation))

    def list_nodes(self) -> list[dict[str, Any]]:
        return self._run(lambda client: client.list_nodes())

    def cluster_status(self) -> dict[str, Any]:
        return self._run(lambda client: client.cluster_status())

    def log_info(self, name: str, *, complete: bool = False) -> list[PartitionInfo]:
        return self._run(lambda client: client.log_info(name, complete=complete))
