"""Outcome of a commit whose answer got lost, as the cluster tells it at the next attach of the transactional id.

It is that of the very transaction, by its producer id and epoch; else it is unknown.
"""

from __future__ import annotations

import logging

from holdfast import protocol
from holdfast.client.errors import HoldfastError, TransactionOutcomeUnknownError, TransactionRolledBackError
from holdfast.client.transact.control_link import LastTransaction

log = logging.getLogger("holdfast.client")


def check_committed(name: str, pair: tuple[int, int], last: LastTransaction | None, why: HoldfastError) -> None:
    """Return if the transaction `pair` was committed, by the `last` one that the node remembers of the id. `why`: how
    the answer got lost. Raises TransactionRolledBackError or TransactionOutcomeUnknownError."""
    told = None if last is None else (last.producer_id, last.epoch)
    if last is None or told is None or told < pair:  # pairs only rise, and the next one is in use now
        raise TransactionRolledBackError(f"the transaction was rolled back: its commit was never decided ({why})")
    if told != pair:
        raise unknown(f"the answer to the commit got lost ({why}); {name!r} is not remembered with it", pair)
    log.info("the answer to a commit of %r got lost; it was %s", name, "done" if last.committed else "not done")
    if not last.committed:
        raise TransactionRolledBackError(f"the transaction was rolled back ({last.how}): {why}")


def pair_of(txn_id: bytes) -> tuple[int, int] | None:
    """Return (producer id, epoch) of a transaction's id; None if the id is not in the form of Holdfast's nodes."""
    form = protocol.TRANSACTION_NAME
    if len(txn_id) != form.size or txn_id[0] != protocol.TRANSACTION_NAME_VERSION:
        return None
    _, producer_id, epoch, _ = form.unpack(txn_id)
    return producer_id, epoch


def unknown(text: str, pair: tuple[int, int] | None, advice: str | None = None) -> TransactionOutcomeUnknownError:
    producer_id, epoch = pair if pair is not None else (None, None)
    whose = "" if pair is None else f" (producer {producer_id}, epoch {epoch})"
    return TransactionOutcomeUnknownError(
        f"it is not known what became of the transaction{whose}: {text}",
        producer_id=producer_id, epoch=epoch, advice=advice,
    )  # fmt: skip
