"""Numbers of moves, of the groups that this node leads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from cluster.metadata import MoveCounts
from node.monitoring.node_parts import NodeParts

STATES = ("wished", "copying", "near", "joint", "cancelling", "finishing")

FAR_BEHIND_ENTRIES = 1000
"""Committed entries that a follower lacks when it counts as behind: it is away, or was, and not only busy."""


def move_metrics(parts: NodeParts) -> Iterator[Metric]:
    by_state: Counter[str] = Counter()
    bytes_left = stalled = learners = under_replicated = 0
    for number, group in parts.multiraft.groups.items():
        if not group.is_leader:
            continue
        move, found = parts.replicas.move_status(number), parts.view.group(number)
        if move is not None:
            by_state[move.state] += 1
            bytes_left += parts.replicas.bytes_left(move)
            stalled += move.stalled
        configuration = group.configuration
        learners += len(configuration.learners) if configuration is not None else 0
        if found is not None:
            told = parts.followers(group)
            sound = {node for node, (up, lacks) in told.items() if up and lacks < FAR_BEHIND_ENTRIES} | {parts.node_id}
            under_replicated += len(sound & set(found[1].replicas)) < found[0].replicas
    text = "Tells how many moves of replicas are under way in groups that this node leads."
    moves = GaugeMetricFamily("holdfast_moves", text, labels=["state"])
    for name in STATES:
        moves.add_metric([name], by_state[name])
    yield moves
    text = "Tells about how many bytes are still to be copied for those moves."
    yield _gauge("holdfast_move_bytes_left", text, bytes_left)
    copies = parts.multiraft.copies
    text = "Tells how many bytes a second copies may take now: moves, and replicas that are rebuilt."
    pace = GaugeMetricFamily("holdfast_move_pace_bytes", text, labels=["direction"])
    pace.add_metric(["out"], copies.out.bytes_per_s)
    pace.add_metric(["into"], copies.into.bytes_per_s)
    yield pace
    text = "Tells how many of those moves have made no progress for a minute."
    yield _gauge("holdfast_moves_stalled", text, stalled)
    yield _gauge("holdfast_learners", "Tells how many replicas of groups led here follow without a vote.", learners)
    text = "Tells how many partitions led here have fewer sound replicas than their log is to have."
    yield _gauge("holdfast_partitions_under_replicated", text, under_replicated)


def planned_metrics(parts: NodeParts) -> Iterator[Metric]:
    """Numbers of all moves of the cluster, told by the node that leads the metadata, so that a sum is right."""
    counts = parts.view.count_moves() if parts.metadata.is_leader else MoveCounts(0, 0, 0)
    text = "Tells how many partitions of the cluster are to move; 0 where another node leads the metadata."
    planned = GaugeMetricFamily("holdfast_planned_moves", text, labels=["state"])
    planned.add_metric(["waiting"], counts.moving - counts.under_way)
    planned.add_metric(["under-way"], counts.under_way - counts.stalled)
    planned.add_metric(["stalled"], counts.stalled)
    yield planned


def _gauge(name: str, text: str, value: float) -> Metric:
    gauge = GaugeMetricFamily(name, text)
    gauge.add_metric([], value)
    return gauge
