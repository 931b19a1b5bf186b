"""Connections and links: the capability, plain clients, bound and agnostic links, redirects, durable sources."""

from __future__ import annotations

from proton import Message, Terminus, symbol
from proton.utils import LinkDetached

from tests.conformance.broker import (
    CAPABILITY,
    EARLIEST,
    LATEST,
    PARTITION,
    REDIRECT,
    AtMostOnce,
    BrokerUnderTest,
    Durable,
    annotations_filter,
    bodies,
    marks,
    properties_of,
)
from tests.conformance.suite import NotApplicable, rule

UNKNOWN = "no such partition"
REDIRECT_KEYS = {"hostname", "network-host", "port", "address"}


@rule("ES-1")
def a_receiver_may_say_where_to_start(broker: BrokerUnderTest) -> None:
    partition = broker.partitions[0]
    first, second, third = broker.stored(marks(3), partition)
    with broker.visit() as connection:
        behind = broker.receiver(connection, annotations_filter(offset=symbol(first.offset)), partition=partition)
        assert bodies(broker.take(behind, 2)) == [second.body, third.body]
        fresh = broker.receiver(connection, partition=partition, name="fresh")
        [later] = marks(1)
        broker.publish([later], partition)
        assert bodies(broker.take(fresh, 1)) == [later]


@rule("ES-2")
def unused_capabilities_keep_their_defaults(broker: BrokerUnderTest) -> None:
    """No capability desired, no property, no filter, no annotation: plain AMQP."""
    said = marks(3)
    with broker.visit() as connection:
        receiver = connection.create_receiver(broker.log, credit=10)
        sender = connection.create_sender(broker.log)
        for body in said:
            sender.send(Message(body=body))
        found = broker.take(receiver, 3)
    assert sorted(bodies(found)) == said


@rule("ES-3")
def the_capability_is_offered(broker: BrokerUnderTest) -> None:
    with broker.visit() as connection:
        offered = connection.conn.remote_offered_capabilities or ()
        assert CAPABILITY in map(str, offered), f"the broker offers {[str(name) for name in offered]}"


@rule("ES-4")
def who_desires_it_gets_the_extensions(broker: BrokerUnderTest) -> None:
    with broker.visit(CAPABILITY) as connection:
        offered = map(str, connection.conn.remote_offered_capabilities or ())
        assert CAPABILITY in offered, "what was desired is not offered"
        desired = map(str, connection.conn.remote_desired_capabilities or ())
        assert CAPABILITY not in desired or connection.conn.remote_offered_capabilities
        receiver = broker.receiver(connection)  # agnostic: served wherever it was attached
        [body] = marks(1)
        broker.publish([body])
        [event] = broker.until(receiver, body)[-1:]
        assert event.offset
        assert event.partition in broker.partitions


@rule("ES-5")
def plain_clients_work_unchanged(broker: BrokerUnderTest) -> None:
    """Whatever a message holds comes out as it went in, settled or not, with the capability or without."""
    for desired in ((), (CAPABILITY,)):
        for options in ([], [AtMostOnce()]):
            [body] = marks(1)
            message = Message(
                body={"text": body, "list": [1, 2.5, None]}, id="an id", subject="a subject", correlation_id=7,
                content_type="text/plain", durable=True, priority=7, properties={"colour": "blue", "size": 3},
                annotations={symbol("x-opt-own"): "kept"}, group_id="a group", user_id=b"somebody",
            )  # fmt: skip
            with broker.visit(*desired) as connection:
                receiver = connection.create_receiver(broker.log, credit=100)
                sender = connection.create_sender(broker.log, options=options)
                sender.send(message)
                found = receiver.receive(timeout=broker.timeout_s)
                receiver.accept()
            for name in ("body", "id", "subject", "correlation_id", "content_type", "properties", "group_id"):
                assert getattr(found, name) == getattr(message, name), f"{name} is {getattr(found, name)!r}"
            assert bytes(found.user_id) == b"somebody"
            assert (found.durable, found.priority) == (True, 7)
            assert dict(found.annotations or {}).get(symbol("x-opt-own")) == "kept"


@rule("ES-6")
def a_link_without_partition_is_bound_or_agnostic(broker: BrokerUnderTest) -> None:
    with broker.visit() as connection:
        for link in (broker.sender(connection).link, broker.receiver(connection).link):
            bound = properties_of(link).get(PARTITION)
            assert bound is None or str(bound) in broker.partitions, f"bound to {bound!r}, which there is not"


@rule("ES-7")
def without_hints_the_node_chooses(broker: BrokerUnderTest) -> None:
    said = marks(8)
    with broker.visit() as connection:
        receiver = broker.receiver(connection)
        broker.publish(said)
        found = broker.take(receiver, len(said))
    assert sorted(bodies(found)) == sorted(said)
    assert {event.partition for event in found} <= set(broker.partitions)


@rule("ES-8")
def no_filter_means_from_now_on(broker: BrokerUnderTest) -> None:
    partition = broker.partitions[0]
    before, after = marks(2)
    broker.publish([before], partition)
    with broker.visit() as connection:
        plain = broker.receiver(connection, partition=partition, name="plain")
        latest = broker.receiver(connection, LATEST, partition=partition, name="latest")
        broker.publish([after], partition)
        assert bodies(broker.take(plain, 1)) == [after]
        assert bodies(broker.take(latest, 1)) == [after]


