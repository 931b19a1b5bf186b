"""A partition that another node leads, served from here.

Problem: a client that cannot follow a redirect is connected to any node; its links must work all the same. A gateway is
a `PartitionHandle` whose every operation is carried out by the leader, over `cluster.rpc`.

The rule never broken: an append is asked of one node, once. A batch that certainly was not appended comes back as
`not_leader`, and the link (`node/listener/incoming/append_queue.py`) submits it again, because only the link knows the
order of its batches. A batch that may have been appended comes back as `unknown`; only the producer may send it again.

Rejected: retrying here. One gateway serves many links over one stream; a retry that overtakes, or waits for, the
batches of another link would either break an order or couple links that have nothing to do with each other.
Rejected: reading from the nearest replica. A follower's end lags, and `@latest` would then mean an earlier moment than
the producer's acknowledgement.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from holdfast.records.record_batch import RecordBatch
from node.partition.api import (
    Answer,
    AppendDone,
    Begins,
    Failed,
    PartitionDescription,
    ProducerInfo,
    ProducerOpened,
    ProducerRequest,
    Question,
    Reader,
    ReaderClaim,
    ReadError,
    Start,
)

INFO_HOPS = 3
"""Nodes asked for one info: the believed leader, the one that it names, and once more after an election."""


Watch = Callable[[int, Callable[[int], None]], Callable[[], None]]


class GatewayPeer(Protocol):
    """The part of `cluster.rpc.PeerClient` that a gateway uses."""

    def append(self, group: int, batch: RecordBatch, done: AppendDone, begins: Begins | None = None) -> None: ...
    def open_reader(
        self,
        group: int,
        start: Start,
        wake: Callable[[], None],
        owner: ReaderClaim | None = None,
        *,
        uncommitted: bool = False,
    ) -> Reader: ...
    async def info(self, group: int) -> PartitionDescription: ...
    async def open_producer(self, group: int, wish: ProducerRequest) -> ProducerOpened | Failed: ...
    async def producers(self, group: int, after: int, limit: int) -> list[ProducerInfo]: ...
    async def ask(self, group: int, question: Question) -> Answer | Failed: ...


class PartitionUnreachable(ConnectionError):
    """Raised when no leader of the partition could be asked; nothing was done. Try again after an election (two
    seconds)."""


class RemotePartition:
    """Partition of another leader. Stateless: it looks the leader up at every operation, and so follows changes by
    itself. Implements `PartitionHandle`."""

    def __init__(
        self,
        partition: str,
        group: int,
        *,
        leader: Callable[[], int | None],
        peer: Callable[[int], GatewayPeer | None],
        watch: Watch | None = None,
    ) -> None:
        """`leader`: the group's leader as far as this node knows. `peer`: the client for a node, None if unknown.
        `watch`: hears of producers, if this node follows the group."""
        self.partition = partition
        self.group = group
        self._leader = leader
        self._peer = peer
        self._watch = watch

    def append(self, batch: RecordBatch, done: AppendDone, begins: Begins | None = None) -> None:
        node, peer = self._find()
        if peer is None:
            done(Failed("not_leader", True, self._nobody(), node))
        else:
            peer.append(self.group, batch, done, begins)

    async def open_producer(self, wish: ProducerRequest) -> ProducerOpened | Failed:
        node, peer = self._find()
        if peer is None:
            return Failed("not_leader", True, self._nobody(), node)
        return await peer.open_producer(self.group, wish)

    def watch_producer(self, producer_id: int, stolen: Callable[[int], None]) -> Callable[[], None]:
        """Watch a producer. A gateway that does not follow the group hears of a higher epoch when its producer sends
        next."""
        return _nothing if self._watch is None else self._watch(producer_id, stolen)

    async def producers(self, after: int, limit: int) -> list[ProducerInfo]:
        """List producers, by the leader's word. Raises PartitionUnreachable, or what the peer client raises."""
        _, peer = self._find()
        if peer is None:
            raise PartitionUnreachable(self._nobody())
        return await peer.producers(self.group, after, limit)

    async def ask(self, question: Question) -> Answer | Failed:
        node, peer = self._find()
        if peer is None:
            return Failed("not_leader", True, self._nobody(), node)
        return await peer.ask(self.group, question)

    def open_reader(
        self, start: Start, wake: Callable[[], None], owner: ReaderClaim | None = None, *, uncommitted: bool = False
    ) -> Reader:
        node, peer = self._find()
        if peer is None:
            return _NoReader(ReadError("not_leader", self._nobody(), True, node))
        return peer.open_reader(self.group, start, wake, owner, uncommitted=uncommitted)

    async def info(self) -> PartitionDescription:
        """Describe the partition, by the leader's word. Raises PartitionUnreachable, or what the peer client raises
        (both ConnectionErrors, or LookupError)."""
        node, peer = self._find()
        for _ in range(INFO_HOPS):
            if peer is None:
                break
            info = await peer.info(self.group)
            if info.leader == node:
                return info
            node = info.leader if info.leader is not None else self._leader()
            peer = self._peer(node) if node is not None else None
        raise PartitionUnreachable(self._nobody())

    def _find(self) -> tuple[int | None, GatewayPeer | None]:
        node = self._leader()
        return node, None if node is None else self._peer(node)

    def _nobody(self) -> str:
        return f"no reachable node leads partition {self.partition} (group {self.group}) now; try again"


def _nothing() -> None:
    """Do nothing: there is no watch to end."""


class _NoReader:
    """A reader that never began, and only says why."""

    position = 0
    resolved = False

    def __init__(self, error: ReadError) -> None:
        self.error: ReadError | None = error

    def poll(self, max_events: int, max_bytes: int, whole: bool = False) -> list[RecordBatch]:
        return []

    def close(self) -> None:
        return None
