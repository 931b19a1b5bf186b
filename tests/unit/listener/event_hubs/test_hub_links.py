"""Links of the Event Hubs dialect: what a peer is told, and what it never is."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.amqp import (
    ACCEPTED,
    ConnectionClosed,
    Described,
    LinkDetached,
    Message,
    Rejected,
    SenderLink,
    Settlements,
    Source,
    Target,
    Transfers,
    Value,
    decode_message,
    encode_message,
    symbol,
)
from node.partition.entries.entry_queries import Fate
from node.security import connection_identity
from node.security.authentication import Gate
from node.security.authorisation import Policy
from tests.unit.listener.incoming.test_unknown_outcomes import doubtful
from tests.unit.listener.support.enveloping import ACCEPTED as TAKEN
from tests.unit.listener.support.enveloping import RawSender, envelope
from tests.unit.listener.support.peer import Peer, message
from tests.unit.listener.support.sending import stored
from tests.unit.listener.support.single import SingleNode
from tests.unit.security.people import user
from tests.unit.security.test_shared_access import BOX, known, token

HUB = "amqps://127.0.0.1:5671/trades"
READ = f"{HUB}/ConsumerGroups/$Default/Partitions/0"
SELECTOR = "apache.org:selector-filter:string"


@pytest.fixture
async def hasty(tmp_path: Path) -> AsyncIterator[SingleNode]:
    """It does not wait long for a leader."""
    single = await SingleNode(tmp_path / "data", leader_wait_s=0.3).start()
    await single.create("trades", 1)
    yield single
    await single.stop()


def reading(address: str = READ, condition: str = "x-opt-offset > '-1'") -> Source:
    expression = f"amqp.annotation.{condition}"
    return Source(address=address, filter={symbol(SELECTOR): Described(symbol(SELECTOR), expression)})


# ---------------------------------------------------------------- producers


@pytest.mark.parametrize("address", [HUB, "/trades", f"{HUB}/Partitions/0", "trades/partitions/0"])
async def test_a_hub_takes_events_by_every_form_of_its_address(node: SingleNode, address: str) -> None:
    async with Peer(node.port) as peer:
        link = await peer.sender(address)
        assert link.remote_max_message_size == 1024 * 1024
        await peer.send(link, [encode_message(Message(body=b"x", message_annotations={"x-opt-partition-key": "k"}))])
        assert await peer.states(link, 1) == [ACCEPTED]
    [record] = stored(node, "trades")["0"]
    assert decode_message(record).message_annotations == {"event-streams-group-key": "k"}


async def test_an_event_that_found_no_leader_is_never_answered_and_the_connection_ends(hasty: SingleNode) -> None:
    async with Peer(hasty.port) as peer:
        link = await peer.sender(HUB)
        hasty.lead_elsewhere("trades", "0", None)
        await peer.send(link, [message(b"x")])
        await peer.wait(ConnectionClosed)
        assert not [event for event in peer.history if isinstance(event, Settlements | LinkDetached)]


async def test_so_does_one_of_unknown_outcome(hasty: SingleNode) -> None:
    async with Peer(hasty.port) as peer:
        link = await peer.sender(HUB)
        doubtful(hasty, Fate(stored=False, pending=True))
        await peer.send(link, [message(b"x")])
        await peer.wait(ConnectionClosed)
        assert not [event for event in peer.history if isinstance(event, Settlements | LinkDetached)]


async def test_an_outcome_that_a_later_leader_knows_is_told(hasty: SingleNode) -> None:
    async with Peer(hasty.port) as peer:
        link = await peer.sender(HUB)
        doubtful(hasty, Fate(stored=True))
        await peer.send(link, [message(b"x")])
        assert await peer.states(link, 1) == [ACCEPTED]


async def test_what_is_wrong_with_an_event_is_told(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        link = await peer.sender(HUB)
        good = encode_message(Message(body=b"good", message_annotations={"x-opt-partition-key": "k"}))
        await peer.send(link, [good, b"\x00Sr\xc1\x09\x02\xa3\x03x-opt-", good])
        first, second, third = await peer.states(link, 3)
        assert (first, third) == (ACCEPTED, ACCEPTED)
        assert isinstance(second, Rejected)
        assert second.error is not None
        assert second.error.condition == "amqp:decode-error"
    kept = [decode_message(record).message_annotations for record in stored(node, "trades")["0"]]
    assert kept == [{"event-streams-group-key": "k"}] * 2


@pytest.mark.parametrize("batch", [False, True], ids=["message", "batch"])
async def test_a_message_over_the_limit_is_rejected_and_the_next_one_taken(node: SingleNode, batch: bool) -> None:
    large = message(b"x" * (1024 * 1024))
    async with RawSender(node.port, HUB) as sender:
        refused = sender.send(envelope(large) if batch else large, batch=batch)
        taken = sender.send(envelope(message(b"x")), batch=True)
        assert str(await sender.outcome(refused)).startswith("amqp:link:message-size-exceeded: The received message")
        assert await sender.outcome(taken) == TAKEN
    assert len(stored(node, "trades")["0"]) == 1


async def test_an_idempotent_producer_is_one_here_too(node: SingleNode) -> None:
    names = [symbol(f"com.microsoft:producer-{what}") for what in ("id", "epoch", "sequence-number")]
    async with Peer(node.port) as peer:
        link = peer.engine.open_sender(f"{HUB}/Partitions/0", properties=dict.fromkeys(names))
        await peer.flush()
        await peer.until(lambda: link.credit > 0)
        granted = dict(link.remote_properties)
        assert set(granted) == set(names)
        marks = {str(name): granted[name] for name in names[:2]} | {str(names[2]): granted[names[2]] + 1}
        event = encode_message(Message(body=b"once", message_annotations={**marks, "x-opt-partition-key": "k"}))
        await peer.send(link, [event])
        await peer.send(link, [event])
        assert await peer.states(link, 2) == [ACCEPTED, ACCEPTED]
    [record] = stored(node, "trades")["0"]
    assert decode_message(record).message_annotations == {"event-streams-group-key": "k"}


@pytest.mark.parametrize(
    ("address", "condition"),
    [
        ("amqps://h/nobody", "amqp:not-found"),
        ("trades/nonsense", "amqp:not-found"),
        (f"{HUB}/Partitions/1", "com.microsoft:argument-out-of-range"),
        (f"{HUB}/Partitions/00", "com.microsoft:argument-out-of-range"),
    ],
)
async def test_an_address_of_nothing_is_refused(node: SingleNode, address: str, condition: str) -> None:
    async with Peer(node.port) as peer:
        error = await peer.refused(peer.engine.open_sender(address))
        assert error.condition == condition


# ---------------------------------------------------------------- receivers


async def test_events_come_settled_with_the_annotations_of_the_service(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        sender = await peer.sender(HUB)
        await peer.send(sender, [message(b"a"), message(b"b")])
        await peer.states(sender, 2)
        link = await peer.receiver(reading(), credit=10, snd_settle_mode=0)
        await peer.until(lambda: len(peer.received.get(link, [])) == 2)
        came = [event for event in peer.history if isinstance(event, Transfers) and event.link is link]
        assert all(link.sent_settled(one) for event in came for one in event.deliveries)
        first, second = map(decode_message, peer.received[link])
        assert [one.message_annotations["x-opt-offset"] for one in (first, second)] == ["0", "1"]
        assert first.delivery_annotations == {}
        assert isinstance(link.remote_source, Source)
        assert list(link.remote_source.filter or {}) == [SELECTOR]


@pytest.mark.parametrize(
    ("source", "condition"),
    [
        (reading(condition="x-opt-offset > "), "amqp:not-allowed"),
        (reading(condition="x-opt-offset > '7'"), "com.microsoft:argument-error"),
        (reading(condition="x-opt-sequence-number >= '0'"), "com.microsoft:argument-error"),
        (reading(address=f"{HUB}/ConsumerGroups/$Default/Partitions/1"), "com.microsoft:argument-out-of-range"),
        (reading(address=f"{HUB}/ConsumerGroups/$Default"), "amqp:not-allowed"),
        (reading(address=f"{HUB}/ConsumerGroups/{'g' * 600}/Partitions/0"), "amqp:not-found"),
    ],
)
async def test_what_cannot_be_read_is_refused(node: SingleNode, source: Source, condition: str) -> None:
    async with Peer(node.port) as peer:
        error = await peer.refused(peer.engine.open_receiver(source))
        assert error.condition == condition


@pytest.mark.parametrize("epoch", [-1, "1", True])
async def test_an_epoch_is_a_whole_number(node: SingleNode, epoch: Any) -> None:
    async with Peer(node.port) as peer:
        link = peer.engine.open_receiver(reading(), properties={symbol("com.microsoft:epoch"): epoch})
        assert (await peer.refused(link)).condition == "amqp:invalid-field"


async def owner(peer: Peer, epoch: int, name: str) -> Any:
    said = {symbol("com.microsoft:epoch"): epoch, symbol("com.microsoft:receiver-name"): name}
    link = peer.engine.open_receiver(reading(), properties=said)
    await peer.flush()
    return link


async def test_guests_go_when_an_owner_comes_and_are_told_by_whom(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        guest = await peer.receiver(reading(), credit=1)
        one = await owner(peer, 1, "one")
        error = await peer.refused(guest)
        assert error.condition == "amqp:link:stolen"
        assert error.description is not None
        assert error.description.startswith("New receiver 'one' with higher epoch of '1' is created hence current")
        assert (await peer.refused(peer.engine.open_receiver(reading()))).condition == "amqp:link:stolen"
        same = await owner(peer, 1, "same")
        assert (await peer.refused(one)).condition == "amqp:link:stolen"
        low = await peer.refused(await owner(peer, 0, "low"))
        assert low.description is not None
        assert low.description.startswith("Receiver 'same' with a higher epoch '1' already exists. Receiver 'low' with")
        same.close()
        await peer.flush()
        await peer.wait(LinkDetached, lambda event: event.link is same)
        await peer.receiver(reading())


async def test_a_group_of_the_other_dialect_keeps_guests_out_as_well(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        said = {symbol("event-streams-consumer-group"): "$Default", symbol("event-streams-partition"): symbol("0")}
        member = peer.engine.open_receiver("trades", properties=said)
        await peer.flush()
        await peer.until(lambda: member.is_open)
        error = await peer.refused(peer.engine.open_receiver(reading()))
        assert error.condition == "amqp:link:stolen"


# ---------------------------------------------------------------- tokens and properties


class Asking:
    """Links to a service address, and the answers to requests, by message-id; none of them says where to answer."""

    def __init__(self, peer: Peer, address: str) -> None:
        self.peer, self.address = peer, address
        self.requests: SenderLink
        self.answers: Any

    async def open(self) -> Asking:
        self.answers = await self.peer.receiver(
            Source(address=self.address), credit=20, target=Target(address=self.address)
        )
        self.requests = await self.peer.sender(Target(address=self.address), source=Source(address=self.address))
        return self

    async def ask(self, body: Any, **properties: Any) -> Message:
        number = uuid.uuid4()
        request = Message(message_id=number, application_properties=properties, body=Value(body))
        await self.peer.send(self.requests, [encode_message(request)])

        def found() -> Message | None:
            answers = map(decode_message, self.peer.received.get(self.answers, []))
            return next((one for one in answers if one.correlation_id == number), None)

        await self.peer.until(found)
        answer = found()
        assert answer is not None
        return answer


SAS = "servicebus.windows.net:sastoken"
TOKEN = "SharedAccessSignature sr=sb%3A%2F%2Fh%2Ftrades&sig=eA%3D%3D&se=4000000000&skn=any"


async def test_tokens_and_reads_of_one_session_are_answered_where_they_were_asked(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        tokens, properties = await Asking(peer, "$cbs").open(), await Asking(peer, "$management").open()
        put = {"operation": "put-token", "type": SAS, "name": "sb://h/trades"}
        answer = await tokens.ask(TOKEN, **put)
        assert answer.application_properties == {"status-code": 202, "status-description": "Accepted"}
        hub = await properties.ask(None, operation="READ", type="com.microsoft:eventhub", name="trades")
        assert hub.application_properties["status-code"] == 200
        assert isinstance(hub.body, Value)
        assert isinstance(hub.body.value, dict)
        assert (hub.body.value["name"], hub.body.value["partition_count"]) == ("trades", 1)
        link = await peer.sender("trades")  # bare, and of the dialect from now on
        assert link.remote_max_message_size == 1024 * 1024


@pytest.mark.parametrize(
    ("body", "changed", "status"),
    [
        ("Bearer x", {}, 401),
        (TOKEN.replace("se=", "se=1"), {}, 202),
        (TOKEN.replace("se=", "se=x"), {}, 401),
        (TOKEN, {"name": "sb://h/others"}, 401),
        (TOKEN, {"name": "sb://h/" + "x" * 2000}, 400),
        (TOKEN, {"type": "saml"}, 401),
        (TOKEN, {"operation": "set-token"}, 202),
        (TOKEN, {"operation": "drop-token"}, 400),
        (None, {}, 400),
        (7, {}, 400),
    ],
)
async def test_every_put_token_is_answered(node: SingleNode, body: Any, changed: dict[str, str], status: int) -> None:
    async with Peer(node.port) as peer:
        put = {"operation": "put-token", "type": SAS, "name": "sb://h/trades", **changed}
        answer = await (await Asking(peer, "$cbs").open()).ask(body, **put)
        assert answer.application_properties["status-code"] == status
        assert answer.application_properties["status-description"]


async def test_a_peer_without_a_credential_shows_a_token_or_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_identity, "TOKEN_WITHIN_S", 0.3)
    access = known()
    node = await SingleNode(tmp_path / "data", Gate(Policy(access), box=BOX)).start()
    try:
        await node.create("orders", 1)
        async with Peer(node.port) as good, Peer(node.port) as idle:
            tokens = await Asking(good, "$cbs").open()
            put = {"operation": "put-token", "type": SAS, "name": "sb://h/orders"}
            refused = await tokens.ask(token(key="wrong"), **put)
            assert refused.application_properties["status-code"] == 401
            assert (await tokens.ask(token(), **put)).application_properties["status-code"] == 202
            closed = await idle.wait(ConnectionClosed)
            assert closed.error is not None
            assert closed.error.condition == "amqp:unauthorized-access"
            link = await good.sender("orders")
            await good.send(link, [message(b"x")])
            assert await good.states(link, 1) == [ACCEPTED]
            access.rules.clear()
            access.users["root"] = user("root", "secret", "admin")
            access.access_revision += 1
            node.ring()
            assert (await good.refused(link)).condition == "amqp:unauthorized-access"
    finally:
        await node.stop()


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ({"type": "com.microsoft:eventhub", "name": "nobody"}, 404),
        ({"type": "com.microsoft:eventhub"}, 404),
        ({"type": "com.microsoft:partition", "name": "trades", "partition": "9"}, 400),
        ({"type": "com.microsoft:partition", "name": "trades"}, 400),
        ({"type": "com.microsoft:partition", "name": "trades", "partition": "0"}, 200),
    ],
)
async def test_every_read_is_answered(node: SingleNode, said: dict[str, str], status: int) -> None:
    async with Peer(node.port) as peer:
        answer = await (await Asking(peer, "$management").open()).ask(None, operation="READ", **said)
        assert answer.application_properties["status-code"] == status
        if status == 200:
            assert isinstance(answer.body, Value)
            assert answer.body.value == {
                "name": "trades", "type": "com.microsoft:partition", "partition": "0", "begin_sequence_number": -1,
                "last_enqueued_sequence_number": -1, "last_enqueued_offset": "-1", "last_enqueued_time_utc": 0,
                "last_enqueued_sequence_number_epoch": -1, "is_partition_empty": True,
            }  # fmt: skip
