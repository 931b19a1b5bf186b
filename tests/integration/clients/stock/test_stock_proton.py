"""Any AMQP 1.0 client works unmodified: stock python-qpid-proton against each node, each partition."""

from __future__ import annotations

import time

import pytest
from proton import Described, Disposition, Message, symbol, ulong
from proton.reactor import Filter
from proton.utils import LinkDetached, SendException

from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.workloads.plain import (
    GROUP_KEY,
    LATEST,
    PARTITION,
    STREAMS,
    TARGET,
    Batcher,
    Bound,
    Collector,
    Limited,
    Received,
    connected,
    read,
    send,
    starting,
)

pytestmark = pytest.mark.cluster

PARTITIONS = 4


def test_every_node_takes_and_gives_every_partition(cluster: Cluster, log_name: str) -> None:
    """No capability is desired, so nobody is redirected: each node is a gateway to what it does not lead."""
    cluster.create(log_name, PARTITIONS)
    for node in cluster.nodes:
        for partition in range(PARTITIONS):
            send(cluster.address(node), log_name, [f"from {node}"], str(partition))
    for node in cluster.nodes:
        for partition in range(PARTITIONS):
            found = read(cluster.address(node), log_name, len(cluster.nodes), str(partition))
            assert [event.body for event in found] == [f"from {sender}" for sender in cluster.nodes]
            assert {event.partition for event in found} == {str(partition)}


def test_the_answer_to_a_bound_attach_names_its_partition(cluster: Cluster, log_name: str) -> None:
    cluster.create(log_name, 2)
    with connected(cluster.address(1)) as connection:
        sender = connection.create_sender(log_name, options=[Bound("1")])
        receiver = connection.create_receiver(log_name, options=[Bound("1")])
        for link in (sender.link, receiver.link):
            assert link.remote_properties[symbol(PARTITION)] == "1"
        agnostic = connection.create_sender(log_name, name="another")
        assert PARTITION not in (agnostic.link.remote_properties or {})
        assert STREAMS in {str(item) for item in connection.conn.remote_offered_capabilities}


def test_a_plain_send_without_hints_lands_in_some_partition(cluster: Cluster, log_name: str) -> None:
    cluster.create(log_name, PARTITIONS)
    bodies = [f"event {number}" for number in range(40)]
    send(cluster.address(2), log_name, bodies)
    found = read(cluster.address(3), log_name, len(bodies))
    assert sorted(event.body for event in found) == sorted(bodies)
    assert len({event.partition for event in found}) == PARTITIONS, "plain sends are spread over the partitions"
    for partition in range(PARTITIONS):
        numbers = [int(event.body.split()[1]) for event in found if event.partition == str(partition)]
        assert numbers == sorted(numbers)


def test_hints_choose_the_partition(cluster: Cluster, log_name: str) -> None:
    cluster.create(log_name, PARTITIONS)
    with connected(cluster.address(1)) as connection:
        sender = connection.create_sender(log_name)
        for partition in range(PARTITIONS):
            message = Message(body=f"to {partition}")
            message.instructions = {symbol(TARGET): symbol(str(partition))}
            sender.send(message)
        for number in range(20):
            message = Message(body=f"keyed {number}")
            message.annotations = {symbol(GROUP_KEY): "one key"}
            sender.send(message)
    found = read(cluster.address(2), log_name, PARTITIONS + 20)
    targeted = {event.body: event for event in found if event.body.startswith("to ")}
    for partition in range(PARTITIONS):
        event = targeted[f"to {partition}"]
        assert event.partition == str(partition)
        assert TARGET not in {str(key) for key in event.message.instructions}, "the hint is for the node only"
    keyed = [event for event in found if event.body.startswith("keyed ")]
    assert len({event.partition for event in keyed}) == 1
    assert [event.body for event in keyed] == [f"keyed {number}" for number in range(20)]
    assert keyed[0].message.annotations[symbol(GROUP_KEY)] == "one key"


def test_an_unknown_target_partition_is_rejected_and_the_link_lives_on(cluster: Cluster, log_name: str) -> None:
    cluster.create(log_name, 2)
    messages = [Message(body=f"event {number}") for number in range(6)]
    messages[2].instructions = {symbol(TARGET): symbol("17")}
    batcher = Batcher(cluster.address(1), log_name, messages).begin()
    batcher.join()
    assert batcher.answers.of_kind("rejected") == [2]
    assert batcher.answers.conditions[2] == "amqp:not-found"
    assert sorted(batcher.answers.of_kind("accepted")) == [0, 1, 3, 4, 5]
    assert len(read(cluster.address(1), log_name, 5)) == 5


