"""The words and addresses a client shares with nodes on the wire, and addresses of servers.

This is the client's own copy (a client never imports a node); the `$management` protocol is written out in full in
`docs/` and at the node. Rule never broken: every symbol that the client reads or writes stands in this file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.client.errors import ConfigurationError

EVENT_STREAMS_CAPABILITY: Final = "AMQP_EVENT_STREAMS_V1_0"
LINK_REDIRECT_CAPABILITY: Final = "amqp:link:redirect"

LINK_PARTITION: Final = "event-streams-partition"
ANNOTATION_OFFSET: Final = "event-streams-offset"
ANNOTATION_TIMESTAMP: Final = "event-streams-timestamp"
ANNOTATION_SOURCE_PARTITION: Final = "event-streams-source-partition"
ANNOTATION_GROUP_KEY: Final = "event-streams-group-key"
OFFSET_EARLIEST: Final = "@earliest"
OFFSET_LATEST: Final = "@latest"

# The filter that a receiving link starts from: a described map, code 0x200, under a key of the client's choice.
START_FILTER_NAME: Final = "amqp:event-streams-delivery-annotations-filter"
START_FILTER_CODE: Final = 0x200

INFO_SUFFIX: Final = "/$info"
INFO_PARTITIONS: Final = "partitions"
INFO_PARTITION: Final = "partition"
INFO_EARLIEST: Final = "earliest-offset"
INFO_LATEST: Final = "latest-offset"
INFO_LATEST_TIMESTAMP: Final = "latest-timestamp"
INFO_AVAILABLE: Final = "available"

MANAGEMENT: Final = "$management"

DEFAULT_PORT: Final = 5672


@dataclass(frozen=True, slots=True)
class Address:
    """A server's host and port. `hostname` is the name it is to be greeted by, when that is another one."""

    host: str
    port: int
    hostname: str = ""

    @staticmethod
    def parse(text: str) -> Address:
        """`host`, `host:port` or `[v6]:port`."""
        host, separator, port_text = text.strip().rpartition(":")
        if not separator or text.strip().endswith("]"):
            host, port_text = text.strip(), str(DEFAULT_PORT)
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port_text.isdigit() or not 0 < int(port_text) < 65536:
            raise ConfigurationError(f"{text!r} is not an address", advice="write host:port, like 127.0.0.1:5672")
        return Address(host, int(port_text))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
