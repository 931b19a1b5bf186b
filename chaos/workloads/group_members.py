"""Workload W3: members of a consumer group that join, work, commit, leave and crash.

A member that crashes is not gone. It pauses for longer than a claim outlives its reader, with or without its links.
Then it commits the events that it had, as if it did not know that its claim is over. The cluster must refuse that if
another member has the partition by then.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable

from chaos.history.tables import FAIL, INFO, CommitRow
from chaos.workloads.readers import PATIENCE_S, POLL_ENDS_S, POLL_S, Notes
from chaos.workloads.world import CLIENT_ERRORS, LogName, World
from holdfast.client import AdminClient, AdminError, ConsumerClient, ConsumerOptions, OwnershipLostError, Start
from holdfast.client.events import ReceivedEvent

STAYS_S = (3.0, 10.0)
"""Range of the time after which a member leaves in peace and its successor joins."""
STANDS_STILL_S = 6.5
"""Pause of a crashed member, longer than the 5 s by which a claim outlives its reader."""
KEEPS_LINKS_SHARE = 0.3
"""Share of paused members that keep their links; another member takes the partitions of the rest meanwhile."""
COMMIT_ENDS_S = 20.0
AT_ONCE = 50
"""Most events between two commits."""
NOT_OWNER = "not-owner"


class ConsumerMember:
    def __init__(self, world: World, log: LogName, group: str, name: str) -> None:
        self._world, self._log, self._group, self._name = world, log, group, name
        self._crash = world.can_crash()
        self._standing_still: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        for life in itertools.count():
            if self._world.over.is_set():
                break
            try:
                await self._live(f"{self._name}.{life}")
            except CLIENT_ERRORS:
                await self._world.pause(0.1)
        await asyncio.gather(*self._standing_still, return_exceptions=True)

    async def _live(self, member: str) -> None:
        self._crash.clear()
        consumer = ConsumerClient(
            self._world.servers["consumers"], self._log.name, group=self._group, start=Start.earliest(),
            options=ConsumerOptions(reconnect_timeout_s=PATIENCE_S, prefetch=200, network=self._world.network),
        )  # fmt: skip
        loop = asyncio.get_running_loop()
        leaves_s = loop.time() + self._world.chance.uniform(*STAYS_S)
        notes: dict[int, Notes] = {}
        crashed = False
        try:
            await consumer.start()
            while not self._world.over.is_set() and loop.time() < leaves_s:
                events, claim = await self._receive(consumer, member, notes)
                if events and not claim:
                    return  # their claim is not known any more; its next owner gets them again
                if self._crash.is_set() and events:
                    crashed = True
                    await self._stand_still(consumer, member, events[-1], claim)
                    return
                if events:
                    await self._world.pause(self._world.chance.uniform(0.0, 0.05))  # the work
                    await self._commit(consumer, member, events[-1], claim)
        finally:
            if not crashed:
                await consumer.close()

    async def _receive(
        self, consumer: ConsumerClient, member: str, notes: dict[int, Notes]
    ) -> tuple[list[ReceivedEvent], int]:
        call = self._world.recorder.begin(member, "poll", within_s=POLL_ENDS_S + PATIENCE_S)
        try:
            events = await consumer.receive(AT_ONCE, timeout_s=POLL_S)
        except BaseException as error:
            self._world.recorder.end(call, INFO, error)
            raise
        claim = consumer.assignment.get(events[0].partition, 0) if events else 0
        if claim:
            session = notes.setdefault(claim, Notes(self._world.recorder, self._log, member, claim))
            session.note(call.op_id, events, group=self._group, generation=claim)
        self._world.recorder.end(call)
        return events, claim

    async def _stand_still(self, consumer: ConsumerClient, member: str, event: ReceivedEvent, claim: int) -> None:
        async def late() -> None:
            options, partition = self._world.network, event.partition
            async with AdminClient(self._world.servers["consumers"], timeout_s=PATIENCE_S, options=options) as admin:
                try:
                    await admin.commit_group(self._log.name, self._group, partition, event.offset, claim=claim)
                except AdminError as error:
                    if error.code == NOT_OWNER:
                        raise OwnershipLostError(str(error), in_doubt=error.in_doubt) from error
                    raise

        async def wake_up() -> None:
            try:
                await asyncio.sleep(STANDS_STILL_S)
                await self._record_commit(late(), member, event, claim)
            finally:
                await consumer.close()

        if self._world.chance.random() < KEEPS_LINKS_SHARE:
            consumer.pause()
        else:
            await consumer.close()
        self._standing_still.add(asyncio.ensure_future(wake_up()))

    async def _commit(self, consumer: ConsumerClient, member: str, event: ReceivedEvent, claim: int) -> None:
        """Commit an event under the claim under which it came; skip it if the consumer has another claim by now."""
        if consumer.assignment.get(event.partition) == claim:
            await self._record_commit(consumer.commit(event), member, event, claim)

    async def _record_commit(self, commit: Awaitable[object], member: str, event: ReceivedEvent, claim: int) -> None:
        recorder = self._world.recorder
        call = recorder.begin(member, "commit", within_s=COMMIT_ENDS_S)
        try:
            await commit
        except OwnershipLostError as error:
            recorder.end(call, INFO if error.in_doubt else FAIL, error)
            if error.in_doubt:
                self._note(call.op_id, member, event, claim)
            return
        except CLIENT_ERRORS as error:
            recorder.end(call, INFO, error)
            self._note(call.op_id, member, event, claim)
            return
        except asyncio.CancelledError:
            recorder.end(call, INFO, "cancelled")
            self._note(call.op_id, member, event, claim)
            raise
        recorder.end(call)
        self._note(call.op_id, member, event, claim)

    def _note(self, op_id: int, member: str, event: ReceivedEvent, claim: int) -> None:
        self._world.recorder.history.commits.append(
            CommitRow(op_id, self._group, member, claim, self._log.told(event.partition), int(event.offset, 16))
        )
