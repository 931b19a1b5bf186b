"""The node's interface to its listeners.

Problem: links must be served without knowing how logs are stored, which nodes lead them, or how nodes talk to each
other.
Rule never broken: the listener decides from this interface alone; it imports neither Raft nor RPC nor storage, so that
the same listener runs over one replica in a test and over a cluster in production.
Rejected: handing the listener the node object. It would come to depend on all that it could reach.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from node.client_transactions.transaction import StagedPosition
from node.client_transactions.transactional_ids import TransactionManager
from node.partition.api import LogView, PartitionHandle


@dataclass(frozen=True, slots=True)
class AmqpAddress:
    """Address of a node for clients of *this* listener: `hostname` is for open, SASL and TLS; `host`, `port` for
    TCP."""

    hostname: str
    host: str
    port: int


class Broker(Protocol):
    """The node as one listener sees it. Calls about a log or partition that does not exist raise KeyError, except
    `describe`."""

    node_id: int
    container_id: str
    transactions: TransactionManager | None
    """The coordinator's clients on this node. None: there are no transactions here."""

    @property
    def cluster_id(self) -> str | None:
        """The cluster's identity. None: this node knows none yet."""
        ...

    def describe(self, log: str) -> LogView | None:
        """The log's partitions and settings. None: there is no such log."""
        ...

    def identity_of(self, log: str) -> int | None:
        """Identity of the log that has the name now: a log that was deleted and created again has another one. None:
        there is none. Cheap, and never given twice."""
        ...

    def leader(self, log: str, partition: str) -> int | None:
        """The node that leads the partition, as far as this one knows; None without a known leader."""
        ...

    def is_local(self, log: str, partition: str) -> bool:
        """True if this node leads the partition and can serve it now."""
        ...

    @property
    def is_cut_off(self) -> bool:
        """True if the other nodes may go on without this one, and it would not hear of it."""
        ...

    @property
    def out_of_touch(self) -> Collection[int]:
        """The nodes that do not answer this one."""
        ...

    @property
    def serves_nothing(self) -> bool:
        """True if this node is cut off, in touch with no other node, and leads nothing."""
        ...

    def is_stranded(self, log: str, partition: str) -> bool:
        """True if this node is cut off, and reaches no leader of the partition."""
        ...

    def is_coordinator_stranded(self, group: int | None) -> bool:
        """True if this node is cut off, and reaches no leader of the coordinator with that Raft group; None: of any
        coordinator."""
        ...

    def handle(self, log: str, partition: str) -> PartitionHandle:
        """The local replica when this node leads, else a gateway to the leader. Cheap: the same object while nothing
        has changed."""
        ...

    def raft_group(self, log: str, partition: str) -> int:
        """Raft group of the partition, by which transactions name it."""
        ...

    def address_of(self, node: int) -> AmqpAddress | None:
        """The node's address through the listener's address map. None: the node has told no address."""
        ...

    def other_nodes(self) -> tuple[AmqpAddress, ...]:
        """Addresses of the cluster's other nodes through the listener's address map, the next numbers first. Cheap: the
        same object while nothing has changed."""
        ...

    def subscribe(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` after changes of logs, partitions, leaders or addresses: soon, and possibly once for many
        changes. It must not raise. Returns the function that ends the subscription."""
        ...

    async def admin(self, operation: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """Run "log.create" and the like (`holdfast.protocol`). Raises AdminRequestFailed."""
        ...

    async def note_position(self, args: Mapping[str, Any]) -> tuple[StagedPosition, dict[str, Any]]:
        """Return the position that "group.commit" with these arguments stages in a transaction, and its answer. Raises
        AdminRequestFailed."""
        ...

    async def current(self) -> bool:
        """Wait until this node knows all logs and partitions that were made known before the call. Returns False when
        no majority could confirm that."""
        ...
