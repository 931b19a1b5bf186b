"""`$management`: requests to the cluster, and the links that carry their answers.

Problem: administration must work from any AMQP client, through any node, without a second port or protocol.
Rules never broken: every request that can be read gets exactly one answer, with a status and a sentence; a request is
handed to the broker once; requests and answers that wait are bounded, whatever the peer does with its credit. A request
that is part of a transaction (`group commit`, and no other) is noted, and does nothing before that commits; one that
fails makes it roll back, since its client wanted both or neither.
Rejected: JSON over HTTP beside AMQP. It would need its own port, authentication and address map.

The protocol is documented in holdfast/protocol.py; reading requests and writing answers is done here, and nowhere else.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast import protocol
from holdfast.amqp import (
    ACCEPTED,
    Credit,
    MalformedMessage,
    Message,
    ReceiverLink,
    Rejected,
    SenderLink,
    Source,
    Target,
    Transactional,
    Transfers,
    Unencodable,
    Value,
    decode_message,
    encode_message,
    encode_value,
    int32,
)
from holdfast.amqp.encoding.counting import count_values
from holdfast.amqp.errors import DECODE_ERROR, INVALID_FIELD, RESOURCE_LIMIT_EXCEEDED, Error
from node.admin.errors import AdminRequestFailed
from node.listener import errors
from node.listener.amqp_transactions.connection_transaction import ClientTransaction
from node.listener.attach import permissions
from node.listener.attach.link_plan import LinkPlan
from node.listener.endpoint import Endpoint, EndpointHost
from node.listener.errors import Refused
from node.listener.event_hubs.read_requests import answer_read, is_read
from node.security.authorisation import Need

log = logging.getLogger("holdfast.listener")

REQUESTS_UNDER_WAY = 16
"""Requests under way on one link. Administration is rare; a client that sends more at once waits for credit."""

ANSWERS_WAITING = 64
"""Answers that wait on one reply link. A client that asks and gives no credit for the answers loses the newest ones."""

ANSWERS_WAITING_BYTES = 1024 * 1024
"""Bytes of answers that wait on all reply links of a connection together. A client that gives no credit loses the
newest answers; one that is longer than that waits alone."""

REQUEST_SIZE_LIMIT = 128 * 1024
"""Bytes of a request: a handful of names and numbers; the winners of a transaction group are up to 4096 names."""

REQUEST_VALUES = 8192
"""Lists, maps and their values in a request. Each becomes an object, were it one byte on the wire."""

CORRELATION_BYTES = 256
"""Bytes of a request's message-id, encoded. Its answer repeats it, and may wait."""

SHOWN_CHARACTERS = 60
"""Characters of the peer's text that an answer or the log shows again."""

FAILURE_CHARACTERS = 1000
"""Characters of the sentence that says why a request failed. Most are one line; it may contain names."""

REQUEST_TIMEOUT_S = 30.0
"""Time after which the answer is "unknown": the metadata group has no leader, or is very slow."""

PASSING = ("unavailable", "unknown")
"""Error codes of failures that another node may not have."""


# ------------------------------------------------------------------------------------------------- codec


@dataclass(frozen=True, slots=True)
class Request:
    operation: str  # "<type>.<operation>"
    arguments: Mapping[str, Any]
    success: int  # the status of a success
    correlation: Any
    reply_to: str | None


def shown(said: Any) -> str:
    """The peer's text, cut to where it can be recognised."""
    return repr(said[:SHOWN_CHARACTERS] if isinstance(said, (str, bytes)) else said)[:SHOWN_CHARACTERS]


def _text(properties: Mapping[str, Any], key: str) -> str:
    value = properties.get(key)
    if value == "":
        raise AdminRequestFailed("invalid-argument", f"application property {key!r} is empty; say what is meant")
    if not isinstance(value, str) or not value:
        raise AdminRequestFailed(
            "invalid-argument", f"application property {key!r} must be a string; see the protocol's page"
        )
    return str(value)


