"""Rows of the matrix, with the contestants and the goals of each."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

from benchmarks.matrix.contestants import (
    AMQP,
    ARRAYS,
    ARTEMIS_FSYNC,
    AS_IT_COMES,
    AT_ONCE,
    CACHED,
    CACHED_10K,
    CACHED_DEEP,
    CACHED_DEEP_4,
    CLIENT_DEEP,
    CLIENTS,
    COLUMNS,
    FLUSHED,
    FLUSHED_DEEP,
    FSYNC,
    FSYNC_MANY,
    FSYNC_MANY_DEEP,
    NATS,
    NATS_BENCH,
    NATS_SYNC,
    NATS_SYNC_BENCH,
    QUORUM,
    REPLICATED,
    REPLICATED_1000,
    REPLICATED_CLIENT,
    REPLICATED_MANY,
    REPLICATED_MANY_4,
    REPLICATED_MANY_10K,
    REPLICATED_MANY_DEEP,
    STREAM,
    STREAM_1000,
    Contestant,
)
from benchmarks.matrix.goals import Goal, defaults, kept, rate_and_cpu, twice

Mode = Literal["send", "tail", "backlog"]
MIB = 1 << 20


@dataclass(frozen=True)
class Row:
    """One row of the matrix.

    Time bounds its runs; for large events a count does, so that none writes more than some hundred MiB.
    """

    name: str
    title: str
    contestants: tuple[Contestant, ...]
    mode: Mode = "send"
    size: int = 1024
    senders: int = 1
    window: int = 1000
    count: int | None = None  # per sender; None: bounded by seconds
    goals: tuple[Goal, ...] = ()
    within_ms: tuple[tuple[Contestant, float], ...] = ()  # bounds for the p50 of a contestant

    def limited_to(self, titles: Collection[str]) -> Row:
        return replace(self, contestants=tuple(c for c in self.contestants if c.title in titles))


KAFKA_100B = (CACHED, CACHED_10K, CACHED_DEEP)

MATRIX = (
    Row(
        "1KiB", "one sender, 1 KiB", (*AMQP, *CLIENTS, NATS_SYNC_BENCH, NATS_BENCH, FSYNC_MANY, FSYNC_MANY_DEEP,
         FLUSHED_DEEP),
        goals=(
            Goal((FSYNC_MANY,), (NATS_SYNC, NATS_SYNC_BENCH), 1.0),
            Goal((REPLICATED_CLIENT,), (NATS, NATS_BENCH), 1.0),
            Goal((FSYNC,), (QUORUM,), 3.0),
            Goal((FSYNC_MANY,), (QUORUM,), 5.0),
            Goal((FSYNC_MANY, FSYNC_MANY_DEEP), (FLUSHED, FLUSHED_DEEP), 2.0),
            kept(REPLICATED, STREAM, 2.33),
        ),
    ),
    Row(
        "100B", "one sender, 100 B",
        (*AMQP, *CLIENTS, NATS_SYNC_BENCH, NATS_BENCH, FSYNC_MANY, FSYNC_MANY_DEEP, FLUSHED_DEEP, AS_IT_COMES,
         CLIENT_DEEP, REPLICATED_MANY, REPLICATED_MANY_DEEP, REPLICATED_MANY_4, CACHED_10K, CACHED_DEEP, CACHED_DEEP_4),
        size=100,
        goals=(
            Goal((FSYNC_MANY,), (NATS_SYNC, NATS_SYNC_BENCH), 1.0),
            Goal((REPLICATED_MANY,), (NATS, NATS_BENCH), 1.0),
            *rate_and_cpu(REPLICATED_MANY, KAFKA_100B),
            *rate_and_cpu(REPLICATED_MANY_4, (CACHED_DEEP_4,)),
            twice((REPLICATED_CLIENT,), (CACHED,), 62_600, 113_300),
            twice((AS_IT_COMES, CLIENT_DEEP), (CACHED_DEEP,), 83_100, 367_500),
            Goal((FSYNC_MANY, FSYNC_MANY_DEEP), (FLUSHED, FLUSHED_DEEP), 2.0),
            defaults(REPLICATED_MANY, REPLICATED_MANY_DEEP),
            defaults(FSYNC_MANY, FSYNC_MANY_DEEP),
            defaults(AS_IT_COMES, CLIENT_DEEP),
            kept(FSYNC, QUORUM, 5.81),
            kept(REPLICATED, STREAM, 3.11),
        ),
        within_ms=((REPLICATED_MANY, 20), (FSYNC_MANY, 20), (AS_IT_COMES, 20)),
    ),
    Row(
        "16KiB", "one sender, 16 KiB", (*AMQP, *CLIENTS, REPLICATED_1000, STREAM_1000),
        size=16 * 1024, window=200, count=36_000,
        goals=(
            Goal((REPLICATED, REPLICATED_CLIENT, REPLICATED_1000), (STREAM, STREAM_1000), 1.2),
            kept(FSYNC, QUORUM, 1.47),
        ),
    ),
    Row(
        "1MiB", "one sender, 1 MiB", (*AMQP, *CLIENTS), size=MIB, window=16, count=600,
        goals=(Goal((REPLICATED, REPLICATED_CLIENT), (STREAM,), 1.2), kept(FSYNC, QUORUM, 1.26)),
    ),
    Row(
        "4-senders", "four senders, 1 KiB", AMQP, senders=4,
        goals=(kept(FSYNC, QUORUM, 4.36), kept(REPLICATED, STREAM, 2.41)),
    ),
    Row(
        "latency", "one sender, 1 KiB, window 200", (*AMQP, *CLIENTS, AT_ONCE), window=200,
        goals=(kept(FSYNC, QUORUM, 2.55), kept(REPLICATED, STREAM, 1.81)),
    ),
    Row(
        "tail", "send 1 KiB and receive from the tail",
        (*AMQP, REPLICATED_CLIENT, CACHED, NATS, REPLICATED_MANY, REPLICATED_MANY_10K, CACHED_10K),
        mode="tail",
        goals=(
            Goal((REPLICATED_CLIENT, REPLICATED_MANY, REPLICATED_MANY_10K), (CACHED, CACHED_10K), 1.0, "received"),
            kept(FSYNC, QUORUM, 4.69),
            kept(REPLICATED, STREAM, 3.09),
        ),
    ),
    Row(
        "backlog", "receive 200,000 events of 1 KiB from the start",
        (FSYNC, STREAM, ARTEMIS_FSYNC, REPLICATED_CLIENT, COLUMNS, CACHED, NATS),
        mode="backlog", count=200_000,
        goals=(
            Goal((COLUMNS,), (CACHED,), 1.0),
            twice((REPLICATED_CLIENT,), (CACHED,), 153_000, 1_009_000),
            kept(FSYNC, STREAM, 11.2),
        ),
    ),
    Row(
        "backlog-100B", "receive 1,000,000 events of 100 B from the start",
        (REPLICATED_CLIENT, COLUMNS, ARRAYS, CACHED),
        mode="backlog", size=100, count=1_000_000,
        goals=(Goal((COLUMNS,), (CACHED,), 1.0),),
    ),
)  # fmt: skip
CONTESTANTS = tuple(dict.fromkeys(contestant for row in MATRIX for contestant in row.contestants))
