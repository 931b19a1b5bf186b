"""Producers of all kinds at work, and what they saw held against what the log holds (`history.check`)."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.client.consumer import ConsumerClient, ConsumerOptions
from holdfast.client.start_position import Start
from holdfast.client.transport.network import NetworkOptions
from tests.integration.clusters.cluster import Cluster
from tests.integration.judges.history import check
from tests.integration.workloads.holdfast_producer import HoldfastProducer
from tests.integration.workloads.plain import read
from tests.integration.workloads.producers import OrderedProducer

RESUME_WITHIN_S = 180.0
"""No measurement: beyond it we call it hung."""
LAST_EVENTS = 50

Producer = OrderedProducer | HoldfastProducer
KINDS = ("proton, redirected", "proton, through gateways", "holdfast client")


def start_producers(cluster: Cluster, log: str) -> list[Producer]:
    default = [cluster.address(node) for node in cluster.nodes]
    gateways = [cluster.address(node, "never") for node in cluster.nodes]
    producers: list[Producer] = [
        OrderedProducer(default, log, "0", "redirected"),
        OrderedProducer(gateways, log, "1", "gateway"),
        HoldfastProducer(default, log, "2", "holdfast"),
    ]
    for producer in producers:
        producer.begin()
    for producer in producers:
        producer.wait_for(100)
    return producers


@dataclass(frozen=True)
class Stored:
    body: str
    offset: str


def read_partition(cluster: Cluster, log: str, partition: str) -> list[Stored]:
    """Everything that is in it, through some node, by our own client; the end of it by a stock one as well.

    Stock proton reads some thousand events a second, so it is not asked for all of them.
    """
    node = cluster.running[int(partition) % len(cluster.running)]

    async def everything() -> list[Stored]:
        options = ConsumerOptions(until_end=True, network=NetworkOptions(follow_redirects=False))
        reading = ConsumerClient(
            cluster.address(node), log, start=Start.earliest(), partitions=[partition], options=options
        )
        async with reading as consumer:
            return [Stored(event.body.decode(), event.offset) async for event in consumer]

    events = asyncio.run(everything())
    assert len(events) > LAST_EVENTS, f"partition {partition} holds {len(events)} events: too few to prove anything"
    before = events[-LAST_EVENTS - 1].offset
    for event, seen in zip(
        events[-LAST_EVENTS:], read(cluster.address(node), log, LAST_EVENTS, partition, {"offset": before}), strict=True
    ):
        body = seen.body if isinstance(seen.body, str) else seen.body.decode()
        assert (event.body, event.offset) == (body, seen.offset)
    return events


def judge(cluster: Cluster, log: str, producers: Iterable[Producer]) -> None:
    for number, producer in enumerate(producers):
        sent = producer.finish()
        events = read_partition(cluster, log, str(number))
        bodies = [event.body for event in events]
        if isinstance(producer, HoldfastProducer):
            may_copy = producer.resent and not producer.idempotent
            copies = check(sent, bodies, copies_allowed=range(sent.numbers) if may_copy else ())
            assert copies <= producer.resent
        else:
            copies = check(sent, bodies)
        offsets = [event.offset for event in events]
        assert offsets == sorted(set(offsets))
        print(f"{sent.producer}: {len(sent.acknowledged)} acknowledged, {copies} copies")


def wait_resumed(producer: Producer, moment_s: float) -> float:
    deadline = time.monotonic() + RESUME_WITHIN_S
    while (gap_s := producer.resumed_after(moment_s)) is None:
        assert producer.failure is None, f"{producer.sent.producer} failed: {producer.failure!r}"
        assert time.monotonic() < deadline, f"{producer.sent.producer} hangs since a node was killed"
        time.sleep(0.005)
    return gap_s


def percentiles(values_s: list[float]) -> str:
    ordered = sorted(values_s)
    p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return f"p50 {statistics.median(ordered):.2f} s, p95 {p95:.2f} s over {len(ordered)}"
