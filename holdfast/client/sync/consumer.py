"""The synchronous consumer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self

from holdfast.client import consumer
from holdfast.client.consume.zookeeper.ownership import ZooKeeperOwnership
from holdfast.client.events import ReceivedEvent
from holdfast.client.options import ConsumerOptions, Isolation
from holdfast.client.start_position import Start
from holdfast.client.sync.twin import Twin


class ConsumerClient(Twin[consumer.ConsumerClient]):
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
        isolation: Isolation = "committed",
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
                isolation=isolation,
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
    def connected(self) -> bool:
        return self._client.connected

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
        while (lent := self._run(lambda client: client._lend())) is not None:
            yield from lent
