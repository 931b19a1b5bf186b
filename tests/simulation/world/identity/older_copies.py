"""Nodes that are brought back from older copies of their disks: what must come out then, and by whom.

Today nothing tells such a node from its original. What holds is this: a leader repeats to each member the last entry
that the member acknowledged in the leader's term, and who lacks it loses its vote. So a copy is put back where such
leaders are there, for every group of the node, and where too few other members lack what it acknowledged to elect one
of them with its vote before it hears the leader. Until it has come out nothing else goes wrong. A node that comes back
anywhere else may lose what was acknowledged: that is known, and not asked for here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cluster.raft import RaftGroup
from tests.simulation.checker import Empty, Violation
from tests.simulation.world.disk import SimDisk

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule
    from tests.simulation.world.nodes import SimNode

NOTICED_WITHIN_S = 1.5
"""A leader tells each member ten times a second what it knows of it; a connection comes back within a moment."""
LOOK_EVERY_S = 0.01


@dataclass(frozen=True)
class Image:
    """A backup, made while the node ran."""

    incarnation: int
    disk: SimDisk
    terms: dict[int, int]  # by group
    lasts: dict[int, int]
    """The last entry of each group that it holds."""


@dataclass(frozen=True)
class Proof:
    """A leader was told in its term of an entry that the copy does not hold."""

    leader: SimNode
    life: int
    term: int

    def stands(self, group_id: int) -> bool:
        """The leader still leads that term."""
        leader = self.leader
        return (
            leader.life == self.life and leader.leads(group_id) and leader.multiraft.groups[group_id].term == self.term
        )


class OlderCopies:
    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._images: dict[int, Image] = {}
        self.awaited = False
        """A node was brought back, and what it lacks has not come out."""

    def take(self, node: SimNode) -> None:
        if node.is_running:
            groups = node.multiraft.groups.items()
            terms = {group_id: group.term for group_id, group in groups}
            lasts = {group_id: group.log_store.written for group_id, group in groups}
            self._images[node.id] = Image(node.incarnation, node.disk.image(), terms, lasts)

    def put_back(self, node: SimNode) -> bool:
        image = self._images.get(node.id)
        if image is None or image.incarnation != node.incarnation or not node.is_running:
            return False
        if not image.terms.keys() <= node.multiraft.groups.keys():
            return False  # a log was deleted since: one of a single replica leads again at once, until it hears of that
        if not all(self._leader_knows(node, group, image) for group in node.multiraft.groups.values()):
            return False
        forgotten = self._forgotten(node, image)
        if any(self._make_a_majority(node, led) for led in forgotten.values()):
            return False
        proofs = {group_id: self._proof(group) for group_id, group in forgotten.items()}
        del self._images[node.id]
        for link in self._schedule.links.values():
            link.heal()
        node.roll_back(image.disk)
        self.awaited = True
        self._look(node, proofs, until=self._schedule.now + NOTICED_WITHIN_S)
        return True

    def _leader_knows(self, node: SimNode, group: RaftGroup, image: Image) -> bool:
        """One that leads the term in which the copy was made knows how far the node's log went."""
        leader = self._schedule.nodes.get(group.leader or 0)
        if leader is None or leader is node or not leader.leads(group.group_id):
            return False
        led = leader.multiraft.groups[group.group_id]
        return led.term == group.term == image.terms.get(group.group_id)

    def _make_a_majority(self, node: SimNode, led: RaftGroup) -> bool:
        """The copy and the members that lack some of what its original acknowledged."""
        group_id, acknowledged = led.group_id, led.match_index(node.id)
        others = [self._schedule.nodes[member] for member in led.members if member != node.id]
        lacking = [
            one for one in others
            if not one.is_running or one.multiraft.groups[group_id].log_store.written < acknowledged
        ]  # fmt: skip
        return 2 * (1 + len(lacking)) > len(led.members)

    def _forgotten(self, node: SimNode, image: Image) -> dict[int, RaftGroup]:
        """In which the node has acknowledged more than the copy holds."""
        groups = {group_id: self._led(group) for group_id, group in node.multiraft.groups.items()}
        return {group_id: led for group_id, led in groups.items() if led.match_index(node.id) > image.lasts[group_id]}

    def _led(self, group: RaftGroup) -> RaftGroup:
        leader = self._schedule.nodes[group.leader or 0]
        return leader.multiraft.groups[group.group_id]

    def _proof(self, led: RaftGroup) -> Proof:
        leader = self._schedule.nodes[led.leader or 0]
        return Proof(leader, leader.life, led.term)

    def _look(self, node: SimNode, proofs: dict[int, Proof], until: float) -> None:
        schedule, come_out = self._schedule, node.readmission.has_been_mute_in
        proofs = {group_id: proof for group_id, proof in proofs.items() if group_id not in come_out}
        if not all(proof.stands(group_id) for group_id, proof in proofs.items()):
            raise Empty(f"node {node.id} was brought back, and the leader that could tell was lost")
        if not proofs:
            self.awaited = False
        elif schedule.now > until:
            raise Violation(f"node {node.id} lacks what it acknowledged, and goes on voting in the groups {[*proofs]}")
        else:
            schedule.at(schedule.now + LOOK_EVERY_S, lambda: self._look(node, proofs, until))
