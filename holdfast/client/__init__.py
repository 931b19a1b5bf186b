"""The Python client of Holdfast (asyncio): produce, consume, administer.

    from holdfast.client import ProducerClient, ConsumerClient, AdminClient, Start

`holdfast.client.sync` holds the same names for programs without an event loop. Whatever goes wrong is a `HoldfastError`
that says whether to try again and what to do.
"""

from holdfast.client.admin import AdminClient
from holdfast.client.consume.zookeeper.ownership import ZooKeeperOwnership
from holdfast.client.consumer import ConsumerClient
from holdfast.client.errors import (
    AdminError,
    BatchFullError,
    BufferFullError,
    ClosedError,
    ConfigurationError,
    ConnectionLostError,
    DamagedEventError,
    EventTooLargeError,
    HoldfastError,
    InvalidOperationError,
    LinkRefusedError,
    LogDeletedError,
    NotFoundError,
    OutOfOrderError,
    OwnershipLostError,
    PartitionOwnedError,
    ProducerStateError,
    ProducerStolenError,
    ProtocolError,
    RejectedError,
    TimeoutExpiredError,
    UndeliveredError,
    UnreachableError,
    UnsupportedError,
)
from holdfast.client.events import Event, ReceivedEvent, encode_event
from holdfast.client.options import ConsumerOptions, ProducerOptions
from holdfast.client.produce.delivery import Delivery, DeliveryResult
from holdfast.client.produce.event_batch import EventBatch
from holdfast.client.produce.idempotent.producer_identity import (
    PartitionPublishingOptions,
    PartitionPublishingProperties,
)
from holdfast.client.produce.partition_sender import ProducerStats
from holdfast.client.producer import ProducerClient
from holdfast.client.start_position import Start
from holdfast.client.transport.bootstrap import ZooKeeperLogin, find_servers
from holdfast.client.transport.log_info import PartitionInfo
from holdfast.client.transport.network import NetworkOptions

__all__ = [
    "AdminClient",
    "AdminError",
    "BatchFullError",
    "BufferFullError",
    "ClosedError",
    "ConfigurationError",
    "ConnectionLostError",
    "ConsumerClient",
    "ConsumerOptions",
    "DamagedEventError",
    "Delivery",
    "DeliveryResult",
    "Event",
    "EventBatch",
    "EventTooLargeError",
    "HoldfastError",
    "InvalidOperationError",
    "LinkRefusedError",
    "LogDeletedError",
    "NetworkOptions",
    "NotFoundError",
    "OutOfOrderError",
    "OwnershipLostError",
    "PartitionInfo",
    "PartitionOwnedError",
    "PartitionPublishingOptions",
    "PartitionPublishingProperties",
    "ProducerClient",
    "ProducerOptions",
    "ProducerStateError",
    "ProducerStats",
    "ProducerStolenError",
    "ProtocolError",
    "ReceivedEvent",
    "RejectedError",
    "Start",
    "TimeoutExpiredError",
    "UndeliveredError",
    "UnreachableError",
    "UnsupportedError",
    "ZooKeeperLogin",
    "ZooKeeperOwnership",
    "encode_event",
    "find_servers",
]
