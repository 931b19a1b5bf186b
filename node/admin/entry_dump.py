"""Dump of a partition's log for operators: its entries, as its leader stores them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast import protocol
from holdfast.records.codec import name_of
from holdfast.records.record_batch import Attributes
from node.admin.errors import AdminRequestFailed
from node.partition.api import Failed, PartitionHandle
from node.partition.entries.entry_queries import DumpEntries, EntryList, EntryRow

OPERATIONS = frozenset({"log.dump"})

LIST_LIMIT = 100
MAX_LIST_LIMIT = 1000
"""Entries in one answer: about 300 KiB."""

_OFFSET = re.compile(f"[0-9a-f]{{{protocol.OFFSET_DIGITS}}}")


async def run(
    operation: str,
    args: Mapping[str, Any],
    partitions: Sequence[str] | None,
    handle: Callable[[str], PartitionHandle],
) -> dict[str, Any]:
    """Run an operation. `partitions`: those of the log that was asked about, None when there is no such log. Raises
    AdminRequestFailed."""
    assert operation in OPERATIONS
    if partitions is None:
        raise AdminRequestFailed(
            "not-found", f"there is no log {args.get('name')!r}; `holdfast log list` shows those there are"
        )
    partition = str(args.get("partition"))
    if partition not in partitions:
        count = len(partitions)
        raise AdminRequestFailed("not-found", f"log {args.get('name')!r} has no partition {partition}; it has {count}")
    limit, after = args.get("limit", LIST_LIMIT), args.get("after", 0)
    if not 0 < limit <= MAX_LIST_LIMIT or after < 0:
        raise AdminRequestFailed(
            "invalid-argument", f"limit: lies between 1 and {MAX_LIST_LIMIT}; after: is 0 or an index"
        )
    try:
        answer = await handle(partition).ask(DumpEntries(after, limit, _offset(args.get("offset"))))
    except (ConnectionError, LookupError) as error:
        raise AdminRequestFailed("unavailable", f"the leader could not be asked: {error}; try again") from error
    if isinstance(answer, Failed):
        raise AdminRequestFailed("unavailable" if answer.retriable else "internal-error", answer.detail)
    assert isinstance(answer, EntryList)
    return {
        "partition": partition,
        "first_index": answer.first_index,
        "last_index": answer.last_index,
        "entries": [_row(entry) for entry in answer.entries],
    }


def _offset(text: Any) -> int:
    if text is None:
        return -1
    if not _OFFSET.fullmatch(str(text)):
        raise AdminRequestFailed(
            "invalid-argument", f"offset: {text!r} is no offset of this log; give one as it was received"
        )
    return int(str(text), 16)


def _row(entry: EntryRow) -> dict[str, Any]:
    row: dict[str, Any] = {"index": entry.index, "term": entry.term, "kind": entry.kind, "bytes": entry.size}
    if entry.count:
        flags = entry.attributes
        row |= {
            "base_offset": f"{entry.base_offset:016x}" if entry.base_offset >= 0 else None,
            "stored": entry.stored,
            "count": entry.count,
            "attributes": entry.attributes,
            "compression": name_of(flags & Attributes.CODEC),
            "timestamp_type": "append" if flags & Attributes.APPEND_TIME else "create",
            "transactional": bool(flags & Attributes.TRANSACTIONAL),
            "control": bool(flags & Attributes.CONTROL),
            "producer_id": entry.producer_id,
            "producer_epoch": entry.producer_epoch,
            "base_sequence": entry.base_sequence,
            "first_timestamp_ms": entry.first_timestamp_ms,
            "max_timestamp_ms": entry.max_timestamp_ms,
        }
    if entry.coordinator_epoch >= 0:
        row["coordinator_epoch"] = entry.coordinator_epoch
    if entry.detail:
        row["detail"] = entry.detail
    return row
