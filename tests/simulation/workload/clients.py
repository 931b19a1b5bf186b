"""The clients of one partition: plain and numbered producers, readers on any replica, and one that follows the tail."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cluster.raft import Committed, Discarded, Outcome, RaftError
from node.partition.api import After, Appended, AppendOutcome
from node.partition.reader import LocalReader
from tests.batches import batch_of, entry_of
from tests.simulation.checker import Violation
from tests.simulation.watched_groups import state_of
from tests.simulation.workload.members import SimGroupMember
from tests.simulation.workload.producers import NumberedProducer
from tests.simulation.world.events import PartitionJudge

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule
    from tests.simulation.world.nodes import SimNode

MARK_EVERY_S = 0.15
"""While the cluster heals, one more event is tried so often: several times within an election."""
SIZES = (0, 10, 200)
"""Of events: below and above what a store keeps apart."""
READ_BYTES = 400
"""At once: some batches, so that readers stop in the middle of others."""


class PartitionClients:
    """Those of one partition."""

    def __init__(self, schedule: Schedule, judge: PartitionJudge) -> None:
        self._schedule = schedule
        self.judge = judge
        self.producers = [NumberedProducer(schedule, judge, n) for n in range(schedule.plan.producers)]
        self.members = [SimGroupMember(schedule, judge, name) for name in ("ann", "bob")]
        self._tail: LocalReader | None = None
        self._tail_node: SimNode | None = None
        self._tail_life = 0
        self._position = -1
        self._markers: set[bytes] = set()
        self._marked = True
        self._mark_again_at = 0.0

    def _leaders(self) -> list[SimNode]:
        return [node for node in self._schedule.nodes.values() if node.leads(self.judge.group_id)]

    def send(self) -> None:
        """Plain clients write to every node that believes it leads; numbered producers look after themselves."""
        randomness = self._schedule.randomness
        for node in self._leaders():
            if randomness.random() < 0.5:
                self._append(node, [self._record() for _ in range(randomness.randint(1, 3))])
            if randomness.random() < 0.1:
                randomness.choice(self.members).act(node)
        for producer in self.producers:
            producer.produce(randomness.randint(0, 3))

    def _record(self) -> bytes:
        return b"%d." % self._schedule.unique() + b"x" * self._schedule.randomness.choice(SIZES)

    def _append(self, node: SimNode, records: list[bytes]) -> None:
        replica = node.partition(self.judge.group_id)
        if replica is None:
            return
        kept = tuple(records)
        hang_up = node.call(_unknown)

        def done(outcome: AppendOutcome) -> None:
            if not hang_up():
                return
            if isinstance(outcome, Appended):
                self.judge.acknowledge(kept, outcome)
                if (
                    not self._schedule.chaos_over
                    and self._schedule.randomness.random() < self._schedule.plan.impatience
                ):
                    self._go_on(node)
                self._marked = self._marked or not self._markers.isdisjoint(kept)
            elif outcome.certainly_not_appended:
                self.judge.never(kept)

        replica.append(batch_of(records), done)

    def _go_on(self, node: SimNode) -> None:
        """Some write again from inside the answer, in the middle of a turn, to whatever group."""
        schedule = self._schedule
        led = [group_id for group_id in node.multiraft.groups if group_id and node.leads(group_id)]
        if not led:
            return
        group_id, record = schedule.randomness.choice(led), self._record()
        judge = schedule.judges[group_id]
        assert isinstance(judge, PartitionJudge)

        def done(outcome: Outcome) -> None:
            if isinstance(outcome, Discarded):
                judge.never([record])
            elif isinstance(outcome, Committed) and not judge.holds(record):
                raise Violation(f"group {group_id}: {record!r} was acknowledged, but is nowhere")

        with contextlib.suppress(RaftError):
            node.multiraft.groups[group_id].propose(entry_of([record], node.cluster_clock.now_ms()), done)

    # ---- reading

    def read(self) -> None:
        self._look_somewhere()
        self._follow_tail()

    def _look_somewhere(self) -> None:
        """On any replica: whatever it has applied must be what was stored."""
        randomness = self._schedule.randomness
        node = self._schedule.nodes[randomness.choice(self.judge.members)]
        replica = node.partition(self.judge.group_id)
        if replica is not None and replica.next_offset:
            offset = randomness.randrange(replica.next_offset)
            self._serve(node, replica, offset, READ_BYTES)

    def _serve(self, node: SimNode, replica: Any, offset: int, max_bytes: int) -> int:
        try:
            return self.judge.served(node.id, replica.read(offset, max_bytes))
        except ValueError as error:  # Damaged: the replica has told its node, which has ended
            # A snapshot's rows are younger than its state: what the group has trimmed meanwhile may be missing already.
            if not node.disk.damaged and offset >= self.judge.start_offset:
                raise Violation(f"node {node.id} calls a sound store damaged: {error}") from error
            return 0

    def _follow_tail(self) -> None:
        """One reader for ever, that goes on where it was, at whatever node leads."""
        node, tail = self._tail_node, self._tail
        gone = node is None or not node.is_running or node.life != self._tail_life
        if tail is None or node is None or gone or tail.error is not None:
            self._tail = None
            leaders = self._leaders()
            if not leaders:
                return
            node = self._tail_node = self._schedule.randomness.choice(leaders)
            replica = node.partition(self.judge.group_id)
            if replica is None:
                return
            self._tail_life = node.life
            tail = self._tail = replica.open_reader(After(self._position), _nothing, uncommitted=True)
        start = max(self._position + 1, 0)
        batches = tail.poll(50, READ_BYTES)
        if node.life != self._tail_life:  # it found its store damaged
            return
        for batch in batches:
            if batch.offset > start and self.judge.start_offset < batch.offset:
                raise Violation(f"a reader at offset {start} was given {batch.offset} next")
            start = batch.next_offset
        self.judge.served(node.id, batches)
        self._position = start - 1

    # ---- the end

    def begin_healing(self) -> None:
        self._marked = False
        self._markers.clear()

    def is_sound(self, node: SimNode) -> bool:
        """It can do its part as a member."""
        group = node.multiraft.groups.get(self.judge.group_id) if node.is_running else None
        waits = group is not None and not node.readmission.counts(group)
        return not (node.disk.damaged or node.lacks_memory or waits)

    def drain(self) -> bool:
        """Everybody has the answers, and one more event went through."""
        if not self._marked and self._schedule.now >= self._mark_again_at:
            self._mark_again_at = self._schedule.now + MARK_EVERY_S
            for node in self._leaders():
                marker = b"final %d" % self._schedule.unique()
                self._markers.add(marker)
                self._append(node, [marker])
        return all([producer.drain() for producer in self.producers]) and self._marked  # noqa: C419 - ask all

    def finish(self, nodes: Sequence[SimNode]) -> None:
        group_id, judge = self.judge.group_id, self.judge
        states = set()
        sound = [node for node in nodes if node.id in judge.members and self.is_sound(node)]
        is_whole = 2 * len(sound) > len(judge.members)
        for node in nodes:
            replica = node.partition(group_id)
            if replica is None:
                continue
            states.add(state_of(replica))
            offset = replica.start_offset
            served = self._serve(node, replica, offset, 1 << 40)
            if is_whole and node.is_running and served != len(judge.events) - offset:
                raise Violation(f"group {group_id}: node {node.id} does not serve all from {offset} on")
        if len(states) > 1 and is_whole:
            raise Violation(f"group {group_id}: replicas differ at the end: {states}")


def _unknown() -> None:
    """A plain client that hears nothing does not try again."""


def _nothing() -> None:
    """The reader is polled by the clock."""
