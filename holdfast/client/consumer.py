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
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

from holdfast import protocol
from holdfast.client.callbacks import report
from holdfast.client.consume.group_members import OF_REVOKED, Callback, GroupMembers, container_id
from holdfast.client.consume.partition_receiver import PartitionReceiver
from holdfast.client.consume.prefetched_events import LentEvents
from holdfast.client.consume.uncommitted_events import HandedOut
from holdfast.client.consume.zookeeper.owned_partitions import OwnedPartitions
from holdfast.client.consume.zookeeper.ownership import ZooKeeperOwnership
from holdfast.client.errors import (
    ClosedError,
    ConfigurationError,
    HoldfastError,
    InvalidOperationError,
    NotFoundError,
)
from holdfast.client.events import ReceivedEvent
from holdfast.client.options import ConsumerOptions, Isolation, check_count, check_log, check_wait, options_of
from holdfast.client.start_position import Start, check_start
from holdfast.client.transport.log_info import read_complete_info, read_info
from holdfast.client.transport.network import Network
from holdfast.client.waits.close_once import CloseOnce


class ConsumerClient:
    """Reads events from one log.

    async with ConsumerClient("127.0.0.1:5672", "trades", start=Start.earliest()) as consumer:
        async for event in consumer:
            print(event.partition, event.offset, event.body)
    """

    log: str
    options: ConsumerOptions

    def __init__(
        self,
        servers: str | Sequence[str],
        log: str,
        *,
        start: Start | Mapping[str, Start] | None = None,
        partitions: Sequence[str] | None = None,
        group: str | None = None,
        epoch: int | None = None,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        ownership: ZooKeeperOwnership | None = None,
        filter: str | None = None,
        isolation: Isolation = "committed",
        options: ConsumerOptions | None = None,
    ) -> None:
        """`start`: one for all partitions, or one for each by name. Without it: only what comes from now on.

        `group`: read in its name, from where it stands; `start` counts where it stands nowhere yet. Without
        `partitions` the nodes share them out among the members; with them, each is claimed, with `epoch` if one is
        given. The callbacks hear of each partition: before its first event, and when it is not ours any more.
        `ownership`: the members share the partitions out among themselves through ZooKeeper instead.
        `filter`: only events for which this condition is true, evaluated by the nodes (docs/clients/filters.md).
        `isolation`: "committed": no event of a transaction before it is committed; "uncommitted": all that is stored.
        """
        check_log(log)
        self.log = log
        self.options = options_of(ConsumerOptions, options)
        start = Start.latest() if start is None else start
        check_start(start)
        _check_partitions(partitions)
        _check_group(group, epoch, partitions, start, self.options, on_assigned or on_revoked)
        _check_ownership(ownership, group, partitions)
        _check_filter(filter, group, start)
        if isolation not in (protocol.COMMITTED, protocol.UNCOMMITTED):
            raise ConfigurationError(f"isolation is 'committed' or 'uncommitted', not {isolation!r}")
        self.where = filter
        self.uncommitted = isolation == protocol.UNCOMMITTED
        if group is not None:  # one name for all connections: by it and the links' names nodes know what comes back
            named = replace(self.options.network, container_id=self.options.network.container_id or container_id())
            self.options = replace(self.options, network=named)
        self._start = start
        self._wanted = list(partitions) if partitions is not None else None
        self._network = Network(servers, self.options.network)
        self._readers: list[PartitionReceiver] = []
        self._arrived: deque[tuple[PartitionReceiver, list[ReceivedEvent]]] = deque()
        self._lent: LentEvents | None = None  # what an iteration goes through
        self._something = asyncio.Event()
        self._error: HoldfastError | None = None
        self._starting, self._started = asyncio.Lock(), False
        self._closed = False
        self._closing: asyncio.Task[Any] | None = None  # the task that has begun with it
        self._all_closed = asyncio.Event()
        self._release = CloseOnce(self._let_go, f"close the consumer of {log}")
        self.in_hands: PartitionReceiver | None = None  # whose events the program works on
        self._members: GroupMembers | None = None
        if group is not None and ownership is not None:
            self._members = OwnedPartitions(self, self._network, group, self._start, on_assigned, on_revoked, ownership)
        elif group is not None:
            self._members = GroupMembers(
                self, self._network, group, epoch, partitions, self._start, on_assigned, on_revoked
            )
        if self._members is not None:
            self._readers = self._members.readers

    # ---------------------------------------------------------------- life

    async def start(self) -> None:
        """Learn the partitions and begin to read them all; of a group, those that it gets as it gets them. Once is
        enough: a second time there is nothing to do."""
        async with self._starting:
            if not self._started:
                await self._start_reading()
                self._started = True

    async def _start_reading(self) -> None:
        if self._members is not None:
            self._members.begin()
            return
        # Where a partition ends matters for "from now on" and "until the end"; otherwise its name will do.
        from_now = not isinstance(self._start, Start) or self._start.is_latest
        ends_matter = self.options.until_end or from_now
        read = read_complete_info if ends_matter else read_info
        infos = await read(self._network, self.log, timeout_s=self.options.reconnect_timeout_s)
        by_name = {info.partition: info for info in infos}
        readers = []
        wanted = self._wanted if self._wanted is not None else list(by_name)
        named = [] if isinstance(self._start, Start) else list(self._start)
        for name in [*wanted, *named]:
            if name not in by_name:
                known = ", ".join(list(by_name)[:20])
                raise NotFoundError(f"log {self.log!r} has no partition {name!r} (it has {known})")
        for name in wanted:
            begin = self._start if isinstance(self._start, Start) else self._start.get(name, Start.latest())
            readers.append(PartitionReceiver(self, self._network, by_name[name], begin))
        self._readers += readers
        for reader in readers:
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
        """Stop reading. Events not yet taken are dropped; their offsets were never handed out. Idempotent. Raises what
        `on_revoked` raises, when all is closed. If the caller is cancelled, it stops waiting, first for a
        callback, then for the rest; everything is released all the same, and a second call waits for that. Within a
        callback it returns at once: the consumer is closed when the callback has returned."""
        if self._members is not None and (callback := self._members.calling) is not None:
            if self._closing is None:
                self._closing = asyncio.get_running_loop().create_task(self._close_behind(callback), name="close")
        elif self._closing is not None and self._closing is not asyncio.current_task():
            await self._all_closed.wait()
        else:
            self._closing = asyncio.current_task()
            await self._close()

    async def _close_behind(self, callback: asyncio.Event) -> None:
        await callback.wait()
        try:
            await self.close()
        except Exception as problem:  # noqa: BLE001 - of the program's on_revoked, and nobody waits for us
            report(OF_REVOKED, problem)

    async def _close(self) -> None:
        if self._closed:
            await self._release.done()
            return
        try:
            if self._members is not None:
                await self._members.leave()
        finally:  # also if the program's callback failed, or was cancelled: others wait for the partitions
            self._closed = True
            self._take_back()  # a loop that goes through it is told, instead of being given the rest
            self._something.set()
            await self._release.done()

    async def _let_go(self) -> None:
        try:
            await asyncio.gather(*(reader.close() for reader in self._readers))
        finally:
            try:
                await self._network.close()
            finally:
                self._all_closed.set()

    @property
    def positions(self) -> dict[str, str]:
        """The offset of the last event handed out, by partition: `Start.after` of it continues there."""
        lent = self._lent  # looked at, and not counted: the synchronous twin asks on the program's thread
        offset = None if lent is None else lent.offset
        within = {} if lent is None or offset is None else {lent.reader: offset}
        found = {reader.partition: within.get(reader, reader.taken) for reader in self._reading}
        return {partition: offset for partition, offset in found.items() if offset is not None}

    @property
    def _reading(self) -> Sequence[PartitionReceiver]:
        """Receivers that have a partition."""
        return self._readers if self._members is None else self._members.owning

    # ---------------------------------------------------------------- consumer groups

    @property
    def assignment(self) -> dict[str, int]:
        """The partitions that are read, each with the number of its claim (0 without a group)."""
        return {reader.partition: getattr(reader, "claim", 0) for reader in self._reading}

    @property
    def epochs(self) -> dict[str, int]:
        """The partitions that are read for the group, each with the epoch of its claim."""
        return {reader.partition: getattr(reader, "epoch", 0) for reader in self._reading}

    async def commit(self, event: ReceivedEvent | None = None) -> dict[str, str]:
        """Let the group go on after this event; without one, after all that was handed out. Where it stands then, by
        partition. Raises OwnershipLostError when another member has the partition by now."""
        if self._members is None:
            raise ConfigurationError("only a group has positions to commit", advice="give group=, or keep `positions`")
        self._count()
        return await self._members.commit(event)

    def handed_out(self) -> list[HandedOut]:
        """Events handed out, for a transaction that commits them: see `HandedOutEvents.all`."""
        if self._members is None:
            raise ConfigurationError("only a group has positions to commit", advice="give group= to the consumer")
        self._count()
        return self._members.handed_out()

    @property
    def connected(self) -> bool:
        """True if every partition that is to be read has a link now; of a group whose partitions the nodes choose: each
        that it was given."""
        return all(reader.connected for reader in self._readers)

    @property
    def links_opened(self) -> int:
        """Number of links that were opened, the first ones included."""
        return sum(reader.links_opened for reader in self._readers)

    # ---------------------------------------------------------------- pausing, lag

    @property
    def paused(self) -> set[str]:
        """The partitions that are not read now."""
        return {reader.partition for reader in self._reading if reader.paused}

    def pause(self, *partitions: str) -> None:
        """Hand out nothing more of these partitions (none named: of all), and ask for nothing more."""
        chosen = self._chosen(partitions)
        for reader in chosen:
            reader.paused = True
        self._take_back()
        kept: deque[tuple[PartitionReceiver, list[ReceivedEvent]]] = deque()
        for reader, events in self._arrived:
            if reader.paused:
                reader.held.append(events)
            else:
                kept.append((reader, events))
        self._arrived = kept

    def resume(self, *partitions: str) -> None:
        """Go on where `pause` interrupted."""
        for reader in self._chosen(partitions):
            reader.paused = False
            self._arrived.extend((reader, events) for events in reader.held)
            reader.held.clear()
            reader.grant()
        self._something.set()

    def _chosen(self, partitions: Sequence[str]) -> list[PartitionReceiver]:
        for name in partitions:
            if name not in {reader.partition for reader in self._reading}:
                raise NotFoundError(f"the consumer does not read a partition {name!r} of log {self.log!r}")
        return [reader for reader in self._reading if not partitions or reader.partition in partitions]

    async def lag(self) -> dict[str, int | None]:
        """Count the events that each partition holds after the last one handed out. None: unknown, because its leader
        cannot be asked, or because reading began at a time and nothing has come yet."""
        infos = await read_info(self._network, self.log, timeout_s=self.options.reconnect_timeout_s)
        by_name = {info.partition: info for info in infos}
        self._count()
        return {
            reader.partition: reader.lag(by_name[reader.partition]) if reader.partition in by_name else None
            for reader in self._reading
        }

    # ---------------------------------------------------------------- reading

    async def receive(self, max_events: int = 1000, timeout_s: float | None = None) -> list[ReceivedEvent]:
        """The next events, all of one partition. `[]`: the timeout passed, or the end was reached (see `at_end`)."""
        check_count("max_events", max_events)
        check_wait("timeout_s", timeout_s)
        self._came_for_more()
        try:
            async with asyncio.timeout(timeout_s):
                await self._until_something()
        except TimeoutError:
            return []
        if not self._arrived:
            return []
        reader, events = self._next(max_events)
        reader.took(events[-1].offset)
        return events

    async def _lend(self) -> LentEvents | None:
        """Lend an iteration the next events of one partition, handed out as it goes through them. None: the end."""
        self._came_for_more()
        await self._until_something()
        if not self._arrived:
            return None
        self._lent = lent = LentEvents(*self._next(1000))
        return lent

    def _next(self, most: int) -> tuple[PartitionReceiver, list[ReceivedEvent]]:
        """Take the events that arrived first, for the program."""
        self._take_back()  # another task's, which came while we waited: partitions keep their order
        reader, events = self._arrived.popleft()
        if len(events) > most:
            self._arrived.appendleft((reader, events[most:]))
            events = events[:most]
        reader.hand_over(len(events))
        self.in_hands = reader
        return reader, events

    def _count(self) -> None:
        """Note what an iteration has handed out since it was last noted."""
        if self._lent is None or (offset := self._lent.count()) is None:
            return
        if self._members is not None:
            self._members.came_for_more()
        self._lent.reader.took(offset)

    def _take_back(self) -> None:
        """Take back what an iteration was lent and has not handed out: it comes next."""
        lent = self._lent
        if lent is None:
            return
        rest = lent.take_back()  # first, so that what is counted is all
        self._count()
        self._lent = None
        if rest:
            lent.reader.came_back(len(rest))
            self._arrived.appendleft((lent.reader, rest))
            self._something.set()

    async def _until_something(self) -> None:
        """Wait until there are events that may be handed out, or the end is reached."""
        while True:
            while (self._closed or not self._arrived) and not self.at_end:
                if self._error is not None:
                    raise self._error.with_traceback(None)  # kept, and raised again: else it would keep each frame
                if self._closed:
                    raise ClosedError("the consumer was closed")
                self._something.clear()
                await self._something.wait()
            if self._members is None or not self._members.in_doubt:
                return
            await self._members.prove()

    def _came_for_more(self) -> None:
        if not (self._started or self._closed or self._starting.locked()):
            raise InvalidOperationError("the consumer was not started", advice="use `async with`, or await start()")
        self._take_back()
        self.in_hands = None  # a program that asks for more is done with the last events
        if self._members is not None:
            self._members.came_for_more()

    @property
    def at_end(self) -> bool:
        """True with `until_end`, once everything up to the end was handed out."""
        lent = self._lent
        if not self.options.until_end or self._arrived or not (lent is None or lent.is_done):
            return False
        return all(reader.finished and not reader.held for reader in self._readers)

    async def batches(self) -> AsyncIterator[list[ReceivedEvent]]:
        """Events as they arrive, in lists of one partition each."""
        while events := await self.receive():
            yield events

    async def __aiter__(self) -> AsyncIterator[ReceivedEvent]:
        """Each event counts as handed out when the loop has it: to commit, or to leave the loop, skips nothing."""
        while (lent := await self._lend()) is not None:
            for event in lent:
                yield event

    # ---------------------------------------------------------------- from the readers

    def deliver(self, reader: PartitionReceiver, events: list[ReceivedEvent]) -> None:
        if reader.paused:
            reader.held.append(events)
            return
        self._arrived.append((reader, events))
        self._something.set()

    def drop(self, reader: PartitionReceiver) -> None:
        """Drop what arrived of a partition and was not handed out: it is not ours any more."""
        if self._lent is not None and self._lent.reader is reader:
            self._take_back()
        reader.held.clear()
        self._arrived = deque((other, events) for other, events in self._arrived if other is not reader)

    def reader_finished(self) -> None:
        self._something.set()

    def fail(self, error: HoldfastError) -> None:
        if self._error is None:
            self._error = error
        self._something.set()


