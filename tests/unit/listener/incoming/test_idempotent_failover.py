"""Idempotent producers on three nodes: what was granted and stored is known to whoever leads next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import protocol
from holdfast.amqp import ACCEPTED, Message, OtherState, Source, Value, decode_message, encode_message, symbol
from holdfast.records.record_batch import RecordBatch
from node.partition.api import Appended, AppendOutcome, Failed
from node.partition.idempotence import producer_state as rules
from node.partition.idempotence.producer_state import FORGOTTEN
from tests.batches import numbered
from tests.unit.listener.support.cluster import ListenerCluster
from tests.unit.listener.support.peer import Peer, eventually, message
from tests.unit.listener.support.producing import (
    OUT_OF_ORDER,
    STOLEN,
    attached,
    conditions,
    event,
    events,
    granted,
    open_producer,
    refusal,
    terms,
)
from tests.unit.listener.support.reading import place, start_at

REDIRECT = "amqp:link:redirect"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ListenerCluster]:
    async with ListenerCluster(tmp_path) as three:
        await three.create("trades")
        yield three


async def stored(cluster: ListenerCluster, count: int, log: str = "trades") -> list[bytes]:
    """The bodies of the whole log, once it has so many; each offset once, in order."""
    node = next(iter(cluster.nodes))
    async with Peer(cluster.ports[node]) as peer:
        link = await peer.receiver(start_at(log, "@earliest"), "0", credit=count + 100)
        await peer.until(lambda: len(peer.received.get(link, [])) >= count)
        await asyncio.sleep(0.05)
        assert [place(payload)[1] for payload in peer.received[link]] == list(range(count))
        return [decode_message(payload).body for payload in peer.received[link]]  # type: ignore[misc]


def messages(*bodies: bytes) -> list[bytes]:
    return list(map(message, bodies))


async def append(cluster: ListenerCluster, node: int, batch: RecordBatch) -> AppendOutcome:
    answer: asyncio.Future[AppendOutcome] = asyncio.get_running_loop().create_future()
    cluster.broker(node).handle("trades", "0").append(batch, answer.set_result)
    return await answer


async def test_the_new_leader_refuses_the_old_epoch_and_knows_what_was_stored(cluster: ListenerCluster) -> None:
    first = cluster.leader("trades")
    batch = numbered(messages(b"a", b"b", b"c"), 7, 1, 1, b"aaaabbbbcccc")
    async with Peer(cluster.ports[first]) as peer:
        assert granted(await attached(peer, 7, 1)) == (7, 1, 0)
        before = await append(cluster, first, batch)
        assert isinstance(before, Appended)
        assert granted(await attached(peer, 8, 1)) == (8, 1, 0)
        assert granted(await attached(peer, 8, 2)) == (8, 2, 0)
    await cluster.lose(first)
    second = await cluster.settled_leader("trades")
    for node in cluster.nodes:  # on the leader itself, and through a gateway
        again = await append(cluster, node, batch)
        assert again == Appended(before.base_offset, before.timestamp_ms, 3)
        other = await append(cluster, node, numbered(messages(b"a", b"X", b"c"), 7, 1, 1, b"aaaaXXXXcccc"))
        assert isinstance(other, Failed)
        assert (other.kind, other.known) == ("out_of_order", 1)
        old = await append(cluster, node, numbered(messages(b"a"), 8, 1, 1, b"aaaa"))
        assert isinstance(old, Failed)
        assert old.kind == "producer_stolen"
        async with Peer(cluster.ports[node]) as peer:
            assert (await refusal(peer, terms(8, 1))).condition == STOLEN
            assert (await refusal(peer, terms(9, 0, 3))).condition == "amqp:not-allowed"
            assert granted(await attached(peer, 7)) == (7, 1, 3)
    info = await cluster.broker(second).handle("trades", "0").info()
    assert info.next_offset == 3


async def test_what_there_was_no_room_to_remember_is_known_by_its_number(
    cluster: ListenerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the new leader and through a gateway; whoever asks for places is told none, and nothing is stored twice."""
    monkeypatch.setattr(rules, "MEMORY_BYTES", 0)
    first = cluster.leader("trades")
    async with Peer(cluster.ports[first]) as peer:
        link = await attached(peer, 7)
        await peer.send(link, events(7, 0, 1, "abc"))
        assert set(await peer.states(link, 3)) == {ACCEPTED}
    await cluster.lose(first)
    leader = await cluster.settled_leader("trades")
    asking = Source(outcomes=("amqp:accepted:list", "amqp:rejected:list", protocol.STORED))
    for node, next_one in zip((leader, cluster.other_than(leader)), "de", strict=True):
        again = await append(cluster, node, numbered(messages(b"b", b"c"), 7, 0, 2, b"bbbbcccc"))
        assert again == Appended(FORGOTTEN, 0, 2)
        async with Peer(cluster.ports[node]) as peer:
            bound = {"event-streams-partition": symbol("0")} | terms(7, 0, 0)
            link = peer.engine.open_sender("trades", source=asking, properties=bound)
            await peer._opened(link)
            await peer.until(lambda link=link: link.credit > 0)
            bodies = "abcd" if next_one == "d" else "abcde"
            await peer.send(link, events(7, 0, 1, bodies))
            states = await peer.states(link, len(bodies))
            assert states[:-1] == [ACCEPTED] * (len(bodies) - 1)
            new = states[-1]
            assert isinstance(new, OtherState)
            assert new.fields == (len(bodies) - 1, 1, "0"), "what is new is told its place"
            await peer.send(link, events(7, 0, 99, "x"))
            assert conditions(await peer.states(link, len(bodies) + 1))[-1] == OUT_OF_ORDER
    assert await stored(cluster, 5) == [letter.encode() for letter in "abcde"]


