"""The Python client of Holdfast (asyncio): produce, consume, administer.

    from holdfast.client import ProducerClient, ConsumerClient, AdminClient, Start

Whatever goes wrong is a `HoldfastError` that says whether to try again and what to do.
"""

from holdfast.client.admin import AdminClient
from holdfast.client.consumer import ConsumerClient, ConsumerOptions
from holdfast.client.errors import (
    AdminError,
    BufferFullError,
    ClosedError,
    ConfigurationError,
    ConnectionLostError,
    HoldfastError,
    LinkRefusedError,
    NotFoundError,
    ProtocolError,
    RejectedError,
    TimeoutExpiredError,
    UndeliveredError,
    UnreachableError,
)
from holdfast.client.events import Event, encode_event
from holdfast.client.info import PartitionInfo
from holdfast.client.network import NetworkOptions
from holdfast.client.producer import ProducerClient, ProducerOptions, ProducerStats
from holdfast.client.start import Start

__all__ = [
    "AdminClient",
    "AdminError",
    "BufferFullError",
    "ClosedError",
    "ConfigurationError",
    "ConnectionLostError",
    "ConsumerClient",
    "ConsumerOptions",
    "Event",
    "HoldfastError",
    "LinkRefusedError",
    "NetworkOptions",
    "NotFoundError",
    "PartitionInfo",
    "ProducerClient",
    "ProducerOptions",
    "ProducerStats",
    "ProtocolError",
    "RejectedError",
    "Start",
    "TimeoutExpiredError",
    "UndeliveredError",
    "UnreachableError",
    "encode_event",
]
