"""The synchronous client of ranges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from holdfast.client import range_client
from holdfast.client.blocks.event_block import EventBlock
from holdfast.client.consume.range_receiver import RangeOptions
from holdfast.client.errors import ClosedError
from holdfast.client.options import Isolation
from holdfast.client.range_client import PartitionExtent
from holdfast.client.sync.twin import Twin
from holdfast.client.transport.network import NetworkOptions


class RangeClient(Twin[range_client.RangeClient]):
    """See `holdfast.client.RangeClient`."""

    def __init__(
        self,
        servers: str | Sequence[str],
        *,
        isolation: Isolation = "committed",
        options: RangeOptions | None = None,
        network: NetworkOptions | None = None,
    ) -> None:
        super().__init__(
            lambda: range_client.RangeClient(servers, isolation=isolation, options=options, network=network), "ranges"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._close(lambda client: client.close())

    def extents(self, log: str, *, timeout_s: float | None = None) -> list[PartitionExtent]:
        return self._run(lambda client: client.extents(log, timeout_s=timeout_s))

    def identity(self, log: str) -> str | None:
        return self._call(lambda client: client.identity(log))

    def offset_at(self, log: str, partition: str, timestamp_ms: int, end: int) -> int:
        return self._run(lambda client: client.offset_at(log, partition, timestamp_ms, end))

    def check(self, log: str, partition: str, filter: str) -> None:
        self._run(lambda client: client.check(log, partition, filter))

    def read(
        self,
        log: str,
        partition: str,
        first: int,
        end: int,
        *,
        filter: str | None = None,
        publishers: bool = False,
        identity: str | None = None,
    ) -> Iterator[EventBlock]:
        """A program that does not read to the end closes the iterator, or lets go of it."""
        blocks = self._client.read(log, partition, first, end, filter=filter, publishers=publishers, identity=identity)

        async def following(_: object) -> EventBlock | None:
            return await anext(blocks, None)

        async def ended(_: object) -> None:
            await blocks.aclose()

        try:
            while (block := self._run(following)) is not None:
                yield block
        finally:
            with suppress(ClosedError):
                self._run(ended)
