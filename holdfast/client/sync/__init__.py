"""The client for programs without an event loop: the same names, the same arguments, calls that wait.

    from holdfast.client.sync import ProducerClient

    with ProducerClient("127.0.0.1:5672", "trades") as producer:
        producer.send(b"...", key="IBM")
        producer.flush()

Each client here is one of `holdfast.client` that lives on a thread of its own; every method hands its call over and
waits. What is said there holds here, errors included. Differences: iteration is plain `for`; a `Delivery` is not
awaited but asked for its `result()`; callbacks (`done`, `on_confirmed`) run on the client's thread, and must not call
the client. Clients may be shared between threads. For many events prefer `send_many`, or `send_batch`; to
confirm single events one by one costs a round trip each.
"""

from holdfast.client.events import Event
from holdfast.client.produce.event_batch import EventBatch
from holdfast.client.start_position import Start
from holdfast.client.sync.clients import (
    AdminClient,
    ChunkDelivery,
    ConsumerClient,
    Delivery,
    GroupMember,
    ProducerClient,
    RangeClient,
    Transaction,
    TransactionGroup,
)

__all__ = [
    "AdminClient", "ChunkDelivery", "ConsumerClient", "Delivery", "Event", "EventBatch", "GroupMember",
    "ProducerClient", "RangeClient", "Start", "Transaction", "TransactionGroup",
]  # fmt: skip
