"""Handshakes: which process of which node is let in by whom.

In schedules whose plan tells of starts, a link that is up is not enough: a process dials each peer, says Hello, and is
heard only when the peer has judged that and has its start on disk. What decides is the production code: `Who` with its
`Starts`, and `StoredStarts` on the simulated disk. What is made up here is the directory's own count of starts, the
wire, and the time that a sync takes.

What must hold: nobody is ever let in with an older copy of a node's data, and nobody is refused as one who comes with
the latest. Who knows what is kept here by one who sees all, and not taken from the nodes.
"""

from __future__ import annotations

import struct
from asyncio import events
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any

from cluster.rpc.handshake import Who
from cluster.rpc.rpc_pb2 import Hello
from cluster.stale_copy_detection import STARTS_REMEMBERED, DirectoryStart
from node.startup.stored_boot_counters import StoredStarts
from tests.simulation.checker import Violation

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule
    from tests.simulation.world.nodes import SimNode

DIAL_EVERY_S = 0.05
END_NOTICED_WITHIN_S = 0.3
"""That a process has ended, by the peer that it spoke to."""
SYNC_S = (0.0001, 0.02)

_COUNT = b"\xffstarts"
"""Where a simulated disk keeps what a directory has in a file of its own: the count, and the latest marks."""


class Process:
    """One start of a node's data, as the others meet it."""

    def __init__(self, node: SimNode, *, is_copy: bool) -> None:
        self.node = node
        self.is_copy = is_copy
        self._life = node.life
        schedule = node.schedule
        self.start = _counted(node, schedule.randomness.getrandbits(32))
        disk: Any = node.disk
        self.who = Who(
            "simulated", node.id, frozenset(schedule.node_ids) - {node.id}, node.incarnation,
            tuple(schedule.node_ids), lambda peer: node.view.incarnation(peer),
            lambda: node.metadata.remembers_nothing, start=self.start,
            registered_start=lambda peer: node.view.start(peer), memory=StoredStarts(disk, node._failed),
        )  # fmt: skip

    @property
    def lives(self) -> bool:
        return self.node.is_running and self.node.life == self._life


def boot_of(disk: Any) -> int:
    """How often the directory on this disk was started."""
    row = disk.get(_COUNT)
    return 0 if row is None else int(struct.unpack_from(">Q", row)[0])


def _counted(node: SimNode, mark: int) -> DirectoryStart:
    """Counted on its disk, before anybody is told."""
    row = node.disk.get(_COUNT) or bytes(8)
    boot, *marks = struct.unpack(f">Q{(len(row) - 8) // 4}I", row)
    start = DirectoryStart(boot + 1, (*marks, mark)[-STARTS_REMEMBERED:])
    batch = node.disk.batch()
    batch.put(_COUNT, struct.pack(f">Q{len(start.marks)}I", start.boot, *start.marks))
    node.disk.write(batch)
    node.disk.sync()
    return start


class _Loop:
    """As much of an asyncio loop as `StoredStarts` asks for: work for a thread is handed to whoever drives it."""

    @staticmethod
    def run_in_executor(_: None, work: Callable[[], Any]) -> Any:
        class Later:
            def __await__(self) -> Generator[Callable[[], Any], None, None]:
                yield work

        return Later()


