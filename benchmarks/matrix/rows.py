"""What is measured: the rows, who takes part in each, and what Holdfast promises.

A goal is a ratio within one run on one machine; absolute figures say more about the machine than about the
brokers. Contestants of one row promise the same durability where they can: Holdfast `fsync` stands against the
quorum queue and Kafka with a flush for each batch (all sync before they acknowledge), Holdfast `replicated` against
the stream and Kafka as it ships (all acknowledge from page caches).

Kafka does not speak AMQP: it is driven through its own client. So in its rows Holdfast runs twice, by the AMQP driver
that RabbitMQ is driven by, and by its own client, which is what Kafka's lines are held against first.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

Mode = Literal["send", "tail", "backlog"]
MIB = 1 << 20


@dataclass(frozen=True)
class Contestant:
    """One kind of log of one peer."""

    peer: str  # key of the started peers
    kind: str  # what Peer.create() is asked for
    title: str
    rivals: tuple[Contestant, ...] = ()  # the Holdfast kinds it is held against, the fairest first


FSYNC = Contestant("holdfast-fsync", "log", "Holdfast fsync")
REPLICATED = Contestant("holdfast-replicated", "log", "Holdfast replicated")
QUORUM = Contestant("rabbitmq", "quorum", "RabbitMQ quorum queue", (FSYNC, REPLICATED))
STREAM = Contestant("rabbitmq", "stream", "RabbitMQ stream", (REPLICATED, FSYNC))
FSYNC_CLIENT = Contestant("holdfast-fsync", "own-client", "Holdfast fsync, own client")
REPLICATED_CLIENT = Contestant("holdfast-replicated", "own-client", "Holdfast replicated, own client")
FLUSHED = Contestant("kafka", "flush", "Kafka, flush.messages=1", (FSYNC_CLIENT, FSYNC, REPLICATED_CLIENT, REPLICATED))
CACHED = Contestant("kafka", "log", "Kafka", (REPLICATED_CLIENT, REPLICATED, FSYNC_CLIENT, FSYNC))
AT_ONCE = Contestant("kafka", "log-linger0", "Kafka, linger 0", (REPLICATED_CLIENT, REPLICATED))
CONTESTANTS = (FSYNC, REPLICATED, QUORUM, STREAM, FSYNC_CLIENT, REPLICATED_CLIENT, FLUSHED, CACHED, AT_ONCE)


@dataclass(frozen=True)
class Goal:
    """`mine` must reach `factor` times the events per second of `theirs`."""

    mine: Contestant
    theirs: Contestant
    factor: float


@dataclass(frozen=True)
class Row:
    """One line of the matrix. Bounded by time; where an event is large, by a count, so that no row writes more
    than some hundred MiB.
    """

    name: str
    title: str
    contestants: tuple[Contestant, ...]
    mode: Mode = "send"
    size: int = 1024
    senders: int = 1
    window: int = 1000
    count: int | None = None  # per sender; None: bounded by seconds
    goal: Goal | None = None

    def limited_to(self, titles: Collection[str]) -> Row:
        return replace(self, contestants=tuple(c for c in self.contestants if c.title in titles))


AMQP = (FSYNC, QUORUM, REPLICATED, STREAM)
CLIENTS = (FSYNC_CLIENT, FLUSHED, REPLICATED_CLIENT, CACHED)
ALL = AMQP + CLIENTS

MATRIX = (
    Row("1KiB", "one sender, 1 KiB", ALL, goal=Goal(FSYNC, QUORUM, 3.0)),
    Row("100B", "one sender, 100 B", ALL, size=100, goal=Goal(REPLICATED, STREAM, 2.0)),
    Row("100B-deep", "one sender, 100 B, window 50,000", CLIENTS, size=100, window=50_000),
    Row("16KiB", "one sender, 16 KiB", ALL, size=16 * 1024, window=200, count=12_000),
    Row("1MiB", "one sender, 1 MiB", ALL, size=MIB, window=16, count=200),
    Row("4-senders", "four senders, 1 KiB", ALL, senders=4),
    Row("latency", "one sender, 1 KiB, window 200", (*ALL, AT_ONCE), window=200),
    Row("tail", "send 1 KiB and receive from the tail", ALL, mode="tail"),
    Row(
        "backlog",
        "receive 100,000 events of 1 KiB from the start",
        (FSYNC, STREAM, FSYNC_CLIENT, CACHED),
        mode="backlog",
        count=100_000,
    ),
)
