"""A node in a test's process: real sockets and the real engine, a log in memory, and a script of mishaps.

It serves the same wire protocol as a node: partition-bound senders and receivers, `$info`, `$management`, redirects.
Several of them share one `TinyLog`, so that leadership can move. It is not a mock of the client's calls: only bytes
pass between them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from holdfast.amqp import (
    ACCEPTED,
    RELEASED,
    ConnectionClosed,
    ConnectionOpened,
    Credit,
    DeliveryPrefix,
    Engine,
    Error,
    LinkDetached,
    LinkRequested,
    Message,
    Transfers,
    Value,
    decode_message,
    encode_message,
    ingest,
    int32,
    short,
    splice,
    symbol,
    timestamp,
    uint,
)
from holdfast.amqp.links.delivery_states import DeliveryState, Modified, Rejected
from holdfast.amqp.links.terminus import Source
from holdfast.amqp.messages.data_section import MAX_HEAD_BYTES, content_at
from holdfast.protocol import OPEN_NODES, RECORD_BATCHES
from holdfast.records.digests import digests_of_messages
from holdfast.records.record_batch import SEQUENCES, read_batch
from tests.ports import free_port
from tests.unit.client.support.tiny_producers import NAMES, TinyProducers, TinyRefusal


class TinyLog:
    """Partitions in memory: each a list of (timestamp, message)."""

    def __init__(self, name: str = "trades", partitions: int = 4) -> None:
        self.name = name
        self.partitions: dict[str, list[tuple[int, bytes]]] = {str(number): [] for number in range(partitions)}
        self.begins: dict[str, int] = {}  # where retention has left something
        self.hidden: dict[str, range] = {}  # what readers are not given
        self.leaders: dict[str, TinyNode] = {}
        self.readers: list[Callable[[], None]] = []
        self.producers = TinyProducers()

    def append(self, partition: str, payloads: list[bytes]) -> None:
        now_ms = int(time.time() * 1000)
        self.partitions[partition] += [(now_ms, ingest(payload).stored) for payload in payloads]
        for wake in list(self.readers):
            wake()

    def numbers(self, partition: str) -> list[int]:
        """The sequence numbers of what is stored, in order."""
        stored = [decode_message(payload).message_annotations for _, payload in self.partitions[partition]]
        return [int(annotations[NAMES[2]]) for annotations in stored]

    def bodies(self, partition: str) -> list[bytes]:
        return [decode_message(payload).body for _, payload in self.partitions[partition]]  # type: ignore[misc]


class TinyNode:
    """A listener. The attributes below are the mishaps; a test sets them before or while a client works."""

    def __init__(self, log: TinyLog) -> None:
        self.log = log
        self.port = 0
        self.connections: set[_ServerConnection] = set()
        self.attaches: list[tuple[str, str, str | None]] = []  # (role, address, partition), as they came
        self.answer: Callable[[bytes], DeliveryState | None] = lambda payload: ACCEPTED  # None: never
        self.after_transfers: Callable[[_ServerConnection, str, int], bool] | None = None  # True: do not answer them
        self.refuse: Callable[[str, str | None], Error | None] = lambda address, partition: None
        self.identities: list[dict[str, Any]] = []  # what idempotent producers said of themselves when they attached
        self.said: list[dict[str, Any]] = []  # properties of their attaches
        self.capabilities: list[tuple[str, ...]] = []  # desired by the attaches of producers
        self.answer_identity: Callable[[dict[str, Any]], dict[str, Any]] = lambda answer: answer
        self.max_message_size: int | None = None
        self.properties: dict[str, Any] = {}  # of its open
        self.silent = False  # attaches are never answered
        self.unavailable: set[str] = set()  # partitions whose leader cannot be asked for offsets
        self.most_granted = 0  # the highest credit a receiver ever had
        self.credit = 500
        self.takes_batches = True  # of links that are bound to a partition, as a node of this version does
        self.manage: Callable[[dict[str, Any], Any], tuple[dict[str, Any], Any]] | None = None
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> TinyNode:
        """Where it was before, if it crashed."""
        self.port = self.port or free_port()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _ServerConnection(self), "127.0.0.1", self.port)
        return self

    async def crash(self) -> None:
        """The listener and every connection go at once, without a word."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self.connections):
            connection.abort()
        await asyncio.sleep(0)

    def redirect_to(self, other: TinyNode) -> Error:
        info = {
            "hostname": "127.0.0.1",
            "network-host": "127.0.0.1",
            "port": uint(other.port),
            "address": self.log.name,
        }
        return Error("amqp:link:redirect", "the leader is elsewhere", {symbol(k): v for k, v in info.items()})

    def lead(self, *partitions: str) -> None:
        for partition in partitions or self.log.partitions:
            self.log.leaders[partition] = self

    def tell(self, *nodes: TinyNode) -> None:
        """Tell of these other nodes from now on: whoever connects, and by `$nodes`."""
        self.properties[OPEN_NODES] = [["127.0.0.1", uint(one.port), ""] for one in nodes]
        for connection in self.connections:
            connection.tell()

    def close_links(self, error: Error | None) -> None:
        """End every link of every connection, as a node does when leadership moves."""
        for connection in self.connections:
            connection.close_links(error)


