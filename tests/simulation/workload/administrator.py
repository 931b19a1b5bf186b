"""The administrator of a schedule: one metadata command after the other, until its outcome is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cluster.metadata import (
    COORDINATORS,
    LogRecord,
    Ok,
    alter_log,
    create_log,
    delete_log,
    encode_command,
    readmit_node,
    register_node,
)
from cluster.metadata import metadata_pb2 as pb
from cluster.raft import METADATA_GROUP, Committed, Outcome, RaftError, stored_groups
from cluster.stale_copy_detection import DirectoryStart
from tests.simulation.checker import Violation
from tests.simulation.watched_groups import state_of

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule
    from tests.simulation.world.nodes import SimNode

RETRY_S = 0.05
"""Between attempts, at most."""


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
        for node in self._schedule.nodes.values():
            self._register(node.id, node.incarnation)
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

    def create_coordinators(self, count: int, replicas: int) -> None:
        self._add(create_log(COORDINATORS, now_ms=1, partitions=count, replicas=replicas))

    def ask(self, command: pb.Command) -> None:
        """Ask for something about moves."""
        self._add(command)

    def logs(self) -> list[LogRecord]:
        """Logs of clients, as they were made."""
        return [self._expected[name] for name in self._clients_logs()]

    def _clients_logs(self) -> list[str]:
        return [name for name in self._expected if name != COORDINATORS]

    def wish(self) -> None:
        """Something else, when all is done."""
        if self._commands:
            return
        randomness = self._schedule.randomness
        extra = [name for name in self._clients_logs() if int(name[4:]) > len(self._schedule.plan.logs)]
        kind = randomness.choice(("create", "alter", "delete", "register", "wrong"))
        if kind == "create" and not extra:
            self._create(1, randomness.randint(1, min(3, len(self._schedule.node_ids))))
        elif kind == "alter" and self._clients_logs():
            name = randomness.choice(self._clients_logs())
            self._add(alter_log(name, retention_bytes=randomness.choice((500, 4000))))
        elif kind == "delete" and extra:
            self._add(delete_log(extra[0]))
        elif kind == "wrong":
            self._add(delete_log("no-such-log"))
        else:
            self.mark()

    def mark(self) -> None:
        """A command that must get through."""
        self._register(self._schedule.randomness.choice(self._schedule.node_ids), 0)

    def _register(self, node: int, incarnation: int) -> None:
        self._add(register_node(node, f"10.0.0.{node}:7000", {"amqp": f"10.0.0.{node}:5672"}, incarnation))

    def register_start(self, node: int, boot: int) -> None:
        """So often its data were started now."""
        self._add(
            register_node(node, f"10.0.0.{node}:7000", {"amqp": f"10.0.0.{node}:5672"}, start=DirectoryStart(boot))
        )

    def readmit(self, node: SimNode) -> None:
        self._add(readmit_node(node.id, node.incarnation))

    @property
    def has_set_up(self) -> bool:
        return len(self._expected) >= len(self._schedule.plan.logs)

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
        elif kind in ("reassign", "cancel_moves"):
            return  # its log may be gone meanwhile
        elif isinstance(result, Ok) != (kind in ("register_node", "readmit_node")):
            raise Violation(f"metadata: {command} -> {result}")

    def _without_moves(self, logs: Mapping[str, LogRecord]) -> dict[str, Any]:
        """Logs as far as it is told where their partitions lie."""
        if not self._schedule.plan.rebalances:
            return dict(logs)
        kept = {name: [one.group for one in log.partitions] for name, log in logs.items()}
        return {name: (groups, replace(logs[name], partitions=())) for name, groups in kept.items()}

    def finish(self, nodes: Sequence[SimNode]) -> None:
        for node in nodes:
            if self._without_moves(node.view.logs) != self._without_moves(self._expected):
                raise Violation(f"node {node.id} has the logs {dict(node.view.logs)}, not {self._expected}")
            node.replicas.reconcile()
            node.replicas.erase_leftovers()
            left = self.deleted_groups & set(stored_groups(node.disk))
            if left:
                raise Violation(f"node {node.id} keeps something of the deleted groups {left}")
        states = {state_of(node.multiraft.groups[METADATA_GROUP]._machine) for node in nodes}
        if len(states) > 1:
            raise Violation(f"metadata differ at the end: {states}")
