"""A range of one partition, from its first offset to its end, whatever happens to the links.

Problem: a batch program asks for the events from one offset up to another. In a log with transactions offsets have
gaps, the last events of the range may be ones that nobody is given, and a filter leaves out most of the others: the
reader cannot see from what comes that nothing more will.
Rules never broken: the range ends when the node says so (`holdfast:until`), which it says by what it has applied, never
because nothing has come for a while; a new link starts after the last offset that arrived; what is under way or
buffered stays within the bound; every wait ends.
Rejected: a drain as the sign of the end. It says that nothing more is at hand, which is not the same on a leader that
has just been elected, or deposed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from typing import Any

from holdfast import protocol
from holdfast.amqp.encoding.codec import symbol
from holdfast.amqp.messages.message import offset_text
from holdfast.client.blocks.batch_block import BatchBlock
from holdfast.client.blocks.event_block import EventBlock
from holdfast.client.consume.batch_credit import BatchWindow
from holdfast.client.consume.publisher_reader import PublisherReader
from holdfast.client.errors import DamagedBatchError, HoldfastError, LinkRefusedError, ProtocolError
from holdfast.client.events import DeliveryReader
from holdfast.client.options import MAX_PREFETCH, check_count, check_time
from holdfast.client.start_position import Start
from holdfast.client.transport.links import IN_BATCHES, Receiver
from holdfast.client.transport.network import Backoff, Network
from holdfast.records.record_batch import Damaged

FIRST_CREDIT = 256
"""Before the size of messages is known: what arrives unasked-for is at most so many."""


@dataclass(frozen=True)
class RangeOptions:
    """Options of reading a range."""

    prefetch: int = 16_000  # events under way or buffered
    prefetch_bytes: int = 16 * 1024 * 1024  # the same in bytes, judged by the messages seen
    reconnect_timeout_s: float = 30.0  # a partition that cannot be reached for so long is an error

    def check(self) -> None:
        check_count("prefetch", self.prefetch, MAX_PREFETCH)
        check_count("prefetch_bytes", self.prefetch_bytes)
        check_time("reconnect_timeout_s", self.reconnect_timeout_s)


class RangeReceiver:
    """Reads one range, once."""

    def __init__(
        self,
        network: Network,
        log: str,
        partition: str,
        start: Start,
        end: int,
        *,
        where: str | None,
        uncommitted: bool,
        publishers: bool,
        options: RangeOptions,
    ) -> None:
        self._network, self._log, self._partition, self._next, self._end = network, log, partition, start, end
        self._where, self._uncommitted, self._options = where, uncommitted, options
        self._read = PublisherReader(partition) if publishers else DeliveryReader(partition)
        self._needed: dict[str, Any] = {protocol.LINK_UNTIL: symbol(offset_text(end))}
        """Properties without which the link is of no use."""
        self._publishers = publishers
        if publishers:
            self._needed[protocol.LINK_PUBLISHERS] = True
        self._batches = BatchWindow(options.prefetch, options.prefetch_bytes)
        self._in_batches = False
        self._damaged: Start | None = None  # what came after it was damaged, and is asked for again
        self._arrived: deque[bytes] = deque()
        self._something = asyncio.Event()
        self._closed_by: HoldfastError | None = None
        self._receiver: Receiver | None = None
        self._largest = 1.0  # bytes per message, decaying slowly: what the next credit may stand for

    async def blocks(self) -> AsyncGenerator[EventBlock, None]:
        """Yield all that has arrived, again and again, up to the end."""
        backoff, hint = Backoff(), None
        try:
            while True:
                self._closed_by = None
                self._receiver = await self._attach(hint)
                self._grant()
                async for block in self._of_this_link():
                    backoff.reset()
                    yield block
                self._receiver, hint = None, self._closed_by
                if isinstance(hint, LinkRefusedError) and not hint.condition:
                    return  # in peace: nothing more will come
                if hint is not None and not hint.retriable:
                    raise hint
                await backoff.wait()
        finally:
            if self._receiver is not None:
                await self._receiver.close()

    async def _attach(self, hint: HoldfastError | None) -> Receiver:
        receiver = await self._network.attach_receiver(
            self._log,
            self._partition,
            self._next,
            self,
            deadline_s=asyncio.get_running_loop().time() + self._options.reconnect_timeout_s,
            hint=hint,
            properties={**self._needed, **IN_BATCHES},
            where=self._where,
            uncommitted=self._uncommitted,
        )
        lacking = [name for name in self._needed if name not in receiver.properties]
        if lacking and self._closed_by is None:
            await receiver.close()
            raise ProtocolError(
                f"{receiver.what}: the node does not know {', '.join(lacking)}",
                advice="upgrade the nodes of the cluster",
            )
        self._in_batches = receiver.in_batches
        return receiver

    async def _of_this_link(self) -> AsyncGenerator[EventBlock, None]:
        while True:
            while not self._arrived and self._closed_by is None:
                self._something.clear()
                await self._something.wait()
            if not self._arrived:
                return
            for block in self._take():
                if len(block):
                    last = block.last_offset
                    if last >= self._end:
                        raise ProtocolError(f"event {last} came of a range that ends before {self._end}")
                    self._next = Start.after(offset_text(last))
                    self._grant()
                    yield block
                if isinstance(block, BatchBlock) and block.damage is not None:
                    self._ask_again(block.damage)
                    return

    def _ask_again(self, damage: Damaged) -> None:
        """End the link; the next one begins after the last event that was good."""
        error = DamagedBatchError(self._partition, str(damage))
        if self._damaged == self._next:
            raise error
        self._damaged = self._next
        if self._closed_by is None and self._receiver is not None:
            self._receiver.abandon()
        self._closed_by = error
        self._arrived.clear()

    def _take(self) -> Iterator[EventBlock]:
        """Yield what has arrived, and forget it here."""
        if self._in_batches:
            while self._arrived:
                block = BatchBlock.read(self._partition, self._arrived.popleft(), publishers=self._publishers)
                self._batches.saw(len(block), block.size_bytes)
                yield block
            return
        payloads = list(self._arrived)
        self._arrived.clear()
        self._largest = max(max(map(len, payloads)), self._largest * 0.9)
        yield EventBlock(self._partition, payloads, self._read)

    def on_transfers(self, payloads: list[bytes]) -> None:
        self._arrived += payloads
        self._something.set()

    def on_closed(self, error: HoldfastError) -> None:
        self._closed_by = error
        self._something.set()

    def _grant(self) -> None:
        """Keep credit and buffer together within the window; in steps of half of it, not one by one."""
        receiver = self._receiver
        if receiver is None or self._closed_by is not None:
            return
        window = self._batches.deliveries if self._in_batches else self._window()
        room = window - len(self._arrived) - receiver.credit
        if room >= max(1, window // 2):
            receiver.grant(room)

    def _window(self) -> int:
        most, bound_bytes = self._options.prefetch, self._options.prefetch_bytes
        return min(FIRST_CREDIT, most) if self._largest <= 1 else max(1, min(most, int(bound_bytes / self._largest)))