async def test_a_producer_resends_over_the_wire_what_the_lost_leader_did_not_answer(cluster: ListenerCluster) -> None:
    first = cluster.leader("trades")
    bodies = "".join(chr(97 + number % 26) for number in range(600))
    async with Peer(cluster.ports[first]) as peer:
        link = await attached(peer, 7)
        await peer.send(link, events(7, 0, 1, bodies[:100]))
        await peer.states(link, 100)
        peer.reading.clear()
        await peer.send(link, events(7, 0, 101, bodies[100:400]))
        await asyncio.sleep(0.01)
        await cluster.lose(first)
    leader = await cluster.settled_leader("trades")
    async with Peer(cluster.ports[leader]) as peer:
        link = await attached(peer, 7, 0, 100)
        assert granted(link) == (7, 0, 100)
        await peer.send(link, events(7, 0, 101, bodies[100:]))
        assert set(await peer.states(link, 500)) == {ACCEPTED}
    assert await stored(cluster, 600) == [letter.encode() for letter in bodies]


async def test_through_a_gateway_nothing_is_noticed_of_a_lost_leader(cluster: ListenerCluster) -> None:
    """Not even a doubt: the node asks the new leader what became of it."""
    victim = cluster.leader("trades")
    async with Peer(cluster.ports[cluster.other_than(victim)]) as peer:
        link = await attached(peer, 7)
        losing: asyncio.Task[None] | None = None
        for number in range(400):
            await peer.until(lambda: link.credit > 0)
            await peer.send(link, [event(7, 0, 1 + number, b"%04d" % number)])
            if number == 200:
                losing = asyncio.create_task(cluster.lose(victim))
            if number % 10 == 0:
                await asyncio.sleep(0.002)
        assert set(await peer.states(link, 400)) == {ACCEPTED}
        assert losing is not None
        await losing
    assert await stored(cluster, 400) == [b"%04d" % number for number in range(400)]


async def test_leaders_that_move_double_nothing_and_tear_nothing(cluster: ListenerCluster) -> None:
    count = 2000
    async with Peer(cluster.ports[1]) as peer:
        link = await attached(peer, 7)

        async def send() -> None:
            for number in range(count):
                await peer.until(lambda: link.credit > 0)
                await peer.send(link, [event(7, 0, 1 + number, b"%04d" % number)])
                if number % 20 == 0:
                    await asyncio.sleep(0.001)

        sending = asyncio.create_task(send())
        for target in (2, 1, 3, 1, 2):
            await cluster.move("trades", "0", target)
            await asyncio.sleep(0.02)
        await sending
        assert set(await peer.states(link, count)) == {ACCEPTED}
        assert link.is_open
    assert await stored(cluster, count) == [b"%04d" % number for number in range(count)]


async def test_who_follows_redirects_is_led_on_and_resends(cluster: ListenerCluster) -> None:
    await cluster.move("trades", "0", 1)
    async with Peer(cluster.ports[2], desired=(REDIRECT,)) as peer:
        assert (await refusal(peer, terms(7))).condition == REDIRECT
    sent, accepted = 200, 0
    target = 1
    while accepted < sent:
        leader = await cluster.settled_leader("trades")
        async with Peer(cluster.ports[leader], desired=(REDIRECT,)) as peer:
            link = open_producer(peer, terms(7, 0) | ({} if accepted == 0 else terms(7, 0, accepted)))
            await peer._opened(link)
            await peer.until(lambda link=link: link.credit > 0)
            wanted = [event(7, 0, 1 + number, b"%04d" % number) for number in range(accepted, sent)]
            moving: asyncio.Task[None] | None = None
            for start in range(0, len(wanted), 10):
                if not link.is_open:
                    break
                await peer.send(link, wanted[start : start + 10])
                if start == 50 and target < 3:
                    target += 1
                    moving = asyncio.create_task(cluster.move("trades", "0", target))
                await asyncio.sleep(0.001)
            if moving is not None:
                await moving
                assert (await peer.refused(link)).condition in (REDIRECT, "amqp:link:detach-forced")
            else:
                await peer.states(link, len(wanted))
            told = conditions([state for _, state in sorted(peer.outcomes[link])])
            assert "com.microsoft:out-of-order-sequence" not in told
            accepted += next((at for at, one in enumerate(told) if one != "accepted"), len(told))
    assert await stored(cluster, sent) == [b"%04d" % number for number in range(sent)]


