"""What a node keeps follows the metadata, and what it cannot keep stops it."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, cast

from cluster.raft import Host, StateDamaged
from node.changes import Changes
from node.replicas import Replicas
from tests.simulation.disk import SimDisk
from tests.unit.raft.cluster import HandClock

GROUP = 4
PARTITION = SimpleNamespace(name="0", group=GROUP, replicas=(1,), preferred=1)


class OneLog:
    def hosted_by(self, node: int) -> list[tuple[Any, Any]]:
        return [(SimpleNamespace(name="trades"), PARTITION)]

    def was_deleted(self, group: int) -> bool:
        return False


async def test_a_group_whose_state_is_damaged_stops_the_node_and_spares_the_others_on_the_bell() -> None:
    disk = SimDisk()
    batch = disk.batch()
    batch.put(b"h" + GROUP.to_bytes(8), b"not a hard state")
    disk.write(batch)
    changes = Changes()
    host = Host(1, disk, HandClock(), random.Random(1), lambda peer, messages: None)
    replicas = Replicas(1, host, cast(Any, disk), cast(Any, OneLog()), changes, min_free_bytes=0)
    failures: list[Exception] = []
    replicas.on_failed = failures.append
    changes.subscribe(replicas.reconcile)
    told: list[bool] = []
    changes.subscribe(lambda: told.append(True))

    changes.ring()
    await changes.until(lambda: bool(told), 1.0)

    assert told
    assert [type(failure) for failure in failures] == [StateDamaged]
    assert "group 4" in str(failures[0])
