"""Batches of a query of Spark, read from its checkpoint, and the output that W5 makes of an event.

Spark plans a batch (`offsets/N`: how far it reads each partition) before it writes any of it. It notes the batch as
committed (`commits/N`) after the sink has said so. In between the outcome is unknown, to Spark and to us.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

CHECKPOINT, FINISH = "checkpoint", "finish"


class Batch(NamedTuple):
    """One batch. `begin`, `end`: by partition, the first offset that it reads, and the first after it."""

    number: int
    begin: dict[str, int]
    end: dict[str, int]
    is_committed: bool

    def has(self, partition: str, offset: int) -> bool:
        return self.begin.get(partition, 0) <= offset < self.end.get(partition, 0)


def batches(checkpoint: Path) -> Iterator[Batch]:
    """Yield the planned batches in order."""
    begin: dict[str, int] = {}
    for path in sorted(_numbered(checkpoint / "offsets"), key=lambda path: int(path.name)):
        end: dict[str, int] = json.loads(path.read_text(encoding="utf-8").splitlines()[-1])
        yield Batch(int(path.name), begin, end, (checkpoint / "commits" / path.name).exists())
        begin = end


def is_in_a_batch(checkpoint: Path, since_s: float) -> bool:
    """Tell whether a query that started at `since_s` has a batch under way, other than its first one.

    Half of the first batch is the start of Java and Python."""
    planned = {path.name: path.stat().st_mtime for path in _numbered(checkpoint / "offsets")}
    committed = {path.name: path.stat().st_mtime for path in _numbered(checkpoint / "commits")}
    under_way = [planned[name] for name in planned.keys() - committed.keys()]
    return max(committed.values(), default=0.0) >= since_s and max(under_way, default=0.0) >= since_s


def _numbered(directory: Path) -> list[Path]:
    """List the files that are named by a number; Spark has other files beside them."""
    return [path for path in directory.iterdir() if path.name.isdecimal()] if directory.exists() else []


def made_of(name: str, msg_id: str) -> str:
    """Return the value that a query makes of a value: always the same, so that checkers see duplicates."""
    return f"{name}.{msg_id}"


def place_of(msg_id: str, partitions: int) -> int:
    """Return the partition of a value."""
    return crc32c(msg_id.encode()) % partitions
