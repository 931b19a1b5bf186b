"""Links that take events away: one endpoint for bound and agnostic receivers.

Problem: a consumer sets the pace by its credit and by how fast it empties its socket; a log may hold millions of events
that it could be sent. What is read must be bounded by both, and what was read once must not be read again.

Rules never broken:
 - an event is polled from a partition only when it can be sent at once: credit for it, and room in the connection's
   output. So a consumer that stops reading costs its bound of output, and nothing grows behind it. Where a filter
   looks into events, what is polled is a bounded share of scanning, and what passed of it waits for credit;
 - every event carries its offset, timestamp and partition (ES-25, 27, 45), spliced in front of the stored bytes, which
   are otherwise sent as they came; or record batches go out as they are stored, to a peer that agreed to them;
 - a reader that ends because the leader moved is replaced by one that begins right after the last event sent. The peer
   sees a pause, never a hole and never a repetition.

Settlement has no meaning beyond flow: a log hands an event out once per link, whatever the peer says of it (released,
modified and rejected included); a peer that wants it again attaches again. Rejected: redelivery on release, as from a
queue; it would have to break the order that consumers of a log rely on. With one exception: on a connection that
declares transactions, what was accepted under one that is rolled back, and what the peer gives back (released,
modified), comes again, in order and before anything new: that is what a rollback means to clients that know
transactions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace

from holdfast import protocol
from holdfast.amqp import Credit, SenderLink, Settlements, Source, annotated, offset_text, symbol
from holdfast.amqp.encoding.codec import symbol_array
from holdfast.amqp.errors import INTERNAL_ERROR, MESSAGE_SIZE_EXCEEDED, RESOURCE_LIMIT_EXCEEDED, Error
from holdfast.amqp.links.memory_accounting import DELIVERY_BYTES
from holdfast.records.record_batch import Damaged, agreed_version
from node.client_transactions.transaction import StagedPosition
from node.listener import errors
from node.listener.attach.link_plan import LinkPlan
from node.listener.endpoint import Endpoint, EndpointHost
from node.listener.outgoing.batch_deliveries import BatchDeliveries
from node.listener.outgoing.partition_cursor import PartitionCursor
from node.listener.outgoing.redelivery import Redelivery
from node.listener.outgoing.single_deliveries import SingleDeliveries
from node.partition.api import After, Earliest, Latest, PartitionDescription, ReaderClaim, ReadError, Start

OUTCOMES = ("amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list")
"""Outcomes that a receiver may give."""

CAPABILITIES = ("queue", "topic")
"""Capabilities of a source that JMS clients ask for: a log serves as either."""

LEAST_UNSETTLED = 8
"""Deliveries that a link may have unsettled even when its connection is at its limit: other links shut none out."""

REOPEN_DELAY_S = 0.05
"""Delay between attempts to read from a leader that has just refused: twenty a second, until the election is over."""

DRAIN_QUESTION_S = 2.0
"""Time for a leader to tell its end to a draining peer; a leader that does not has nothing at hand for it."""


class OutgoingLink(Endpoint):
    link: SenderLink

    def __init__(self, host: EndpointHost, link: SenderLink, plan: LinkPlan, starts: dict[str, Start]) -> None:
        """`starts`: where the partitions' readers begin, if not where the plan says (a `@latest` that was resolved)."""
        super().__init__(host, link, plan)
        assert plan.selection is not None
        self._selection = plan.selection
        self._deliveries: SingleDeliveries | BatchDeliveries = SingleDeliveries()
        version = agreed_version(link.remote_properties.get(protocol.RECORD_BATCHES))
        if plan.batches and version is not None:
            self._deliveries = BatchDeliveries(link.remote_max_message_size, host.delivered, version)
        self._cursors: list[PartitionCursor] = []
        self._ready: dict[PartitionCursor, None] = {}  # in order; polling them may yield something
        self._asking_ends = False
        self._redirects = plan.bound and host.redirects and not plan.assigned
        self._awaiting: asyncio.TimerHandle | None = None  # a drain waits for a reader that is not there
        self._awaited = False  # long enough
        self._reopening: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._redelivery: Redelivery[PartitionCursor] = Redelivery(host, self, link)
        self._unsettled_limit = 0 if link.presettled else host.config.unsettled_deliveries
        for partition in self._wanted():
            self._cursors.append(self._cursor(partition, starts.get(partition)))
        self._told = len(self._cursors)  # partitions that the peer knows this link to be associated with

    def _cursor(self, partition: str, latest: Start | None) -> PartitionCursor:
        """A cursor for the partition. `latest`: where `@latest` is in it, if the plan asked for it."""
        selection = self._selection
        if selection.needs_latest:
            selection = selection.at(latest.offset + 1 if isinstance(latest, After) else 0)
        if latest is not None and isinstance(selection.start, Latest):
            selection = replace(selection, start=latest)
        return PartitionCursor(partition, selection, publishers=self.plan.publishers)

    def open(self) -> None:
        for cursor in self._cursors:  # before the answer: what is sent after it must be delivered
            self._open_reader(cursor)
        self.link.accept(source=self._source(), properties=self._properties() or None)

    # ---------------------------------------------------------------------- for links that read in somebody's name

    def _source(self) -> Source:
        """The source of the answer, with the filters, outcomes and capabilities in force."""
        asked = self.link.remote_source
        outcomes = asked.outcomes if isinstance(asked, Source) and asked.outcomes else OUTCOMES
        wanted = asked.capabilities if isinstance(asked, Source) else ()
        return Source(
            address=self.plan.address,
            distribution_mode="copy",
            filter=dict(self._selection.in_force),
            outcomes=tuple(name for name in outcomes if name in OUTCOMES),
            capabilities=tuple(name for name in wanted if name in CAPABILITIES),
        )

    def _properties(self) -> dict[str, object]:
        """Link properties of the answer."""
        bound, until = self.plan.partition, self.plan.until
        said: dict[str, object] = {**self.which_log(), **self._deliveries.properties}
        if bound is not None:
            said[protocol.LINK_PARTITION] = symbol(bound)
        if self.plan.publishers:
            said[protocol.LINK_PUBLISHERS] = True
        return said if until is None else said | {protocol.LINK_UNTIL: symbol(offset_text(until))}

    def _owner(self, partition: str) -> ReaderClaim | None:
        """The claim in whose name the partition is read; None: the link itself."""
        return None

    def _sent(self, cursor: PartitionCursor, numbers: range, runs: list[tuple[int, int]]) -> None:
        """Note deliveries of the partition that are on their way; `runs` of (offset, count)."""
        if not self.link.presettled:
            self._redelivery.sent(numbers.start, cursor, runs)

    def _partition_made(self, partition: str) -> None:
        """Add a partition that the log got while the link was open: all of it comes after the attach."""
        self._cursors.append(self._cursor(partition, Earliest()))

    # ------------------------------------------------------------------------------------------------- partitions

    def _wanted(self) -> Sequence[str]:
        if self.plan.partition is not None:
            return (self.plan.partition,)
        view = self.plan.broker.describe(self.plan.log)
        return () if view is None else view.partitions

    # ------------------------------------------------------------------------------------------------- sending

    def on_credit(self, event: Credit) -> None:
        self._learn_ends()
        self.host.pump_soon(self)

    def on_settlements(self, event: Settlements) -> None:
        self._settled(self._redelivery.settled(event.outcomes))
        if self._redelivery.too_many:
            text = "too many deliveries are accepted under one transaction: discharge it, and attach again"
            self.leave(Error(RESOURCE_LIMIT_EXCEEDED, text))
        if self._redelivery.given_back:
            self.host.pump_soon(self)
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
            self.host.pump_soon(self)

    def _settled(self, numbers: Sequence[int]) -> None:
        """Note deliveries that the peer is done with."""

    # ------------------------------------------------------------------------------------------------- transactions

    def given_back(self, number: int) -> None:
        """Note a delivery that did not count; its event is handed out again."""

    def staged_positions(self, numbers: Sequence[int]) -> Iterable[StagedPosition]:
        return ()

    def committed(self, numbers: Sequence[int]) -> None:
        self._redelivery.committed(numbers)

    def rolled_back(self, numbers: Sequence[int]) -> None:
        self._redelivery.rolled_back(numbers)
        self.host.pump_soon(self)

    def in_doubt(self) -> None:
        self.leave(errors.transaction_in_doubt(self.plan.log))

    def _begin_again(self) -> None:
        given_back, self._redelivery.given_back = self._redelivery.given_back, {}
        for cursor in given_back:
            self._ready.pop(cursor, None)
            cursor.rewind()
            self._open_reader(cursor)

    # ------------------------------------------------------------------------------------------------- sending

    def pump(self) -> bool:
        """Send one share for every partition that has something."""
        more = False
        if self._redelivery.given_back and not self.leaving:
            self._begin_again()
        for cursor in list(self._ready):
            room = self._room()
            if room <= 0:
                break
            if cursor in self._ready:
                del self._ready[cursor]
                if self._send_from(cursor, room):
                    self._ready[cursor] = None  # behind the others
                    more = True
        if self._is_over():
            self.leave(None)
        elif self.link.drain and not self.leaving and self._has_drained():
            self.link.drained()
        return more

    def _is_over(self) -> bool:
        """True when all below the offset at which the peer wants the link to end was sent, or will never be delivered.
        Where the reader stands tells it, so what is applied here: a lagging or deposed leader says it late, and never
        wrongly. (The answer to a drain says no more than that nothing is at hand.)"""
        until = self.plan.until
        if until is None or self.leaving or self._cursors[0].holds:
            return False
        cursor = self._cursors[0]
        return cursor.done or (cursor.reader is not None and cursor.reader.position >= until)

    def _room(self) -> int:
        """Number of events that may be sent now; arranges for the wake-up when there is room again."""
        link = self.link
        if self.leaving or link.credit <= 0 or self.host.output_full():
            return 0
        if not self._unsettled_limit:
            return link.credit
        allowed = max(self.host.room_to_keep() // DELIVERY_BYTES, LEAST_UNSETTLED - link.unsettled)
        room = min(self._unsettled_limit - link.unsettled, allowed)
        if room <= 0 and self._stalled is None:
            loop = asyncio.get_running_loop()
            self._stalled = loop.call_later(self.host.config.unsettled_stall_s, self._nothing_settled)
        return min(room, link.credit)

    def _send_from(self, cursor: PartitionCursor, room: int) -> bool:
        """Send one share of the partition. True: there may be more."""
        if not cursor.holds and cursor.reader is not None:
            batches = self._deliveries.read(cursor, room)
            if not batches:
                if cursor.reader.error is not None:
                    self._reader_failed(cursor, cursor.reader.error)
                return False
            payloads = self._deliveries.payloads(cursor, batches)
            if cursor.done and self._owner(cursor.partition) is None:  # an owner shows by its reader that it lives
                cursor.finish()
        else:
            payloads = []
        try:
            payloads += self._deliveries.release(cursor, room)
        except Damaged as error:
            self._reader_failed(cursor, ReadError("damaged", str(error)))
            return False
        if payloads:
            self._send(cursor, payloads, cursor.take_runs())
        return cursor.holds or cursor.reader is not None

    def _send(self, cursor: PartitionCursor, payloads: list[bytes], runs: list[tuple[int, int]]) -> None:
        if len(self._cursors) != self._told:  # on the next transfer, once (ES-42)
            self._told = len(self._cursors)
            names = symbol_array(cursor.partition for cursor in self._cursors)
            payloads[0] = annotated(payloads[0], protocol.ANNOTATION_PARTITIONS_CHANGED, names)
        limit = self.link.remote_max_message_size
        sizes = list(map(len, payloads))
        if limit and max(sizes) > limit:
            fitting = next(index for index, size in enumerate(sizes) if size > limit)
            self._hand_out(cursor, payloads[:fitting], runs)
            self.host.delivered(fitting, sum(sizes[:fitting]))
            text = f"the next event has {sizes[fitting]} bytes, this link takes {limit}: attach with a larger limit"
            self.leave(Error(MESSAGE_SIZE_EXCEEDED, text))
            return
        self._hand_out(cursor, payloads, runs)
        self.host.delivered(len(payloads), sum(sizes))

    def _hand_out(self, cursor: PartitionCursor, payloads: list[bytes], runs: list[tuple[int, int]]) -> None:
        """Send the payloads. `runs`: (offset, count) of the payloads, and perhaps of later ones."""
        numbers = self.link.send_many(payloads)
        if len(numbers) == len(payloads):
            self._sent(cursor, numbers, runs)

    def _nothing_settled(self) -> None:
        config = self.host.config
        text = (
            f"{self.link.unsettled} deliveries are unsettled, none was settled for {config.unsettled_stall_s:g} s; "
            "settle what was received, or attach with snd-settle-mode settled"
        )
        self.leave(Error(RESOURCE_LIMIT_EXCEEDED, text))

    # --------------------------------------------------------------------------------------------- draining

    def _is_remote(self, cursor: PartitionCursor) -> bool:
        try:
            return cursor.reader is not None and not self.plan.broker.is_local(self.plan.log, cursor.partition)
        except KeyError:  # the log is gone, and soon this link
            return False

    def _has_drained(self) -> bool:
        """Tell whether all that was there when the peer asked has been sent, or its credit is used up."""
        if self.link.credit <= 0:
            self._await_no_more()
            return True
        if self._ready or self._asking_ends:
            return False
        if any(cursor.reader is None and not cursor.done for cursor in self._cursors):
            return self._waited_for_readers()
        self._await_no_more()
        return all(cursor.reader is None or cursor.reader.position >= cursor.drain_to for cursor in self._cursors)

    def _waited_for_readers(self) -> bool:
        """Give a partition without a leader the time of an election: a peer that drains asks for the end. The timer
        says when that is over, not the clock: a loop's timers may be a little early."""
        if self._awaited:
            self._await_no_more()
            return True
        if self._awaiting is None:
            self._awaiting = asyncio.get_running_loop().call_later(DRAIN_QUESTION_S, self._waited)
        return False

    def _waited(self) -> None:
        self._awaited = True
        self.host.pump_soon(self)

    def _await_no_more(self) -> None:
        if self._awaiting is not None:
            self._awaiting.cancel()
        self._awaiting, self._awaited = None, False

    def _learn_ends(self) -> None:
        """Ask the leaders for their ends when the peer drains: a reader on another node may be fetching when it has
        nothing yet."""
        if self.link.drain and not self._asking_ends:
            remote = [cursor for cursor in self._cursors if self._is_remote(cursor)]
            if remote:
                self._asking_ends = True
                self.host.spawn(self._ask_ends(remote))

    async def _ask_ends(self, cursors: list[PartitionCursor]) -> None:
        """Set each cursor's drain target by its leader's end: a remote reader that has nothing yet may still be
        fetching."""

        async def ask(cursor: PartitionCursor) -> None:
            try:
                async with asyncio.timeout(DRAIN_QUESTION_S):
                    info = await self._info_of(cursor.partition)
                cursor.drain_to = info.next_offset if self._selection.uncommitted else info.stable_offset
            except (LookupError, TimeoutError):
                cursor.drain_to = 0  # a partition that cannot answer now has nothing at hand

        await asyncio.gather(*map(ask, cursors))
        self._asking_ends = False
        self.host.pump_soon(self)

    async def _info_of(self, partition: str) -> PartitionDescription:
        """Ask until there is a leader: one that has just been succeeded says so at once, and knows no end."""
        while True:
            try:
                return await self.plan.broker.handle(self.plan.log, partition).info()
            except ConnectionError:
                await asyncio.sleep(REOPEN_DELAY_S)

    # --------------------------------------------------------------------------------------- readers and leaders

    def _open_reader(self, cursor: PartitionCursor) -> None:
        owner = self._owner(cursor.partition)
        if cursor.done and owner is None:
            return

        def wake() -> None:
            self._ready[cursor] = None
            self.host.pump_soon(self)

        handle = self.plan.broker.handle(self.plan.log, cursor.partition)
        cursor.reader = handle.open_reader(cursor.start, wake, owner, uncommitted=self._selection.uncommitted)
        self._ready[cursor] = None

    def _reader_failed(self, cursor: PartitionCursor, why: ReadError) -> None:
        cursor.drop_reader()
        self._ready.pop(cursor, None)
        if why.kind == "deleted" or self.plan.broker.describe(self.plan.log) is None:
            self.leave(errors.log_deleted(self.plan.log))
        elif not why.retriable or why.kind == "damaged":  # here it stays damaged; another leader may have it whole
            self.leave(Error(INTERNAL_ERROR, f"partition {cursor.partition!r} cannot be read: {why.detail}"))
        elif self._redirects:
            self.move()
        elif self._reopening is None:
            self._reopening = asyncio.get_running_loop().call_later(REOPEN_DELAY_S, self._reopen)

    def _reopen(self) -> None:
        self._reopening = None
        broker, log = self.plan.broker, self.plan.log
        if self.leaving or broker.describe(log) is None:
            return  # a deleted log: `on_change` closes the link
        for cursor in self._cursors:
            if cursor.reader is None and broker.leader(log, cursor.partition) is not None:
                self._open_reader(cursor)
        self._learn_ends()
        self.host.pump_soon(self)

    def on_change(self) -> None:
        super().on_change()
        if self.leaving:
            return
        if self.plan.broker.describe(self.plan.log) is None:
            self.leave(errors.log_deleted(self.plan.log))
            return
        if self.belongs_elsewhere():
            self.move()
            return
        known = {cursor.partition for cursor in self._cursors}
        for partition in self._wanted():
            if partition not in known:
                self._partition_made(partition)
        if self._reopening is None:
            self._reopen()

    def quiesce(self) -> None:
        for timer in (self._reopening, self._stalled):
            if timer is not None:
                timer.cancel()
        self._reopening = self._stalled = None
        self._await_no_more()
        self._ready.clear()
        for cursor in self._cursors:
            cursor.drop_reader()

    def gone(self) -> None:
        super().gone()
        self.quiesce()
