"""Clients of a cluster whose nodes change between two releases, and an operator that activates the later version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cluster.metadata import Ok, activate_version, register_node
from cluster.metadata import metadata_pb2 as pb
from cluster.stale_copy_detection import DirectoryStart
from tests.simulation.checker import Violation
from tests.simulation.mixed.machines import EARLIER_PROGRAM, LATER
from tests.simulation.workload.administrator import Administrator
from tests.simulation.workload.load import ClusterLoad

if TYPE_CHECKING:
    from tests.simulation.mixed.node import MixedNode
    from tests.simulation.schedule import Schedule


class MixedAdministrator(Administrator):
    """Each start of a node is registered, with the versions of its program."""

    def _register(self, node: int, incarnation: int) -> None:
        target: Any = self._schedule.nodes[node]
        start = DirectoryStart(target.boot, (target.boot,))
        address = f"10.0.0.{node}"
        self._add(
            register_node(
                node, f"{address}:7000", {"amqp": f"{address}:5672"}, target.incarnation, start, versions=target.program
            )
        )

    def registers(self, node: MixedNode) -> None:
        self._register(node.id, 0)

    def wish(self) -> None:
        """Activate what some node knows of, whether all are there or not; sometimes some are taken back just then."""
        randomness = self._schedule.randomness
        running: list[Any] = [node for node in self._schedule.nodes.values() if node.is_running]
        if self._commands or not running or randomness.random() < 0.3:
            super().wish()
            return
        node = randomness.choice(running)
        self._add(activate_version(LATER, node.view.nodes.values()))
        if randomness.random() < 0.5:
            for taken in randomness.sample(running, randomness.randint(1, len(running))):
                taken.install(later=False)

    def _answered(self, command: pb.Command, result: object) -> None:
        kind = command.WhichOneof("command")
        if kind not in ("register_node", "activate_version"):
            super()._answered(command, result)
            return
        assert self._commands[0] is command
        del self._commands[0]
        self._schedule.trace(f"metadata: {kind} -> {result}")
        if kind == "register_node" and not isinstance(result, Ok):
            self._not_registered(command.register_node, result)
        if kind == "activate_version":
            self._schedule.count("activated" if isinstance(result, Ok) else "activation refused")

    def _not_registered(self, asked: pb.RegisterNode, result: object) -> None:
        load: Any = self._schedule.load
        node: Any = self._schedule.nodes[asked.node]
        if "is known by the data of incarnation" in str(result) and node.lacks_memory:
            self._register(node.id, 0)  # once it is readmitted
        elif not (load.is_activated and asked.newest < LATER):
            raise Violation(f"metadata: {asked} -> {result}")


class MixedLoad(ClusterLoad):
    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule)
        self.admin: MixedAdministrator = MixedAdministrator(schedule, self._log_created)
        self.registered_at_activation: dict[int, int] = {}

    @property
    def is_activated(self) -> bool:
        return bool(self.registered_at_activation)

    def activated(self, starts: dict[int, int]) -> None:
        """The metadata have activated the later version; `starts`: those that they knew then, by node."""
        self.registered_at_activation = self.registered_at_activation or starts

    def registers(self, node: MixedNode) -> None:
        self.admin.registers(node)

    def begin_healing(self, healthy: Sequence[Any]) -> None:
        super().begin_healing(healthy)
        self._install(healthy)

    def is_healthy(self) -> bool:
        self._install(self._healthy)
        return super().is_healthy()

    def _install(self, nodes: Sequence[Any]) -> None:
        """Once the later version is active, somebody installs the later release on all nodes."""
        for node in nodes:
            if self.is_activated and node.program == EARLIER_PROGRAM:
                node.install(later=True)
