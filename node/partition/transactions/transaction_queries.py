"""Questions to a partition about its transactions, from a coordinator, a gateway or an operator, and their answers. The
commands of `transaction_commands.py` are asked as well, stamped by the leader that proposes them.
"""

from __future__ import annotations

import msgspec

LIST_LIMIT = 1000
"""Transactions in one answer: as many as can be open in a partition."""


class WriteMarker(msgspec.Struct, frozen=True, array_like=True, tag=26):
    """Write the marker of a decided transaction. `coordinator_epoch`: the term of the coordinator's leader that says
    so."""

    producer_id: int
    epoch: int
    committed: bool
    coordinator_epoch: int


class ListTransactions(msgspec.Struct, frozen=True, array_like=True, tag=27):
    """List the open transactions."""


class OpenTransactionRow(msgspec.Struct, frozen=True, array_like=True):
    """An open transaction. `open_ms`: for how long, by the log's clock and the leader's. `first_offset` -1: it has no
    event yet."""

    producer_id: int
    epoch: int
    coordinator: int
    timeout_ms: int
    open_ms: int
    first_offset: int
    staged: int
    prepared: bool
    doomed: str


class OpenTransactions(msgspec.Struct, frozen=True, array_like=True, tag=28):
    """Open transactions, the oldest first."""

    rows: list[OpenTransactionRow]
    stable_offset: int
    next_offset: int
