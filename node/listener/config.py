"""Configuration of one listener, and the limits of each of its peers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from node.listener.connections.proxy_header import Network
from node.listener.limits.memory_budgets import CONNECTION_BYTES
from node.security.tls import ServerTls

RedirectPolicy = Literal["auto", "always", "never"]


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """One listener. Every limit has its reason; the defaults suit a node with a few GiB of memory."""

    name: str = "default"
    bind_host: str = "127.0.0.1"
    bind_port: int = 5672  # 0: the system chooses (tests)
    redirect: RedirectPolicy = "auto"
    tls: ServerTls | None = None  # None: plain connections only
    tls_mode: Literal["on", "start", "any"] = "on"  # from the first byte; plain, until a client asks for it; or both
    proxies: tuple[Network, ...] = ()  # that say for whom they come, and are believed

    # A message is at most one Raft entry, which crosses to the other nodes in one piece.
    max_message_size: int = 4 * 1024 * 1024
    # File descriptors and about 60 KiB of engine state each.
    max_connections: int = 10_000
    # A peer silent for so long is gone. The engine announces it, so live peers send heartbeats.
    idle_timeout_s: float = 60.0
    # From TCP accept to AMQP open. Long enough for a slow network, short enough to shed port scanners.
    handshake_timeout_s: float = 10.0
    # An election is over in two seconds; a peer that waits longer than this should hear that something is wrong.
    leader_wait_s: float = 10.0
    # Links each cost a few KiB and a place in every change notification.
    max_links_per_connection: int = 4096
    # Messages a sender may have unsettled on one link; enough for a millisecond of round trip at 500,000 a second.
    credit_window: int = 2000
    # Bytes that the credit of one link may stand for: big messages get fewer credits. With half of it the turns of the
    # groups are half as large, and a thousand events of 16 KiB in flight have 0.9 of the rate.
    credit_window_bytes: int = 16 * 1024 * 1024
    # What the peer makes the node hold beyond that, per connection: unfinished messages, links, unsettled deliveries,
    # output that it does not take (`limits/memory_budgets.py`).
    held_bytes: int = CONNECTION_BYTES
    # Received and not yet replicated, per connection: above it the socket is not read, below half of it it is again.
    uncommitted_bytes: int = 32 * 1024 * 1024
    # Encoded and not yet taken by the socket, per connection: above it no more events are read from partitions.
    pending_output_bytes: int = 1024 * 1024
    # Output that even then piles up (settlements, flow) because the peer does not read: above it it is not read either.
    pending_output_limit_bytes: int = 4 * 1024 * 1024
    # A member of a consumer group for which there is no partition: its attach is held, or refused at once (ES-35).
    group_full: Literal["hold", "refuse"] = "hold"
    # So long; then it is refused, so that its peer learns that it was not forgotten.
    group_hold_s: float = 30.0
    # Deliveries sent and not settled by a consumer, per link: each costs the engine some 500 bytes.
    unsettled_deliveries: int = 20_000
    # A consumer that has reached that bound and settles nothing for so long is told to, and detached.
    unsettled_stall_s: float = 60.0
    # `$info` is repeated no more often than this on one link (ES-56).
    info_interval_s: float = 1.0
    # How long a stopping listener waits for peers to answer its close.
    drain_timeout_s: float = 2.0
