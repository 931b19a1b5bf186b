"""The store of a node. See store.py for how it keeps its promises."""

from node.storage.errors import (
    AlreadyOpen,
    DiskFull,
    ForeignData,
    NodeRemoved,
    OlderCopy,
    OtherVersion,
    StorageDamaged,
    StorageError,
    SyncFailed,
)
from node.storage.node_identity import NodeIdentity
from node.storage.rocksdb_options import DiskOptions
from node.storage.store import Store
from node.storage.wal.compaction import CompactionResult
from node.storage.write_batch import StoreBatch

__all__ = [
    "AlreadyOpen",
    "CompactionResult",
    "DiskFull",
    "DiskOptions",
    "ForeignData",
    "NodeIdentity",
    "NodeRemoved",
    "OlderCopy",
    "OtherVersion",
    "StorageDamaged",
    "StorageError",
    "Store",
    "StoreBatch",
    "SyncFailed",
]