class Connections:
    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._standing: dict[tuple[int, int], tuple[Process, Process]] = {}
        self.twins: dict[int, SimNode] = {}
        """Beside the node of that number, on a copy of its data."""
        self.told: dict[tuple[int, int], tuple[int, int]] = {}
        """(a peer, a node) -> incarnation and count of the latest start of the node's data that the peer let in."""

    # ---- who hears whom

    def carries(self, node: SimNode, peer: int) -> bool:
        """What this process sends reaches the peer."""
        found = self._standing.get((node.id, peer))
        return found is not None and found[0].node is node and found[0].lives

    def at(self, node: int) -> SimNode:
        """Who is found at the address of a node: a copy that took it over, if there is one."""
        twin = self.twins.get(node)
        return twin if twin is not None and twin.is_running and twin.has_the_address else self._schedule.nodes[node]

    def receiver(self, sender: int, peer: int) -> SimNode:
        found = self._standing.get((sender, peer))
        return self._schedule.nodes[peer] if found is None else found[1].node

    # ---- life of a process

    def begins(self, node: SimNode) -> None:
        node.process = Process(node, is_copy=node.is_copy)
        for peer in self._schedule.node_ids:
            if peer != node.id:
                self._dial(node.process, peer)

    def ended(self, node: SimNode) -> None:
        for (sender, receiver), pair in list(self._standing.items()):
            if any(process.node is node for process in pair):
                self._break(sender, receiver)

    def link_changed(self, sender: int, receiver: int, *, up: bool) -> None:
        """What stood breaks with its link; what is to stand must be dialled."""
        if not up:
            self._break(sender, receiver)

    def _break(self, sender: int, receiver: int) -> None:
        pair = self._standing.pop((sender, receiver), None)
        if pair is None:
            return
        caller, called = pair
        link = self._schedule.links[sender, receiver]
        if link.is_up:
            link.reset(wild=False)  # what was under way is lost
        if caller.lives:
            caller.node.link_changed(receiver, up=False)
        schedule = self._schedule
        noticed_s = schedule.now + schedule.randomness.uniform(0.0, END_NOTICED_WITHIN_S)
        schedule.at(noticed_s, lambda: self._silent(caller, called))

    def _silent(self, caller: Process, called: Process) -> None:
        standing = self._standing.get((caller.node.id, called.node.id))
        if called.lives and standing is None:
            called.who.starts.silent(caller.node.id)

    # ---- the handshake

    def _dial(self, caller: Process, peer: int) -> None:
        schedule = self._schedule
        if not caller.lives:
            return
        link = schedule.links[caller.node.id, peer]
        if not self.carries(caller.node, peer) and link.is_up and not link.is_cut:
            hello = caller.who.hello_to(peer).SerializeToString()
            schedule.at(self._arrival(), lambda: self._asked(caller, peer, Hello.FromString(hello)))
        schedule.at(schedule.now + DIAL_EVERY_S, lambda: self._dial(caller, peer))

    def _arrival(self) -> float:
        return self._schedule.now + self._schedule.randomness.uniform(0.0002, self._schedule.latency_s)

    def _asked(self, caller: Process, peer: int, hello: Hello) -> None:
        called = getattr(self.at(peer), "process", None)
        both_live = caller.lives and called is not None and called.lives  # a dialled connection ends with its dialler
        if both_live and self._judged(caller, called, hello):
            self._remember(called, called.who.welcome(hello), lambda: self._let_in(caller, called, hello))

    def _judged(self, caller: Process, called: Process, hello: Hello) -> bool:
        """Whether the caller is welcome."""
        if called.who.refusal(hello) is None:
            return called.who.has_to_wait(hello) is None
        fault = called.who.copy_fault(hello)
        if fault is not None:
            if not (caller.is_copy or called.is_copy):
                raise Violation(f"node {called.node.id} takes the latest of node {caller.node.id} for a copy: {fault}")
            self._schedule.at(self._arrival(), lambda: self._told(caller, fault))
        return False

    def _remember(self, called: Process, welcome: Coroutine[Any, Any, None], then: Callable[[], None]) -> None:
        """Runs what production awaits: on to its sync, which takes its time, and through it."""
        schedule = self._schedule
        events._set_running_loop(_Loop)  # type: ignore[arg-type]
        try:
            work = welcome.send(None)
        except StopIteration:
            then()
            return
        finally:
            events._set_running_loop(schedule.loop)

        def synced() -> None:
            if not called.lives:
                welcome.close()
                return
            work()
            try:
                welcome.send(None)
            except StopIteration:
                then()

        schedule.at(schedule.now + schedule.randomness.uniform(*SYNC_S), synced)

    def _let_in(self, caller: Process, called: Process, hello: Hello) -> None:
        sender, receiver = caller.node.id, called.node.id
        link = self._schedule.links[sender, receiver]
        if not (caller.lives and called.lives and link.is_up and self._judged(caller, called, hello)):
            return
        if caller.is_copy and not called.is_copy:
            raise Violation(f"node {receiver} lets an older copy of node {sender} in: start {caller.start.boot} of it")
        if (sender, receiver) in self._standing:
            self._break(sender, receiver)
            return
        called.who.starts.heard(sender, caller.start)
        if not called.is_copy:
            self.told[receiver, sender] = (caller.node.incarnation, caller.start.boot)
        self._standing[sender, receiver] = (caller, called)
        caller.node.link_changed(receiver, up=True)

    def _told(self, caller: Process, fault: str) -> None:
        if caller.lives:
            self._schedule.trace(f"{caller.node.id} IS TOLD that it is a copy: {fault}")
            self._schedule.count("told that it is a copy")
            self._schedule.faults.impostors.told(caller.node)
