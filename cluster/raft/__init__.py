"""Raft groups of one node: pysyncobj 0.3.17 made safe. Knows nothing of AMQP or logs.

The public names are below; everything else in the package may change. Start with `MultiRaft`.
"""

from cluster.raft.group import RaftGroup
from cluster.raft.interfaces import (
    ENTRY_REGULAR,
    METADATA_GROUP,
    Clock,
    Disk,
    DiskBatch,
    GroupId,
    NodeId,
    StateMachine,
)
from cluster.raft.log.key_layout import (
    births_over,
    entries_stored_under,
    erase_group,
    forget_group,
    is_stored,
    stored_birth,
    stored_groups,
)
from cluster.raft.membership.configuration_rows import stored_configuration
from cluster.raft.multiraft import MultiRaft, Turn
from cluster.raft.options import MAX_ENTRY_BYTES, Durability, RaftOptions
from cluster.raft.proposal_outcomes import (
    ApplyFailed,
    ChangeRefused,
    Committed,
    Discarded,
    InvariantBroken,
    NotLeader,
    OtherBirth,
    Outcome,
    Overloaded,
    RaftError,
    StateDamaged,
    Unknown,
    UnknownEntry,
)
from cluster.raft.raft_pb2 import FetchReply, FetchRequest, RaftMessage
from cluster.raft.replication.message_encoding import OutgoingMessage

__all__ = [
    "ENTRY_REGULAR",
    "MAX_ENTRY_BYTES",
    "METADATA_GROUP",
    "ApplyFailed",
    "ChangeRefused",
    "Clock",
    "Committed",
    "Discarded",
    "Disk",
    "DiskBatch",
    "Durability",
    "FetchReply",
    "FetchRequest",
    "GroupId",
    "InvariantBroken",
    "MultiRaft",
    "NodeId",
    "NotLeader",
    "OtherBirth",
    "Outcome",
    "OutgoingMessage",
    "Overloaded",
    "RaftError",
    "RaftGroup",
    "RaftMessage",
    "RaftOptions",
    "StateDamaged",
    "StateMachine",
    "Turn",
    "Unknown",
    "UnknownEntry",
    "births_over",
    "entries_stored_under",
    "erase_group",
    "forget_group",
    "is_stored",
    "stored_birth",
    "stored_configuration",
    "stored_groups",
]
