"""A stage for scenario scripts: the real MultiRaft of each node and one group; messages wait until they are delivered.

Nothing is random and no time passes by itself. What the nodes do is written down in one line each, in the order in
which they do it: messages sent, roles taken, entries applied, proposals answered. `language.py` is the language.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.raft import (
    ApplyFailed,
    InvariantBroken,
    MultiRaft,
    NotLeader,
    Outcome,
    OutgoingMessage,
    Overloaded,
    RaftGroup,
    RaftMessage,
    RaftOptions,
    Turn,
)
from cluster.raft.log.entry_cache import EntryCache
from cluster.raft.log.key_layout import group_prefix
from cluster.raft.log.log_store import LogStore
from cluster.raft.raft_pb2 import FetchReply, FetchRequest
from tests.simulation.world.disk import SimBatch, SimDisk

GROUP = 7
STEP_S = 0.001
MAX_ROUNDS = 5000
"""Of deliveries within one command; with more the nodes talk for ever."""
POISON = b"poison"
"""The machine of scenarios raises at this command."""


class StageClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class NotedMachine:
    """Remembers what it was given; its checkpoint is that list."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self.applied: list[bytes] = []

    def apply(self, index: int, term: int, data: bytes, batch: SimBatch) -> object:
        if data[1:] == POISON:
            raise ValueError("a command that cannot be carried out")
        self.applied.append(data[1:])
        self._note(f"applies {index} {shown(data)}")
        return len(self.applied)

    def checkpoint(self, version: int) -> bytes:
        return b",".join(self.applied)

    def restore(self, index: int, data: bytes | None) -> None:
        self.applied = data.split(b",") if data else []
        if data is not None:
            self._note(f"restores the state after {index}: {' '.join(one.decode() for one in self.applied)}")


@dataclass
class Fetch:
    """Of a snapshot: a question or an answer, on a path beside the messages."""

    body: FetchRequest | FetchReply

    def SerializeToString(self) -> bytes:
        return self.body.SerializeToString()


Sent = RaftMessage | Fetch
Pair = tuple[int, int]


