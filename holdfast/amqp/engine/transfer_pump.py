"""The hot half of the pump: messages in, outcomes of messages out, credit.

How the loops save calls: a foreign call costs about 150 ns. The first transfer event of a link drains the whole link
(current, recv, advance per message; "is it complete" is asked only for the last, since transfers on a link cannot
interleave). If as many messages came out as frames went in, every queued event belongs to one of them and all are
popped without being looked at. Outcomes are taken in runs of one link, without asking for each event's type.
Rejected alternative: one Python-visible event per transfer, which doubles the cost.

Rules never broken: complete messages leave proton at once, an incomplete one is bounded by the link's
max_message_size; what comes without credit costs the peer its link; what comes on a link that we have closed is
released, so that its sender knows it was not kept.
"""

from __future__ import annotations

import threading
from collections import deque
from itertools import repeat
from typing import Any

from cproton import ffi, lib

from holdfast.amqp.errors import INVALID_FIELD, MESSAGE_SIZE_EXCEEDED, TRANSFER_LIMIT_EXCEEDED, Error
from holdfast.amqp.events import Credit, Drained, Event, LinkDetached, Settlements, Transfers
from holdfast.amqp.framing.frame_scanner import FrameScanner
from holdfast.amqp.links.delivery_states import (
    ACCEPTED,
    ACCEPTED_CODE,
    RECEIVED_CODE,
    RELEASED_CODE,
)
from holdfast.amqp.links.dispositions import read_state
from holdfast.amqp.links.link import SETTLED, Link
from holdfast.amqp.links.receiver_link import ReceiverLink
from holdfast.amqp.links.sender_link import SenderLink

READ_BUFFER_BYTES = 64 * 1024
"""Messages up to this size leave proton in one call."""

_peek, _pop, _event_type = lib.pn_collector_peek, lib.pn_collector_pop, lib.pn_event_type
_event_link, _event_delivery = lib.pn_event_link, lib.pn_event_delivery
_current, _recv, _advance = lib.pn_link_current, lib.pn_link_recv, lib.pn_link_advance
_settle, _remote_state = lib.pn_delivery_settle, lib.pn_delivery_remote_state
_DELIVERY, _TRANSPORT, _ABORTED = lib.PN_DELIVERY, lib.PN_TRANSPORT, -11


def _tag(delivery: Any) -> bytes:
    tag = lib.pn_delivery_tag(delivery)
    return bytes(ffi.buffer(tag.start, tag.size)) if tag.size else b""


class _ReadBuffer(threading.local):
    """Where proton copies bytes to before they become Python's. Per thread: foreign calls release the
    interpreter lock."""

    def __init__(self) -> None:
        self.memory = ffi.new("char[]", READ_BUFFER_BYTES)
        self.view = ffi.buffer(self.memory)


read_buffer = _ReadBuffer()


