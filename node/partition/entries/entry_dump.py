"""Dump of a partition's log, entry by entry, in the words of Kafka's `dump-log`.

The rule: it shows the stored entries, decided or not, and judges nothing; a batch whose checksum does not match is
shown as damaged instead of ending the list. Bounded: an answer ends with the entry that reaches the limit; ask for more
from its last index.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from holdfast.records.record_batch import Damaged, RecordBatch
from node.partition.consumer_groups.group_state import Claim, Commit, Delete, EndClaim
from node.partition.entries.entry_queries import DumpEntries, EntryList, EntryRow
from node.partition.offset_index import IndexRow
from node.partition.partition_commands import Append, OpenProducer, Trim, UnknownCommand, decode
from node.partition.raft_entry import ENTRY_REGULAR, batches_in
from node.partition.transactions.control_record import Marker
from node.partition.transactions.transaction_commands import Begin, Prepare, StageOffset
from node.storage.errors import StorageDamaged

READ_BYTES = 8 << 20
"""Decompressed bytes of entries for one answer: it keeps the leader's turn no longer than a reader of old events
does."""


class StoredGroup(Protocol):
    """The group at its leader, as far as a dump needs it."""

    @property
    def applied_index(self) -> int: ...
    @property
    def first_index(self) -> int: ...
    def entry(self, index: int) -> tuple[int, bytes]: ...


RowOf = Callable[[int, int], IndexRow | None]


def dump(group: StoredGroup, asked: DumpEntries, row_of: RowOf) -> EntryList:
    """List entries. `row_of(index, at)`: the first row of the offset index at this entry and byte, or after."""
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
        rows, opened = _describe(index, term, entry, row_of)
        size += len(entry) + opened
        found += rows
    return EntryList(found, group.first_index, group.applied_index)


def _describe(index: int, term: int, entry: bytes, row_of: RowOf) -> tuple[list[EntryRow], int]:
    """The lines of an entry, one for each batch in it, and the bytes that were decompressed for them."""
    size = len(entry)
    if entry[:1] != bytes((ENTRY_REGULAR,)):
        detail = "of the Raft group itself: a new leader, or its members"
        return [EntryRow(index, term, "raft", size, detail=detail)], 0
    try:
        command = decode(entry)
        if isinstance(command, Append | Marker):
            batches = batches_in(entry)
            opened = sum(batch.uncompressed_bytes for batch in batches if batch.codec)
            return [_batch(index, term, batch, command, row_of) for batch in batches], opened
        kind, detail = _command(command)
    except UnknownCommand as error:
        kind, detail = "unknown", str(error)
    except Damaged as error:
        kind, detail = "damaged", str(error)
    return [EntryRow(index, term, kind, size, detail=detail)], 0


def _batch(index: int, term: int, batch: RecordBatch, command: Append | Marker, row_of: RowOf) -> EntryRow:
    kind, detail, coordinator_epoch, row = "batch", "", -1, None
    try:
        batch.check_content()
        batch.open()
    except Damaged as error:
        kind, detail = "damaged", str(error)
    if isinstance(command, Marker):
        kind, coordinator_epoch = command.end.name.lower(), command.coordinator_epoch
    else:
        row = row_of(index, batch.start)
    stored = row is not None and (row.entry_index, row.at) == (index, batch.start)
    head = batch.head
    return EntryRow(
        index=index,
        term=term,
        kind=kind,
        size=batch.size,
        base_offset=row.base_offset if stored and row is not None else -1,
        stored=row.events if stored and row is not None else 0,
        count=head.record_count,
        attributes=head.attributes,
        producer_id=head.producer_id,
        producer_epoch=head.producer_epoch,
        base_sequence=head.base_sequence,
        first_timestamp_ms=head.time_ms,
        max_timestamp_ms=head.time_ms,
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
