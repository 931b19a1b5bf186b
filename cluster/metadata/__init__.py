"""What the cluster agrees on: nodes, logs, and where their partitions are.

The public names are below. `MetadataMachine` is the state machine of group 0, `MetadataView` reads it,
`CommandProposer` gets commands into it from any node.
"""

from cluster.metadata.commands import (
    InvalidRequest,
    alter_log,
    create_log,
    delete_log,
    from_request,
    readmit_node,
    register_node,
)
from cluster.metadata.machine import KEPT_ENTRIES, MetadataMachine, encode_command
from cluster.metadata.proposer import CommandProposer, NotConfirmed
from cluster.metadata.types import (
    CommandResult,
    ListenerAddress,
    LogRecord,
    NodeRecord,
    Ok,
    PartitionRecord,
    Refusal,
)
from cluster.metadata.view import MetadataView, describe

__all__ = [
    "KEPT_ENTRIES",
    "CommandProposer",
    "CommandResult",
    "InvalidRequest",
    "ListenerAddress",
    "LogRecord",
    "MetadataMachine",
    "MetadataView",
    "NodeRecord",
    "NotConfirmed",
    "Ok",
    "PartitionRecord",
    "Refusal",
    "alter_log",
    "create_log",
    "delete_log",
    "describe",
    "encode_command",
    "from_request",
    "readmit_node",
    "register_node",
]
