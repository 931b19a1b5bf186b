"""The clients of a schedule: an administrator, producers with and without numbers, readers.

They find leaders as impatient clients do: they ask whoever believes to lead, sometimes anybody, and try again. A node
that ends breaks the calls under way; what became of those is for the log to say.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cluster.metadata import LogRecord, Ok, alter_log, create_log, delete_log, encode_command, register_node
from cluster.metadata import metadata_pb2 as pb
from cluster.raft import METADATA_GROUP, Committed, Discarded, Outcome, RaftError, stored_groups
from node.partition.api import After, Appended, AppendOutcome
from node.partition.batch import encode
from node.partition.reader import LocalReader
from tests.simulation.checker import Violation
from tests.simulation.events import PartitionJudge
from tests.simulation.producers import NumberedProducer

if TYPE_CHECKING:
    from tests.simulation.nodes import SimNode
    from tests.simulation.schedule import Schedule

RETRY_S = 0.05
MARK_EVERY_S = 0.15
SIZES = (0, 10, 200)
READ_BYTES = 400


class ClusterLoad:
    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._partitions: dict[int, PartitionClients] = {}
        self.admin = Administrator(schedule, self._log_created)
        self._healthy: Sequence[SimNode] = ()

    @property
    def acknowledged(self) -> int:
        return sum(clients.judge.acknowledged for clients in self._partitions.values())

    def start(self) -> None:
        schedule, plan = self._schedule, self._schedule.plan
        self.admin.start()
        schedule.every(plan.send_every_s, self._send)
        schedule.every(plan.read_every_s, self._read)
        schedule.every(plan.upkeep_every_s, self._upkeep)
        schedule.every(plan.admin_every_s, self.admin.wish)

    def _log_created(self, log: LogRecord) -> None:
        for partition in log.partitions:
            if partition.group not in self._partitions:
                judge = self._schedule.judge(partition.group, partition.replicas)
                assert isinstance(judge, PartitionJudge)
                self._partitions[partition.group] = PartitionClients(self._schedule, judge)

    def serves(self) -> bool:
        expected = sum(log.partitions for log in self._schedule.plan.logs)
        return len(self._partitions) >= expected and all(
            clients.judge.acknowledged for clients in self._partitions.values()
        )

    def _send(self) -> None:
        for clients in self._partitions.values():
            clients.send()

    def _read(self) -> None:
        self._read_confirmed()
        for clients in self._partitions.values():
            clients.read()

    def _read_confirmed(self) -> None:
        """Of one group, from whoever believes to lead it."""
        judge = self._schedule.judges[self._schedule.randomness.choice(list(self._schedule.judges))]
        for node in self._schedule.nodes.values():
            if node.leads(judge.group_id):
                node.read_confirmed(judge)

    def _upkeep(self) -> None:
        for node in self._schedule.nodes.values():
            if node.is_running:
                node.upkeep()

    # ---- the end

    def begin_healing(self, healthy: Sequence[SimNode]) -> None:
        self._healthy = healthy
        self.admin.mark()
        for clients in self._partitions.values():
            clients.begin_healing()

    def is_healthy(self) -> bool:
        nodes = [node for node in self._healthy if not node.is_damaged]
        metadata = self._schedule.judges.get(METADATA_GROUP)
        if metadata is None or not self.admin.is_done or not _agrees(metadata, nodes):
            return False
        deleted = self.admin.deleted_groups
        return all([self._does_its_duty(group_id, nodes) for group_id in self._partitions if group_id not in deleted])  # noqa: C419 - ask all

    def _does_its_duty(self, group_id: int, nodes: Sequence[SimNode]) -> bool:
        clients = self._partitions[group_id]
        members = [node for node in nodes if node.id in clients.judge.members]
        sound = [node for node in members if not node.disk.damaged]
        if 2 * len(sound) <= len(clients.judge.members):
            return True  # no majority: nothing can be asked of it
        return clients.drain() and _agrees(clients.judge, members)

    def finish(self) -> None:
        nodes = [node for node in self._schedule.nodes.values() if node.is_running]
        self.admin.finish(nodes)
        for group_id, clients in self._partitions.items():
            if group_id not in self.admin.deleted_groups:
                clients.finish(nodes)


def _agrees(judge: Any, nodes: Sequence[SimNode]) -> bool:
    """Those of the nodes that are members have applied all that was ever committed, and owe no answer."""
    for node in nodes:
        if node.id not in judge.members:
            continue
        group = node.host.groups.get(judge.group_id)
        if group is None or group.applied_index < judge.highest:
            return False
    members = {node.id for node in nodes}
    return not any(node in members for node in judge.unanswered.values())


class Administrator:
    """Registers the nodes, makes the logs, and later changes some; one command after the other, each with an id of its
    own, repeated until its outcome is known."""

    def __init__(self, schedule: Schedule, created: Any) -> None:
        self._schedule = schedule
        self._created = created
        self._commands: list[pb.Command] = []
        self._waiting = False
        self._expected: dict[str, LogRecord] = {}
        self.deleted_groups: set[int] = set()
        self._names = 0

    def start(self) -> None:
        for node in self._schedule.node_ids:
            self._add(register_node(node, f"10.0.0.{node}:7000", {"amqp": f"10.0.0.{node}:5672"}))
        for log in self._schedule.plan.logs:
            self._create(log.partitions, log.replicas, log.retention_bytes)
        self._try()

    def _add(self, command: pb.Command) -> None:
        command.request_id = b"request %d" % self._schedule.unique()
        self._commands.append(command)

    def _create(self, partitions: int, replicas: int, retention_bytes: int = 0) -> None:
        self._names += 1
        self._add(
            create_log(
                f"log-{self._names}", now_ms=1, partitions=partitions, replicas=replicas,
                retention_bytes=retention_bytes or None,
            )
        )  # fmt: skip

    def wish(self) -> None:
        """Something else, when all is done."""
        if self._commands:
            return
        randomness = self._schedule.randomness
        extra = [name for name in self._expected if int(name[4:]) > len(self._schedule.plan.logs)]
        kind = randomness.choice(("create", "alter", "delete", "register", "wrong"))
        if kind == "create" and not extra:
            self._create(1, randomness.randint(1, min(3, len(self._schedule.node_ids))))
        elif kind == "alter" and self._expected:
            name = randomness.choice(list(self._expected))
            self._add(alter_log(name, retention_bytes=randomness.choice((500, 4000))))
        elif kind == "delete" and extra:
            self._add(delete_log(extra[0]))
        elif kind == "wrong":
            self._add(delete_log("no-such-log"))
        else:
            self.mark()

    def mark(self) -> None:
        """A command that must get through."""
        node = self._schedule.randomness.choice(self._schedule.node_ids)
        self._add(register_node(node, f"10.0.0.{node}:7000", {"amqp": f"10.0.0.{node}:5672"}))

    @property
    def is_done(self) -> bool:
        return not self._commands

    def _try(self) -> None:
        """Until the schedule ends: ask whoever leads for what is first in line."""
        schedule = self._schedule
        if self._commands and not self._waiting:
            leaders = [node for node in schedule.nodes.values() if node.leads(METADATA_GROUP)]
            if leaders:
                self._ask(schedule.randomness.choice(leaders), self._commands[0])
        schedule.at(schedule.now + schedule.randomness.uniform(0.2, 1.0) * RETRY_S, self._try)

    def _ask(self, node: SimNode, command: pb.Command) -> None:
        self._waiting = True
        hang_up = node.call(self._broken)

        def done(outcome: Outcome) -> None:
            if hang_up():
                self._waiting = False
                if isinstance(outcome, Committed):
                    self._answered(command, outcome.result)

        try:
            node.metadata.propose(encode_command(command), done)
        except RaftError:
            hang_up()
            self._waiting = False

    def _broken(self) -> None:
        self._waiting = False

    def _answered(self, command: pb.Command, result: object) -> None:
        assert self._commands[0] is command
        del self._commands[0]
        kind = command.WhichOneof("command")
        self._schedule.trace(f"metadata: {kind} -> {result}")
        if kind == "delete_log" and command.delete_log.name in self._expected and isinstance(result, Ok):
            log = self._expected.pop(command.delete_log.name)
            self.deleted_groups |= {partition.group for partition in log.partitions}
        elif kind in ("create_log", "alter_log") and isinstance(result, Ok) and result.log is not None:
            self._expected[result.log.name] = result.log
            self._created(result.log)
        elif isinstance(result, Ok) != (kind == "register_node"):
            raise Violation(f"metadata: {command} -> {result}")

    def finish(self, nodes: Sequence[SimNode]) -> None:
        for node in nodes:
            if dict(node.view.logs) != self._expected:
                raise Violation(f"node {node.id} has the logs {dict(node.view.logs)}, not {self._expected}")
            node.replicas.reconcile()
            node.replicas.erase_leftovers()
            left = self.deleted_groups & set(stored_groups(node.disk))
            if left:
                raise Violation(f"node {node.id} keeps something of the deleted groups {left}")
        states = {node.host.groups[METADATA_GROUP]._machine.checkpoint() for node in nodes}
        if len(states) > 1:
            raise Violation(f"metadata differ at the end: {states}")


class PartitionClients:
    """Those of one partition."""

    def __init__(self, schedule: Schedule, judge: PartitionJudge) -> None:
        self._schedule = schedule
        self.judge = judge
        self.producers = [NumberedProducer(schedule, judge, n) for n in range(schedule.plan.producers)]
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
                if not self._schedule.chaos_over and self._schedule.randomness.random() < 0.2:
                    self._go_on(node)
                self._marked = self._marked or not self._markers.isdisjoint(kept)
            elif outcome.certainly_not_appended:
                self.judge.never(kept)

        replica.append(records, done)

    def _go_on(self, node: SimNode) -> None:
        """Some write again from inside the answer, in the middle of a turn, to whatever group."""
        schedule = self._schedule
        led = [group_id for group_id in node.host.groups if group_id and node.leads(group_id)]
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
            node.host.groups[group_id].propose(encode([record], node.clock.wall_ms()), done)

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
            if not node.disk.damaged:
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
            tail = self._tail = replica.open_reader(After(self._position), _nothing)
        start = max(self._position + 1, 0)
        batches = tail.poll(50, READ_BYTES)
        if node.life != self._tail_life:  # it found its store damaged
            return
        for batch in batches:
            if batch.base_offset > start and self.judge.start_offset < batch.base_offset:
                raise Violation(f"a reader at offset {start} was given {batch.base_offset} next")
            start = batch.next_offset
        self.judge.served(node.id, batches)
        self._position = start - 1

    # ---- the end

    def begin_healing(self) -> None:
        self._marked = False
        self._markers.clear()

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
        sound = [node for node in nodes if node.id in judge.members and not node.disk.damaged]
        is_whole = 2 * len(sound) > len(judge.members)
        for node in nodes:
            replica = node.partition(group_id)
            if replica is None:
                continue
            states.add(replica.checkpoint())
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
