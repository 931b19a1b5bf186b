"""Reads that a leader may answer: confirmed by a majority that it still leads (ReadIndex).

The problem: a leader that was deposed does not know it yet, and what it would answer may be older than what a client
was told elsewhere (A16 in docs/internals/pysyncobj.md). The rules: a read counts from an index that was committed when
it came, by a leader whose own term has committed something; a majority then answers, in the same term, an append that
was sent after the read came; and the index must be applied. A member that has lost its memory confirms nothing: it may
have forgotten that it elected somebody else.

All reads that wait when a tick sends are one round, so a thousand reads cost one heartbeat. No timer: a leader that
cannot be confirmed loses its leadership by the quorum check, and its reads with it.

Rejected: leases. They need bounded clocks, and a paused process has none.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from cluster.raft.interfaces import NodeId
from cluster.raft.membership.membership import Membership
from cluster.raft.membership.quorum import Quorum

log = logging.getLogger(__name__)

ReadDone = Callable[[int | None], None]
"""Given the index up to which everything is applied here and may be read; None: leadership was lost, ask elsewhere."""


@dataclass(slots=True)
class _Round:
    sequence: int
    index: int
    dones: list[ReadDone]
    quorum: Quorum  # of the configuration with which the round began: a newer leader would have needed one of it, too
    confirmed_by: set[NodeId]


class ReadIndex:
    def __init__(self, name: str, membership: Membership) -> None:
        self._name = name
        self._membership = membership
        self._waiting: list[ReadDone] = []
        self._rounds: deque[_Round] = deque()
        self._confirmed: deque[tuple[int, list[ReadDone]]] = deque()
        self._later: list[tuple[int, ReadDone]] = []  # for what another node confirmed

    @property
    def is_waiting(self) -> bool:
        """True if some read is not part of a round yet."""
        return bool(self._waiting)

    def __len__(self) -> int:
        rounds = sum(len(one.dones) for one in self._rounds) + sum(len(dones) for _, dones in self._confirmed)
        return len(self._waiting) + rounds

    def add(self, done: ReadDone) -> None:
        self._waiting.append(done)

    def add_applied(self, index: int, done: ReadDone) -> None:
        """Call `done` once `index` is applied here, whichever member leads."""
        self._later.append((index, done))

    def begin_round(self, sequence: int, commit_index: int) -> None:
        """Begin a round: appends from `sequence` on are sent now, to everybody."""
        dones, self._waiting = self._waiting, []
        membership = self._membership
        self._rounds.append(_Round(sequence, commit_index, dones, membership.quorum, {membership.node}))
        self._confirm()

    def answered(self, node: NodeId, sequence: int) -> None:
        """Count an answer of a member with a memory to an append of the own term."""
        for one in self._rounds:
            if one.sequence > sequence:
                break
            one.confirmed_by.add(node)
        self._confirm()

    def _confirm(self) -> None:
        while self._rounds and self._rounds[0].quorum.is_reached(self._rounds[0].confirmed_by):
            one = self._rounds.popleft()
            self._confirmed.append((one.index, one.dones))

    def applied(self, index: int) -> None:
        while self._confirmed and self._confirmed[0][0] <= index:
            self._answer(self._confirmed.popleft()[1], index)
        if self._later:
            due = [done for at, done in self._later if at <= index]
            self._later = [(at, done) for at, done in self._later if at > index]
            self._answer(due, index)

    def close(self) -> None:
        dones, self._later = [done for _, done in self._later], []
        self.lost()
        self._answer(dones, None)

    def lost(self) -> None:
        """Answer all reads, because leadership is lost."""
        dones = [done for _, confirmed in self._confirmed for done in confirmed]
        dones += [done for one in self._rounds for done in one.dones]
        dones += self._waiting
        self._confirmed.clear()
        self._rounds.clear()
        self._waiting = []
        self._answer(dones, None)

    def _answer(self, dones: list[ReadDone], index: int | None) -> None:
        for done in dones:
            try:
                done(index)
            except Exception:  # one reader's defect must not cost the others their answers
                log.exception("%s: the callback of a read failed", self._name)
