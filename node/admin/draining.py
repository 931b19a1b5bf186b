"""Moving a node's leaderships to others before it is stopped.

The problem: a leader that just stops costs its clients an election; a transfer costs them a round trip.
The rules: a leadership goes only to a member that is connected and holds all committed entries; leaderships that cannot
move stay, and are reported. A node that is being drained hands on at once each leadership that it gets again (the
others prefer it for some partitions and do not know), until it is stopped or resumed.
Rejected: a replicated "draining" mark; it outlives the restart that it was made for, and an operator has to remember to
take it away.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Protocol

from cluster.raft import MultiRaft, RaftGroup
from node.routing_events import RoutingEvents

log = logging.getLogger("holdfast.drain")

RETRY_S = 1.2
"""Time between attempts: Raft gives up a transfer after a second; only then another try is worth it."""

NEAR_ENTRIES = 256
"""Entries that a follower may lack of the commit index: it has the rest before a transfer is given up; under load it is
never nearer than a few turns of the loop."""


OPERATOR = "an operator asked for it"


class Targets(Protocol):
    def is_up(self, node: int) -> bool: ...


class Drain:
    """Draining of a node. `active`: no leadership is wanted here, by an operator's word or for a reason of the node's
    own."""

    def __init__(self, node_id: int, multiraft: MultiRaft, peers: Targets, routing_events: RoutingEvents) -> None:
        self._node_id = node_id
        self._multiraft = multiraft
        self._peers = peers
        self._routing_events = routing_events
        self._tried: dict[int, tuple[int, float]] = {}  # group -> term and time of the last attempt
        self._again: asyncio.TimerHandle | None = None
        self._reasons: set[str] = set()
        routing_events.subscribe(self._changed)

    @property
    def active(self) -> bool:
        return bool(self._reasons)

    def avoid(self, reason: str) -> None:
        """Hand on all leaderships for a reason of this node's own, until `welcome`."""
        self._reasons.add(reason)
        self._move()

    def welcome(self, reason: str) -> None:
        self._reasons.discard(reason)

    def led(self) -> list[int]:
        """Groups that this node leads, the metadata group (0) included."""
        return [number for number, group in self._multiraft.groups.items() if group.is_leader]

    def movable(self) -> list[int]:
        """Groups led here that another member could lead now."""
        return [number for number in self.led() if self._candidates(self._multiraft.groups[number])]

    async def run(self, timeout_s: float) -> list[int]:
        """Drain, and go on doing so. Returns the groups that this node still leads: no other can, or time was up."""
        if not self.active:
            log.info("draining: %d leadership(s) are moved to other nodes", len(self.led()))
        self._reasons.add(OPERATOR)
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        self._move()
        while self._under_way() and (left_s := deadline_s - asyncio.get_running_loop().time()) > 0:
            await self._routing_events.wait(min(left_s, RETRY_S))
            self._move()
        return self.led()

    def _under_way(self) -> bool:
        """True while a leadership can still move, or was given up here and is not taken up elsewhere yet."""
        return bool(self.movable()) or any(group.leader is None for group in self._multiraft.groups.values())

    async def leave(self, timeout_s: float) -> None:
        """Hand on each present leadership once, before this node stops. When all nodes stop together, more would go
        round for ever."""
        leaving = [(group, group.term) for group in self._multiraft.groups.values() if group.is_leader]
        self._reasons.add(OPERATOR)
        self._move()

        def left() -> bool:
            return not any(
                g.leader is None or (g.is_leader and g.term == term and self._candidates(g)) for g, term in leaving
            )

        await self._routing_events.until(left, timeout_s)

    def resume(self) -> None:
        """Welcome leaderships again; the preferred ones come back by themselves."""
        self._reasons.discard(OPERATOR)
        self._tried.clear()
        log.info("draining has ended: leaderships are welcome again")

    def _changed(self) -> None:
        if self.active:
            self._move()

    def _retry(self) -> None:
        self._again = None
        self._changed()

    def _move(self) -> None:
        now_s = asyncio.get_running_loop().time()
        held: Counter[int] = Counter()
        for group in self._multiraft.groups.values():
            if group.leader is not None:
                held[group.leader] += 1
        for number in self.led():
            group = self._multiraft.groups[number]
            if self._again is None:
                self._again = asyncio.get_running_loop().call_later(RETRY_S, self._retry)
            term, tried_s = self._tried.get(number, (0, 0.0))
            if term == group.term and now_s - tried_s < RETRY_S:
                continue
            candidates = self._candidates(group)
            if candidates:
                target = min(candidates, key=lambda node: (held[node], node))
                held[target] += 1
                self._tried[number] = (group.term, now_s)
                log.info("group %d, term %d: leadership goes to node %d", number, group.term, target)
                group.transfer(target)

    def _candidates(self, group: RaftGroup) -> list[int]:
        """Members that could take over within a round trip or two."""
        return [
            node
            for node in group.members
            if node != self._node_id
            and group.has_vote(node)
            and self._peers.is_up(node)
            and group.may_lead(node)
            and group.commit_index - group.match_index(node) <= NEAR_ENTRIES
        ]
