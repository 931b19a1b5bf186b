"""The broker under test, as stock python-qpid-proton sees it.

Nothing of Holdfast is used here: connections are `BlockingConnection`s, logs are made through AMQP management (create
and delete of type `log`, as docs/reference/protocol.md describes) or named by whoever runs the suite. All checks share
one log of several partitions, so no check may assume that it is empty: each marks its events.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from proton import Data, Described, Endpoint, Message, symbol, timestamp, ulong
from proton.reactor import AtMostOnce, Container, Filter, LinkOption
from proton.utils import BlockingConnection, BlockingReceiver, BlockingSender, LinkDetached, SendException

from tests.conformance.rules import NotApplicable

CAPABILITY = "AMQP_EVENT_STREAMS_V1_0"
REDIRECT = "amqp:link:redirect"

PARTITION = "event-streams-partition"
GROUP = "event-streams-consumer-group"
EPOCH = "event-streams-epoch"
OFFSET = "event-streams-offset"
TIMESTAMP = "event-streams-timestamp"
SOURCE_PARTITION = "event-streams-source-partition"
TARGET_PARTITION = "event-streams-target-partition"
GROUP_KEY = "event-streams-group-key"
CHANGED = "event-streams-associated-partitions-changed"

ANNOTATIONS_FILTER, SQL_FILTER = 0x200, 0x201
PARTITIONS = 4
"""Of a log that the suite makes."""

CREATE_TRIES_S = 20.0
"""For a log that was just made to be known and led everywhere."""


class Properties(LinkOption):
    """Link properties."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = {symbol(key): value for key, value in values.items()}

    def apply(self, link: Any) -> None:
        if self._values:
            link.properties = self._values


class Durable(LinkOption):
    """A source that outlives its link."""

    def apply(self, link: Any) -> None:
        link.source.durability = 2
        link.source.expiry_policy = 3  # never


def annotations_filter(**comparands: Any) -> Described:
    """Of `offset` and `time`; as they are given."""
    names = {"offset": OFFSET, "time": TIMESTAMP}
    return Described(ulong(ANNOTATIONS_FILTER), {symbol(names[key]): value for key, value in comparands.items()})


def sql_filter(text: str, code: int = SQL_FILTER) -> Described:
    return Described(ulong(code), text)


EARLIEST = annotations_filter(offset=symbol("@earliest"))
LATEST = annotations_filter(offset=symbol("@latest"))


@dataclass(frozen=True)
class SeenEvent:
    """One delivery."""

    body: Any
    notes: Mapping[str, Any]
    message: Message

    @staticmethod
    def of(message: Message) -> SeenEvent:
        return SeenEvent(
            message.body, {str(key): value for key, value in (message.instructions or {}).items()}, message
        )

    def note(self, name: str) -> Any:
        assert name in self.notes, f"a delivery has no {name}"
        return self.notes[name]

    @property
    def offset(self) -> str:
        return str(self.note(OFFSET))

    @property
    def time_ms(self) -> int:
        return int(self.note(TIMESTAMP))

    @property
    def partition(self) -> str:
        return str(self.note(SOURCE_PARTITION))


