"""Assigns partitions to the members of a consumer group that leave the choice to the nodes.

The problem: members come and go at different nodes, and each partition's owner is decided in that partition's own Raft
group. One node has to see all of it, or the fair shares come out wrong; and safety must not depend on it.
The rules never broken: an assignment is advice, the claim that follows it decides; a partition changes hands only when
that makes the shares more even, by one at a time, so every move is needed; an owner of too many is asked to let go, and
loses nothing until it did, or was silent for long.

The leader of a log's first partition advises for all groups of the log. Besides the partitions' own tables it knows
only which links wait, and they repeat that every second: a successor that knows nothing has the whole picture soon.

A member is a container-id; it owns too much if it has more than the waiting member's share plus one. A free partition
goes to the waiting member with the least, the longest waiting first. A link that attaches again under its own name gets
its own partition back while its claim still stands. Owners that claimed with an epoch chose their partition themselves:
they count, but they are not moved.

Rejected: one plan for all members, computed at each change (it moves more than is needed, and must be agreed on).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from node.partition.api import Failed, LogView, PartitionHandle
from node.partition.consumer_groups.group_queries import Assign, Assigned, GroupList, ListGroups, Revoke

MAX_WAITING = 1000
"""Attaches that wait for a partition of one group: each asks every second."""

TICKET_S = 3.0
"""Life of a waiting link that does not ask again: its node is gone. Three times the time between two questions."""

ANSWER_S = 1.0
"""Time after which a question is answered in any case, so that the asking node's attach stays alive."""

GATHER_S = 0.3
"""Time from the first member of a group to the first assignment: members that start together share from the start."""

BUSY_S, IDLE_S = 0.1, 0.5
"""Time between two looks at the partitions: while some change hands, and while nothing moves."""

LOOK_S = 1.0
"""Time for a leader to answer a look; without an answer it does not count in it."""

RESERVED_S = 3.0
"""Time that an assigned partition is kept for its member until its claim."""

REVOKED_S = 10.0
"""Time for an owner to let go; then it is asked again."""


Held = tuple[str, int]
"""A partition, and a claim on it: each partition numbers its claims for itself."""


@dataclass(frozen=True, slots=True)
class PartitionOwnership:
    """A partition's ownership, as its leader has it."""

    partition: str
    leader: int | None = None
    active: bool = False
    present: bool = False
    member: str = ""
    identity: str = ""
    claim: int = 0
    epoch: int = 0

    @property
    def held(self) -> Held:
        return self.partition, self.claim


@dataclass(slots=True)
class WaitingLink:
    member: str
    identity: str
    node: int
    since_s: float
    seen_s: float


@dataclass(frozen=True, slots=True)
class Assignment:
    assigned: Mapping[str, str]  # identity of the waiting link -> partition
    revoke: Sequence[PartitionOwnership]
    entitled: frozenset[str]  # identities that will get the partitions being released


