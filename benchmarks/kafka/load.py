"""Producers and consumers of confluent-kafka behind the plan and the report that all drivers share.

Guarantee that is asked for: acks=all with an idempotent producer. Everything else is as the client comes, but for the
largest size of a message and what a plan's options name (a target may set `linger.ms`).
"""

from __future__ import annotations

from collections import deque
from time import perf_counter_ns
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from benchmarks.driver.bounded import POLL_S, BoundedLoad, Plan
from benchmarks.driver.link import LinkOptions
from benchmarks.driver.measure import Outcomes, Tally, Window
from benchmarks.driver.stamp import GREETING, Sequences, Template
from benchmarks.driver.wire import PeerError, Url

ATTACH_TIMEOUT_S = 15.0
SHORT_S = 0.001  # the wait of a loop with several endpoints, when none of them has anything
PARTITION = 0
MAX_MESSAGE_BYTES = 2 << 20  # bodies go up to 1 MiB, and the default leaves no room for what stands around them


class KafkaSender:
    """Keeps up to `window` events without a delivery report until it is told to stop."""

    def __init__(
        self, url: Url, name: str, options: LinkOptions, *,
        sender_id: int, body_bytes: int, window: int, count: int | None, tally: Tally, outcomes: Outcomes,
    ) -> None:  # fmt: skip
        self._topic = url.address
        self._template = Template(body_bytes, sender_id)
        self._window = window
        self._count = count
        self._left = 0
        self._tally, self._outcomes = tally, outcomes
        self._sent_ns: deque[int] = deque()  # an idempotent producer's reports come in the order of sending
        self._acked = 0
        self._heard = False
        self.sent = 0
        self.lost = self.hops = 0  # of AMQP's links: this client finds the leader by itself and sends again by itself
        self._producer = Producer(
            {
                "bootstrap.servers": f"{url.host}:{url.port}",
                "client.id": name,
                "acks": "all",
                "enable.idempotence": True,
                "message.max.bytes": MAX_MESSAGE_BYTES,
                "on_delivery": self._on_delivery,
                "error_cb": _ignore,  # what an error costs is in the delivery reports; else it is written to stderr
                "log_level": 0,
                **options.properties,
            }
        )

    def greet(self) -> None:
        """Now the connection, the producer's id and the leader's address are there."""
        problems: list[str] = []

        def heard(error: KafkaError | None, _: Message) -> None:
            problems.append("" if error is None else error.str())

        self._producer.produce(self._topic, GREETING, None, PARTITION, heard)
        self._producer.flush(ATTACH_TIMEOUT_S)
        if problems != [""]:
            raise PeerError(f"{self._topic}: the first event was not taken: {problems or 'no answer'}")

    def begin(self) -> None:
        self._left = self._count if self._count is not None else 1 << 62

    def stop(self) -> None:
        """No more new events; what is in flight is still waited for."""
        self._left = 0

    @property
    def done(self) -> bool:
        return self._left <= 0 and not self._sent_ns

    @property
    def unsettled(self) -> int:
        return len(self._sent_ns)

    def work(self, wait_s: float) -> bool:
        """Sends what the window allows, then takes the reports that are there; whether there were any."""
        number = min(self._window - len(self._sent_ns), self._left)
        if number > 0:
            produce, topic, stamp, body = self._producer.produce, self._topic, self._template.stamp, self._template.body
            now_ns = perf_counter_ns()
            for sequence in range(self.sent, self.sent + number):
                stamp(sequence, now_ns)
                produce(topic, bytes(body), None, PARTITION)
            self._sent_ns.extend([now_ns] * number)
            self.sent += number
            self._left -= number
        self._heard = False
        self._producer.poll(wait_s)
        return self._heard

    def _on_delivery(self, error: KafkaError | None, _: Message) -> None:
        self._heard = True
        sent_ns = self._sent_ns.popleft()
        if error is None:
            self._acked += 1
            self._tally.latencies_ns.append(perf_counter_ns() - sent_ns)
        else:
            self._outcomes.add(error.name(), error.str())

    def counted(self, now_ns: int, window: Window) -> None:
        if self._acked:
            self._tally.count(self._acked, now_ns, window)
            self._acked = 0

    def close(self) -> None:
        self._producer.purge()  # of what was given up, nothing is sent any more
        self._producer.flush(0)


