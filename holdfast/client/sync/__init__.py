"""The client for programs without an event loop: the same names and arguments, with calls that block.

    from holdfast.client.sync import ProducerClient

    with ProducerClient("127.0.0.1:5672", "trades") as producer:
        producer.send(b"...", key="IBM")
        producer.flush()

Each client here wraps one of `holdfast.client` that runs on a thread of its own: a method has its call made there, and
waits. Methods and errors are as described there, but iteration is plain `for`, a `Delivery` has `result()` instead of
`await`, and callbacks (`done`, `on_confirmed`) run on the client's thread, and must not call the client. That thread
also keeps the lease of a `GroupMember`, as long as the process lives.

Threads may share a client; another process opens its own. For many events prefer `send_many` or `send_batch`:
confirming single events one by one costs a round trip each.
"""

from holdfast.client.events import Event
from holdfast.client.produce.event_batch import EventBatch
from holdfast.client.start_position import Start
from holdfast.client.sync.clients import ConsumerClient, Delivery, Transaction, TransactionGroup
from holdfast.client.sync.twins import AdminClient, GroupMember, ProducerClient, RangeClient

__all__ = [
    "AdminClient", "ConsumerClient", "Delivery", "Event", "EventBatch", "GroupMember",
    "ProducerClient", "RangeClient", "Start", "Transaction", "TransactionGroup",
]  # fmt: skip