def decide(
    ownerships: Sequence[PartitionOwnership],
    waiting_links: Sequence[WaitingLink],
    reserved: Mapping[str, str],
    revoked: frozenset[Held],
) -> Assignment:
    """Assign free partitions, and choose the owners to revoke. `waiting_links`: without those that a partition is
    reserved for. `reserved`: partition -> member. `revoked`: claims whose owners were asked to let go."""
    counts: Counter[str] = Counter({waiting_link.member: 0 for waiting_link in waiting_links})
    counts.update(ownership.member for ownership in ownerships if ownership.active and ownership.held not in revoked)
    counts.update(
        reserved[ownership.partition]
        for ownership in ownerships
        if not ownership.active and ownership.partition in reserved
    )
    waiting = list(waiting_links)
    assigned: dict[str, str] = {}
    for waiting_link in waiting_links:
        for ownership in ownerships:
            if ownership.active and not ownership.present and ownership.identity == waiting_link.identity:
                assigned[waiting_link.identity] = ownership.partition
                waiting.remove(waiting_link)
                break

    def take() -> WaitingLink:
        """The waiting link whose turn it is."""
        chosen = min(waiting, key=lambda waiting_link: (counts[waiting_link.member], waiting_link.since_s))
        counts[chosen.member] += 1
        waiting.remove(chosen)
        return chosen

    free = [ownership for ownership in ownerships if not ownership.active and ownership.partition not in reserved]
    while free and waiting:
        waiting_link = take()
        ownership = next((ownership for ownership in free if ownership.leader == waiting_link.node), free[0])
        free.remove(ownership)
        assigned[waiting_link.identity] = ownership.partition
    entitled: set[str] = set()
    coming = sum(ownership.active and ownership.held in revoked for ownership in ownerships)
    while coming and waiting:
        coming -= 1
        entitled.add(take().identity)
    movable = [
        ownership
        for ownership in ownerships
        if ownership.present and ownership.held not in revoked and ownership.epoch == 0
    ]
    revoke: list[PartitionOwnership] = []
    while movable and waiting:
        ownership = max(movable, key=lambda ownership: (counts[ownership.member], ownership.claim))
        if counts[ownership.member] < min(counts[waiting_link.member] for waiting_link in waiting) + 2:
            break
        movable.remove(ownership)
        revoke.append(ownership)
        counts[ownership.member] -= 1
        entitled.add(take().identity)
    return Assignment(assigned, revoke, frozenset(entitled))


class AssignorView(Protocol):
    """The part of a listener's broker that the assignor needs."""

    def describe(self, log: str) -> LogView | None: ...
    def leader(self, log: str, partition: str) -> int | None: ...
    def handle(self, log: str, partition: str) -> PartitionHandle: ...


@dataclass
class _Group:
    born_s: float
    waiting_links: dict[str, WaitingLink] = field(default_factory=dict)  # by identity
    reserved: dict[str, tuple[WaitingLink, float]] = field(default_factory=dict)  # partition -> (link, until when)
    revoked: dict[Held, float] = field(default_factory=dict)  # until when
    ownerships: list[PartitionOwnership] | None = None
    looked_s: float = -1.0
    entitled: frozenset[str] = frozenset()
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def reserved_for(self, identity: str) -> str | None:
        found = (
            partition for partition, (waiting_link, _) in self.reserved.items() if waiting_link.identity == identity
        )
        return next(found, None)


