"""Older copies of a node's data at work: in place of the original, or beside it.

A copy is one of a start after which the node was started again, and all the others have let that later start in: then
whatever breaks, and however often the copy is started, nobody may hear it (`connections.py` judges that), and so
nothing that was acknowledged is lost. Who is told that it works on a copy ends, and the node goes on with its original
data. What nobody can tell, a copy of the very latest start, is not asked for here; `older_copies.py` has what is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.simulation.world.disk import SimDisk
from tests.simulation.world.identity.connections import Connections, boot_of
from tests.simulation.world.nodes import SimNode

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule

IMAGES = 4
"""Of each node that are kept."""
BACK_AFTER_S = 0.3
ADDRESS_TAKEN = 0.3
"""Of the copies beside an original so many are found at its address."""


@dataclass(frozen=True)
class Backup:
    incarnation: int
    boot: int
    disk: SimDisk


class Impostor(SimNode):
    """A second process of a node: a machine was cloned. Clients do not know it."""

    def __init__(self, schedule: Schedule, original: SimNode, disk: SimDisk) -> None:
        super().__init__(schedule, original.id)
        self.disk, self.incarnation, self.is_copy = disk, original.incarnation, True
        self.has_the_address = schedule.randomness.random() < ADDRESS_TAKEN
        self.readmission.disk_lost(rolled_back=True)

    def _forget_answers(self) -> None:
        """They are the original's."""


class Impostors:
    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._backups: dict[int, list[Backup]] = {}
        self._originals: dict[int, SimDisk] = {}

    @property
    def _connections(self) -> Connections:
        assert self._schedule.connections is not None, "nobody tells these apart where starts are not told"
        return self._schedule.connections

    @property
    def awaited(self) -> bool:
        """A copy is about, and has not been told."""
        return self._schedule.connections is not None and bool(self._originals or self._connections.twins)

    def take(self, node: SimNode) -> None:
        """Somebody makes a backup of a node's disk."""
        if self._schedule.connections is not None and node.is_running and not node.is_copy:
            kept = self._backups.setdefault(node.id, [])
            kept.append(Backup(node.incarnation, boot_of(node.disk), node.disk.image()))
            del kept[:-IMAGES]

    def put_back(self, node: SimNode) -> bool:
        backup = self._older(node)
        if backup is None or not node.is_running:
            return False
        node.crash(lose_unsynced=False)
        self._originals[node.id] = node.disk
        self._comes_as(node, backup.disk.image(), is_copy=True)
        return True

    def beside(self, node: SimNode) -> bool:
        backup = self._older(node)
        if backup is None:
            return False
        twin = self._connections.twins[node.id] = Impostor(self._schedule, node, backup.disk.image())
        twin.start()
        return True

    def _older(self, node: SimNode) -> Backup | None:
        """One of a start that is known by all to be past. None while another copy is about: copies of different nodes
        believe each other, and then take an original for a copy."""
        if self.awaited:
            return None
        others = [peer for peer in self._schedule.node_ids if peer != node.id]
        told = [self._connections.told.get((peer, node.id), (0, 0)) for peer in others]
        for backup in self._backups.get(node.id, ()):
            known = all(incarnation == node.incarnation and boot > backup.boot for incarnation, boot in told)
            if known and backup.incarnation == node.incarnation:
                return backup
        return None

    def told(self, node: SimNode) -> None:
        """It notes that on its disk, which nobody starts on again, and ends; the node goes on with its original."""
        if self._connections.twins.get(node.id) is node:
            del self._connections.twins[node.id]
            node.end()
            return
        node.end()
        schedule = self._schedule
        node.disk = self._originals.pop(node.id)
        node.is_copy = False
        node.readmission.memory_is_back()
        schedule.at(schedule.now + schedule.randomness.uniform(0.0, BACK_AFTER_S), lambda: schedule.start(node))

    def _comes_as(self, node: SimNode, disk: SimDisk, *, is_copy: bool) -> None:
        node.disk, node.is_copy = disk, is_copy
        node.readmission.disk_lost(rolled_back=True)
        node.start()