def test_a_target_that_is_not_the_partition_of_the_link_is_rejected(cluster: Cluster, log_name: str) -> None:
    cluster.create(log_name, 2)
    message = Message(body="astray")
    message.instructions = {symbol(TARGET): symbol("1")}
    for node in cluster.nodes:
        with connected(cluster.address(node)) as connection:
            sender = connection.create_sender(log_name, options=[Bound("0")])
            with pytest.raises(SendException) as refusal:
                sender.send(message)
            assert refusal.value.state == Disposition.REJECTED


@pytest.mark.parametrize("bound", [None, "0"])
def test_presettled_sends_arrive(cluster: Cluster, log_name: str, bound: str | None) -> None:
    cluster.create(log_name, 2)
    messages = [Message(body=f"event {number}") for number in range(500)]
    for node in cluster.nodes:
        Batcher(cluster.address(node), log_name, messages, bound, settled=True).begin().join()
    count = len(messages) * len(cluster.nodes)

    def stored() -> int:
        return sum(int(entry.details["events"]) for entry in cluster.info(log_name).values())

    wait_until(lambda: stored() == count, f"{count} events that nobody confirms")


def test_a_mebibyte_crosses_in_many_frames_unchanged(cluster: Cluster, log_name: str) -> None:
    cluster.create(log_name, 1)
    bodies = [bytes([number]) * (1 << 20) for number in range(3)]
    leader = cluster.leaders(log_name)["0"]
    gateway = cluster.other_than(leader)
    for node in (leader, gateway):
        send(cluster.address(node), log_name, bodies, "0")
    for node in (leader, gateway):
        found = read(cluster.address(node), log_name, 6, "0")
        assert [event.body for event in found] == bodies * 2


@pytest.mark.parametrize("way", ["leader", "gateway", "agnostic"])
def test_thousands_in_flight_are_all_accepted_and_in_order(cluster: Cluster, log_name: str, way: str) -> None:
    cluster.create(log_name, 1 if way != "agnostic" else 3)
    leader = cluster.leaders(log_name)["0"]
    node = cluster.other_than(leader) if way == "gateway" else leader
    bound = None if way == "agnostic" else "0"
    count = 5000
    batcher = Batcher(cluster.address(node), log_name, [Message(body=number) for number in range(count)], bound).begin()
    batcher.join()
    assert len(batcher.answers.of_kind("accepted")) == count
    assert batcher.most_in_flight >= 1000
    collector = Collector(cluster.address(node), log_name, count, start={"offset": "@earliest"}).begin()
    collector.join()
    by_partition: dict[str, list[int]] = {}
    for event in collector.events:
        by_partition.setdefault(event.partition, []).append(event.body)
    assert sorted(number for numbers in by_partition.values() for number in numbers) == list(range(count))
    assert all(numbers == sorted(numbers) for numbers in by_partition.values())


def test_every_delivery_says_where_it_stands(cluster: Cluster, log_name: str) -> None:
    cluster.create(log_name, 2)
    before_ms = time.time() * 1000 - 1000
    for node in cluster.nodes:
        send(cluster.address(node), log_name, ["a", "b", "c"], "1")
    for node in cluster.nodes:
        for bound in (None, "1"):
            found = read(cluster.address(node), log_name, 9, bound)
            offsets = [event.offset for event in found]
            assert offsets == sorted(set(offsets)), "offsets rise, as text"
            assert not offsets[0].startswith("@")
            times = [event.timestamp_ms for event in found]
            assert times == sorted(times)
            assert before_ms < times[0] <= times[-1] < time.time() * 1000 + 1000
            assert {event.partition for event in found} == {"1"}


def test_filters_choose_the_place_to_begin(cluster: Cluster, log_name: str) -> None:
    cluster.create(log_name, 1)
    send(cluster.address(1), log_name, list(range(10)))
    time.sleep(0.05)  # so that the second half has later timestamps
    send(cluster.address(1), log_name, list(range(10, 20)))
    everything = read(cluster.address(1), log_name, 20)
    for node in cluster.nodes:
        address = cluster.address(node)
        after = everything[4].offset
        assert [event.body for event in read(address, log_name, 15, start={"offset": after})] == list(range(5, 20))
        between_ms = everything[9].timestamp_ms
        assert between_ms < everything[10].timestamp_ms
        found = read(address, log_name, 10, "0", {"time_ms": between_ms})
        assert [event.body for event in found] == list(range(10, 20))
        both = read(address, log_name, 5, start={"time_ms": between_ms, "offset": everything[14].offset})
        assert [event.body for event in both] == list(range(15, 20))


