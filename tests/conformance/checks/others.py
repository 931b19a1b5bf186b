"""Readings that concern more than one part."""

from __future__ import annotations

from proton import Message, symbol
from proton.utils import LinkDetached

from tests.conformance.broker import PARTITION, SOURCE_PARTITION, TARGET_PARTITION, BrokerUnderTest, Properties, marks
from tests.conformance.checks import routing
from tests.conformance.suite import rule


@rule("D1")
def the_annotation_of_changes_is_called_associated(broker: BrokerUnderTest) -> None:
    routing.agnostic_links_are_told_of_changes(broker)


@rule("D4")
def the_source_partition_is_on_every_delivery(broker: BrokerUnderTest) -> None:
    for partition in broker.partitions:
        for event in broker.stored(marks(2), partition):
            assert event.note(SOURCE_PARTITION) == partition


@rule("D9")
def conditions_of_partitions(broker: BrokerUnderTest) -> None:
    here, there = broker.partitions[:2]
    with broker.visit() as connection:
        assert broker.refused(lambda: broker.sender(connection, "nowhere")) == "amqp:not-found"
        assert broker.refused(lambda: broker.receiver(connection, partition="nowhere")) == "amqp:not-found"
        assert broker.refused(lambda: connection.create_sender("no such log")) == "amqp:not-found"
        sender = broker.sender(connection, here)
        conditions = {}
        for target in (there, "nowhere"):
            delivery = sender.link.send(Message(body="x", instructions={symbol(TARGET_PARTITION): symbol(target)}))
            connection.wait(lambda d=delivery: d.settled, timeout=broker.timeout_s, msg="the outcome")
            conditions[target] = str(delivery.remote.condition.name)
        assert conditions[there] == "amqp:precondition-failed"
        assert conditions["nowhere"] in ("amqp:not-found", "amqp:precondition-failed")
        wrong = Properties({PARTITION: 5})
        try:
            connection.create_sender(broker.log, name="number", options=[wrong])
        except LinkDetached as refusal:
            assert refusal.condition == "amqp:invalid-field"
        else:
            raise AssertionError("a partition that is a number was taken")
