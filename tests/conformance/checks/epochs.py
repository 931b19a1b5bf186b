"""Epochs: who may take a partition from whom."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from proton import Described, int32, symbol, uint, ulong
from proton.utils import LinkDetached

from tests.conformance.broker import EPOCH, GROUP, PARTITION, BrokerUnderTest, marks, properties_of
from tests.conformance.checks.groups import group_name
from tests.conformance.suite import NotApplicable, rule
from tests.integration.workloads.raw import ATTACH, Raw, frame


def epoch_of(receiver: Any) -> int:
    epoch = properties_of(receiver.link).get(EPOCH)
    assert isinstance(epoch, int), f"the answer's epoch is {epoch!r}"
    return int(epoch)


@contextmanager
def two_members(broker: BrokerUnderTest) -> Iterator[tuple[Any, Any]]:
    with broker.visit(container_id=group_name()) as one, broker.visit(container_id=group_name()) as two:
        yield one, two


@rule("ES-38")
def epochs_start_at_zero_and_are_told(broker: BrokerUnderTest) -> None:
    first, second = broker.partitions[:2]
    group = group_name()
    with two_members(broker) as (one, two):
        assert epoch_of(broker.receiver(one, partition=first, group=group)) == 0
        assert epoch_of(broker.receiver(two, partition=second, group=group, epoch=5)) == 5, "each partition has its own"
        assert epoch_of(broker.receiver(two, partition=first, group=group, epoch=3, name="third")) == 3


@rule("ES-39")
def only_a_greater_epoch_is_let_in(broker: BrokerUnderTest) -> None:
    partition, group = broker.partitions[0], group_name()
    with two_members(broker) as (one, two):
        owner = broker.receiver(one, partition=partition, group=group, epoch=5)
        for epoch in (None, 0, 4, 5):
            broker.refused(lambda e=epoch: broker.receiver(two, partition=partition, group=group, epoch=e))
        [body] = marks(1)
        broker.publish([body], partition)
        assert broker.until(owner, body), "the owner was disturbed by attaches that were refused"


@rule("ES-40")
def a_greater_epoch_takes_over(broker: BrokerUnderTest) -> None:
    partition, group = broker.partitions[0], group_name()
    with two_members(broker) as (one, two):
        old = broker.receiver(one, partition=partition, group=group, epoch=5)
        new = broker.receiver(two, partition=partition, group=group, epoch=9)
        assert epoch_of(new) == 9
        broker.closed(one, old.link)
        [body] = marks(1)
        broker.publish([body], partition)
        assert broker.until(new, body)
        for epoch in (6, 9):
            more = {"partition": partition, "group": group, "epoch": epoch, "name": f"back-{epoch}"}
            broker.refused(lambda m=more: broker.receiver(one, **m))
        assert epoch_of(broker.receiver(one, partition=partition, group=group, epoch=10, name="again")) == 10


@rule("ES-41")
def the_counter_may_return_to_zero(broker: BrokerUnderTest) -> None:
    """Both are allowed; the next receiver must be let in, with whatever it is told."""
    partition, group = broker.partitions[0], group_name()
    with two_members(broker) as (one, two):
        broker.receiver(one, partition=partition, group=group, epoch=5).close()
        assert epoch_of(broker.receiver(two, partition=partition, group=group)) in (0, 5)


# ---------------------------------------------------------------- readings


@rule("D2")
def epochs_are_read_as_any_integer_and_told_as_long(broker: BrokerUnderTest) -> None:
    partition, group = broker.partitions[0], group_name()
    for epoch in (1, ulong(2), uint(3), int32(4)):
        with broker.visit(container_id=group_name()) as connection:
            told = properties_of(broker.receiver(connection, partition=partition, group=group, epoch=epoch).link)[EPOCH]
            assert type(told) is int, f"told as {type(told).__name__}"  # proton's int is AMQP's long
            assert told == int(epoch)
    with broker.visit(container_id=group_name()) as connection:
        for wrong in (-1, "5", 1.5, True):
            more = {"partition": partition, "group": group, "epoch": wrong}
            condition = broker.refused(lambda m=more: broker.receiver(connection, **m))
            assert condition == "amqp:invalid-field", f"{wrong!r}: {condition}"


@rule("D7")
def an_equal_epoch_is_refused(broker: BrokerUnderTest) -> None:
    partition, group = broker.partitions[0], group_name()
    with two_members(broker) as (one, two):
        broker.receiver(one, partition=partition, group=group, epoch=5)
        broker.refused(lambda: broker.receiver(two, partition=partition, group=group, epoch=5))


@rule("D8")
def conditions_of_losing(broker: BrokerUnderTest) -> None:
    partition, group = broker.partitions[0], group_name()
    with two_members(broker) as (one, two):
        old = broker.receiver(one, partition=partition, group=group, epoch=5)
        refusal = broker.refused(lambda: broker.receiver(two, partition=partition, group=group, epoch=4))
        assert refusal == "amqp:resource-locked"
        broker.receiver(two, partition=partition, group=group, epoch=6)
        assert broker.closed(one, old.link) == "amqp:link:stolen"
        assert "6" in (old.link.remote_condition.description or ""), "the reason does not name the new epoch"


@rule("D11")
def who_claims_without_an_epoch_is_told_zero(broker: BrokerUnderTest) -> None:
    with broker.visit(container_id=group_name()) as connection:
        assert epoch_of(broker.receiver(connection, partition=broker.partitions[0], group=group_name())) == 0


@rule("D12")
def a_broken_connection_keeps_its_epoch(broker: BrokerUnderTest) -> None:
    """Raw frames, since no library breaks its own connection."""
    partition, group = broker.partitions[0], group_name()
    with broker.visit(container_id=group_name()) as connection:
        broker.receiver(connection, partition=partition, group=group_name())  # there are groups at all
    owner = Raw(urlsplit(broker.url).netloc.rpartition("@")[2])
    owner.begun()
    properties = {symbol(PARTITION): symbol(partition), symbol(GROUP): group, symbol(EPOCH): 5}
    source = Described(ulong(0x28), [broker.log])
    target, nothing = Described(ulong(0x29), []), [None] * 6
    owner.send(frame(ATTACH, ["raw", uint(0), True, None, None, source, target, *nothing, properties]))
    assert owner.read_until(EPOCH.encode()), "the attach was not answered with an epoch"
    owner.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, no goodbye
    owner.close()
    with broker.visit(container_id=group_name()) as connection:
        for attempt in range(3):
            more = {"partition": partition, "group": group, "epoch": 4, "name": f"lower-{attempt}"}
            broker.refused(lambda m=more: broker.receiver(connection, **m))
            time.sleep(0.05)  # the node may notice the broken connection meanwhile: that must not help
        assert epoch_of(broker.receiver(connection, partition=partition, group=group, epoch=6)) == 6


__all__ = ["LinkDetached", "NotApplicable"]
