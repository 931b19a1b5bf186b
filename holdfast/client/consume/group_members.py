"""A consumer as a member of a group: partitions come and go, and the group remembers how far it is.

Problem: whether we may read a partition is the cluster's to say, and it may say so in the midst of a batch; our own
connection may also break while the partition stays ours.
Rules never broken:
 - nothing is handed out between the end of a link and the answer to its next attach: what has arrived is dropped;
 - what was handed out is handed out again only after somebody else may have had the partition. When the node says that
   nobody had (`holdfast:continued`), we go on after it;
 - a commit is made in the name of the claim under which the events came, so that an owner that lost its partition
   cannot move the group that goes on without it;
 - the program is told of each partition in turn: assigned, revoked, assigned; the next callback of a partition begins
   when the last one of it has ended, whichever link it came on and left on.

A member that lets the nodes choose always has one link more than it has partitions: its attach is held by the node
until there is a partition for it. Links keep their names, by which the nodes know a link that comes back.

Rejected: telling the program at once that a partition is gone when a connection breaks. Most often it comes back in a
moment, and a program that drops and rebuilds its state each time pays for every dead node.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import socket
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from holdfast import protocol
from holdfast.client.callbacks import report
from holdfast.client.consume.partition_receiver import PartitionReceiver, ReceivingConsumer
from holdfast.client.consume.uncommitted_events import HandedOut, HandedOutEvents
from holdfast.client.errors import (
    AdminError,
    ConnectionLostError,
    HoldfastError,
    InternalError,
    LinkRedirected,
    LinkRefusedError,
    OwnershipLostError,
    ProtocolError,
    TimeoutExpiredError,
)
from holdfast.client.events import DeliveryReader, ReceivedEvent
from holdfast.client.start_position import Start
from holdfast.client.transport.links import IN_BATCHES, Receiver
from holdfast.client.transport.log_info import PartitionInfo
from holdfast.client.transport.management_requests import request
from holdfast.client.transport.network import Backoff, Network

Callback = Callable[[str], Awaitable[None] | None]

CONTINUE_WITHIN_S = 5.0
"""A partition whose link broke and did not come back for so long counts as lost: nodes keep it no longer."""


def container_id() -> str:
    return f"holdfast-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


OF_REVOKED = "of a revoked partition"


class GroupReceiver(PartitionReceiver):
    """One link of a member, and the partition that it has, if any."""

    for_good = True  # the end of its link may return the epoch to 0
    owned_bound_s: float | None = None  # how long it asks for a partition that somebody else has; None: as for others

    def __init__(self, members: GroupMembers, name: str, wanted: str | None, start: Start) -> None:
        nowhere = PartitionInfo(wanted or "", None, None, None, True, {})
        super().__init__(members.consumer, members.network, nowhere, start)
        self.name = name
        self.claim = self.epoch = 0
        self.committed: str | None = None
        self.owns = False  # a link is open
        self.opening = False  # the program is being told that it has the partition
        self.closing = False  # or that the partition is gone
        self._members, self._wanted, self._fallback = members, wanted, start
        self._doubt: str | None = None  # the partition whose link broke, until it is known whose it is
        self._skip: str | None = None  # up to here it was handed out, and nobody else has read since

    @property
    def has_partition(self) -> bool:
        return self.owns or self._doubt is not None

    @property
    def connected(self) -> bool:
        return self.owns or (self._wanted is None and self._doubt is None)

    async def _run(self) -> None:
        try:
            await self._read_on()
        except Exception as error:  # noqa: BLE001 - a defect of ours, of which the program must hear
            self._consumer.fail(InternalError.of(error))
        await self._stop()

    async def _stop(self) -> None:
        """Stop reading over this link: what it had is for others, and nobody is to wait for it."""
        self.owns = False
        self._consumer.drop(self)
        await self._give_up_doubt()
        self._members.gone(self)
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            await receiver.close()

    async def _read_on(self) -> None:
        """Read until there is nothing more to read for this link."""
        backoff, hint = Backoff(), None
        while True:
            self._ended.clear()
            self._closed_by = None
            try:
                self._receiver = await self._attached(hint)
                await self._take_over(self._receiver)
            except HoldfastError as error:
                await self._failed(error)
                return
            self.links_opened += 1
            self.grant()
            await self._ended.wait()
            self._receiver, hint = None, self._closed_by
            if await self._lost(hint):
                return
            if self.taken is not None:
                backoff.reset()
            await backoff.wait()

    async def _failed(self, error: HoldfastError) -> None:
        """Fail the consumer, since there is no link, and none will come."""
        self._consumer.fail(error)

    def _said(self) -> dict[str, Any]:
        """Properties of an attach, which tell the node about us."""
        return self._members.properties()

    # ---------------------------------------------------------------- getting a partition

    async def _attached(self, hint: HoldfastError | None) -> Receiver:
        """However long it takes, if the nodes are to choose."""
        attaching = asyncio.ensure_future(self._attach(hint))
        try:
            if self._doubt is not None:
                done, _ = await asyncio.wait({attaching}, timeout=CONTINUE_WITHIN_S)
                if not done:
                    self._say_lost(f"its link broke, and did not come back within {CONTINUE_WITHIN_S:g} s")
                    await self._give_up_doubt()
            return await attaching
        finally:
            attaching.cancel()

    async def _attach(self, hint: HoldfastError | None) -> Receiver:
        timeout_s = self._consumer.options.reconnect_timeout_s
        while True:
            try:
                return await self._network.attach_receiver(
                    self._consumer.log,
                    self._wanted,
                    None if self._fallback.is_latest else self._fallback,
                    self,
                    deadline_s=asyncio.get_running_loop().time() + timeout_s,
                    hint=hint,
                    name=self.name,
                    properties={**self._said(), **IN_BATCHES},
                    attach_bound_s=timeout_s,
                    for_good=self.for_good,
                    where=self._consumer.where,
                    uncommitted=self._consumer.uncommitted,
                    owned_bound_s=self.owned_bound_s,
                )
            except TimeoutExpiredError:
                if self._wanted is not None:
                    raise
                hint = None  # every partition has its member: wait on

    async def _take_over(self, receiver: Receiver) -> None:
        told = receiver.properties
        partition, claim = told.get(protocol.LINK_PARTITION), told.get(protocol.LINK_CLAIM)
        if partition is None or claim is None:
            await receiver.close()
            raise ProtocolError(f"{receiver.what}: the node does not know consumer groups")
        continued = self._doubt == str(partition) and told.get(protocol.LINK_CONTINUED) is True
        if not continued:
            if self._doubt is not None:
                self._say_lost("somebody else may have had it while its link was broken")
            await self._give_up_doubt()
            position = told.get(protocol.LINK_POSITION)
            self.partition, self.taken, self.paused = str(partition), None, False
            self.committed = None if position is None else str(position)
            self._begin = self._fallback if position is None else Start.after(str(position))
            self._read = DeliveryReader(self.partition)
        self._in_batches = receiver.in_batches
        self.epoch = int(told.get(protocol.LINK_EPOCH) or 0)
        if continued:
            self._members.handed.goes_on(self.partition, self.claim, int(claim))
        self.claim, self._doubt, self._skip, self._buffered = int(claim), None, self.taken, 0
        self.owns = self._is_new_link = True
        self._next = self._begin if self._skip is None else Start.after(self._skip)
        if not continued:
            await self._members.assigned(self)

    def _fresh(self, events: list[ReceivedEvent]) -> list[ReceivedEvent]:
        if self._skip is None:
            return events
        first = next((place for place, event in enumerate(events) if event.offset > self._skip), None)
        if first is None:
            return []
        self._skip = None
        return events[first:]

    def took(self, offset: str) -> None:
        super().took(offset)
        self._members.handed.took(self.partition, self.claim, offset)

    # ---------------------------------------------------------------- losing it

    def on_closed(self, error: HoldfastError) -> None:
        """Drop what arrived at once, not when our task has its turn: nothing of it is handed out any more."""
        self._consumer.drop(self)
        super().on_closed(error)

    async def _lost(self, why: HoldfastError | None) -> bool:
        """Take the loss of the link. Returns True if it is not needed any more."""
        self.owns = False
        self._consumer.drop(self)
        self._buffered = 0
        in_peace = isinstance(why, LinkRefusedError) and not why.condition
        if isinstance(why, OwnershipLostError) or in_peace:
            if isinstance(why, OwnershipLostError):
                self._say_lost(str(why))
            self._doubt = self.partition
            await self._give_up_doubt()
            if isinstance(why, OwnershipLostError) and self._wanted is not None:
                self._consumer.fail(why)
                return True
            return self._members.retires(self)
        self._doubt = self.partition
        if why is not None and not why.retriable and not isinstance(why, ConnectionLostError | LinkRedirected):
            self._consumer.fail(why)
            return True
        return False

    def _say_lost(self, why: str) -> None:
        line = "%s, partition %s: lost for group %s, and what was not committed is delivered again: %s"
        log_lines, log = self._network.log_lines, self._consumer.log
        log_lines.say(line, log, self._doubt or self.partition, self._members.group, why, level=logging.WARNING)

    async def _give_up_doubt(self) -> None:
        partition, self._doubt = self._doubt, None
        if partition is not None:
            await self._members.revoked(self, partition)
            self.taken = self.committed = None

    def forget(self, partition: str) -> None:
        """Forget a partition that another link of ours has now."""
        if self._doubt == partition:
            self._doubt = self.taken = self.committed = None


class GroupMembers:
    """The links of one consumer in its group."""

    def __init__(
        self,
        consumer: ReceivingConsumer,
        network: Network,
        group: str,
        epoch: int | None,
        partitions: Sequence[str] | None,
        start: Start | Mapping[str, Start],
        on_assigned: Callback | None,
        on_revoked: Callback | None,
    ) -> None:
        self.consumer, self.network = consumer, network
        self.readers: list[PartitionReceiver] = []
        self.group, self._epoch, self._partitions, self._start = group, epoch, partitions, start
        self._on_assigned, self._on_revoked = on_assigned, on_revoked
        self._leaving = False
        self._assigned: dict[str, GroupReceiver] = {}
        """Partitions that the program was told that it has, each with the link that it came on."""
        self._turns: dict[str, asyncio.Lock] = {}  # by partition: one callback at a time
        self._wants_more = partitions is None  # the nodes choose, and may give us more
        self._names = 0
        self.handed = HandedOutEvents(consumer.log, self._arguments, self._committed)

    @property
    def in_doubt(self) -> bool:
        """True if what was received may not be handed out before `prove` has asked whose it is."""
        return False

    async def prove(self) -> None:
        """See `in_doubt`."""

    def progressed(self) -> None:
        """Note that the program came for more, or has committed something."""

    @property
    def owning(self) -> list[GroupReceiver]:
        return [reader for reader in self._own if reader.has_partition]

    @property
    def _own(self) -> list[GroupReceiver]:
        return [reader for reader in self.readers if isinstance(reader, GroupReceiver)]

    def properties(self) -> dict[str, Any]:
        said: dict[str, Any] = {protocol.LINK_CONSUMER_GROUP: self.group, protocol.LINK_RESUME: True}
        if self._epoch is not None:
            said[protocol.LINK_EPOCH] = self._epoch
        return said

    def begin(self) -> None:
        for partition in [None] if self._partitions is None else self._partitions:
            self._add(partition)

    def _add(self, partition: str | None) -> None:
        self._names += 1
        start = self._start if isinstance(self._start, Start) else self._start.get(partition or "", Start.latest())
        reader = GroupReceiver(self, f"{self.group}/{partition or self._names}", partition, start)
        self.readers.append(reader)
        reader.begin()

    async def assigned(self, reader: GroupReceiver) -> None:
        if self._wants_more and not any(not one.has_partition for one in self._own):
            self._add(None)
        partition = reader.partition
        try:
            async with self._turn(partition):
                await self._tell_revoked(partition)  # a link that broke had it, and does not know yet that it is lost
                if self._leaving:
                    return
                self._assigned[partition] = reader
                reader.opening = True
                await self._tell(self._on_assigned, partition)
                reader.opening = False
        except HoldfastError:
            await self._not_taken(partition)
            raise
        except Exception as problem:
            await self._not_taken(partition)
            raise HoldfastError(
                f"on_assigned failed for partition {partition!r} of {self.consumer.log!r}: {problem!r}",
                advice="the callback is the program's own: its error is the cause of this one",
            ) from problem

    async def _not_taken(self, partition: str) -> None:
        """The program has failed with the partition. We would be given the same one again as soon as we let it go."""
        self._assigned.pop(partition, None)
        if self._wants_more:
            self._wants_more = False
            waiting = [one for one in self._own if not one.has_partition]
            for one in waiting:
                self.gone(one)
            await asyncio.gather(*(one.close() for one in waiting))

    async def revoked(self, reader: GroupReceiver, partition: str) -> None:
        """Tell the program that a partition goes. While the callback runs it can still be committed, unless its next
        owner was faster. Then a commit fails, and so may the callback: the partition is gone all the same."""
        async with self._turn(partition):
            if self._assigned.get(partition) is reader and not self._leaving:
                await self._tell_revoked(partition)

    def _turn(self, partition: str) -> asyncio.Lock:
        return self._turns.setdefault(partition, asyncio.Lock())

    async def _tell_revoked(self, partition: str) -> None:
        """Tell the program, in the partition's turn."""
        try:
            await self._tell_if_assigned(partition)
        except Exception as problem:  # noqa: BLE001 - the program's own fault must not end our reading
            report(OF_REVOKED, problem)

    async def _tell_if_assigned(self, partition: str) -> None:
        reader = self._assigned.pop(partition, None)
        if reader is not None:
            reader.closing = True
            try:
                await self._tell(self._on_revoked, partition)
            finally:
                reader.closing = False
                reader.forget(partition)

    def retires(self, reader: GroupReceiver) -> bool:
        """A link that lost its partition is not needed while another one waits."""
        if self._partitions is not None:
            return False
        others = any(one is not reader and not one.has_partition for one in self._own)
        return others or not self._wants_more

    def gone(self, reader: GroupReceiver) -> None:
        if reader in self.readers:
            self.readers.remove(reader)

    async def leave(self) -> None:
        """Leave the group. The program is told of each partition, and may commit, while its claims still stand. Raises
        what a callback raises, when all are told."""
        if self._leaving:
            return
        self._leaving = True
        await self._tell_of_all()

    async def _tell_of_all(self) -> None:
        first: Exception | None = None
        for partition, reader in list(self._assigned.items()):
            if reader.opening:  # nothing of it was read: the callback is not waited for
                await reader.close()
            try:
                async with self._turn(partition):
                    await self._tell_if_assigned(partition)
            except Exception as problem:  # noqa: BLE001 - the program's own: the other partitions are to be told of
                if first is None:
                    first = problem
                else:
                    report(OF_REVOKED, problem)
        if first is not None:
            raise first

    # ---------------------------------------------------------------- positions

    async def commit(self, event: ReceivedEvent | None) -> dict[str, str]:
        if event is None:
            wanted = [(reader, reader.taken) for reader in self._committable if reader.taken is not None]
        else:
            reader = next((one for one in self._committable if one.partition == event.partition), None)
            if reader is None:
                raise OwnershipLostError(f"partition {event.partition!r} is not read by this consumer (any more)")
            wanted = [(reader, event.offset)]
        due = [(reader, offset) for reader, offset in wanted if reader.committed is None or offset > reader.committed]
        outcomes = await asyncio.gather(
            *(self._commit(reader, offset) for reader, offset in due), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return {reader.partition: reader.committed for reader, _ in wanted if reader.committed is not None}

    @property
    def _committable(self) -> list[GroupReceiver]:
        return [reader for reader in self._own if reader.has_partition or reader.closing]

    async def _commit(self, reader: GroupReceiver, offset: str) -> None:
        claim, partition = reader.claim, reader.partition
        given = self._arguments(partition, offset, claim)
        timeout_s = self.consumer.options.reconnect_timeout_s
        try:
            await request(self.network, "group", "commit", self.consumer.log, given, changes=False, timeout_s=timeout_s)
        except AdminError as error:
            if error.code == "not-owner":
                doubt = "; an earlier try was not answered, and may have counted" if error.in_doubt else ""
                text = f"partition {partition!r} of {self.consumer.log!r}: {error}{doubt}"
                raise OwnershipLostError(text, in_doubt=error.in_doubt) from error
            raise
        self._committed(partition, offset, claim)

    def _arguments(self, partition: str, offset: str, claim: int) -> dict[str, Any]:
        given = {"group": self.group, "partition": int(partition), "offset": offset, "claim": claim}
        if (which := self.network.log(self.consumer.log).value) is not None:
            given["log"] = which
        return given

    def _committed(self, partition: str, offset: str, claim: int) -> None:
        self.handed.committed(partition, offset, claim)
        for reader in self._own:
            if reader.claim == claim and reader.partition == partition:
                reader.committed = offset
                self.progressed()

    # ---------------------------------------------------------------- what is to be committed by a transaction

    def handed_out(self) -> list[HandedOut]:
        """See `HandedOutEvents.all`."""
        return self.handed.all({(reader.partition, reader.claim) for reader in self._committable})

    def came_for_more(self) -> None:
        self.handed.came_for_more()
        self.progressed()

    # ---------------------------------------------------------------- the program's callbacks

    @property
    def calling(self) -> asyncio.Event | None:
        """Set at the end of the callback that asks this; None outside of one."""
        calls = _calls.get()
        ended = None if calls is None or calls[0] is not self else calls[1]
        return None if ended is None or ended.is_set() else ended

    async def _tell(self, callback: Callback | None, partition: str) -> None:
        if callback is None:
            return
        ended = asyncio.Event()
        before = _calls.set((self, ended))
        try:
            done = callback(partition)
            if inspect.isawaitable(done):
                await done
        except asyncio.CancelledError as problem:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Nobody cancels us: it waited for something that was cancelled.
            raise RuntimeError("a callback waited for something that was cancelled") from problem
        finally:
            ended.set()
            _calls.reset(before)


_calls: ContextVar[tuple[GroupMembers, asyncio.Event] | None] = ContextVar("_calls", default=None)
"""The callback that a task, or one that it has made, is in: its consumer's members, and whether it has returned."""
