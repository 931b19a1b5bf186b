"""A node of a schedule with moves: it hosts Raft groups as the board says, and drives those that it leads."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable
from math import inf
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from cluster.features import Features
from cluster.raft import (
    ChangeRefused,
    NotLeader,
    OtherBirth,
    Outcome,
    RaftGroup,
    erase_group,
    stored_birth,
    stored_configuration,
    stored_groups,
)
from cluster.raft.membership.changes import AppendConfiguration, HandLeadershipOver, MoveEnded, NextStep
from cluster.raft.membership.configuration import Replica
from cluster.versions import MEMBERS_CHANGE_FROM
from node.movement.lifecycle import is_over, opening
from tests.simulation.moving.board import Board, GroupWishes
from tests.simulation.moving.copies import MeteredMultiRaft
from tests.simulation.world.disk import SimBatch
from tests.simulation.world.nodes import SimNode

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule

DRIVE_EVERY_S = 0.05
READ_AGAIN = 0.3
"""Share of the starts in which a node reads the board from the beginning."""


class ListOfEntries:
    """A state machine that remembers what it was given."""

    def __init__(self) -> None:
        self.applied: list[bytes] = []

    def apply(self, index: int, term: int, data: bytes, batch: SimBatch) -> object:
        self.applied.append(data)
        return len(self.applied)

    def checkpoint(self, version: int) -> bytes:
        return b",".join(self.applied)

    def restore(self, index: int, data: bytes | None) -> None:
        self.applied = data.split(b",") if data else []


class _NoReplicas:
    """Stands in for the partitions of a node, of which there are none."""

    def __init__(self) -> None:
        self.input = self

    def flush(self, now: float) -> None:
        """Nothing waits for company."""

    def due_s(self) -> float:
        return inf


class _BoardView:
    """Stands in for the metadata where a readmission is judged: they know the disk at once."""

    def __init__(self, node: MovingNode) -> None:
        self._node = node

    def incarnation(self, node: int) -> int:
        return self._node.incarnation

    def hosted_by(self, node: int) -> Iterable[Any]:
        wanted = self._node.board.now().items()
        return [(None, SimpleNamespace(group=number)) for number, known in wanted if known.birth_on(node) is not None]


class MovingNode(SimNode):
    """Nothing is opened for the first time, closed or erased before the node has read all that was posted when it
    started: what it knows until then may be about lives that are over, and its own disk may have forgotten them."""

    def __init__(self, schedule: Schedule, node_id: int) -> None:
        self.seen = 0
        super().__init__(schedule, node_id)

    @property
    def board(self) -> Board:
        board: Board = self.schedule.load.board  # type: ignore[attr-defined]
        return board

    # ---- life

    def _features(self) -> Features:
        return Features(heard=MEMBERS_CHANGE_FROM)

    def _compose(self) -> None:
        schedule: Any = self.schedule
        randomness = random.Random(schedule.randomness.getrandbits(64))
        self.features = self._features()
        self.multiraft = MeteredMultiRaft(
            self.id, self.disk, self.clock, randomness, self._send, schedule.plan.options,
            alone=False, active_version=lambda: self.features.version,
        )  # fmt: skip
        self.multiraft.node = self
        self.multiraft.on_wake = self._wake
        self.multiraft.on_quarantined = self._quarantined
        self.multiraft.on_fetch = self._fetch
        self.replicas = _NoReplicas()  # type: ignore[assignment]
        self.view: Any = _BoardView(self)
        self.machines: dict[int, ListOfEntries] = {}
        if schedule.randomness.random() < READ_AGAIN:
            self.seen = 0
        self._posted_at_start, self._is_confirmed = self.board.length, False
        self.after(schedule.now, self._follow)
        self.after(schedule.now, self._drive)

    def replace(self) -> None:
        self.board.disk_lost(self.id, self.incarnation + 1)
        super().replace()

    def compaction(self) -> None:
        randomness = self.schedule.randomness
        for group in self.multiraft.groups.values():
            if randomness.random() < 0.3 and group.applied_index > group.first_index:
                group.trim(randomness.randint(group.first_index, group.applied_index))

    # ---- the board

    def _follow(self) -> None:
        """Read the next posting, and open, close and erase by what is known then."""
        board, randomness = self.board, self.schedule.randomness
        if self.seen < board.length:
            self.seen += self._read_at_once()
        self._is_confirmed = self._is_confirmed or self.seen >= self._posted_at_start
        if board.knows(self.id, self.incarnation, self.seen):
            for number, known in board.read(self.seen, self.id).items():
                self._reconcile(number, known)
        hurries = self.seen < board.length and randomness.random() < 0.7
        self.after(self.schedule.now + randomness.uniform(0.0, 0.02 if hurries else 0.3), self._follow)

    def _read_at_once(self) -> int:
        return 1

    def _reconcile(self, number: int, known: GroupWishes) -> None:
        group, birth = self.multiraft.groups.get(number), known.birth_on(self.id)
        may_end = self._is_confirmed and group is not None and birth != group.birth
        if may_end and group is not None and is_over(group.configuration, known.configuration.version):
            self._erase(group)
            group = None
        if group is None and birth is not None:
            self._open(number, birth, known)
        elif group is None and self._is_confirmed:
            self._erase_leftover(number, known)

    def _open(self, number: int, birth: int, known: GroupWishes) -> None:
        judge: Any = self.board.judges[number]
        lost = self.board.lost_on(self.id, number, self.seen)
        found = opening(known.as_record(number), self.id, self.disk, lost)
        if found is None or (found.is_new and not self._is_confirmed):
            return
        self.machines[number] = machine = ListOfEntries()
        with contextlib.suppress(OtherBirth):
            group = self.multiraft.open_group(
                number, found.members, machine, birth=found.birth, mute=found.mute,
            )  # fmt: skip
            if found.is_new and not group.log_store.mute:
                judge.opens(Replica(self.id, birth))
            self.schedule.trace(f"{self.id} opens group {number} as birth {birth}")

    def _erase_leftover(self, number: int, known: GroupWishes) -> None:
        """Erase what an earlier process has left of a replica that has no place any more."""
        birth = stored_birth(number, self.disk)
        if birth is None:
            return
        latest = stored_configuration(number, self.disk)
        if is_over(latest, known.configuration.version):
            self.board.judges[number].erases(Replica(self.id, birth))
            batch = self.disk.batch()
            erase_group(number, batch, birth)
            self.disk.write(batch)
            self.schedule.count("leftover erased")

    def _erase(self, group: RaftGroup) -> None:
        number, judge = group.group_id, self.board.judges[group.group_id]
        judge.erases(Replica(self.id, group.birth))
        self.schedule.trace(f"{self.id} erases birth {group.birth} of group {number}")
        self.schedule.count("erased")
        self.multiraft.close_group(number, erase=True, over=True)
        self.readmission.group_ended(number)

    # ---- the driver

    def _drive(self) -> None:
        randomness = self.schedule.randomness
        read = self.board.read(self.seen, self.id)
        for group in list(self.multiraft.groups.values()):
            known = read.get(group.group_id)
            if known is not None and group.is_leader:
                with contextlib.suppress(NotLeader, ChangeRefused):
                    self._step(group, known)
        self.after(self.schedule.now + randomness.uniform(0.3, 1.0) * DRIVE_EVERY_S, self._drive)

    def _step(self, group: RaftGroup, known: GroupWishes) -> None:
        step = group.next_step(known.wish)
        if isinstance(step, AppendConfiguration):
            self.schedule.trace(f"{self.id} changes group {group.group_id}: {step.configuration}")
            group.propose_configuration(step.configuration, _not_waited_for)
            self.schedule.count("joint" if step.configuration.is_joint else "change")
        elif isinstance(step, HandLeadershipOver):
            self.schedule.count("handed over")
            group.transfer(self.schedule.randomness.choice(sorted(step.candidates)))
        else:
            self._end(step, group, known)

    def _end(self, step: NextStep, group: RaftGroup, known: GroupWishes) -> None:
        if isinstance(step, MoveEnded) and known.wish is not None and group.configuration is not None:
            self.board.finish(group.group_id, known.wish, group.configuration)

    def describe(self) -> str:
        groups = self.multiraft.groups.values() if self.is_running else ()
        told = [f"{g.group_id}/{g.birth}{' mute' if g.log_store.mute else ''}: {g.configuration}" for g in groups]
        return f"{super().describe()}; {self.id} has read {self.seen}: {told}"

    def stored(self) -> list[int]:
        return stored_groups(self.disk)


def _not_waited_for(outcome: Outcome) -> None:
    """The configuration in force tells."""