def _read_arguments(body: Any, allowed: frozenset[str]) -> dict[str, Any]:
    value = body.value if isinstance(body, Value) else body
    if value in (None, b"", {}, []):
        return {}
    if not isinstance(value, dict):
        raise AdminRequestFailed("invalid-argument", "the body must be an amqp-value map of arguments")
    unknown = sorted(str(key) for key in value if key not in allowed)
    if unknown:
        known = ", ".join(sorted(allowed)) or "none"
        text = f"unknown argument {', '.join(unknown)[:SHOWN_CHARACTERS]}; known: {known}"
        raise AdminRequestFailed("invalid-argument", text)
    for key, argument in value.items():
        if key in protocol.TEXT_ARGUMENTS:
            if argument is not None and not isinstance(argument, str):
                raise AdminRequestFailed(
                    "invalid-argument", f"argument {key!r} must be a string or null, not {shown(argument)}"
                )
        elif key in protocol.LIST_ARGUMENTS:
            if not isinstance(argument, list) or not all(isinstance(item, str) for item in argument):
                raise AdminRequestFailed(
                    "invalid-argument", f"argument {key!r} must be a list of strings, not {shown(argument)}"
                )
        elif key in protocol.FLAG_ARGUMENTS:
            if not isinstance(argument, bool):
                raise AdminRequestFailed(
                    "invalid-argument", f"argument {key!r} must be a boolean, not {shown(argument)}"
                )
        elif argument is not None and (isinstance(argument, bool) or not isinstance(argument, int)):
            raise AdminRequestFailed(
                "invalid-argument", f"argument {key!r} must be an integer or null, not {shown(argument)}"
            )
    return {str(key): _plain(argument) for key, argument in value.items()}


def _plain(argument: Any) -> str | int | bool | list[str] | None:
    """The argument without the AMQP type that it came with."""
    if isinstance(argument, list):
        return [str(item) for item in argument]
    if isinstance(argument, bool):
        return argument
    return str(argument) if isinstance(argument, str) else None if argument is None else int(argument)


def read_request(message: Message) -> Request:
    """Read the operation and its arguments. Raises AdminRequestFailed if the request can be answered, but is wrong."""
    properties = message.application_properties
    kind, operation = _text(properties, protocol.TYPE), _text(properties, protocol.OPERATION)
    rule = protocol.REQUESTS.get((kind.lower(), operation.lower()))
    if rule is None:
        known = ", ".join(f"{a} {b}" for a, b in sorted(protocol.REQUESTS))
        raise AdminRequestFailed("not-implemented", f"no operation {shown(operation)} on {shown(kind)}; known: {known}")
    needs_name, allowed, success = rule
    arguments = _read_arguments(message.body, allowed)
    if needs_name:
        arguments["name"] = _text(properties, protocol.NAME)
    return Request(f"{kind.lower()}.{operation.lower()}", arguments, success, correlation_of(message), message.reply_to)


def correlation_of(message: Message) -> Any:
    """The id of a request, which its answer repeats."""
    return message.message_id if message.message_id is not None else message.correlation_id


def _read(payload: bytes) -> Message:
    """Decode a request whose answer can be told. Raises MalformedMessage or Refused."""
    if count_values(payload, REQUEST_VALUES) > REQUEST_VALUES:
        text = f"a request holds at most {REQUEST_VALUES} values, this one has more: ask for less at a time"
        raise Refused(Error(RESOURCE_LIMIT_EXCEEDED, text))
    message = decode_message(payload)
    correlation = correlation_of(message)
    if correlation is None:
        raise Refused(Error(INVALID_FIELD, "a request needs a message-id, else its answer cannot be told"))
    try:
        size = len(encode_value(correlation))
    except Unencodable as problem:
        raise Refused(Error(INVALID_FIELD, f"the message-id of a request cannot be told again: {problem}")) from None
    if size > CORRELATION_BYTES:
        text = f"the message-id of a request, {size} bytes, is too long to be told again: {CORRELATION_BYTES} at most"
        raise Refused(Error(INVALID_FIELD, text))
    return message


def write_answer(correlation: Any, status: int, description: str, body: Mapping[str, Any], error: str = "") -> bytes:
    properties: dict[str, Any] = {protocol.STATUS_CODE: int32(status), protocol.STATUS_DESCRIPTION: description}
    if error:
        properties[protocol.ERROR_CODE] = error
        properties[protocol.RETRIABLE] = protocol.STATUS_OF_ERROR.get(error, (500, False))[1]
    return encode_message(
        Message(correlation_id=correlation, application_properties=properties, body=Value(dict(body)))
    )


def write_failure(correlation: Any, error: AdminRequestFailed) -> bytes:
    status, _ = protocol.STATUS_OF_ERROR.get(error.code, (500, False))
    return write_answer(correlation, status, error.message, {}, error.code)


