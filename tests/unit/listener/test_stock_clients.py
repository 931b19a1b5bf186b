"""Unmodified python-qpid-proton against one node: produce, consume, start positions, annotations, administration."""

from __future__ import annotations

import asyncio
from typing import Any

from proton import Message, symbol, timestamp
from proton.handlers import MessagingHandler
from proton.reactor import Container, LinkOption
from proton.utils import BlockingConnection, SyncRequestResponse

from tests.unit.listener.support.single import SingleNode
from tests.unit.listener.support.stock import WAIT_S, from_offset


class Properties(LinkOption):
    """Link properties of an attach."""

    def __init__(self, **properties: Any) -> None:
        self.properties = {symbol(key.replace("_", "-")): value for key, value in properties.items()}

    def apply(self, link: Any) -> None:
        link.properties = self.properties


async def test_a_blocking_client_sends_and_receives(node: SingleNode) -> None:
    def client() -> list[Any]:
        connection = BlockingConnection(node.url, timeout=WAIT_S)
        sender = connection.create_sender("trades")
        for number in range(100):
            sender.send(Message(body=f"event {number}"))
        receiver = connection.create_receiver("trades", credit=10, options=[from_offset("@earliest")])
        found = []
        for _ in range(100):
            found.append(receiver.receive(timeout=WAIT_S))
            receiver.accept()
        connection.close()
        return found

    messages = await asyncio.to_thread(client)
    assert [message.body for message in messages] == [f"event {number}" for number in range(100)]
    offsets = [message.instructions["event-streams-offset"] for message in messages]
    assert offsets == [f"{number:016x}" for number in range(100)]
    assert {message.instructions["event-streams-source-partition"] for message in messages} == {"0"}
    stamp = messages[0].instructions["event-streams-timestamp"]
    assert isinstance(stamp, timestamp)
    assert stamp > 1_700_000_000_000


async def test_no_filter_delivers_only_what_comes_after_the_attach(node: SingleNode) -> None:
    def client() -> Any:
        connection = BlockingConnection(node.url, timeout=WAIT_S)
        sender = connection.create_sender("trades")
        sender.send(Message(body="before"))
        receiver = connection.create_receiver("trades")
        sender.send(Message(body="after"))
        found = receiver.receive(timeout=WAIT_S)
        receiver.accept()
        connection.close()
        return found

    assert (await asyncio.to_thread(client)).body == "after"


async def test_an_offset_filter_is_exclusive_and_echoed(node: SingleNode) -> None:
    def client() -> tuple[Any, Any]:
        connection = BlockingConnection(node.url, timeout=WAIT_S)
        sender = connection.create_sender("trades")
        for number in range(5):
            sender.send(Message(body=number))
        receiver = connection.create_receiver("trades", options=[from_offset(f"{2:016x}")])
        found = receiver.receive(timeout=WAIT_S)
        in_force = receiver.link.remote_source.filter
        in_force.rewind()
        in_force.next()
        echoed = in_force.get_object()
        connection.close()
        return found, echoed

    message, echoed = await asyncio.to_thread(client)
    assert message.body == 3
    assert list(echoed) == ["start"]


async def test_messages_come_back_as_they_were_sent(node: SingleNode) -> None:
    sent = Message(
        body={"a": [1, 2.5, "x", None]},
        durable=True,
        priority=7,
        ttl=60_000,
        id="id-1",
        user_id=b"me",
        subject="s",
        group_id="g",
        properties={"k": "v"},
        annotations={symbol("x-mine"): "kept"},
    )

    def client() -> Any:
        connection = BlockingConnection(node.url, timeout=WAIT_S)
        connection.create_sender("trades").send(sent)
        found = connection.create_receiver("trades", options=[from_offset("@earliest")]).receive(timeout=WAIT_S)
        connection.close()
        return found

    got = await asyncio.to_thread(client)
    assert got.annotations.pop(symbol("event-streams-group-key")) == "g", "its group-id is its key"
    for name in (
        "body",
        "durable",
        "priority",
        "ttl",
        "id",
        "user_id",
        "subject",
        "group_id",
        "properties",
        "annotations",
    ):
        assert getattr(got, name) == getattr(sent, name), name


class Echo(MessagingHandler):
    """Sends `count` messages as fast as credit allows, and receives them all from the start, partition by partition."""

    def __init__(self, url: str, address: str, count: int, size: int) -> None:
        super().__init__(prefetch=500)
        self.url, self.address, self.count = url, address, count
        self.body = b"x" * size
        self.sent = self.settled = 0
        self.found: dict[str, list[int]] = {}
        self.received = 0

    def on_start(self, event: Any) -> None:
        self.connection = event.container.connect(self.url)
        self.sender = event.container.create_sender(self.connection, self.address)

    def on_sendable(self, event: Any) -> None:
        while event.sender.credit and self.sent < self.count:
            event.sender.send(Message(body=self.body, id=self.sent))
            self.sent += 1

    def on_accepted(self, event: Any) -> None:
        self.settled += 1
        if self.settled == self.count:
            event.container.create_receiver(self.connection, self.address, options=[from_offset("@earliest")])

    def on_message(self, event: Any) -> None:
        partition = event.message.instructions["event-streams-source-partition"]
        self.found.setdefault(partition, []).append(int(event.message.instructions["event-streams-offset"], 16))
        self.received += 1
        if self.received == self.count:
            self.connection.close()


async def test_an_event_driven_client_spreads_thousands_over_all_partitions(node: SingleNode) -> None:
    handler = Echo(node.url, "wide", 5000, 200)
    await asyncio.to_thread(Container(handler).run)
    assert sorted(handler.found) == ["0", "1", "2", "3"]
    for partition, offsets in handler.found.items():
        assert offsets == list(range(len(offsets))), partition
    assert sum(map(len, handler.found.values())) == 5000
    assert node.listener.counters.events_in == node.listener.counters.events_out == 5000


