"""The store of a node. See store.py for how it keeps its promises."""

from node.storage.errors import AlreadyOpen, DiskFull, ForeignData, StorageDamaged, StorageError
from node.storage.node_identity import NodeIdentity
from node.storage.options import DiskOptions
from node.storage.store import RocksDisk
from node.storage.wal_compaction import Reclaimed
from node.storage.write_batch import JournalBatch

__all__ = [
    "AlreadyOpen",
    "DiskFull",
    "DiskOptions",
    "ForeignData",
    "JournalBatch",
    "NodeIdentity",
    "Reclaimed",
    "RocksDisk",
    "StorageDamaged",
    "StorageError",
]
