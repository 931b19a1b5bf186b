"""What a producer promises: confirmed is stored, in order per key, and nothing waits for ever."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict

import pytest

from holdfast.amqp import decode_message
from holdfast.amqp.engine.engine import MAX_MESSAGE_BYTES
from holdfast.amqp.key_partitioner import partition_index
from holdfast.amqp.links.delivery_states import ACCEPTED, RELEASED
from holdfast.client import (
    BufferFullError,
    ClosedError,
    ConfigurationError,
    HoldfastError,
    InternalError,
    NetworkOptions,
    NotFoundError,
    ProducerClient,
    ProducerOptions,
    RejectedError,
    UndeliveredError,
    UnreachableError,
)
from holdfast.client.produce import batch_queue
from holdfast.client.produce.batch_queue import SLOTS
from holdfast.client.produce.delivery import PendingBatch
from holdfast.client.produce.partition_sender import PartitionSender
from holdfast.client.transport.links import Sender
from tests.unit.client.support.idempotent import idempotent
from tests.unit.client.support.patience import impatient
from tests.unit.client.support.tiny_node import (
    REJECTED,
    UNKNOWN,
    TinyLog,
    TinyNode,
)
from tests.unit.listener.support.peer import eventually

KEYS = [f"key-{number}" for number in range(12)]


def stored_by_key(log: TinyLog) -> dict[str, list[int]]:
    """The numbers of the events of each key, in log order; bodies are `key:number`."""
    found: dict[str, list[int]] = defaultdict(list)
    for partition, stored in log.partitions.items():
        for body in log.bodies(partition):
            key, number = body.decode().split(":")
            assert partition_index(key, len(log.partitions)) == int(partition), "a key went astray"
            found[key].append(int(number))
        assert len(stored) == len(log.bodies(partition))
    return found


def first_copies(numbers: list[int]) -> list[int]:
    """The numbers without those seen before: what a reader keeps."""
    return list(dict.fromkeys(numbers))


async def publish(producer: ProducerClient, count: int) -> None:
    for number in range(count):
        key = KEYS[number % len(KEYS)]
        await producer.send(f"{key}:{number}".encode(), key=key)


def expected(count: int) -> dict[str, list[int]]:
    return {key: list(range(place, count, len(KEYS))) for place, key in enumerate(KEYS)}


async def test_events_go_to_the_leaders_of_their_partitions_in_order(pair: tuple[TinyNode, TinyNode]) -> None:
    first, second = pair
    async with ProducerClient(first.address, "trades") as producer:
        await publish(producer, 3000)
        await producer.flush()
        assert producer.stats.accepted == 3000
        assert producer.outstanding == 0
    assert stored_by_key(first.log) == expected(3000)
    assert any(role == "receiver" for role, _, _ in second.attaches), "the redirect was followed"


async def test_the_key_travels_with_the_event(node: TinyNode) -> None:
    async with ProducerClient(node.address, "trades") as producer:
        await producer.send(b"body", key="IBM", properties={"colour": "blue"})
        await producer.send(b"body", key="IBM")
        await producer.flush()
    (stored,) = [stored for stored in node.log.partitions.values() if stored]
    messages = [decode_message(payload) for _, payload in stored]
    assert [message.message_annotations["event-streams-group-key"] for message in messages] == ["IBM", "IBM"]
    assert messages[0].application_properties == {"colour": "blue"}


async def test_a_leader_that_crashes_loses_nothing_and_breaks_no_order(pair: tuple[TinyNode, TinyNode]) -> None:
    first, second = pair
    seen = 0

    def crash_midway(connection: object, partition: str, count: int) -> bool:
        nonlocal seen
        seen += count
        if seen > 700:
            first.lead()  # the other node takes over, and this one is gone with its answers
            asyncio.get_running_loop().call_soon(lambda: asyncio.ensure_future(second.crash()))
            return True
        return False

    second.after_transfers = crash_midway
    async with ProducerClient([first.address, second.address], "trades") as producer:
        await publish(producer, 4000)
        await producer.flush()
        stats = producer.stats
    assert stats.accepted == 4000
    assert stats.resent > 0
    found = stored_by_key(first.log)
    assert {key: first_copies(numbers) for key, numbers in found.items()} == expected(4000)


@pytest.mark.parametrize("answer", [RELEASED, UNKNOWN], ids=["certainly not stored", "perhaps stored"])
@pytest.mark.parametrize("numbered", [False, True], ids=["plain", "idempotent"])
async def test_answers_that_ask_for_a_repeat_keep_the_order(node: TinyNode, answer: object, numbered: bool) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    first_refused: dict[int, bytes] = {}

    def mostly_fine(payload: bytes) -> object:
        # From some event on a partition refuses everything until that event comes again: so do nodes, for order's sake.
        key = decode_message(payload).message_annotations["event-streams-group-key"]
        partition = partition_index(key, len(node.log.partitions))
        if first_refused.get(partition) == payload:
            del first_refused[partition]
            return ACCEPTED
        if partition not in first_refused and chance.random() < 0.01:
            first_refused[partition] = payload
        return answer if partition in first_refused else ACCEPTED

    node.answer = mostly_fine  # type: ignore[assignment]
    async with ProducerClient(node.address, "trades", idempotent=numbered) as producer:
        await publish(producer, 2000)
        await producer.flush()
        stats = producer.stats
    found = stored_by_key(node.log)
    kept = {key: first_copies(numbers) for key, numbers in found.items()}
    assert {key: sorted(numbers) for key, numbers in kept.items()} == expected(2000), f"seed {seed}"
    assert kept == expected(2000), f"seed {seed}"
    copies = sum(map(len, found.values())) - 2000
    if answer is RELEASED:
        assert (stats.resent, copies) == (0, 0), f"seed {seed}"
        assert stats.released > 0, f"seed {seed}"
    elif numbered:
        assert 0 == copies < stats.resent, f"seed {seed}"
    else:
        assert 0 < copies <= stats.resent, f"seed {seed}"


async def test_leadership_that_moves_politely_costs_no_copies(pair: tuple[TinyNode, TinyNode]) -> None:
    first, second = pair
    async with ProducerClient(first.address, "trades") as producer:
        await publish(producer, 500)
        await producer.flush()
        second.lead()
        first.close_links(first.redirect_to(second))
        await publish_more(producer, 500, 1000)
        await producer.flush()
    assert stored_by_key(first.log) == expected(1000)


async def publish_more(producer: ProducerClient, begin: int, end: int) -> None:
    for number in range(begin, end):
        key = KEYS[number % len(KEYS)]
        await producer.send(f"{key}:{number}".encode(), key=key)


async def test_an_event_larger_than_the_node_takes_is_refused_at_once_and_the_others_go_on(node: TinyNode) -> None:
    async with ProducerClient(node.address, "trades") as producer:
        await producer.send(b"before", partition="0")
        await producer.send(bytes(MAX_MESSAGE_BYTES), partition="0")
        with pytest.raises(RejectedError, match="split it"):
            await asyncio.wait_for(producer.flush(), 40)
        await producer.send(b"after", partition="0")
        await producer.flush()
        assert producer.stats.attached == 1
    assert node.log.bodies("0") == [b"before", b"after"]


async def test_a_refused_event_is_reported_and_the_others_go_on(node: TinyNode) -> None:
    node.answer = lambda payload: REJECTED if b"bad" in payload else ACCEPTED
    async with ProducerClient(node.address, "trades") as producer:
        for body in (b"good", b"bad", b"good too"):
            await producer.send(body, partition="0")
        with pytest.raises(RejectedError, match="not wanted") as caught:
            await producer.flush()
        assert not caught.value.retriable
        await producer.flush()  # the failure was told once
        with pytest.raises(RejectedError):
            await producer.send_and_confirm(b"bad again", partition="0")
        await producer.send_and_confirm(b"fine", partition="0")
    assert node.log.bodies("0") == [b"good", b"good too", b"fine"]


async def test_events_nobody_answers_for_are_given_up_in_time(node: TinyNode) -> None:
    node.after_transfers = lambda connection, partition, count: True
    producer = ProducerClient(node.address, "trades")
    await producer.start()
    async with asyncio.timeout(20), impatient(producer, "1"):
        await producer.send(b"event", partition="1")
        with pytest.raises(UndeliveredError, match="1 events for trades, partition 1"):
            await producer.close()
    assert producer.stats.failed == 1


async def test_a_partition_without_a_leader_ends_in_an_error(node: TinyNode) -> None:
    async with asyncio.timeout(40):
        async with ProducerClient(node.address, "trades", idempotent=False) as producer:
            node.silent = True
            async with impatient(producer, "2"):
                with pytest.raises(UndeliveredError, match="were not confirmed"):
                    await producer.send_and_confirm(b"event", partition="2")
            node.silent = False
            await producer.send_and_confirm(b"event", partition="2")  # and it recovers
    assert node.log.bodies("2") == [b"event"]


async def test_a_batch_that_is_not_full_waits_while_many_of_its_partition_are_unanswered(
    node: TinyNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_queue, "MOST_EVENTS", 2048)
    held: list[object] = []
    holding = True

    def hold(connection: object, partition: str, count: int) -> bool:
        held.extend([connection] * count)
        return holding

    node.after_transfers = hold
    async with ProducerClient(node.address, "trades") as producer:
        sent = [b"%d" % number for number in range(3 * SLOTS)]
        for body in sent:
            await producer.send(body, partition="0")
            await eventually(lambda body=body: len(held) > int(body) or len(held) == SLOTS)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(held) == SLOTS
        large = [bytes(100_000)] * 2 * SLOTS  # full batches gain nothing by waiting
        for body in large:
            await producer.send(body, partition="0")
        await eventually(lambda: len(held) >= len(sent) + len(large) - 2)
        holding = False
        held[0].abort()  # type: ignore[attr-defined]
        await producer.flush()
    assert node.log.bodies("0") == sent + large


async def test_memory_is_bounded_when_the_node_is_slow(node: TinyNode) -> None:
    node.credit = 0
    producer = ProducerClient(node.address, "trades", ProducerOptions(max_buffered_events=10))
    await producer.start()
    for _ in range(10):
        producer.send_nowait(b"event", partition="0")
    with pytest.raises(BufferFullError) as caught:
        producer.send_nowait(b"one more", partition="0")
    assert caught.value.retriable
    waiting = asyncio.ensure_future(producer.send(b"patient", partition="0"))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    assert producer.outstanding == 10
    for connection in node.connections:
        for link in connection.links:
            if link.role == "receiver":
                link.grant(100)
        connection.flush()
    await asyncio.wait_for(waiting, 40)
    node.credit = 100
    await asyncio.wait_for(producer.close(), 40)
    assert len(node.log.bodies("0")) == 11


async def test_big_events_do_not_pile_up_in_the_socket(node: TinyNode) -> None:
    bodies = [bytes([number]) * 1_000_000 for number in range(20)]
    async with ProducerClient(node.address, "trades") as producer:
        for body in bodies:
            await producer.send(body, partition="0")
        await producer.flush()
    assert node.log.bodies("0") == bodies


async def test_no_such_log_and_no_such_partition(node: TinyNode) -> None:
    with pytest.raises(NotFoundError, match="nothing"):
        async with ProducerClient(node.address, "nothing"):
            pass
    async with ProducerClient(node.address, "trades") as producer:
        with pytest.raises(NotFoundError, match="no partition '9'"):
            await producer.send(b"event", partition="9")


async def test_nobody_listens() -> None:
    unused = await TinyNode(TinyLog()).start()
    await unused.crash()
    options = ProducerOptions(network=NetworkOptions(first_contact_s=0.0))
    with pytest.raises(UnreachableError, match="cannot be reached") as caught:
        async with ProducerClient(unused.address, "trades", options):
            pass
    assert caught.value.retriable


async def test_a_first_contact_that_fails_everywhere_is_given_up_long_before_the_timeout(node: TinyNode) -> None:
    """Each server has been asked by then: one that answers, last in the list, is found however short the bound is."""
    unused = await TinyNode(TinyLog()).start()
    await unused.crash()
    options = ProducerOptions(delivery_timeout_s=60, network=NetworkOptions(first_contact_s=0.0))
    async with asyncio.timeout(40):
        with pytest.raises(UnreachableError, match="cannot be reached"):
            async with ProducerClient(unused.address, "trades", options):
                pass
        async with ProducerClient([unused.address, node.address], "trades", options) as producer:
            await producer.send_and_confirm(b"event", partition="0")


async def test_who_was_reached_once_is_waited_for(node: TinyNode) -> None:
    turned_away = asyncio.Semaphore(0)

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        turned_away.release()
        writer.close()

    options = ProducerOptions(delivery_timeout_s=60, network=NetworkOptions(first_contact_s=0.0))
    async with asyncio.timeout(40), ProducerClient(node.address, "trades", options) as producer:
        await producer.send_and_confirm(b"before", partition="0")
        await node.crash()
        nobody = await asyncio.start_server(hang_up, "127.0.0.1", node.port)
        delivery = await producer.send(b"after", partition="0")
        for _ in range(3):
            await turned_away.acquire()
        nobody.close()
        await node.start()
        await delivery


async def test_a_port_that_speaks_something_else() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with asyncio.timeout(20):
        with pytest.raises(HoldfastError, match="AMQP"):
            async with ProducerClient(f"127.0.0.1:{port}", "trades"):
                pass
    server.close()


async def test_a_proxy_with_nobody_behind_it_is_passed_over(node: TinyNode) -> None:
    """It takes the connection, and ends it without a word: no reason to believe that nobody speaks AMQP there."""
    seen = 0

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal seen
        seen += 1
        await reader.read(1)
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    options = ProducerOptions(network=NetworkOptions(first_contact_s=0.0))  # each server is asked once
    async with ProducerClient([f"127.0.0.1:{port}", node.address], "trades", options) as producer:
        await producer.send_and_confirm(b"event", partition="0")
    assert seen
    with pytest.raises(UnreachableError, match="while it was opened") as caught:
        async with ProducerClient(f"127.0.0.1:{port}", "trades", options):
            pass
    assert caught.value.retriable
    server.close()


async def test_redirects_in_a_circle_end(pair: tuple[TinyNode, TinyNode]) -> None:
    first, second = pair
    first.refuse = lambda address, partition: first.redirect_to(second) if partition else None
    second.refuse = lambda address, partition: second.redirect_to(first) if partition else None
    async with asyncio.timeout(20):
        async with ProducerClient(first.address, "trades", idempotent=False) as producer, impatient(producer):
            with pytest.raises(UndeliveredError):
                await producer.send_and_confirm(b"event", partition="0")
    assert len(first.attaches) < 200, "hops are followed by pauses"


async def test_without_redirects_the_entry_node_is_asked_for_none(pair: tuple[TinyNode, TinyNode]) -> None:
    first, second = pair
    first.lead()
    options = ProducerOptions(network=NetworkOptions(follow_redirects=False))
    async with ProducerClient(first.address, "trades", options) as producer:
        await publish(producer, 100)
        await producer.flush()
        (connection,) = first.connections
        assert connection.engine.remote_desired_capabilities == ()
    assert not second.attaches


async def test_events_without_a_key_spread_over_the_partitions(node: TinyNode) -> None:
    async with ProducerClient(node.address, "trades") as producer:
        for _ in range(1024):
            await producer.send(b"event")
        await producer.flush()
    assert [len(stored) for stored in node.log.partitions.values()] == [256] * 4


@pytest.mark.parametrize("idempotently", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize(
    ("where", "name"),
    [
        (PartitionSender, "_until_trouble"),
        (PartitionSender, "_attach"),
        (Sender, "send_batch"),
        (PendingBatch, "seal"),
    ],
)
async def test_a_defect_of_the_client_is_told_to_those_who_wait_and_the_next_events_go_on(
    node: TinyNode, monkeypatch: pytest.MonkeyPatch, idempotently: bool, where: type, name: str
) -> None:
    def misspelt(*_: object, **__: object) -> None:
        raise KeyError("a name that nobody knows")

    async def misspelt_later(*_: object) -> None:
        misspelt()

    sends = where is not PartitionSender
    producer = idempotent(node) if idempotently else ProducerClient(node.address, "trades")
    async with asyncio.timeout(100), producer:
        node.credit = 100 if sends else 0
        with monkeypatch.context() as patch:
            patch.setattr(where, name, misspelt if sends else misspelt_later)
            deliveries = [await producer.send(b"one", partition="0") for _ in range(3)]
            for delivery in deliveries:
                with pytest.raises(UndeliveredError, match="a defect of this client") as told:
                    await delivery
                assert isinstance(told.value.__cause__, InternalError)
                assert isinstance(told.value.__cause__.__cause__, KeyError)
            await producer.flush()
        node.credit = 100
        assert (await producer.send_and_confirm(b"two", partition="0")).partition == "0"
        assert producer.outstanding == 0


async def test_a_closed_producer_tells_everybody(node: TinyNode) -> None:
    node.after_transfers = lambda connection, partition, count: True
    told: list[object] = []
    try:
        async with ProducerClient(node.address, "trades") as producer:
            await producer.send(b"event", partition="0", done=told.append)
            raise KeyError("the program has other worries")
    except KeyError:
        pass
    assert len(told) == 1
    assert isinstance(told[0], UndeliveredError)
    with pytest.raises(ClosedError):
        await producer.send(b"late", partition="0")
    await producer.flush()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 0}, "window"),
        ({"delivery_timeout_s": -1}, "delivery_timeout_s"),
    ],
)
async def test_options_that_cannot_work_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ProducerClient("127.0.0.1:1", "trades", ProducerOptions(**options))  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "host:port", "1.2.3.4:0", "1.2.3.4:99999", ":5672"])
async def test_addresses_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        ProducerClient(text, "trades")
