"""Stock python-qpid-proton as a stranger would use it: `BlockingConnection`, `MessagingHandler`, nothing of Holdfast.

`Batcher` and `Collector` are handlers run in a thread of their own, because a thousand messages in flight is what a
blocking sender cannot do.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from proton import Described, Disposition, Message, symbol, timestamp, ulong
from proton.handlers import MessagingHandler
from proton.reactor import AtMostOnce, Container, Filter, LinkOption
from proton.utils import BlockingConnection

from tests.integration.workloads.beside import Beside

WAIT_S = 120.0
"""A bound for what must happen at all."""

OFFSET = "event-streams-offset"
TIMESTAMP = "event-streams-timestamp"
SOURCE = "event-streams-source-partition"
TARGET = "event-streams-target-partition"
PARTITION = "event-streams-partition"
GROUP_KEY = "event-streams-group-key"

STREAMS = "AMQP_EVENT_STREAMS_V1_0"
REDIRECT = "amqp:link:redirect"

OUTCOMES = {
    Disposition.ACCEPTED: "accepted",
    Disposition.REJECTED: "rejected",
    Disposition.RELEASED: "released",
    Disposition.MODIFIED: "modified",
}


class Bound(LinkOption):
    """Attach to one partition."""

    def __init__(self, partition: str | None, **more: Any) -> None:
        self._properties = {} if partition is None else {symbol(PARTITION): symbol(partition)}
        self._properties.update({symbol(key): value for key, value in more.items()})

    def apply(self, link: Any) -> None:
        if self._properties:
            link.properties = self._properties


class Limited(LinkOption):
    """Attach with a limit of the size of messages."""

    def __init__(self, max_message_size: int) -> None:
        self._size = max_message_size

    def apply(self, link: Any) -> None:
        link.max_message_size = self._size


class Presettled(AtMostOnce):
    """Everything is sent settled."""


def starting(**comparands: Any) -> Filter:
    """The delivery-annotations filter; `offset` and `time_ms` as given, without a check."""
    value: dict[Any, Any] = {}
    if "offset" in comparands:
        value[symbol(OFFSET)] = symbol(comparands["offset"])
    if "time_ms" in comparands:
        value[symbol(TIMESTAMP)] = timestamp(comparands["time_ms"])
    return Filter({symbol("start"): Described(ulong(0x200), value)})


EARLIEST = {"offset": "@earliest"}
LATEST = {"offset": "@latest"}


@contextlib.contextmanager
def connected(address: str, **options: Any) -> Iterator[BlockingConnection]:
    connection = BlockingConnection(address, timeout=WAIT_S, **options)
    try:
        yield connection
    finally:
        with contextlib.suppress(Exception):  # it may be what the test broke
            connection.close()


@dataclass(frozen=True)
class Received:
    """One event as the stock client sees it."""

    body: Any
    offset: str
    timestamp_ms: int
    partition: str
    message: Message

    @staticmethod
    def of(message: Message) -> Received:
        notes = {str(key): value for key, value in (message.instructions or {}).items()}
        body = message.body
        return Received(
            bytes(body) if isinstance(body, memoryview) else body,
            str(notes[OFFSET]),
            int(notes[TIMESTAMP]),
            str(notes[SOURCE]),
            message,
        )


def send(address: str, log: str, bodies: Sequence[Any], partition: str | None = None) -> None:
    """One after the other, each confirmed before the next."""
    with connected(address) as connection:
        sender = connection.create_sender(log, options=[Bound(partition)])
        for body in bodies:
            sender.send(Message(body=body))


def read(
    address: str, log: str, count: int, partition: str | None = None, start: dict[str, Any] | None = None
) -> list[Received]:
    """The first `count` events from a place (default: the earliest), and the proof that there are no more."""
    with connected(address) as connection:
        options = [Bound(partition), starting(**(start if start is not None else EARLIEST))]
        receiver = connection.create_receiver(log, credit=min(max(1, count), 1000), options=options)
        found = []
        for _ in range(count):
            found.append(Received.of(receiver.receive(timeout=WAIT_S)))
            receiver.accept()
        return found


# ---------------------------------------------------------------------------------------------- in threads


class Threaded(MessagingHandler, Beside):
    """A handler whose container runs beside the test."""

    def __init__(self, **options: Any) -> None:
        MessagingHandler.__init__(self, **options)
        Beside.__init__(self, type(self).__name__)
        self.container = Container(self)

    def _main(self) -> None:
        self.container.run()

    def let_go(self) -> None:
        super().let_go()
        self.container.stop()


class LaterAnswer:
    """Work for the container's thread, when a timer is due."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.on_timer_task = lambda event: work()


@dataclass
class PlainAnswers:
    """What became of messages, by their number."""

    outcomes: dict[int, str] = field(default_factory=dict)
    conditions: dict[int, str] = field(default_factory=dict)
    descriptions: dict[int, str] = field(default_factory=dict)

    def of_kind(self, outcome: str) -> list[int]:
        return [number for number, found in self.outcomes.items() if found == outcome]


