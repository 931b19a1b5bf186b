"""The states of a transactional id, and which may follow which.

The names and numbers are Kafka's (TransactionState). What may follow what is KIP-890's second version, where each end
raises the epoch: PrepareAbort may follow a state without a transaction, too, when a client cannot know whether
anything was begun. Kafka's eighth state, PrepareEpochFence, is a step in a coordinator's memory there; here fencing is
one replicated command that goes to PrepareAbort at once, so the state has its number and nothing leads to it.
"""

from __future__ import annotations

from enum import IntEnum


class State(IntEnum):
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2  # decided: it commits, whatever happens from now on
    PREPARE_ABORT = 3  # decided: it aborts
    COMPLETE_COMMIT = 4  # and every partition has its marker
    COMPLETE_ABORT = 5
    DEAD = 6  # forgotten: the id begins anew when it is used again
    PREPARE_EPOCH_FENCE = 7


_PREDECESSORS: dict[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT}),
    State.ONGOING: frozenset({State.ONGOING, State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT}),
    State.PREPARE_COMMIT: frozenset({State.ONGOING}),
    State.PREPARE_ABORT: frozenset({State.ONGOING, State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT}),
    State.COMPLETE_COMMIT: frozenset({State.PREPARE_COMMIT}),
    State.COMPLETE_ABORT: frozenset({State.PREPARE_ABORT}),
    State.DEAD: frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT}),
    State.PREPARE_EPOCH_FENCE: frozenset(),
}

IDLE = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
"""No transaction is under way."""

DECIDED = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
"""The markers are under way."""


class IllegalTransition(AssertionError):
    """A defect of the coordinator: what it was about to do cannot follow what it has done."""


def check(before: State, after: State) -> State:
    """`after`. Raises IllegalTransition."""
    if before not in _PREDECESSORS[after]:
        raise IllegalTransition(f"{after.name} cannot follow {before.name}")
    return after
