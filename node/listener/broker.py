"""What a listener needs of the node behind it.

Problem: links must be served without knowing how logs are stored, who leads them, or how nodes talk to each other.
Rule never broken: the listener decides from this interface alone; it imports neither Raft nor RPC nor storage, so that
the same listener runs over one replica in a test and over a cluster in production.
Rejected: handing the listener the node object. Whatever it could reach, it would come to depend on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from node.partition.api import LogView, PartitionHandle
from node.transactions.manager import TransactionManager
from node.transactions.transaction import StagedPosition


@dataclass(frozen=True, slots=True)
class AmqpAddress:
    """Where clients of *this* listener reach a node: `hostname` is for open, SASL and TLS; `host`, `port` for TCP."""

    hostname: str
    host: str
    port: int


class Broker(Protocol):
    """The node as one listener sees it. What is asked about a log or partition that does not exist raises KeyError,
    save `describe`."""

    node_id: int
    container_id: str
    transactions: TransactionManager | None
    """None: there are no transactions here."""

    @property
    def cluster_id(self) -> str | None:
        """The cluster's identity. None: this node knows none yet."""
        ...

    def describe(self, log: str) -> LogView | None:
        """None: there is no such log."""
        ...

    def identity_of(self, log: str) -> int | None:
        """Which making of the log has the name now: a log that was deleted and made again is another one. None: there
        is none. Cheap, and never an identity twice."""
        ...

    def leader(self, log: str, partition: str) -> int | None:
        """The node that leads the partition, as far as this one knows; None while nobody does."""
        ...

    def is_local(self, log: str, partition: str) -> bool:
        """This node leads the partition and can serve it now."""
        ...

    @property
    def is_cut_off(self) -> bool:
        """The other nodes may do everything without this one, which would not hear of it."""
        ...

    @property
    def out_of_touch(self) -> Collection[int]:
        """The nodes that do not answer this one."""
        ...

    @property
    def serves_nothing(self) -> bool:
        """It is cut off, in touch with nobody, and leads nothing."""
        ...

    def is_stranded(self, log: str, partition: str) -> bool:
        """It is cut off, and reaches nobody who leads the partition."""
        ...

    def is_coordinator_stranded(self, group: int | None) -> bool:
        """The same of the coordinator with that Raft group; None: of all of them."""
        ...

    def handle(self, log: str, partition: str) -> PartitionHandle:
        """The local replica when this node leads, else a gateway to the leader. Cheap: the same object while nothing
        has changed."""
        ...

    def raft_group(self, log: str, partition: str) -> int:
        """By which transactions know the partition."""
        ...

    def address_of(self, node: int) -> AmqpAddress | None:
        """Through the listener's address map. None: the node has told no address."""
        ...

    def subscribe(self, changed: Callable[[], None]) -> Callable[[], None]:
        """`changed` is called, soon and possibly once for many changes, when logs, partitions, leaders or addresses
        have changed. It must not raise. Returns the function that ends the subscription."""
        ...

    async def admin(self, operation: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """Run "log.create" and the like (`holdfast.protocol`). Raises AdminRequestFailed."""
        ...

    async def note_position(self, args: Mapping[str, Any]) -> tuple[StagedPosition, dict[str, Any]]:
        """What "group.commit" with these arguments means to a transaction that it is part of, and its answer. Raises
        AdminRequestFailed."""
        ...

    async def current(self) -> bool:
        """Returns when this node knows all logs and partitions that anybody was told of before the call; False when
        nobody could confirm that."""
        ...
