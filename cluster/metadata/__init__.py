"""Metadata that the cluster agrees on: nodes, logs, and where their partitions are.

The public names are below. `MetadataMachine` is the state machine of group 0, `MetadataView` reads it,
`CommandProposer` gets commands into it from any node.
"""

from cluster.metadata.metadata_commands import (
    InvalidRequest,
    activate_version,
    alter_log,
    create_coordinators,
    create_log,
    delete_log,
    from_request,
    grant_command,
    put_rule,
    put_user,
    readmit_node,
    register_node,
    remove_rule,
    remove_user,
    rotate_rule,
    set_rack,
)
from cluster.metadata.proposer import CommandProposer, NotConfirmed
from cluster.metadata.shared_access_rules import CLAIMS
from cluster.metadata.state_machine import KEPT_ENTRIES, MetadataMachine, encode_command
from cluster.metadata.types import (
    ADMIN_ROLE,
    COORDINATORS,
    INTERNAL_PREFIX,
    CommandResult,
    GrantRecord,
    ListenerAddress,
    LogRecord,
    NodeRecord,
    Ok,
    PartitionRecord,
    Refusal,
    RuleRecord,
    ScramKeys,
    UserRecord,
)
from cluster.metadata.users_and_grants import OPERATIONS_ON, grant_fault
from cluster.metadata.view import MetadataView, describe

__all__ = [
    "ADMIN_ROLE",
    "CLAIMS",
    "COORDINATORS",
    "INTERNAL_PREFIX",
    "KEPT_ENTRIES",
    "OPERATIONS_ON",
    "CommandProposer",
    "CommandResult",
    "GrantRecord",
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
    "RuleRecord",
    "ScramKeys",
    "UserRecord",
    "activate_version",
    "alter_log",
    "create_coordinators",
    "create_log",
    "delete_log",
    "describe",
    "encode_command",
    "from_request",
    "grant_command",
    "grant_fault",
    "put_rule",
    "put_user",
    "readmit_node",
    "register_node",
    "remove_rule",
    "remove_user",
    "rotate_rule",
    "set_rack",
]