class Batcher(Threaded):
    """Sends messages as fast as credit allows, all in flight at once, and ends when each is answered."""

    def __init__(
        self, address: str, log: str, messages: Sequence[Message], partition: str | None = None, settled: bool = False
    ) -> None:
        super().__init__(auto_settle=True)
        self.answers = PlainAnswers()
        self.most_in_flight = 0
        self._address, self._log, self._partition = address, log, partition
        self._messages, self._settled = messages, settled
        self._next = 0
        self._numbers: dict[str, int] = {}
        self._connection: Any = None

    def on_start(self, event: Any) -> None:
        self._connection = event.container.connect(self._address, reconnect=False)
        options: list[Any] = [Bound(self._partition)] + ([Presettled()] if self._settled else [])
        event.container.create_sender(self._connection, self._log, options=options)

    def on_sendable(self, event: Any) -> None:
        while event.sender.credit and self._next < len(self._messages):
            delivery = event.sender.send(self._messages[self._next])
            if not self._settled:
                self._numbers[delivery.tag] = self._next
            self._next += 1
        self.most_in_flight = max(self.most_in_flight, len(self._numbers))
        if self._settled and self._next == len(self._messages):
            self._connection.close()

    def on_settled(self, event: Any) -> None:
        delivery = event.delivery
        number = self._numbers.pop(delivery.tag, None)
        if number is None:
            return
        self.answers.outcomes[number] = OUTCOMES.get(delivery.remote_state, str(delivery.remote_state))
        condition = delivery.remote.condition if delivery.remote_state == Disposition.REJECTED else None
        if condition is not None:
            self.answers.conditions[number] = condition.name
            self.answers.descriptions[number] = condition.description
        if self._next == len(self._messages) and not self._numbers:
            self._connection.close()

    def on_transport_error(self, event: Any) -> None:
        raise ConnectionError(f"the transport failed: {event.transport.condition}")

    def on_link_error(self, event: Any) -> None:
        raise ConnectionError(f"the link failed: {event.link.remote_condition}")

    on_connection_error = on_link_error


class Collector(Threaded):
    """Receives until it has `count` events, settling as it goes; `wait_attached` tells that its place is fixed."""

    def __init__(
        self,
        address: str,
        log: str,
        count: int,
        *,
        partition: str | None = None,
        start: dict[str, Any] | None = None,
        prefetch: int = 500,
    ) -> None:
        super().__init__(prefetch=prefetch)
        self.events: list[Received] = []
        self._address, self._log, self._count = address, log, count
        self._options: list[Any] = [Bound(partition)] + ([] if start is None else [starting(**start)])
        self._attached = threading.Event()
        self._connection: Any = None

    def on_start(self, event: Any) -> None:
        self._connection = event.container.connect(self._address, reconnect=False)
        event.container.create_receiver(self._connection, self._log, options=self._options)

    def on_link_opened(self, event: Any) -> None:
        self._attached.set()

    def wait_attached(self) -> Collector:
        assert self._attached.wait(WAIT_S), f"the receiver was not attached (failure: {self.failure})"
        return self

    def on_message(self, event: Any) -> None:
        if len(self.events) < self._count:
            self.events.append(Received.of(event.message))
            if len(self.events) == self._count:
                self._connection.close()

    def on_transport_error(self, event: Any) -> None:
        raise ConnectionError(f"the transport failed: {event.transport.condition}")

    def on_link_error(self, event: Any) -> None:
        raise ConnectionError(f"the link failed: {event.link.remote_condition}")


class Heartbeat:
    """A client that goes on producing to and consuming from a log of its own while the test does something nasty.

    Every event is confirmed, and has come back, before the next; there is one before the test's deed and one after.
    """

    def __init__(self, out: str, back: str, log: str, pause_s: float = 0.01) -> None:
        self.sent = 0
        self.longest_s = 0.0
        self._out, self._back, self._log, self._pause_s = out, back, log, pause_s
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._failure: BaseException | None = None

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        self.wait_beats(1)
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if error is None:
            self.wait_beats(2)  # one that began after the deed
        self._ending.set()
        self._thread.join(2 * WAIT_S)
        if error is None:
            assert not self._thread.is_alive(), "others' connections hang"

    def wait_beats(self, count: int) -> None:
        goal = self.sent + count
        deadline = time.monotonic() + WAIT_S
        while self.sent < goal:
            if self._failure is not None:
                raise AssertionError("others' connections suffered") from self._failure
            assert time.monotonic() < deadline, f"others' connections hang since beat {self.sent}"
            time.sleep(0.005)

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as problem:  # noqa: BLE001 - raised by wait_beats
            self._failure = problem

    def _work(self) -> None:
        with connected(self._out) as out, connected(self._back) as back:
            sender = out.create_sender(self._log, options=[Bound("0")])
            receiver = back.create_receiver(self._log, credit=100, options=[Bound("0"), starting(**LATEST)])
            while not self._ending.is_set():
                body = f"beat {self.sent}"
                started = time.monotonic()
                sender.send(Message(body=body))
                got = receiver.receive(timeout=WAIT_S)
                receiver.accept()
                assert got.body == body, f"sent {body!r}, received {got.body!r}"
                self.longest_s = max(self.longest_s, time.monotonic() - started)
                self.sent += 1
                self._ending.wait(self._pause_s)