@rule("ES-9")
def the_link_remembers_what_it_gave(broker: BrokerUnderTest) -> None:
    """Credit in small steps, every outcome: each event once, in order, and nobody keeps an offset."""
    partition = broker.partitions[0]
    said = marks(12)
    with broker.visit() as connection:
        receiver = broker.receiver(connection, partition=partition)
        broker.publish(said[:6], partition)
        found = broker.take(receiver, 1) + broker.take(receiver, 2)
        broker.publish(said[6:], partition)
        found += broker.take(receiver, 4) + broker.take(receiver, 5)
    assert bodies(found) == said


@rule("ES-10")
def a_durable_source_resumes(broker: BrokerUnderTest) -> None:
    partition, container_id = broker.partitions[0], marks(1)[0]
    said = marks(6)
    with broker.visit(container_id=container_id) as connection:
        durable = broker.receiver(connection, partition=partition, name="durable", options=[Durable()])
        if durable.link.remote_source.durability == Terminus.NONDURABLE:
            raise NotApplicable("3.2: only if the source offers durability; the answer to the attach said none")
        broker.publish(said, partition)
        assert bodies(broker.take(durable, 3)) == said[:3]
    with broker.visit(container_id=container_id) as connection:  # the link was lost with its connection, not closed
        durable = broker.receiver(connection, partition=partition, name="durable", options=[Durable()])
        found = bodies(broker.until(durable, said[-1]))
    assert found[-3:] == said[3:], f"after the first three came {found}"
    assert set(found) <= set(said)
    assert len(found) <= len(said), "it resumed before its own start"


@rule("ES-11")
def every_partition_can_be_reached(broker: BrokerUnderTest) -> None:
    for partition in broker.partitions:
        said = marks(2)
        assert bodies(broker.stored(said, partition)) == said


@rule("ES-12")
def links_are_bound_or_agnostic(broker: BrokerUnderTest) -> None:
    said = {partition: marks(1)[0] for partition in broker.partitions}
    with broker.visit() as connection:
        everything = broker.receiver(connection, name="all")
        if properties_of(everything.link).get(PARTITION) is not None:
            raise NotApplicable("4.3: a node may bind every link that asks for nothing, and this one does")
        for partition, body in said.items():
            broker.publish([body], partition)
        found = {event.partition: event.body for event in broker.take(everything, len(said))}
    assert found == said


@rule("ES-13")
def redirects_lead_to_the_partition(broker: BrokerUnderTest) -> None:
    """Whether it redirects is the node's choice; a redirect that it gives must be whole, and lead there."""
    for partition in broker.partitions:
        [body] = marks(1)
        with broker.visit(REDIRECT, CAPABILITY) as connection:
            try:
                sender = broker.sender(connection, partition)
            except LinkDetached as refusal:
                assert refusal.condition == REDIRECT, f"refused with {refusal.condition}"
                info = {str(key): value for key, value in (refusal.link.remote_condition.info or {}).items()}
                assert info.keys() >= REDIRECT_KEYS, f"the redirect says only {sorted(info)}"
                with broker.visit(url=f"amqp://{info['network-host']}:{int(info['port'])}") as other:
                    broker.sender(other, partition, str(info["address"])).send(Message(body=body))
            else:
                sender.send(Message(body=body))


@rule("ES-14")
def a_link_may_ask_for_a_partition(broker: BrokerUnderTest) -> None:
    with broker.visit() as connection:
        for partition in broker.partitions:
            broker.sender(connection, partition)
            broker.receiver(connection, partition=partition)


@rule("ES-15")
def an_unknown_partition_is_refused(broker: BrokerUnderTest) -> None:
    """The answer to the attach has no terminus of the node's, and an error follows it."""
    with broker.visit() as connection:
        broker.refused(lambda: broker.sender(connection, UNKNOWN))
        broker.refused(lambda: broker.receiver(connection, partition=UNKNOWN))
        broker.refused(lambda: broker.receiver(connection, EARLIEST, partition=UNKNOWN, name="again"))
        session = connection.conn.session()
        session.open()
        link = session.receiver("by hand")
        link.source.address = broker.log
        link.properties = {symbol(PARTITION): symbol(UNKNOWN)}
        link.open()
        broker.closed(connection, link)
        assert link.remote_source.type == Terminus.UNSPECIFIED, "the refusal names a source"
        broker.sender(connection, broker.partitions[0]).send(Message(body="the session lives"))


@rule("ES-16")
def a_link_that_asked_for_nothing_may_be_bound(broker: BrokerUnderTest) -> None:
    """Bound or not, it works."""
    [body] = marks(1)
    with broker.visit() as connection:
        sender = broker.sender(connection)
        bound = properties_of(sender.link).get(PARTITION)
        receiver = broker.receiver(connection, partition=None if bound is None else str(bound))
        sender.send(Message(body=body))
        assert broker.until(receiver, body)


@rule("ES-17")
def the_answer_names_the_partition(broker: BrokerUnderTest) -> None:
    with broker.visit() as connection:
        for partition in broker.partitions:
            for end in (broker.sender(connection, partition), broker.receiver(connection, partition=partition)):
                answered = properties_of(end.link).get(PARTITION)
                assert isinstance(answered, symbol), f"the answer names {answered!r}"
                assert answered == partition


@rule("ES-19")
def partition_ids_are_symbols_learned_through_info(broker: BrokerUnderTest) -> None:
    entries = broker.info()
    assert all(isinstance(entry["partition"], symbol) for entry in entries)
    assert len({entry["partition"] for entry in entries}) == len(entries)
