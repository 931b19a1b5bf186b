"""Contestants: kinds of logs of the peers, each with a client that sends and reads in one way.

Contestants of one row promise the same durability if possible. Holdfast `fsync` is compared with the quorum queue and
with Kafka with a flush for each batch: all sync before they acknowledge. Holdfast `replicated` is compared with the
stream and with Kafka's defaults: all acknowledge from page caches. Artemis promises less: it has two replicas, and the
second one answers from its memory (peers/artemis.py).

If a rival has a line with a deep window, Holdfast has one, too, and the best of each side counts. Then only that window
bounds the events in flight, and the latency does not count.

Kafka and NATS do not speak AMQP, so their own clients drive them. Therefore Holdfast runs with the AMQP driver, as
RabbitMQ and Artemis do, and with its own client, with which the lines of those two are compared first. NATS has a line
with its Python client and one with its own benchmark program, which is written in Go.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from benchmarks.driver.bounded import Reading, Sending


@dataclass(frozen=True)
class Contestant:
    """One kind of log of one peer, with its window and its way of sending and reading."""

    peer: str  # key of the started peers
    kind: str  # argument of Peer.create()
    title: str
    rivals: tuple[Contestant, ...] = ()  # the Holdfast kinds to compare with, the fairest first
    partitions: int = 1
    window: int | Literal["row", "own"] = "row"  # events in flight: the row's, or the client's choice
    sending: Sending = "events"
    reading: Reading = "events"


FSYNC = Contestant("holdfast-fsync", "log", "Holdfast fsync")
REPLICATED = Contestant("holdfast-replicated", "log", "Holdfast replicated")
QUORUM = Contestant("rabbitmq", "quorum", "RabbitMQ quorum queue", (FSYNC, REPLICATED))
STREAM = Contestant("rabbitmq", "stream", "RabbitMQ stream", (REPLICATED, FSYNC))
ARTEMIS_FSYNC = Contestant("artemis-fsync", "queue", "Artemis fsync, two replicas", (FSYNC, REPLICATED))
ARTEMIS = Contestant("artemis-cached", "queue", "Artemis without fsync, two replicas", (REPLICATED, FSYNC))

FSYNC_CLIENT = Contestant("holdfast-fsync", "own-client", "Holdfast fsync, own client")
REPLICATED_CLIENT = Contestant("holdfast-replicated", "own-client", "Holdfast replicated, own client")
AS_IT_COMES = Contestant(
    "holdfast-replicated", "own-client", "Holdfast replicated, own client as it comes", window="own"
)
FSYNC_MANY = Contestant("holdfast-fsync", "own-client", "Holdfast fsync, send_many", window="own", sending="chunks")
CLIENT_DEEP = Contestant(
    "holdfast-replicated", "own-client", "Holdfast replicated, own client, window 50,000", window=50_000
)
REPLICATED_MANY = Contestant(
    "holdfast-replicated", "own-client", "Holdfast replicated, send_many", window="own", sending="chunks"
)
REPLICATED_MANY_10K, REPLICATED_MANY_DEEP, FSYNC_MANY_DEEP = (
    replace(many, title=f"{many.title}, window {window:,}", window=window)
    for many, window in ((REPLICATED_MANY, 10_000), (REPLICATED_MANY, 50_000), (FSYNC_MANY, 50_000))
)
REPLICATED_MANY_4 = Contestant(
    "holdfast-replicated", "own-client", "Holdfast replicated, send_many, four partitions",
    partitions=4, window="own", sending="chunks",
)  # fmt: skip
COLUMNS = Contestant(
    "holdfast-replicated", "own-client", "Holdfast replicated, columns", sending="chunks", reading="columns"
)
ARRAYS = Contestant(
    "holdfast-replicated", "own-client", "Holdfast replicated, arrays", sending="chunks", reading="arrays"
)

# More large events in flight than in the other lines of their row.
REPLICATED_1000 = Contestant("holdfast-replicated", "log", "Holdfast replicated, window 1,000", window=1000)
STREAM_1000 = Contestant(
    "rabbitmq", "stream", "RabbitMQ stream, window 1,000", (REPLICATED_1000, REPLICATED), window=1000
)

_OF_FLUSHED = (FSYNC_CLIENT, FSYNC_MANY, FSYNC, REPLICATED_CLIENT, REPLICATED)
_OF_CACHED = (REPLICATED_CLIENT, REPLICATED_MANY, REPLICATED, FSYNC_CLIENT, FSYNC)
FLUSHED = Contestant("kafka", "flush", "Kafka, flush.messages=1", _OF_FLUSHED)
FLUSHED_DEEP = Contestant(
    "kafka", "flush", "Kafka, flush.messages=1, window 50,000", (FSYNC_MANY_DEEP, FSYNC_MANY, *_OF_FLUSHED),
    window=50_000,
)  # fmt: skip
CACHED = Contestant("kafka", "log", "Kafka", _OF_CACHED)
CACHED_10K = Contestant(
    "kafka", "log", "Kafka, window 10,000", (REPLICATED_MANY_10K, REPLICATED_MANY, *_OF_CACHED), window=10_000
)
CACHED_DEEP = Contestant("kafka", "log", "Kafka, window 50,000", (REPLICATED_MANY, *_OF_CACHED), window=50_000)
CACHED_DEEP_4 = Contestant(
    "kafka", "log", "Kafka, window 50,000, four partitions", (REPLICATED_MANY_4,), partitions=4, window=50_000
)
NATS_SYNC = Contestant("nats-always", "stream", "NATS JetStream, sync always", _OF_FLUSHED)
NATS_SYNC_BENCH = Contestant("nats-always", "bench", "NATS JetStream, sync always, nats bench", _OF_FLUSHED)
NATS = Contestant("nats-default", "stream", "NATS JetStream", _OF_CACHED)
NATS_BENCH = Contestant("nats-default", "bench", "NATS JetStream, nats bench", _OF_CACHED)
AT_ONCE = Contestant("kafka", "log-linger0", "Kafka, linger 0", (REPLICATED_CLIENT, REPLICATED))

AMQP = (FSYNC, QUORUM, ARTEMIS_FSYNC, REPLICATED, STREAM, ARTEMIS)
CLIENTS = (FSYNC_CLIENT, FLUSHED, NATS_SYNC, REPLICATED_CLIENT, CACHED, NATS)