class KafkaReceiver:
    """Reads one partition from a place that is known before it begins."""

    def __init__(
        self, url: Url, name: str, options: LinkOptions, *,
        credit: int, count: int | None, tally: Tally, latency: bool,
    ) -> None:  # fmt: skip
        self._at_once = credit
        self._left = count if count is not None else 1 << 62
        self._tally = tally
        self._latencies = tally.latencies_ns if latency else None
        self._sequences = Sequences()
        self._got = 0
        self.hops = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": f"{url.host}:{url.port}",
                "client.id": name,
                "group.id": name,  # the client wants one; nothing is committed
                "enable.auto.commit": False,
                "error_cb": _ignore,
                "log_level": 0,
                **options.properties,
            }
        )
        # Where the partition ends is asked its leader, so that the connection is there before anything counts.
        partition = TopicPartition(url.address, PARTITION)
        low, high = self._consumer.get_watermark_offsets(partition, timeout=ATTACH_TIMEOUT_S)
        start = {"earliest": low, "latest": high}.get(options.start)
        self._place = TopicPartition(url.address, PARTITION, int(options.start) if start is None else start)

    def begin(self) -> None:
        self._consumer.assign([self._place])

    @property
    def gaps(self) -> int:
        return self._sequences.gaps

    @property
    def repeats(self) -> int:
        return self._sequences.repeats

    @property
    def foreign(self) -> int:
        return self._sequences.foreign

    def stop(self) -> None:
        self._left = 0

    @property
    def done(self) -> bool:
        return self._left <= 0

    def work(self, wait_s: float) -> bool:
        """Takes what is there, waiting for the first of it; whether there was any."""
        first = self._consumer.poll(wait_s)  # `consume` would wait until it has as many as it is asked for
        if first is None:
            return False
        messages = [first, *self._consumer.consume(self._at_once, 0)]
        for message in messages:
            if (error := message.error()) is not None:
                raise PeerError(f"{self._place.topic}: a consumer was told: {error.str()}")
        bodies = [body for message in messages if (body := message.value() or b"") != GREETING]
        sent = self._sequences.take(bodies)
        self._got += len(bodies)
        if self._latencies is not None:
            now_ns = perf_counter_ns()
            self._latencies.extend(now_ns - sent_ns for sent_ns in sent)
        return True

    def counted(self, now_ns: int, window: Window) -> None:
        if self._got:
            self._tally.count(self._got, now_ns, window)
            self._left -= self._got
            self._got = 0

    def close(self) -> None:
        self._consumer.close()


class KafkaLoad(BoundedLoad[KafkaSender, KafkaReceiver]):
    """All endpoints in turn, in one thread: the library's own threads wait for sockets, this one for the library."""

    @property
    def _endpoints(self) -> list[KafkaSender | KafkaReceiver]:
        return [*self.senders, *self.receivers]

    def _attach(self, run: int) -> None:
        plan = self.plan
        try:
            for index in range(plan.senders):
                self.senders.append(self._sender(plan, run, index))
            for sender in self.senders:
                sender.greet()
            for index in range(plan.receivers):
                self.receivers.append(self._receiver(plan, run, index))
        except KafkaException as error:
            raise PeerError(f"{plan.name}: {error}") from error
        for receiver in self.receivers:
            receiver.begin()

    def _sender(self, plan: Plan, run: int, index: int) -> KafkaSender:
        return KafkaSender(
            plan.send_urls[index % len(plan.send_urls)], f"{plan.name}-{run}-sender-{index}", plan.send_options,
            sender_id=run << 8 | index & 0xFF, body_bytes=plan.size, window=plan.window, count=plan.count,
            tally=self.sent, outcomes=self.outcomes,
        )  # fmt: skip

    def _receiver(self, plan: Plan, run: int, index: int) -> KafkaReceiver:
        return KafkaReceiver(
            plan.receive_urls[index % len(plan.receive_urls)], f"{plan.name}-{run}-receiver-{index}",
            plan.receive_options, credit=plan.credit, count=None if plan.senders else plan.count,
            tally=self.received, latency=plan.receive_latency,
        )  # fmt: skip

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


def _ignore(error: Any) -> None:
    """librdkafka tries again by itself."""
