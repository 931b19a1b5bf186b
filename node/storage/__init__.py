"""The store of a node. See rocks.py for how it keeps its promises."""

from node.storage.batch import JournalBatch
from node.storage.errors import AlreadyOpen, DiskFull, ForeignData, StorageDamaged, StorageError
from node.storage.identity import NodeIdentity
from node.storage.reclaim import Reclaimed
from node.storage.rocks import RocksDisk
from node.storage.tuning import DiskOptions

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
