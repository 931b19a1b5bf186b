"""A member's locks in ZooKeeper: which partitions are its to read, and the epoch that proves it.

Problem: kazoo's `SetPartitioner` divides a set among sessions, but a program that acts on its word alone may act when
the session is over; and its word may be wrong: a lock whose acquisition timed out while the connection was away counts
as acquired there.
Rules never broken:
 - an epoch is given out by one transaction of ZooKeeper that fails unless the partition's lock stands, is the first in
   line and belongs to this session; so later owners of a partition have greater epochs, in the order of the locks;
 - an epoch is never smaller than what the cluster has in force (`floor`): a ZooKeeper that lost its data, or an
   operator's own claim, sets nobody back;
 - a holder of the lock goes on under its epoch while the counter still says it: nobody else can have been given one in
   between;
 - a set of locks is for one session and one set of partitions; what has ended is closed with its session, never mended.
   So no lock is left behind by a thread of kazoo's that was late.
Rejected as epochs: the czxid of a lock's node (monotonic too, until ZooKeeper loses its data or somebody claims with a
greater one by hand; then nothing raises it); a node's version (32 bits, it wraps); the wall clock.

    BASE/party/...             ephemeral: who takes part (kazoo's)
    BASE/locks/PARTITION/...   ephemeral: whose it is, the first in line (kazoo's)
    BASE/epochs/PARTITION      {"format": 1, "epoch": 7}: the last one given out
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any
from urllib.parse import quote

from holdfast.client.errors import HoldfastError, ProtocolError
from holdfast.client.transport.zookeeper.zookeeper_client import ZooKeeperLogin, end_client, make_client

FORMAT = 1

MAX_EPOCH = (1 << 63) - 1  # of AMQP's long

LOCK_WAIT_S = 0.5
"""kazoo looks so often whether the members have changed while it waits for a lock: a change is acted on as soon."""

GIVE_OUT_TRIES = 8
"""The counter changes under us only while two believe to have the lock, which the lock's node ends at once."""


class NotHeld(HoldfastError):
    """The lock is not ours, whatever the partitioner said. Never seen by users."""


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
        """The epoch under which the partition is ours to read: `held` if nobody was given one since, else a new one,
        above all that were given out and above `floor`, the one that the cluster has in force. None: somebody reads it
        (`read`) under an epoch that was not given out here, claimed by hand. Raises NotHeld."""
        from kazoo.exceptions import NodeExistsError, NoNodeError

        counter = f"{self.base}/epochs/{partition}"
        self._client.ensure_path(f"{self.base}/epochs")
        for _ in range(GIVE_OUT_TRIES):
            lock, version = self._own_lock(partition)
            try:
                data, stat = self._client.get(counter)
            except NoNodeError:
                with contextlib.suppress(NodeExistsError):
                    self._client.create(counter, _encode(0))
                continue
            last = _decode(data, counter)
            if read and floor > max(last, held or 0):
                return None
            if held is not None and held == last and held >= floor:
                return held
            epoch = max(last, floor) + 1
            if epoch > MAX_EPOCH:
                raise ProtocolError(
                    f"{counter} has given out the last epoch there is", advice="use another group, or another path"
                )
            transaction = self._client.transaction()
            transaction.check(lock, version)
            transaction.set_data(counter, _encode(epoch), version=stat.version)
            if _all_done(transaction.commit()):
                return epoch
        raise NotHeld(f"the lock of partition {partition} does not stay ours")

    def _own_lock(self, partition: str) -> tuple[str, int]:
        """The lock's node that is first in line, if it belongs to this session."""
        from kazoo.exceptions import NoNodeError

        path = f"{self.base}/locks/{partition}"
        try:
            first = min(self._client.get_children(path), key=lambda child: child[-10:], default=None)
            if first is not None:
                stat = self._client.exists(f"{path}/{first}")
                session = self._client.client_id
                if stat is not None and session is not None and stat.ephemeralOwner == session[0]:
                    return f"{path}/{first}", int(stat.version)
        except NoNodeError:
            pass
        raise NotHeld(f"the lock {path} is not ours")


def _all_done(results: list[Any]) -> bool:
    """True if all of a transaction was done. False: what it is about has changed meanwhile."""
    from kazoo.exceptions import BadVersionError, NoNodeError, RolledBackError, RuntimeInconsistency

    failures = [one for one in results if isinstance(one, Exception)]
    for one in failures:  # the operations around the one that failed say only that they were not done
        if not isinstance(one, BadVersionError | NoNodeError | RolledBackError | RuntimeInconsistency):
            raise one
    return not failures


def _encode(epoch: int) -> bytes:
    return json.dumps({"format": FORMAT, "epoch": epoch}).encode()


def _decode(data: bytes, path: str) -> int:
    try:
        content: Mapping[str, Any] = json.loads(data)
        if content["format"] == FORMAT and isinstance(content["epoch"], int):
            return content["epoch"]
    except (ValueError, KeyError, TypeError):
        pass
    raise ProtocolError(
        f"{path} in ZooKeeper holds {data[:60]!r}, and not an epoch of this version",
        advice="give the group a path of its own, or delete that node while nobody reads",
    )
