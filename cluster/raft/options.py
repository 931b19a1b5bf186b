"""Limits and times of the Raft groups of one node, each with its reason.

The rule: every number that bounds memory, work per turn or waiting is here and has a name with its unit;
nothing in the package waits, grows or loops without one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

KIB = 1024
MIB = 1024 * KIB

Durability = Literal["fsync", "replicated"]

MAX_ENTRY_BYTES = 32 * MIB
"""A proposal above this is refused: it must fit a transport message of 64 MiB together with others of the
turn."""


@dataclass(frozen=True, slots=True)
class RaftOptions:
    heartbeat_s: float = 0.1
    """Leaders of idle groups show themselves this often; all groups of a node at the same moment, so frames
    are shared."""
    election_min_s: float = 0.4
    """A follower doubts its leader after a random time from here (> 3 heartbeats: one lost heartbeat must not
    matter) ..."""
    election_max_s: float = 0.8
    """... to here. The spread makes one follower ask first; failover must stay under 1 s."""
    quorum_check_s: float = 0.8
    """A leader without answers from a majority for this long steps down: about when the others elect another
    one. Longer than two heartbeats: the answer to one may wait for the other node's own next heartbeat."""
    suspicion_min_s: float = 0.01
    """A follower asks for pre-votes after a random time from here when the connection to the leader's node breaks ...
    """
    suspicion_max_s: float = 0.08
    """... to here: several round trips and syncs wide, so that two followers seldom collide."""
    quiesce_after_s: float = 1.0
    """A leader without news for this long asks its followers to be content with the heartbeats of its node."""
    stall_s: float = 0.1
    """A deadline missed by more than this means that our loop stood still, not that the leader did: look at
    input first."""
    durability: Durability = "fsync"
    """"fsync": entries are synced before they are acknowledged. "replicated": only terms and votes are; the
    loss of power on a majority at once may lose acknowledged entries."""
    eager_appends: bool = False
    """Leaders send appends before their own sync (both run in parallel; commit still waits for the leader's
    own sync)."""
    max_append_bytes: int = 4 * MIB
    """Entries in one append, unless a single entry is larger: bounds the work a follower gets in one
    piece."""
    max_append_entries: int = 1024
    """The same for tiny entries."""
    window_bytes: int = 8 * MIB
    """Unanswered bytes per follower and group. Enough for 1 GB/s at 8 ms; bounds what a reconnect sends
    again."""
    window_messages: int = 64
    """Unanswered appends with entries per follower and group."""
    max_uncommitted_bytes: int = 64 * MIB
    """Proposals without outcome per group; above it `propose` raises Overloaded."""
    tail_cache_bytes: int = 32 * MIB
    """Newest entries of the groups that the node leads, kept in memory for followers, apply and tail readers; of others
    what is not applied yet."""
    apply_bytes_per_tick: int = 8 * MIB
    """Apply at most so much in one tick: a node that catches up must still answer heartbeats."""
    apply_entries_per_tick: int = 128
    """The same for tiny entries: a few milliseconds, which clients of all other groups of the node wait for."""
    checkpoint_entries: int = 4096
    """A restart applies at most so many entries again (plus one tick's worth)."""
    checkpoint_bytes: int = 64 * MIB
    """... and at most so many bytes."""
    unknown_after_s: float = 2.0
    """After losing leadership, proposals without outcome are reported Unknown: a new leader is long there by
    then."""
    transfer_timeout_s: float = 1.0
    """A leadership transfer that did not happen by now is given up and proposals are taken again."""
    prefer_after_s: float = 3.0
    """A leader hands over to the group's preferred node when that has been connected and caught up for so
    long ..."""
    prefer_retry_s: float = 10.0
    """... and tries again no sooner than this: a transfer stops proposals for a round trip."""
    prefer_per_s: float = 25.0
    """Leaderships that a node hands to preferred nodes in a second: a node that returns may be preferred by hundreds of
    groups, whose clients would all go there at once."""
    prefer_settled_s: float = 60.0
    """A leader that leads again sooner than this after it handed over waits twice as long before the next time ..."""
    prefer_longest_s: float = 600.0
    """... up to this: whatever deposes the preferred node may have been mended, and nobody says so."""
    slow_answer_s: float = 0.3
    """A member that takes longer to store an append is not fit to lead, whoever prefers it: nearly an election's
    patience, and the clients would wait as long ..."""
    slow_remembered_s: float = 60.0
    """... and not for so long after the last such answer: a disk that stands still now and then is a slow one."""
    commit_lag_s: float = 0.005
    """A new commit index travels with the next append, or alone after this time (not in groups that are patient)."""
    trim_wait_s: float = 60.0
    """A leader trims nothing that a member still lacks while it heard from that member within this time: short
    absences need no rebuilding. A member that is away for longer gets a snapshot when it returns."""
    fetch_bytes: int = 512 * KIB
    """One piece of a snapshot, unless a single entry is larger: a few milliseconds of the leader's loop."""
    fetch_bytes_per_s: int = 64 * MIB
    """Limit of a rebuilt node's fetches, over all its groups: the rest of a slow disk or network is for writers."""
    fetch_retry_s: float = 1.0
    """A request that was refused, or whose answer was damaged several times, is repeated after this time."""
    fetch_timeout_s: float = 5.0
    """An unanswered one is repeated after this time, and asks for half as much: the path may be that slow."""
    fetch_groups: int = 4
    """Groups rebuilt at the same time on one node: each keeps a piece in memory, here and at its leader."""
    fetch_lease_s: float = 30.0
    """A leader keeps a snapshot, and the entries after it, for so long after the last request for it."""

    def __post_init__(self) -> None:
        if not 0 < 3 * self.heartbeat_s < self.election_min_s < self.election_max_s:
            raise ValueError("RaftOptions: need 0 < 3 * heartbeat_s < election_min_s < election_max_s")
        if self.quorum_check_s <= 2 * self.heartbeat_s:
            raise ValueError("RaftOptions: quorum_check_s must be longer than 2 * heartbeat_s")
        if not 0 < self.suspicion_min_s < self.suspicion_max_s <= self.election_max_s:
            raise ValueError("RaftOptions: need 0 < suspicion_min_s < suspicion_max_s <= election_max_s")
        if min(self.fetch_bytes, self.fetch_bytes_per_s, self.fetch_groups) < 1:
            raise ValueError("RaftOptions: fetch_bytes, fetch_bytes_per_s and fetch_groups must be at least 1")
        if self.durability not in ("fsync", "replicated"):
            raise ValueError(f"RaftOptions: durability is 'fsync' or 'replicated', not {self.durability!r}")
