"""Idempotent producers of W1 and W2.

W1's send event by event and wait long. W2's have a short timeout, send the same batch again, and are replaced by a
successor of a higher epoch while they may still be active."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

from chaos.history.recorder import Call
from chaos.history.tables import OK, SendRow
from chaos.history.values import body_of
from chaos.workloads.world import CLIENT_ERRORS, LogName, World, outcome_of
from holdfast.client import (
    Delivery,
    EventBatch,
    HoldfastError,
    PartitionPublishingOptions,
    ProducerClient,
    ProducerOptions,
)

BODY_BYTES = 200
TICK_S = 0.02
PATIENT_S = 20.0
IMPATIENT_S = 1.5
GIVE_UP_S = 15.0
"""Time for which an impatient producer sends one batch again; its calls have a shorter timeout."""
BATCH = 10
ZOMBIES = 0.5
"""Share of crashed clients that are not dead: they go on beside their successor until they are fenced."""


class EventProducer:
    """A producer of W1: sends event by event, hundreds under way, to one partition or to those of its keys."""

    def __init__(self, world: World, log: LogName, name: str, partition: int) -> None:
        self._world, self._log, self._name, self._partition = world, log, name, partition
        self._numbers = itertools.count()
        self._crash = world.can_crash()

    async def run(self) -> None:
        for life in itertools.count():
            if self._world.over.is_set():
                return
            try:
                await self._live(f"{self._name}.{life}")
            except CLIENT_ERRORS:
                await self._world.pause(0.1)  # the calls are recorded; a successor begins

    async def _live(self, identity: str) -> None:
        self._crash.clear()
        options = ProducerOptions(
            idempotent=True, delivery_timeout_s=PATIENT_S, max_buffered_events=2000, network=self._world.network
        )
        producer = ProducerClient(self._world.servers["producers"], self._log.name, options)
        each = max(1, round(self._world.per_second * TICK_S))
        try:
            await producer.start()
            while not self._world.over.is_set() and not self._crash.is_set():
                if producer.outstanding < 1000:
                    for _ in range(each):
                        await self._send(producer, identity)
                await self._world.pause(TICK_S)
            if not self._crash.is_set():
                await producer.flush()
        finally:
            await producer.abandon()

    async def _send(self, producer: ProducerClient, identity: str) -> None:
        number = next(self._numbers)
        recorder, msg_id = self._world.recorder, f"{self._name}:{number}"
        key = f"{self._name}-{number % self._world.keys}" if self._world.keys else None
        place = str(self._partition) if key is None else producer.partition_of(key)
        partition = self._log.told(place)
        call = recorder.begin(identity, "produce", within_s=2 * PATIENT_S)
        sent: list[Delivery] = []

        def done(error: HoldfastError | None) -> None:
            outcome = OK if error is None else outcome_of(error)
            delivery = sent[0] if sent else None
            seq = delivery.sequence_number if delivery is not None else None
            offset = delivery.offset if delivery is not None else None
            recorder.history.sends.append(
                SendRow(call.op_id, msg_id, partition, identity, 0, seq, None, outcome, offset)
            )
            recorder.end(call, outcome, error)

        body = body_of(msg_id, partition, BODY_BYTES)
        try:
            sent.append(await producer.send(body, key=key, partition=place if key is None else None, done=done))
        except HoldfastError as error:
            recorder.end(call, outcome_of(error), error)
            recorder.history.sends.append(
                SendRow(call.op_id, msg_id, partition, identity, 0, None, None, outcome_of(error), None)
            )
            raise


class BatchProducer:
    """A producer of W2: sends batch by batch to one partition, each again until it is stored or given up."""

    def __init__(self, world: World, log: LogName, name: str, partition: int, group_id: int) -> None:
        self._world, self._log, self._name, self._partition = world, log, name, partition
        self._group_id = group_id
        self._numbers = itertools.count()
        self._crash = world.can_crash()
        self._zombies: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        for epoch in itertools.count():
            if self._world.over.is_set():
                break
            life = asyncio.ensure_future(self._live(epoch))
            crashed = asyncio.ensure_future(self._crash.wait())
            await asyncio.wait({life, crashed}, return_when=asyncio.FIRST_COMPLETED)
            crashed.cancel()
            self._crash.clear()
            if not life.done():
                self._zombies.add(life)
                if self._world.chance.random() >= ZOMBIES:
                    life.cancel()
        await asyncio.gather(*self._zombies, return_exceptions=True)

    async def _live(self, epoch: int) -> None:
        """Send batches until the run is over or this client fails for good."""
        place = str(self._partition)
        options = ProducerOptions(
            idempotent=True,
            delivery_timeout_s=IMPATIENT_S,
            partition_options={place: PartitionPublishingOptions(self._group_id, epoch)},
            network=self._world.network,
        )
        producer = ProducerClient(self._world.servers["producers"], self._log.name, options)
        try:
            await producer.start()
            while not self._world.over.is_set():
                values = [f"{self._name}:{next(self._numbers)}" for _ in range(BATCH)]
                batch = await producer.create_batch(partition=place)
                for msg_id in values:
                    batch.add(body_of(msg_id, self._log.told(self._partition), BODY_BYTES))
                await self._until_stored(producer, batch, values, epoch)
                await self._world.pause(BATCH / self._world.per_second)
        except CLIENT_ERRORS:
            await self._world.pause(0.1)
        finally:
            await producer.abandon()

    async def _until_stored(self, producer: ProducerClient, batch: EventBatch, values: list[str], epoch: int) -> None:
        """Send a batch until it is stored. Raises an error that ends this client."""
        deadline_s = asyncio.get_running_loop().time() + GIVE_UP_S
        while not await self._attempt(producer, batch, values, epoch):
            if asyncio.get_running_loop().time() > deadline_s:
                raise TimeoutError("the batch was given up")

    async def _attempt(self, producer: ProducerClient, batch: EventBatch, values: list[str], epoch: int) -> bool:
        """Send a batch once; return False if it failed and the client may send it again."""
        recorder = self._world.recorder
        call = recorder.begin(f"{self._name}.{epoch}", "produce", within_s=2 * IMPATIENT_S)
        try:
            result = await producer.send_batch(batch)
        except (*CLIENT_ERRORS, asyncio.CancelledError) as error:
            self._note(call, values, epoch, outcome_of(error), None, None)
            recorder.end(call, outcome_of(error), error)
            if isinstance(error, HoldfastError) and type(error).__name__ in AGAIN:
                return False
            raise
        first = None if result.offset is None else int(result.offset, 16)
        self._note(call, values, epoch, OK, result.sequence_number, first)
        recorder.end(call)
        return True

    def _note(
        self, call: Call, values: Sequence[str], epoch: int, outcome: str, seq: int | None, offset: int | None
    ) -> None:
        partition = self._log.told(self._partition)
        self._world.recorder.history.sends += [
            SendRow(
                call.op_id, msg_id, partition, self._name, epoch,
                None if seq is None else seq + place, None, outcome, None if offset is None else offset + place,
            )
            for place, msg_id in enumerate(values)
        ]  # fmt: skip


AGAIN = frozenset({"UndeliveredError", "TimeoutExpiredError", "ConnectionLostError", "UnreachableError"})
"""Errors after which the client sends the same batch again; any other error ends the client."""
