"""Consumer ownership by external consensus: the members of a group divide a log's partitions through ZooKeeper.

Problem: ZooKeeper knows which sessions live, not which members read; a process may go on reading long after its session
has ended, and ZooKeeper may be away for hours while everybody is well.
Rules never broken:
 - a partition is claimed from the cluster with an epoch that only the holder of its lock can get
   (`fencing_epochs.py`), so the cluster ends the claim of the holder before, alive or not;
 - a partition is handed over (work ended, committed, detached) before its lock is let go, unless the process is too
   late for that; then the epoch protects the group;
 - nothing here waits for ZooKeeper in the program's loop.

| what is heard                      | what is done                                                                   |
| ---------------------------------- | ------------------------------------------------------------------------------ |
| members have come or gone          | what will not be ours is handed over, then all locks go and are shared anew    |
| we got the same partition again    | its link goes on under its epoch, if nobody was given one meanwhile            |
| the connection is gone (suspended) | reading goes on. The session may be over, but whoever gets the partition then  |
|                                    | has a greater epoch, and the cluster ends our link. To stop would end all      |
|                                    | reading whenever ZooKeeper is away, and prove nothing                          |
| the session is over (lost)         | all is handed over; then we come back as a new member                          |
| the cluster ended our link         | somebody has a greater epoch. If the lock is ours it was claimed by hand: it   |
|                                    | is claimed again when nobody reads it any more                                 |
| the log has more partitions        | a new locks for the new set; links go on meanwhile                              |

Rejected: to let kazoo's partitioner alone say who reads (two may believe it for as long as a session lasts); to stop
everything on every change, as the partitioner's documentation has it: each newcomer would stop all consumers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from holdfast.client.consume.zookeeper.fencing_epochs import NotHeld
from holdfast.client.consume.zookeeper.partition_locks import PartitionLocks, node_name
from holdfast.client.errors import (
    ConfigurationError,
    HoldfastError,
    LogDeletedError,
    NotFoundError,
    UnreachableError,
)
from holdfast.client.transport.log_info import read_info
from holdfast.client.transport.network import Network
from holdfast.client.transport.zookeeper.zookeeper_client import (
    ZooKeeperAddress,
    ZooKeeperLogin,
    explain,
    parse_url,
)

log = logging.getLogger("holdfast.client")

T = TypeVar("T")

FORM = "write zk://host:port,host:port/PATH; beneath PATH the members of all groups keep what they agree on"

RECHECK_S = 5.0
"""Period of the look whether the log has more partitions, whether our place is still there, and whether a partition
that somebody claimed by hand is free again. ZooKeeper tells of changes of members."""

RETRY_S = 0.5
"""After what failed and may succeed: ZooKeeper elects a leader in about so long, and so do the nodes."""

SAY_AGAIN_S = 60.0
"""A wait that goes on is logged so often."""

RENEW_AFTER_SESSIONS = 3.0
"""A client that was disconnected for so many session times begins anew: its session is over, and a ZooKeeper that lost
its data turns clients away that have seen more of its history than it has itself."""

CLOSE_WITHIN_S = 3.0
"""Time for saying goodbye; ZooKeeper ends the session by itself otherwise."""


@dataclass(frozen=True)
class ZooKeeperOwnership:
    """Options by which the members of a group find each other. All members of a group are given the same `url`."""

    url: str
    login: ZooKeeperLogin = field(default_factory=ZooKeeperLogin)
    session_timeout_s: float = 10.0  # a member that was silent for so long has left; servers bound it (2 to 20 ticks)
    settle_s: float = 1.0  # members that come or go within so long are one change
    hand_over_s: float = 10.0  # for a program to end its work on a partition that goes to another member

    def check(self) -> None:
        self.place()
        for name in ("session_timeout_s", "settle_s", "hand_over_s"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise ConfigurationError(f"{name} must be more than 0, not {value!r}")

    def place(self) -> ZooKeeperAddress:
        return parse_url(self.url, known_options=set(), what="no place in ZooKeeper", form=FORM)


class Holder(Protocol):
    """Reader of the partitions."""

    @property
    def held(self) -> dict[str, int]:
        """Partition -> the epoch that it is read by."""

    def own(self, partition: str, epoch: int) -> None:
        """Claim a partition, and read it."""

    async def hand_over(self, partition: str) -> None:
        """Hand the partition over; returns when it is not read any more. Nothing to do for one that is not held."""

    async def describe(self, timeout_s: float) -> list[dict[str, Any]]:
        """State of the group as the cluster knows it, a row for each partition."""


class Keeper:
    """Keeps what is read equal to what is ours, from `run` to `close`."""

    def __init__(
        self, ownership: ZooKeeperOwnership, holder: Holder, network: Network, log_name: str, group: str, member: str
    ) -> None:
        place = ownership.place()
        self._ownership, self._holder, self._network = ownership, holder, network
        self._hosts, self._log, self._member = place.hosts, log_name, node_name(member)
        self.base = f"{place.path}/groups/{node_name(log_name)}/{node_name(group)}"
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="ownership")
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._locks: PartitionLocks | None = None
        self._met = False  # ZooKeeper has been reached once
        self._settled = -1  # the allotment that is acted upon
        self._said: dict[str, float] = {}  # when

    async def run(self, *, patience_s: float) -> None:
        """Run until cancelled. Raises what cannot pass; UnreachableError when ZooKeeper was never reached in time.
        Then, or when it was cancelled, `close` remains to be called: our locks stand until then."""
        self._loop = asyncio.get_running_loop()
        while True:
            self._locks = locks = PartitionLocks(
                self._hosts, self._ownership.login, self.base, self._member,
                session_timeout_s=self._ownership.session_timeout_s,
                settle_s=self._ownership.settle_s,
                changed=self._poke,
            )  # fmt: skip
            self._settled = -1
            try:
                locks.begin()
                await self._until_connected(locks, patience_s)
                partitions = await self._partitions()
                await self._call(locks.join, partitions)
                await self._keep(locks, partitions)
            except (UnreachableError, NotHeld) as error:
                if not self._met:
                    raise
                self._say(f"{error}; reading goes on")
                await asyncio.sleep(RETRY_S)
            await self.close()

    async def close(self) -> None:
        """Leave: our locks and our place go at once, if ZooKeeper hears us. Idempotent."""
        locks, self._locks = self._locks, None
        if locks is None:
            return
        # Not on the worker: it may be waiting for a server. A thread that waits is set free by the end of the client.
        goodbye = asyncio.get_running_loop().run_in_executor(None, locks.close)
        try:
            async with asyncio.timeout(CLOSE_WITHIN_S):
                await asyncio.shield(goodbye)
        except Exception as error:  # noqa: BLE001 - kazoo's, or the bound: ZooKeeper ends the session by itself
            log.debug("leaving ZooKeeper: %r", error)
        self._worker.shutdown(wait=False)
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="ownership")

    def wake(self) -> None:
        """Look again."""
        self._wake.set()

    # ---------------------------------------------------------------- one set of locks

    async def _until_connected(self, locks: PartitionLocks, patience_s: float) -> None:
        assert self._loop is not None
        since_s = self._loop.time()
        while True:
            self._wake.clear()  # before looking, so that no change is missed
            if locks.connected:
                break
            if locks.refused:
                raise ConfigurationError(
                    f"ZooKeeper at {self._hosts} does not take the login", advice="correct ZooKeeperLogin(auth=...)"
                )
            if not self._met and self._loop.time() - since_s > patience_s:
                raise UnreachableError(
                    f"ZooKeeper at {self._hosts} does not answer within {patience_s:g} s",
                    advice="check the address and that a majority of its servers is up; then try again",
                )
            if self._loop.time() - since_s > self._ownership.session_timeout_s:
                self._say(f"waiting for ZooKeeper at {self._hosts}; what is read is read on")
            await self._pause(RETRY_S)
        self._met = True

    async def _partitions(self) -> frozenset[str]:
        while True:
            try:
                infos = await read_info(self._network, self._log, timeout_s=RECHECK_S)
                return frozenset(info.partition for info in infos)
            except HoldfastError as error:
                if not error.retriable:
                    raise
                self._say(f"the partitions of {self._log!r} are not known yet: {error}")
                await asyncio.sleep(RETRY_S)

    async def _keep(self, locks: PartitionLocks, partitions: frozenset[str]) -> None:
        """Keep the locks; returns when another set of them is needed."""
        assert self._loop is not None
        away_since_s: float | None = None
        checked_s = self._loop.time()
        while True:
            self._wake.clear()
            now_s, pause_s = self._loop.time(), RECHECK_S
            if locks.over:
                await self._leave_all("ZooKeeper has ended our session" if locks.lost else "our seat is not sound")
                return
            if not locks.connected:
                away_since_s = now_s if away_since_s is None else away_since_s
                if now_s - away_since_s > RENEW_AFTER_SESSIONS * self._ownership.session_timeout_s:
                    return
                pause_s = RETRY_S
            else:
                away_since_s = None
                try:
                    if now_s - checked_s >= RECHECK_S:
                        checked_s = now_s
                        if not await self._sound(locks, partitions):
                            return
                    await self._act(locks)
                except NotHeld as error:
                    self._say(f"{error}; joining anew")
                    return
                except HoldfastError as error:
                    if not error.retriable:
                        raise
                    self._say(str(error))
                    pause_s = RETRY_S
            await self._pause(pause_s)

    async def _sound(self, locks: PartitionLocks, partitions: frozenset[str]) -> bool:
        """True if the log is as it was, and our place still there."""
        try:
            infos = await read_info(self._network, self._log, timeout_s=RECHECK_S)
        except (NotFoundError, LogDeletedError):
            raise
        except HoldfastError as error:
            self._say(f"the partitions of {self._log!r} cannot be asked for: {error}")
        else:
            if frozenset(info.partition for info in infos) != partitions:
                return False
        acquired = locks.acquired
        if acquired is not None and set(acquired[1]) != set(self._holder.held):
            self._settled = -1  # somebody took one away: it may be free again
        return self._member in await self._call(locks.members)

    async def _act(self, locks: PartitionLocks) -> None:
        if locks.must_release:
            keep = set(await self._call(locks.expected))
            await self._hand_over([partition for partition in self._holder.held if partition not in keep])
            await self._call(locks.release)
        elif (acquired := locks.acquired) is not None and acquired[0] != self._settled:
            await self._settle(locks, acquired[1])
            self._settled = acquired[0]

    async def _settle(self, locks: PartitionLocks, mine: list[str]) -> None:
        """Read what is ours, and nothing else."""
        await self._hand_over([partition for partition in self._holder.held if partition not in mine])
        rows = await self._in_force() if mine else {}
        for partition in mine:
            has, row = self._holder.held.get(partition), rows.get(partition, {})
            epoch = await self._call(locks.lease, partition, has, int(row.get("epoch", 0)), bool(row.get("active")))
            if epoch == has and epoch is not None:
                continue
            await self._holder.hand_over(partition)
            if epoch is not None:
                self._holder.own(partition, epoch)
            else:
                self._say(f"partition {partition} of {self._log!r} was claimed by hand, by {row['member']}: left alone")

    async def _in_force(self) -> dict[str, dict[str, Any]]:
        """Claims in force, by partition. Empty while the cluster cannot say: it refuses an epoch that is too small."""
        try:
            return {row["partition"]: row for row in await self._holder.describe(RECHECK_S)}
        except HoldfastError as error:
            if not error.retriable:
                raise
            self._say(f"the epochs in force for {self._log!r} are not known: {error}")
            return {}

    async def _hand_over(self, partitions: list[str]) -> None:
        await asyncio.gather(*(self._holder.hand_over(partition) for partition in partitions))

    async def _leave_all(self, why: str) -> None:
        log.warning("%s: the partitions of %s are handed over, and we join anew", why, self._log)
        await self._hand_over(list(self._holder.held))

    # ---------------------------------------------------------------- threads

    async def _call(self, work: Callable[..., T], *arguments: Any) -> T:
        """Call on the worker; kazoo's errors become ours."""
        from kazoo.exceptions import KazooException
        from kazoo.handlers.threading import KazooTimeoutError

        bound_s = RENEW_AFTER_SESSIONS * self._ownership.session_timeout_s
        try:
            async with asyncio.timeout(bound_s):
                return await asyncio.get_running_loop().run_in_executor(self._worker, work, *arguments)
        except TimeoutError:  # kazoo waits for ever; the end of these locks sets its thread free
            raise NotHeld(f"ZooKeeper at {self._hosts} has not answered for {bound_s:g} s") from None
        except (KazooException, KazooTimeoutError, OSError) as error:
            raise explain(error, self._hosts, self.base) from error

    def _poke(self) -> None:
        """Look again; called from kazoo's threads."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has just ended
                self._loop.call_soon_threadsafe(self._wake.set)

    async def _pause(self, most_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                await self._wake.wait()

    def _say(self, what: str) -> None:
        assert self._loop is not None
        now_s = self._loop.time()
        self._said = {text: at_s for text, at_s in self._said.items() if now_s - at_s < SAY_AGAIN_S}
        if what not in self._said:
            self._said[what] = now_s
            log.warning("%s", what)