class Stage:
    def __init__(self, nodes: int, options: RaftOptions) -> None:
        self.clock = StageClock()
        self.options = options
        self.ids = list(range(1, nodes + 1))
        self.disks = {node: SimDisk() for node in self.ids}
        self.images: dict[int, SimDisk] = {}
        self.multirafts: dict[int, MultiRaft] = {}
        self.machines: dict[int, NotedMachine] = {}
        self.queues: dict[Pair, deque[Sent]] = {(a, b): deque() for a in self.ids for b in self.ids if a != b}
        self.cut: set[Pair] = set()
        self.saved: dict[str, Sent] = {}
        self.held: dict[int, Turn | None] = {}
        self.lines: list[str] = []
        self.hides_messages = False
        self._roles: dict[int, str] = {}

    def note(self, line: str) -> None:
        self.lines.append(line)

    # ---- nodes

    def start(self, node: int, *, mute: bool = False) -> None:
        multiraft = MultiRaft(node, self.disks[node], self.clock, random.Random(node), self._sender(node), self.options)
        machine = NotedMachine(lambda what: self.note(f"{node} {what}"))
        multiraft.on_quarantined = lambda group: self.note(
            f"{node} puts the group into quarantine: {group.quarantined}"
        )
        group = multiraft.open_group(GROUP, self.ids, machine, mute=mute)
        multiraft.on_fetch = lambda peer, request: self._send(node, peer, Fetch(request))
        self.multirafts[node], self.machines[node] = multiraft, machine
        self._roles[node] = "follower"
        group.on_role_change = lambda g: self._role(node, g)
        for peer in self.ids:
            if peer != node:
                multiraft.peer_up(peer)
                if peer in self.multirafts:
                    self.multirafts[peer].peer_up(node)

    def stop(self, node: int, *, power_loss: bool, noticed: bool = True) -> None:
        del self.multirafts[node]
        self.held.pop(node, None)
        self.disks[node].crash(random.Random(0), lose_unsynced=power_loss)
        for pair in self.queues:
            if node in pair:
                self.queues[pair].clear()
        if noticed:
            for multiraft in self.multirafts.values():
                multiraft.peer_down(node)

    def preset(self, node: int, term: int, terms: Sequence[int]) -> None:
        """A log with entries of these terms, written before the node is started."""
        disk = self.disks[node]
        batch = disk.batch()
        journal = LogStore(GROUP, disk, EntryCache(0), lambda: batch, lambda: None, lambda: None)
        journal.setCurrentTerm(term, None)
        for index, entry_term in enumerate(terms, start=2):
            journal.add(b"\0of-t%d" % entry_term, index, entry_term)
        journal.flush()
        disk.write(batch)
        disk.sync()

    def group(self, node: int) -> RaftGroup:
        return self.multirafts[node].groups[GROUP]

    def _role(self, node: int, group: RaftGroup) -> None:
        if group.is_leader:
            role = f"leads t{group.term}" + (", ready" if group.ready else "")
        elif group.leader is not None:
            role = f"follows {group.leader} in t{group.term}"
        else:
            role = f"{group.status()['role']} in t{group.term}"
        if self._roles[node] != role:
            self._roles[node] = role
            self.note(f"{node} {role}" if group.is_leader or group.leader else f"{node} is {role}")

    # ---- turns

    def settle(self) -> None:
        """Every node does what it has to do now."""
        for _ in range(MAX_ROUNDS):
            busy = [n for n, h in sorted(self.multirafts.items()) if h.has_work or h.next_deadline() <= self.clock.now]
            if not any([self._turn(node) for node in busy]):  # noqa: C419 - each has its turn
                return
        raise AssertionError("the nodes never rest")

    def _turn(self, node: int) -> bool:
        multiraft = self.multirafts.get(node)
        if multiraft is None or self.held.get(node) is not None:
            return False
        try:
            turn = multiraft.turn()
        except (InvariantBroken, AssertionError) as error:
            self.note(f"{node} stops: {error}")
            del self.multirafts[node]
            return True
        if turn is None:
            return False
        if turn.needs_sync and node in self.held:
            self.held[node] = turn
            self.note(f"{node} has written, and waits for its disk")
            return True
        if turn.needs_sync:
            self.disks[node].sync()
        multiraft.release(turn)
        return True

    def sync(self, node: int) -> None:
        turn = self.held.pop(node)
        self.disks[node].sync()
        if turn is not None:
            self.multirafts[node].release(turn)

    # ---- messages

    def _sender(self, node: int) -> Callable[[int, list[OutgoingMessage]], None]:
        def send(peer: int, messages: list[OutgoingMessage]) -> None:
            for message in messages:
                self._send(node, peer, RaftMessage.FromString(message.SerializeToString()))

        return send

    def _send(self, sender: int, receiver: int, message: Sent) -> None:
        lost = (sender, receiver) in self.cut
        if not self.hides_messages:
            self.note(f"{sender} -> {receiver} {describe(message)}{', which is lost' if lost else ''}")
        if not lost:
            self.queues[sender, receiver].append(message)

    def deliver(self, pair: Pair, count: int) -> None:
        queue = self.queues[pair]
        for _ in range(min(count, len(queue))):
            self.inject(pair, queue.popleft())
            self.settle()

    def inject(self, pair: Pair, message: Sent) -> None:
        sender, receiver = pair
        multiraft = self.multirafts.get(receiver)
        if multiraft is None:
            return
        if isinstance(message, RaftMessage):
            multiraft.deliver(sender, [RaftMessage.FromString(message.SerializeToString())])
        elif isinstance(message.body, FetchRequest):
            self._send(receiver, sender, Fetch(multiraft.serve_fetch(sender, message.body)))
        else:
            multiraft.deliver_fetched(sender, message.body)

    def deliver_all(self) -> None:
        """Until nothing is under way, one message of each link in turn."""
        for _ in range(MAX_ROUNDS):
            busy = [pair for pair, queue in sorted(self.queues.items()) if queue]
            if not busy:
                return
            for pair in busy:
                self.deliver(pair, 1)
        raise AssertionError("the nodes talk for ever")

    def live(self, seconds: float) -> None:
        """Time passes, and everything that is not cut arrives a millisecond later; messages are not noted."""
        end = self.clock.now + seconds
        hid, self.hides_messages = self.hides_messages, True
        while self.clock.now < end:
            arriving = {pair: len(queue) for pair, queue in sorted(self.queues.items()) if queue}
            self.clock.now += STEP_S
            for pair, count in arriving.items():
                self.deliver(pair, count)
            self.settle()
        self.hides_messages = hid

    # ---- directions

    def campaign(self, node: int) -> None:
        """As if the leader had ordered it: nobody is asked before, and the loyal vote too."""
        core: Any = self.group(node)._core
        core._SyncObj__transferInProgress = True
        core.election_deadline = 0.0
        self.multirafts[node].mark_dirty(self.group(node))

    def doubt(self, node: int) -> None:
        """It has not heard the leader for too long."""
        group = self.group(node)
        group._core.election_deadline = self.clock.now
        group._election._heard_at = -1e9
        self.multirafts[node].mark_dirty(group)

    def propose(self, node: int, data: bytes) -> None:
        def answered(outcome: Outcome) -> None:
            result = getattr(outcome, "result", None)
            why = f" ({result.error})" if isinstance(result, ApplyFailed) else ""
            self.note(f"{node} answers {shown(data)}: {type(outcome).__name__} {outcome.index}/t{outcome.term}{why}")

        try:
            self.group(node).propose(data, answered)
        except (NotLeader, Overloaded, ValueError) as error:
            self.note(f"{node} refuses {shown(data)}: {error}")

    def read(self, node: int) -> None:
        def done(index: int | None) -> None:
            answer = "ask elsewhere" if index is None else f"everything up to {index}"
            self.note(f"{node} answers a read: {answer}")

        try:
            self.group(node).read_index(done)
        except NotLeader as error:
            self.note(f"{node} refuses a read: {error}")

    def damage(self, node: int, what: str) -> None:
        """Turn a bit of the hard state (`vote`), the `checkpoint`, or remove an entry (a number)."""
        disk = self.disks[node]
        batch = disk.batch()
        if what.isdigit():
            batch.delete(group_prefix(b"e", GROUP) + int(what).to_bytes(8, "big"))
        else:
            key = group_prefix({"vote": b"h", "checkpoint": b"c"}[what], GROUP)
            value = disk.get(key)
            assert value is not None, f"node {node} has no {what}"
            batch.put(key, value[:-1] + bytes([value[-1] ^ 1]))
        disk.write(batch)
        disk.sync()

    def show(self, node: int) -> str:
        if node not in self.multirafts:
            return f"{node}: down"
        group = self.group(node)
        first = group.first_index
        entries = [
            f"{index}/t{group.entry(index)[0]} {shown(group.entry(index)[1])}"
            for index in range(first, group.last_index + 1)
        ]
        log = ", ".join(entries) if entries else f"nothing behind {first - 1}"
        vote = f", voted for {group.log_store.vote}" if group.log_store.vote else ""
        return f"{node}: {log}; commit {group.commit_index}, applied {group.applied_index}, t{group.term}{vote}"


