"""What may be said of a transaction in the log of a partition, except its end, which is a control batch.

The rules are in `transaction_state.py`; `timestamp_ms` is the leader's clock, as in a record batch.
"""

from __future__ import annotations

import msgspec


class Begin(msgspec.Struct, frozen=True, array_like=True, tag=23):
    """`coordinator`: the Raft group that decides. `timeout_ms`: how long it gives the transaction."""

    producer_id: int
    epoch: int
    coordinator: int
    timeout_ms: int
    timestamp_ms: int = 0


class StageOffset(msgspec.Struct, frozen=True, array_like=True, tag=24):
    """When it commits, everything below `position` is done for the group: as `Commit` of `group_state.py` says.
    `prepare`: and it is about to be committed, see `Prepare`."""

    producer_id: int
    epoch: int
    key: str
    claim: int
    position: int
    timestamp_ms: int = 0
    prepare: bool = False


class Prepare(msgspec.Struct, frozen=True, array_like=True, tag=25):
    """The coordinator wants to commit: may it, as far as this partition is concerned?"""

    producer_id: int
    epoch: int
    timestamp_ms: int = 0


TransactionCommand = Begin | StageOffset | Prepare


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(TransactionCommand)


def encode_command(command: TransactionCommand) -> bytes:
    return _ENCODER.encode(command)


def decode_command(data: bytes) -> TransactionCommand:
    """Raises msgspec.DecodeError."""
    return _DECODER.decode(data)