async def test_large_messages_cross_in_many_frames(node: SingleNode) -> None:
    handler = Echo(node.url, "trades", 8, 3_000_000)
    await asyncio.to_thread(Container(handler).run)
    assert handler.found == {"0": list(range(8))}


async def test_a_partition_can_be_asked_for_and_is_named_in_the_answer(node: SingleNode) -> None:
    def client() -> tuple[Any, Any, Any]:
        connection = BlockingConnection(node.url, timeout=WAIT_S)
        bound = Properties(event_streams_partition=symbol("2"))
        sender = connection.create_sender("wide", options=[bound])
        sender.send(Message(body="here"))
        receiver = connection.create_receiver("wide", options=[bound, from_offset("@earliest")])
        answers = dict(sender.link.remote_properties), dict(receiver.link.remote_properties)
        found = receiver.receive(timeout=WAIT_S)
        connection.close()
        return *answers, found

    of_sender, of_receiver, message = await asyncio.to_thread(client)
    assert of_sender == of_receiver == {"event-streams-partition": "2"}
    assert message.instructions["event-streams-source-partition"] == "2"
    assert node.logs["wide"]["2"].next_offset == 1


async def test_hints_choose_the_partition_and_are_not_stored(node: SingleNode) -> None:
    target = symbol("event-streams-target-partition")
    key = symbol("event-streams-group-key")

    def client() -> list[Any]:
        connection = BlockingConnection(node.url, timeout=WAIT_S)
        sender = connection.create_sender("wide")
        for _ in range(3):
            sender.send(Message(body="t", instructions={target: symbol("3")}))
            sender.send(Message(body="k", annotations={key: "FWfAT"}))
        receiver = connection.create_receiver("wide", credit=6, options=[from_offset("@earliest")])
        found = [receiver.receive(timeout=WAIT_S) for _ in range(6)]
        connection.close()
        return found

    messages = await asyncio.to_thread(client)
    partitions = {message.body: message.instructions["event-streams-source-partition"] for message in messages}
    assert partitions == {"t": "3", "k": "1"}  # |-22341| % 4 = 1
    assert all(target not in message.instructions for message in messages)


async def test_info_describes_every_partition(node: SingleNode) -> None:
    def client() -> Any:
        connection = BlockingConnection(node.url, timeout=WAIT_S)
        sender = connection.create_sender("wide", options=[Properties(event_streams_partition=symbol("1"))])
        for _ in range(3):
            sender.send(Message(body="x"))
        info = connection.create_receiver("wide/$info", credit=1).receive(timeout=WAIT_S)
        connection.close()
        return info

    body = (await asyncio.to_thread(client)).body
    entries = {entry["partition"]: entry for entry in body["partitions"]}
    assert list(entries) == ["0", "1", "2", "3"]
    assert entries["0"]["earliest-offset"] is None
    assert entries["0"]["latest-offset"] is None
    assert entries["1"]["earliest-offset"] == f"{0:016x}"
    assert entries["1"]["latest-offset"] == f"{2:016x}"
    assert entries["1"]["events"] == 3
    assert entries["1"]["leader"] == 1
    assert entries["1"]["replicas"] == [1]


async def test_management_answers_requests_of_a_stock_client(node: SingleNode) -> None:
    def client() -> list[Any]:
        connection = BlockingConnection(node.url, timeout=WAIT_S)
        requests = SyncRequestResponse(connection, "$management")

        def ask(kind: str, operation: str, body: Any = None, **more: str) -> Any:
            return requests.call(Message(body=body, properties={"type": kind, "operation": operation, **more}))

        answers = [
            ask("log", "create", {"partitions": 2}, name="orders"),
            ask("log", "create", {"partitions": 2}, name="orders"),
            ask("log", "list"),
            ask("log", "create", {"colour": 1}, name="x"),
            ask("log", "delete"),
            ask("tea", "make"),
            ask("node", "list"),
        ]
        connection.close()
        return answers

    created, again, listed, unknown_key, no_name, no_such, unavailable = await asyncio.to_thread(client)
    assert created.properties["status-code"] == 201
    assert [entry["partition"] for entry in created.body["partitions"]] == ["0", "1"]
    assert again.properties["status-code"] == 409
    assert again.properties["error-code"] == "already-exists"
    assert again.properties["retriable"] is False
    assert {"name": "orders", "partitions": 2} in listed.body["logs"]
    assert unknown_key.properties["status-code"] == 400
    assert "colour" in unknown_key.properties["status-description"]
    assert no_name.properties["status-code"] == 400
    assert no_such.properties["status-code"] == 501
    assert unavailable.properties["status-code"] == 503
    assert unavailable.properties["retriable"] is True


async def test_a_deleted_log_ends_its_links_with_the_reason(node: SingleNode) -> None:
    class Waiter(MessagingHandler):
        def __init__(self) -> None:
            super().__init__()
            self.conditions: list[str] = []
            self.opened = 0

        def on_start(self, event: Any) -> None:
            self.connection = event.container.connect(node.url)
            event.container.create_sender(self.connection, "wide")
            event.container.create_receiver(self.connection, "wide")

        def on_link_opened(self, event: Any) -> None:
            self.opened += 1
            if self.opened == 2:
                loop.call_soon_threadsafe(node.delete, "wide")

        def on_link_error(self, event: Any) -> None:
            self.conditions.append(event.link.remote_condition.name)
            if len(self.conditions) == 2:
                self.connection.close()

    loop = asyncio.get_running_loop()
    waiter = Waiter()
    await asyncio.to_thread(Container(waiter).run)
    assert waiter.conditions == ["amqp:resource-deleted"] * 2
