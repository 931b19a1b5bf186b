"""A small stage for directed stories: the real MultiRaft of each node, on simulated disks, a hand-driven clock, links
that can be held or cut.

Unlike `tests/simulation` nothing here is random: time passes in `run`, a message takes one step, a link named
in `held` keeps what is sent on it until `release_link`, one named in `cut` loses it.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from cluster.raft import (
    FetchReply,
    FetchRequest,
    MultiRaft,
    Outcome,
    OutgoingMessage,
    RaftGroup,
    RaftMessage,
    RaftOptions,
)
from cluster.versions import UNSET
from tests.simulation.world.disk import SimBatch, SimDisk

GROUP = 7
STEP_S = 0.001


class HandClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class ListMachine:
    """Remembers what it was given; its checkpoint is that list."""

    def __init__(self) -> None:
        self.applied: list[bytes] = []
        self.restored_at = 0

    def apply(self, index: int, term: int, data: bytes, batch: SimBatch) -> object:
        self.applied.append(data[1:])
        batch.put(b"o" + index.to_bytes(8), data)
        return len(self.applied)

    def rows(self) -> list[tuple[bytes, bytes]]:
        return [(b"o", b"p")]

    def checkpoint(self, version: int) -> bytes:
        return b",".join(self.applied)

    def restore(self, index: int, data: bytes | None) -> None:
        self.applied = data.split(b",") if data else []
        self.restored_at = index


class RaftStage:
    version = UNSET
    """The active one."""

    def __init__(
        self,
        nodes: int = 3,
        *,
        options: RaftOptions | None = None,
        machine: Any = ListMachine,
        keep_entries: int | None = None,
        patient: bool = False,
    ) -> None:
        self.may_quarantine = False
        self.clock = HandClock()
        self.options = options or RaftOptions()
        self.ids = list(range(1, nodes + 1))
        self.disks = {node: SimDisk() for node in self.ids}
        self.multirafts: dict[int, MultiRaft] = {}
        self.machines: dict[int, Any] = {}
        self.held: dict[tuple[int, int], list[RaftMessage]] = {}
        self.cut: set[tuple[int, int]] = set()
        self.sent: list[tuple[int, int, RaftMessage]] = []
        self.roles: dict[int, list[tuple[bool, int | None]]] = defaultdict(list)
        self.fetches: list[tuple[int, int, FetchRequest]] = []
        self.on_piece: Callable[[FetchReply], FetchReply | None] = lambda reply: reply  # spoils or loses one
        self._fetching: list[tuple[int, int, FetchRequest]] = []
        self._machine = machine
        self._keep_entries, self._patient = keep_entries, patient
        self._arriving: list[tuple[int, int, RaftMessage]] = []
        for node in self.ids:
            self.start(node)

    # ---- nodes

    def new_multiraft(self, node: int) -> MultiRaft:
        multiraft = MultiRaft(
            node, self.disks[node], self.clock, random.Random(node), self._sender(node), self.options,
            active_version=lambda: self.version,
        )  # fmt: skip
        multiraft.on_fetch = lambda peer, request: self._fetching.append((node, peer, request))
        multiraft.on_quarantined = self._quarantined
        self.multirafts[node] = multiraft
        return multiraft

    def start(self, node: int, preferred: int | None = None, *, mute: bool = False) -> RaftGroup:
        multiraft = self.new_multiraft(node)
        self.machines[node] = self._machine()
        group = multiraft.open_group(
            GROUP, self.ids, self.machines[node],
            preferred=preferred, mute=mute, keep_entries=self._keep_entries, patient=self._patient,
        )  # fmt: skip
        group.on_role_change = lambda g: self.roles[node].append((g.is_leader, g.leader))
        for peer in self.ids:
            if peer != node:
                multiraft.peer_up(peer)
            if peer != node and peer in self.multirafts:
                self.multirafts[peer].peer_up(node)
        return group

    def _quarantined(self, group: RaftGroup) -> None:
        assert self.may_quarantine, group.quarantined

    def stop(self, node: int, *, power_loss: bool = False, noticed: bool = True) -> None:
        del self.multirafts[node]
        self.disks[node].crash(random.Random(0), lose_unsynced=power_loss)
        if noticed:
            for multiraft in self.multirafts.values():
                multiraft.peer_down(node)

    def wipe(self, node: int) -> None:
        """Its disk is lost; it comes back with an empty one, as a member without a memory."""
        if node in self.multirafts:
            self.stop(node)
        self.disks[node] = SimDisk()
        self.start(node, mute=True)

    def group(self, node: int) -> RaftGroup:
        return self.multirafts[node].groups[GROUP]

    @property
    def leader(self) -> int | None:
        leaders = [node for node in self.multirafts if self.group(node).is_leader]
        return leaders[0] if len(leaders) == 1 else None

    # ---- links

    def _sender(self, node: int) -> Any:
        def send(peer: int, messages: list[OutgoingMessage]) -> None:
            for message in [RaftMessage.FromString(m.SerializeToString()) for m in messages]:
                self.sent.append((node, peer, message))
                if (node, peer) in self.held:
                    self.held[node, peer].append(message)
                elif (node, peer) not in self.cut:
                    self._arriving.append((node, peer, message))

        return send

    def hold(self, sender: int, receiver: int) -> None:
        self.held.setdefault((sender, receiver), [])

    def release_link(self, sender: int, receiver: int) -> None:
        for message in self.held.pop((sender, receiver)):
            self._arriving.append((sender, receiver, message))

    def isolate(self, node: int) -> None:
        self.cut |= {pair for a in self.ids for pair in ((a, node), (node, a)) if a != node}

    def heal(self) -> None:
        self.cut.clear()

    def inject(self, sender: int, receiver: int, message: RaftMessage) -> None:
        self._arriving.append((sender, receiver, message))

    # ---- fetching

    def _fetch(self) -> None:
        fetching, self._fetching = self._fetching, []
        self.fetches += fetching
        for node, peer, request in fetching:
            if {(node, peer), (peer, node)} & self.cut or not {node, peer} <= self.multirafts.keys():
                continue
            reply = self.on_piece(self.multirafts[peer].serve_fetch(node, request))
            if reply is not None:
                self.multirafts[node].deliver_fetched(peer, FetchReply.FromString(reply.SerializeToString()))

    # ---- time

    def step(self) -> None:
        arriving, self._arriving = self._arriving, []
        for sender, receiver, message in arriving:
            if receiver in self.multirafts:
                copy = RaftMessage.FromString(message.SerializeToString())
                self.multirafts[receiver].deliver(sender, [copy])
        self._fetch()
        for node, multiraft in list(self.multirafts.items()):
            if multiraft.has_work or multiraft.next_deadline() <= self.clock.now:
                turn = multiraft.turn()
                if turn is not None:
                    if turn.needs_sync:
                        self.disks[node].sync()
                    multiraft.release(turn)

    def run(self, seconds: float) -> None:
        end = self.clock.now + seconds
        while self.clock.now < end:
            self.step()
            self.clock.now += STEP_S

    def until(self, condition: Any, seconds: float = 5.0) -> float:
        """Virtual seconds until `condition()`; fails after `seconds`."""
        began = self.clock.now
        while not condition():
            assert self.clock.now - began < seconds, (
                f"not within {seconds} s: {[h.groups[GROUP].status() for h in self.multirafts.values()]}"
            )
            self.run(STEP_S)
        return self.clock.now - began

    # ---- stage directions

    def elect(self, node: int) -> RaftGroup:
        """Make `node` campaign now, as if the leader had ordered it."""
        group = self.group(node)
        group._core._SyncObj__transferInProgress = True
        group._core.election_deadline = 0.0
        self.multirafts[node].mark_dirty(group)
        self.until(lambda: group.is_leader, seconds=1.0)
        return group

    def propose(self, node: int, *texts: str) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for text in texts:
            self.group(node).propose(b"\0" + text.encode(), outcomes.append)
        return outcomes


def kinds(outcomes: list[Outcome]) -> list[str]:
    return [type(outcome).__name__ for outcome in outcomes]
