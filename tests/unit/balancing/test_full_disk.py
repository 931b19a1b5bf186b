"""A disk filled above its mark while clients publish: plans and cleaning together bring it below the lower one."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from cluster.metadata.planning import BalanceInput, BalancePlan, NodeLoad, PartitionLoad, plan_balance
from cluster.metadata.types import BalanceSettings
from cluster.raft.snapshot.bandwidth import CopyBudget
from node.movement.segment_cleaner import SegmentCleaner
from node.storage import DiskOptions, NodeIdentity, Store, disk_space
from tests.unit.storage.support import SMALL, entry_key, fill

MIB = 1 << 20
ON = BalanceSettings(balance="on")
GROUPS = range(1, 13)
TURNS = (1, 2, 3), (2, 3, 1), (3, 1, 2)
FULL_NODE = 3
CAPACITY = {1: 400 * MIB, 2: 400 * MIB, FULL_NODE: 40 * MIB, 4: 400 * MIB}
OPTIONS = DiskOptions(
    segment_bytes=SMALL.segment_bytes // 2,
    memtable_bytes=SMALL.memtable_bytes,
    replay_bytes=SMALL.replay_bytes,
    garbage_floor_bytes=SMALL.garbage_floor_bytes,
    reserve_bytes=CAPACITY[FULL_NODE] * 9 // 100,
)
ENTRY_BYTES = 16_000
MOST_PLANS = 8


class Disks:
    """Nodes with real stores, each on a file system of its own size, and groups that are written to all replicas."""

    def __init__(self, home: Path) -> None:
        self.replicas = {group: TURNS[group % 3] for group in GROUPS}
        self.stores = {node: Store(home / str(node), NodeIdentity("test", node), OPTIONS) for node in CAPACITY}
        self.written = dict.fromkeys(GROUPS, 0)
        self.fullest = 0.0
        self.fullest_cleaned = 0.0
        self.cleaners = {node: self._cleaner(store) for node, store in self.stores.items()}

    def _cleaner(self, store: Store) -> SegmentCleaner:
        ticks = count(1)

        def tick() -> float:  # in each step
            self.fullest_cleaned = max(self.fullest_cleaned, self.used_percent())
            return float(next(ticks))

        return SegmentCleaner(
            store,
            CopyBudget(1 << 40),
            tick,
            is_full=lambda: False,
            erase_leftovers=lambda: None,
            on_failed=lambda error: pytest.fail(str(error)),
        )

    def publish(self) -> None:
        """One event to each group."""
        for group, nodes in self.replicas.items():
            for node in nodes:
                fill(self.stores[node], self.written[group], 1, ENTRY_BYTES, group)
            self.written[group] += 1
        self.fullest = max(self.fullest, self.used_percent())

    def used_percent(self) -> float:
        store = self.stores[FULL_NODE]
        return 100 - 100 * store.free_bytes() / store.capacity_bytes()

    def load(self) -> BalanceInput:
        nodes = [
            NodeLoad(
                node,
                capacity_bytes=store.capacity_bytes(),
                used_bytes=store.capacity_bytes() - store.free_bytes(),
                garbage_bytes=store.garbage_bytes(),
            )
            for node, store in self.stores.items()
        ]
        partitions = [
            PartitionLoad(group, f"log/{group}", nodes, size_bytes=self.written[group] * ENTRY_BYTES, leader=nodes[0])
            for group, nodes in self.replicas.items()
        ]
        return BalanceInput(tuple(nodes), tuple(partitions))

    def carry_out(self, plan: BalancePlan) -> None:
        """Copy and erase replicas, while clients publish."""
        for item in plan.reassignments:
            old, self.replicas[item.group] = self.replicas[item.group], item.target
            for node in set(item.target) - set(old):
                fill(self.stores[node], 0, self.written[item.group], ENTRY_BYTES, item.group)
            for node in set(old) - set(item.target):
                batch = self.stores[node].batch()
                for kind in (b"e", b"o"):
                    owner = kind + item.group.to_bytes(8, "big")
                    batch.delete_range(owner, owner + b"\xff" * 9)
                self.stores[node].write(batch)
            self.publish()

    def settle(self) -> None:
        """Plan, and carry out, until there is nothing to plan."""
        for _ in range(MOST_PLANS):
            plan = plan_balance(self.load(), ON)
            if not plan.reassignments:
                return
            for item in plan.reassignments:
                assert FULL_NODE not in set(item.target) - set(self.replicas[item.group])
            self.carry_out(plan)
        raise AssertionError(f"still something to plan: {plan}")

    async def clean(self) -> None:
        for cleaner in self.cleaners.values():
            await cleaner.clean()

    def close(self) -> None:
        for store in self.stores.values():
            store.close()


@pytest.fixture
def disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disks:
    def capacity(path: Path) -> int:
        return CAPACITY[int(path.name)]

    monkeypatch.setattr(disk_space, "capacity_bytes", capacity)
    monkeypatch.setattr(disk_space, "free_bytes", lambda path: capacity(path) - disk_space.used_bytes(path))
    return Disks(tmp_path)


async def test_a_disk_filled_while_clients_publish_is_relieved_by_plans_that_end(disks: Disks) -> None:
    while disks.used_percent() < 86:
        disks.publish()
    disks.settle()  # the planner is faster than who cleans
    assert disks.used_percent() > 75
    left = sum(FULL_NODE in nodes for nodes in disks.replicas.values())
    assert left == 9, "as many as on others, and no fewer"
    await disks.clean()
    disks.settle()
    assert sum(FULL_NODE in nodes for nodes in disks.replicas.values()) == left
    assert disks.used_percent() < 75
    assert disks.fullest < 92, "moving takes room before it gives some back, and never much"
    for group, nodes in disks.replicas.items():
        for node in disks.stores:
            stored = [key for key, _ in disks.stores[node].scan(entry_key(group, 0), entry_key(group, 1 << 40))]
            assert len(stored) == (disks.written[group] if node in nodes else 0)
    disks.close()


async def test_cleaning_takes_nothing_of_the_reserve_while_there_is_something_else(disks: Disks) -> None:
    while disks.used_percent() < 86:
        disks.publish()
    disks.settle()
    assert disks.used_percent() > 86
    await disks.clean()
    assert disks.used_percent() < 75
    assert disks.fullest_cleaned < 91, "with more the node would refuse events"
    disks.close()


async def test_all_that_is_thin_is_cleaned_where_events_are_refused(disks: Disks) -> None:
    while disks.used_percent() < 86:
        disks.publish()
    disks.settle()
    while disks.used_percent() < 92:  # less is free than the reserve
        disks.publish()
    await disks.clean()
    store = disks.stores[FULL_NODE]
    assert disks.used_percent() < 91
    assert store.garbage_bytes() <= OPTIONS.garbage_of_free * (store.free_bytes() - OPTIONS.reserve_bytes)
    disks.close()
