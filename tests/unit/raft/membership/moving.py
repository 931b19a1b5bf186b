"""A stage on which a group changes its members: some nodes found it, others are spare until a replica is opened."""

from __future__ import annotations

from typing import Any

from cluster.raft import Outcome, RaftGroup, RaftOptions
from cluster.raft.membership.changes import AppendConfiguration, HandLeadershipOver, MoveEnded, NextStep, Wish
from cluster.raft.membership.configuration import Configuration, Replica
from tests.unit.raft.cluster import GROUP, RaftStage


class MovingStage(RaftStage):
    def __init__(self, founders: int = 3, spare: int = 2, *, options: RaftOptions | None = None) -> None:
        self.founders = list(range(1, founders + 1))
        self.births: dict[int, int] = dict.fromkeys(self.founders, 1)
        self.wish: Wish | None = None
        self.ended_in = 0
        self.version = 15
        super().__init__(founders + spare, options=options)

    def start(self, node: int, preferred: int | None = None, *, mute: bool = False) -> RaftGroup:
        multiraft = self.new_multiraft(node)
        for peer in self.ids:
            if peer in self.multirafts and peer != node:
                multiraft.peer_up(peer)
                self.multirafts[peer].peer_up(node)
        self.machines[node] = self._machine()
        group: Any = self.open(node, self.births[node], mute=mute) if node in self.births else None
        return group  # type: ignore[no-any-return]

    def open(self, node: int, birth: int, *, mute: bool = False, members: list[int] | None = None) -> RaftGroup:
        """As the metadata ask for it. Only founding replicas are told with whom they begin."""
        self.births[node] = birth
        self.machines[node] = self._machine()
        hint = members if members is not None else self.founders if birth == 1 else []
        return self.multirafts[node].open_group(GROUP, hint, self.machines[node], birth=birth, mute=mute)

    def close(self, node: int) -> None:
        """Erase the replica, whose group lives on."""
        self.multirafts[node].close_group(GROUP, erase=True, over=True)
        del self.births[node]

    @property
    def leader(self) -> int | None:
        leads = [n for n, multiraft in self.multirafts.items() if GROUP in multiraft.groups and self.group(n).is_leader]
        return max(leads, key=lambda node: self.group(node).term) if leads else None

    # ---- a driver in small

    def step(self) -> None:
        super().step()
        node = self.leader
        if self.wish is not None and node is not None:
            self.take(self.group(node), self.group(node).next_step(self.wish))

    def take(self, group: RaftGroup, step: NextStep) -> None:
        if isinstance(step, AppendConfiguration):
            group.propose_configuration(step.configuration, ignored)
        elif isinstance(step, HandLeadershipOver) and not group.is_handing_over:
            group.transfer(min(step.candidates))
        elif isinstance(step, MoveEnded):
            self.ended_in, self.wish = step.version, None

    def move(self, wish: Wish, seconds: float = 5.0) -> None:
        """Carry out a wish, as a driver does."""
        if wish.voter is not None and wish.voter.node not in self.births:
            self.open(wish.voter.node, wish.voter.birth)
        self.wish = wish
        self.until(lambda: self.wish is None, seconds)

    def configuration(self, node: int) -> Configuration:
        found = self.group(node).configuration
        assert found is not None
        return found

    def voters(self, node: int) -> list[str]:
        return [str(replica) for replica in sorted(self.configuration(node).voters)]


def ignored(outcome: Outcome) -> None:
    """The driver looks at the configuration instead."""


def led(founders: int = 3, spare: int = 2, by: int = 1, **options: Any) -> MovingStage:
    stage = MovingStage(founders, spare, options=RaftOptions(**options) if options else None)
    if founders > 1:
        stage.elect(by)
    stage.until(lambda: stage.group(by).ready)
    stage.run(0.05)
    return stage


def swap(node: int, birth: int, gone: Replica, move: int = 1, version: int = 1) -> Wish:
    return Wish(move, version, voter=Replica(node, birth), gone=gone)
