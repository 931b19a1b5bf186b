"""Progress of one follower, as its leader knows it: which appends are in flight, and which answers still count.

The problem: pysyncobj's replies carry no reference to what they answer. A rejection that was overtaken by a
success, or the second of several rejections of one batch of appends, sends the leader back and makes it
repeat everything in flight; a late one from an old connection does so at any time (A1 in docs/internals/pysyncobj.md,
A2). The rules: a rejection counts only if it answers an append sent after the last accepted rejection and after the
newest accepted success; a success never moves `next` back below what was already sent optimistically.

Rejected: one append in flight per follower. At 1 ms round trip that halves the throughput of a partition.
"""

from __future__ import annotations

import logging
from collections import deque
from math import inf

from cluster.raft.options import RaftOptions

log = logging.getLogger(__name__)


class Progress:
    __slots__ = (
        "_floor", "_in_flight", "_options", "_valid_from", "_warned", "acknowledged", "behind", "commit_told",
        "grown_from", "in_flight_bytes", "is_far", "is_suspected", "probing", "slow_at", "tried_base",
    )  # fmt: skip

    def __init__(self, options: RaftOptions, sequence: int) -> None:
        self._options = options
        self._in_flight: deque[tuple[int, int, float]] = deque()  # sequence, bytes, when it was sent
        self._floor = sequence
        self._valid_from = 0
        self.in_flight_bytes = 0
        self.commit_told = 0
        self.slow_at = -inf  # when it last took too long to store something
        self.probing = False
        self.behind = False  # needs entries that are gone here: a snapshot, which it fetches itself
        self.tried_base = False  # the logs do not agree where ours begins
        self.is_far = False  # it lacks so much that it is copied
        self.grown_from = 0  # last entry when its copy began; more, by what it was sent of the entries since
        self.acknowledged = 0  # the last entry that it said it has, in this term
        self.is_suspected = False  # it asks for what it had acknowledged: to be told so before anything else
        self._warned = False

    def warn_once(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            log.warning("%s", text)

    def has_room(self) -> bool:
        """True if another append with entries may be sent. While probing (after a rejection) one at a time."""
        if not self._in_flight:
            return True
        if self.probing:
            return False
        return (
            self.in_flight_bytes < self._options.window_bytes and len(self._in_flight) < self._options.window_messages
        )

    def looked_at(self, last: int, *, is_far: bool) -> None:
        """Note whether the follower is far from the end of the log. A copy begins when it falls behind, not before."""
        if is_far and not self.is_far:
            self.grown_from = last
        self.is_far = is_far

    def is_slow(self, now: float) -> bool:
        """True if the follower takes too long to store its appends, or did so lately."""
        if self._in_flight and now - self._in_flight[0][2] > self._options.slow_answer_s:
            return True
        return now - self.slow_at < self._options.slow_remembered_s

    def sent(self, sequence: int, size: int, now: float) -> None:
        self._in_flight.append((sequence, size, now))
        self.in_flight_bytes += size

    def is_of_an_earlier_life(self, sequence: int) -> bool:
        """True if the member lost its memory after it gave this answer."""
        return sequence < self._valid_from

    def suspect(self, next_sequence: int) -> None:
        """Doubt a follower that asks for what it had acknowledged. Its answers count again from `next_sequence` on."""
        self.is_suspected = True
        self._valid_from = next_sequence

    def begin_new_life(self, next_sequence: int) -> None:
        self._valid_from = next_sequence
        self.acknowledged, self.is_suspected = 0, False
        self.behind = self.tried_base = False
        self.restart(next_sequence)

    def accepts_success(self, sequence: int, now: float) -> None:
        """Take a success: everything sent up to `sequence` was answered or lost: links are FIFO."""
        while self._in_flight and self._in_flight[0][0] <= sequence:
            _, size, sent_at = self._in_flight.popleft()
            self.in_flight_bytes -= size
            if now - sent_at > self._options.slow_answer_s:
                self.slow_at = now
        self._floor = max(self._floor, sequence)
        self.probing = False

    def accepts_reset(self, sequence: int, next_sequence: int) -> bool:
        """True if this rejection is news: then nothing is in flight any more and older answers are void."""
        if sequence < self._floor:
            return False
        self.restart(next_sequence)
        return True

    def restart(self, next_sequence: int) -> None:
        """Forget what was under way; answers to it no longer count as rejections."""
        self._in_flight.clear()
        self.in_flight_bytes = 0
        self._floor = next_sequence
        self.probing = True
