"""Which member of a consumer group gets which partition, when the members leave that to the nodes.

The problem: members come and go at different nodes, and each partition's owner is decided in that partition's own Raft
group. Somebody has to see all of it, or the fair shares come out wrong; and nobody may be needed for safety.
The rules never broken: an assignment is advice, the claim that follows it decides; a partition changes hands only when
that makes the shares more even, by one at a time, so every move is needed; who owns too much is asked to let go and
loses nothing until it did, or was silent for long.

The leader of a log's first partition advises for all groups of the log. All it knows beside the partitions' own tables
is who waits, and that it is told again every second: a successor that knows nothing has the whole picture soon.

A member is a container-id; what it owns too much is what is above the share of the one that waits, plus one. A free
partition goes to the waiting member with the least, the longest waiting first. A link that attaches again under its own
name gets its own partition back while its claim still stands. Owners that claimed with an epoch chose their partition
themselves: they count, but they are not moved.

Rejected: one plan for all members, computed at each change (it moves more than is needed, and must be agreed on).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from node.partition.api import Failed, LogView, PartitionHandle
from node.partition.consumer_groups.queries import (
    Assign,
    Assigned,
    GroupList,
    ListGroups,
    Revoke,
)

MAX_WAITING = 1000
"""Attaches that wait for a partition of one group: each asks every second."""

TICKET_S = 3.0
"""Who has not asked for so long waits no more: its node is gone. Three times the time between two questions."""

ANSWER_S = 1.0
"""A question is answered after so long, come what may: the asking node's attach is alive."""

GATHER_S = 0.3
"""From the first member of a group to the first assignment: members that are started together share from the start."""

BUSY_S, IDLE_S = 0.1, 0.5
"""Between two looks at the partitions: while some change hands, and while nothing moves."""

LOOK_S = 1.0
"""A leader that does not answer within it is not counted in this look."""

RESERVED_S = 3.0
"""An assigned partition is kept for its member until its claim, for so long."""

REVOKED_S = 10.0
"""Who was asked to let go has so long; then it is asked again."""


Held = tuple[str, int]
"""A partition, and a claim on it: claims are numbered in each partition for itself."""


@dataclass(frozen=True, slots=True)
class PartitionOwnership:
    """A partition, as its leader has it."""

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
    entitled: frozenset[str]  # identities that will get what is being let go


def decide(
    seats: Sequence[PartitionOwnership],
    tickets: Sequence[WaitingLink],
    reserved: Mapping[str, str],
    revoked: frozenset[Held],
) -> Assignment:
    """`tickets`: without those that something is reserved for. `reserved`: partition -> member. `revoked`: claims whose
    owners were asked to let go."""
    counts: Counter[str] = Counter({ticket.member: 0 for ticket in tickets})
    counts.update(seat.member for seat in seats if seat.active and seat.held not in revoked)
    counts.update(reserved[seat.partition] for seat in seats if not seat.active and seat.partition in reserved)
    waiting = list(tickets)
    assigned: dict[str, str] = {}
    for ticket in tickets:
        for seat in seats:
            if seat.active and not seat.present and seat.identity == ticket.identity:
                assigned[ticket.identity] = seat.partition
                waiting.remove(ticket)
                break

    def take() -> WaitingLink:
        """Whose turn it is."""
        chosen = min(waiting, key=lambda ticket: (counts[ticket.member], ticket.since_s))
        counts[chosen.member] += 1
        waiting.remove(chosen)
        return chosen

    free = [seat for seat in seats if not seat.active and seat.partition not in reserved]
    while free and waiting:
        ticket = take()
        seat = next((seat for seat in free if seat.leader == ticket.node), free[0])
        free.remove(seat)
        assigned[ticket.identity] = seat.partition
    entitled: set[str] = set()
    coming = sum(seat.active and seat.held in revoked for seat in seats)
    while coming and waiting:
        coming -= 1
        entitled.add(take().identity)
    movable = [seat for seat in seats if seat.present and seat.held not in revoked and seat.epoch == 0]
    revoke: list[PartitionOwnership] = []
    while movable and waiting:
        seat = max(movable, key=lambda seat: (counts[seat.member], seat.claim))
        if counts[seat.member] < min(counts[ticket.member] for ticket in waiting) + 2:
            break
        movable.remove(seat)
        revoke.append(seat)
        counts[seat.member] -= 1
        entitled.add(take().identity)
    return Assignment(assigned, revoke, frozenset(entitled))


class AssignorView(Protocol):
    """The part of a listener's broker that is needed."""

    def describe(self, log: str) -> LogView | None: ...
    def leader(self, log: str, partition: str) -> int | None: ...
    def handle(self, log: str, partition: str) -> PartitionHandle: ...


