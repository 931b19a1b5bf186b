"""The hot half of the pump: messages in, outcomes of messages out, credit.

How the loops save calls: a foreign call costs about 150 ns. The first transfer event of a link drains the whole link
(current, recv, advance per message; "is it complete" is asked only for the last, since transfers on a link cannot
interleave). If as many messages came out as frames went in, every queued event belongs to one of them and all are
popped without being looked at. Outcomes are taken in runs of one link, without asking for each event's type. Whether
any message of a batch has a state is one pass of C over the batch; only then is it asked which.
Rejected alternative: one Python-visible event per transfer, which doubles the cost.

Draining a link moves its messages ahead of what came between them on others. A control link's messages must not be, so
they are taken one by one, each when its event comes: whatever was said before a discharge is told before it.

Rules never broken: complete messages leave proton at once, an incomplete one is bounded by the link's
max_message_size; what comes without credit costs the peer its link; what comes on a link that we have closed is
released, so that its sender knows it was not kept, but the message that was too large for the link is rejected, so
that its sender does not repeat it; a message whose state names a transaction is never handed out as
if it had none, nor released without a word to the owner: if the name cannot be read, the link is closed, and that
message and those after it are released; a transfer on a link on which we send ends the connection, since proton keeps
it for ever, and takes it for one of ours in its counts of credit.
"""

from __future__ import annotations

import threading
from collections import deque
from itertools import repeat
from typing import Any

from cproton import ffi, lib

from holdfast.amqp.engine.frame_input import FrameInput, numbers_in
from holdfast.amqp.errors import (
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    TRANSFER_LIMIT_EXCEEDED,
    Error,
    MalformedMessage,
)
from holdfast.amqp.events import Credit, Drained, Dropped, Event, LinkDetached, Settlements, Transfers
from holdfast.amqp.framing.performatives import Place
from holdfast.amqp.links.delivery_states import (
    ACCEPTED,
    ACCEPTED_CODE,
    RELEASED,
    TRANSACTIONAL_CODE,
    DeliveryState,
    Rejected,
    Transactional,
)
from holdfast.amqp.links.dispositions import read_state, settle_one_by_one
from holdfast.amqp.links.link import SETTLED, Link
from holdfast.amqp.links.memory_accounting import too_much
from holdfast.amqp.links.raw_delivery_states import raw_state, txn_id_in, txn_id_of
from holdfast.amqp.links.receiver_link import ReceiverLink
from holdfast.amqp.links.sender_link import SenderLink

READ_BUFFER_BYTES = 64 * 1024
"""Messages up to this size leave proton in one call."""

PART_BYTES = 64
"""Memory of a part of an unfinished message besides its bytes."""

_peek, _pop, _event_type = lib.pn_collector_peek, lib.pn_collector_pop, lib.pn_event_type
_event_link, _event_delivery = lib.pn_event_link, lib.pn_event_delivery
_current, _recv, _advance = lib.pn_link_current, lib.pn_link_recv, lib.pn_link_advance
_settle, _remote_state = lib.pn_delivery_settle, lib.pn_delivery_remote_state
_DELIVERY, _TRANSPORT, _ABORTED = lib.PN_DELIVERY, lib.PN_TRANSPORT, -11


def _tag(delivery: Any) -> bytes:
    tag = lib.pn_delivery_tag(delivery)
    return bytes(ffi.buffer(tag.start, tag.size)) if tag.size else b""


def _too_large(limit: int) -> Error:
    return Error(MESSAGE_SIZE_EXCEEDED, f"a message is larger than {limit} bytes: split it")


Noted = dict[bytes, "list[Any] | None"]
"""Fields of the states that proton drops, by tag, as the scanner found them."""


def _transactions(deliveries: list[Any], noted: Noted) -> tuple[list[bytes | None], Error | None]:
    """The transaction that each delivery names, up to the first one that names it in a way nobody can read."""
    found: list[bytes | None] = []
    txn_id, known = None, None
    try:
        for delivery in deliveries:
            if _remote_state(delivery) == TRANSACTIONAL_CODE:
                raw = raw_state(delivery)
                if raw != known:
                    txn_id, known = txn_id_of(raw), raw
                found.append(txn_id)
            else:
                fields = noted.get(_tag(delivery)) if noted else None
                found.append(None if fields is None else txn_id_in(fields))
    except MalformedMessage as problem:
        return found, Error(INVALID_FIELD, f"the transactional state of a transfer is malformed: {problem}")
    return found, None


class _ReadBuffer(threading.local):
    """Buffer for bytes from proton on their way to Python. Per thread: foreign calls release the interpreter lock."""

    def __init__(self) -> None:
        self.memory = ffi.new("char[]", READ_BUFFER_BYTES)
        self.view = ffi.buffer(self.memory)


read_buffer = _ReadBuffer()


