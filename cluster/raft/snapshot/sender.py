"""Snapshots that a leader hands out, piece by piece, to replicas that are behind its log.

The problem: a snapshot is a moment in a state that goes on changing, and may be gigabytes. The rules: the checkpoint is
taken once, when the requester begins, and kept in memory until it is done; entries are immutable and are read from the
log as they are asked for; rows of the state machine are read as they are *now*, which a machine bears (a crash leaves
rows ahead of its checkpoint too). While a requester goes on asking, nothing that it still needs is trimmed; when it is
silent for `fetch_lease_s` the leader owes it nothing any more. Every piece is bounded and carries a checksum, and every
request says all there is to know: nothing is remembered of the last one but the snapshot's name.

Rejected: pushing. The leader would have to guess how fast the other side can take it, and to notice when it cannot.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from cluster.raft.interfaces import Disk, NodeId, StateMachine
from cluster.raft.log.log_store import LogStore
from cluster.raft.membership.configuration import FOUNDING_VERSION
from cluster.raft.membership.configuration_codec import to_record
from cluster.raft.options import RaftOptions
from cluster.raft.raft_pb2 import FetchBody, FetchReply, FetchRequest
from cluster.raft.snapshot.bandwidth import PACED_APPEND_ENTRIES

MAX_PIECE_BYTES = 8 << 20
"""Whatever a requester asks for; a single entry may be larger."""


@dataclass(slots=True)
class _Snapshot:
    snapshot: int
    index: int
    base: tuple[int, int]
    state: bytes
    pinned: int  # entries up to here are not needed by the requester any more
    asked_at: float


class SnapshotSender:
    def __init__(
        self, disk: Disk, log_store: LogStore, machine: StateMachine, options: RaftOptions, randomness: random.Random
    ) -> None:
        self._disk = disk
        self._log_store = log_store
        self._machine = machine
        self._options = options
        self._random = randomness
        self._snapshots: dict[NodeId, _Snapshot] = {}

    def end(self) -> None:
        """Drop all snapshots, because this node leads no more."""
        self._snapshots.clear()

    def forget(self, node: NodeId) -> None:
        """Drop the snapshot of a member that left, or began another life."""
        self._snapshots.pop(node, None)

    def joined(self, node: NodeId, match_index: int) -> None:
        """Drop a member's snapshot, which it has; it takes the rest from the log."""
        snapshot = self._snapshots.get(node)
        if snapshot is not None and match_index >= snapshot.index:
            del self._snapshots[node]

    def pinned_index(self, now: float) -> int | None:
        """Index up to which entries may go; None: nobody fetches."""
        for node, snapshot in list(self._snapshots.items()):
            if now - snapshot.asked_at > self._options.fetch_lease_s:
                del self._snapshots[node]
        return min((snapshot.pinned for snapshot in self._snapshots.values()), default=None)

    def progress(self, node: NodeId) -> dict[str, int] | None:
        """Progress of a node that fetches a snapshot, for people; None: it fetches none."""
        snapshot = self._snapshots.get(node)
        if snapshot is None:
            return None
        return {"first": snapshot.base[0] + 1, "next": snapshot.pinned + 1, "last": snapshot.index}

    # ---- serving

    def serve(self, node: NodeId, request: FetchRequest, applied_index: int, now: float) -> FetchReply:
        body = self._body(node, request, applied_index, now).SerializeToString()
        return FetchReply(
            group=request.group,
            version=request.version,
            number=request.number,
            checksum=zlib.crc32(body),
            body=body,
            active=self._log_store.version,
        )

    @staticmethod
    def refuse(request: FetchRequest, why: str) -> FetchReply:
        body = FetchBody(refusal=why).SerializeToString()
        return FetchReply(
            group=request.group,
            version=request.version,
            number=request.number,
            checksum=zlib.crc32(body),
            body=body,
        )

    @staticmethod
    def put_off(request: FetchRequest, rest_ms: int) -> FetchReply:
        """Ask the requester to come again a little later."""
        return FetchReply(group=request.group, version=request.version, number=request.number, rest_ms=rest_ms)

    def _body(self, node: NodeId, request: FetchRequest, applied_index: int, now: float) -> FetchBody:
        wanted = request.WhichOneof("wanted")
        if request.snapshot == 0:
            return self._begin(node, request.entries_from, applied_index, now)
        snapshot = self._snapshots.get(node)
        if snapshot is None or snapshot.snapshot != request.snapshot:
            return FetchBody(refusal="the snapshot is gone: begin anew")
        snapshot.asked_at = now
        limit = max(1, min(request.max_bytes, MAX_PIECE_BYTES))
        if wanted == "entries_from":
            return self._entries(snapshot, request.entries_from, limit)
        if wanted == "rows_after":
            return self._rows(request.rows_after, limit)
        return self._state(snapshot, request.state_from, limit)

    def _begin(self, node: NodeId, have_from: int, applied_index: int, now: float) -> FetchBody:
        """Begin a snapshot for a node. `have_from`: the requester staged what comes before it, and can go on if that
        joins what is left here."""
        log_store = self._log_store
        base = (log_store.base_index, log_store.base_term)
        goes_on = base[0] < have_from <= applied_index
        snapshot = _Snapshot(
            snapshot=self._random.getrandbits(63) + 1,
            index=applied_index,
            base=base,
            state=self._machine.checkpoint(self._log_store.version),
            pinned=have_from - 1 if goes_on else base[0],
            asked_at=now,
        )
        self._snapshots[node] = snapshot
        body = FetchBody()
        manifest = body.manifest
        manifest.snapshot, manifest.index = snapshot.snapshot, snapshot.index
        manifest.base_index, manifest.base_term = base
        manifest.state_bytes = len(snapshot.state)
        configuration = log_store.configurations.as_of(applied_index)
        if configuration is not None and configuration.version > FOUNDING_VERSION:
            manifest.configuration.CopyFrom(to_record(configuration))
        return body

    def _entries(self, snapshot: _Snapshot, start: int, limit: int) -> FetchBody:
        if start <= self._log_store.base_index:
            return FetchBody(refusal=f"entry {start} was trimmed: begin anew")
        count = snapshot.index - start + 1
        body = FetchBody(last=count <= 0)
        if count > 0:
            entries, terms = self._log_store.take(start, min(count, PACED_APPEND_ENTRIES), limit)
            body.entries.extend(entries)
            body.entry_terms.extend(terms)
            body.last = start + len(entries) > snapshot.index
        snapshot.pinned = max(snapshot.pinned, min(start - 1, snapshot.index))
        return body

    def _rows(self, after: bytes, limit: int) -> FetchBody:
        body, size = FetchBody(), 0
        for start, end in row_ranges(self._machine):
            for key, value in self._disk.scan(max(start, after + b"\0"), end) if after < end else ():
                body.row_keys.append(key)
                body.row_values.append(value)
                size += len(key) + len(value)
                if size >= limit:
                    return body
        body.last = True
        return body

    @staticmethod
    def _state(snapshot: _Snapshot, start: int, limit: int) -> FetchBody:
        end = min(len(snapshot.state), start + limit)
        return FetchBody(state=snapshot.state[start:end], last=end == len(snapshot.state))


def row_ranges(machine: StateMachine) -> list[tuple[bytes, bytes]]:
    """Sorted. A machine without rows of its own need not say so."""
    ranges: Callable[[], list[tuple[bytes, bytes]]] | None = getattr(machine, "rows", None)
    return sorted(ranges()) if ranges is not None else []
