"""Where events go, and what is said of it on the way out: hints, target partitions, source partitions, group keys."""

from __future__ import annotations

from collections import Counter
from typing import Any

from proton import Message, symbol
from proton.utils import SendException

from tests.conformance.broker import (
    CHANGED,
    GROUP_KEY,
    PARTITION,
    SOURCE_PARTITION,
    TARGET_PARTITION,
    BrokerUnderTest,
    SeenEvent,
    bodies,
    marks,
    properties_of,
)
from tests.conformance.suite import NotApplicable, rule


def aimed(body: Any, partition: str) -> Message:
    return Message(body=body, instructions={symbol(TARGET_PARTITION): symbol(partition)})


def keyed(body: Any, key: str, **more: Any) -> Message:
    return Message(body=body, annotations={symbol(GROUP_KEY): key}, **more)


def sent(broker: BrokerUnderTest, messages: list[Message]) -> list[SeenEvent]:
    """What becomes of messages on an agnostic link."""
    with broker.visit() as connection:
        receivers = [broker.receiver(connection, partition=name) for name in broker.partitions]
        sender = broker.sender(connection)
        for message in messages:
            sender.send(message)
        last: dict[str, str] = {}
        for partition, body in zip(broker.partitions, marks(len(receivers)), strict=True):
            broker.publish([body], partition)
            last[partition] = body
        found = [
            event
            for partition, receiver in zip(broker.partitions, receivers, strict=True)
            for event in broker.until(receiver, last[partition])[:-1]
        ]
    ours = {str(message.body) for message in messages}
    return [event for event in found if str(event.body) in ours]


def rejection(send: Any) -> str:
    """The condition with which a message is rejected."""
    try:
        send()
    except SendException as error:
        assert error.state == 0x25, f"the outcome is 0x{error.state:x}, not rejected"
        return "rejected"
    raise AssertionError("the message was accepted")


@rule("ES-20")
def events_may_carry_hints(broker: BrokerUnderTest) -> None:
    body, other = marks(2)
    found = sent(broker, [aimed(body, broker.partitions[1]), keyed(other, "a key")])
    assert sorted(bodies(found)) == sorted([body, other]), f"of two events {len(found)} came out"


@rule("ES-21")
def a_target_that_is_not_the_links_is_rejected(broker: BrokerUnderTest) -> None:
    here, there = broker.partitions[:2]
    wrong, right = marks(2)
    with broker.visit() as connection:
        receiver = broker.receiver(connection, partition=there)
        bound = broker.sender(connection, here)
        rejection(lambda: bound.send(aimed(wrong, there)))
        broker.publish([right], there)
        assert bodies(broker.until(receiver, right)) == [right]
        broker.sender(connection, there).send(aimed(right, there))  # its own name is no contradiction


@rule("ES-22")
def an_unknown_target_is_rejected(broker: BrokerUnderTest) -> None:
    with broker.visit() as connection:
        agnostic = broker.sender(connection)
        rejection(lambda: agnostic.send(aimed("nowhere", "no such partition")))


@rule("ES-23")
def an_event_goes_to_its_target(broker: BrokerUnderTest) -> None:
    wanted = {body: partition for partition in broker.partitions for body in marks(3)}
    found = sent(broker, [aimed(body, partition) for body, partition in wanted.items()])
    assert {event.body: event.partition for event in found} == wanted
    assert len(found) == len(wanted)


@rule("ES-24")
def the_target_is_stripped(broker: BrokerUnderTest) -> None:
    body, *_ = marks(1)
    found = sent(broker, [aimed(body, broker.partitions[0])])
    assert len(found) == 1, f"it came out {len(found)} times"
    [event] = found
    assert TARGET_PARTITION not in event.notes
    assert TARGET_PARTITION not in map(str, event.message.annotations or {})


