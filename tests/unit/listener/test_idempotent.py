"""Idempotent publishing over the wire: what a producer is granted, which numbers it may send, who it shuts out.

The cases IS-1 to IS-10 are those that clients of Event Hubs check the service for.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from proton import Message as StockMessage
from proton.reactor import LinkOption
from proton.utils import BlockingConnection, SendException
from proton.utils import LinkDetached as LinkDetachedError

from holdfast.amqp import (
    ACCEPTED,
    Described,
    LinkDetached,
    LinkOpened,
    Released,
    SenderLink,
    Value,
    decode_message,
    int32,
    short,
    symbol,
    ubyte,
    uint,
    ulong,
)
from node.listener import hints
from node.listener.numbered import CREDIT_LIMIT
from node.partition import producers as rules
from node.partition.producers import ALLOCATED_FROM
from tests.unit.amqp.wire import AMQP_HEADER, frame, frames
from tests.unit.listener.peer import Peer, eventually, message
from tests.unit.listener.producing import (
    ARGUMENT_ERROR,
    EPOCH,
    ID,
    OUT_OF_ORDER,
    OUT_OF_RANGE,
    SEQUENCE,
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
from tests.unit.listener.single import SingleNode
from tests.unit.listener.test_filtered_reading import start_at

OK = "accepted"


def stored(node: SingleNode, log: str = "trades", partition: str = "0") -> str:
    """The bodies, a letter each."""
    replica = node.logs[log][partition]
    return b"".join(record[5:] for batch in replica.read(0, 1 << 30) for record in batch.records).decode()


# ---------------------------------------------------------------- attaching


async def test_who_states_nothing_is_granted_everything(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        link = await attached(peer)
        producer, epoch, last = granted(link)
        assert ALLOCATED_FROM <= producer < 2 * ALLOCATED_FROM
        assert (epoch, last) == (0, 0)
        types = [type(link.remote_properties[name]).__name__ for name in (ID, EPOCH, SEQUENCE)]
        assert types == ["int", "short", "int32"], "a long, a short, an int"
        assert link.remote_properties["event-streams-partition"] == "0"
        other = await attached(peer)
        assert granted(other)[0] != producer


async def test_the_capability_alone_asks_for_everything(node: SingleNode) -> None:
    """As .NET attaches at first: no property, a symbol that proton neither sends nor shows."""
    properties = {symbol("event-streams-partition"): symbol("0")}
    attach = [
        "raw", uint(0), False, ubyte(0), ubyte(0), Described(ulong(0x28), []), Described(ulong(0x29), ["trades"]),
        None, None, uint(0), None, None, symbol("com.microsoft:idempotent-producer"), properties,
    ]  # fmt: skip
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    begin = frame(0, 0x11, [None, uint(0), uint(2048), uint(2048)])
    writer.write(AMQP_HEADER + frame(0, 0x10, ["raw"]) + begin + frame(0, 0x12, attach))
    data = b""
    async with asyncio.timeout(20):
        while b"producer-sequence-number" not in data:
            data += await reader.read(65536)
    writer.close()
    (answer,) = (fields for code, fields, _ in frames(data) if code == 0x12)
    assert answer[13].keys() == {"event-streams-partition", ID, EPOCH, SEQUENCE}
    assert (answer[13][EPOCH], answer[13][SEQUENCE]) == (0, 0)


async def test_unmodified_proton_publishes_with_numbers(node: SingleNode) -> None:
    class Terms(LinkOption):
        def apply(self, link: Any) -> None:
            stated = terms(None, 2, None) | {"event-streams-partition": symbol("0")}
            link.properties = {symbol(name): value for name, value in stated.items()}

    def client() -> list[str]:
        connection = BlockingConnection(node.url, timeout=20)
        sender = connection.create_sender("trades", options=[Terms()])
        producer, epoch, last = (sender.link.remote_properties[symbol(name)] for name in (ID, EPOCH, SEQUENCE))
        outcomes = []
        for number in (1, 2, 2, 3, 2):
            told = {
                symbol(ID): producer, symbol(EPOCH): short(epoch), symbol(SEQUENCE): int32(last + number)
            }  # fmt: skip
            body = f"changed {number}" if len(outcomes) == 4 else f"event {number}"
            try:
                sender.send(StockMessage(body=body, annotations=told))
                outcomes.append("accepted")
            except (SendException, LinkDetachedError) as error:
                outcomes.append(type(error).__name__)
        connection.close()
        return outcomes

    *good, changed = await asyncio.to_thread(client)
    assert good == ["accepted"] * 4
    assert changed in ("SendException", "LinkDetached"), "the rejection and the end of the link come together"
    replica = node.logs["trades"]["0"]
    bodies = [decode_message(record).body for batch in replica.read(0, 1 << 20) for record in batch.records]
    assert bodies == [Value(f"event {number}") for number in (1, 2, 3)]


@pytest.mark.parametrize(
    ("stated", "answer"),
    [
        ((7, None, None), (7, 0, 0)),
        ((7, 3, None), (7, 3, 0)),
        ((7, None, 40), (7, 0, 40)),
        ((2**63 - 1, 2**15 - 1, None), (2**63 - 1, 2**15 - 1, 0)),
        ((0, 0, None), (0, 0, 0)),
        ((7, None, 2**31 - 1), (7, 0, 2**31 - 1)),
    ],
)
async def test_is_9_what_is_left_open_is_filled_in(
    node: SingleNode, stated: tuple[int | None, ...], answer: tuple[int, int, int]
) -> None:
    async with Peer(node.port) as peer:
        assert granted(await attached(peer, *stated)) == answer


async def test_an_id_that_is_left_open_is_chosen_for_the_stated_epoch_and_number(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        assert granted(await attached(peer, None, 4, 30))[1:] == (4, 30)


async def test_is_6_a_past_that_is_not_known_here_is_refused(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        error = await refusal(peer, terms(7, 0, 12))
        assert error.condition == "amqp:not-allowed"
        assert "producer 7 is not known here" in (error.description or "")
        link = await attached(peer, 7, 0)
        await peer.send(link, events(7, 0, 1, "ab"))
        await peer.states(link, 2)
        assert granted(await attached(peer, 7, 0, 2)) == (7, 0, 2)


@pytest.mark.parametrize(
    ("properties", "condition"),
    [
        (terms(7, 0) | {EPOCH: -1}, OUT_OF_RANGE),  # IS-7
        (terms(7) | {EPOCH: 32768}, OUT_OF_RANGE),
        (terms(-5), OUT_OF_RANGE),
        (terms(-1), OUT_OF_RANGE),
        (terms(7, 0) | {SEQUENCE: -1}, OUT_OF_RANGE),
        (terms(7, 0) | {SEQUENCE: 2**31}, OUT_OF_RANGE),
        (terms() | {ID: "seven"}, ARGUMENT_ERROR),
        (terms() | {EPOCH: 1.5}, ARGUMENT_ERROR),
        (terms() | {SEQUENCE: True}, ARGUMENT_ERROR),
        (terms() | {SEQUENCE: [1]}, ARGUMENT_ERROR),
        ({ID: 7}, ARGUMENT_ERROR),
        ({ID: 7, EPOCH: 0}, ARGUMENT_ERROR),
        ({EPOCH: None, SEQUENCE: None}, ARGUMENT_ERROR),
    ],
    ids=repr,
)
async def test_terms_that_cannot_be_are_refused_by_name(
    node: SingleNode, properties: dict[str, Any], condition: str
) -> None:
    async with Peer(node.port) as peer:
        error = await refusal(peer, properties)
        assert error.condition == condition
        assert "com.microsoft:producer-" in (error.description or "")
        await attached(peer)  # the connection is none the worse for it


async def test_is_7_an_epoch_of_minus_one_is_refused(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        for stated in (terms(7, -1), terms(None, -1), terms(7, -1, 5)):
            assert (await refusal(peer, stated)).condition == OUT_OF_RANGE


async def test_batches_that_come_in_another_order_are_refused(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        link = await attached(peer, 7)
        await peer.send(link, events(7, 0, 1, "ab"))
        await peer.states(link, 2)
        await peer.send(link, [*events(7, 0, 5, "ef"), *events(7, 0, 3, "cd")])
        assert conditions((await peer.states(link, 6))[2:3]) == [OUT_OF_ORDER]
        assert (await peer.refused(link)).condition == OUT_OF_ORDER
    assert stored(node) == "ab"


async def test_a_producer_needs_a_partition(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        error = await peer.refused(peer.engine.open_sender("wide", properties=terms()))
        assert error.condition == "amqp:not-allowed"
        assert "bound to a partition" in (error.description or "")


async def test_an_attach_waits_for_a_leader_and_is_refused_without_one(tmp_path: Path) -> None:
    node = await SingleNode(tmp_path, leader_wait_s=0.5).start()
    await node.create("trades")
    node.lead_elsewhere("trades", "0", None)
    async with Peer(node.port) as peer:
        held = open_producer(peer, terms(7))
        await peer.flush()
        await asyncio.sleep(0.05)
        assert not held.is_open
        node.lead_here("trades", "0")
        await peer.wait(LinkOpened, lambda event: event.link is held)
        assert granted(held) == (7, 0, 0)
        node.lead_elsewhere("trades", "0", None)
        error = await refusal(peer, terms(8))
        assert error.condition == "amqp:link:detach-forced"
    await node.stop()


# ---------------------------------------------------------------- numbers


async def test_events_are_stored_in_order_without_their_numbers(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        link = await attached(peer, 7)
        for first, letters in ((1, "abc"), (4, "d"), (5, "efghij")):
            await peer.send(link, events(7, 0, first, letters))
        assert set(await peer.states(link, 10)) == {ACCEPTED}
    assert stored(node) == "abcdefghij"
    assert all(
        record == message(record[5:]) for batch in node.logs["trades"]["0"].read(0, 1 << 20) for record in batch.records
    )


async def test_other_annotations_and_the_header_reach_the_consumer_as_they_were_sent(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        link = await attached(peer, 7)
        more = {symbol("x-trace"): symbol("t1"), symbol("x-n"): 5}
        await peer.send(link, [event(7, 0, n, b"e", durable=True, message_annotations=more) for n in (1, 2)])
        await peer.states(link, 2)
        reader = await peer.receiver(start_at("trades", "@earliest"), credit=10)
        await peer.until(lambda: len(peer.received.get(reader, [])) == 2)
        from holdfast.amqp import decode_message

        for payload in peer.received[reader]:
            found = decode_message(payload)
            assert (found.durable, found.body) == (True, b"e")
            assert dict(found.message_annotations) == {"x-trace": "t1", "x-n": 5}


async def test_thousands_in_flight_are_stored_once_in_order(node: SingleNode) -> None:
    count = 9000
    async with Peer(node.port) as peer:
        link = await attached(peer, 7, None, 100)
        assert link.credit <= CREDIT_LIMIT
        sent = 0
        while sent < count:
            await peer.until(lambda: link.credit > 0)
            batch = min(link.credit, count - sent)
            await peer.send(link, [event(7, 0, 101 + n, b"%d" % n) for n in range(sent, sent + batch)])
            sent += batch
        assert set(await peer.states(link, count)) == {ACCEPTED}
    records = [record for batch in node.logs["trades"]["0"].read(0, 1 << 30) for record in batch.records]
    assert records == [message(b"%d" % number) for number in range(count)]


@pytest.mark.parametrize("first", [0, 1, 555, 2**31 - 2])
async def test_the_first_number_is_free_and_the_last_is_followed_by_0(node: SingleNode, first: int) -> None:
    async with Peer(node.port) as peer:
        link = await attached(peer, 7)
        await peer.send(link, events(7, 0, first, "abc"))
        await peer.send(link, events(7, 0, (first + 3) % 2**31, "def"))
        assert set(await peer.states(link, 6)) == {ACCEPTED}
    assert stored(node) == "abcdef"


async def test_what_comes_again_is_accepted_and_stored_once_however_it_is_cut(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        link = await attached(peer, 7)
        await peer.send(link, events(7, 0, 1, "abcdefgh"))
        await peer.states(link, 8)
        for first, letters in ((1, "abcdefgh"), (3, "cd"), (8, "h"), (6, "fghij"), (1, "abcdefghijkl")):
            again = await attached(peer, 7, 0, first - 1)
            await peer.send(again, events(7, 0, first, letters))
            assert set(await peer.states(again, len(letters))) == {ACCEPTED}
    assert stored(node) == "abcdefghijkl"


async def test_a_connection_that_broke_before_the_answers_costs_no_event_and_doubles_none(node: SingleNode) -> None:
    letters = "".join(chr(97 + n % 26) for n in range(1500))
    async with Peer(node.port) as peer:
        link = await attached(peer, 7)
        peer.reading.clear()  # the answers are never seen
        for place in range(0, 1500, 37):
            await peer.send(link, events(7, 0, 1 + place, letters[place : place + 37]))
            await asyncio.sleep(0)
        await eventually(lambda: node.logs["trades"]["0"].next_offset > 500)
    async with Peer(node.port) as peer:
        link = await attached(peer, 7, 0, 0)
        for place in range(0, 1500, 61):
            await peer.send(link, events(7, 0, 1 + place, letters[place : place + 61]))
        assert set(await peer.states(link, 1500)) == {ACCEPTED}
    assert stored(node) == letters


@pytest.mark.parametrize(("first", "letters"), [(6, "z"), (5, "z"), (0, "z"), (2**31 - 1, "z"), (2, "Xcd"), (4, "D")])
async def test_is_8_gaps_old_numbers_and_reused_ones_are_out_of_order_and_end_the_link(
    node: SingleNode, first: int, letters: str
) -> None:
    async with Peer(node.port) as peer:
        link = await attached(peer, 7)
        await peer.send(link, events(7, 0, 1, "abcd"))
        await peer.states(link, 4)
        await peer.send(link, events(7, 0, first + (first == 5), letters))
        states = (await peer.states(link, 4 + len(letters)))[4:]
        assert conditions(states) == [OUT_OF_ORDER] * len(letters)
        assert (await peer.refused(link)).condition == OUT_OF_ORDER
        assert stored(node) == "abcd"
        assert granted(await attached(peer, 7)) == (7, 0, 4)


async def test_of_a_resend_with_a_change_in_it_the_front_is_known_and_the_rest_refused(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        link = await attached(peer, 7)
        await peer.send(link, events(7, 0, 1, "abcd"))
        await peer.states(link, 4)
        await peer.send(link, events(7, 0, 1, "abXdef"))
        assert conditions((await peer.states(link, 10))[4:]) == [OK, OK, *[OUT_OF_ORDER] * 4]
    assert stored(node) == "abcd"


async def test_nothing_of_a_new_batch_is_stored_when_its_first_numbers_were_given_away(node: SingleNode) -> None:
    """IP-15: the client gave up, and reuses the numbers; what it sends now is longer than what was stored."""
    async with Peer(node.port) as peer:
        link = await attached(peer, 7)
        await peer.send(link, events(7, 0, 1, "abc"))
        await peer.states(link, 3)
        again = await attached(peer, 7, 0, 0)
        new = events(7, 0, 1, "NEWBATCHES" * 50)
        for place in range(0, 500, 20):  # in many pieces, for the node to receive on their own
            await peer.send(again, new[place : place + 20])
            await asyncio.sleep(0.001)
        assert (await peer.refused(again)).condition == OUT_OF_ORDER
        assert OK not in conditions([state for _, state in peer.outcomes[again]])
    assert stored(node) == "abc"


# ---------------------------------------------------------------- messages that are wrong


@pytest.mark.parametrize(
    ("bad", "condition"),
    [
        (message(b"none"), ARGUMENT_ERROR),
        (event(7, 0, 3, message_annotations={SEQUENCE: None}), ARGUMENT_ERROR),
        (event(7, 1, 3), ARGUMENT_ERROR),
        (event(8, 0, 3), ARGUMENT_ERROR),
        (event(7, 0, 3, message_annotations={SEQUENCE: -3}), OUT_OF_RANGE),
        (event(7, 0, 3, message_annotations={SEQUENCE: 2**31}), OUT_OF_RANGE),
        (event(7, 0, 3, message_annotations={SEQUENCE: "3"}), ARGUMENT_ERROR),
        (b"nonsense", "amqp:decode-error"),
        (event(7, 0, 3, delivery_annotations={"event-streams-target-partition": "9"}), "amqp:precondition-failed"),
    ],
    ids=[
        "none", "some", "other epoch", "other id", "negative", "too large", "text", "garbage", "elsewhere"
    ],
)  # fmt: skip
async def test_a_message_with_wrong_terms_is_rejected_and_ends_the_link(
    node: SingleNode, bad: bytes, condition: str
) -> None:
    async with Peer(node.port) as peer:
        link = await attached(peer, 7)
        await peer.send(link, [*events(7, 0, 1, "ab"), bad, *events(7, 0, 4, "d")])
        states = await peer.states(link, 4)
        assert conditions(states[:3]) == [OK, OK, condition]
        assert isinstance(states[3], Released), "certainly not stored"
        assert (await peer.refused(link)).condition == condition
    assert stored(node) == "ab"


@pytest.mark.parametrize("partition", [None, "0"])
async def test_numbers_on_a_link_that_was_not_attached_for_them_are_refused(
    node: SingleNode, partition: str | None
) -> None:
    async with Peer(node.port) as peer:
        sender = await peer.sender("wide", partition)
        wide = event(7, 0, 2, b"2", message_annotations={"x-long": "l" * 300})
        headed = event(7, 0, 3, b"3", durable=True)
        only_one = event(7, 0, 4, b"4", message_annotations={ID: None, EPOCH: None})
        mentioned = message(b"in a body, com.microsoft:producer-id is a text like any other")
        annotated = event(7, 0, 5, b"5").replace(b"com.microsoft:producer-", b"com.microsoft:producers")
        sent = [event(7, 0, 1, b"1"), wide, headed, only_one, mentioned, annotated, message(b"plain")]
        await peer.send(sender, sent)
        states = await peer.states(sender, len(sent))
        assert conditions(states) == ["amqp:not-allowed"] * 4 + [OK] * 3
        assert "not attached for idempotent publishing" in (states[0].error.description or "")
        assert sender.is_open
    assert not any(b"com.microsoft:producer-" in section for section in hints._known)


# ---------------------------------------------------------------- producers and each other


async def test_is_1_a_higher_epoch_shuts_the_former_producer_out_at_once(node: SingleNode) -> None:
    async with Peer(node.port) as old, Peer(node.port) as new:
        former = await attached(old, 7, 1)
        await old.send(former, events(7, 1, 1, "ab"))
        await old.states(former, 2)
        latter = await attached(new, 7, 2)
        error = await old.refused(former)
        assert error.condition == STOLEN
        assert "epoch 2" in (error.description or "")
        await new.send(latter, events(7, 2, 1, "xy"))
        assert set(await new.states(latter, 2)) == {ACCEPTED}
    assert stored(node) == "abxy"


async def test_what_the_former_producer_sends_nevertheless_is_refused_as_stolen(node: SingleNode) -> None:
    """A gateway hears nothing of the higher epoch: the next message tells it. The log decides, not the watch."""
    async with Peer(node.port) as old, Peer(node.port) as new:
        former = await attached(old, 7, 1)
        for connection in node.listener._connections:
            for endpoint in connection.endpoints.values():
                endpoint._end_watch()  # type: ignore[attr-defined]
        await attached(new, 7, 2)
        await old.send(former, events(7, 1, 1, "ab"))
        assert conditions(await old.states(former, 2)) == [STOLEN] * 2
        assert (await old.refused(former)).condition == STOLEN
    assert stored(node) == ""


async def test_is_2_two_links_of_one_epoch_share_a_line_of_numbers(node: SingleNode) -> None:
    async with Peer(node.port) as one, Peer(node.port) as other:
        first, second = await attached(one, 7, 1), await attached(other, 7, 1)
        for number in range(1, 7):
            peer, link = ((one, first), (other, second))[number % 2]
            await peer.send(link, events(7, 1, number, "ab"[number % 2]))
            await peer.states(link, (number + 1) // 2)
        await one.send(first, events(7, 1, 6, "x"))
        assert conditions(await one.states(first, 4))[-1] == OUT_OF_ORDER
        assert second.is_open
    assert stored(node) == "bababa"


async def test_is_3_a_lower_epoch_is_refused_at_the_attach(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        await attached(peer, 7, 5)
        error = await refusal(peer, terms(7, 4))
        assert error.condition == STOLEN
        assert (await refusal(peer, terms(7, 4, 0))).condition == STOLEN
        assert granted(await attached(peer, 7)) == (7, 5, 0)


async def test_is_4_and_5_a_higher_epoch_numbers_anew_or_goes_on(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        link = await attached(peer, 7)
        await peer.send(link, events(7, 0, 1, "abc"))
        await peer.states(link, 3)
        anew = await attached(peer, 7, 1)
        assert granted(anew) == (7, 1, 0)
        await peer.send(anew, events(7, 1, 1, "de"))
        await peer.states(anew, 2)
        on = await attached(peer, 7, 2, 2)
        assert granted(on) == (7, 2, 2)
        await peer.send(on, events(7, 2, 3, "f"))
        assert await peer.states(on, 1) == [ACCEPTED]
    assert stored(node) == "abcdef"


async def test_is_10_plain_senders_and_other_producers_are_not_concerned(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        first, second, plain = await attached(peer, 7), await attached(peer, 8), await peer.sender("trades", "0")
        for number in range(1, 6):
            await peer.send(first, events(7, 0, number, "a"))
            await peer.send(plain, [message(b"p")])
            await peer.send(second, events(8, 0, number, "b"))
        for link in (first, second, plain):
            assert set(await peer.states(link, 5)) == {ACCEPTED}
        await peer.send(first, events(7, 0, 99, "z"))
        await peer.refused(first)
        await peer.send(plain, [message(b"p")])
        await peer.send(second, events(8, 0, 6, "b"))
        assert (await peer.states(plain, 6))[-1] is ACCEPTED
        assert (await peer.states(second, 6))[-1] is ACCEPTED
    assert sorted(stored(node)) == sorted("apb" * 5 + "pb")


async def test_partitions_know_nothing_of_each_others_producers(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        for partition in "012":
            link = await attached(peer, 7, int(partition), log="wide", partition=partition)
            await peer.send(link, events(7, int(partition), 1, "ab"))
            assert set(await peer.states(link, 2)) == {ACCEPTED}
        error = await refusal(peer, terms(7, 0, 2), log="wide", partition="3")
        assert error.condition == "amqp:not-allowed"


async def test_a_link_that_ends_leaves_its_producer_behind_and_nothing_else(node: SingleNode) -> None:
    replica = node.logs["trades"]["0"]
    async with Peer(node.port) as peer:
        link = await attached(peer, 7)
        assert len(replica._watches._by_producer) == 1
        await peer.send(link, events(7, 0, 1, "abc"))
        await peer.states(link, 3)
        link.close()
        await peer.flush()
        await peer.wait(LinkDetached, lambda event: event.link is link)
        await eventually(lambda: not replica._watches._by_producer)
        assert granted(await attached(peer, 7)) == (7, 0, 3)


async def test_a_producer_that_had_to_make_room_is_told_that_it_is_not_known(
    node: SingleNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "MAX_PRODUCERS", 2)
    async with Peer(node.port) as peer:
        link = await attached(peer, 7)
        await peer.send(link, events(7, 0, 1, "a"))
        await peer.states(link, 1)
        for other in (8, 9):
            await attached(peer, other)
        await peer.send(link, events(7, 0, 2, "b"))
        assert conditions(await peer.states(link, 2)) == [OK, "amqp:not-allowed"]
        assert (await peer.refused(link)).condition == "amqp:not-allowed"
        assert (await refusal(peer, terms(7, 0, 1))).condition == "amqp:not-allowed"
    assert stored(node) == "a"


async def test_whatever_bytes_a_producer_sends_the_node_answers_and_lives(node: SingleNode) -> None:
    chance = random.Random(5)
    number = 0
    async with Peer(node.port) as peer:
        for _ in range(60):
            link = await attached(peer, 7)
            last = granted(link)[2]
            payloads = events(7, 0, last + 1, "abcdefgh") if chance.random() < 0.5 else events(7, 0, number, "xy")
            for victim in range(len(payloads)):
                if chance.random() < 0.3:
                    spoiled = bytearray(payloads[victim])
                    for _ in range(chance.randint(1, 4)):
                        spoiled[chance.randrange(len(spoiled))] = chance.randrange(256)
                    payloads[victim] = bytes(spoiled[: chance.choice([len(spoiled), chance.randrange(len(spoiled))])])
            await peer.send(link, payloads)
            states = await peer.states(link, len(payloads))
            told = [state is ACCEPTED for state in states]
            assert told == sorted(told, reverse=True), "something was accepted behind something that was not"
            number = last
        assert await peer.states(await _plain(peer), 1) == [ACCEPTED]


async def _plain(peer: Peer) -> SenderLink:
    sender = await peer.sender("trades", "0")
    await peer.send(sender, [message(b"p")])
    return sender


async def test_a_log_that_is_deleted_ends_its_producers_links(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        link = await attached(peer, 7)
        node.delete("trades")
        assert (await peer.refused(link)).condition == "amqp:resource-deleted"
