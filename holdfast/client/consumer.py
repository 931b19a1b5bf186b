"""The consumer: reads one log, one link per partition, and carries on where it was after any failure.

Problem: links end and leaders move; a reader must neither miss an event nor see one twice because of it.
Rules never broken:
 - each partition's events are handed out in order, each offset once: a new link starts after the last offset that
   arrived;
 - memory is bounded: credit is granted for buffer room only, fewer credits where messages are big;
 - every wait ends: events, the end that was asked for, the caller's timeout, or an error.
Rejected: settling each delivery. The position is the offset, which the reader keeps; deliveries come settled.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from holdfast.client import wire
from holdfast.client.errors import ClosedError, ConfigurationError, HoldfastError, NotFoundError
from holdfast.client.events import DeliveryReader, ReceivedEvent
from holdfast.client.info import PartitionInfo, read_complete_info, read_info
from holdfast.client.links import Receiver
from holdfast.client.network import Backoff, Network, NetworkOptions
from holdfast.client.start import Start

# Credit before the size of messages is known: what arrives unasked-for is at most so many.
FIRST_CREDIT = 64


@dataclass(frozen=True)
class ConsumerOptions:
    """How a consumer behaves."""

    window: int = 4000  # events under way or buffered, per partition
    window_bytes: int = 16 * 1024 * 1024  # the same in bytes, judged by the messages seen
    reconnect_timeout_s: float = 30.0  # a partition that cannot be reached for so long is an error
    until_end: bool = False  # stop at what was the end of the log when the consumer started
    network: NetworkOptions = field(default_factory=NetworkOptions)

    def check(self) -> None:
        for name in ("window", "window_bytes", "reconnect_timeout_s"):
            if getattr(self, name) <= 0:
                raise ConfigurationError(f"{name} must be more than 0, not {getattr(self, name)}")


class ConsumerClient:
    """Reads events from one log.

    async with ConsumerClient("127.0.0.1:5672", "trades", start=Start.earliest()) as consumer:
        async for event in consumer:
            print(event.partition, event.offset, event.body)
    """

    def __init__(
        self,
        servers: str | Sequence[str],
        log: str,
        *,
        start: Start | Mapping[str, Start] | None = None,
        partitions: Sequence[str] | None = None,
        options: ConsumerOptions | None = None,
    ) -> None:
        """`start`: one for all partitions, or one for each by name. Without it: only what comes from now on."""
        self.log = log
        self.options = options or ConsumerOptions()
        self.options.check()
        self._start = start if start is not None else Start.latest()
        self._wanted = list(partitions) if partitions is not None else None
        self._network = Network(servers, self.options.network)
        self._readers: list[PartitionReader] = []
        self._arrived: deque[tuple[PartitionReader, list[ReceivedEvent]]] = deque()
        self._something = asyncio.Event()
        self._error: HoldfastError | None = None
        self._closed = False

    # ---------------------------------------------------------------- life

    async def start(self) -> None:
        """Learn the partitions and begin to read them all."""
        # Where a partition ends matters for "from now on" and "until the end"; otherwise its name will do.
        from_now = not isinstance(self._start, Start) or self._start.is_latest
        ends_matter = self.options.until_end or from_now
        read = read_complete_info if ends_matter else read_info
        infos = await read(self._network, self.log, timeout_s=self.options.reconnect_timeout_s)
        by_name = {info.partition: info for info in infos}
        for name in self._wanted if self._wanted is not None else by_name:
            if name not in by_name:
                known = ", ".join(list(by_name)[:20])
                raise NotFoundError(f"log {self.log!r} has no partition {name!r} (it has {known})")
            begin = self._start if isinstance(self._start, Start) else self._start.get(name, Start.latest())
            self._readers.append(PartitionReader(self, self._network, by_name[name], begin))
        for reader in self._readers:
            reader.begin()
        self._something.set()  # with until_end on an empty log there is nothing to wait for

    async def __aenter__(self) -> ConsumerClient:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop reading. Events not yet taken are dropped; their offsets were never handed out. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._something.set()
        await asyncio.gather(*(reader.close() for reader in self._readers))
        await self._network.close()

    @property
    def positions(self) -> dict[str, str]:
        """The offset of the last event handed out, by partition: `Start.after` of it continues there."""
        return {reader.partition: reader.taken for reader in self._readers if reader.taken is not None}

    @property
    def links_opened(self) -> int:
        """How often a link was opened, the first ones included."""
        return sum(reader.links_opened for reader in self._readers)

    # ---------------------------------------------------------------- reading

    async def receive(self, max_events: int = 1000, timeout_s: float | None = None) -> list[ReceivedEvent]:
        """The next events, all of one partition. `[]`: the timeout passed, or the end was reached (see `at_end`)."""
        if max_events < 1:
            raise ConfigurationError(f"max_events must be at least 1, not {max_events}")
        try:
            async with asyncio.timeout(timeout_s):
                while not self._arrived and not self.at_end:
                    if self._error is not None:
                        raise self._error
                    if self._closed:
                        raise ClosedError("the consumer was closed")
                    self._something.clear()
                    await self._something.wait()
        except TimeoutError:
            return []
        if not self._arrived:
            return []
        reader, events = self._arrived.popleft()
        if len(events) > max_events:
            self._arrived.appendleft((reader, events[max_events:]))
            events = events[:max_events]
        reader.take(events)
        return events

    @property
    def at_end(self) -> bool:
        """With `until_end`: everything up to the end was handed out."""
        return self.options.until_end and not self._arrived and all(reader.finished for reader in self._readers)

    async def batches(self) -> AsyncIterator[list[ReceivedEvent]]:
        """Events as they arrive, in lists of one partition each."""
        while events := await self.receive():
            yield events

    async def __aiter__(self) -> AsyncIterator[ReceivedEvent]:
        async for events in self.batches():
            for event in events:
                yield event

    # ---------------------------------------------------------------- from the readers

    def deliver(self, reader: PartitionReader, events: list[ReceivedEvent]) -> None:
        self._arrived.append((reader, events))
        self._something.set()

    def reader_finished(self) -> None:
        self._something.set()

    def fail(self, error: HoldfastError) -> None:
        if self._error is None:
            self._error = error
        self._something.set()


class PartitionReader:
    """One partition: the link it comes over, the credit for it, and how far we are."""

    def __init__(self, consumer: ConsumerClient, network: Network, info: PartitionInfo, start: Start) -> None:
        self.partition = info.partition
        self.finished = False
        self.taken: str | None = None  # offset of the last event handed to the program
        self.links_opened = 0
        self._consumer, self._network = consumer, network
        self._options = consumer.options
        # "From now on" is pinned to where the log ends now, so that what comes before our link does is not missed.
        self._next = start
        if start.is_latest and info.latest_offset is not None:
            self._next = Start.after(info.latest_offset)
        elif start.is_latest:
            self._next = Start.earliest()
        self._end = info.latest_offset if self._options.until_end else None
        self.finished = self._options.until_end and not self._is_due(info)
        self._receiver: Receiver | None = None
        self._buffered = 0
        self._window = min(FIRST_CREDIT, self._options.window)
        self._largest = 1.0  # bytes per message, decaying slowly: what the next credit may stand for
        self._read = DeliveryReader(info.partition)
        self._ended = asyncio.Event()
        self._closed_by: HoldfastError | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        if not self.finished:
            self._task = asyncio.get_running_loop().create_task(self._run(), name=f"reader {self.partition}")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._receiver is not None:
            await self._receiver.close()
            self._receiver = None

    async def _run(self) -> None:
        backoff, hint = Backoff(), None
        loop = asyncio.get_running_loop()
        while not self.finished:
            self._ended.clear()
            self._closed_by = None
            before = self._next
            try:
                self._receiver = await self._network.attach_receiver(
                    self._consumer.log,
                    self.partition,
                    self._next,
                    self,
                    deadline_s=loop.time() + self._options.reconnect_timeout_s,
                    hint=hint,
                )
            except HoldfastError as error:
                self._consumer.fail(error)
                return
            self.links_opened += 1
            self._grant()
            await self._ended.wait()
            receiver, self._receiver, hint = self._receiver, None, self._closed_by
            if self.finished:
                await receiver.close()
                return
            if hint is not None and not hint.retriable:
                self._consumer.fail(hint)
                return
            if before != self._next:
                backoff.reset()
            await backoff.wait()

    # ---------------------------------------------------------------- from the link

    def on_transfers(self, payloads: list[bytes]) -> None:
        if self.finished:
            return
        try:
            events = [self._read.read(payload) for payload in payloads]
        except HoldfastError as error:
            self._consumer.fail(error)
            return
        self._largest = max(max(map(len, payloads)), self._largest * 0.9)
        if self._end is not None and events[-1].offset >= self._end:
            events = [event for event in events if event.offset <= self._end]
            self.finished = True
            self._ended.set()
        if events:
            self._next = Start.after(events[-1].offset)
            self._buffered += len(events)
            self._consumer.deliver(self, events)
        else:
            self._consumer.reader_finished()
        self._grant()

    def on_closed(self, error: HoldfastError) -> None:
        self._closed_by = error
        self._ended.set()

    # ---------------------------------------------------------------- credit

    def take(self, events: list[ReceivedEvent]) -> None:
        """The program has taken these: there is room for others."""
        self._buffered -= len(events)
        self.taken = events[-1].offset
        self._grant()

    def _grant(self) -> None:
        """Keep credit and buffer together within the window; in steps of half of it, not one by one."""
        receiver = self._receiver
        if receiver is None or self.finished:
            return
        if self._largest > 1:
            self._window = max(1, min(self._options.window, int(self._options.window_bytes / self._largest)))
        room = self._window - self._buffered - receiver.credit
        if room >= max(1, self._window // 2):
            receiver.grant(room)

    def _is_due(self, info: PartitionInfo) -> bool:
        """Whether an event between our start and the end is there."""
        if info.latest_offset is None:
            return False
        start, latest_ms = self._next, info.latest_timestamp_ms
        if start.timestamp_ms is not None and latest_ms is not None and latest_ms <= start.timestamp_ms:
            return False
        return start.offset is None or start.offset == wire.OFFSET_EARLIEST or start.offset < info.latest_offset
