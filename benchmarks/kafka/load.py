"""Producers and consumers of confluent-kafka behind the plan and the report that all drivers share.

The producer is idempotent, with acks=all. All other settings are the client's defaults, except for the largest size of
a message and the options of a plan (a target may set `linger.ms`).
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from benchmarks.driver.bounded import POLL_S
from benchmarks.driver.library import AT_ONCE, LibraryLoad, LibraryReceiver, LibrarySender, LinkEnd
from benchmarks.driver.measure import Window
from benchmarks.driver.stamp import GREETING
from benchmarks.driver.wire import PeerError, Url

ATTACH_TIMEOUT_S = 15.0
SHORT_S = 0.001  # wait of a loop with several endpoints when none of them has events
PARTITION = 0
MAX_MESSAGE_BYTES = 2 << 20  # a body may have 1 MiB, and the default leaves no room for its envelope


class KafkaSender(LibrarySender):
    def __init__(self, end: LinkEnd) -> None:
        super().__init__(end, end.plan.fixed_window)
        self._topic = end.url.address
        self._partitions = end.plan.partitions
        self._heard = False
        self._producer = Producer(
            {
                **_common(end.url, end.name),
                "acks": "all",
                "enable.idempotence": True,
                "message.max.bytes": MAX_MESSAGE_BYTES,
                "on_delivery": self._on_delivery,
                **end.options.properties,
            }
        )

    def greet(self) -> None:
        """Send a first event, so that the connection, the producer id and the leaders' addresses are known."""
        problems: list[str] = []

        def heard(error: KafkaError | None, _: Message) -> None:
            problems.append("" if error is None else error.str())

        for partition in range(self._partitions):
            self._producer.produce(self._topic, GREETING, None, partition, heard)
        self._producer.flush(ATTACH_TIMEOUT_S)
        if problems != [""] * self._partitions:
            raise PeerError(f"{self._topic}: the first event was not taken: {problems or 'no answer'}")

    def work(self, wait_s: float) -> bool:
        """Send some events that the window allows, then take reports; return whether there was any work."""
        number = min(self.room, AT_ONCE)
        if number > 0:
            produce, topic = self._producer.produce, self._topic
            partition, bodies, now_ns = self.next_bodies(number)
            self._sent_ns[partition].extend([now_ns] * number)
            for body in bodies:
                produce(topic, body, None, partition)
        self._heard = False
        self._producer.poll(0 if self.room > 0 else wait_s)
        return self._heard or self.room > 0

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        self._heard = True
        partition = message.partition()
        if error is None:
            self.confirmed(partition)
        else:
            self.refused(partition, error.name(), error.str())

    def close(self) -> None:
        self._producer.purge()  # events that were given up are not sent any more
        self._producer.flush(0)


class KafkaReceiver(LibraryReceiver):
    def __init__(self, end: LinkEnd) -> None:
        super().__init__(end)
        self._consumer = Consumer(
            {
                **_common(end.url, end.name),
                "group.id": end.name,  # the client needs one; nothing is committed
                "enable.auto.commit": False,
                # By default the client pauses fetching for a second once 64 MiB wait to be polled.
                "fetch.queue.backoff.ms": 10,
                **end.options.properties,
            }
        )
        # Asking the leader for the partition's ends also opens the connection before the measurement.
        topic, start = end.url.address, end.options.start
        low, high = self._consumer.get_watermark_offsets(TopicPartition(topic, PARTITION), timeout=ATTACH_TIMEOUT_S)
        place = {"earliest": low, "latest": high}.get(start)
        self._place = TopicPartition(topic, PARTITION, int(start) if place is None else place)

    def begin(self) -> None:
        self._consumer.assign([self._place])

    def work(self, wait_s: float) -> bool:
        """Wait for a message, then take all that are there; return whether there was any."""
        first = self._consumer.poll(wait_s)  # `consume` would wait until it has as many as it is asked for
        if first is None:
            return False
        messages = [first, *self._consumer.consume(self._at_once, 0)]
        for message in messages:
            if (error := message.error()) is not None:
                raise PeerError(f"{self._place.topic}: a consumer was told: {error.str()}")
        self.take([message.value() or b"" for message in messages])
        return True

    def close(self) -> None:
        self._consumer.close()


class KafkaLoad(LibraryLoad[KafkaSender, KafkaReceiver]):
    """A run on Kafka: one thread serves all endpoints in turn, and the library's own threads wait for sockets."""

    def _attach(self, run: int) -> None:
        try:
            for end in self._sending_ends(run):
                self.senders.append(KafkaSender(end))
            for sender in self.senders:
                sender.greet()
            for end in self._receiving_ends(run):
                self.receivers.append(KafkaReceiver(end))
        except KafkaException as error:
            raise PeerError(f"{self.plan.name}: {error}") from error
        for receiver in self.receivers:
            receiver.begin()

    def _turn(self, window: Window) -> None:
        try:
            self._work(window)
        except (KafkaException, BufferError) as error:
            raise PeerError(f"{self.plan.name}: {error}") from error

    def _work(self, window: Window) -> None:
        endpoints = self._endpoints
        alone = len(endpoints) == 1
        heard = False
        for endpoint in endpoints:
            heard |= endpoint.work(POLL_S if alone else 0.0)
            endpoint.counted(perf_counter_ns(), window)
        if not heard and not alone:
            endpoints[-1].work(SHORT_S)
            endpoints[-1].counted(perf_counter_ns(), window)

    def _close(self) -> None:
        for endpoint in self._endpoints:
            endpoint.close()


def _common(url: Url, name: str) -> dict[str, Any]:
    """Return the settings of all clients. Errors are ignored, not logged: delivery reports show their effects."""
    return {"bootstrap.servers": f"{url.host}:{url.port}", "client.id": name, "error_cb": _ignore, "log_level": 0}


def _ignore(error: Any) -> None:
    """Ignore an error, since librdkafka tries again by itself."""
