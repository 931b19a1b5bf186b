"""Bandwidth of copies: how many bytes a second a node sends to replicas that are far behind, and takes in itself.

The rule: each direction has one budget, which all groups of the node share, for snapshots and for entries alike. A
receiver tells its senders how long they are to rest, since several may have something for it. Copies take turns, each
with one piece: one that got nothing for a minute would count as stalled. An entry costs what `ENTRY_COST_BYTES` do at
least: many small ones keep a node busy for longer than their bytes.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import inf

from cluster.raft.interfaces import GroupId, NodeId
from cluster.raft.options import RaftOptions

FLOOR_BYTES_PER_S = 4 << 20
"""A copy goes on so fast at least, however busy the node is: else it might never end."""

BURST_S = 0.05
"""Worth of bytes that may go at once: timers of a busy loop are not more exact."""

ENTRY_COST_BYTES = 8 << 10
"""Sender and receiver take 0.05 ms of a core for an entry of 1 KiB, which is what 8 KiB cost in large ones."""

PACED_APPEND_BYTES = 512 << 10
PACED_APPEND_ENTRIES = 64
"""Entries in one append to a replica that is far behind: what clients send goes in between. On a busy machine so many
take the receiver two milliseconds."""

LONGEST_REST_MS = 10_000
"""A sender is asked to rest for so long at most."""


TURN_S = 0.01
"""Time after which a copy asks again whether its turn has come."""

TURN_IS_LOST_S = 0.25
"""A copy that does not ask for so long after its time has lost its turn: it has ended, or its peer is away."""


class CopyBudget:
    """Bytes per second in one direction."""

    def __init__(self, bytes_per_s: int) -> None:
        self._most = bytes_per_s
        self.bytes_per_s = float(bytes_per_s)
        self.used_at = -inf
        self._free_at = 0.0
        self._rests: dict[NodeId, float] = {}
        self._waiting: dict[Hashable, float] = {}  # copies in the order of their turns, and when each asks again

    @property
    def most(self) -> int:
        """Bytes a second that are never exceeded."""
        return self._most

    @most.setter
    def most(self, bytes_per_s: int) -> None:
        self._most = bytes_per_s
        self.bytes_per_s = min(self.bytes_per_s, float(bytes_per_s))

    def charge(self, size: int, now: float, entries: int = 0) -> None:
        cost = max(size, entries * ENTRY_COST_BYTES)
        self._free_at = max(self._free_at, now) + cost / self.bytes_per_s
        self.used_at = now

    def opens_at(self, now: float, copy: Hashable, node: NodeId = 0) -> float | None:
        """Time at which a copy asks again, to a node that may have asked for a rest; None: a piece of it goes now."""
        at = max(now, self._free_from(copy), self._rests.get(node, 0.0))
        if at == now and not self._is_its_turn(copy, now):
            at += TURN_S
        if at > now:
            self._waiting[copy] = at
            return at
        self._waiting.pop(copy, None)
        return None

    def _free_from(self, copy: Hashable) -> float:
        return self._free_at - BURST_S

    def _is_its_turn(self, copy: Hashable, now: float) -> bool:
        for other, asks_at in list(self._waiting.items()):
            if other == copy:
                return True
            if asks_at + TURN_IS_LOST_S < now:
                del self._waiting[other]
            elif asks_at <= now:
                return False
        return True

    def rest_ms(self, now: float) -> int:
        """Time that a sender is to rest for the sake of this budget; 0: it need not."""
        return min(LONGEST_REST_MS, max(0, int(1000 * (self._free_at - BURST_S - now))))

    def rest(self, node: NodeId, until: float) -> None:
        """Send nothing to a node for a while, because it says so."""
        self._rests[node] = until

    def adapt(self, *, is_busy: bool) -> None:
        """Go slower while clients feel it, and faster else, within bounds. Called four times a second."""
        wanted = self.bytes_per_s * 0.7 if is_busy else self.bytes_per_s + FLOOR_BYTES_PER_S
        self.bytes_per_s = min(float(self._most), max(float(FLOOR_BYTES_PER_S), wanted))

    def begin_slowly(self) -> None:
        """Go as slowly as it may be: how much clients bear has yet to be seen."""
        self.bytes_per_s = min(float(self._most), float(FLOOR_BYTES_PER_S))


class FetchBudget(CopyBudget):
    """Budget of what comes in, with slots for the groups that fetch snapshots."""

    def __init__(self, options: RaftOptions) -> None:
        super().__init__(options.fetch_bytes_per_s)
        self._slots = options.fetch_groups
        self._active: set[GroupId] = set()

    def _free_from(self, copy: Hashable) -> float:
        """Time that this copy was told. What other nodes have sent since does not put it off: they rest for that, and
        with two of them something comes all the time."""
        return min(super()._free_from(copy), self._waiting.get(copy, inf))

    def enter(self, group: GroupId) -> bool:
        if group not in self._active and len(self._active) >= self._slots:
            return False
        self._active.add(group)
        return True

    def leave(self, group: GroupId) -> None:
        self._active.discard(group)


class CopyBudgets:
    """Budgets of a node, one for each direction."""

    def __init__(self, options: RaftOptions) -> None:
        self.out = CopyBudget(options.fetch_bytes_per_s)
        self.into = FetchBudget(options)

    def limit(self, bytes_per_s: int) -> None:
        """Set the limit of each direction."""
        self.out.most = self.into.most = bytes_per_s

    def adapt(self, *, is_busy: bool) -> None:
        for one in (self.out, self.into):
            one.adapt(is_busy=is_busy)

    def begin_slowly(self) -> None:
        for one in (self.out, self.into):
            one.begin_slowly()
