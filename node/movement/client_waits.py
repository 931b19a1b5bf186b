"""Waits of clients for what they publish here: samples, taken from outside of what publishing costs.

The rule: now and then one of the partitions that this node leads, and that has something under way, is looked at: the
time from then until that is applied is a sample. An event that came at that moment would have waited about as long.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice

from cluster.raft import RaftGroup

LOOKED_AT = 64
"""Partitions looked at for a sample: a node may lead thousands, of which a few have something under way."""

RECENT_S = 0.5
"""Age up to which a sample says how long clients wait now."""

CALM_SAMPLES = 64
"""Newest samples of a time without copies, by which the others are judged ..."""
FEWEST_SAMPLES = 4
"""... if there are so many."""

SHARE = 0.9
"""Share of the waits that are no longer than what is told of them."""


class ClientWaits:
    def __init__(self, groups: Mapping[int, RaftGroup], clock: Callable[[], float]) -> None:
        self._groups = groups
        self._clock = clock
        self._next = 0
        self._recent: deque[tuple[float, float]] = deque(maxlen=1024)
        self._calm: deque[float] = deque(maxlen=CALM_SAMPLES)

    def sample(self, *, is_calm: bool) -> None:
        """Take a sample, if something is under way here. `is_calm`: nothing is copied."""
        count = len(self._groups)
        if self._next >= count:
            self._next = 0
        looked_at = list(islice(self._groups.values(), self._next, self._next + min(LOOKED_AT, count)))
        for group in looked_at:
            self._next += 1
            if group.is_leader and group.last_index > group.commit_index:
                began = self._clock()
                group.when_applied(group.last_index, partial(self._applied, group, group.term, began, is_calm))
                return

    def _applied(self, group: RaftGroup, term: int, began: float, is_calm: bool, index: int | None) -> None:
        if index is None or group.term != term:  # what was applied there may be another leader's, much later
            return
        now = self._clock()
        if is_calm:
            self._calm.append(now - began)
        else:
            self._recent.append((now, now - began))

    def calm_s(self) -> float:
        """Wait that is usual while nothing is copied; 0: too little is known."""
        return _long_one(list(self._calm))

    def recent_s(self) -> float:
        """Wait of now, while something is copied; 0: too little is known."""
        since = self._clock() - RECENT_S
        return _long_one([wait for at, wait in self._recent if at > since])


def _long_one(waits: list[float]) -> float:
    if len(waits) < FEWEST_SAMPLES:
        return 0.0
    return sorted(waits)[int(SHARE * (len(waits) - 1) + 0.5)]
