"""Lag of consumer groups, as metrics, in the partitions that this node leads.

The problem: a reader may make ten thousand groups in each partition, and a series for each would make every scrape
large and slow. The rule: a scrape looks at `MOST_LOOKED_AT` groups and shows `MOST_SHOWN`, those that committed last;
the number of the rest is a metric of its own. A group that never committed in a partition has no series there: unknown
is not zero. The age of the first event that is not done is read from the offset index when a scrape asks, once for each
series.

Rejected: sums by group in the node: its partitions are led by several nodes, so only a scraper of all of them has a
sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import nlargest

from prometheus_client.core import GaugeMetricFamily, Metric

from node.partition.consumer_groups.group_state import NOTHING, ConsumerGroup, lag
from node.partition.partition_replica import PartitionReplica

MOST_SHOWN = 1000
"""Pairs of a group and a partition that are shown, each with two series of at most some 600 characters."""

MOST_LOOKED_AT = 4_000
"""Groups of all partitions together, in one scrape: some milliseconds of the loop."""

LABELS = ("log", "group", "partition")
Led = tuple[str, str, PartitionReplica]
"""Log, partition, and its leader here."""


def group_lags(led: Iterable[Led]) -> Iterator[Metric]:
    """Two gauges, and the number of pairs that are in neither."""
    partitions = list(led)
    each = max(1, MOST_LOOKED_AT // max(1, len(partitions)))
    known, left_out = [], 0
    for place, (_, _, replica) in enumerate(partitions):
        known += [(row.position_ms, place, row) for row in replica.groups.latest(each) if _is_shown(row)]
        left_out += max(0, len(replica.groups) - each)
    shown = nlargest(MOST_SHOWN, known, key=lambda found: found[0])
    text = "Tells, at the leader, how many events a group has not committed; absent while it never committed any."
    events = GaugeMetricFamily("holdfast_group_lag_events", text, labels=LABELS)
    text = "Tells, at the leader, how long ago the first event came that a group has not committed; 0 if there is none."
    seconds = GaugeMetricFamily("holdfast_group_lag_seconds", text, labels=LABELS)
    for _, place, row in shown:
        log, partition, replica = partitions[place]
        behind = lag(row.position, replica.start_offset, replica.next_offset)
        assert behind is not None, "a group without a position is not shown"
        events.add_metric([log, row.key, partition], behind)
        seconds.add_metric([log, row.key, partition], replica.age_ms(row.position) / 1000 if behind else 0.0)
    yield from (events, seconds)
    text = f"Tells of how many pairs of a group and a partition no lag is told; it is of the {MOST_SHOWN:,} latest."
    yield GaugeMetricFamily("holdfast_group_lag_left_out", text, value=float(left_out + len(known) - len(shown)))


def _is_shown(row: ConsumerGroup) -> bool:
    return row.position != NOTHING and not row.is_terminus
