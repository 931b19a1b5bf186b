"""Interface of discovery, the same for every way of finding nodes.

The problem: the voters must be the same at every node, or two majorities exist. The rules: `join` gives every node the
same voters, for ever, or does not return; a node that is not among them is refused; nothing here is asked again once a
node runs, so that losing the service that nodes are found by costs only the finding. Rejected: deriving voters from the
nodes registered at the moment; a node that is away at that moment would be forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol


class DiscoveryError(Exception):
    """The node cannot take part; the message says what to do."""


class NotAMember(DiscoveryError):
    """The cluster began without this node."""


class OtherCluster(DiscoveryError):
    """The cluster found under this name is not the one that this node belongs to."""


class SecondRegistration(DiscoveryError):
    """Another process that lives is registered under this node's id."""


@dataclass(frozen=True, slots=True)
class Member:
    """A node, as it registers itself."""

    node: int
    rpc_address: str
    listeners: Mapping[str, str] = field(default_factory=dict)  # advertised AMQP address by listener
    version: str = ""


Changed = Callable[[Mapping[int, Member]], None]


class Discovery(Protocol):
    async def join(self) -> Mapping[int, str]:
        """Make this node known, and learn the voters: node id -> address for other nodes.

        Waits as long as it takes, saying for what in `waiting_for` and in the log. Raises DiscoveryError.
        """

    @property
    def waiting_for(self) -> str:
        """Reason why this node is not registered now; empty when it is."""

    @property
    def cluster_id(self) -> str:
        """Identity of the cluster: equal at all its nodes, and of no other cluster. Empty before `join` is done."""

    def members(self) -> Mapping[int, Member]:
        """Nodes that are registered, as far as was heard last."""

    def subscribe(self, changed: Changed) -> None:
        """`changed` is called on the loop whenever `members` has changed."""

    async def close(self) -> None:
        """Give the registration up. Idempotent."""