class TransferPump(FrameInput):
    """The transfers of one connection. EventPump (event_pump.py) adds connection, sessions and links."""

    role: str
    kept_bytes: int
    keep_limit: int
    _collector: Any
    _transport: Any
    _events: list[Event]
    _links: dict[Any, Link]
    _pump_number: int
    _frames_seen: int

    def _on_deliveries(self, event: Any) -> None:
        """Called with a delivery event at the head of the queue; takes it and all that belongs to it off the queue."""
        collector, links = self._collector, self._links
        drained = popped = 0
        while event and _event_type(event) == _DELIVERY:
            link = links.get(_event_link(event))
            if isinstance(link, ReceiverLink):
                if link._pumped != self._pump_number or link.in_order:
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
        allowed = max(credit, 0)
        count = min(queued, allowed, 1 if link.in_order else allowed)
        taken, error = self._take(link, count, queued) if count else (0, None)
        if error is None and queued > allowed and taken >= allowed:
            told = f"{queued} messages came with credit for {credit}: wait for credit"
            error = Error(TRANSFER_LIMIT_EXCEEDED, told)
        if error is not None:
            self._violated(link, error)
            refusal = Rejected(error) if error.condition == MESSAGE_SIZE_EXCEEDED else RELEASED
            taken += self._discard(link, queued - taken, refusal)
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
        place = (link.session._channel, link._handle)
        tags = self._scanner.batches.pop(place, None) if self._scanner.batches else None
        named = self._scanner.states.pop(place, None) if self._scanner.states else None
        parts = self._input.parts
        batches: list[int] = []
        taken = 0
        error: Error | None = None
        unfinished: Any = None
        certain = count if count < queued else count - 1  # before this index every message is complete
        usual = min(limit, READ_BUFFER_BYTES - 1)
        largest = -1 if link._parts else usual
        while taken < count:
            delivery = _current(impl)
            size = _recv(impl, memory, READ_BUFFER_BYTES)
            if 0 <= size <= largest and taken < certain:
                payload = view[:size]
                if parts is not None:
                    payload = b"".join(self._parts_in(payload))
                    if len(payload) > limit:
                        error, unfinished = _too_large(limit), delivery
                        break
            else:
                if size == _ABORTED:
                    self._abort(link, delivery)
                    largest = usual
                    taken += 1
                    continue
                error = self._collect(link, size, limit)
                if error is not None or lib.pn_delivery_partial(delivery):
                    unfinished = delivery
                    break
                payload = b"".join(link._parts)
                self._forget_parts(link)
                largest = usual
            if tags and _tag(delivery) in tags:
                batches.append(len(payloads))
            payloads.append(payload)
            deliveries.append(delivery)
            if presettled:
                _settle(delivery)  # the event that is still queued keeps it
            else:
                _advance(impl)
            taken += 1
        transactions: list[bytes | None] = []
        if named or any(map(_remote_state, deliveries)):
            transactions, fault = _transactions(deliveries, named or {})
            if fault is not None:
                error = fault
                good = len(transactions)
                self._drop(link, deliveries[good:], named or {})
                del deliveries[good:], payloads[good:]
        if link.in_order and count < queued:  # those after it are taken later
            self._scanner.batches |= {place: tags} if tags else {}
            self._scanner.states |= {place: named} if named else {}
        if unfinished is not None and (tags or named):  # the rest of it comes later, and does not say it again
            self._keep_notes(place, _tag(unfinished), tags, named)
        if payloads:
            if presettled:
                deliveries = []
            link._unsettled += len(deliveries)
            batches = [at for at in batches if at < len(payloads)]
            named_by = tuple(transactions) if any(txn_id is not None for txn_id in transactions) else None
            self._events.append(Transfers(link, deliveries, payloads, tuple(batches), named_by))
        return taken, error

    def _keep_notes(self, place: Place, tag: bytes, tags: set[bytes] | None, named: Noted | None) -> None:
        """Keep the scanner's notes on a message that has not come to its end."""
        if tags and tag in tags:
            self._scanner.batches[place] = {tag}
        if named and named.get(tag) is not None:
            self._scanner.states[place] = {tag: named[tag]}

    def _collect(self, link: ReceiverLink, size: int, limit: int) -> Error | None:
        """Moves what is there of the current message to its parts. size: what the read buffer holds of it."""
        while size > 0:
            for part in self._parts_in(read_buffer.view[:size]):
                link._parts.append(part)
                link._parts_bytes += len(part)
                link._kept_bytes += len(part) + PART_BYTES
                self.kept_bytes += len(part) + PART_BYTES
                if link._parts_bytes > limit:
                    return _too_large(limit)
                if self.kept_bytes > self.keep_limit:
                    return too_much(self, "an unfinished message")
            size = _recv(link._impl, read_buffer.memory, READ_BUFFER_BYTES) if size == READ_BUFFER_BYTES else 0
        return None

    def _parts_in(self, said: bytes) -> list[bytes]:
        """Parts of a message, by the bytes that proton has of it."""
        parts = self._input.parts
        return [said] if parts is None else [parts.pop(number) for number in numbers_in(said)]

    def _forget_parts(self, link: ReceiverLink) -> None:
        kept = link._parts_bytes + PART_BYTES * len(link._parts)
        self.kept_bytes -= kept
        link._kept_bytes -= kept
        link._parts = []
        link._parts_bytes = 0

    def _abort(self, link: ReceiverLink, delivery: Any) -> None:
        """The peer took a message back: forget its parts, give back its credit."""
        self._forget_parts(link)
        _settle(delivery)
        lib.pn_link_flow(link._impl, 1)

    def _discard(self, link: ReceiverLink, count: int, first: DeliveryState = RELEASED) -> int:
        """Settles messages of a link that we have closed or never accepted, so the sender knows they were not kept:
        the first one as told, the others are released."""
        place = (link.session._channel, link._handle)
        noted = self._scanner.states.get(place) or {}
        self._scanner.forget(place)
        self._forget_parts(link)
        discarded: list[Any] = []
        while len(discarded) < count and (delivery := _current(link._impl)):
            discarded.append(delivery)
            _advance(link._impl)
        self._drop(link, discarded, noted, first)
        return len(discarded)

    def _drop(self, link: ReceiverLink, deliveries: list[Any], noted: Noted, first: DeliveryState = RELEASED) -> None:
        """Drop messages that are not kept, though the link has moved beyond them: their sender is told so, and the
        owner of the transactions that they name."""
        named: dict[bytes, None] = {}
        for delivery in deliveries:
            readable, _ = _transactions([delivery], noted)
            named.update((txn_id, None) for txn_id in readable if txn_id is not None)
        settle_one_by_one(deliveries[:1], first)
        settle_one_by_one(deliveries[1:], RELEASED)
        if named:
            self._events.append(Dropped(link, tuple(named)))

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
        collector, outstanding, awaiting = self._collector, link._outstanding, link._open
        if link._pumped != self._pump_number:
            link._pumped = self._pump_number
            link._outcomes = []
        outcomes = link._outcomes
        known, open_before = len(outcomes), len(outstanding)
        fault: Error | None = None
        while event:
            delivery = _event_delivery(event)
            number = outstanding.pop(delivery, None)
            if number is None:
                if link._impl is not None and _event_link(event) == link._impl and _event_type(event) == _DELIVERY:
                    if lib.pn_link_unsettled(link._impl) > len(outstanding):
                        self._fail(Error(NOT_ALLOWED, "a transfer on a link on which this end sends"), corrupt=True)
                        return
                    _pop(collector)  # a state after the final one
                break
            code = _remote_state(delivery)
            if awaiting:
                awaiting.pop(number, None)
            if code == ACCEPTED_CODE:
                outcomes.append((number, ACCEPTED))
                _settle(delivery)
            else:
                fault = self._note_outcome(link, number, delivery, code)
            _pop(collector)
            if fault is not None:
                break
            event = _peek(collector)
        link._keep(len(outstanding) - open_before)
        if not known and outcomes:
            self._events.append(Settlements(link, outcomes))
        if fault is not None and link.alive:
            self._violated(link, fault)

    def _note_outcome(self, link: SenderLink, number: int, delivery: Any, code: int) -> Error | None:
        """Note any outcome but accepted; returns what is wrong with it."""
        if not code and self._scanner.symbolic_disposition():
            _settle(delivery)
            told = "a disposition names a transaction under a symbol as descriptor: send the number 0x34"
            return Error(NOT_IMPLEMENTED, told)
        try:
            state = read_state(delivery, code, trusted=self.role == "client")
        except MalformedMessage as problem:
            _settle(delivery)
            return Error(INVALID_FIELD, f"the state in a disposition is malformed: {problem}")
        if state is not None:
            link._outcomes.append((number, state))
        if state is None or (isinstance(state, Transactional) and not state.settled):
            link._outstanding[delivery] = number  # not final yet
            if state is not None:
                link._open[number] = delivery
        else:
            _settle(delivery)
        return None

    def _on_link_flow(self, event: Any) -> None:
        link = self._links.get(_event_link(event))
        if isinstance(link, SenderLink):
            if self._scanner.transactional and self._scanner.acquires((link.session._channel, link._handle)):
                told = "a flow acquires in a transaction: a log hands out what it has, without taking it from others"
                self._violated(link, Error(NOT_IMPLEMENTED, f"{told}. Name the transaction when settling"))
                return
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
        """Proton counts a message from its first frame on: with the last one under way it says that nothing is."""
        if not lib.pn_link_draining(link._impl) and not lib.pn_link_queued(link._impl):
            link._draining = False
            lib.pn_link_set_drain(link._impl, False)
            self._events.append(Drained(link))