class TransferPump:
    """The transfers of one connection. EventPump (event_pump.py) adds connection, sessions and links."""

    role: str
    _collector: Any
    _transport: Any
    _events: list[Event]
    _links: dict[Any, Link]
    _pump_number: int
    _frames_seen: int
    _scanner: FrameScanner

    def _on_deliveries(self, event: Any) -> None:
        """Called with a delivery event at the head of the queue; takes it and all that belongs to it off the queue."""
        collector, links = self._collector, self._links
        drained = popped = 0
        while event and _event_type(event) == _DELIVERY:
            link = links.get(_event_link(event))
            if isinstance(link, ReceiverLink):
                if link._pumped != self._pump_number:
                    link._pumped = self._pump_number
                    drained += self._drain(link)
                    if drained == lib.pn_transport_get_frames_input(self._transport) - self._frames_seen:
                        deque(map(_pop, repeat(collector, drained - popped)), maxlen=0)
                        return
                popped += 1
            elif isinstance(link, SenderLink):
                self._settle_run(link, event)
                event = _peek(collector)
                continue
            _pop(collector)
            event = _peek(collector)

    def _drain(self, link: ReceiverLink) -> int:
        """Takes every complete message off a link; returns how many deliveries left it."""
        impl = link._impl
        queued = lib.pn_link_queued(impl)
        credit = lib.pn_link_credit(impl)
        if not link.is_open:
            return self._discard(link, queued)
        count = min(queued, max(credit, 0))
        taken, error = self._take(link, count, queued) if count else (0, None)
        if error is None and queued > count:
            told = f"{queued} messages came with credit for {credit}: wait for credit"
            error = Error(TRANSFER_LIMIT_EXCEEDED, told)
        if error is not None:
            self._violated(link, error)
            taken += self._discard(link, queued - taken)
        elif link._draining:
            self._check_drained(link)
        return taken

    def _take(self, link: ReceiverLink, count: int, queued: int) -> tuple[int, Error | None]:
        """The first `count` messages of a link become one Transfers event, but for a last one that is incomplete."""
        impl, limit = link._impl, link.max_message_size
        memory, view = read_buffer.memory, read_buffer.view
        presettled = link.remote_snd_settle_mode == SETTLED
        deliveries: list[Any] = []
        payloads: list[bytes] = []
        tags = self._scanner.batches.pop((link.session._channel, link._handle), None) if self._scanner.batches else None
        batches: list[int] = []
        taken = 0
        error: Error | None = None
        certain = count if count < queued else count - 1  # before this index every message is complete
        usual = min(limit, READ_BUFFER_BYTES - 1)
        largest = -1 if link._parts else usual
        while taken < count:
            delivery = _current(impl)
            size = _recv(impl, memory, READ_BUFFER_BYTES)
            if 0 <= size <= largest and taken < certain:
                payload = view[:size]
            else:
                if size == _ABORTED:
                    self._abort(link, delivery)
                    largest = usual
                    taken += 1
                    continue
                error = self._collect(link, size, limit)
                if error is not None or lib.pn_delivery_partial(delivery):
                    break
                payload = b"".join(link._parts)
                link._parts = []
                link._parts_bytes = 0
                largest = usual
            if tags and _tag(delivery) in tags:
                batches.append(len(payloads))
            payloads.append(payload)
            if presettled:
                _settle(delivery)
            else:
                deliveries.append(delivery)
                _advance(impl)
            taken += 1
        if payloads:
            link._unsettled += len(deliveries)
            self._events.append(Transfers(link, deliveries, payloads, tuple(batches)))
        if tags and link._parts and _tag(delivery) in tags:  # the rest of it comes later, and does not say it again
            self._scanner.batches[link.session._channel, link._handle] = {_tag(delivery)}
        return taken, error

    def _collect(self, link: ReceiverLink, size: int, limit: int) -> Error | None:
        """Moves what is there of the current message to its parts. size: what the read buffer holds of it."""
        while size > 0:
            link._parts.append(read_buffer.view[:size])
            link._parts_bytes += size
            if link._parts_bytes > limit:
                return Error(MESSAGE_SIZE_EXCEEDED, f"a message is larger than {limit} bytes: split it")
            size = _recv(link._impl, read_buffer.memory, READ_BUFFER_BYTES) if size == READ_BUFFER_BYTES else 0
        return None

    def _abort(self, link: ReceiverLink, delivery: Any) -> None:
        """The peer took a message back: forget its parts, give back its credit."""
        link._parts = []
        link._parts_bytes = 0
        _settle(delivery)
        lib.pn_link_flow(link._impl, 1)

    def _discard(self, link: ReceiverLink, count: int) -> int:
        """Messages of a link that we have closed or never accepted: released, so the sender knows they were not
        kept."""
        self._scanner.batches.pop((link.session._channel, link._handle), None)
        link._parts = []
        link._parts_bytes = 0
        discarded = 0
        while discarded < count and (delivery := _current(link._impl)):
            lib.pn_delivery_update(delivery, RELEASED_CODE)
            _settle(delivery)
            discarded += 1
        return discarded

    def _violated(self, link: Link, error: Error) -> None:
        """The peer broke a rule of this link: close it and say so once."""
        link.close(error)
        self._report(LinkDetached(link, True, error, local=True))

    def _report(self, event: LinkDetached) -> None:
        if not event.link._reported:
            event.link._reported = True
            self._events.append(event)

    def _settle_run(self, link: SenderLink, event: Any) -> None:
        """Takes the outcomes of one link's sends off the queue until something else comes up. An event that is not of a
        delivery has no delivery in the table, so its type need not be asked."""
        collector, outstanding = self._collector, link._outstanding
        if link._pumped != self._pump_number:
            link._pumped = self._pump_number
            link._outcomes = []
        outcomes = link._outcomes
        known = len(outcomes)
        while event:
            delivery = _event_delivery(event)
            number = outstanding.pop(delivery, None)
            if number is None:
                if link._impl is not None and _event_link(event) == link._impl and _event_type(event) == _DELIVERY:
                    _pop(collector)  # a state after the final one
                break
            code = _remote_state(delivery)
            if code == ACCEPTED_CODE:
                outcomes.append((number, ACCEPTED))
                _settle(delivery)
            elif (code == 0 or code == RECEIVED_CODE) and not lib.pn_delivery_settled(delivery):
                outstanding[delivery] = number  # not final yet
            else:
                outcomes.append((number, read_state(delivery, code, trusted=self.role == "client")))
                _settle(delivery)
            _pop(collector)
            event = _peek(collector)
        if not known and outcomes:
            self._events.append(Settlements(link, outcomes))

    def _on_link_flow(self, event: Any) -> None:
        link = self._links.get(_event_link(event))
        if isinstance(link, SenderLink):
            credit = lib.pn_link_credit(link._impl)
            if credit < -link._next:  # it may take back what it granted, which is never more than was sent
                told = "the flow grants more than 2147483647 messages, or counts some that were never sent"
                self._violated(link, Error(INVALID_FIELD, f"{told}: attach again and grant less"))
                return
            credit = max(0, credit)
            drain = bool(lib.pn_link_get_drain(link._impl))
            if credit != link.credit or drain != link.drain:
                link.credit, link.drain = credit, drain
                self._events.append(Credit(link))
        elif isinstance(link, ReceiverLink) and link._draining:
            self._check_drained(link)

    def _check_drained(self, link: ReceiverLink) -> None:
        if not lib.pn_link_draining(link._impl):
            link._draining = False
            lib.pn_link_set_drain(link._impl, False)
            self._events.append(Drained(link))
