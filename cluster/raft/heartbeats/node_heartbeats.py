"""Heartbeats between pairs of nodes, which speak for all quiet groups that one of the two leads.

The problem: a heartbeat for each group and follower, ten times a second, is all that a node with a thousand idle groups
does. The rules: a leader whose follower has everything asks it to be content with the heartbeats of the leader's node
(`quiescence`); a follower that agrees *rests*: it has no deadline of its own any more. From then on one message in
each direction stands for all such groups of the pair:

* a node that hears no heartbeat for the shortest election timeout doubts all leaders there that it rests under: their
  groups have deadlines again, spread so that the elections do not come at once. Nobody has to ask for them. If a
  heartbeat comes before a group's deadline, that one rests again: a node that stood still for a moment costs nothing;
* a leader's node whose heartbeats are not answered for the time of a quorum check lets all its leaders speak to that
  node themselves again, and their own quorum checks decide, counted from the last answer;
* both say what of their part has ended otherwise (`left`), once; and since that may be lost, a heartbeat carries a
  digest of what its sender believes to rest at the other node. Where the two differ several times in a row in the same
  groups, both begin anew with everything. (A digest is wrong for a moment whenever a group changes while a heartbeat is
  under way; where many change all the time, it nearly always is, each time by others);
* lives are told apart: what was agreed with an earlier process of a node is void.

Two nodes that lead groups for each other both send heartbeats, and a frame costs more than what is in it. So an answer
waits for the node's own next heartbeat to the other one, and both leave in one frame: two frames in a period, not four.
Whatever the other node can do something about goes at once: an answer that says that the digests differ or that groups
have left, and the first one after a silence, since leaders there may be about to give up.

What that costs: an answer waits for one period at most, and for nearly a whole one where the clocks of two nodes agree.
The answers still come once in a period, so a node that is gone is noticed as soon as without that; so is a leader that
is gone, since heartbeats wait for nothing. But a leader may count on a node that no longer hears it for one period
more. And the first answer that waits may come two periods, and the time on the way, after what was heard before it,
though nothing is lost: a quorum check has to take longer (`RaftOptions`).

None of this is needed for safety: elections, commits and reads are confirmed by a majority in the group itself, resting
or not. What is at stake is only how soon a group notices that its leader is gone, and that it is not disturbed before.

Rejected: leases of nodes, which need bounded clocks. Rejected: sleep without heartbeats until a client comes: the first
client of each group would wait for its election. Rejected: the groups' numbers in each heartbeat. They cost what it
saves. Rejected: answers as fields of heartbeats. A node that leads nothing there still answers alone, and two messages
in a frame cost little more than one.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from math import floor, inf
from typing import Protocol

from cluster.raft.interfaces import GroupId, NodeId
from cluster.raft.options import RaftOptions
from cluster.raft.raft_pb2 import NodeHeartbeat, NodeHeartbeatReply, RaftMessage
from cluster.raft.replication.message_encoding import OutgoingMessage
from cluster.raft.replication.message_validation import RAFT

log = logging.getLogger(__name__)

NODE_MESSAGES: GroupId = (1 << 63) - 1
"""Stands in the place of a group's number in what nodes, and not groups, say to each other. No group gets so far."""

UNANSWERED = 5
"""Heartbeats that must be without an answer before the other node counts as silent: a node that stood still itself has
sent fewer. The answer to one of them may wait for a heartbeat of the other node."""

DIFFERENCES = 3
"""Heartbeats in a row with the same difference of digests, after which both sides begin anew ..."""
UNLIKE = 30
"""... and so many with any at all: something may be lost among all that changes."""

DIGEST = (1 << 64) - 1


class QuietGroup(Protocol):
    """The part of a group that node heartbeats need."""

    def speak_again(self, node: NodeId, now: float) -> None:
        """The leader no longer counts on `node` to rest."""

    def doubt_leader(self, now: float) -> None:
        """The follower waits for its leader as if it did not rest."""

    def trust_leader(self) -> None:
        """The follower rests as before, if it has done nothing yet."""

    def rouse(self, now: float) -> None:
        """The follower no longer rests."""


