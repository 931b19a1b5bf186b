"""A simulated node whose Raft messages travel on the streams of production: queued, joined into frames, refused or let
in by Hello, dropped with a backlog, ended by silence, dialled again.

What must hold of a stream is what Raft takes from it: what is heard on it is what was handed to it, in that order and
without a hole, up to where it ends; and nothing of an earlier one is heard behind a later one.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock
from unittest.mock import NonCallableMock

from cluster.raft import OutgoingMessage, RaftMessage
from cluster.raft.replication import message_encoding as raft_messages
from cluster.raft.replication.message_encoding import IncomingMessage
from cluster.rpc import options
from cluster.rpc.handshake import Who
from cluster.rpc.raft_transport.peer_network import PeerNetwork
from tests.simulation.checker import Violation
from tests.simulation.world.nodes import SimNode
from tests.simulation.world.rpc.lives import LIFE
from tests.simulation.world.streams.ends import STREAM, dial

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule

FRAMES_BYTES = (150, 1000, 1 << 22)
LARGE_BYTES = (1, 200, 1 << 16)
BACKLOGS_BYTES = (1000, 20_000, 1 << 26)
"""While there are faults."""


class StreamingNode(SimNode):
    network: PeerNetwork

    def __init__(self, schedule: Schedule, node_id: int) -> None:
        super().__init__(schedule, node_id)
        self._latest: dict[int, int] = {}
        self._backlogs: dict[int, int] = {}

    def _in_life(self, life: int, action: Any) -> None:
        token = LIFE.set(self.own_life)
        try:
            super()._in_life(life, action)
        finally:
            LIFE.reset(token)

    def _compose(self) -> None:
        super()._compose()
        schedule, nothing_else = self.schedule, NonCallableMock()
        wire: Any = schedule.wire
        ids = schedule.node_ids
        self._latest = {}
        self.network = PeerNetwork(
            self.id, "simulated", "", {peer: str(peer) for peer in ids},
            on_messages=self._heard, on_up=self._up, on_down=self._down,
            types=nothing_else, partitions=nothing_else, admin=nothing_else,
            who=Who("simulated", self.id, frozenset(ids) - {self.id}, members=tuple(ids)),
            wall_ms=self.clock.wall_ms, on_clock=self.cluster_clock.heard,
            dial=lambda node, _: dial(wire, self, node),
        )  # fmt: skip
        for peer, link in self.network._links.items():
            link._jitter = random.Random(schedule.randomness.getrandbits(64))
            self._backlogs[peer] = schedule.randomness.choice(BACKLOGS_BYTES)
        self.network.open_streams()

    # ---- peers come and go as the streams say

    def _is_connected_from_the_start(self, peer: int) -> bool:
        return False

    def link_changed(self, peer: int, *, up: bool) -> None:
        """Streams break with links, and say so themselves."""

    def _up(self, peer: int) -> None:
        if self.is_running:
            super().link_changed(peer, up=True)

    def _down(self, peer: int) -> None:
        if self.is_running:
            super().link_changed(peer, up=False)

    # ---- messages

    def _send(self, peer: int, messages: list[OutgoingMessage]) -> None:
        link = self.network._links[peer]
        faulty = self.schedule.chaos_begun and not self.schedule.chaos_over
        # Else an entry larger than the backlog, or a member that is far behind, would never get through.
        link._backlog_bytes = self._backlogs[peer] if faulty else options.BACKLOG_BYTES
        stream = link._stream
        if stream is not None:
            stream.promised.extend(_normal(message.SerializeToString()) for message in messages)
        self.network.send(peer, messages)
        if stream is not None and link._stream is None:
            self.schedule.count("dropped with its backlog")
        for message in messages:
            if isinstance(message, RaftMessage):
                self.observer.said(peer, message)

    def _whole(self, message: IncomingMessage) -> RaftMessage:
        if isinstance(message, RaftMessage):
            return message
        self.schedule.count("entries beside their append")
        message.message.append.entries.extend(message.entries)
        message.message.append.entries_beside = False
        return message.message

    def _heard(self, sender: int, messages: list[IncomingMessage]) -> None:
        stream = STREAM.get()
        if stream is None or not self.is_running:
            raise Violation(f"node {self.id} hears node {sender} on no stream")
        if stream.number < self._latest.get(sender, 0):
            raise Violation(f"node {self.id} hears an earlier stream of node {sender} behind a later one")
        self._latest[sender] = stream.number
        frame = tuple(self._whole(message).SerializeToString() for message in messages)
        self.schedule.count("frame of a stream")
        for message in frame:
            if not stream.promised or stream.promised.popleft() != message:
                raise Violation(f"node {self.id} hears of node {sender} what was not the next on their stream")
        self.arrive(sender, frame)


@contextlib.contextmanager
def small_frames(schedule: Schedule) -> Iterator[None]:
    """And small entries beside them."""
    frame_bytes, large_bytes = schedule.randomness.choice(FRAMES_BYTES), schedule.randomness.choice(LARGE_BYTES)
    with (
        mock.patch.object(options, "FRAME_TARGET_BYTES", frame_bytes),
        mock.patch.object(raft_messages, "BESIDE_FROM_BYTES", large_bytes),
    ):
        yield


def _normal(data: bytes) -> bytes:
    return RaftMessage.FromString(data).SerializeToString()
