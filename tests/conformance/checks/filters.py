"""What a source's filters let pass."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from proton import Described, Message, symbol, timestamp, ulong
from proton.utils import LinkDetached

from tests.conformance.broker import (
    CAPABILITY,
    EARLIEST,
    OFFSET,
    BrokerUnderTest,
    SeenEvent,
    annotations_filter,
    bodies,
    filters_of,
    marks,
    sql_filter,
)
from tests.conformance.suite import rule


def spread(broker: BrokerUnderTest, count: int, partition: str) -> list[SeenEvent]:
    """Events with different times."""
    found = []
    for body in marks(count):
        found += broker.stored([body], partition)
        while time.time() * 1000 <= found[-1].time_ms + 2:
            time.sleep(0.001)
    return found


def passing(broker: BrokerUnderTest, events: Sequence[SeenEvent], *filters: Any) -> list[Any]:
    """Bodies of these events (of one partition) that come through filters, before one that is sent now."""
    [end] = marks(1)
    partition = events[0].partition
    with broker.visit() as connection:
        receiver = broker.receiver(connection, *filters, partition=partition)
        broker.publish([end], partition)
        found = bodies(broker.until(receiver, end))
    ours = bodies(events)
    return [body for body in found if body in ours]


@rule("ES-51")
def unknown_filters_are_not_in_force(broker: BrokerUnderTest) -> None:
    """A filter that the source does not know is left out of the answer, or refused; never silently obeyed."""
    with broker.visit() as connection:
        try:
            receiver = broker.receiver(connection, Described(symbol("example:never-heard-of"), "x"), EARLIEST)
        except LinkDetached as refusal:
            assert refusal.condition, "refused without a reason"
            return
        in_force = filters_of(receiver.link)
        assert "filter-0" not in in_force, f"the answer says that {in_force} are in force"


@rule("ES-52")
def filters_select_from_everything_retained(broker: BrokerUnderTest) -> None:
    partition = broker.partitions[0]
    old = spread(broker, 4, partition)
    assert passing(broker, old, EARLIEST) == bodies(old)
    again = passing(broker, old, annotations_filter(offset=symbol(old[0].offset)))
    assert again == bodies(old[1:]), "a second link is given the same again"


@rule("ES-53")
def the_annotations_filter_is_exclusive_and_complete(broker: BrokerUnderTest) -> None:
    partition = broker.partitions[0]
    events = one, two, three, four = spread(broker, 4, partition)
    by_offset = annotations_filter(offset=symbol(two.offset))
    by_time = annotations_filter(time=timestamp(two.time_ms))
    assert passing(broker, events, by_offset) == bodies([three, four])
    assert passing(broker, events, by_time) == bodies([three, four])
    both = annotations_filter(offset=symbol(one.offset), time=timestamp(three.time_ms))
    assert passing(broker, events, both) == bodies([four])
    both = annotations_filter(offset=symbol(three.offset), time=timestamp(one.time_ms))
    assert passing(broker, events, both) == bodies([four])
    assert passing(broker, events, by_offset, annotations_filter(offset=symbol(three.offset))) == bodies([four])
    with broker.visit() as connection:
        try:
            receiver = broker.receiver(connection, Described(ulong(0x200), {symbol("colour"): symbol("red")}))
        except LinkDetached:
            return
        assert not filters_of(receiver.link), "an unknown key is said to be in force"


def annotations_filter_works(broker: BrokerUnderTest) -> bool:
    partition = broker.partitions[0]
    one, two = broker.stored(marks(2), partition)
    with broker.visit() as connection:
        try:
            receiver = broker.receiver(connection, annotations_filter(offset=symbol(one.offset)), partition=partition)
        except LinkDetached:
            return False
        return bool(filters_of(receiver.link)) and bodies(broker.take(receiver, 1)) == [two.body]


def sql_filter_works(broker: BrokerUnderTest) -> bool:
    partition = broker.partitions[0]
    one, two = broker.stored(marks(2), partition)
    with broker.visit() as connection:
        try:
            receiver = broker.receiver(connection, sql_filter(f"d.{OFFSET} > '{one.offset}'"), partition=partition)
        except LinkDetached:
            return False
        return bool(filters_of(receiver.link)) and bodies(broker.take(receiver, 1)) == [two.body]


@rule("ES-59")
def the_node_conforms(broker: BrokerUnderTest) -> None:
    with broker.visit() as connection:
        offered = map(str, connection.conn.remote_offered_capabilities or ())
        assert CAPABILITY in offered, "the capability is not offered"
    assert broker.info(), "there is no $info"
    assert annotations_filter_works(broker) or sql_filter_works(broker), "neither of the two filters works"


# ---------------------------------------------------------------- readings


@rule("D5")
def integers_are_milliseconds(broker: BrokerUnderTest) -> None:
    partition = broker.partitions[0]
    events = old, new = spread(broker, 2, partition)
    assert passing(broker, events, sql_filter(f"d.event-streams-timestamp > {old.time_ms}")) == [new.body]
    everything = passing(broker, events, sql_filter("d.event-streams-timestamp > 1585672841"))
    assert everything == [old.body, new.body], "as printed, the example means since January 1970"


@rule("D6")
def both_spellings_of_a_field_are_one(broker: BrokerUnderTest) -> None:
    partition = broker.partitions[0]
    events = one, two, three = broker.stored(marks(3), partition)
    for name in (f"d.{OFFSET}", f"d.[{OFFSET}]", f"delivery_annotations.{OFFSET}"):
        assert passing(broker, events, sql_filter(f"{name} > '{one.offset}'")) == bodies([two, three])
        assert passing(broker, events, sql_filter(f"{name} >= '{two.offset}'")) == bodies([two, three])
        assert passing(broker, events, sql_filter(f"'{two.offset}' < {name} AND TRUE")) == [three.body]


@rule("D10")
def the_sql_filter_has_two_descriptors(broker: BrokerUnderTest) -> None:
    partition = broker.partitions[0]
    events = one, two = broker.stored(marks(2), partition)
    text = f"d.{OFFSET} > '{one.offset}'"
    for descriptor in (ulong(0x201), ulong(0x120), symbol("amqp:event-streams-sql-filter"), symbol("amqp:sql-filter")):
        assert passing(broker, events, Described(descriptor, text)) == [two.body], str(descriptor)
    with broker.visit() as connection:
        for wrong in ("", f"d.{OFFSET} >", f"d.{OFFSET} > '@newest'", "d.colour = 'red'"):
            condition = broker.refused(lambda wrong=wrong: broker.receiver(connection, sql_filter(wrong)))
            assert condition == "amqp:invalid-field", f"{wrong!r}: {condition}"
        broker.sender(connection, partition).send(Message(body="the session lives"))
