"""A simulated node: the real Host, groups, journals and guards on a simulated disk, clock and network.

The loop is the production loop in small: woken by `on_wake`, by deadlines and by frames; one turn, a sync
that takes time, then `release`; client input and frames go on arriving while the sync runs.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from cluster.raft import Group, Host, NotLeader, Outcome, OutgoingMessage, Overloaded, RaftMessage, RaftOptions, Turn
from tests.simulation.disk import SimBatch, SimDisk

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule

TRIM = b"\0trim:"


class NodeClock:
    """Each node's clock has its own zero and runs a little fast or slow."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._zero = schedule.randomness.uniform(1.0, 1e6)
        self._rate = schedule.randomness.uniform(0.97, 1.03)

    def monotonic(self) -> float:
        return self._zero + self._schedule.now * self._rate

    def to_world(self, at: float) -> float:
        return (at - self._zero) / self._rate + 1e-6


class DigestMachine:
    """A state machine whose state is the digest of its history; carries out trims as partitions do."""

    def __init__(self, node: SimNode, group_id: int) -> None:
        self._node = node
        self._group_id = group_id
        self.digest = b""
        self.index = 0

    def apply(self, index: int, term: int, data: bytes, batch: SimBatch) -> object:
        assert index > self.index, (index, self.index)
        self.digest = hashlib.blake2b(self.digest + index.to_bytes(8) + data, digest_size=8).digest()
        self.index = index
        self._node.schedule.checkers[self._group_id].applies(self._node.id, index, term, data, self.digest)
        batch.put(self._key(index), self.digest)
        if data.startswith(TRIM):
            self._node.host.groups[self._group_id].trim(int(data[len(TRIM) :].split(b":")[0]))
        return self.digest

    def checkpoint(self) -> bytes:
        return self.index.to_bytes(8) + self.digest

    def restore(self, index: int, data: bytes | None) -> None:
        if data is not None:
            self.index, self.digest = int.from_bytes(data[:8]), data[8:]
            effect = self._node.disk.get(self._key(self.index)) or b""
            assert effect == self.digest, "checkpoint without its effects"

    def _key(self, index: int) -> bytes:
        return b"o" + self._group_id.to_bytes(8) + index.to_bytes(8)


