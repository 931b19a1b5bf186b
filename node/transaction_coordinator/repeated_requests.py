"""Answers about a transaction that is decided or over, to a repeated question."""

from __future__ import annotations

from node.transaction_coordinator.coordinator_commands import Decided, Declined, LastEnd, Registered
from node.transaction_coordinator.state import TransactionalId, how_it_ended
from node.transaction_coordinator.transitions import TransactionState


def goes_on(one: TransactionalId, last: LastEnd) -> bool:
    """Tell whether the holder of the earlier transaction `last` also has the present one."""
    return last is one.last and last.how != "fenced" and not one.registered_since


def was_passed_over(one: TransactionalId, pair: tuple[int, int]) -> bool:
    """Tell whether a registration came before anything of this transaction was known: epochs only rise, and the latest
    one that was ended is before it. So it was never decided, and never will be."""
    last = None if one.last is None else (one.last.producer_id, one.last.epoch)
    return pair[0] == one.producer_id and pair < one.pair and (last is None or last < pair)


def completed(one: TransactionalId, last: LastEnd) -> Decided:
    following = one.pair if goes_on(one, last) else (last.producer_id, last.epoch)
    return Decided(last.committed, True, last.how, *following)


def registered(one: TransactionalId) -> Registered:
    return Registered(one.producer_id, one.epoch, one.timeout_ms, one.last)


def ended(one: TransactionalId) -> Declined:
    """The refusal of a command for a present transaction that is decided already."""
    if one.how == "fenced":
        return Declined("fenced", f"another holder wants {one.name!r}: the transaction is being aborted")
    last = LastEnd(one.producer_id, one.epoch, one.state is TransactionState.PREPARE_COMMIT, one.how)
    return over(one.name, last)


def over(name: str, last: LastEnd) -> Declined:
    return Declined("expired" if last.how in ("timeout", "lease") else "ended", how_it_ended(name, last))