@rule("ES-25")
def agnostic_deliveries_name_their_source(broker: BrokerUnderTest) -> None:
    with broker.visit() as connection:
        receiver = broker.receiver(connection)
        if properties_of(receiver.link).get(PARTITION) is not None:
            raise NotApplicable("4.4: it concerns agnostic links; this node binds every link, as 4.3 permits")
        wanted = {body: partition for partition in broker.partitions for body in marks(2)}
        for body, partition in wanted.items():
            broker.publish([body], partition)
        found = broker.take(receiver, len(wanted))
    assert all(isinstance(event.note(SOURCE_PARTITION), symbol) for event in found), "a partition is no symbol"
    assert {event.body: event.partition for event in found} == wanted


@rule("ES-26")
def bound_deliveries_name_no_other_source(broker: BrokerUnderTest) -> None:
    for partition in broker.partitions:
        for event in broker.stored(marks(2), partition):
            assert str(event.notes.get(SOURCE_PARTITION, partition)) == partition


@rule("ES-27")
def deliveries_of_a_partitioned_log_name_their_source(broker: BrokerUnderTest) -> None:
    for partition in broker.partitions:
        [event] = broker.stored(marks(1), partition)
        assert event.notes.get(SOURCE_PARTITION) == partition, f"bound to {partition}: {event.notes}"


@rule("ES-28")
def forwarding_is_the_clients_duty(broker: BrokerUnderTest) -> None:
    raise NotApplicable("4.6.4, 4.6.5 bind the consumer that forwards; by 8 clients have no conformance duties")


@rule("ES-42")
def agnostic_links_are_told_of_changes(broker: BrokerUnderTest) -> None:
    """A log gets more partitions while an agnostic link is open."""
    try:
        log = broker.make("growing", 1)
    except LookupError:
        raise NotApplicable("4.6.5: after a change of partitions; the suite cannot make this broker do one") from None
    with broker.visit() as connection:
        receiver = broker.receiver(connection, log=log)
        first, second, third = marks(3)
        broker.publish([first], "0", log)
        [event] = broker.take(receiver, 1)
        assert CHANGED not in event.notes, "nothing had changed yet"
        status, text = broker.manage("alter", log, {"partitions": 2})
        assert status == 200, text
        names = {str(entry["partition"]) for entry in broker.info(log)}
        assert len(names) == 2
        found = []
        for body in [second, third, *marks(20)]:  # the link may learn of it a moment after the log has
            broker.publish([body], "0", log)
            found += broker.take(receiver, 1)
            if CHANGED in found[-1].notes:
                break
        told = [event for event in found if CHANGED in event.notes]
        assert len(told) == 1, f"{len(told)} of {len(found)} deliveries told of the change"
        assert {str(name) for name in told[0].notes[CHANGED].elements} == names, "not an array of all its partitions"
        [body] = marks(1)
        broker.publish([body], "0", log)
        [quiet] = broker.take(receiver, 1)
        assert CHANGED not in quiet.notes, "a change is told once"


@rule("ES-43")
def a_group_key_sticks_to_a_partition(broker: BrokerUnderTest) -> None:
    keys = [f"key-{number}" for number in range(12)]
    messages, key_of = [], {}
    for key in keys * 3:
        [body] = marks(1)
        key_of[body] = key
        messages.append(keyed(body, key))
    places: dict[str, set[str]] = {}
    for event in sent(broker, messages):
        places.setdefault(key_of[event.body], set()).add(event.partition)
    assert sorted(places) == sorted(keys)
    torn = {key: found for key, found in places.items() if len(found) > 1}
    assert not torn, f"keys in several partitions: {torn}"
    assert len({name for found in places.values() for name in found}) > 1, "all keys went to one partition"


@rule("ES-44")
def the_group_key_is_not_the_group_id(broker: BrokerUnderTest) -> None:
    """Group ids do not route, and come out as they went in."""
    same_id = [Message(body=body, group_id="one", group_sequence=number) for number, body in enumerate(marks(8))]
    same_key = [keyed(body, "one", group_id=f"id-{number}") for number, body in enumerate(marks(8))]
    found = sent(broker, same_id + same_key)
    group_of = {event.body: event for event in found}
    assert Counter(group_of[message.body].partition for message in same_key).most_common(1)[0][1] == 8
    for message in same_id + same_key:
        assert group_of[message.body].message.group_id == message.group_id
