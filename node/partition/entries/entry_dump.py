"""What stands in the log of a partition, entry by entry: for people who look, in the words of Kafka's `dump-log`.

The rule: it shows what is stored, decided or not, and judges nothing; a batch whose checksum does not match is shown as
damaged instead of ending the list. Bounded: an answer holds so many entries; who wants more asks from its last index.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from node.partition.commands import OpenProducer, Trim, UnknownCommand, decode
from node.partition.consumer_groups.group_state import Claim, Commit, Delete, EndClaim
from node.partition.entries.queries import DumpEntries, EntryList, EntryRow
from node.partition.offset_index import IndexRow
from node.partition.record_batch import (
    ENTRY_REGULAR,
    Attributes,
    BatchHead,
    Damaged,
    decode_records,
    uncompressed_bytes,
)
from node.partition.transactions.control_record import marker_of
from node.partition.transactions.transaction_commands import Begin, Prepare, StageOffset
from node.storage.errors import StorageDamaged

READ_BYTES = 8 << 20
"""Of entries, decompressed, for one answer: the leader's turn does not wait longer for it than for a reader of old
events."""


class StoredGroup(Protocol):
    """A leader's group."""

    @property
    def applied_index(self) -> int: ...
    @property
    def first_index(self) -> int: ...
    def entry(self, index: int) -> tuple[int, bytes]: ...


def dump(group: StoredGroup, asked: DumpEntries, row_of: Callable[[int], IndexRow | None]) -> EntryList:
    """`row_of(index)`: the first row of the offset index whose entry is this one, or a later one."""
    found: list[EntryRow] = []
    size = 0
    for index in range(max(asked.after + 1, group.first_index), group.applied_index + 1):
        if len(found) >= asked.limit or size >= READ_BYTES:
            break
        try:
            term, entry = group.entry(index)
        except KeyError:
            continue  # trimmed meanwhile
        except StorageDamaged as error:
            found.append(EntryRow(index, 0, "unreadable", 0, detail=str(error)))
            continue
        row = _describe(index, term, entry, row_of)
        size += uncompressed_bytes(entry) if Attributes(row.attributes).compression else len(entry)
        found.append(row)
    return EntryList(found, group.first_index, group.applied_index)


def _describe(index: int, term: int, entry: bytes, row_of: Callable[[int], IndexRow | None]) -> EntryRow:
    size = len(entry)
    if entry[:1] != bytes((ENTRY_REGULAR,)):
        return EntryRow(index, term, "raft", size, detail="of the Raft group itself: a new leader, or its members")
    try:
        command = decode(entry)
    except UnknownCommand as error:
        return EntryRow(index, term, "unknown", size, detail=str(error))
    except Damaged as error:
        return EntryRow(index, term, "damaged", size, detail=str(error))
    if isinstance(command, BatchHead):
        return _batch(index, term, entry, command, row_of)
    kind, detail = _command(command)
    return EntryRow(index, term, kind, size, detail=detail)


def _batch(index: int, term: int, entry: bytes, head: BatchHead, row_of: Callable[[int], IndexRow | None]) -> EntryRow:
    kind, detail, coordinator_epoch = "batch", "", -1
    try:
        decode_records(entry)
        if head.attributes & Attributes.CONTROL:
            marker = marker_of(head)
            kind, coordinator_epoch = marker.end.name.lower(), marker.coordinator_epoch
    except Damaged as error:
        kind, detail = "damaged", str(error)
    row = None if head.attributes & Attributes.CONTROL else row_of(index)
    stored = row is not None and row.entry_index == index
    return EntryRow(
        index=index,
        term=term,
        kind=kind,
        size=len(entry),
        base_offset=row.base_offset if stored and row is not None else -1,
        stored=row.events if stored and row is not None else 0,
        count=head.count,
        attributes=int(head.attributes),
        producer_id=head.producer_id,
        producer_epoch=head.producer_epoch,
        base_sequence=head.base_sequence,
        first_timestamp_ms=head.first_timestamp_ms,
        max_timestamp_ms=head.max_timestamp_ms,
        coordinator_epoch=coordinator_epoch,
        detail=detail,
    )


def _command(command: object) -> tuple[str, str]:
    match command:
        case Trim():
            return "trim", f"events below {command.offset:016x} are forgotten"
        case OpenProducer():
            return "open-producer", f"producer {command.producer_id}, epoch {command.epoch}"
        case Claim():
            return "claim", f"{command.key!r} for {command.member}, epoch {command.epoch}"
        case EndClaim():
            return "end-claim", f"{command.key!r}, claim {command.claim}"
        case Commit():
            return "commit-offset", f"{command.key!r} stands before {command.position:016x}, claim {command.claim}"
        case Delete():
            return "delete-group", repr(command.key)
        case Begin():
            what = f"producer {command.producer_id}, epoch {command.epoch}"
            return "begin-transaction", f"{what}, coordinator group {command.coordinator}, {command.timeout_ms} ms"
        case StageOffset():
            what = f"producer {command.producer_id}, epoch {command.epoch}"
            return "stage-offset", f"{what}: {command.key!r} before {command.position:016x}, claim {command.claim}"
        case Prepare():
            return "prepare", f"producer {command.producer_id}, epoch {command.epoch}"
    return type(command).__name__, ""
