"""What the Raft code itself costs: three nodes in one process, no network, no disk worth the name.

`python -m tests.simulation.measure [--profile]` prints commits per second and CPU per commit for several
entry sizes, with one proposal per turn (latency-bound) and with a pipeline, and the cost of idle groups. All
three replicas share one core, and messages are encoded and decoded once per receiver, as between processes.
`--schedules N` measures the simulation itself instead: CPU per schedule.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import random
import time

from cluster.raft import MultiRaft, OutgoingMessage, RaftMessage, RaftOptions
from tests.simulation.runner import run_many
from tests.simulation.world.disk import SimBatch

NODES = (1, 2, 3)
SETTLE_TURNS = 2000


class NullDisk:
    """Keeps small values (so groups can start), counts the rest."""

    def __init__(self) -> None:
        self.written_bytes = 0

    def get(self, key: bytes) -> bytes | None:
        return None

    def scan(self, start: bytes, end: bytes, *, reverse: bool = False) -> object:
        return iter(())

    def batch(self) -> SimBatch:
        return SimBatch()

    def write(self, batch: SimBatch) -> None:
        self.written_bytes += sum(len(value) for _, _, value in batch.operations)

    must_drain = False

    def drain(self) -> None:
        """Costs nothing here."""

    def sync(self) -> None:
        """Costs nothing here."""


class NullMachine:
    def apply(self, index: int, term: int, data: bytes, batch: object) -> object:
        return index

    def checkpoint(self, version: int) -> bytes:
        return b""

    def restore(self, index: int, data: bytes | None) -> None:
        """Nothing to restore."""


class FastClock:
    """Real time, or time that passes only when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Trio:
    def __init__(self, groups: int) -> None:
        self.clock = FastClock()
        self.multirafts: dict[int, MultiRaft] = {}
        for node in NODES:
            self.multirafts[node] = MultiRaft(
                node,
                NullDisk(),
                self.clock,
                random.Random(node),
                self._sender(node),
                RaftOptions(tail_cache_bytes=40 << 20),
            )
        for multiraft in self.multirafts.values():
            for group in range(1, groups + 1):
                multiraft.open_group(group, NODES, NullMachine(), preferred=1)
            for peer in NODES:
                if peer != multiraft.node_id:
                    multiraft.peer_up(peer)
        while not all(group.ready for group in self.multirafts[1].groups.values()):
            self.step()
            self.clock.now += 0.001

    def _sender(self, node: int) -> object:
        def send(peer: int, messages: list[OutgoingMessage]) -> None:
            frames = [message.SerializeToString() for message in messages]
            self.multirafts[peer].deliver(node, [RaftMessage.FromString(frame) for frame in frames])

        return send

    def step(self) -> int:
        turns = 0
        for multiraft in self.multirafts.values():
            if multiraft.has_work or multiraft.next_deadline() <= self.clock.now:
                turn = multiraft.turn()
                if turn is not None:
                    multiraft.release(turn)
                    turns += 1
        return turns


def commits(size: int, pipeline: int, seconds: float) -> tuple[float, float]:
    """(commits per second, microseconds of CPU per commit over all three replicas)."""
    trio = Trio(groups=1)
    group = trio.multirafts[1].groups[1]
    data = b"\0" + bytes(size - 1)
    done = [0]

    def count(outcome: object) -> None:
        done[0] += 1

    began = time.process_time()
    proposed = 0
    while time.process_time() - began < seconds:
        for _ in range(50):
            while proposed - done[0] < pipeline:
                group.propose(data, count)
                proposed += 1
            trio.step()
            trio.clock.now += 0.0005
    took = time.process_time() - began
    return done[0] / took, took / done[0] * 1e6


def idle(groups: int, virtual_seconds: float) -> float:
    """Fraction of one core that idle groups cost, all three replicas together."""
    trio = Trio(groups)
    end = trio.clock.now + virtual_seconds
    began = time.process_time()
    while trio.clock.now < end:
        if not trio.step():
            trio.clock.now = min(multiraft.next_deadline() for multiraft in trio.multirafts.values())
    return (time.process_time() - began) / virtual_seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--schedules", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.schedules:
        began = time.process_time()
        tally = run_many("cluster", range(arguments.schedules))
        cost = (time.process_time() - began) / arguments.schedules
        print(f"{cost * 1000:.0f} ms of CPU per schedule; {tally}")
        return
    if arguments.profile:
        with cProfile.Profile() as profile:
            commits(256 * 1024, 4, arguments.seconds)
        pstats.Stats(profile).sort_stats("tottime").print_stats(28)
        return
    for size in (100, 16 * 1024, 256 * 1024, 1024 * 1024):
        for pipeline in (1, 4, min(64, (16 << 20) // size)):
            rate, cost = commits(size, pipeline, arguments.seconds)
            print(f"{size:>8} B, {pipeline:>3} in flight: {rate:>8.0f} commits/s {cost:>8.1f} us/commit", flush=True)
    for groups in (1, 100):
        print(f"{groups:>4} idle groups: {idle(groups, 10.0) * 100:.2f} % of a core for three replicas")


if __name__ == "__main__":
    main()
