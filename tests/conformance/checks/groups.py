"""Consumer groups: who gets which partition, and what happens when there are more members than partitions."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from proton import Endpoint, Timeout, symbol
from proton.utils import LinkDetached

from tests.conformance.broker import GROUP, PARTITION, BrokerUnderTest, bodies, marks, properties_of
from tests.conformance.suite import NotApplicable, rule

FORCED = "amqp:link:detach-forced"
HELD_S = 1.0
"""An attach that was not answered for so long is held; what it waits for is then made to happen, and answers it."""

LOOK_S = 0.1
"""Two connections are looked at in turn."""


def group_name() -> str:
    return f"group-{marks(1)[0]}"


def link_by_hand(connection: Any, broker: BrokerUnderTest, group: str) -> Any:
    """An attach for a group and no partition, that is not waited for."""
    session = connection.conn.session()
    session.open()
    link = session.receiver(f"by-hand-{marks(1)[0]}")
    link.source.address = broker.log
    link.properties = {symbol(GROUP): group}
    link.open()
    return link


def comes(connection: Any, condition: Callable[[], Any], within_s: float) -> bool:
    """Whether something comes over a connection in time."""
    with contextlib.suppress(Timeout, LinkDetached):  # a handler tells of other links, too
        connection.wait(lambda: bool(condition()), timeout=within_s)
    return bool(condition())


def answered(connection: Any, link: Any, within_s: float) -> bool:
    """Whether the broker attached or refused the link in time."""
    return comes(connection, lambda: link.state & (Endpoint.REMOTE_ACTIVE | Endpoint.REMOTE_CLOSED), within_s)


def closed_of(links: list[Any]) -> list[Any]:
    return [link for link in links if link.state & Endpoint.REMOTE_CLOSED]


@rule("ES-29")
def a_receiver_may_name_a_group(broker: BrokerUnderTest) -> None:
    partition = broker.partitions[0]
    with broker.visit(container_id=group_name()) as connection:
        member = broker.receiver(connection, partition=partition, group=group_name())
        assert properties_of(member.link).get(PARTITION) == partition
        said = marks(3)
        broker.publish(said, partition)
        assert bodies(broker.until(member, said[-1]))[-3:] == said


@rule("ES-30")
def a_group_is_made_or_missing(broker: BrokerUnderTest) -> None:
    """Either is allowed; a refusal must be a proper one."""
    with broker.visit(container_id=group_name()) as connection:
        try:
            broker.receiver(connection, partition=broker.partitions[0], group=group_name())
        except LinkDetached as refusal:
            assert refusal.condition, "refused without an error"


@rule("ES-31")
def nobody_is_put_into_a_group(broker: BrokerUnderTest) -> None:
    """Receivers that name none do not exclude each other, and are told of none."""
    partition = broker.partitions[0]
    with broker.visit() as connection, broker.visit() as other:
        first = broker.receiver(connection, partition=partition)
        second = broker.receiver(other, partition=partition)
        assert GROUP not in properties_of(first.link)
        [body] = marks(1)
        broker.publish([body], partition)
        assert bodies(broker.take(first, 1)) == bodies(broker.take(second, 1)) == [body]


@rule("ES-32")
def links_of_a_group_are_bound(broker: BrokerUnderTest) -> None:
    with broker.visit(container_id=group_name()) as connection:
        bound = broker.receiver(connection, partition=broker.partitions[1], group=group_name(), name="named")
        assert properties_of(bound.link).get(PARTITION) == broker.partitions[1], "the answer names no partition"
        try:
            chosen = broker.receiver(connection, group=group_name(), name="chosen")
        except LinkDetached:
            return  # it need not choose, see ES-34
        assert properties_of(chosen.link).get(PARTITION) in broker.partitions, "attached, but to no partition"


@rule("ES-33")
def one_active_link_for_partition_and_group(broker: BrokerUnderTest) -> None:
    partition, group = broker.partitions[0], group_name()
    with broker.visit(container_id=group_name()) as connection, broker.visit(container_id=group_name()) as other:
        first = broker.receiver(connection, partition=partition, group=group)
        try:
            broker.receiver(other, partition=partition, group=group)
        except LinkDetached as refusal:
            assert refusal.condition, "refused without an error"
            [body] = marks(1)
            broker.publish([body], partition)
            assert broker.until(first, body), "the first link works no more"
            return
        broker.closed(connection, first.link)
        # Another group, or another partition, is nobody's rival.
        broker.receiver(other, partition=broker.partitions[1], group=group, name="elsewhere")
        broker.receiver(other, partition=partition, group=group_name(), name="another")


@rule("ES-34")
def the_node_may_choose_a_partition(broker: BrokerUnderTest) -> None:
    group = group_name()
    with broker.visit(container_id=group_name()) as connection, broker.visit(container_id=group_name()) as other:
        try:
            first = broker.receiver(connection, group=group)
        except LinkDetached:
            raise NotApplicable("4.5.1: the node may choose a partition; this one leaves it to clients") from None
        second = broker.receiver(other, group=group)
        chosen = {properties_of(link).get(PARTITION) for link in (first.link, second.link)}
        assert chosen <= set(broker.partitions), f"attached to {chosen}"
        assert len(chosen) == 2, "two members were given the same partition"


@rule("ES-35")
def more_members_than_partitions(broker: BrokerUnderTest) -> None:
    group = group_name()
    with contextlib.ExitStack() as members:
        links = []
        for _ in broker.partitions:
            connection = members.enter_context(broker.visit(container_id=group_name()))
            try:
                links.append((connection, broker.receiver(connection, group=group)))
            except LinkDetached:
                raise NotApplicable("4.5.1: it is about nodes that choose the partition; this one does not") from None
        taken = {properties_of(receiver.link).get(PARTITION) for _, receiver in links}
        assert taken == set(broker.partitions), f"{len(links)} members have {taken}"
        connection = members.enter_context(broker.visit(container_id=group_name()))
        extra = link_by_hand(connection, broker, group)
        if answered(connection, extra, HELD_S):
            assert broker.closed(connection, extra) == FORCED
            return
        connection_of_first, first = links[0]
        freed = properties_of(first.link)[PARTITION]
        first.close()
        connection_of_first.close()
        assert answered(connection, extra, broker.timeout_s), "a partition is free, but the held attach is not answered"
        assert properties_of(extra).get(PARTITION) == freed


def split_anew(broker: BrokerUnderTest) -> tuple[str | None, bool]:
    """One member has all partitions when another comes: the condition with which a link of the first is closed, and
    whether the second then gets the partition."""
    group = group_name()
    with broker.visit(container_id=group_name()) as one, broker.visit(container_id=group_name()) as two:
        try:
            held = [broker.receiver(one, group=group, name=f"link-{partition}") for partition in broker.partitions]
        except LinkDetached:
            raise NotApplicable("4, 4.5.1: a node that lets clients choose has no bindings to move") from None
        extra = link_by_hand(two, broker, group)
        links = [receiver.link for receiver in held]
        deadline = time.monotonic() + broker.timeout_s
        while not comes(one, lambda: closed_of(links), LOOK_S) and time.monotonic() < deadline:
            if answered(two, extra, LOOK_S) and closed_of([extra]):
                raise NotApplicable("4.5.1: the node may split a group anew; this one refuses members that come late")
        gone = closed_of(links)
        assert gone, "a member came, and no partition was freed for it"
        condition = gone[0].remote_condition
        for link in gone:
            link.close()
        comes(one, lambda: False, LOOK_S)  # what was written leaves
        served = answered(two, extra, broker.timeout_s) and not closed_of([extra])
        return (None if condition is None else str(condition.name)), served


@rule("ES-18")
def bindings_are_moved_by_closing_gracefully(broker: BrokerUnderTest) -> None:
    condition, served = split_anew(broker)
    assert condition is None, f"the link was closed with {condition}, not gracefully"
    assert served, "who the link was closed for did not get its partition"


@rule("ES-36")
def a_group_is_split_anew_by_closing_gracefully(broker: BrokerUnderTest) -> None:
    condition, served = split_anew(broker)
    assert condition is None, f"the link was closed with {condition}, not gracefully"
    assert served, "the member that came got no partition"


@rule("ES-37")
def links_of_a_group_may_be_agnostic(broker: BrokerUnderTest) -> None:
    with broker.visit(container_id=group_name()) as connection:
        try:
            link = broker.receiver(connection, group=group_name()).link
        except LinkDetached:
            raise NotApplicable("4.5.1: a node may keep links of groups agnostic; this one wants a partition") from None
        assert properties_of(link).get(PARTITION) is not None, "agnostic: the suite has no check of that choice"
        raise NotApplicable("4.5.1: a node may keep links of groups agnostic; by 4.5 and 4.6.2 this one binds them")


# ---------------------------------------------------------------- readings


@rule("D3")
def links_of_a_group_are_always_bound(broker: BrokerUnderTest) -> None:
    with broker.visit(container_id=group_name()) as connection:
        link = broker.receiver(connection, group=group_name()).link
        assert properties_of(link).get(PARTITION) in broker.partitions, "attached, but to no partition"
