"""The states of a transactional id, and which may follow which.

The names and numbers are Kafka's (TransactionState). The transitions are those of KIP-890's second version, where each
end raises the epoch: PrepareAbort may follow a state without a transaction, too, when a client cannot know whether
anything was begun. Kafka's eighth state, PrepareEpochFence, is a step in a coordinator's memory there; here fencing is
one replicated command that goes to PrepareAbort at once, so the state has its number and nothing leads to it.
"""

from __future__ import annotations

from enum import IntEnum


class TransactionState(IntEnum):
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2  # decided: it commits, whatever happens from now on
    PREPARE_ABORT = 3  # decided: it aborts
    COMPLETE_COMMIT = 4  # and every partition has its marker
    COMPLETE_ABORT = 5
    DEAD = 6  # forgotten: the id begins from the start when it is used again
    PREPARE_EPOCH_FENCE = 7


_PREDECESSORS: dict[TransactionState, frozenset[TransactionState]] = {
    TransactionState.EMPTY: frozenset(
        {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
    ),
    TransactionState.ONGOING: frozenset(
        {
            TransactionState.ONGOING,
            TransactionState.EMPTY,
            TransactionState.COMPLETE_COMMIT,
            TransactionState.COMPLETE_ABORT,
        }
    ),
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
    TransactionState.PREPARE_ABORT: frozenset(
        {
            TransactionState.ONGOING,
            TransactionState.EMPTY,
            TransactionState.COMPLETE_COMMIT,
            TransactionState.COMPLETE_ABORT,
        }
    ),
    TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
    TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
    TransactionState.DEAD: frozenset(
        {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
    ),
    TransactionState.PREPARE_EPOCH_FENCE: frozenset(),
}

IDLE = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
"""No transaction is under way."""

DECIDED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
"""The markers are under way."""


class IllegalTransition(AssertionError):
    """A defect of the coordinator: what it was about to do cannot follow what it has done."""


def check(before: TransactionState, after: TransactionState) -> TransactionState:
    """`after`. Raises IllegalTransition."""
    if before not in _PREDECESSORS[after]:
        raise IllegalTransition(f"{after.name} cannot follow {before.name}")
    return after