class _ServerConnection(asyncio.Protocol):
    def __init__(self, node: TinyNode) -> None:
        self.node = node
        self.engine = Engine("server", container_id="tiny", idle_timeout_s=60, properties=node.properties)
        self.links: dict[Any, str | None] = {}
        self.sent: dict[Any, int] = {}
        self.torn: dict[Any, Rejected] = {}  # numbered links that end, and why
        self.behind_a_refusal: set[Any] = set()  # links that were refused an event, whose number is missing now
        self.replies: dict[str, Any] = {}
        self.watches: dict[Any, bool] = {}  # links to `$nodes`, and whether they have been told the latest
        self.transport: Any = None
        self._writable = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.node.connections.add(self)
        self.node.log.readers.append(self.wake)
        self.engine.tick(0.0)

    def connection_lost(self, error: Exception | None) -> None:
        self.node.connections.discard(self)
        self.node.log.readers.remove(self.wake)
        self.engine.free()

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self.wake()

    def abort(self) -> None:
        self.transport.abort()

    def close_links(self, error: Error | None) -> None:
        for link in list(self.links):
            link.close(error)
            self.links.pop(link, None)
            self.sent.pop(link, None)
            self.watches.pop(link, None)
        self.flush()

    def data_received(self, data: bytes) -> None:
        self.engine.receive(data)
        for event in self.engine.events():
            match event:
                case LinkRequested():
                    self.requested(event.link)
                case Transfers():
                    self.received(event)
                case Credit():
                    self.pour(event.link)
                case LinkDetached():
                    self.links.pop(event.link, None)
                    self.sent.pop(event.link, None)
                    self.watches.pop(event.link, None)
                case ConnectionOpened() | ConnectionClosed():
                    pass
        self.flush()

    def flush(self) -> None:
        while self._writable and (data := self.engine.data_to_send()):
            self.transport.write(data)
        if self.engine.output_done:
            self.transport.close()

    def tell(self) -> None:
        for link in self.watches:
            self.watches[link] = False
            self.pour(link)
        self.flush()

    def wake(self) -> None:
        for link in list(self.sent):
            self.pour(link)
        self.flush()

    # ---------------------------------------------------------------- links

    def requested(self, link: Any) -> None:
        address = link.remote_address or ""
        partition = link.remote_properties.get("event-streams-partition")
        self.node.attaches.append((link.role, address, partition))
        if self.node.silent:
            return
        log = self.node.log
        error = self.node.refuse(address, partition)
        if error is None and link.role == "sender" and getattr(link.remote_source, "dynamic", False):
            reply = f"$reply/{len(self.replies)}"
            self.replies[reply] = link
            link.accept(source=Source(address=reply))
            return
        known = {log.name, f"{log.name}/$info", "$management"}
        if OPEN_NODES in self.node.properties:
            known.add("$nodes")
        if error is None and (address not in known or (partition and partition not in log.partitions)):
            error = Error("amqp:not-found", f"there is no {address} {partition or ''}")
        leader = log.leaders.get(str(partition)) if partition else None
        if error is None and leader is not None and leader is not self.node:
            error = self.node.redirect_to(leader)
        if error is not None:
            link.refuse(error)
            return
        properties: dict[str, Any] = {"event-streams-partition": symbol(partition)} if partition else {}
        if link.role == "receiver" and partition and self.node.takes_batches:
            assert link.remote_properties[RECORD_BATCHES] == 1
            properties[RECORD_BATCHES] = uint(1)
        if link.role == "receiver" and partition:
            self.node.capabilities.append(link.remote_desired_capabilities)
            try:
                properties |= self.identity(link, str(partition))
            except TinyRefusal as refusal:
                link.refuse(refusal.error)
                return
        link.accept(properties=properties or None, max_message_size=self.node.max_message_size)
        self.links[link] = partition
        if link.role == "receiver":
            link.grant(self.node.credit)
        elif address == "$nodes":
            self.watches[link] = False
        elif address.endswith("$info"):
            self.sent[link] = -1
        else:
            self.sent[link] = self.start_of(link, str(partition))
            self.pour(link)

    def identity(self, link: Any, partition: str) -> dict[str, Any]:
        """What to answer to a sender that says who it is, or wants to know."""
        asked = {name: link.remote_properties[name] for name in NAMES if name in link.remote_properties}
        if not asked and "com.microsoft:idempotent-producer" not in link.remote_desired_capabilities:
            return {}
        self.node.identities.append(asked)
        self.node.said.append(dict(link.remote_properties))
        link.context = "numbered"
        return self.node.answer_identity(self.node.log.producers.open(partition, asked))

    def start_of(self, link: Any, partition: str) -> int:
        stored = self.node.log.partitions[partition]
        for described in link.remote_source.filter.values():
            for name, value in described.value.items():
                if name == "event-streams-timestamp":
                    return sum(1 for at_ms, _ in stored if at_ms <= int(value))
                if value == "@earliest":
                    return 0
                if value != "@latest":
                    return int(value, 16) + 1
        return len(stored)

    def pour(self, link: Any) -> None:
        """Send what there is credit for."""
        if link in self.watches:
            if link.credit > 0 and not self.watches[link]:
                self.watches[link] = True
                link.send_many([encode_message(Message(body=Value(self.node.properties[OPEN_NODES])))])
            return
        position = self.sent.get(link)
        self.node.most_granted = max(self.node.most_granted, link.credit)
        if position is None or link.credit < 1:
            return
        log = self.node.log
        if position == -1:
            entries = []
            for name, stored in self.node.log.partitions.items():
                last = symbol(f"{len(stored) - 1:016x}") if stored else None
                first = symbol(f"{log.begins.get(name, 0):016x}") if stored else None
                entry = {"partition": symbol(name), "earliest-offset": first, "latest-offset": last, "leader": 1}
                entry["latest-timestamp"] = timestamp(stored[-1][0]) if stored else None
                entries.append(entry | {"available": name not in self.node.unavailable})
            link.send_many([encode_message(Message(body=Value({"partitions": entries})))])
            self.sent.pop(link)
            return
        partition = str(self.links[link])
        position = max(position, log.begins.get(partition, 0))
        stored = log.partitions[partition][position : position + link.credit]
        prefix, hidden = DeliveryPrefix(partition), log.hidden.get(partition, range(0))
        numbered = [(position + place, *one) for place, one in enumerate(stored) if position + place not in hidden]
        link.send_many([splice(payload, prefix.build(number, at)) for number, at, payload in numbered])
        self.sent[link] = position + len(stored)

    def received(self, event: Transfers) -> None:
        link = event.link
        if link.remote_address == "$management":
            link.settle(event.deliveries)
            for payload in event.payloads:
                self.answer_request(decode_message(payload))
            link.grant(len(event.payloads))
            return
        if link not in self.links:  # it was ended
            return
        partition = self.links.get(link) or "0"  # an agnostic link: this node is simple-minded
        bound = self.links.get(link) is not None
        transfers = [_messages_in(payload) if bound else [payload] for payload in event.payloads]
        events = sum(map(len, transfers))
        if self.node.after_transfers is not None and self.node.after_transfers(self, str(partition), events):
            return
        for delivery, payloads in zip(event.deliveries, transfers, strict=True):
            state = self.outcome(link, str(partition), payloads)
            if state is not None:
                link.settle([delivery], state)
        torn = self.torn.pop(link, None)
        if torn is None:
            link.grant(len(event.payloads))
        else:
            link.close(torn.error)
            self.links.pop(link)

    def outcome(self, link: Any, partition: str, payloads: list[bytes]) -> DeliveryState | None:
        """Of what came in one transfer, which is stored as a whole or not at all."""
        states = [self.node.answer(payload) for payload in payloads]
        state = next((one for one in states if one is not ACCEPTED), ACCEPTED)
        if state is not ACCEPTED and not getattr(state, "delivery_failed", False):
            self.behind_a_refusal.add(link)
            return state
        new = payloads
        if link.context == "numbered":
            judged = [self.node.log.producers.judge(partition, payload) for payload in payloads]
            refused = next((one for one in judged if isinstance(one, Rejected)), None)
            if link in self.torn:  # a producer must not go on after a refusal
                return self.torn[link]
            if refused is not None:
                if link not in self.behind_a_refusal:
                    self.torn[link] = refused
                return refused
            self.behind_a_refusal.discard(link)
            new = [payload for payload, is_new in zip(payloads, judged, strict=True) if is_new]
        if new:
            self.node.log.append(partition, new)
        return state

    def answer_request(self, request: Message) -> None:
        assert self.node.manage is not None, "this test expects no request"
        arguments = request.body.value if isinstance(request.body, Value) else None
        properties, body = self.node.manage(dict(request.application_properties), arguments)
        reply = self.replies[str(request.reply_to)]
        message = Message(body=Value(body), correlation_id=request.message_id, application_properties=properties)
        reply.send_many([encode_message(message)])