class _Members:
    """Groups with the term for which they are there, and a digest of them that does not depend on their order."""

    __slots__ = ("_digests", "_left", "digest")

    def __init__(self) -> None:
        self._digests: dict[GroupId, int] = {}
        self.digest = 0
        self._left: dict[GroupId, None] = {}  # the other node does not know it, and it may matter to it

    def __len__(self) -> int:
        return len(self._digests)

    def __contains__(self, group: GroupId) -> bool:
        return group in self._digests

    def all(self) -> list[GroupId]:
        return list(self._digests)

    def add(self, group: GroupId, term: int) -> None:
        self.discard(group)
        mixed = (group * 0x9E3779B97F4A7C15 ^ term * 0xC2B2AE3D27D4EB4F) & DIGEST
        mixed = (mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9 & DIGEST
        self._digests[group] = mixed
        self.digest ^= mixed

    def discard(self, group: GroupId, *, tell: bool = False) -> None:
        mixed = self._digests.pop(group, None)
        if mixed is not None:
            self.digest ^= mixed
            if tell:
                self._left[group] = None

    def take_left(self) -> list[GroupId]:
        """Return the groups that left and have not come back since, and forget that they left."""
        left, self._left = self._left, {}
        return [group for group in left if group not in self._digests]


class _Led:
    """Heartbeats to one node: this node leads, and members on the other one rest."""

    __slots__ = ("answered", "answered_at", "differs", "life", "members", "send_at", "sequence")

    def __init__(self) -> None:
        self.members = _Members()
        self.life = 0  # of the other node, as its answers say; 0: it has not answered yet
        self.sequence = self.answered = 0
        self.answered_at = -inf
        self.send_at = inf
        self.differs = 0


class _Followed:
    """Heartbeats from one node: it leads, and members on this one rest."""

    __slots__ = (
        "deadline", "difference", "differs", "doubts", "heard_at", "life", "members", "owes_answer", "sequence",
        "unlike",
    )  # fmt: skip

    def __init__(self) -> None:
        self.members = _Members()
        self.life = 0  # of the other node; 0: it was not heard yet
        self.sequence = 0
        self.heard_at = -inf
        self.deadline = inf
        self.doubts = False
        self.difference = self.differs = self.unlike = 0
        self.owes_answer = False  # to the newest heartbeat, with nothing to say but that it came


class NodeHeartbeats:
    """Node heartbeats of this node, in both roles: as leader and as follower of groups that rest."""

    def __init__(
        self,
        draw: random.Random,
        options: RaftOptions,
        groups: Mapping[GroupId, QuietGroup],
        emit: Callable[[NodeId, OutgoingMessage], None],
    ) -> None:
        self._draw = draw
        self._options = options
        self._groups = groups
        self._emit = emit
        self._led: dict[NodeId, _Led] = {}
        self._followed: dict[NodeId, _Followed] = {}
        self.next_at = inf
        """Time at which `run` has something to do."""
        self.refused = 0  # messages with values that cannot be

    @cached_property
    def _life(self) -> int:
        """Random number that tells this process from earlier ones of the node; never 0."""
        return self._draw.getrandbits(63) + 1

    # ---- this node leads

    def claim(self, node: NodeId, group: GroupId, term: int, now: float) -> None:
        """Count on the follower of `group` at `node` to rest, as its leader here has asked."""
        led = self._led.setdefault(node, _Led())
        if not led.members:
            led.answered, led.answered_at = led.sequence, now
            led.life = led.differs = 0
            led.send_at = self._next_beat(now)
            self.next_at = min(self.next_at, led.send_at)
        led.members.add(group, term)

    def disclaim(self, node: NodeId, group: GroupId, *, tell: bool) -> None:
        """Count on a group's follower to rest no more. `tell`: the follower does not learn it from the group itself."""
        led = self._led.get(node)
        if led is not None:
            led.members.discard(group, tell=tell)

    def answered_at(self, node: NodeId) -> float:
        led = self._led.get(node)
        return -inf if led is None else led.answered_at

    def _next_beat(self, now: float) -> float:
        """Time of the next beat. All nodes beat at multiples of the same interval, as leaders do (`append_sender`)."""
        beat = self._options.heartbeat_s
        return (floor(now / beat) + 1) * beat

    def _beat(self, node: NodeId, led: _Led, now: float) -> None:
        if led.sequence - led.answered >= UNANSWERED and now - led.answered_at >= self._options.quorum_check_s:
            self._speak_again(node, led, now)
        left = led.members.take_left()
        led.send_at = self._next_beat(now) if led.members else inf
        if led.members or left:
            led.sequence += 1
            message = NodeHeartbeat(life=self._life, sequence=led.sequence, quiet=led.members.digest, left=left)
            self._emit(node, RaftMessage(group=NODE_MESSAGES, node_heartbeat=message))
        followed = self._followed.get(node)
        if followed is not None and followed.owes_answer:
            self._answer(node, followed, followed.members.take_left())

    def _speak_again(self, node: NodeId, led: _Led, now: float, groups: Iterable[GroupId] | None = None) -> None:
        for group in led.members.all() if groups is None else groups:
            if group in led.members and group in self._groups:
                self._groups[group].speak_again(node, now)

    # ---- the other node leads

    def rest(self, node: NodeId, group: GroupId, term: int, now: float) -> None:
        """Let the follower of `group` here rest, as its leader at `node` has asked."""
        followed = self._followed.setdefault(node, _Followed())
        followed.heard_at = now
        followed.deadline = now + self._options.election_min_s
        self.next_at = min(self.next_at, followed.deadline)
        followed.members.add(group, term)

    def stir(self, node: NodeId, group: GroupId, *, tell: bool) -> None:
        """End the rest of a group. `tell`: its leader does not learn it from the group itself."""
        followed = self._followed.get(node)
        if followed is not None:
            followed.members.discard(group, tell=tell)

    def heard_at(self, node: NodeId) -> float:
        followed = self._followed.get(node)
        return -inf if followed is None else followed.heard_at

    def _silent(self, followed: _Followed, now: float) -> None:
        if not followed.members:
            followed.deadline = inf
        elif now - followed.deadline > self._options.stall_s:
            # It was this node's loop that stood still: first see what has come meanwhile.
            followed.deadline = now + 2 * self._options.heartbeat_s
        else:
            followed.deadline = inf
            followed.doubts = True
            for group in followed.members.all():
                if group in self._groups:
                    self._groups[group].doubt_leader(now)

    def _trust(self, followed: _Followed) -> None:
        followed.doubts = False
        for group in followed.members.all():
            if group in self._groups:
                self._groups[group].trust_leader()

    def _rouse(self, followed: _Followed, now: float, groups: Iterable[GroupId] | None = None) -> None:
        for group in followed.members.all() if groups is None else groups:
            if group in followed.members and group in self._groups:
                self._groups[group].rouse(now)

    def forget(self, node: NodeId, now: float) -> None:
        """Forget a node that is gone for good: no group rests for it, or counts on it."""
        led, followed = self._led.get(node), self._followed.get(node)
        if led is not None:
            self._speak_again(node, led, now)
            del self._led[node]
        if followed is not None:
            self._rouse(followed, now)
            del self._followed[node]

    # ---- in a turn

    def run(self, now: float) -> None:
        for node, led in self._led.items():
            if led.send_at <= now:
                self._beat(node, led, now)
        for followed in self._followed.values():
            if followed.deadline <= now:
                self._silent(followed, now)
        self.next_at = min(
            min((led.send_at for led in self._led.values()), default=inf),
            min((followed.deadline for followed in self._followed.values()), default=inf),
        )

    def receive(self, sender: NodeId, message: RaftMessage, now: float) -> None:
        fault = RAFT.fault(message)
        if fault is not None:
            self._refuse(sender, fault)
            return
        kind = message.WhichOneof("body")
        if kind == "node_heartbeat":
            self._on_heartbeat(sender, message.node_heartbeat, now)
        elif kind == "node_heartbeat_reply":
            self._on_reply(sender, message.node_heartbeat_reply, now)

    def _refuse(self, sender: NodeId, fault: str) -> None:
        self.refused += 1
        if self.refused.bit_count() == 1:  # a peer that does it once may do it at every heartbeat
            log.error("a heartbeat of node %d is refused (%d so far): %s", sender, self.refused, fault)

    def _on_heartbeat(self, sender: NodeId, body: NodeHeartbeat, now: float) -> None:
        followed = self._followed.setdefault(sender, _Followed())
        if followed.life != body.life:
            if followed.life:
                self._rouse(followed, now)
            followed.life, followed.sequence = body.life, 0
        if body.sequence <= followed.sequence:
            return  # a late one says nothing about now
        followed.sequence = body.sequence
        followed.heard_at = now
        was_silent = followed.doubts
        if was_silent:
            self._trust(followed)
        self._rouse(followed, now, body.left)
        differs = self._differs(followed, followed.members.digest ^ body.quiet)
        followed.differs = followed.differs + 1 if differs else 0
        if followed.differs >= DIFFERENCES - 1:  # the first of them is not known for one
            followed.differs = followed.unlike = 0
            self._rouse(followed, now)
        followed.deadline = now + self._options.election_min_s if followed.members else inf
        self.next_at = min(self.next_at, followed.deadline)
        left = followed.members.take_left()
        if differs or left or was_silent or not self._beats(sender):
            self._answer(sender, followed, left, differs=differs)
        else:
            followed.owes_answer = True

    def _differs(self, followed: _Followed, difference: int) -> bool:
        """True if both sides differ for good. `difference`: that of the digests, so of the groups they differ in."""
        lasts = difference == followed.difference
        followed.difference = difference
        followed.unlike = followed.unlike + 1 if difference else 0
        return difference != 0 and (lasts or followed.unlike > UNLIKE)

    def _beats(self, node: NodeId) -> bool:
        led = self._led.get(node)
        return led is not None and led.send_at < inf

    def _answer(self, node: NodeId, followed: _Followed, left: list[GroupId], *, differs: bool = False) -> None:
        followed.owes_answer = False
        reply = NodeHeartbeatReply(
            life=self._life, asked_by=followed.life, sequence=followed.sequence, differs=differs, left=left
        )
        self._emit(node, RaftMessage(group=NODE_MESSAGES, node_heartbeat_reply=reply))

    def _on_reply(self, sender: NodeId, body: NodeHeartbeatReply, now: float) -> None:
        led = self._led.get(sender)
        if led is None or body.asked_by != self._life or not led.answered < body.sequence <= led.sequence:
            return
        led.answered, led.answered_at = body.sequence, now
        known, led.life = led.life, body.life
        led.differs = led.differs + 1 if body.differs else 0
        if led.differs >= DIFFERENCES - 1 or known not in (0, body.life):
            led.differs = 0
            self._speak_again(sender, led, now)
        else:
            self._speak_again(sender, led, now, body.left)
