"""What a query of Spark says of its batches in its checkpoint, and what W5 makes of an event.

A batch is planned (`offsets/N`, how far it reads each partition) before anything of it is written, and known to be
committed (`commits/N`) after the sink has said so. In between nobody knows: that is Spark's word, and ours.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

CHECKPOINT, FINISH = "checkpoint", "finish"


class Batch(NamedTuple):
    """`begin`, `end`: by partition, the first offset that it reads, and the first that it does not."""

    number: int
    begin: dict[str, int]
    end: dict[str, int]
    is_committed: bool

    def has(self, partition: str, offset: int) -> bool:
        return self.begin.get(partition, 0) <= offset < self.end.get(partition, 0)


def batches(checkpoint: Path) -> Iterator[Batch]:
    """All that were planned, in their order."""
    begin: dict[str, int] = {}
    for path in sorted(_numbered(checkpoint / "offsets"), key=lambda path: int(path.name)):
        end: dict[str, int] = json.loads(path.read_text(encoding="utf-8").splitlines()[-1])
        yield Batch(int(path.name), begin, end, (checkpoint / "commits" / path.name).exists())
        begin = end


def is_in_a_batch(checkpoint: Path, since_s: float) -> bool:
    """Whether a query that was started then has planned a batch, and not yet said that it is committed. Not its first
    one: half of that is Java and Python that start."""
    planned = {path.name: path.stat().st_mtime for path in _numbered(checkpoint / "offsets")}
    committed = {path.name: path.stat().st_mtime for path in _numbered(checkpoint / "commits")}
    under_way = [planned[name] for name in planned.keys() - committed.keys()]
    return max(committed.values(), default=0.0) >= since_s and max(under_way, default=0.0) >= since_s


def _numbered(directory: Path) -> list[Path]:
    """Spark has files of its own beside them."""
    return [path for path in directory.iterdir() if path.name.isdecimal()] if directory.exists() else []


def made_of(name: str, msg_id: str) -> str:
    """The value that the query of this name makes of a value: always the same, so that a second one is seen."""
    return f"{name}.{msg_id}"


def place_of(msg_id: str, partitions: int) -> int:
    """The partition for it."""
    return crc32c(msg_id.encode()) % partitions
