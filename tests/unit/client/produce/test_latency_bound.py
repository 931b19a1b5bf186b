"""What is buffered is bounded by the latency that is aimed at: found by measuring, within a second; and no trap."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from holdfast.client import BufferFullError, ConfigurationError, ProducerClient, ProducerOptions
from holdfast.client.produce import accumulator
from holdfast.client.produce.latency_bound import (
    AIM,
    FLOOR_BYTES,
    FLOOR_EVENTS,
    FLOOR_OF_PARTITION_BYTES,
    LEAST_TRANSFERS,
    MOST_STEP,
    LatencyBound,
)
from tests.unit.client.support.idempotent import idempotent
from tests.unit.client.support.real_cluster import Nodes
from tests.unit.client.support.tiny_node import TinyNode
from tests.unit.listener.support.peer import eventually

MOST = 64 * 1024 * 1024
EVENT = 300
TRANSFER = 300_000
PAUSE_EACH_S = 0.03
MEGABYTES = 1_000_000


class Simulated:
    """A producer that always waits for room, and a cluster that confirms so many bytes a second, no sooner than a
    round trip after they were sent. Time is the test's."""

    def __init__(
        self,
        target_s: float | None,
        most: int,
        rate: float,
        round_trip_s: float,
        event: int = EVENT,
        partitions: int = 1,
        pauses_s: float = 0.0,
    ) -> None:
        """`pauses_s`: so long it confirms nothing, in every PAUSE_EACH_S, and catches up then."""
        self.bound = LatencyBound(target_s, most)
        self.pauses_s = pauses_s
        self.rate, self.round_trip_s, self.event = rate, round_trip_s, event
        self.partitions = partitions
        self.now_s = 0.0
        self.outstanding = 0
        self._sent: deque[tuple[float, int]] = deque()
        self._capacity = 0.0
        self.latencies_s: list[float] = []
        self.confirmed = 0

    def run(self, seconds: float, step_s: float = 0.001) -> None:
        end_s = self.now_s + seconds
        self.latencies_s, self.confirmed = [], 0
        while self.now_s < end_s:
            self.now_s += step_s
            while self.outstanding < self.bound.limit:
                self._sent.append((self.now_s, self.event))
                self.outstanding += self.event
            self.bound.waits(self.now_s)
            catches_up = self.rate * max(step_s, self.pauses_s)
            self._capacity = min(self._capacity + self.rate * step_s, max(catches_up, self.event))
            if self.now_s % PAUSE_EACH_S < self.pauses_s:
                continue
            while self._sent and self._capacity >= self.event and self.now_s - self._sent[0][0] >= self.round_trip_s:
                sent_s, size = self._sent.popleft()
                self._capacity -= size
                self.outstanding -= size
                self.confirmed += size
                self.latencies_s.append(self.now_s - sent_s)
                if self.confirmed // TRANSFER != (self.confirmed - size) // TRANSFER:
                    self.bound.took(self.round_trip_s)
                    self.bound.told(sent_s, self.now_s)
                partition = str(len(self.latencies_s) % self.partitions)
                self.bound.confirmed(partition, 1, size, self.now_s)

    @property
    def latency_s(self) -> float:
        return sorted(self.latencies_s)[len(self.latencies_s) // 2]


@pytest.mark.parametrize("rate", [40 * MEGABYTES, 150 * MEGABYTES])
@pytest.mark.parametrize("target_s", [0.02, 0.1])
def test_within_a_second_all_the_rate_is_had_at_the_latency_aimed_at(rate: float, target_s: float) -> None:
    one = Simulated(target_s, MOST, rate, 0.003)
    one.run(1.0)
    one.run(0.5)
    assert one.confirmed > 0.95 * 0.5 * rate
    assert one.latency_s == pytest.approx(AIM * target_s, rel=0.2)
    assert one.bound.limit == pytest.approx(rate * AIM * target_s, rel=0.3)


def test_the_half_is_confirmed_within_the_target_by_nodes_that_pause_too() -> None:
    one = Simulated(0.02, MOST, 100 * MEGABYTES, 0.003, pauses_s=0.012)
    one.run(2.0)
    one.run(1.0)
    assert one.latency_s == pytest.approx(AIM * 0.02, rel=0.25)
    assert one.confirmed > 0.8 * one.rate


@pytest.mark.parametrize("latency_s", [0.001, 0.0])
def test_what_was_taken_in_before_the_bound_moved_is_not_counted(latency_s: float) -> None:
    bound = LatencyBound(0.02, MOST)
    bound.waits(1.0)
    for _ in range(LEAST_TRANSFERS):
        bound.told(0.99, 9.0)
    bound.confirmed("0", 1000, 300_000, 1.2)
    assert bound.limit == FLOOR_BYTES
    for _ in range(LEAST_TRANSFERS):
        bound.told(1.0, 1.0 + latency_s)
    bound.confirmed("0", 1000, 300_000, 1.4)
    assert bound.limit == int(FLOOR_BYTES * MOST_STEP)


def steps_of(latencies_s: Sequence[float]) -> list[float]:
    """By how much the bound moves, with each of these medians."""
    bound = LatencyBound(0.02, MOST)
    limits = [bound.limit]
    for number, latency_s in enumerate(latencies_s):
        bound.waits(float(number))
        for _ in range(LEAST_TRANSFERS):
            bound.told(float(number), number + latency_s)
        bound.confirmed("0", 10, 3000, number + 0.5)
        limits.append(bound.limit)
    return [after / before for before, after in pairwise(limits)]


def test_a_measurement_moves_it_towards_the_aim_and_never_far() -> None:
    soon, late, aim_s = 0.001, 1.0, AIM * 0.02
    steps = steps_of([soon, soon, aim_s, aim_s / 1.2, aim_s * 1.1, late])
    assert steps == pytest.approx([MOST_STEP, MOST_STEP, 1.0, 1.2, 1 / 1.1, 1 / MOST_STEP], rel=0.001)


def test_when_the_nodes_become_slower_or_faster_it_follows() -> None:
    one = Simulated(0.02, MOST, 150 * MEGABYTES, 0.003)
    one.run(1.0)
    one.rate = 40 * MEGABYTES
    one.run(1.0)
    one.run(0.3)
    assert one.latency_s < 0.03
    one.rate = 150 * MEGABYTES
    one.run(1.0)
    one.run(0.3)
    assert one.confirmed > 0.9 * 0.3 * one.rate


def test_where_the_round_trip_is_longer_than_the_target_the_rate_does_not_suffer() -> None:
    one = Simulated(0.02, MOST, 60 * MEGABYTES, 0.15)
    one.run(4.0)
    one.run(1.0)
    assert one.confirmed > 0.9 * one.rate


def test_it_never_falls_under_the_floors_nor_exceeds_what_is_allowed() -> None:
    slow = Simulated(0.02, MOST, 1 * MEGABYTES, 0.001)
    slow.run(3.0)
    assert slow.bound.limit == FLOOR_BYTES
    wide = Simulated(0.02, MOST, 5 * MEGABYTES, 0.001, partitions=40)
    wide.run(3.0)
    assert wide.bound.limit == 40 * FLOOR_OF_PARTITION_BYTES
    large = Simulated(0.02, MOST, 20 * MEGABYTES, 0.001, event=2 * MEGABYTES)
    large.run(3.0)
    assert large.bound.limit == pytest.approx(FLOOR_EVENTS * 2 * MEGABYTES)
    fast = Simulated(10.0, MOST // 8, 150 * MEGABYTES, 0.001)
    fast.run(1.0)
    assert fast.bound.limit == MOST // 8
    assert LatencyBound(0.02, 1000).limit == 1000


def test_who_never_waits_for_room_moves_nothing() -> None:
    bound = LatencyBound(0.02, MOST)
    for step in range(1000):
        bound.confirmed("0", 1000, 300_000, step * 0.001)
    assert bound.limit == FLOOR_BYTES


@pytest.mark.parametrize("target_s", [None, 0])
def test_without_a_target_only_the_buffer_bounds(target_s: float | None) -> None:
    one = Simulated(target_s, 10 * MEGABYTES, 100 * MEGABYTES, 0.001)
    one.run(0.5)
    assert one.bound.limit == 10 * MEGABYTES


def test_a_negative_target_is_the_programs_mistake() -> None:
    with pytest.raises(ConfigurationError, match="latency_target_s must be a time"):
        ProducerOptions(latency_target_s=-1).check()


# ---------------------------------------------------------------- in a producer


async def test_who_can_wait_is_bounded_by_it_and_who_cannot_by_the_buffer(
    node: TinyNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accumulator, "STUCK_AFTER_S", 1e9)
    node.credit = 0
    producer = ProducerClient(node.address, "trades", ProducerOptions(max_buffered_events=6000))
    await producer.start()
    body = bytes(100)
    sending: asyncio.Future[Any] = asyncio.ensure_future(_send(producer, 6000, body))
    await eventually(lambda: not producer._accumulator.has_room)
    assert producer.outstanding == -(-FLOOR_BYTES // (100 + accumulator.EVENT_OVERHEAD_BYTES))
    for _ in range(6000 - producer.outstanding):
        producer.send_nowait(body, partition="1")
    with pytest.raises(BufferFullError):
        producer.send_nowait(body, partition="1")
    assert not sending.done()
    sending.cancel()
    await producer.abandon()


async def _send(producer: ProducerClient, count: int, body: bytes) -> None:
    for _ in range(count):
        await producer.send(body, partition="1")


@pytest.mark.parametrize("idempotently", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("many", [False, True], ids=["single", "chunks"])
async def test_a_partition_that_does_not_answer_holds_up_no_other(
    node: TinyNode, idempotently: bool, many: bool
) -> None:
    stuck = True
    held: list[Any] = []

    def swallow(connection: Any, partition: str, count: int) -> bool:
        if stuck and partition == "0":
            held.append(connection)
        return stuck and partition == "0"

    node.after_transfers = swallow
    producer = idempotent(node) if idempotently else ProducerClient(node.address, "trades")
    confirmed: dict[str | None, int] = {}

    def count(partition: str | None, events: int) -> None:
        confirmed[partition] = confirmed.get(partition, 0) + events

    body = bytes(100)
    async with asyncio.timeout(100), producer:
        producer.on_confirmed = count
        for _ in range(20):
            for partition in ("0", "1"):
                if many:
                    await producer.send_many([body] * 300, partition=partition)
                else:
                    for _ in range(300):
                        await producer.send(body, partition=partition)
        await eventually(lambda: confirmed.get("1", 0) == 6000)
        assert "0" not in confirmed
        stuck = False
        for connection in held:
            connection.abort()
        await producer.flush()
        assert confirmed == {"0": 6000, "1": 6000}


@pytest.mark.asyncio(loop_scope="module")
async def test_with_real_nodes_it_moves_and_everything_arrives(nodes: Nodes) -> None:
    log = await nodes.log(2)
    options = ProducerOptions(latency_target_s=0.5)
    async with asyncio.timeout(100), ProducerClient(nodes.servers, log, options) as producer:
        bound = producer._accumulator._latency
        sent = 0
        while bound.limit == FLOOR_BYTES:
            await producer.send_many([bytes(100)] * 500, partition=str(sent % 2))
            sent += 1
        await producer.flush()
        assert producer.stats.accepted == 500 * sent


async def test_a_latency_ends_when_the_caller_that_awaits_the_outcome_is_told(node: TinyNode) -> None:
    """Behind all that the loop has to do before."""
    async with ProducerClient(node.address, "trades") as producer:
        told: list[tuple[float, float]] = []
        events: list[str] = []
        producer._accumulator._latency.told = lambda *times: (told.append(times), events.append("told"))  # type: ignore[method-assign]
        delivery = await producer.send(b"event", partition="0", done=lambda _: events.append("done"))
        await delivery
        await asyncio.sleep(0)
    ((since_s, now_s),) = told
    assert since_s < now_s
    assert events == ["done", "told"]
