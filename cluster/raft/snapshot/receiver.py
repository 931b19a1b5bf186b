"""A replica that is behind its leader's log, on its way back: it fetches a snapshot, and makes it its own in one batch.

The problem: what it lacks is trimmed everywhere, and what is left may be gigabytes, while the group goes on. The rules:
one request is under way at a time, and the next leaves when the node's share of bytes per second allows; a piece that
does not match its checksum, or does not fit what is here, is refused and asked for again; entries are staged as they
come and are not asked for twice, whichever member leads meanwhile; the log, the state and the commit index change
together, in one batch, or not at all; and nothing is ever taken back that is committed here.

    idle -> begin -> entries -> rows -> state -> ready -> idle

The request and the reply are values; the owner of the node carries them (`MultiRaft.on_fetch`,
`MultiRaft.serve_fetch`, `MultiRaft.deliver_fetched`), over a path of its own.

Rejected: going on with rows and state under another snapshot. They are of one moment; they are small beside the
entries, and are received again.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable
from math import inf
from typing import Any

from google.protobuf.message import DecodeError

from cluster.raft.interfaces import DiskBatch, GroupId, NodeId, StateMachine
from cluster.raft.log.log_store import LogStore
from cluster.raft.membership.configuration import Configuration, fault
from cluster.raft.membership.configuration_codec import from_record
from cluster.raft.options import RaftOptions
from cluster.raft.raft_pb2 import FetchBody, FetchReply, FetchRequest, Manifest
from cluster.raft.replication.message_validation import RAFT, term_fault
from cluster.raft.snapshot.bandwidth import LONGEST_REST_MS, FetchBudget
from cluster.raft.snapshot.sender import row_ranges
from cluster.raft.snapshot.staging import Staging

log = logging.getLogger(__name__)

IDLE, BEGIN, ENTRIES, ROWS, STATE, READY = "idle", "begin", "entries", "rows", "state", "ready"

MIN_PIECE_BYTES = 16 * 1024
"""Least size of a piece, however slow the path: it passes within `fetch_timeout_s` on any that is worth the name."""

REFUSALS_IN_A_ROW = 3
"""Refused pieces that are asked for again at once; then the path is given a moment."""


class SnapshotReceiver:
    def __init__(
        self,
        group: GroupId,
        name: str,
        log_store: LogStore,
        machine: StateMachine,
        staging: Staging,
        options: RaftOptions,
        budget: FetchBudget,
        batch: Callable[[], DiskBatch],
        first_number: int,
    ) -> None:
        """`first_number`: at random, so that answers to an earlier process are not taken for ours."""
        self._group = group
        self._name = name
        self._log_store = log_store
        self._machine = machine
        self._staging = staging
        self._options = options
        self._budget = budget
        self._batch = batch
        self._phase = IDLE
        self._leader: NodeId = 0
        self._number = first_number
        self._asked = False
        self._refused_in_a_row = 0
        self._piece_bytes = options.fetch_bytes
        self._rows_after = b""
        self._ranges: list[tuple[bytes, bytes]] = []
        self.manifest = Manifest()
        self.state = bytearray()
        self.next_at = inf
        self.received_bytes = 0
        self.refused_pieces = 0
        self._takes: dict[str, Callable[[FetchBody], bool]] = {
            BEGIN: self._take_manifest,
            ENTRIES: self._take_entries,
            ROWS: self._take_rows,
            STATE: self._take_state,
        }

    @property
    def is_ready(self) -> bool:
        return self._phase == READY

    def progress(self) -> dict[str, Any] | None:
        """Progress of the snapshot that is being fetched, for people; None: there is none."""
        if self._phase == IDLE:
            return None
        return {
            "phase": self._phase,
            "from": self._leader,
            "first": self._staging.base[0] + 1 if self._staging.next_index else 0,
            "next": self._staging.next_index,
            "last": self.manifest.index,
            "received_bytes": self.received_bytes,
            "refused_pieces": self.refused_pieces,
        }

    # ---- what `step` sees

    def wanted(self, leader: NodeId, now: float) -> None:
        """The leader no longer has what comes after our commit index."""
        if self._phase == IDLE:
            log.warning("%s: needs entries that are trimmed: fetches a snapshot from node %d", self._name, leader)
            self.received_bytes = self.refused_pieces = 0
            self._begin(leader, now)
        elif leader != self._leader:
            self._begin(leader, now)

    def matched(self) -> None:
        """Stop fetching, because the leader's log joins ours: ordinary replication goes on."""
        if self._phase != IDLE:
            self.stop()

    def stop(self) -> None:
        self._staging.drop()
        self._end()

    def release_slot(self) -> None:
        """Give the slot back when the group is closed; what is staged stays."""
        self._budget.leave(self._group)

    def _begin(self, leader: NodeId, now: float) -> None:
        self._phase, self._leader = BEGIN, leader
        self._asked = False
        self._refused_in_a_row = 0
        self.next_at = now

    def _end(self) -> None:
        self._phase, self.next_at, self._asked = IDLE, inf, False
        self.manifest, self.state = Manifest(), bytearray()
        self._budget.leave(self._group)

    # ---- asking

    def due(self, now: float) -> tuple[NodeId, FetchRequest] | None:
        """The next request, and the node to ask; the same again when an answer is overdue."""
        if now < self.next_at or self._phase in (IDLE, READY):
            return None
        if not self._budget.enter(self._group):
            self.next_at = now + self._options.fetch_retry_s
            return None
        if not self._asked and (opens_at := self._budget.opens_at(now, self._group)) is not None:
            self.next_at = opens_at
            return None
        if self._asked:
            self._piece_bytes = min(self._piece_bytes, max(MIN_PIECE_BYTES, self._piece_bytes // 2))
        self._number += 1
        self._asked = True
        self.next_at = now + self._options.fetch_timeout_s
        request = FetchRequest(
            group=self._group, version=self._log_store.birth, number=self._number, max_bytes=self._piece_bytes
        )
        if self._phase != BEGIN:
            request.snapshot = self.manifest.snapshot
        if self._phase == ROWS:
            request.rows_after = self._rows_after
        elif self._phase == STATE:
            request.state_from = len(self.state)
        else:
            request.entries_from = self._staging.next_index
        return self._leader, request

    # ---- taking

    def receive(self, sender: NodeId, reply: FetchReply, now: float) -> None:
        takes = self._takes.get(self._phase)
        is_answer = self._asked and sender == self._leader and reply.number == self._number
        if takes is None or not is_answer or reply.version != self._log_store.birth:
            return
        self._asked = False
        if reply.rest_ms:
            self.next_at = now + min(reply.rest_ms, LONGEST_REST_MS) / 1000
            return
        self._budget.charge(len(reply.body), now)
        self.received_bytes += len(reply.body)
        if reply.active > self._log_store.version:
            log.info("%s: node %d has version %d, of which nothing is taken before it is active here", self._name,
                     self._leader, reply.active)  # fmt: skip
            self._begin_later(now)
            return
        body = _verified(reply)
        if body is not None and body.refusal:
            log.info("%s: node %d gives no snapshot: %s", self._name, sender, body.refusal)
            self._begin_later(now)
        elif body is None or not self._can_be(body) or not takes(body):
            self._refuse(now)
        else:
            self._refused_in_a_row = 0
            self._piece_bytes = min(self._options.fetch_bytes, 2 * self._piece_bytes)
            self.next_at = inf if self._phase in (IDLE, READY) else now

    def _begin_later(self, now: float) -> None:
        """Let other groups fetch meanwhile: a replica that is no member any more is refused until the metadata, which
        may have to be fetched themselves, say so."""
        self._budget.leave(self._group)
        self._begin(self._leader, now + self._options.fetch_retry_s)

    def _can_be(self, body: FetchBody) -> bool:
        terms = [body.manifest.base_term, *body.entry_terms]
        return RAFT.fault(body) is None and term_fault(max(terms), self._log_store.term) is None

    def _refuse(self, now: float) -> None:
        self.refused_pieces += 1
        self._refused_in_a_row += 1
        log.warning(
            "%s: a piece of the snapshot (%s) from node %d is damaged; it is asked for again",
            self._name, self._phase, self._leader,
        )  # fmt: skip
        patient = self._refused_in_a_row > REFUSALS_IN_A_ROW
        self.next_at = now + self._options.fetch_retry_s if patient else now

    def _take_manifest(self, body: FetchBody) -> bool:
        manifest, staging = body.manifest, self._staging
        if not body.HasField("manifest") or not 0 < manifest.base_index <= manifest.index:
            return False
        if manifest.HasField("configuration") and fault(from_record(manifest.configuration)) is not None:
            return False
        if manifest.index <= self._log_store.commit:
            self.stop()  # the log has come as far by itself
            return True
        self.manifest = manifest
        joins = manifest.base_index < staging.next_index and staging.base[0] <= manifest.index
        if not joins:  # a new leader may have applied less than the one before it had trimmed
            staging.begin(manifest.base_index, manifest.base_term)
        self.state = bytearray()
        self._rows_after = b""
        self._ranges = row_ranges(self._machine)
        self._phase = ENTRIES if staging.last_index < manifest.index else ROWS
        return True

    def _take_entries(self, body: FetchBody) -> bool:
        terms, staging = list(body.entry_terms), self._staging
        in_order = terms == sorted(terms) and (not terms or terms[0] >= staging.last_term)
        ends = staging.last_index + len(terms) >= self.manifest.index
        if len(body.entries) != len(terms) or not in_order or ends != body.last or not (terms or body.last):
            return False
        if terms:
            staging.add(body.entries, terms)
        if body.last:
            self._phase = ROWS
        return True

    def _take_rows(self, body: FetchBody) -> bool:
        keys = list(body.row_keys)
        known = all(any(start <= key < end for start, end in self._ranges) for key in keys)
        rising = keys == sorted(keys) and (not keys or keys[0] > self._rows_after)
        if len(keys) != len(body.row_values) or not known or not rising or not (keys or body.last):
            return False
        batch = self._batch()
        for key, value in zip(keys, body.row_values, strict=True):
            batch.put(key, value)
        if keys:
            self._rows_after = keys[-1]
        if body.last:
            self._phase = STATE
        return True

    def _take_state(self, body: FetchBody) -> bool:
        size = len(self.state) + len(body.state)
        if size > self.manifest.state_bytes or (size == self.manifest.state_bytes) != body.last:
            return False
        if not body.state and not body.last:
            return False
        self.state += body.state
        if body.last:
            self._phase = READY
            self.next_at = inf
        return True

    def manifest_configuration(self) -> Configuration | None:
        """The configuration that the snapshot carries; None: its group never changed its members."""
        manifest = self.manifest
        return from_record(manifest.configuration) if manifest.HasField("configuration") else None

    def installed(self) -> None:
        self._staging.forget()
        self._end()


def _verified(reply: FetchReply) -> FetchBody | None:
    if zlib.crc32(reply.body) != reply.checksum:
        return None
    try:
        return FetchBody.FromString(reply.body)
    except DecodeError:
        return None
