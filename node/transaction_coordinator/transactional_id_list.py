"""A coordinator's transactional ids, as operators see them."""

from __future__ import annotations

from node.transaction_coordinator.coordinator_queries import LIST_LIMIT, IdList, IdRow, ListIds
from node.transaction_coordinator.state import TransactionalId
from node.transaction_coordinator.state_machine import CoordinatorMachine
from node.transaction_coordinator.transitions import DECIDED, TransactionState


def list_ids(machine: CoordinatorMachine, question: ListIds, now_ms: int) -> IdList:
    if question.name:
        one = machine.get(question.name)
        found = [] if one is None else [one]
    else:
        found = sorted((one for one in machine if one.name > question.after), key=lambda one: one.name)
    limit = max(1, min(question.limit, LIST_LIMIT))
    return IdList([_row(machine, one, now_ms) for one in found[:limit]])


def _row(machine: CoordinatorMachine, one: TransactionalId, now_ms: int) -> IdRow:
    under_way = one.state is TransactionState.ONGOING or one.state in DECIDED
    open_ms = machine.lived_ms(now_ms) - one.started_ms if under_way else -1
    return IdRow(
        one.name, one.state.name.lower(), one.producer_id, one.epoch, one.timeout_ms, open_ms, list(one.groups),
        one.last_end,
    )  # fmt: skip
