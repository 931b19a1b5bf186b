"""A transaction of a synchronous producer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from holdfast.client.errors import HoldfastError
from holdfast.client.events import Event
from holdfast.client.loop_thread import LoopThread
from holdfast.client.produce.chunks.delivery import DeliveryResult
from holdfast.client.produce.event_batch import EventBatch
from holdfast.client.sync.delivery import ChunkDelivery, Delivery
from holdfast.client.transact import transaction
from holdfast.client.transact.positions import HandedOut

if TYPE_CHECKING:
    from holdfast.client.sync.consumer import ConsumerClient


class _Asked:
    """A consumer that has told what it handed out."""

    def __init__(self, positions: Sequence[HandedOut], thread: LoopThread) -> None:
        self._positions = [_Elsewhere(position, thread) for position in positions]

    def handed_out(self) -> Sequence[HandedOut]:
        return self._positions


class _Refused:
    def __init__(self, error: HoldfastError) -> None:
        self._error = error

    def handed_out(self) -> Sequence[HandedOut]:
        raise self._error.with_traceback(None)


class _Elsewhere:
    """A position whose consumer lives on another thread, and hears there that it was committed."""

    def __init__(self, position: HandedOut, thread: LoopThread) -> None:
        self._position, self._thread = position, thread
        self.log, self.arguments = position.log, position.arguments

    def committed(self) -> None:
        self._thread.post(self._position.committed)


class Transaction:
    """See `holdfast.client.Transaction`."""

    def __init__(self, background: LoopThread, inner: transaction.Transaction) -> None:
        self._background, self._inner = background, inner

    def begin(self) -> None:
        self._background.run(self._inner.begin)

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._background.run(lambda: self._inner.__aexit__(kind, error, traceback))

    @property
    def is_open(self) -> bool:
        return self._inner.is_open

    @property
    def txn_id(self) -> bytes:
        return self._inner.txn_id

    @property
    def producer_id(self) -> int | None:
        return self._inner.producer_id

    @property
    def epoch(self) -> int | None:
        return self._inner.epoch

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

    def commit_offsets(self, consumer: ConsumerClient) -> None:
        """The consumer lives on another thread than the producer: what it has handed out is asked of it there."""
        thread = consumer._background
        given: _Asked | _Refused
        try:
            given = _Asked(consumer._call(lambda client: client.handed_out()), thread)
        except HoldfastError as error:
            given = _Refused(error)
        self._background.run(lambda: self._inner.commit_offsets(given))

    def commit(self) -> None:
        self._background.run(self._inner.commit)

    def abort(self) -> None:
        self._background.run(self._inner.abort)
