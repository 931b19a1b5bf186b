"""A member of a group whose partitions are given out by an outside authority: each comes with an epoch to claim it by.

Problem: that authority (ZooKeeper, see `ownership.py`) and the cluster do not know of each other. We may still be
reading what it took from us; another member may still hold what it gave us.
Rules never broken:
 - the cluster decides who reads: a claim with a greater epoch ends ours, whatever the authority has told us so far;
 - a link ends without `closed`, so that the epoch in force outlives it: a member that was replaced and does not know it
   yet is not let in again once we have gone, too;
 - a member that did not run for a whole session (stopped, swapped out, a laptop's lid) hands nothing out that came
   before, until the cluster has said that its claims still stand.
On a hand-over the program first ends the work that it has in its hands (it comes for more, or commits), is told, and
may commit; then the link ends.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from holdfast import protocol
from holdfast.client.consume.group_members import (
    Callback,
    GroupMembers,
    GroupReceiver,
)
from holdfast.client.consume.partition_receiver import ReceivingConsumer
from holdfast.client.consume.zookeeper.ownership import Keeper, ZooKeeperOwnership
from holdfast.client.errors import AdminError, HoldfastError, OwnershipLostError, PartitionOwnedError
from holdfast.client.start_position import Start
from holdfast.client.transport.management_requests import request
from holdfast.client.transport.network import Network

log = logging.getLogger("holdfast.client")

OWN_CLAIM_S = 7.0
"""A claim of our own, of a link that a dead node served, ends within five seconds. One that is refused for longer is
outbid, and its epoch will not become greater by waiting."""


class OwnedReceiver(GroupReceiver):
    """Reads one partition under one epoch, until it is handed over or taken."""

    for_good = False
    owned_bound_s = OWN_CLAIM_S

    def __init__(self, members: OwnedPartitions, name: str, partition: str, epoch: int, start: Start) -> None:
        super().__init__(members, name, partition, start)
        self.lease = epoch
        self.draining = False  # nothing more is handed out
        self._owned = members

    def _said(self) -> dict[str, Any]:
        return {**super()._said(), protocol.LINK_EPOCH: self.lease}

    def drain(self) -> None:
        self.draining = True
        self._consumer.drop(self)

    def on_transfers(self, payloads: list[bytes]) -> None:
        if not self.draining:
            super().on_transfers(payloads)

    def grant(self) -> None:
        if not self.draining:
            super().grant()

    async def _failed(self, error: HoldfastError) -> None:
        if isinstance(error, PartitionOwnedError):
            await self._outbid(error)
        else:
            await super()._failed(error)

    async def _lost(self, why: HoldfastError | None) -> bool:
        if not isinstance(why, OwnershipLostError):
            return await super()._lost(why)
        self._doubt = self.partition
        await self._outbid(why)
        return True

    async def _outbid(self, why: HoldfastError) -> None:
        self.owns = False
        self._consumer.drop(self)
        await self._give_up_doubt()
        self._owned.outbid(self, why)

    def disown(self, why: OwnershipLostError) -> None:
        """We have learned by another way that the claim is not in force."""
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.abandon()
            self.on_closed(why)


class OwnedPartitions(GroupMembers):
    """Implements `ownership.Holder`."""

    def __init__(
        self,
        consumer: ReceivingConsumer,
        network: Network,
        group: str,
        start: Start | Any,
        on_assigned: Callback | None,
        on_revoked: Callback | None,
        ownership: ZooKeeperOwnership,
    ) -> None:
        super().__init__(consumer, network, group, None, (), start, on_assigned, on_revoked)
        self._ownership = ownership
        self._held: dict[str, OwnedReceiver] = {}
        self._progress = asyncio.Event()
        self._ran_s = time.monotonic()
        self._stalled = False
        self._tasks: list[asyncio.Task[None]] = []
        self._keeper = Keeper(ownership, self, network, consumer.log, group, network.options.container_id)

    def begin(self) -> None:
        loop = asyncio.get_running_loop()
        self._ran_s = time.monotonic()
        self._tasks = [
            loop.create_task(self._keep(), name="ownership"),
            loop.create_task(self._beat(), name="ownership's pulse"),
        ]

    async def _keep(self) -> None:
        try:
            await self._keeper.run(patience_s=self.consumer.options.reconnect_timeout_s)
        except HoldfastError as error:
            self.consumer.fail(error)
        except Exception as error:  # noqa: BLE001 - a callback's, or a defect of ours: the program must hear of it
            told = HoldfastError(f"the group's partitions cannot be looked after any more: {error!r}")
            told.__cause__ = error
            self.consumer.fail(told)
        await self._keeper.close()  # others may have what was ours

    # ---------------------------------------------------------------- for the keeper

    @property
    def held(self) -> dict[str, int]:
        return {partition: reader.lease for partition, reader in self._held.items()}

    def own(self, partition: str, epoch: int) -> None:
        assert partition not in self._held
        self._names += 1
        assert isinstance(self._start, Start)
        name = f"{self.group}/{partition}/{self._names}"
        reader = self._held[partition] = OwnedReceiver(self, name, partition, epoch, self._start)
        self.readers.append(reader)
        reader.begin()

    async def hand_over(self, partition: str) -> None:
        reader = self._held.pop(partition, None)
        if reader is None:
            return
        reader.drain()
        if reader.has_partition:
            await self._worked_off(reader)
        if reader.has_partition:  # still: nobody has taken it meanwhile
            await self.revoked(reader, partition)
        await reader.close()
        if reader in self.readers:
            self.readers.remove(reader)

    async def _worked_off(self, reader: OwnedReceiver) -> None:
        """Wait until the program is done with what it was given."""
        try:
            async with asyncio.timeout(self._ownership.hand_over_s):
                while self.consumer.in_hands is reader and reader.taken != reader.committed and reader.has_partition:
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            log.warning(
                "partition %s of %s is handed over although the program still works on it after %g s",
                reader.partition, self.consumer.log, self._ownership.hand_over_s,
            )  # fmt: skip

    def outbid(self, reader: OwnedReceiver, why: HoldfastError) -> None:
        """Give up a partition that was claimed with a greater epoch."""
        log.warning("%s", why)
        if self._held.get(reader.partition) is reader:
            del self._held[reader.partition]
        if reader in self.readers:
            self.readers.remove(reader)
        self._progress.set()
        self._keeper.wake()

    # ---------------------------------------------------------------- the program

    def progressed(self) -> None:
        self._progress.set()

    async def leave(self) -> None:
        if self._leaving:
            return
        self._leaving = True
        for task in self._tasks:
            task.cancel()
        try:
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._tell_of_all()
        finally:
            try:
                await asyncio.gather(*(reader.close() for reader in self.readers))
            finally:
                await self._keeper.close()

    # ---------------------------------------------------------------- having stood still

    @property
    def in_doubt(self) -> bool:
        return self._stalled or time.monotonic() - self._ran_s > self._ownership.session_timeout_s

    async def _beat(self) -> None:
        bound_s = self._ownership.session_timeout_s
        while True:
            self._ran_s = time.monotonic()
            await asyncio.sleep(bound_s / 4)
            if time.monotonic() - self._ran_s > bound_s:
                self._stalled = True

    async def prove(self) -> None:
        claims = {reader: reader.claim for reader in self._held.values() if reader.owns}
        timeout_s = self.consumer.options.reconnect_timeout_s
        in_force = {row["partition"]: row for row in await self.describe(timeout_s) if row["active"]}
        for reader, claim in claims.items():
            row = in_force.get(reader.partition)
            if reader.owns and reader.claim == claim and (row is None or row["claim"] != claim):
                now = "nobody" if row is None else f"{row['member']} with epoch {row['epoch']}"
                what = f"partition {reader.partition!r} of {self.consumer.log!r}"
                reader.disown(OwnershipLostError(f"{what} is read by {now}: this consumer stood still"))
        self._stalled, self._ran_s = False, time.monotonic()

    async def describe(self, timeout_s: float) -> list[dict[str, Any]]:
        """The group's rows, one for each partition; none when the cluster does not know the group."""
        given = {"group": self.group}
        try:
            answer = await request(
                self.network, "group", "describe", self.consumer.log, given, changes=False, timeout_s=timeout_s
            )
        except AdminError as error:
            if error.code == "not-found":
                return []
            raise
        return list(answer["partitions"])
