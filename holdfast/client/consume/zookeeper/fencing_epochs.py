"""Fencing epochs that ZooKeeper gives out: each proves that its holder has a partition's lock.

Rules never broken:
 - an epoch is given out by one transaction of ZooKeeper that fails unless the partition's lock stands, is the first in
   line and belongs to this session; so later owners of a partition have greater epochs, in the order of the locks;
 - an epoch is never smaller than what the cluster has in force (`floor`): a ZooKeeper that lost its data, or an
   operator's own claim, sets nobody back;
 - a holder of the lock goes on under its epoch while the counter still says it: nobody else can have been given one in
   between.
Rejected as epochs: the czxid of a lock's node (monotonic too, until ZooKeeper loses its data or somebody claims with a
greater one by hand; then nothing raises it); a node's version (32 bits, it wraps); the wall clock.

    BASE/epochs/PARTITION      {"format": 1, "epoch": 7}: the last one given out
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from holdfast.client.errors import HoldfastError, ProtocolError

FORMAT = 1

MAX_EPOCH = (1 << 63) - 1  # of AMQP's long

GIVE_OUT_TRIES = 8
"""The counter changes under us only while two believe to have the lock, which the lock's node ends at once."""


class NotHeld(HoldfastError):
    """The lock is not ours, whatever the partitioner said. Never seen by users."""


class FencingEpochs:
    """Epochs of the locks below `base`, for the session of one ZooKeeper client; blocking."""

    def __init__(self, client: Any, base: str) -> None:
        self._client, self._base = client, base

    def lease(self, partition: str, held: int | None, floor: int, read: bool) -> int | None:
        """The epoch under which the partition is ours to read: `held` if nobody was given one since, else a new one,
        above all that were given out and above `floor`, the one that the cluster has in force. None: somebody reads it
        (`read`) under an epoch that was not given out here, claimed by hand. Raises NotHeld."""
        from kazoo.exceptions import NodeExistsError, NoNodeError

        counter = f"{self._base}/epochs/{partition}"
        self._client.ensure_path(f"{self._base}/epochs")
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

        path = f"{self._base}/locks/{partition}"
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
