"""A member's locks in ZooKeeper: which partitions are its to read.

Problem: kazoo's `SetPartitioner` divides a set among sessions, but a program that acts on its word alone may act when
the session is over; and its word may be wrong: a lock whose acquisition timed out while the connection was away counts
as acquired there.
Rule never broken: a set of locks is for one session and one set of partitions; what has ended is closed with its
session, never mended. So no lock is left behind by a thread of kazoo's that was late.
The epoch that proves a lock comes from `fencing_epochs`.

    BASE/party/...             ephemeral: who takes part (kazoo's)
    BASE/locks/PARTITION/...   ephemeral: whose it is, the first in line (kazoo's)
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Collection, Iterable
from typing import Any
from urllib.parse import quote

from holdfast.client.consume.zookeeper.fencing_epochs import FencingEpochs
from holdfast.client.transport.zookeeper.zookeeper_client import ZooKeeperLogin, end_client, make_client

LOCK_WAIT_S = 0.5
"""kazoo looks so often whether the members have changed while it waits for a lock: a change is acted on as soon."""


def share(member: str, members: Iterable[str], partitions: Iterable[str]) -> list[str]:
    """The partitions of one member: fair shares, the same seen from everywhere, and when somebody comes or goes most
    partitions stay where they are. Nothing for a member that is not among them."""
    everybody = sorted(set(members))
    wanted = sorted(set(partitions), key=_in_order)
    if member not in everybody:
        return []
    least, more = divmod(len(wanted), len(everybody))
    load = dict.fromkeys(everybody, 0)
    mine = []
    for partition in wanted:
        for one in sorted(everybody, key=lambda one: _rank(partition, one)):
            if load[one] < least or (load[one] == least and more > 0):
                more -= load[one] == least
                load[one] += 1
                mine += [partition] if one == member else []
                break
    return mine


def _rank(partition: str, member: str) -> bytes:
    return hashlib.blake2b(f"{partition}\n{member}".encode(), digest_size=8).digest()


def _in_order(partition: str) -> tuple[int, str]:
    return len(partition), partition


def _partitioner() -> Any:
    """kazoo's, whose thread ends quietly if we close its client while it asks. Made when needed: kazoo is optional."""
    from kazoo.exceptions import ConnectionClosedError
    from kazoo.recipe.partitioner import SetPartitioner

    class Partitioner(SetPartitioner):
        def _allocate_transition(self, result: Any) -> None:
            with contextlib.suppress(ConnectionClosedError):  # these locks are over, and known to be
                super()._allocate_transition(result)

    return Partitioner


def node_name(text: str) -> str:
    """Any text as the name of one node in ZooKeeper."""
    return quote(text, safe="").replace(".", "%2E")


class _Changes:
    """Event of threads as kazoo takes one: told whenever the partitioner's state has changed."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self.set = changed


class PartitionLocks:
    """Blocking; every method but the properties and `close` is called on one thread. `changed` may be called on any."""

    def __init__(
        self,
        hosts: str,
        login: ZooKeeperLogin,
        base: str,
        member: str,
        *,
        session_timeout_s: float,
        settle_s: float,
        changed: Callable[[], None],
    ) -> None:
        self.base, self.member = base, member
        self._settle_s, self._changed = settle_s, changed
        self._partitions: frozenset[str] = frozenset()
        self._partitioner: Any = None
        self._lost = False
        self._client = make_client(hosts, login, session_timeout_s)
        self._client.add_listener(self._heard)
        self._epochs = FencingEpochs(self._client, base)

    def _heard(self, state: str) -> None:
        """Note a change of the session, from kazoo's threads. (To return something true would end the listening.)"""
        if state == "LOST":
            self._lost = True
        self._changed()

    # ---------------------------------------------------------------- how it is

    def begin(self) -> None:
        """Begin to connect."""
        self._client.start_async()

    @property
    def connected(self) -> bool:
        return bool(self._client.connected)

    @property
    def refused(self) -> bool:
        """True if the server does not take our login."""
        return str(self._client.client_state) == "AUTH_FAILED"

    @property
    def lost(self) -> bool:
        """True if the session has ended: what was ours may be anybody's."""
        return self._lost

    @property
    def over(self) -> bool:
        return self._lost or (self._partitioner is not None and bool(self._partitioner.failed))

    @property
    def must_release(self) -> bool:
        return self._partitioner is not None and bool(self._partitioner.release)

    @property
    def acquired(self) -> tuple[int, list[str]] | None:
        """The number of this allotment, and what we have by it; None while it is not decided."""
        partitioner = self._partitioner
        if partitioner is None:
            return None
        number = partitioner.state_id
        mine = list(partitioner) if partitioner.acquired else None
        return (number, mine) if mine is not None and partitioner.state_id == number else None

    # ---------------------------------------------------------------- taking part

    def join(self, partitions: Collection[str]) -> None:
        self._partitions = frozenset(partitions)
        self._partitioner = _partitioner()(
            self._client,
            self.base,
            set=self._partitions,
            partition_func=share,
            identifier=self.member,
            time_boundary=self._settle_s,
            max_reaction_time=LOCK_WAIT_S,
            state_change_event=_Changes(self._changed),
        )

    def members(self) -> list[str]:
        """Members that take part now, ourselves included unless somebody has removed us."""
        from kazoo.exceptions import NoNodeError

        try:
            return [name.partition("-")[2] for name in self._client.get_children(f"{self.base}/party")]
        except NoNodeError:  # somebody has removed everything
            return []

    def expected(self) -> list[str]:
        """Partitions that will probably be ours when the members have settled."""
        return share(self.member, {*self.members(), self.member}, self._partitions)

    def release(self) -> None:
        """Let the locks go, and take part in the next allotment."""
        self._partitioner.release_set()

    def close(self) -> None:
        """Our locks and our place go with the session. On any thread: another one may be waiting for a server."""
        end_client(self._client)

    # ---------------------------------------------------------------- epochs

    def lease(self, partition: str, held: int | None, floor: int, read: bool) -> int | None:
        """The epoch under which the partition is ours to read: see `FencingEpochs.lease`. Raises NotHeld."""
        return self._epochs.lease(partition, held, floor, read)