@dataclass
class _Group:
    born_s: float
    tickets: dict[str, WaitingLink] = field(default_factory=dict)  # by identity
    reserved: dict[str, tuple[WaitingLink, float]] = field(default_factory=dict)  # partition -> for whom, until when
    revoked: dict[Held, float] = field(default_factory=dict)  # until when
    seats: list[PartitionOwnership] | None = None
    looked_s: float = -1.0
    entitled: frozenset[str] = frozenset()
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def reserved_for(self, identity: str) -> str | None:
        found = (partition for partition, (ticket, _) in self.reserved.items() if ticket.identity == identity)
        return next(found, None)


class Assignor:
    def __init__(self, view: AssignorView, now_s: Callable[[], float]) -> None:
        self._view = view
        self._now_s = now_s
        self._groups: dict[tuple[str, str], _Group] = {}

    async def assign(self, question: Assign) -> Assigned | Failed:
        """An answer within ANSWER_S or so."""
        now_s = self._now_s()
        self._forget_old(now_s)
        group = self._groups.setdefault((question.log, question.key), _Group(now_s))
        if question.leaving:
            self._leave(group, question.identity)
            return Assigned()
        ticket = group.tickets.get(question.identity)
        if ticket is None:
            if len(group.tickets) >= MAX_WAITING:
                detail = f"{MAX_WAITING} receivers wait for partitions of group {question.key!r} already"
                return Failed("overloaded", False, detail)
            ticket = WaitingLink(question.member, question.identity, question.node, now_s, now_s)
            group.tickets[question.identity] = ticket
            group.looked_s = -1.0  # look now
        deadline_s = now_s + ANSWER_S
        while True:
            ticket.seen_s = now_s = self._now_s()
            problem = await self._advance(question, group)
            if problem is not None:
                return problem
            partition = group.reserved_for(question.identity)
            if partition is not None:
                group.tickets.pop(question.identity, None)
                return Assigned(partition)
            if now_s >= deadline_s:
                return Assigned(None, question.identity in group.entitled or group.seats is None)
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
            seats = await self._look(view, question.key)
            group.seats, group.looked_s = seats, now_s
            self._expire(group, now_s)
            waiting = [ticket for ticket in group.tickets.values() if group.reserved_for(ticket.identity) is None]
            reserved = {partition: ticket.member for partition, (ticket, _) in group.reserved.items()}
            decision = decide(seats, waiting, reserved, frozenset(group.revoked))
            group.entitled = decision.entitled
            for identity, partition in decision.assigned.items():
                group.reserved[partition] = (group.tickets[identity], now_s + RESERVED_S)
            if len(seats) < len(view.partitions):
                return None  # some have no leader now: what is free can be given, who has too much is not known
            for seat in decision.revoke:
                group.revoked[seat.held] = now_s + REVOKED_S
                await self._view.handle(question.log, seat.partition).ask_group(Revoke(question.key, seat.claim))
        return None

    async def _look(self, view: LogView, key: str) -> list[PartitionOwnership]:
        """The partitions whose leaders answer."""

        async def ask(partition: str) -> object:
            try:
                async with asyncio.timeout(LOOK_S):
                    return await self._view.handle(view.name, partition).ask_group(ListGroups(key))
            except TimeoutError:
                return None

        answers = await asyncio.gather(*map(ask, view.partitions))
        seats: list[PartitionOwnership] = []
        for partition, answer in zip(view.partitions, answers, strict=True):
            if not isinstance(answer, GroupList):
                continue
            leader = self._view.leader(view.name, partition)
            row = answer.groups[0] if answer.groups else None
            if row is None or not row.active:
                seats.append(PartitionOwnership(partition, leader))
            else:
                seats.append(
                    PartitionOwnership(
                        partition, leader, True, row.present, row.member, row.identity, row.claim, row.epoch
                    )
                )
        return seats

    @staticmethod
    def _expire(group: _Group, now_s: float) -> None:
        seats = {seat.partition: seat for seat in group.seats or ()}
        held = {seat.held for seat in seats.values() if seat.active}
        for identity in [one for one, ticket in group.tickets.items() if ticket.seen_s + TICKET_S < now_s]:
            del group.tickets[identity]
        for partition, (ticket, until_s) in list(group.reserved.items()):
            seat = seats.get(partition)
            taken = seat is not None and seat.active and (seat.present or seat.identity != ticket.identity)
            if taken or until_s < now_s:
                del group.reserved[partition]
        for claim, until_s in list(group.revoked.items()):
            if claim not in held or until_s < now_s:
                del group.revoked[claim]

    @staticmethod
    def _leave(group: _Group, identity: str) -> None:
        group.tickets.pop(identity, None)
        partition = group.reserved_for(identity)
        if partition is not None:
            del group.reserved[partition]

    def _forget_old(self, now_s: float) -> None:
        for key, group in list(self._groups.items()):
            fresh = group.born_s + TICKET_S >= now_s or group.reserved or group.lock.locked()
            if not fresh and all(ticket.seen_s + TICKET_S < now_s for ticket in group.tickets.values()):
                del self._groups[key]