def _check_group(
    group: str | None,
    epoch: int | None,
    partitions: Sequence[str] | None,
    start: Start | Mapping[str, Start] | None,
    options: ConsumerOptions,
    callback: Callback | None,
) -> None:
    if group is None:
        if epoch is not None or callback is not None:
            raise ConfigurationError("epoch, on_assigned and on_revoked belong to a group", advice="give group=")
        return
    if not isinstance(group, str) or not group:
        raise ConfigurationError(f"a group is named by a string that is not empty, not {group!r}")
    if epoch is not None and partitions is None:
        raise ConfigurationError("an epoch is a claim on partitions", advice="name them with partitions=")
    if epoch is not None and (isinstance(epoch, bool) or not isinstance(epoch, int) or not 0 <= epoch < 1 << 63):
        raise ConfigurationError(f"an epoch is a whole number from 0 on, not {epoch!r}")
    if isinstance(start, Mapping) and partitions is None:
        raise ConfigurationError("a group's members do not know their partitions beforehand: one start for all")
    if options.until_end:
        raise ConfigurationError("a group reads on: until_end is for consumers of their own")


def _check_partitions(partitions: object) -> None:
    if partitions is None:
        return
    names = [partitions] if isinstance(partitions, str) or not isinstance(partitions, Iterable) else list(partitions)
    if names == [partitions] or not names or not all(isinstance(name, str) for name in names):
        advice = ", ".join(f'"{name}"' for name in names if isinstance(name, int | str)) or '"0"'
        raise ConfigurationError(
            f"partitions are a list of names, which are strings, not {partitions!r}", advice=f"write [{advice}]"
        )


def _check_ownership(ownership: ZooKeeperOwnership | None, group: str | None, partitions: Sequence[str] | None) -> None:
    if ownership is None:
        return
    if not isinstance(ownership, ZooKeeperOwnership):
        raise ConfigurationError(f"ownership is a ZooKeeperOwnership, not {ownership!r}")
    if group is None or partitions is not None:
        raise ConfigurationError(
            "with ownership the members of a group share all partitions out",
            advice="give group=, and neither partitions= nor epoch=",
        )
    ownership.check()


def _check_filter(where: str | None, group: str | None, start: Start | Mapping[str, Start] | None) -> None:
    if where is None:
        return
    if not isinstance(where, str) or not where.strip():
        raise ConfigurationError(f"a filter is a condition in SQL, not {where!r}", advice="see docs/clients/filters.md")
    starts = list(start.values()) if isinstance(start, Mapping) else [start]
    if group is not None and any(one is None or one.is_latest for one in starts):
        # The two filters of a link must both pass, also where the group stands somewhere: after it nothing would.
        raise ConfigurationError(
            "a group with a filter has to begin at a place that does not move",
            advice="give start=Start.earliest(), Start.from_time(...) or Start.after(...)",
        )
