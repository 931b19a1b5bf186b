"""The node as the links of one log see it: the log that they were attached to, and none that took its name since.

Problem: links know their log by its name, and a log that was deleted may be made again under it at any moment, before
anybody was told of either. Rule never broken: what a link appends, reads, claims or commits goes into the log that it
was attached to; once that is gone, its name is as unknown to the link as if nothing had taken it.

The identity of a log is given by the metadata when it is made and never used again. Another cluster counts from the
beginning, and may stand behind the same addresses one day: so clients are told the cluster's identity with it. Groups
of replicas have identities of their own, which is why nothing of this has to cross to other nodes: a gateway asks for a
group, and the group of a deleted log is not there any more.

Rejected: noticing it when the node is told of changes. Those are told together, and late: a producer would go on into
the new log for as long as that takes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from holdfast.amqp.errors import Error
from node.client_transactions.transaction import StagedPosition
from node.listener import errors
from node.listener.broker_interface import AmqpAddress, Broker
from node.partition.api import LogView, PartitionHandle


def told_log(broker: Broker, identity: int | None) -> str | None:
    """The log, as clients know it: no other of any cluster is told so. None: there is none, or it cannot be said."""
    cluster = broker.cluster_id
    return None if cluster is None or identity is None else f"{cluster}/{identity}"


def another_cluster(broker: Broker, meant: str) -> Error | None:
    """Why what a client knows, of a cluster or a log, is not to be had here; None: it is of this cluster."""
    own, wanted = broker.cluster_id, meant.partition("/")[0]
    if own is None:
        return errors.cluster_unknown()
    return None if own == wanted else errors.another_cluster(wanted, own)


def not_meant(broker: Broker, log: str, meant: str) -> Error:
    """Why the log that a client means is not the one that has the name here."""
    return another_cluster(broker, meant) or errors.log_made_anew(log)


class OneLog:
    """Implements `Broker` for the links of one log."""

    def __init__(self, broker: Broker, name: str, identity: int) -> None:
        self.node_id = broker.node_id
        self.container_id = broker.container_id
        self.transactions = broker.transactions
        self.name = name
        self.identity = identity
        self._broker = broker

    @property
    def cluster_id(self) -> str | None:
        return self._broker.cluster_id

    def describe(self, log: str) -> LogView | None:
        return self._broker.describe(log) if self._is_there(log) else None

    def identity_of(self, log: str) -> int | None:
        return self.identity if self._is_there(log) else None

    def leader(self, log: str, partition: str) -> int | None:
        self._check(log)
        return self._broker.leader(log, partition)

    def is_local(self, log: str, partition: str) -> bool:
        self._check(log)
        return self._broker.is_local(log, partition)

    @property
    def is_cut_off(self) -> bool:
        return self._broker.is_cut_off

    @property
    def out_of_touch(self) -> Collection[int]:
        return self._broker.out_of_touch

    @property
    def serves_nothing(self) -> bool:
        return self._broker.serves_nothing

    def is_stranded(self, log: str, partition: str) -> bool:
        self._check(log)
        return self._broker.is_stranded(log, partition)

    def is_coordinator_stranded(self, group: int | None) -> bool:
        return self._broker.is_coordinator_stranded(group)

    def handle(self, log: str, partition: str) -> PartitionHandle:
        self._check(log)
        return self._broker.handle(log, partition)

    def raft_group(self, log: str, partition: str) -> int:
        self._check(log)
        return self._broker.raft_group(log, partition)

    def address_of(self, node: int) -> AmqpAddress | None:
        return self._broker.address_of(node)

    def other_nodes(self) -> tuple[AmqpAddress, ...]:
        return self._broker.other_nodes()

    def subscribe(self, changed: Callable[[], None]) -> Callable[[], None]:
        return self._broker.subscribe(changed)

    async def admin(self, operation: str, args: Mapping[str, Any]) -> dict[str, Any]:
        return await self._broker.admin(operation, args)

    async def note_position(self, args: Mapping[str, Any]) -> tuple[StagedPosition, dict[str, Any]]:
        return await self._broker.note_position(args)

    async def current(self) -> bool:
        return await self._broker.current()

    def _is_there(self, log: str) -> bool:
        return log == self.name and self._broker.identity_of(log) == self.identity

    def _check(self, log: str) -> None:
        if not self._is_there(log):
            raise KeyError(f"log {log!r} was deleted")
