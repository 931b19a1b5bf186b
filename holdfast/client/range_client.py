"""The client of batch programs: how far a log reaches, where a time is in it, and its events by ranges, as columns.

Problem: a program that works on a log in batches (Spark, a nightly job) divides it by offsets, reads each part once,
anywhere, perhaps again, and wants columns instead of objects.
Rules never broken: the ends that are told are confirmed by a majority; a range holds every event in it that the reader
may be given, each once, in order, or the reading of it fails. What retention has taken since is told, not judged: the
program compares its first offset with where the log begins.
Rejected: a mode of `ConsumerClient`. That one follows a log and remembers where it is; this one remembers nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from types import TracebackType

from holdfast import protocol
from holdfast.amqp.messages.message import offset_text
from holdfast.client.blocks.event_block import EventBlock
from holdfast.client.consume.range_receiver import RangeOptions, RangeReceiver
from holdfast.client.errors import ConfigurationError, HoldfastError
from holdfast.client.options import Isolation, options_of
from holdfast.client.start_position import Start
from holdfast.client.transport.log_info import PartitionInfo, read_complete_info
from holdfast.client.transport.network import Network, NetworkOptions


@dataclass(frozen=True)
class PartitionExtent:
    """Offsets at which a reader is given events of a partition: `start` <= offset < `end`."""

    partition: str
    start: int  # before it retention has left nothing
    end: int  # for committed readers the last stable offset
    stored_events: int
    stored_bytes: int


class RangeClient:
    """Reads ranges of logs.

    async with RangeClient("127.0.0.1:5672") as client:
        for extent in await client.extents("trades"):
            async for block in client.read("trades", extent.partition, extent.start, extent.end):
                columns = block.columns()
    """

    def __init__(
        self,
        servers: str | Sequence[str],
        *,
        isolation: Isolation = "committed",
        options: RangeOptions | None = None,
        network: NetworkOptions | None = None,
    ) -> None:
        if isolation not in (protocol.COMMITTED, protocol.UNCOMMITTED):
            raise ConfigurationError(f"isolation is 'committed' or 'uncommitted', not {isolation!r}")
        self._uncommitted = isolation == protocol.UNCOMMITTED
        self._options = options_of(RangeOptions, options)
        self._network = Network(servers, network)

    async def __aenter__(self) -> RangeClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._network.close()

    async def extents(self, log: str, *, timeout_s: float | None = None) -> list[PartitionExtent]:
        """Ask how far each partition reaches now, by number; waits for partitions that have no leader."""
        bound_s = self._options.reconnect_timeout_s if timeout_s is None else timeout_s
        infos = await read_complete_info(self._network, log, timeout_s=bound_s)
        return [self._extent(info) for info in infos]

    def _extent(self, info: PartitionInfo) -> PartitionExtent:
        next_offset = int(str(info.details[protocol.INFO_NEXT_OFFSET]), 16)
        stable = next_offset if info.stable_offset is None else int(info.stable_offset, 16)
        end = next_offset if self._uncommitted else stable
        start = next_offset if info.earliest_offset is None else int(info.earliest_offset, 16)
        stored_events = int(info.details.get(protocol.INFO_EVENTS) or 0)
        stored_bytes = int(info.details.get(protocol.INFO_BYTES) or 0)
        return PartitionExtent(info.partition, start, max(start, end), stored_events, stored_bytes)

    async def offset_at(self, log: str, partition: str, timestamp_ms: int, end: int) -> int:
        """The offset of the first event that was taken in at this time or later; `end` if there is none before it."""
        if end <= 0:
            return end
        probe = RangeOptions(prefetch=1, reconnect_timeout_s=self._options.reconnect_timeout_s)
        async with aclosing(self._blocks(log, partition, Start.from_time(timestamp_ms), end, None, probe)) as blocks:
            async for block in blocks:
                return int(block.events()[0].offset, 16)
        return end

    def identity(self, log: str) -> str | None:
        """Identity of the log that has answered under this name: no other one of any cluster has this text. None: none
        has yet, or the node does not tell. This client stays with it: another in its place raises LogDeletedError."""
        return self._network.log(log).value

    async def read(
        self,
        log: str,
        partition: str,
        first: int,
        end: int,
        *,
        filter: str | None = None,
        publishers: bool = False,
        identity: str | None = None,
    ) -> AsyncGenerator[EventBlock, None]:
        """The events with `first` <= offset < `end` for which the condition `filter` is true. What of the range lies
        before the start of the log is not there any more, and is passed over. `publishers`: the columns also tell
        which idempotent producer has published an event, under which number. `identity`: the log that the offsets are
        of; another one is not read."""
        if not 0 <= first <= end:
            raise ConfigurationError(f"a range goes from an offset to one that is not smaller, not {first} to {end}")
        if first == end:
            return
        if identity is not None:
            self._network.log(log).value = identity
        start = Start.earliest() if first == 0 else Start.after(offset_text(first - 1))
        async with aclosing(self._blocks(log, partition, start, end, filter, self._options, publishers)) as blocks:
            async for block in blocks:
                yield block

    async def check(self, log: str, partition: str, filter: str) -> None:
        """Check a filter. Raises ConfigurationError if the nodes do not understand the filter, NotFoundError without
        such a log."""
        deadline_s = asyncio.get_running_loop().time() + self._options.reconnect_timeout_s
        receiver = await self._network.attach_receiver(
            log, partition, Start.earliest(), _Nobody(), deadline_s=deadline_s, where=filter
        )
        await receiver.close()

    def _blocks(
        self,
        log: str,
        partition: str,
        start: Start,
        end: int,
        where: str | None,
        options: RangeOptions,
        publishers: bool = False,
    ) -> AsyncGenerator[EventBlock, None]:
        receiver = RangeReceiver(
            self._network, log, partition, start, end,
            where=where, uncommitted=self._uncommitted, publishers=publishers, options=options,
        )  # fmt: skip
        return receiver.blocks()


class _Nobody:
    """Owner of a link that attaches only to see whether it may."""

    def on_transfers(self, payloads: list[bytes]) -> None:
        raise AssertionError("a message without credit")

    def on_closed(self, error: HoldfastError) -> None:
        pass
