"""One partition on one real node: RocksDB, a MultiRaft with a single member, a clock that is moved by hand."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

from cluster.raft import MultiRaft, RaftOptions
from holdfast.records.record_batch import RecordBatch
from node.partition.api import Appended, AppendOutcome
from node.partition.limits import PartitionLimits
from node.partition.partition_replica import PartitionReplica
from node.storage import DiskOptions, NodeIdentity, Store
from tests.batches import batch_of

GROUP = 7
SMALL_DISK = DiskOptions(segment_bytes=1 << 20, memtable_bytes=64 << 10, replay_bytes=1 << 20)
START_MS = 1_700_000_000_000


@dataclass
class StillClock:
    now_s: float = 100.0

    def monotonic(self) -> float:
        return self.now_s


@dataclass
class Answers:
    """What `done` was told, in order."""

    all: list[AppendOutcome] = field(default_factory=list)

    def __call__(self, outcome: AppendOutcome) -> None:
        self.all.append(outcome)

    @property
    def last(self) -> AppendOutcome:
        return self.all[-1]

    @property
    def offsets(self) -> list[int]:
        assert all(isinstance(one, Appended) for one in self.all), self.all
        return [one.base_offset for one in self.all if isinstance(one, Appended)]


class PartitionNode:
    """`with Node(path) as node`: leads GROUP when it is entered. `crash` forgets everything but the disk."""

    def __init__(
        self, path: Path, *, limits: PartitionLimits | None = None, options: RaftOptions | None = None
    ) -> None:
        self.path = path
        self.limits = limits
        self.options = options or RaftOptions()
        self.clock = StillClock()
        self.now_ms = START_MS
        self.dirty: list[PartitionReplica] = []
        self._open(lead=True)

    def _open(self, *, lead: bool) -> None:
        self.disk = Store(self.path, NodeIdentity("test", 1), SMALL_DISK)
        self.multiraft = MultiRaft(1, self.disk, self.clock, random.Random(1), _no_peers, self.options)
        self.replica = PartitionReplica(
            "trades-0", GROUP, self.disk, lambda: self.now_ms, limits=self.limits, on_dirty=self.dirty.append
        )
        self.group = self.multiraft.open_group(GROUP, [1], self.replica)
        self.replica.bind(self.group)
        if lead:
            self.until_leading()

    def until_leading(self) -> None:
        for _ in range(100):
            self.turns()
            if self.replica.is_leader:
                return
            self.clock.now_s = max(self.clock.now_s, self.multiraft.next_deadline())
        raise AssertionError(f"no leader: {self.group.status()}")

    def turns(self) -> None:
        """Turn until nothing is left to do."""
        for _ in range(1000):
            while self.dirty:
                self.dirty.pop().flush()
            turn = self.multiraft.turn()
            if turn is None:
                return
            if turn.needs_sync:
                self.disk.sync()
            self.multiraft.release(turn)
            if not self.multiraft.has_work and not self.dirty:
                return
        raise AssertionError("the node never rests")

    def append(self, *records: bytes, answers: Answers | None = None) -> Answers:
        answers = answers if answers is not None else Answers()
        self.replica.append(batch_of(records), answers)
        self.turns()
        return answers

    def step_down(self) -> None:
        """Lose leadership as a member alone never does by itself: through the library's own transition."""
        self.group._core._SyncObj__setState(0)
        self.group._core._SyncObj__raftLeader = None
        self.group._notify()
        self.multiraft.mark_dirty(self.group)

    def crash(self) -> None:
        """The process is gone without a last checkpoint; the disk keeps what was written. Then start again and lead."""
        self.disk.close()
        self._open(lead=True)

    def reopen(self) -> None:
        self.multiraft.close()
        self.disk.close()
        self._open(lead=True)

    def __enter__(self) -> PartitionNode:
        return self

    def __exit__(self, *_: object) -> None:
        self.disk.close()


def _no_peers(node: int, messages: object) -> None:
    raise AssertionError(f"a group of one sent {messages} to node {node}")


def flat(batches: list[RecordBatch]) -> list[tuple[int, bytes]]:
    """(offset, message) of everything."""
    return [(batch.offset + place, message) for batch in batches for place, message in enumerate(batch.messages())]


def read_all(replica: PartitionReplica, offset: int = 0, max_bytes: int = 1 << 40) -> list[tuple[int, bytes]]:
    return flat(replica.read(offset, max_bytes))
