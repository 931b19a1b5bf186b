"""Receivers of one partition and consumer group: who may read, as the Event Hubs service says it.

| there is                     | a receiver with epoch e comes              | one without comes        |
| ---------------------------- | ------------------------------------------ | ------------------------ |
| nobody, or some without      | it is let in, they are disconnected        | it is let in             |
| one with epoch up to e       | it is let in, the other is disconnected    | it is refused            |
| one with a greater epoch     | it is refused                              | it is refused            |
"""

from __future__ import annotations

import asyncio

from holdfast.amqp.errors import Error
from node.listener.attach.link_plan import LinkPlan
from node.listener.broker_interface import Broker
from node.listener.errors import Refused
from node.listener.event_hubs import hub_errors
from node.partition.api import Failed
from node.partition.consumer_groups.group_queries import GroupList, GroupRow, ListGroups
from node.partition.consumer_groups.group_state import Claim

NAMELESS = "nil"
"""The service's word for a receiver without a name."""

RETRY_DELAY_S = 0.05
"""Delay between questions to a leader that could not answer."""


async def check_guest(plan: LinkPlan) -> None:
    """Raise Refused for a receiver without an epoch where one with an epoch reads. The caller's timeout ends it."""
    assert plan.hub is not None
    assert plan.partition is not None
    while True:
        answer = await plan.broker.handle(plan.log, plan.partition).ask(ListGroups(plan.hub.group))
        if isinstance(answer, GroupList):
            row = next(iter(answer.groups), None)
            if row is not None and row.active:
                raise Refused(hub_errors.guest_refused(row.epoch))
            return
        if isinstance(answer, Failed) and not answer.retriable:
            raise Refused(hub_errors.hub_not_found(plan.log))
        await asyncio.sleep(RETRY_DELAY_S)


async def epoch_refusal(broker: Broker, log: str, partition: str, wish: Claim) -> Error:
    """The error for a receiver whose epoch is too low."""
    other, epoch = await _holder(broker, log, partition, wish.key)
    return hub_errors.epoch_refused(wish.member, wish.epoch or 0, other, epoch)


async def disconnection(plan: LinkPlan) -> Error:
    """The error for a receiver that another one has taken the partition from."""
    assert plan.hub is not None
    assert plan.partition is not None
    other, epoch = await _holder(plan.broker, plan.log, plan.partition, plan.hub.group)
    return hub_errors.receiver_disconnected(plan.hub.receiver or NAMELESS, plan.hub.epoch or 0, other, epoch)


async def _holder(broker: Broker, log: str, partition: str, group: str) -> tuple[str, int]:
    """The name and epoch of whoever has the partition, as far as a leader can tell now."""
    try:
        answer = await broker.handle(log, partition).ask(ListGroups(group))
    except KeyError:  # the log is gone
        return NAMELESS, 0
    rows: list[GroupRow] = list(answer.groups) if isinstance(answer, GroupList) else []
    return (rows[0].member or NAMELESS, rows[0].epoch) if rows else (NAMELESS, 0)