@pytest.mark.parametrize("filtered", [False, True], ids=["no filter", "@latest"])
@pytest.mark.parametrize("bound", [None, "0"])
def test_a_receiver_without_a_place_gets_only_what_comes_later(
    cluster: Cluster, log_name: str, filtered: bool, bound: str | None
) -> None:
    cluster.create(log_name, 2 if bound is None else 1)
    send(cluster.address(1), log_name, ["old"] * 4)
    collectors = [
        Collector(cluster.address(node), log_name, 4, partition=bound, start=LATEST if filtered else None).begin()
        for node in cluster.nodes
    ]
    for collector in collectors:
        collector.wait_attached()
    send(cluster.address(2), log_name, ["new"] * 4)
    for collector in collectors:
        collector.join()
        assert [event.body for event in collector.events] == ["new"] * 4


def test_the_filter_in_force_is_told(cluster: Cluster, log_name: str) -> None:
    cluster.create(log_name, 1)
    unknown = Filter({symbol("colour"): Described(symbol("example:colour"), "red")})
    with connected(cluster.address(1)) as connection:
        known = connection.create_receiver(log_name, options=[starting(offset="@earliest")])
        other = connection.create_receiver(log_name, name="another", options=[unknown])
        assert _filters(known) == {"start"}
        assert _filters(other) == set(), "a filter that is not in force is not confirmed"


def _filters(receiver: object) -> set[str]:
    data = receiver.link.remote_source.filter  # type: ignore[attr-defined]
    data.rewind()
    return {str(key) for key in data.get_object()} if data.next() and data.type() is not None else set()


@pytest.mark.parametrize(
    "bad",
    [
        {"offset": "@sometime"},
        {"offset": "12"},
        {"offset": "zzzzzzzzzzzzzzzz"},
    ],
)
def test_a_bad_filter_is_refused(cluster: Cluster, log_name: str, bad: dict[str, str]) -> None:
    cluster.create(log_name, 1)
    with connected(cluster.address(1)) as connection, pytest.raises(LinkDetached) as refusal:
        connection.create_receiver(log_name, options=[starting(**bad)])
    assert refusal.value.condition == "amqp:invalid-field"


def test_filters_of_other_shapes_are_refused_with_a_reason(cluster: Cluster, log_name: str) -> None:
    cluster.create(log_name, 1)
    cases = {
        "not a map": (Described(ulong(0x200), "text"), "amqp:invalid-field"),
        "unknown key": (Described(ulong(0x200), {symbol("colour"): symbol("red")}), "amqp:invalid-field"),
        "text for a time": (Described(ulong(0x200), {symbol("event-streams-timestamp"): "now"}), "amqp:invalid-field"),
        "not described": ("text", "amqp:invalid-field"),
        "sql": (Described(ulong(0x201), "d.event-streams-offset > 'a'"), "amqp:invalid-field"),
        "selector": (Described(symbol("apache.org:selector-filter:string"), "JMSType = 'a'"), "amqp:invalid-field"),
    }
    for name, (value, condition) in cases.items():
        with connected(cluster.address(1)) as connection:
            with pytest.raises(LinkDetached) as refusal:
                connection.create_receiver(log_name, options=[Filter({symbol("f"): value})])
            assert refusal.value.condition == condition, name
            sender = connection.create_sender(log_name)  # the connection is none the worse
            sender.send(Message(body="still here"))


def test_drain_returns_what_is_there_and_takes_the_credit_back(cluster: Cluster, log_name: str) -> None:
    cluster.create(log_name, 1)
    send(cluster.address(1), log_name, list(range(10)))
    for node in cluster.nodes:
        with connected(cluster.address(node)) as connection:
            receiver = connection.create_receiver(log_name, credit=0, options=[starting(offset="@earliest")])
            receiver.link.drain(100)
            connection.wait(lambda link=receiver.link: not link.credit, msg="the unused credit comes back")
            found = []
            while receiver.fetcher.has_message:
                found.append(receiver.fetcher.pop().body)
                receiver.accept()
            assert found == list(range(10))


