"""Errors of a node's data directory, each with its remedy.

The rule: a store that is not certainly whole is not opened, and one that turns out damaged stops the node. Serving on
would let a replica vote with a damaged memory of its votes, or pass damaged entries on. Every message names the path,
what was found there and what to do; none of these is worth a retry by the program itself.
"""

from __future__ import annotations

from pathlib import Path


class StorageError(Exception):
    """Anything this package raises on purpose. The node must stop: its memory may be ahead of its disk."""


REPLACE_THE_NODE = (
    "Replace the node (never by an older copy): move the directory away, start the node with an empty "
    "one, and let it in with `holdfast node readmit`. The other nodes go on meanwhile"
)


class StorageDamaged(StorageError):
    """Raised when a file does not hold what was written there."""

    def __init__(self, path: Path | str, found: str) -> None:
        super().__init__(
            f"the data in {path} is damaged: {found}. Retrying does not help, and deleting single files loses data. "
            + REPLACE_THE_NODE
        )
        self.path = str(path)
        self.found = found


class SyncFailed(StorageError):
    """Raised when the disk did not take all that was written; nobody knows what it has."""

    def __init__(self, path: Path | str, reason: str, *, noted: bool = False) -> None:
        super().__init__(
            f"the disk failed to sync {path} ({reason}). What is still read there may never have reached the disk, "
            "so no node goes on with this data, also after a restart. Find out what is wrong with the disk, and use "
            f"another one if in doubt. {REPLACE_THE_NODE}"
        )
        self.path = str(path)
        self.reason = reason
        self.noted = noted  # by an earlier process


class ForeignData(StorageError):
    """Raised when the directory holds the data of another node, another cluster, or not of a node at all."""


class OtherVersion(StorageError):
    """Raised when the directory holds layouts of a version that this program does not know. Nothing was changed."""


class OlderCopy(StorageError):
    """Raised when the directory is a copy: it lacks what the node has promised since."""

    def __init__(self, path: Path | str, found: str) -> None:
        super().__init__(
            f"the data in {path} is a copy that the other nodes know a later state of: {found}. It has forgotten what "
            "the node promised since, so it has no say, also after a restart. Start the node with its original data. "
            f"Only if those are lost for good: {REPLACE_THE_NODE[0].lower()}{REPLACE_THE_NODE[1:]}"
        )
        self.path = str(path)
        self.found = found


class NodeRemoved(StorageError):
    """Raised when the node of this directory was removed from its cluster."""

    def __init__(self, path: Path | str, node: int) -> None:
        super().__init__(
            f"node {node} was removed from its cluster, with the data in {path}: it has no say there, also after a "
            "restart, and its number is not used again. Stop it for good; or start it with an empty data_dir and "
            "another node.id, which `holdfast node add` announces"
        )
        self.path = str(path)
        self.node = node


class AlreadyOpen(StorageError):
    """Raised when another process works on this directory."""


class DiskFull(StorageError):
    """Raised when the file system has no room left for a write."""

    def __init__(self, path: Path | str, detail: str) -> None:
        super().__init__(
            f"no space left for the data in {path} ({detail}). Nothing acknowledged is lost: free space on this file "
            "system, or shorten the retention of logs, then start the node again"
        )


def translate(error: BaseException, path: Path | str) -> StorageError:
    """The typed form of an error of the store's library, which raises plain `Exception` with a status text.

    Unknown texts become `StorageError`: the node stops, and the text tells why.
    """
    if isinstance(error, StorageError):
        return error
    text = " ".join(str(error).split()).rstrip(".")
    low = text.lower()
    if "while fdatasync" in low or "while fsync" in low:  # of RocksDB; also when it is for lack of space
        return SyncFailed(path, text)
    if "no space left" in low or "disk quota exceeded" in low:
        return DiskFull(path, text)
    if "lock hold by current process" in low or "while lock file" in low:
        return AlreadyOpen(f"{path} is in use by another process; stop that one first ({text})")
    if low.startswith("corruption") or "no such file or directory" in low or "does not exist" in low:
        return StorageDamaged(path, text)
    return StorageError(f"the store in {path} failed: {text}")
