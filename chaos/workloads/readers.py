"""Readers of a run: consumers at the tail that go on after failures, clients that ask for the log's end, the drain."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence

from chaos.history.recorder import Recorder
from chaos.history.tables import COMMITTED, INFO, OK, ReadRow, WatermarkRow
from chaos.history.values import read_value
from chaos.workloads.world import CLIENT_ERRORS, LogName, World
from holdfast.client import (
    AdminClient,
    ConsumerClient,
    ConsumerOptions,
    NetworkOptions,
    PartitionInfo,
    Security,
    Start,
)
from holdfast.client.events import ReceivedEvent

POLL_S = 0.5
POLL_ENDS_S = 5.0
PATIENCE_S = 10.0
ASK_S = 3.0
ASK_EVERY_S = 0.25
DRAIN_S = 120.0
SILENT_S = 15.0
"""Time that a reader waits at the end for missing events. It may have to reconnect; a longer silence is a failure."""
AFRESH = 0.25
"""Share of a reader's sessions that start at the begin of the log, not where the last one ended."""


class Notes:
    """Recorder of the events that one reader gets in one session."""

    def __init__(self, recorder: Recorder, log: LogName, reader: str, session: int, isolation: str = COMMITTED) -> None:
        self._recorder, self._log, self._reader, self._session = recorder, log, reader, session
        self._isolation = isolation
        self._pos = itertools.count()

    def note(
        self, op_id: int, events: Sequence[ReceivedEvent], *, node: int | None = None, group: str | None = None,
        generation: int | None = None,
    ) -> list[str]:  # fmt: skip
        """Record events; return the names of their values."""
        values = [read_value(event.body) for event in events]
        self._recorder.history.reads += [
            ReadRow(
                op_id, value.msg_id, value.crc_ok, self._log.told(event.partition), int(event.offset, 16), self._reader,
                self._session, group, generation, self._isolation, next(self._pos), node,
            )
            for event, value in zip(events, values, strict=True)
        ]  # fmt: skip
        return [value.msg_id for value in values]


class TailReader:
    """A reader of all partitions at the tail, until the run is over; then it reads to the log's end, within a bound."""

    def __init__(self, world: World, log: LogName, name: str, isolation: str = COMMITTED) -> None:
        self._world, self._log, self._name, self._isolation = world, log, name, isolation
        self._crash = world.can_crash()
        self._positions: dict[str, str] = {}
        self._goals: dict[int, int] = {}  # by partition, as numbered in histories
        self._heard_s = 0.0

    async def run(self) -> None:
        for session in itertools.count():
            if self._has_ended():
                return
            try:
                await self._read(session)
            except CLIENT_ERRORS:
                await asyncio.sleep(0.1)

    async def _read(self, session: int) -> None:
        self._crash.clear()
        if self._world.chance.random() < AFRESH:
            self._positions = {}
        start = {
            str(partition): Start.after(self._positions[str(partition)])
            if str(partition) in self._positions
            else Start.earliest()
            for partition in self._log.own
        }
        notes = Notes(self._world.recorder, self._log, self._name, session, self._isolation)
        consumer = ConsumerClient(
            self._world.servers["consumers"], self._log.name, start=start, isolation=self._isolation,  # type: ignore[arg-type]
            options=ConsumerOptions(reconnect_timeout_s=PATIENCE_S, network=self._world.network),
        )  # fmt: skip
        try:
            await consumer.start()
            while not self._has_ended() and not self._crash.is_set():
                await self._poll(consumer, notes)
        finally:
            await consumer.close()

    def _has_ended(self) -> bool:
        """Tell whether writers have ended, and the reader has all acknowledged events or got none for too long."""
        if not self._world.quiet.is_set():
            return False
        if not self._goals:
            for send in self._world.recorder.history.sends:
                if send.outcome == OK and send.offset is not None:
                    self._goals[send.partition] = max(send.offset, self._goals.get(send.partition, -1))
            self._heard_s = time.monotonic()
        if self._goals and all(
            int(self._positions.get(str(one), "-1"), 16) >= self._goals.get(self._log.told(one), -1)
            for one in self._log.own
        ):
            return True
        return time.monotonic() - self._heard_s > SILENT_S

    async def _poll(self, consumer: ConsumerClient, notes: Notes) -> None:
        call = self._world.recorder.begin(self._name, "poll", within_s=POLL_ENDS_S)
        try:
            events = await consumer.receive(timeout_s=POLL_S)
        except BaseException as error:
            self._world.recorder.end(call, INFO, error)
            raise
        notes.note(call.op_id, events)
        self._world.recorder.end(call)
        for event in events[-1:]:
            self._positions[event.partition] = event.offset
            self._heard_s = time.monotonic()


class Watcher:
    """A client that asks only one node for the end of the log, even if it was deposed and does not know yet."""

    def __init__(self, world: World, log: LogName, node: int) -> None:
        self._world, self._log, self._name = world, log, f"watcher-{node}"
        self._server = world.servers["consumers"][node - 1]

    async def run(self) -> None:
        async with AdminClient(self._server, timeout_s=ASK_S, options=self._world.network) as admin:
            while not self._world.over.is_set():
                await self._ask(admin)
                await self._world.pause(ASK_EVERY_S)

    async def _ask(self, admin: AdminClient) -> None:
        recorder = self._world.recorder
        call = recorder.begin(self._name, "latest", within_s=2 * ASK_S)
        try:
            infos = await admin.log_info(self._log.name)
        except CLIENT_ERRORS as error:
            recorder.end(call, INFO, error)
            return
        except asyncio.CancelledError:
            recorder.end(call, INFO, "cancelled")
            raise
        recorder.end(call, OK)
        recorder.history.watermarks += [
            _watermark(call.op_id, self._name, self._log, info) for info in infos if info.available
        ]


def _watermark(op_id: int, process: str, log: LogName, info: PartitionInfo) -> WatermarkRow:
    latest = 0 if info.latest_offset is None else int(info.latest_offset, 16) + 1
    earliest = 0 if info.earliest_offset is None else int(info.earliest_offset, 16)
    stable = None if info.stable_offset is None else int(info.stable_offset, 16)
    return WatermarkRow(op_id, process, log.told(info.partition), earliest, latest, stable)


async def drain(recorder: Recorder, log: LogName, node: int, server: str, security: Security) -> None:
    """Read the whole log through one node, once all writers have ended."""
    options = ConsumerOptions(until_end=True, network=NetworkOptions(follow_redirects=False, security=security))
    reader = f"drain-{log.name}-node-{node}"
    notes = Notes(recorder, log, reader, 0)
    async with asyncio.timeout(DRAIN_S):
        consumer = ConsumerClient(server, log.name, start=Start.earliest(), options=options)
        async with consumer:
            while True:
                call = recorder.begin(reader, "drain", node=node, within_s=DRAIN_S)
                events = await consumer.receive(timeout_s=DRAIN_S / 2)
                notes.note(call.op_id, events, node=node)
                recorder.end(call)
                if not events:
                    return
