"""Answering an attach: at once, after the leader is known, or with a refusal.

Problem: an attach may arrive in the middle of an election, and a receiver that starts at `@latest` must get
everything that is sent after it was told that it is attached, from partitions that other nodes lead as well.
Rules never broken: every attach is answered within `leader_wait_s` (and the time of one question to the leaders), once
those that came before it on its connection are (`attach_queue.py`);
the answer "attached" is given only when the link can be served and its starting position is fixed; to an idempotent
producer, when what it is granted is replicated.
Rejected: attaching at once and sorting things out afterwards. The client would start its clock, or its producers, too
early.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from holdfast import protocol
from holdfast.amqp import Credit, Link, ReceiverLink, SenderLink
from holdfast.amqp.errors import NOT_FOUND, RESOURCE_DELETED
from node.client_transactions.errors import TransactionFailed
from node.client_transactions.transactional_producer import TransactionalProducer
from node.listener import errors
from node.listener.amqp_transactions.control_link import CoordinatorLink, error_of
from node.listener.attach import link_plan, permissions
from node.listener.attach.cut_off_links import CutOffLinks
from node.listener.attach.link_plan import Kind, LinkPlan
from node.listener.attach.redirect import redirect_away
from node.listener.endpoint import Endpoint, EndpointHost
from node.listener.errors import Refused
from node.listener.event_hubs import hub_errors, hub_links
from node.listener.event_hubs.epochs import check_guest
from node.listener.event_hubs.hub_plan import hub_address_of
from node.listener.event_hubs.token_link import TokenLink
from node.listener.incoming.anonymous_link import AnonymousLink
from node.listener.incoming.batch_link import IdempotentBatchLink, IncomingBatchLink, asks_for_batches
from node.listener.incoming.idempotent_producers.idempotent_link import IdempotentLink
from node.listener.incoming.message_link import IncomingMessageLink
from node.listener.log_info import Info
from node.listener.management import Management, Reply
from node.listener.node_list import NodeList
from node.listener.outgoing.consumer_groups.durable_start import fix_positions
from node.listener.outgoing.consumer_groups.group_link import GroupLink
from node.listener.outgoing.consumer_groups.owned_partition import OwnedPartition
from node.listener.outgoing.consumer_groups.ownership_claims import (
    Claimer,
    assigned,
    claim_all,
    let_go,
)
from node.listener.outgoing.consumer_groups.unsubscribe import Unsubscribing, find_source
from node.listener.outgoing.outgoing_link import OutgoingLink
from node.partition.api import After, Earliest, Latest, ProducerOpened, Start

UNSURE = frozenset({NOT_FOUND, RESOURCE_DELETED, protocol.ARGUMENT_OUT_OF_RANGE})
"""Refusals that this node may believe only because it has not heard the latest."""


class Attacher(EndpointHost, Claimer, Protocol):
    """A connection that links can be attached to."""

    stranded: CutOffLinks

    async def until(self, condition: Callable[[], bool], wait_s: float) -> bool:
        """Wait for a change of the cluster that makes the condition true; False when the time was up first."""
        ...

    def serve(self, link: Link, endpoint: Endpoint) -> None:
        """Accept the link and hand its events to the endpoint from now on."""
        ...


def on_request(host: Attacher, link: Link) -> None:
    """Answers an attach now if that is possible, else soon."""
    try:
        _answer(host, link)
    except Refused as refusal:
        if refusal.error.condition in UNSURE:
            host.spawn(_look_again(host, link))
        else:
            link.refuse(refusal.error)


def _answer(host: Attacher, link: Link) -> None:
    hub = hub_address_of(link, speaks_event_hubs=host.speaks_event_hubs, knows_streams=host.knows_streams)
    if hub is not None:
        host.redirects = False  # its SDK knows one address
    first = permissions.first_need(link, hub)
    if first is not None and not host.visitor.may(first):
        raise Refused(host.visitor.refusal(first) if hub is None else hub_errors.unauthorized_for(first, hub.text))
    plan = link_plan.plan(link, host.broker, hub, may_browse=not host.knows_streams)
    for need in permissions.needs(plan):
        if not host.visitor.may(need):
            raise Refused(host.visitor.refusal(need) if hub is None else hub_errors.unauthorized_for(need, hub.text))
    if plan.kind is Kind.COORDINATOR:
        host.redirects = False  # a transaction and all its links are on one connection
        host.attaches.add(link, lambda: _answer_coordinator(host, link, plan), host.errand)
    elif plan.kind is Kind.UNSUBSCRIBE:
        host.attaches.add(link, lambda: _answer_unsubscribe(host, link, plan), host.errand)
    elif plan.kind not in (Kind.INGEST, Kind.EGRESS):
        host.serve(link, _service(host, link, plan))
    elif plan.producer is None and plan.membership is None and not plan.is_guest and _answer_now(host, link, plan):
        host.serve(link, _events(host, link, plan, {}))
    elif plan.needs_partition:
        host.attaches.hold(lambda: _answer_later(host, link, plan), host.errand)
    else:  # a claim that was asked for must be let go, even if the peer has left
        start = host.spawn if plan.membership is None else host.errand
        host.attaches.add(link, lambda: _answer_later(host, link, plan), start)


async def _answer_coordinator(host: Attacher, link: Link, plan: LinkPlan) -> None:
    """Answer the attach once the transactional id is held; nobody else has it then."""
    manager, terms = plan.broker.transactions, plan.transactions
    assert isinstance(link, ReceiverLink)
    assert manager is not None
    assert terms is not None
    held: list[CoordinatorLink] = []

    def fenced(why: str) -> None:
        for endpoint in held:
            endpoint.fenced(why)

    producer: TransactionalProducer | None = None
    try:
        with host.stranded.attaching(plan):
            if terms.member is not None:
                producer = await manager.join(terms.member)
            elif terms.transactional_id is not None:
                producer = await manager.hold(
                    terms.transactional_id, terms.timeout_ms, fenced, holder=terms.holder, succeeds=terms.succeeds
                )
        if link.alive:
            endpoint = CoordinatorLink(host, link, plan, manager, terms, producer)
            held.append(endpoint)
            host.declares_transactions = True
            host.serve(link, endpoint)
        elif producer is not None:
            manager.let_go(producer)
    except TransactionFailed as failed:
        link.refuse(error_of(failed))
    finally:
        host.flush_soon()


async def _look_again(host: Attacher, link: Link) -> None:
    """Answer the attach again after catching up: another node may have made the log or partition a moment ago."""
    confirmed = await host.broker.current()
    try:
        if link.alive and confirmed:
            _answer(host, link)
        elif link.alive:
            link.refuse(errors.not_confirmed())
    except Refused as refusal:
        link.refuse(refusal.error)
    finally:
        host.flush_soon()


def _service(host: Attacher, link: Link, plan: LinkPlan) -> Endpoint:
    if plan.kind is Kind.MANAGEMENT:
        assert isinstance(link, ReceiverLink)
        return Management(host, link, plan)
    if plan.kind is Kind.TOKENS:
        assert isinstance(link, ReceiverLink)
        host.speaks_event_hubs, host.redirects = not host.knows_streams, False
        return TokenLink(host, link, plan)
    if plan.kind is Kind.ANONYMOUS:
        assert isinstance(link, ReceiverLink)
        return AnonymousLink(host, link, plan)
    assert isinstance(link, SenderLink)
    if plan.kind is Kind.NODES:
        return NodeList(host, link, plan)
    return Info(host, link, plan) if plan.kind is Kind.INFO else Reply(host, link, plan)


async def _answer_unsubscribe(host: Attacher, link: Link, plan: LinkPlan) -> None:
    assert isinstance(link, SenderLink)
    try:
        found = await find_source(host, link)
        if link.alive:
            host.serve(link, Unsubscribing(host, link, plan, found))
    except Refused as refusal:
        link.refuse(refusal.error)
    except TimeoutError:
        link.refuse(errors.search_too_long(host.config.leader_wait_s))
    finally:
        host.flush_soon()


def _events(
    host: Attacher,
    link: Link,
    plan: LinkPlan,
    starts: dict[str, Start],
    granted: ProducerOpened | None = None,
    held: dict[str, OwnedPartition] | None = None,
) -> Endpoint:
    if plan.hub is not None:
        assert isinstance(link, ReceiverLink | SenderLink)
        return hub_links.endpoint_of(host, link, plan, starts, granted, held)
    if isinstance(link, ReceiverLink):
        batches = plan.bound and asks_for_batches(link)
        if granted is None:
            return (IncomingBatchLink if batches else IncomingMessageLink)(host, link, plan)
        return (IdempotentBatchLink if batches else IdempotentLink)(host, link, plan, granted)
    assert isinstance(link, SenderLink)
    if held is not None:
        return GroupLink(host, link, plan, starts, held)
    return OutgoingLink(host, link, plan, starts)


def _answer_now(host: Attacher, link: Link, plan: LinkPlan) -> bool:
    """Tell whether the link can be accepted at once. Raises Refused when it must go elsewhere."""
    if plan.partition is not None:
        redirect_away(plan, plan.partition, follows=host.redirects)
        if not _leader_usable(plan, plan.partition):
            return False
    return not _needs_position(plan)


def _needs_position(plan: LinkPlan) -> bool:
    if plan.hub is not None and plan.hub.needs_end:
        return True
    return plan.selection is not None and (isinstance(plan.selection.start, Latest) or plan.selection.needs_latest)


def _leader_usable(plan: LinkPlan, partition: str) -> bool:
    broker, log = plan.broker, plan.log
    leader = broker.leader(log, partition)
    return leader is not None and (leader != broker.node_id or broker.is_local(log, partition))


def _partitions(plan: LinkPlan) -> list[str]:
    if plan.partition is not None:
        return [plan.partition]
    view = plan.broker.describe(plan.log)
    if view is None:
        raise Refused(errors.log_deleted(plan.log))
    return list(view.partitions)


async def _answer_later(host: Attacher, link: Link, plan: LinkPlan) -> None:
    with host.stranded.attaching(plan):
        await _answer_in_time(host, link, plan)


async def _answer_in_time(host: Attacher, link: Link, plan: LinkPlan) -> None:
    held: dict[str, OwnedPartition] | None = None
    try:
        starts: dict[str, Start] = {}
        wait_s = host.config.leader_wait_s
        if plan.needs_partition:
            plan, held = await assigned(host, link, plan)
        async with asyncio.timeout(wait_s):
            if plan.partition is not None and not plan.assigned:
                await _until_usable(host, plan, plan.partition)
                redirect_away(plan, plan.partition, follows=host.redirects)
            granted = await _open_producer(host, plan)
            if plan.is_guest:
                await check_guest(plan)
            if plan.membership is not None and held is None:
                held = await claim_all(host, link, plan, _partitions(plan))
            if _needs_position(plan):
                wanted = _partitions(plan)
                found = await asyncio.gather(*(_position(host, plan, partition) for partition in wanted))
                starts = dict(zip(wanted, found, strict=True))
            if held is not None:
                await fix_positions(plan, held, starts)
        await host.attaches.until_answer()
        if link.alive:
            endpoint = _events(host, link, plan, starts, granted, held)
            held = None  # the endpoint's now
            host.serve(link, endpoint)
            if isinstance(link, SenderLink) and link.credit > 0:
                endpoint.on_credit(Credit(link))  # it came with the attach, before there was an endpoint to take it
    except TimeoutError:
        link.refuse(errors.no_leader(plan.log, plan.partition or "any", wait_s))
    except (Refused, KeyError) as problem:  # KeyError: the log was deleted meanwhile
        link.refuse(problem.error if isinstance(problem, Refused) else errors.log_deleted(plan.log))
    finally:
        let_go(held or {})
        host.flush_soon()


async def _until_usable(host: Attacher, plan: LinkPlan, partition: str) -> None:
    def settled() -> bool:
        return plan.broker.describe(plan.log) is None or _leader_usable(plan, partition)

    await host.until(settled, host.config.leader_wait_s)
    if plan.broker.describe(plan.log) is None:
        raise Refused(errors.log_deleted(plan.log))


async def _open_producer(host: Attacher, plan: LinkPlan) -> ProducerOpened | None:
    """Open the producer at the partition's leader; every failure but the producer's own is tried again."""
    if plan.producer is None or plan.partition is None:
        return None
    while True:
        outcome = await plan.broker.handle(plan.log, plan.partition).open_producer(plan.producer)
        if isinstance(outcome, ProducerOpened):
            return outcome
        if not outcome.retriable:
            raise Refused(errors.producer_refused(outcome, plan.log))
        await asyncio.sleep(RETRY_DELAY_S)  # a new leader, or a busy one: the outer timeout ends this
        await _until_usable(host, plan, plan.partition)
        redirect_away(plan, plan.partition, follows=host.redirects)


async def _position(host: Attacher, plan: LinkPlan, partition: str) -> Start:
    """Resolve `@latest` at a leader that a majority has confirmed. This node asks itself the same way: it may have been
    deposed without having noticed."""
    while True:
        await _until_usable(host, plan, partition)
        try:
            info = await plan.broker.handle(plan.log, partition).info()
        except (ConnectionError, LookupError, TimeoutError):
            await asyncio.sleep(RETRY_DELAY_S)  # the leader is unknown to itself, or away: the outer timeout ends this
            continue
        if plan.hub is not None:
            plan.hub.look(info)
        uncommitted = plan.selection is not None and plan.selection.uncommitted
        end = info.next_offset if uncommitted else info.stable_offset
        return After(end - 1) if end > 0 else Earliest()


RETRY_DELAY_S = 0.05
"""Delay between questions to a leader that could not answer."""
