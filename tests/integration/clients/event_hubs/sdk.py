"""The Python SDK of Event Hubs against a cluster: connection strings, and readers that end by themselves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

eventhub = pytest.importorskip("azure.eventhub", reason="the SDK azure-eventhub is not installed")

WITHIN_S = 180
"""For what must happen at all."""


def producer(text: str, **options: Any) -> Any:
    return eventhub.EventHubProducerClient.from_connection_string(text, **options)


def consumer(text: str, group: str = "$Default", **options: Any) -> Any:
    return eventhub.EventHubConsumerClient.from_connection_string(text, group, **options)


def send(text: str, partition: str, bodies: Sequence[str]) -> None:
    """Send a batch to a partition."""
    with producer(text) as sender:
        batch = sender.create_batch(partition_id=partition)
        for body in bodies:
            batch.add(eventhub.EventData(body))
        sender.send_batch(batch)


class Reading:
    """Receives in a thread of its own, until told to stop."""

    def __init__(self, client: Any, **options: Any) -> None:
        self.events: list[Any] = []  # (partition, event, context), in their order
        self.seen: set[str] = set()  # their bodies
        self.errors: list[Exception] = []
        self.changed = threading.Condition()
        self._client = client
        self._thread = threading.Thread(target=self._run, kwargs=options, daemon=True)
        self._thread.start()

    def _run(self, **options: Any) -> None:
        self._client.receive(self._on_event, on_error=self._on_error, max_wait_time=0.2, **options)

    def _on_event(self, context: Any, event: Any) -> None:
        with self.changed:
            if event is not None:
                self.events.append((context.partition_id, event, context))
                self.seen.add(event.body_as_str())
            self.changed.notify_all()

    def _on_error(self, context: Any, error: Exception) -> None:
        with self.changed:
            self.errors.append(error)
            self.changed.notify_all()

    def until(self, reached: Callable[[Reading], object]) -> Reading:
        with self.changed:
            assert self.changed.wait_for(lambda: reached(self), WITHIN_S), (self.bodies, self.errors)
        return self

    def stop(self) -> Reading:
        self._client.close()
        self._thread.join(WITHIN_S)
        assert not self._thread.is_alive(), "the consumer does not end"
        return self

    @property
    def bodies(self) -> list[str]:
        return [event.body_as_str() for _, event, _ in self.events]


def read(text: str, count: int, group: str = "$Default", **options: Any) -> list[Any]:
    """Receive so many events, from the start unless another position is given. An error of the consumer fails."""
    options.setdefault("starting_position", "-1")
    reading = Reading(consumer(text, group), **options)
    reading.until(lambda now: len(now.events) >= count or now.errors)
    reading.stop()
    assert not reading.errors
    return [event for _, event, _ in reading.events]
