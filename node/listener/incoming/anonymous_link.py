"""Links to no address, whose messages say where they go: the anonymous terminus (OASIS, "Using the AMQP Anonymous
Terminus for Message Routing", 2.2).

Problem: one link carries messages for many logs, each of which may be refused, deleted or led elsewhere by itself,
while credit and the end of the link are common to all.
Rules never broken:
 - a message is judged as an attach to its `to` would be: rights, words of the address, and whether the log exists;
 - what is refused so is rejected with the error of that attach; if the message is settled already, or the peer does not
   take rejections, the link ends with that error, which names the delivery tag;
 - a log that this node has not heard of is asked for before a message is refused; the messages to it wait, in order;
 - a change that concerns one log ends its route, not the link.
The link is served where it is: no redirect fits several logs.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import Any

from holdfast.amqp import RELEASED, MalformedMessage, ReceiverLink, Target, Transfers, ingest
from holdfast.amqp.errors import DECODE_ERROR, NOT_FOUND, RESOURCE_DELETED, Error
from holdfast.amqp.messages.routing_fields import TO, text_property
from node.listener import errors
from node.listener.amqp_transactions.connection_transaction import ClientTransaction
from node.listener.attach import link_plan, permissions
from node.listener.attach.link_plan import LinkPlan
from node.listener.endpoint import Endpoint, EndpointHost
from node.listener.errors import Refused
from node.listener.incoming.incoming_link import IncomingLink
from node.listener.incoming.message_link import IncomingMessageLink

MAX_ROUTES = 256
"""Addresses that a link remembers; beyond, those with nothing under way are forgotten."""

MAX_ADDRESS_BYTES = 8 * 1024
"""Longest address, in UTF-8. An attach has room for twice as many; an answer, which may quote it in escapes, must fit
into one frame."""


class AnonymousLink(IncomingLink):
    """The link, which accounts for what its routes answer."""

    def __init__(self, host: EndpointHost, link: ReceiverLink, plan: LinkPlan) -> None:
        super().__init__(host, link, plan)
        self._routes: dict[str, Route] = {}
        self._retired: dict[Route, None] = {}  # out of use, with deliveries that are unanswered
        self._unsure: dict[str, list[tuple[list[Any], list[bytes]]]] = {}  # messages to logs that are asked for

    def open(self) -> None:
        self.link.accept(target=Target(), max_message_size=self.host.config.max_message_size)
        self._top_up()

    @property
    def credit(self) -> Any:
        return self._credit

    # -------------------------------------------------------------------------------------------- messages come in

    def _take(self, event: Transfers, transaction: ClientTransaction | None) -> None:
        self._count(event.payloads)
        batches = set(event.batches)
        places = range(len(event.payloads))
        for address, run in groupby(places, lambda at: self._address(event.payloads[at], batch=at in batches)):
            taken = list(run)
            first, stop = taken[0], taken[-1] + 1
            deliveries, payloads = event.deliveries[first:stop], event.payloads[first:stop]
            if isinstance(address, Error):
                self._refuse(deliveries, payloads, address, transaction)
            else:
                self._send_to(address, deliveries, payloads, transaction)

    def _address(self, payload: bytes, *, batch: bool) -> str | Error:
        if batch:
            return errors.batch_without_target()
        try:
            found = text_property(ingest(payload).stored, TO)
        except MalformedMessage as problem:
            return Error(DECODE_ERROR, f"the message cannot be read: {problem}; correct it, do not resend it")
        if found and len(found) > MAX_ADDRESS_BYTES // 4 and len(found.encode()) > MAX_ADDRESS_BYTES:
            return errors.address_too_long(len(found.encode()), MAX_ADDRESS_BYTES)
        return found or errors.message_without_address()

    def _send_to(
        self, address: str, deliveries: list[Any], payloads: list[bytes], transaction: ClientTransaction | None
    ) -> None:
        if self.leaving:
            self._answer(deliveries, len(payloads), sum(map(len, payloads)), RELEASED)
            if transaction is not None:
                transaction.refuse("its link is being closed")
            return
        if address in self._unsure and transaction is None:
            self._unsure[address].append((deliveries, payloads))
            return
        try:
            route = self._route(address)
        except Refused as refusal:
            if refusal.error.condition == NOT_FOUND and transaction is None:
                self._unsure[address] = [(deliveries, payloads)]
                if len(self._unsure) == 1:
                    self.host.spawn(self._look_again())
            else:
                self._refuse(deliveries, payloads, refusal.error, transaction)
        else:
            route.take(deliveries, payloads, transaction)

    def _route(self, address: str) -> Route:
        """The route to an address. Raises Refused."""
        route = self._routes.get(address)
        if route is not None:
            return route
        visitor = self.host.visitor
        need = permissions.need_to_publish(address)
        if not visitor.may(need):
            raise Refused(visitor.refusal(need))
        plan = replace(link_plan.plan_of_message(self.link, address, self.host.broker), assigned=True)
        if len(self._routes) >= MAX_ROUTES:
            self._forget_idle()
        route = self._routes[address] = Route(self, plan)
        return route

    def _forget_idle(self) -> None:
        for address, route in list(self._routes.items()):
            if not route.unanswered:
                del self._routes[address]
                route.quiesce()

    async def _look_again(self) -> None:
        """Route the messages that wait for logs after catching up: another node may have made them a moment ago. One
        question is under way at a time, however many logs a peer names."""
        while self._unsure:
            asked = list(self._unsure)
            confirmed = await self.host.broker.current()
            for address in asked:
                self._route_again(address, self._unsure.pop(address, []), confirmed)
            self.host.flush_soon()

    def _route_again(self, address: str, waiting: list[tuple[list[Any], list[bytes]]], confirmed: bool) -> None:
        for deliveries, payloads in waiting:
            if not confirmed:
                self._answer(deliveries, len(payloads), sum(map(len, payloads)), RELEASED)
                continue
            try:
                self._route(address).take(deliveries, payloads, None)
            except Refused as refusal:
                self._refuse(deliveries, payloads, refusal.error, None)

    def _refuse(
        self, deliveries: list[Any], payloads: list[bytes], error: Error, transaction: ClientTransaction | None
    ) -> None:
        size = sum(map(len, payloads))
        settled = not deliveries or all(map(self.link.sent_settled, deliveries))
        if self.link.takes_rejected and not settled:
            self._turn_down_one(deliveries, len(payloads), size, error, transaction)
            return
        if transaction is not None:
            transaction.refuse(error.description or error.condition)
        info = {"delivery-tag": self.link.tag_of(deliveries[0])} if deliveries else {}
        self._answer(deliveries, len(payloads), size, RELEASED)
        self.leave(Error(error.condition, error.description, info), over=True)

    # -------------------------------------------------------------------------------------------- routes

    def account(self, count: int, size: int, accepted: bool) -> None:
        """Count deliveries of a route as answered."""
        self._account(count, size, accepted)

    def route_ends(self, route: Route, error: Error | None) -> None:
        """End a route whose log is gone, or the link if anything else is the matter."""
        if error is None or error.condition != RESOURCE_DELETED:
            self.leave(error)
            return
        self._retire(route)

    def _retire(self, route: Route) -> None:
        """Take in nothing more for the route, which is kept until all of it is answered."""
        for address in [address for address, one in self._routes.items() if one is route]:
            del self._routes[address]
        self._retired[route] = None
        route.quiesce()
        self._retired = {one: None for one in self._retired if one.unanswered}

    @property
    def _all(self) -> list[Route]:
        return [*self._routes.values(), *self._retired]

    @property
    def idle(self) -> bool:
        return self._credit.unanswered == sum(route.doubtful for route in self._all)

    # -------------------------------------------------------------------------------------------- changes, leaving

    def on_change(self) -> None:
        Endpoint.on_change(self)
        if self.leaving:
            return
        for route in list(self._routes.values()):
            if all(map(self.host.visitor.may, permissions.needs(route.plan))):
                route.on_change()
            else:  # the next message to it is refused
                self._retire(route)

    def quiesce(self) -> None:
        unsure, self._unsure = self._unsure, {}
        for deliveries, payloads in [one for waiting in unsure.values() for one in waiting]:
            self._answer(deliveries, len(payloads), sum(map(len, payloads)), RELEASED)
        for route in self._all:
            route.quiesce()

    def maybe_close(self) -> None:
        super().maybe_close()
        for route in self._all:
            route.maybe_close()

    def gone(self) -> None:
        super().gone()
        for route in self._all:
            route.gone()


class Route(IncomingMessageLink):
    """Messages of an anonymous link to one address."""

    def __init__(self, relay: AnonymousLink, plan: LinkPlan) -> None:
        super().__init__(relay.host, relay.link, plan)
        self.unanswered = 0
        self._relay = relay
        self._credit = relay.credit
        self._redirects = False
        self._ordered = relay.host.knows_streams

    def take(self, deliveries: list[Any], payloads: list[bytes], transaction: ClientTransaction | None) -> None:
        self.unanswered += len(payloads)
        self._messages(deliveries, payloads, transaction)

    @property
    def doubtful(self) -> int:
        """Deliveries that are never answered."""
        return self._doubtful_count

    @property
    def leaving(self) -> bool:
        return self._leaving or self._relay.leaving

    def _note(self, count: int, size: int, events: int) -> None:
        """Do nothing: the link has noted them."""

    def _account(self, count: int, size: int, accepted: bool) -> None:
        self.unanswered -= count
        self._relay.account(count, size, accepted)

    def leave(self, error: Error | None, *, over: bool = False) -> None:
        self._relay.route_ends(self, error)
