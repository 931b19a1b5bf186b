"""From an attach in a group's name, or of a durable terminus, to the claims it needs: before it is answered.

Rules never broken: a refusal is the word of the replicated state, never of this node's memory; a claim that was made
for an attach which then fails for another reason is let go of at once.

A link that attaches again under its own name may come sooner than the end of its former self is known; it is tried
again for a moment, since its claim is about to be free for it and for nobody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Protocol

from holdfast.amqp import Link
from node.listener import errors
from node.listener.broker import Broker
from node.listener.errors import Refused
from node.listener.holding import Errands, Holding
from node.listener.routing import Plan
from node.partition.api import Failed
from node.partition.group_words import GroupList, ListGroups
from node.partition.ownership import Claim, Denied, End, Owned

RETRY_DELAY_S = 0.05
"""Between questions to a leader that could not answer."""

CONTINUE_WAIT_S = 2.0
"""A link whose former self still counts as alive waits so long for the news of its death."""


class Claimer(Errands, Protocol):
    """A connection on which claims are made."""

    broker: Broker

    @property
    def container(self) -> str:
        """The peer's name for itself; "": it has none."""
        ...


async def hold_all(host: Claimer, link: Link, plan: Plan, partitions: Iterable[str]) -> dict[str, Holding]:
    """The claims that the plan needs, by partition. Raises Refused. The caller's timeout ends it."""
    assert plan.membership is not None
    wish = plan.membership.claim(host.container, link.name)
    held: dict[str, Holding] = {}
    try:
        for partition in partitions:
            owned = await claim(host.broker, plan.log, partition, wish)
            held[partition] = Holding(
                host.broker, host, plan.log, partition, wish.key, owned, durable=plan.membership.durable
            )
    except BaseException:
        let_go(held)
        raise
    return held


def let_go(held: Mapping[str, Holding]) -> None:
    """The attach comes to nothing."""
    for holding in held.values():
        holding.end(End.RELEASED)


async def claim(broker: Broker, log: str, partition: str, wish: Claim) -> Owned:
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + CONTINUE_WAIT_S
    while True:
        answer = await broker.handle(log, partition).ask_group(wish)
        if isinstance(answer, Owned):
            return answer
        if isinstance(answer, Failed) and not answer.retriable:
            raise Refused(errors.group_failed(answer, log))
        if isinstance(answer, Denied):
            mine = answer.code == "owned" and await _is_mine(broker, log, partition, wish)
            if not mine or loop.time() > deadline_s:
                raise Refused(errors.claim_denied(answer, log, partition, wish.key))
        await asyncio.sleep(RETRY_DELAY_S)  # a new leader, or a busy one, or a former self: the outer timeout ends this


async def _is_mine(broker: Broker, log: str, partition: str, wish: Claim) -> bool:
    """The owner that stands in the way is this very link, as it was before."""
    found = await broker.handle(log, partition).ask_group(ListGroups(wish.key))
    return isinstance(found, GroupList) and any(row.active and row.identity == wish.identity for row in found.groups)