async def test_a_higher_epoch_shuts_the_former_producer_out_on_any_node(cluster: ListenerCluster) -> None:
    leader = cluster.leader("trades")
    gateway, other = (node for node in cluster.nodes if node != leader)
    async with Peer(cluster.ports[gateway]) as old, Peer(cluster.ports[other]) as new:
        former = await attached(old, 7, 0)
        await old.send(former, events(7, 0, 1, "a"))
        await old.states(former, 1)
        await attached(new, 7, 1)
        assert (await old.refused(former)).condition == STOLEN
    assert await stored(cluster, 1) == [b"a"]


async def test_replicas_agree_on_producers_to_the_byte(cluster: ListenerCluster) -> None:
    async with Peer(cluster.ports[1]) as peer:
        for producer in (9, 3, 5):
            link = await attached(peer, producer)
            await peer.send(link, events(producer, 0, 1, "abcdef"))
            await peer.states(link, 6)
            again = await attached(peer, producer, 0, 2)
            await peer.send(again, events(producer, 0, 3, "cdefgh"))
            await peer.states(again, 6)
    group = cluster.broker(1)._group("trades", "0")

    def digests() -> set[str]:
        replicas = [node._replicas.partition(group) for node in cluster.nodes.values()]
        return {replica.digest() for replica in replicas if replica is not None}

    await eventually(lambda: len(digests()) == 1)


# ---------------------------------------------------------------- administration


async def ask(peer: Peer, operation: str, name: str, **arguments: Any) -> tuple[int, Any]:
    sender = await peer.sender("$management")
    link = await peer.receiver("$management", credit=1)
    request = Message(
        message_id="m",
        application_properties={"type": "producer", "operation": operation, "name": name},
        body=Value(arguments),
    )
    await peer.send(sender, [encode_message(request)])
    await peer.until(lambda: peer.received.get(link))
    answer = decode_message(peer.received[link][0])
    sender.close()
    link.close()
    await peer.flush()
    assert isinstance(answer.body, Value)
    return int(answer.application_properties["status-code"]), answer.body.value


async def test_producers_are_listed_and_described_on_any_node(cluster: ListenerCluster) -> None:
    await cluster.create("wide", 2)
    async with Peer(cluster.ports[1]) as peer:
        for producer, partition in ((9, "0"), (3, "0"), (4, "1")):
            link = await attached(peer, producer, 2, log="wide", partition=partition)
            if producer != 3:
                await peer.send(link, events(producer, 2, 1, "abc"))
                await peer.states(link, 3)
    for port in cluster.ports.values():
        async with Peer(port) as peer:
            status, body = await ask(peer, "list", "wide")
            assert status == 200
            found = [
                (one["partition"], one["producer_id"], one["epoch"], one["last_sequence"]) for one in body["producers"]
            ]
            assert found == [("0", 3, 2, None), ("0", 9, 2, 3), ("1", 4, 2, 3)]
            status, body = await ask(peer, "list", "wide", partition=0, after=3, limit=5)
            assert [one["producer_id"] for one in body["producers"]] == [9]
            status, body = await ask(peer, "list", "wide", limit=1)
            assert [one["producer_id"] for one in body["producers"]] == [3]
            status, body = await ask(peer, "describe", "wide", partition=1, producer_id=4)
            assert status == 200
            assert (body["producer_id"], body["last_offset"], body["remembered"]) == (4, 2, 3)
            assert body["last_active_ms"] > 1_600_000_000_000
            for wrong, expected in (
                ({"partition": 1, "producer_id": 5}, 404),
                ({"partition": 7, "producer_id": 4}, 404),
                ({"partition": 1}, 400),
                ({"producer_id": 4}, 400),
                ({"partition": 1, "producer_id": -4}, 400),
            ):
                assert (await ask(peer, "describe", "wide", **wrong))[0] == expected
            assert (await ask(peer, "list", "nowhere"))[0] == 404
            assert (await ask(peer, "list", "wide", limit=0))[0] == 400
            assert (await ask(peer, "list", "wide", after=3))[0] == 400
