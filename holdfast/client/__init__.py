"""The Python client of Holdfast (asyncio): produce, consume, administer.

    from holdfast.client import ProducerClient, ConsumerClient, AdminClient, Start

`holdfast.client.sync` holds the same names for programs without an event loop. Whatever goes wrong is a `HoldfastError`
that says whether to try again and what to do.
"""

from holdfast.client.admin import AdminClient
from holdfast.client.blocks.event_block import EventBlock, EventColumns
from holdfast.client.consume.range_receiver import RangeOptions
from holdfast.client.consume.zookeeper.ownership import ZooKeeperOwnership
from holdfast.client.consumer import ConsumerClient
from holdfast.client.errors import (
    AdminError,
    AuthenticationError,
    BatchFullError,
    BufferFullError,
    ClosedError,
    ConfigurationError,
    ConnectionLostError,
    DamagedBatchError,
    DamagedEventError,
    EventTooLargeError,
    GroupAbortedError,
    GroupFencedError,
    HoldfastError,
    InternalError,
    InvalidOperationError,
    LinkRefusedError,
    LogDeletedError,
    NotAuthorizedError,
    NotFoundError,
    NotPreparedError,
    OutOfOrderError,
    OwnershipLostError,
    PartitionOwnedError,
    ProducerFencedError,
    ProducerStateError,
    ProducerStolenError,
    ProtocolError,
    RejectedError,
    TimeoutExpiredError,
    TransactionOutcomeUnknownError,
    TransactionRolledBackError,
    UndeliveredError,
    UnreachableError,
    UnsupportedError,
    WriterChangedError,
)
from holdfast.client.events import Event, ReceivedEvent, encode_event
from holdfast.client.options import (
    ConsumerOptions,
    PartitionPublishingOptions,
    PartitionPublishingProperties,
    ProducerOptions,
)
from holdfast.client.produce.delivery import Delivery, DeliveryResult
from holdfast.client.produce.event_batch import EventBatch
from holdfast.client.produce.partition_sender import ProducerStats
from holdfast.client.producer import ProducerClient
from holdfast.client.range_client import PartitionExtent, RangeClient
from holdfast.client.start_position import Start
from holdfast.client.transact.group_member import GroupMember
from holdfast.client.transact.transaction import Transaction
from holdfast.client.transact.transaction_manager import LastTransaction
from holdfast.client.transaction_group import TransactionGroup
from holdfast.client.transport.log_info import PartitionInfo
from holdfast.client.transport.network import NetworkOptions
from holdfast.client.transport.security.credentials import Security
from holdfast.client.transport.zookeeper.bootstrap import ZooKeeperLogin, find_servers

__all__ = [
    "AdminClient",
    "AdminError",
    "AuthenticationError",
    "BatchFullError",
    "BufferFullError",
    "ClosedError",
    "ConfigurationError",
    "ConnectionLostError",
    "ConsumerClient",
    "ConsumerOptions",
    "DamagedBatchError",
    "DamagedEventError",
    "Delivery",
    "DeliveryResult",
    "Event",
    "EventBatch",
    "EventBlock",
    "EventColumns",
    "EventTooLargeError",
    "GroupAbortedError",
    "GroupFencedError",
    "GroupMember",
    "HoldfastError",
    "InternalError",
    "InvalidOperationError",
    "LastTransaction",
    "LinkRefusedError",
    "LogDeletedError",
    "NetworkOptions",
    "NotAuthorizedError",
    "NotFoundError",
    "NotPreparedError",
    "OutOfOrderError",
    "OwnershipLostError",
    "PartitionExtent",
    "PartitionInfo",
    "PartitionOwnedError",
    "PartitionPublishingOptions",
    "PartitionPublishingProperties",
    "ProducerClient",
    "ProducerFencedError",
    "ProducerOptions",
    "ProducerStateError",
    "ProducerStats",
    "ProducerStolenError",
    "ProtocolError",
    "RangeClient",
    "RangeOptions",
    "ReceivedEvent",
    "RejectedError",
    "Security",
    "Start",
    "TimeoutExpiredError",
    "Transaction",
    "TransactionGroup",
    "TransactionOutcomeUnknownError",
    "TransactionRolledBackError",
    "UndeliveredError",
    "UnreachableError",
    "UnsupportedError",
    "WriterChangedError",
    "ZooKeeperLogin",
    "ZooKeeperOwnership",
    "encode_event",
    "find_servers",
]
