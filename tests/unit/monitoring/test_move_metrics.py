"""Numbers of moves: of the whole cluster, told once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from cluster.metadata import reassign, stall_move
from cluster.metadata.moves import MAX_MOVES_TO_NODE
from node.monitoring.move_metrics import planned_metrics
from tests.unit.metadata.test_moves import Metadata


def _told(metadata: Metadata, *, leads: bool) -> dict[str, float]:
    parts: Any = SimpleNamespace(view=metadata.view, metadata=SimpleNamespace(is_leader=leads))
    [metric] = planned_metrics(parts)
    return {sample.labels["state"]: sample.value for sample in metric.samples}


def test_the_metadata_leader_tells_of_all_planned_moves_and_nobody_else() -> None:
    metadata = Metadata(2)
    metadata.log(partitions=20, replicas=1)
    on_one = [one for one in metadata.view.logs["a"].partitions if one.replicas == (1,)]
    metadata.done(reassign([(one.group, 0, (2,)) for one in on_one]))
    first = next(metadata.view.under_way())
    assert first.move is not None
    metadata.done(stall_move(first.group, first.move.id))
    waiting = len(on_one) - MAX_MOVES_TO_NODE - 1
    assert _told(metadata, leads=True) == {"waiting": waiting, "under-way": MAX_MOVES_TO_NODE, "stalled": 1}
    assert not any(_told(metadata, leads=False).values())