class SimNode:
    answers_everything = True

    def __init__(self, schedule: Schedule, node_id: int, options: RaftOptions) -> None:
        self.schedule = schedule
        self.id = node_id
        self.disk = SimDisk()
        self._options = options
        self._life = 0
        self.is_running = False
        self._paused_until = 0.0
        self._held: list[tuple[int, bytes]] = []
        self._wake_at = 0.0
        self._syncing = False
        self.host: Host

    # ---- life

    def start(self) -> None:
        schedule = self.schedule
        self._life += 1
        self.is_running = True
        self._syncing = False
        self._wake_at = float("inf")
        self._paused_until = 0.0
        self._held.clear()
        self._leading: dict[int, int] = {}
        self._commits: dict[int, int] = {}
        self.clock = NodeClock(schedule)
        randomness = random.Random(schedule.randomness.getrandbits(64))
        self.host = Host(self.id, self.disk, self.clock, randomness, self._send, self._options)
        self.host.on_wake = self._wake
        for group_id in schedule.checkers:
            group = self.host.open_group(
                group_id, schedule.node_ids, DigestMachine(self, group_id), preferred=schedule.plan.preferred
            )
            self._commits[group_id] = group.first_index - 1
        for peer in schedule.node_ids:
            if peer != self.id and schedule.links[self.id, peer].is_up:
                self.host.peer_up(peer)
        self._wake()

    def crash(self, *, lose_unsynced: bool) -> None:
        self.is_running = False
        self._life += 1
        self.disk.crash(self.schedule.randomness, lose_unsynced=lose_unsynced)
        for checker in self.schedule.checkers.values():
            for data in [data for data, node in checker.unanswered.items() if node == self.id]:
                del checker.unanswered[data]

    def pause(self, seconds: float) -> None:
        """The loop stands still: a long garbage collection, a stopped process, a slow disk."""
        self._paused_until = max(self._paused_until, self.schedule.now + seconds)
        self._after(self._paused_until, self._resume)

    def _resume(self) -> None:
        if self.schedule.now < self._paused_until:
            return
        held, self._held = self._held, []
        timers_first = self.schedule.randomness.random() < 0.5
        if timers_first:
            self._pump()
        for sender, frame in held:
            self.arrive(sender, frame)
        self._wake()

    # ---- loop

    def _after(self, time: float, action: Callable[[], None]) -> None:
        life = self._life

        def run() -> None:
            if self._life == life and self.is_running:
                action()

        self.schedule.at(time, run)

    def _wake(self) -> None:
        self._wake_no_later_than(self.schedule.now + self.schedule.randomness.uniform(0.0, 0.0005))

    def _wake_no_later_than(self, time: float) -> None:
        if time < self._wake_at:
            self._wake_at = time
            self._after(time, lambda: self._woken(time))

    def _woken(self, time: float) -> None:
        if time == self._wake_at:
            self._wake_at = float("inf")
            self._pump()

    def _pump(self) -> None:
        if self._syncing or self.schedule.now < self._paused_until:
            return
        if self.host.has_work or self.host.next_deadline() <= self.clock.monotonic():
            turn = self.host.turn()
            self._observe()
            if turn is not None:
                self._sync(turn)
                return
        self._wake_no_later_than(self.clock.to_world(self.host.next_deadline()))

    def _sync(self, turn: Turn) -> None:
        if not turn.needs_sync:
            self._release(turn)
            return
        self._syncing = True
        covered = self.disk.unsynced_writes
        randomness = self.schedule.randomness
        seconds = randomness.uniform(0.0001, 0.002) if randomness.random() < 0.97 else randomness.uniform(0.01, 0.3)

        def done() -> None:
            self.disk.synced_up_to(covered)
            self._syncing = False
            self._release(turn)

        self._after(self.schedule.now + seconds, done)

    def _release(self, turn: Turn) -> None:
        self.host.release(turn)
        self._wake_no_later_than(max(self.schedule.now, self.clock.to_world(self.host.next_deadline())))

    # ---- network

    def _send(self, peer: int, messages: list[OutgoingMessage]) -> None:
        for message in messages:
            frame = message.SerializeToString()
            if self.schedule.tracing:
                self.schedule.trace(f"{self.id} -> {peer}: {describe(RaftMessage.FromString(frame))}")
            self.schedule.links[self.id, peer].send(frame)
            if isinstance(message, RaftMessage) and message.HasField("vote_reply") and not message.vote_reply.pre:
                self.schedule.voted(self)

    def arrive(self, sender: int, frame: bytes) -> None:
        if self.schedule.now < self._paused_until:
            self._held.append((sender, frame))
        else:
            self.host.deliver(sender, [RaftMessage.FromString(frame)])

    def link_changed(self, peer: int, *, up: bool) -> None:
        if up:
            self.host.peer_up(peer)
        else:
            self.host.peer_down(peer)
        self._wake_no_later_than(max(self.schedule.now, self.clock.to_world(self.host.next_deadline())))

    # ---- judged from outside

    def _observe(self) -> None:
        for group_id, group in self.host.groups.items():
            checker = self.schedule.checkers[group_id]
            first = max(self._commits[group_id], group.first_index - 1)
            for index in range(first + 1, group.commit_index + 1):
                checker.commits(self.id, index, *group.entry(index))
            self._commits[group_id] = group.commit_index
            if group.is_leader and self._leading.get(group_id) != group.term:
                self._leading[group_id] = group.term
                self.schedule.trace(f"{self.id} LEADS group {group_id} term {group.term}")
                checker.leads(self.id, group.term, lambda i, g=group: term_at(g, i), group.first_index - 1)

    # ---- client

    def propose(self, group_id: int, data: bytes) -> bool:
        checker = self.schedule.checkers[group_id]

        def done(outcome: Outcome) -> None:
            kind = type(outcome).__name__
            self.schedule.trace(f"{self.id} answers {data!r}: {outcome}")
            checker.answered(data, kind, outcome.index, outcome.term)
            self.schedule.answered(self)

        checker.proposed(self.id, data)
        try:
            index = self.host.groups[group_id].propose(data, done)
        except (NotLeader, Overloaded):
            del checker.unanswered[data]
            return False
        self.schedule.trace(f"{self.id} proposes {data!r} at {index}")
        return True

    def propose_trim(self, group_id: int, keep: int) -> None:
        upto = self.host.groups[group_id].safe_trim_index() - keep
        if upto > 1:
            self.propose(group_id, TRIM + b"%d:%d" % (upto, self.schedule.unique()))

    def transfer(self, group_id: int, target: int) -> None:
        if self.host.groups[group_id].is_leader:
            self.host.groups[group_id].transfer(target)

    def is_leader(self, group_id: int) -> bool:
        return self.is_running and self.host.groups[group_id].is_leader

    def is_ready(self, group_id: int) -> bool:
        return self.is_running and self.host.groups[group_id].ready

    def applied(self, group_id: int) -> int:
        return self.host.groups[group_id].applied_index

    def log(self, group_id: int) -> tuple[int, Callable[[int], tuple[int, bytes] | None], int]:
        group = self.host.groups[group_id]
        return self.id, lambda index: group.entry(index) if index <= group.last_index else None, group.first_index - 1

    def describe(self) -> str:
        if not self.is_running:
            return f"{self.id} down"
        return " ".join(
            f"{self.id}/{g.group_id}: {g.status()['role']} t{g.term} {g.first_index}..{g.last_index} "
            f"commit {g.commit_index} applied {g.applied_index} leader {g.leader}"
            for g in self.host.groups.values()
        )


def term_at(group: Group, index: int) -> int | None:
    return group.entry(index)[0] if group.first_index <= index <= group.last_index else None


def describe(message: RaftMessage) -> str:
    body = message.WhichOneof("body") or "?"
    fields = getattr(message, body)
    shown = ", ".join(f"{field.name}={value}" for field, value in fields.ListFields() if field.name != "entries")
    return f"g{message.group} t{message.term} {body}({shown})"