def shown(data: bytes) -> str:
    if data[:1] == b"\0":
        return data[1:].decode("ascii", "backslashreplace") or '""'
    return {1: "no-op"}.get(data[0], data.decode("ascii", "backslashreplace"))


def describe(message: Sent) -> str:
    if isinstance(message, Fetch):
        return _describe_fetch(message.body)
    kind = message.WhichOneof("body") or "nothing"
    describer = _DESCRIBERS.get(kind)
    what = kind if describer is None else describer(getattr(message, kind))
    return f"t{message.term} {what}"


def _append(body: Any) -> str:
    after = f" after {body.previous_index}/t{body.previous_term}" if body.has_previous else ""
    entries = [
        f"{body.previous_index + 1 + place}/t{term} {shown(data)}"
        for place, (term, data) in enumerate(zip(body.entry_terms, body.entries, strict=True))
    ]
    what = f": {', '.join(entries)}" if entries else ""
    return f"append #{body.sequence}{after}{what}; commit {body.commit_index}"


def _append_reply(body: Any) -> str:
    answer = "ok" if body.success else "no, go back" if body.reset else "heard"
    return f"{answer} #{body.sequence}, next {body.next_index}{', without a vote' if body.mute else ''}"


def _vote_request(body: Any) -> str:
    flags = " by the leader's order" if body.transfer else ""
    return f"{'pre-vote?' if body.pre else 'vote?'}{flags} (last {body.last_index}/t{body.last_term})"


def _vote_reply(body: Any) -> str:
    return f"{'pre-vote' if body.pre else 'vote'} {'yes' if body.granted else 'no'}"


_DESCRIBERS: dict[str, Callable[[Any], str]] = {
    "append": _append,
    "append_reply": _append_reply,
    "vote_request": _vote_request,
    "vote_reply": _vote_reply,
    "timeout_now": lambda body: "campaign now",
    "stale_term": lambda body: "your term is over",
}


def _describe_fetch(body: FetchRequest | FetchReply) -> str:
    if isinstance(body, FetchReply):
        return f"piece of a snapshot, {len(body.body)} bytes"
    wanted = body.WhichOneof("wanted") or "entries_from"
    return f"fetch {'a snapshot' if not body.snapshot else wanted.replace('_', ' ')}"
