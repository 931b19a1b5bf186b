"""How long transfers take, from sending to the answer."""

from __future__ import annotations

# So many are looked at together: some tenths of a second under load, and enough for a median.
LOOKED_AT = 40
# What the latest ones count in what is usual.
SHARE = 0.1
# What stands still for once is no reason to have twice as much under way.
MOST_MEAN_BY_MEDIAN = 2.0


class RoundTrips:
    """Of one route."""

    __slots__ = ("_latest_s", "mean_by_median", "shortest_s")

    def __init__(self) -> None:
        self.shortest_s = 0.0
        """0 while there was none."""
        self.mean_by_median = 1.0
        """Their average as a multiple of their median, of late: more than 1 where some take much longer than most."""
        self._latest_s: list[float] = []

    def took(self, seconds: float) -> None:
        """One did."""
        if seconds < self.shortest_s or not self.shortest_s:
            self.shortest_s = seconds
        latest_s = self._latest_s
        latest_s.append(seconds)
        if len(latest_s) < LOOKED_AT:
            return
        latest_s.sort()
        median_s = latest_s[LOOKED_AT // 2]
        if median_s > 0:
            found = min(MOST_MEAN_BY_MEDIAN, max(1.0, sum(latest_s) / LOOKED_AT / median_s))
            self.mean_by_median += SHARE * (found - self.mean_by_median)
        latest_s.clear()
