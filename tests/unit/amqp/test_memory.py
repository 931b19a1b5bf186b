"""Memory: nothing grows with traffic, with links or with peers; freeing in any state is safe."""

from __future__ import annotations

import gc
import random

import psutil
import pytest

from holdfast.amqp import (
    Engine,
    Error,
    LinkRequested,
    Modified,
    ReceiverLink,
    Rejected,
    SenderLink,
    Settlements,
    Transfers,
)
from tests.unit.amqp.wire import LoopbackWire, RawPeer, each, message

MIB = 1024 * 1024


def resident_bytes() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)


def carry(wire: LoopbackWire, near: SenderLink, far: ReceiverLink, count: int, *, settled: bool = False) -> None:
    """`count` messages over a link, each with its outcome."""
    payloads = [message(b"x" * 200)] * 500
    source, sink = near._engine, far._engine
    done = 0
    while done < count:
        far.grant(len(payloads))
        wire.exchange()
        source.events()  # type: ignore[attr-defined]
        near.send_many(payloads, settled)
        wire.exchange()
        for event in sink.events():  # type: ignore[attr-defined]
            if isinstance(event, Transfers):
                odd = event.deliveries[::50]
                far.settle(odd, Rejected(Error("amqp:not-found", "no", {"a": 1})) if done % 1000 else Modified(True))
                for start in range(0, len(event.deliveries), 50):
                    far.settle(event.deliveries[start + 1 : start + 50])
        wire.exchange()
        assert settled or sum(len(event.outcomes) for event in each(source.events(), Settlements)) == 500  # type: ignore[attr-defined]
        done += len(payloads)


@pytest.mark.parametrize("direction", ["producer", "consumer"])
@pytest.mark.parametrize("settled", [False, True])
def test_memory_does_not_grow_with_transfers(direction: str, settled: bool) -> None:
    wire = LoopbackWire()
    ends = wire.producer(credit=0) if direction == "producer" else wire.consumer(credit=0)[::-1]
    near, far = ends
    assert isinstance(near, SenderLink)
    assert isinstance(far, ReceiverLink)
    carry(wire, near, far, 20_000, settled=settled)  # pools and caches reach their size
    before = resident_bytes()
    carry(wire, near, far, 100_000, settled=settled)
    assert resident_bytes() - before < 2 * MIB


def test_memory_does_not_grow_with_links_and_sessions() -> None:
    wire = LoopbackWire()

    def churn(count: int) -> None:
        for number in range(count):
            near, far = wire.producer(f"log-{number}", properties={"n": number})
            near.send_many([message()] * 3)
            heard, _ = wire.talk()
            far.settle([delivery for event in each(heard, Transfers) for delivery in event.deliveries])
            near.close()
            refused = wire.client.open_receiver("nowhere")
            heard, _ = wire.talk()
            for request in each(heard, LinkRequested):
                request.link.refuse(Error("amqp:not-found", "x" * 100, {"k": "v"}))
            wire.talk()
            assert not refused.alive
            if number % 5 == 0:
                near.session.close()
                wire.talk()

    churn(300)
    before = resident_bytes()
    churn(1500)
    assert resident_bytes() - before < 2 * MIB
    assert len(wire.server._links) == len(wire.client._links) == 0


def busy_wire(rng: random.Random) -> LoopbackWire:
    """A connection stopped at some point of its life, with links, deliveries and output in all states."""
    wire = LoopbackWire(client={"sasl": rng.choice((None, "ANONYMOUS"))})
    for _ in range(rng.randrange(4)):
        near, far = wire.producer() if rng.random() < 0.5 else wire.consumer()[::-1]
        near.send_many([message()] * rng.randrange(20))  # type: ignore[union-attr]
        if rng.random() < 0.7:
            wire.exchange()
        if rng.random() < 0.3:
            rng.choice((near.close, far.detach))()
    wire.client.open_sender("asked")
    if rng.random() < 0.5:
        wire.server.receive(wire.client.data_to_send())
    if rng.random() < 0.2:
        wire.client.close()
        wire.exchange()
    return wire


def test_engines_can_be_dropped_in_any_state() -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    before = None
    for number in range(2000):
        wire = busy_wire(rng)
        links = [event.link for event in wire.server.events() if isinstance(event, (LinkRequested, Transfers))]
        how = rng.randrange(3)
        if how == 0:
            wire.server.free()
        elif how == 1:
            del wire
        for link in links:
            link.close()
        if number == 500:
            before = resident_bytes()
    assert before is not None
    assert resident_bytes() - before < 8 * MIB, f"seed {seed}"


def test_handles_outlive_their_engine() -> None:
    wire = LoopbackWire()
    near, far = wire.producer()
    near.send_many([message()] * 5)
    heard, _ = wire.talk()
    deliveries = each(heard, Transfers)[0].deliveries
    del wire
    gc.collect()
    near._engine.free()  # type: ignore[attr-defined]
    far._engine.free()  # type: ignore[attr-defined]
    far.settle(deliveries)
    far.grant(1)


def test_idle_engines_are_small() -> None:
    before = resident_bytes()
    peers = [RawPeer(Engine("server", container_id=f"n{number}")) for number in range(300)]
    for peer in peers:
        peer.accepted()
    assert resident_bytes() - before < 300 * 100 * 1024
