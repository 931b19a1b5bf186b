"""Commands in the log of a partition, which its replicas apply.

The rule: a table from tag to decoder that raises on anything absent. A committed entry cannot be refused any more, so
the machine turns that into a recorded rejection; it never guesses at bytes of a newer version.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

import msgspec

from holdfast.records.record_batch import Attributes, Damaged, read_batch
from node.partition.consumer_groups.group_state import GroupCommand
from node.partition.consumer_groups.group_state import decode_command as decode_group_command
from node.partition.consumer_groups.group_state import encode_command as encode_group_bytes
from node.partition.raft_entry import ENTRY_REGULAR, TAG_RECORD_BATCHES, EntryHead, read_entry
from node.partition.transactions.control_record import Marker, marker_of
from node.partition.transactions.transaction_commands import TransactionCommand
from node.partition.transactions.transaction_commands import decode_command as decode_transaction_command
from node.partition.transactions.transaction_commands import encode_command as encode_transaction_bytes

TAG_TRIM = 2
TAG_OPEN_PRODUCER = 3
TAG_CONSUMER_GROUP = 4
TAG_TRANSACTION = 5

_TRIM = struct.Struct(">BBBQQQ")
_TRIM_VERSION = 1

_OPEN = struct.Struct(">BBBqqqq?")
_OPEN_VERSION = 1
_UNSTATED = -1

_GROUP_VERSION = 1
_GROUP_HEAD = bytes((ENTRY_REGULAR, TAG_CONSUMER_GROUP, _GROUP_VERSION))

_TRANSACTION_VERSION = 1
_TRANSACTION_HEAD = bytes((ENTRY_REGULAR, TAG_TRANSACTION, _TRANSACTION_VERSION))


class UnknownCommand(ValueError):
    """Raised for a tag or version that this program does not know; another version made the entry, or it is damaged."""


@dataclass(frozen=True, slots=True)
class Trim:
    """Forget the events below `offset`. The leader worked the rest out from its index, which all replicas share:
    entries up to `index` are no longer needed, and they began `bytes_before` bytes into the log."""

    offset: int
    index: int
    bytes_before: int

    def encode(self) -> bytes:
        return _TRIM.pack(ENTRY_REGULAR, TAG_TRIM, _TRIM_VERSION, self.offset, self.index, self.bytes_before)


@dataclass(frozen=True, slots=True)
class OpenProducer:
    """Open a producer with the numbers that it states; None: the partition chooses. The rules are in
    `node/partition/idempotence/producer_state.py`. `timestamp_ms` is the leader's clock, as in a record batch.
    `renews`: the producer goes on by itself when it is forgotten."""

    producer_id: int | None
    epoch: int | None
    last_sequence: int | None
    timestamp_ms: int
    renews: bool = False

    def encode(self) -> bytes:
        stated = (self.producer_id, self.epoch, self.last_sequence)
        numbers = [_UNSTATED if one is None else one for one in stated]
        return _OPEN.pack(ENTRY_REGULAR, TAG_OPEN_PRODUCER, _OPEN_VERSION, *numbers, self.timestamp_ms, self.renews)


@dataclass(frozen=True, slots=True)
class Append:
    """Store the batches in this order, as far as they are new. Each has a result of its own."""

    batches: tuple[EntryHead, ...]


Command = Append | Marker | Trim | OpenProducer | GroupCommand | TransactionCommand


def is_of_later_version(data: bytes, known: Any) -> bool:
    """Tell whether a command that cannot be decoded is of a kind that a later version brought, or has a field of one.
    `known`: the union of the commands that this program knows."""
    fields = {kind.__struct_config__.tag: len(kind.__struct_fields__) for kind in get_args(known)}
    try:
        row = msgspec.msgpack.decode(data)
    except msgspec.DecodeError:
        return False
    if not isinstance(row, list) or not row or not isinstance(row[0], int):
        return False
    return row[0] not in fields or len(row) - 1 > fields[row[0]]


def encode_group_command(command: GroupCommand) -> bytes:
    return _GROUP_HEAD + encode_group_bytes(command)


def encode_transaction_command(command: TransactionCommand) -> bytes:
    return _TRANSACTION_HEAD + encode_transaction_bytes(command)


def _decode_group(entry: bytes) -> GroupCommand:
    if entry[2:3] != _GROUP_HEAD[2:]:
        raise UnknownCommand(f"command for a consumer group, of version {entry[2:3].hex()}")
    try:
        return decode_group_command(entry[3:])
    except msgspec.DecodeError as error:
        if is_of_later_version(entry[3:], GroupCommand):
            raise UnknownCommand("command for a consumer group, of a kind or with a field") from error
        raise Damaged(f"a command for a consumer group cannot be read: {error}") from error


def _decode_transaction(entry: bytes) -> TransactionCommand:
    if entry[2:3] != _TRANSACTION_HEAD[2:]:
        raise UnknownCommand(f"command for a transaction, of version {entry[2:3].hex()}")
    try:
        return decode_transaction_command(entry[3:])
    except msgspec.DecodeError as error:
        if is_of_later_version(entry[3:], TransactionCommand):
            raise UnknownCommand("command for a transaction, of a kind or with a field") from error
        raise Damaged(f"a command for a transaction cannot be read: {error}") from error


def _decode_batches(entry: bytes) -> Append | Marker:
    batches = read_entry(entry)
    control = [bool(batch.head.attributes & Attributes.CONTROL) for batch in batches]
    if control == [True]:
        return marker_of(read_batch(entry, batches[0].at)[0])
    if any(control):
        raise Damaged(f"a control batch among {len(batches)} in one entry")
    return Append(batches)


def _decode_trim(entry: bytes) -> Trim:
    if len(entry) != _TRIM.size:
        raise Damaged(f"a trim command has {_TRIM.size} bytes, not {len(entry)}")
    _, _, version, offset, index, bytes_before = _TRIM.unpack(entry)
    if version != _TRIM_VERSION:
        raise UnknownCommand(f"trim command of version {version}")
    return Trim(offset, index, bytes_before)


def _decode_open(entry: bytes) -> OpenProducer:
    if len(entry) != _OPEN.size:
        raise Damaged(f"a command to open a producer has {_OPEN.size} bytes, not {len(entry)}")
    _, _, version, *numbers, timestamp_ms, renews = _OPEN.unpack(entry)
    if version != _OPEN_VERSION:
        raise UnknownCommand(f"command to open a producer, of version {version}")
    producer_id, epoch, last = (None if number == _UNSTATED else number for number in numbers)
    return OpenProducer(producer_id, epoch, last, timestamp_ms, renews)


_DECODERS: dict[int, Callable[[bytes], Command]] = {
    TAG_RECORD_BATCHES: _decode_batches,
    TAG_TRIM: _decode_trim,
    TAG_OPEN_PRODUCER: _decode_open,
    TAG_CONSUMER_GROUP: _decode_group,
    TAG_TRANSACTION: _decode_transaction,
}


def decode(entry: bytes) -> Command:
    """Decode the command of an entry. Raises Damaged or UnknownCommand, both ValueError."""
    if len(entry) < 2 or entry[0] != ENTRY_REGULAR:
        raise Damaged(f"no command in {len(entry)} bytes beginning with {entry[:2].hex()!r}")
    try:
        decoder = _DECODERS[entry[1]]
    except KeyError:
        raise UnknownCommand(f"command tag {entry[1]}") from None
    return decoder(entry)