class Assignor:
    def __init__(self, view: AssignorView, now_s: Callable[[], float]) -> None:
        self._view = view
        self._now_s = now_s
        self._groups: dict[tuple[str, str], _Group] = {}

    async def assign(self, question: Assign) -> Assigned | Failed:
        """Answer within ANSWER_S or so."""
        now_s = self._now_s()
        self._forget_old(now_s)
        group = self._groups.setdefault((question.log, question.key), _Group(now_s))
        if question.leaving:
            self._leave(group, question.identity)
            return Assigned()
        waiting_link = group.waiting_links.get(question.identity)
        if waiting_link is None:
            if len(group.waiting_links) >= MAX_WAITING:
                detail = f"{MAX_WAITING} receivers wait for partitions of group {question.key!r} already"
                return Failed("overloaded", False, detail)
            waiting_link = WaitingLink(question.member, question.identity, question.node, now_s, now_s)
            group.waiting_links[question.identity] = waiting_link
            group.looked_s = -1.0  # look now
        deadline_s = now_s + ANSWER_S
        while True:
            waiting_link.seen_s = now_s = self._now_s()
            problem = await self._advance(question, group)
            if problem is not None:
                return problem
            partition = group.reserved_for(question.identity)
            if partition is not None:
                group.waiting_links.pop(question.identity, None)
                return Assigned(partition)
            if now_s >= deadline_s:
                return Assigned(None, question.identity in group.entitled or group.ownerships is None)
            await asyncio.sleep(BUSY_S)

    async def _advance(self, question: Assign, group: _Group) -> Failed | None:
        """Look at the partitions if it is time, and decide."""
        async with group.lock:
            now_s = self._now_s()
            pause_s = BUSY_S if group.reserved or group.revoked else IDLE_S
            if now_s < group.born_s + GATHER_S or now_s < group.looked_s + pause_s:
                return None
            view = self._view.describe(question.log)
            if view is None:
                return Failed("deleted", False, f"log {question.log!r} was deleted")
            ownerships = await self._look(view, question.key)
            group.ownerships, group.looked_s = ownerships, now_s
            self._expire(group, now_s)
            waiting = [
                waiting_link
                for waiting_link in group.waiting_links.values()
                if group.reserved_for(waiting_link.identity) is None
            ]
            reserved = {partition: waiting_link.member for partition, (waiting_link, _) in group.reserved.items()}
            decision = decide(ownerships, waiting, reserved, frozenset(group.revoked))
            group.entitled = decision.entitled
            for identity, partition in decision.assigned.items():
                group.reserved[partition] = (group.waiting_links[identity], now_s + RESERVED_S)
            if len(ownerships) < len(view.partitions):
                return None  # some have no leader now: free partitions can be given, but the excess is unknown
            for ownership in decision.revoke:
                group.revoked[ownership.held] = now_s + REVOKED_S
                await self._view.handle(question.log, ownership.partition).ask(Revoke(question.key, ownership.claim))
        return None

    async def _look(self, view: LogView, key: str) -> list[PartitionOwnership]:
        """Ask the leaders; the partitions whose leaders answer."""

        async def ask(partition: str) -> object:
            try:
                async with asyncio.timeout(LOOK_S):
                    return await self._view.handle(view.name, partition).ask(ListGroups(key, confirm=False))
            except TimeoutError:
                return None

        answers = await asyncio.gather(*map(ask, view.partitions))
        ownerships: list[PartitionOwnership] = []
        for partition, answer in zip(view.partitions, answers, strict=True):
            if not isinstance(answer, GroupList):
                continue
            leader = self._view.leader(view.name, partition)
            row = answer.groups[0] if answer.groups else None
            if row is None or not row.active:
                ownerships.append(PartitionOwnership(partition, leader))
            else:
                ownerships.append(
                    PartitionOwnership(
                        partition, leader, True, row.present, row.member, row.identity, row.claim, row.epoch
                    )
                )
        return ownerships

    @staticmethod
    def _expire(group: _Group, now_s: float) -> None:
        ownerships = {ownership.partition: ownership for ownership in group.ownerships or ()}
        held = {ownership.held for ownership in ownerships.values() if ownership.active}
        for identity in [
            one for one, waiting_link in group.waiting_links.items() if waiting_link.seen_s + TICKET_S < now_s
        ]:
            del group.waiting_links[identity]
        for partition, (waiting_link, until_s) in list(group.reserved.items()):
            ownership = ownerships.get(partition)
            taken = (
                ownership is not None
                and ownership.active
                and (ownership.present or ownership.identity != waiting_link.identity)
            )
            if taken or until_s < now_s:
                del group.reserved[partition]
        for claim, until_s in list(group.revoked.items()):
            if claim not in held or until_s < now_s:
                del group.revoked[claim]

    @staticmethod
    def _leave(group: _Group, identity: str) -> None:
        group.waiting_links.pop(identity, None)
        partition = group.reserved_for(identity)
        if partition is not None:
            del group.reserved[partition]

    def _forget_old(self, now_s: float) -> None:
        for key, group in list(self._groups.items()):
            fresh = group.born_s + TICKET_S >= now_s or group.reserved or group.lock.locked()
            if not fresh and all(
                waiting_link.seen_s + TICKET_S < now_s for waiting_link in group.waiting_links.values()
            ):
                del self._groups[key]
