"""Commands about transactions in the log of a partition; the end of one is a control batch.

The rules are in `transaction_state.py`; `timestamp_ms` is the leader's clock, as in a record batch.
"""

from __future__ import annotations

import msgspec


class Begin(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=23):
    """Begin a transaction here. `coordinator`: the Raft group that decides it. `timeout_ms`: the time that it gives."""

    producer_id: int
    epoch: int
    coordinator: int
    timeout_ms: int
    timestamp_ms: int = 0


class StageOffset(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=24):
    """Stage a group's position: at the commit everything below `position` is done, as by `Commit` of `group_state.py`.
    `prepare`: the transaction is about to be committed, too, see `Prepare`."""

    producer_id: int
    epoch: int
    key: str
    claim: int
    position: int
    timestamp_ms: int = 0
    prepare: bool = False


class Prepare(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=25):
    """Ask on behalf of the coordinator, which wants to commit, whether this partition permits it."""

    producer_id: int
    epoch: int
    timestamp_ms: int = 0


TransactionCommand = Begin | StageOffset | Prepare


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(TransactionCommand)


def encode_command(command: TransactionCommand) -> bytes:
    return _ENCODER.encode(command)


def decode_command(data: bytes) -> TransactionCommand:
    """Decode a command. Raises msgspec.DecodeError."""
    return _DECODER.decode(data)