@dataclass
class BrokerUnderTest:
    """`log`: a log with at least two partitions; made by the suite if not given, and deleted in the end."""

    url: str
    log: str = ""
    timeout_s: float = 10.0
    _made: list[str] = field(default_factory=list)
    _partitions: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url if "//" in self.url else f"amqp://{self.url}")
        self.log = self.log or unquote(parts.path.removeprefix("/"))
        self.url = f"{parts.scheme}://{parts.netloc}"

    # ------------------------------------------------------------------------------------------- logs

    def prepare(self) -> BrokerUnderTest:
        """Makes the log that the checks share, unless there is one."""
        if not self.log:
            self.log = self.make("conformance")
        return self

    def make(self, prefix: str, partitions: int = PARTITIONS) -> str:
        """A log of its own. Raises LookupError where the suite does not know how."""
        name = f"{prefix}-{uuid.uuid4().hex[:10]}"
        status, text = self.manage("create", name, {"partitions": partitions})
        if status not in (200, 201):
            raise LookupError(f"this broker does not make logs through $management: {status} {text}")
        self._made.append(name)
        deadline = time.monotonic() + CREATE_TRIES_S
        while not all(entry.get("leader", 1) and entry.get("available", True) for entry in self.info(name)):
            assert time.monotonic() < deadline, f"log {name} has partitions without a leader"
        return name

    def manage(self, operation: str, name: str, arguments: Mapping[str, Any]) -> tuple[int, str]:
        """A request to the broker's $management: status and description."""
        with self.visit() as connection:
            try:
                requests = connection.create_sender("$management")
                answers = connection.create_receiver("$management", credit=1)
            except LinkDetached as refusal:
                return 501, str(refusal)
            properties = {"type": "log", "operation": operation, "name": name}
            requests.send(Message(id=uuid.uuid4().hex, properties=properties, body=dict(arguments)))
            answer = answers.receive(timeout=self.timeout_s).properties
            return int(answer.get("status-code", 500)), str(answer.get("status-description", ""))

    def close(self) -> None:
        """Deletes what the suite made."""
        for name in self._made:
            self.manage("delete", name, {})
        self._made.clear()

    def info(self, log: str | None = None) -> list[dict[str, Any]]:
        """The entries of `<log>/$info`."""
        with self.visit() as connection:
            receiver = connection.create_receiver(f"{log or self.log}/$info", credit=1)
            return [
                {str(key): value for key, value in entry.items()}
                for entry in receiver.receive(timeout=self.timeout_s).body["partitions"]
            ]

    @property
    def partitions(self) -> list[str]:
        with self._lock:
            if not self._partitions:
                self._partitions = [str(entry["partition"]) for entry in self.info()]
            return self._partitions

    # ------------------------------------------------------------------------------------------- links

    @contextlib.contextmanager
    def visit(self, *desired: str, container_id: str | None = None, url: str | None = None) -> Iterator[Any]:
        """A connection that desires these capabilities."""
        container = Container()
        if container_id is not None:
            container.container_id = container_id
        more = {"desired_capabilities": [symbol(name) for name in desired]} if desired else {}
        connection = BlockingConnection(url or self.url, timeout=self.timeout_s, container=container, **more)
        try:
            yield connection
        finally:
            with contextlib.suppress(Exception):  # it may be what the broker broke
                connection.close()

    def sender(self, connection: Any, partition: str | None = None, log: str | None = None) -> BlockingSender:
        properties = {} if partition is None else {PARTITION: symbol(partition)}
        return connection.create_sender(log or self.log, name=link_name(), options=[Properties(properties)])

    def receiver(
        self,
        connection: Any,
        *filters: Any,
        partition: str | None = None,
        group: str | None = None,
        epoch: Any = None,
        log: str | None = None,
        credit: int = 0,
        **more: Any,
    ) -> BlockingReceiver:
        """Filters are described values; anything else that is not None is passed on as it is."""
        properties: dict[str, Any] = {}
        if partition is not None:
            properties[PARTITION] = symbol(partition)
        if group is not None:
            properties[GROUP] = group
        if epoch is not None:
            properties[EPOCH] = epoch
        options: list[Any] = [Properties(properties), *more.pop("options", ())]
        if filters:
            options.append(Filter({symbol(f"filter-{number}"): value for number, value in enumerate(filters)}))
        more.setdefault("name", link_name())
        try:
            return connection.create_receiver(log or self.log, credit=credit, options=options, **more)
        except LinkDetached as refusal:
            if group is not None and refusal.condition == "amqp:not-implemented":
                raise NotApplicable("1: capabilities may be left out; this node has no consumer groups") from None
            raise

    def take(self, receiver: BlockingReceiver, count: int) -> list[SeenEvent]:
        """The next `count` events, settled."""
        found = []
        if receiver.link.credit < count:
            receiver.link.flow(count - receiver.link.credit)
        for _ in range(count):
            found.append(SeenEvent.of(receiver.receive(timeout=self.timeout_s)))
            receiver.accept()
        return found

    def until(self, receiver: BlockingReceiver, body: Any, most: int = 10_000) -> list[SeenEvent]:
        """All events up to the one with this body, that one included."""
        found: list[SeenEvent] = []
        while not found or found[-1].body != body:
            assert len(found) < most, f"{most} events came, {body!r} was not among them"
            found += self.take(receiver, 1)
        return found

    def publish(self, bodies: Iterable[Any], partition: str | None = None, log: str | None = None) -> None:
        """One after the other, each accepted before the next."""
        with self.visit() as connection:
            sender = self.sender(connection, partition, log)
            for body in bodies:
                sender.send(Message(body=body))

    def stored(self, bodies: list[Any], partition: str, log: str | None = None) -> list[SeenEvent]:
        """Publishes, and returns the events as they are delivered."""
        with self.visit() as connection:
            receiver = self.receiver(connection, partition=partition, log=log)
            self.publish(bodies, partition, log)
            return self.take(receiver, len(bodies))

    def refused(self, attach: Callable[[], Any]) -> str:
        """The condition with which an attach is refused."""
        try:
            attach()
        except LinkDetached as refusal:
            assert refusal.condition, "the attach was refused without an error"
            return str(refusal.condition)
        raise AssertionError("the attach was not refused")

    def closed(self, connection: Any, link: Any) -> str | None:
        """Waits until the broker closes the link; returns its error's condition, None if there is none."""
        with contextlib.suppress(LinkDetached):
            connection.wait(
                lambda: bool(link.state & Endpoint.REMOTE_CLOSED), timeout=self.timeout_s, msg="the link to be closed"
            )
        condition = link.remote_condition
        return None if condition is None else str(condition.name)


def properties_of(link: Any) -> dict[str, Any]:
    """The link properties in the broker's answer."""
    return {str(key): value for key, value in (link.remote_properties or {}).items()}


def filters_of(link: Any) -> dict[str, Any]:
    """The filters that the broker says are in force."""
    data: Data = link.remote_source.filter
    data.rewind()
    found = data.get_object() if data.next() else None
    return {str(key): value for key, value in (found or {}).items()}


def link_name() -> str:
    """proton's own are the same for all links to an address."""
    return f"link-{uuid.uuid4().hex[:10]}"


def marks(count: int) -> list[str]:
    """Bodies that no other check uses."""
    run = uuid.uuid4().hex[:8]
    return [f"{run}-{number}" for number in range(count)]


def bodies(events: Iterable[SeenEvent]) -> list[Any]:
    return [event.body for event in events]


__all__ = [
    "AtMostOnce", "BrokerUnderTest", "LinkDetached", "Message", "SeenEvent", "SendException", "symbol", "timestamp",
]  # fmt: skip