# ------------------------------------------------------------------------------------------------- links


class Management(Endpoint):
    """The link that takes requests."""

    link: ReceiverLink

    def __init__(self, host: EndpointHost, link: ReceiverLink, plan: LinkPlan) -> None:
        super().__init__(host, link, plan)
        self._under_way = 0

    def open(self) -> None:
        self.link.accept(target=Target(address=self.plan.address), max_message_size=REQUEST_SIZE_LIMIT)
        self.link.grant(REQUESTS_UNDER_WAY)

    def on_transfers(self, event: Transfers) -> None:
        names = event.transactions or (None,) * len(event.payloads)
        for index, (payload, name) in enumerate(zip(event.payloads, names, strict=True)):
            deliveries = event.deliveries[index : index + 1]
            own: ClientTransaction | None = None
            if name is not None:
                own = self.host.transactions.get(name)
                if own is None or not own.is_open:
                    self._reject(deliveries, errors.unknown_transaction(), name)
                    continue
            try:
                message = _read(payload)
            except MalformedMessage as problem:
                self._reject(deliveries, Error(DECODE_ERROR, f"the request cannot be read: {problem}"), name, own)
                continue
            except Refused as refusal:
                self._reject(deliveries, refusal.error, name, own)
                continue
            self._under_way += 1
            if own is None:
                self.link.settle(deliveries, ACCEPTED)
                self.host.spawn(self._serve(message))
            else:
                self.link.settle(deliveries, Transactional(own.txn_id, ACCEPTED))
                own.expects()
                self.host.errand(self._serve(message, own))  # to its end: its transaction waits for it
        self.host.flush_soon()

    def _reject(
        self, deliveries: list[Any], error: Error, name: bytes | None, own: ClientTransaction | None = None
    ) -> None:
        if own is not None:
            own.refuse(error.description or error.condition)
        self.link.settle(deliveries, Rejected(error) if name is None else Transactional(name, Rejected(error)))
        self.link.grant(1)

    async def _serve(self, message: Message, own: ClientTransaction | None = None) -> None:
        answer = await self._answer(message, own)
        if own is not None:
            own.heard()
        self._under_way -= 1
        self.host.reply(self, message.reply_to, answer)
        if not self.leaving:
            self.link.grant(1)
        self.maybe_close()
        self.host.flush_soon()

    async def _answer(self, message: Message, own: ClientTransaction | None) -> bytes:
        if own is None and is_read(message):
            return await answer_read(message, self.host.broker, self.host.visitor)
        correlation = correlation_of(message)
        request: Request | None = None
        try:
            request = read_request(message)
            self._check(request)
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                body = await (self._run(request) if own is None else self._note(request, own))
            self._write_down(request, "done")
            return write_answer(correlation, request.success, "OK", body)
        except AdminRequestFailed as problem:
            failure = problem
            self._write_down(request, problem.code)
        except TimeoutError:
            text = f"no answer from the cluster within {REQUEST_TIMEOUT_S:g} s; look whether it was done"
            failure = AdminRequestFailed("unknown", text)
        except Unencodable as problem:
            log.error("an answer of %s cannot be written: %s", self.plan.address, problem)
            failure = AdminRequestFailed("internal-error", f"done, but unspeakable: {problem}")
        except Exception:
            # Whatever went wrong in the node, the client waits for an answer, and other requests go on.
            log.exception("a management request failed")
            failure = AdminRequestFailed("internal-error", "the node failed; see its log")
        failure = AdminRequestFailed(failure.code, failure.message[:FAILURE_CHARACTERS])
        broker = self.host.broker
        if failure.code in PASSING and broker.is_cut_off:
            why = errors.why_cut_off(broker.out_of_touch)
            failure = AdminRequestFailed(
                failure.code, why if failure.code == "unavailable" else f"{failure.message}; {why}"
            )
        if own is not None:
            own.refuse(f"a request under it failed: {failure.message}")
        return write_failure(correlation, failure)

    def _check(self, request: Request) -> None:
        principal = self.host.visitor.principal
        own = principal.by_password and request.arguments.get("name") == principal.name
        if request.operation == "user.password" and own:
            return  # everybody may change their own
        for need in permissions.needs_of_request(request.operation, request.arguments):
            if not self.host.visitor.may(need):
                raise AdminRequestFailed("not-authorized", self.host.visitor.refusal(need).description or "")

    async def _run(self, request: Request) -> dict[str, Any]:
        if request.operation == "user.whoami":
            return self.host.visitor.whoami()
        body = await self.host.broker.admin(request.operation, request.arguments)
        if request.operation not in permissions.LISTED:
            return body
        where, kind, key = permissions.LISTED[request.operation]
        seen = [one for one in body[where] if self.host.visitor.may(Need("describe", kind, str(one[key])))]
        return {**body, where: seen}

    def _write_down(self, request: Request | None, outcome: str) -> None:
        """Audit a request, unless it only reads, or commits a group's position, which is no administration."""
        if request is None or request.operation == "group.commit":
            return
        if request.operation.rpartition(".")[2] not in permissions.READS:
            self.host.visitor.administered(request.operation, request.arguments, outcome)

    async def _note(self, request: Request, own: ClientTransaction) -> dict[str, Any]:
        """Stage the request in its transaction: it takes effect at the commit."""
        if request.operation != "group.commit":
            what = request.operation.replace(".", " ")
            text = f"{what} cannot be part of a transaction, only group commit can: send it without one"
            raise AdminRequestFailed("not-allowed", text)
        position, body = await self.host.broker.note_position(request.arguments)
        if not own.stage(position):
            raise AdminRequestFailed(
                "not-allowed", "the transaction moves too many positions: commit, and begin another one"
            )
        return body

    @property
    def idle(self) -> bool:
        return self._under_way == 0