def _messages_in(payload: bytes) -> list[bytes]:
    """Of the record batch in a transfer, each with its number."""
    start = content_at(payload[:MAX_HEAD_BYTES], len(payload))
    assert start is not None
    batch, end = read_batch(payload, start)
    assert end == len(payload)
    batch.check_content()
    messages, numbering = batch.messages(), batch.head.numbering
    if numbering is None:
        return messages
    assert batch.digests in (b"", digests_of_messages(messages)), "those of a producer that renews itself have none"
    bare, found = encode_message(Message(body=b"")), []
    for place, message in enumerate(messages):
        number = (numbering.base_sequence + place) % SEQUENCES
        annotations = dict(zip(NAMES, (numbering.producer_id, short(numbering.epoch), int32(number)), strict=True))
        whole = decode_message(message)
        if whole.message_annotations:
            found.append(
                encode_message(replace(whole, message_annotations={**whole.message_annotations, **annotations}))
            )
            continue
        front = encode_message(Message(body=b"", message_annotations=annotations))[: -len(bare)]
        found.append(front + message)
    return found


REJECTED = Rejected(Error("amqp:not-allowed", "this event is not wanted"))
UNKNOWN = Modified(delivery_failed=True)
__all__ = ["REJECTED", "RELEASED", "UNKNOWN", "TinyLog", "TinyNode"]
