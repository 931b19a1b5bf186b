"""The claims that an attach needs: in a group's name, or for a durable terminus, made before the attach is answered.

Rules never broken: a refusal is the word of the replicated state, never of this node's memory; a claim that was made
for an attach which then fails for another reason is let go of at once.

A link that attaches again under its own name may come before its former end is known; it tries again for a moment,
since its claim is about to be free for it alone. So does a claim on a partition whose position is about to be moved by
a transaction that is being decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from msgspec import structs

from holdfast.amqp import Link
from node.listener import errors
from node.listener.attach.link_plan import LinkPlan
from node.listener.broker_interface import Broker
from node.listener.config import ListenerConfig
from node.listener.errors import Refused
from node.listener.event_hubs.epochs import epoch_refusal
from node.listener.outgoing.consumer_groups.owned_partition import BackgroundWork, OwnedPartition
from node.partition.api import Failed
from node.partition.consumer_groups.group_queries import Assign, Assigned, GroupList, ListGroups
from node.partition.consumer_groups.group_state import (
    Claim,
    Denied,
    End,
    Owned,
)

RETRY_DELAY_S = 0.05
"""Delay between questions to a leader that could not answer."""

LEADERLESS_DELAY_S = 0.2
"""Delay of each of many members whose adviser is being elected."""

CONTINUE_WAIT_S = 2.0
"""Time that a link waits for the death of its former self to become known."""


class Claimer(BackgroundWork, Protocol):
    """A connection on which claims are made."""

    broker: Broker
    config: ListenerConfig

    @property
    def container(self) -> str:
        """The peer's name for itself; "": it has none."""
        ...


async def claim_all(host: Claimer, link: Link, plan: LinkPlan, partitions: Iterable[str]) -> dict[str, OwnedPartition]:
    """Make the claims that the plan needs, by partition. Raises Refused. The caller's timeout ends it."""
    assert plan.membership is not None
    wish = plan.membership.claim(host.container, link.name)
    held: dict[str, OwnedPartition] = {}
    try:
        for partition in partitions:
            owned = await claim(plan.broker, plan.log, partition, wish)
            held[partition] = OwnedPartition(
                plan.broker, host, plan.log, partition, wish.key, owned, durable=plan.membership.durable
            )
    except BaseException:
        let_go(held)
        raise
    return held


def let_go(held: Mapping[str, OwnedPartition]) -> None:
    """Release the claims of an attach that failed."""
    for owned in held.values():
        owned.end(End.RELEASED)


async def assigned(host: Claimer, link: Link, plan: LinkPlan) -> tuple[LinkPlan, dict[str, OwnedPartition]]:
    """Wait for a partition that the nodes assign. Returns the plan with it, and the claim on it; waits as long as the
    configuration allows. Raises Refused."""
    membership, broker, config = plan.membership, plan.broker, host.config
    assert membership is not None
    assert membership.group is not None
    wish = membership.claim(host.container, link.name)
    question = Assign(plan.log, wish.key, wish.member, wish.identity, broker.node_id)
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + config.group_hold_s
    try:
        while link.alive:
            answer = await _advice(broker, question)
            if isinstance(answer, Failed) and not answer.retriable:
                raise Refused(errors.group_failed(answer, plan.log))
            if isinstance(answer, Assigned) and answer.partition is not None:
                owned = await broker.handle(plan.log, answer.partition).ask(wish)
                if isinstance(owned, Owned):
                    held = OwnedPartition(
                        broker, host, plan.log, answer.partition, wish.key, owned, durable=membership.durable
                    )
                    return replace(plan, partition=answer.partition, assigned=True), {answer.partition: held}
            if isinstance(answer, Assigned) and config.group_full == "refuse" and not answer.entitled:
                raise Refused(errors.group_full(plan.log, wish.key, None))
            if loop.time() > deadline_s:
                raise Refused(errors.group_full(plan.log, wish.key, config.group_hold_s))
            delay_s = RETRY_DELAY_S if isinstance(answer, Assigned) else LEADERLESS_DELAY_S
            await asyncio.sleep(delay_s * host.attaches.pace)
        raise Refused(errors.group_full(plan.log, wish.key, None))  # nobody hears it: the peer has left
    finally:
        host.errand(_leave(broker, structs.replace(question, leaving=True)))


async def _advice(broker: Broker, question: Assign) -> Any:
    """Ask the leader of the log's first partition, which advises the members."""
    view = broker.describe(question.log)
    if view is None:
        raise Refused(errors.log_deleted(question.log))
    return await broker.handle(question.log, view.partitions[0]).ask(question)


async def _leave(broker: Broker, question: Assign) -> None:
    """Tell the adviser that the member stops waiting; without that it forgets the member in a few seconds."""
    try:
        await _advice(broker, question)
    except (Refused, KeyError):
        return  # the log is gone, and the wait for it


async def claim(broker: Broker, log: str, partition: str, wish: Claim) -> Owned:
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + CONTINUE_WAIT_S
    while True:
        answer = await broker.handle(log, partition).ask(wish)
        if isinstance(answer, Owned):
            return answer
        if isinstance(answer, Failed) and not answer.retriable:
            raise Refused(errors.group_failed(answer, log))
        if isinstance(answer, Denied):
            mine = answer.code == "owned" and await _is_mine(broker, log, partition, wish)
            if not (mine or answer.code == "deciding") or loop.time() > deadline_s:
                if wish.equal_takes:
                    raise Refused(await epoch_refusal(broker, log, partition, wish))
                raise Refused(errors.claim_denied(answer, log, partition, wish.key))
        await asyncio.sleep(RETRY_DELAY_S)  # a new leader, or a busy one, or a former self: the outer timeout ends this


async def _is_mine(broker: Broker, log: str, partition: str, wish: Claim) -> bool:
    """Tell whether the present owner is this very link's former self."""
    found = await broker.handle(log, partition).ask(ListGroups(wish.key))
    return isinstance(found, GroupList) and any(row.active and row.identity == wish.identity for row in found.groups)