class Reply(Endpoint):
    """The link that carries answers to one client."""

    link: SenderLink

    def __init__(self, host: EndpointHost, link: SenderLink, plan: LinkPlan) -> None:
        super().__init__(host, link, plan)
        self._waiting: deque[bytes] = deque()
        self.address = f"{protocol.REPLY_PREFIX}{uuid.uuid4()}" if plan.dynamic else plan.address

    def open(self) -> None:
        self.link.accept(source=Source(address=self.address, dynamic=self.plan.dynamic))

    def called(self) -> set[str | None]:
        """Names that a reply-to may call this link by. None: a request without a reply-to."""
        target = self.link.remote_target
        names = {self.address, self.link.name, target.address if isinstance(target, Target) else None}
        return names if self.address == protocol.TOKEN_ADDRESS else names | {None}

    def send(self, message: bytes) -> None:
        size, host = len(message), self.host
        if len(self._waiting) >= ANSWERS_WAITING:
            host.note("an answer on %s is dropped: %d wait for credit", self.link.name, len(self._waiting))
            return
        stays = self.link.credit <= len(self._waiting) or host.output_full()
        if stays and host.answer_bytes and host.answer_bytes + size > ANSWERS_WAITING_BYTES:
            host.note("an answer on %s is dropped: %d bytes wait for credit", self.link.name, host.answer_bytes)
            return
        self._waiting.append(message)
        host.answer_bytes += size
        host.pump_soon(self)

    def on_credit(self, event: Credit) -> None:
        self.host.pump_soon(self)

    def pump(self) -> bool:
        while self._waiting and self.link.credit > 0:
            message = self._waiting.popleft()
            self.host.answer_bytes -= len(message)
            self.link.send_many([message])
            self.host.delivered(0, len(message))
        if self.link.drain:
            self.link.drained()
        return False

    def gone(self) -> None:
        super().gone()
        self.host.answer_bytes -= sum(map(len, self._waiting))
        self._waiting.clear()


class Replies:
    """The reply links of a connection by name, so that an answer does not search all links of its connection, of which
    there may be thousands."""

    def __init__(self) -> None:
        self._links: dict[tuple[Any, str | None], dict[Reply, None]] = {}  # by session (None: any), in their order

    def add(self, reply: Reply) -> None:
        for place in self._places(reply):
            self._links.setdefault(place, {})[reply] = None

    def remove(self, reply: Reply) -> None:
        for place in self._places(reply):
            called = self._links.get(place, {})
            called.pop(reply, None)
            if not called:
                self._links.pop(place, None)

    def find(self, session: Any, reply_to: str | None) -> Reply | None:
        """The first link of that name, preferably in the session of the request."""
        called = self._links.get((session, reply_to)) or self._links.get((None, reply_to))
        return None if called is None else next(iter(called))

    @staticmethod
    def _places(reply: Reply) -> list[tuple[Any, str | None]]:
        return [(session, name) for name in reply.called() for session in (None, reply.link.session)]