def test_info_tells_partitions_and_offsets_on_any_node(cluster: Cluster, log_name: str) -> None:
    cluster.create(log_name, 3)
    send(cluster.address(1), log_name, ["a", "b"], "2")
    everything = read(cluster.address(1), log_name, 2, "2")
    for node in cluster.nodes:
        with connected(cluster.address(node)) as connection:
            body = connection.create_receiver(f"{log_name}/$info", credit=1).receive().body
        entries = {str(entry["partition"]): entry for entry in body["partitions"]}
        assert sorted(entries) == ["0", "1", "2"]
        assert entries["0"]["earliest-offset"] is None
        assert entries["0"]["latest-offset"] is None
        assert entries["2"]["earliest-offset"] == everything[0].offset
        assert entries["2"]["latest-offset"] == everything[1].offset


def test_unknown_logs_and_partitions_are_refused_everywhere(cluster: Cluster, log_name: str) -> None:
    cluster.create(log_name, 2)
    for node in cluster.nodes:
        with connected(cluster.address(node)) as connection:
            for address, partition in (("no-such-log", None), (log_name, "2"), (log_name, "zero")):
                for attach in (connection.create_sender, connection.create_receiver):
                    with pytest.raises(LinkDetached) as refusal:
                        attach(address, options=[Bound(partition)])
                    assert refusal.value.condition == "amqp:not-found"
                    assert "there is no log" in str(refusal.value) or "has no partition" in str(refusal.value)
            with pytest.raises(LinkDetached) as refusal:
                connection.create_receiver("no-such-log/$info")
            assert refusal.value.condition == "amqp:not-found"


def test_an_event_larger_than_the_receiver_takes_ends_its_link_only(cluster: Cluster, log_name: str) -> None:
    cluster.create(log_name, 1)
    send(cluster.address(1), log_name, [b"small", b"x" * 100_000])
    for node in cluster.nodes:
        with connected(cluster.address(node)) as connection:
            options = [starting(offset="@earliest"), Limited(10_000)]
            receiver = connection.create_receiver(log_name, credit=1, options=options)
            assert Received.of(receiver.receive()).body == b"small"
            with pytest.raises(LinkDetached) as refusal:
                receiver.receive()
            assert refusal.value.condition == "amqp:link:message-size-exceeded"


def test_rich_messages_come_back_as_they_were(cluster: Cluster, log_name: str) -> None:
    cluster.create(log_name, 1)
    message = Message(
        body={"list": [1, 2.5, "three", None, True], "nested": {"bytes": b"\0\1"}},
        id="an id",
        subject="a subject",
        correlation_id=17,
        content_type="application/json",
        properties={"colour": "red", "size": 7},
        durable=True,
        priority=7,
        ttl=5000,
    )
    message.annotations = {symbol("x-opt-note"): "kept"}
    with connected(cluster.address(2)) as connection:
        connection.create_sender(log_name).send(message)
    for node in cluster.nodes:
        found = read(cluster.address(node), log_name, 1)[0].message
        for name in ("body", "id", "subject", "correlation_id", "content_type", "properties", "durable", "priority"):
            assert getattr(found, name) == getattr(message, name), name
        assert found.annotations == message.annotations


def test_an_address_alone_says_partition_start_and_group(cluster: Cluster, log_name: str) -> None:
    cluster.create(log_name, 2)
    with connected(cluster.address(1)) as connection:
        sender = connection.create_sender(f"{log_name}?partition=1")
        for number in range(4):
            sender.send(Message(body=number, properties={"even": number % 2 == 0}))
    assert int(cluster.info(log_name)["1"].details["events"]) == 4
    for node in cluster.nodes:  # through gateways, too
        with connected(cluster.address(node)) as connection:
            receiver = connection.create_receiver(f"{log_name}?partition=1&start=earliest", credit=10)
            assert [receiver.receive(timeout=30).body for _ in range(4)] == [0, 1, 2, 3]
            chosen = Filter({symbol("jms"): Described(symbol("apache.org:selector-filter:string"), "even = TRUE")})
            some = connection.create_receiver(f"{log_name}?start=earliest", credit=10, options=[chosen], name="even")
            assert [some.receive(timeout=30).body for _ in range(2)] == [0, 2]
    with connected(cluster.address(1)) as connection:
        member = connection.create_receiver(f"{log_name}?group=g&start=earliest&partition=1", credit=10)
        assert member.receive(timeout=30).body == 0
        assert cluster.call(lambda admin: admin.describe_group(log_name, "g"))["partitions"][1]["active"]
