"""What the tests of Spark write into logs."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.client.sync import Event, ProducerClient
from tests.integration.clusters.cluster import Cluster


def fill(cluster: Cluster, log: str, events: Iterable[Event], partition: str = "0") -> None:
    """In this order, confirmed, without numbers."""
    with ProducerClient(cluster.addresses, log, idempotent=False) as producer:
        producer.send_batch(list(events), partition=partition)


def numbered(count: int, prefix: str = "e", first: int = 0) -> list[Event]:
    return [Event(f"{prefix}{number}", key=f"k{number % 3}") for number in range(first, first + count)]


def rolled_back(cluster: Cluster, log: str, count: int, partition: str = "0") -> None:
    """A transaction that counts for nothing: its events take offsets, and nobody is given them."""
    with ProducerClient(cluster.addresses, log) as producer:
        tx = producer.transaction()
        tx.begin()
        for delivery in [tx.send(b"never", partition=partition) for _ in range(count)]:
            delivery.result()
        tx.abort()


def committed(cluster: Cluster, log: str, bodies: Iterable[bytes], partition: str = "0") -> None:
    with ProducerClient(cluster.addresses, log) as producer, producer.transaction() as tx:
        for body in bodies:
            tx.send(body, partition=partition)
