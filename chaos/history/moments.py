"""Rare moments that a run hopes for: without them, the promises about them were never tested.

Each is counted from the history. If one of a workload's hopes has a count of zero in a long run, the run proves nothing
about it (`hopes` in `chaos/workloads/catalogue.py`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Final

from chaos.history.history import History
from chaos.history.tables import FAIL, INFO, OK, MomentRow

CHANGED_IN_COMMIT = "a leader changed while a commit was being decided"
ANSWER_LOST = "an event was stored whose answer got lost"
SENT_AGAIN = "an event was sent again, and acknowledged"
AGAIN_AFTER_FAILOVER = "an event was sent again after another leader had taken over, and acknowledged"
FENCED = "a producer was fenced by its successor"
OUTBID = "a member that was outbid tried to commit"
ROLLED_BACK_BY_CLUSTER = "the cluster rolled a transaction back that was to be committed"
ROLLED_BACK = "a transaction was rolled back on purpose"
NEW_SESSION = "a reader went on in a new session"


def moments(history: History) -> list[MomentRow]:
    return [MomentRow(name, count(history)) for name, count in COUNTS.items()]


def _changed_in_commit(history: History) -> int:
    times = sorted(row.t_ns for row in history.leaders)
    return sum(
        bisect_right(times, op.t_end_ns) > bisect_left(times, op.t_inv_ns)
        for op in history.ops
        if op.f == "txn-commit" and op.t_end_ns is not None
    )


def _answers_lost(history: History) -> int:
    stored = {row.msg_id for row in history.replica_dump}
    return len({send.msg_id for send in history.sends if send.outcome == INFO} & stored)


def _sent_again(history: History) -> int:
    first = {send.msg_id for send in history.sends if send.outcome == INFO}
    return len({send.msg_id for send in history.sends if send.outcome == OK} & first)


def _again_after_failover(history: History) -> int:
    times = sorted(row.t_ns for row in history.leaders)
    begun = {op.op_id: op.t_inv_ns for op in history.ops}
    first: dict[str, int] = {}
    found = set()
    for send in history.sends:
        at_ns = begun.get(send.op_id, 0)
        before_ns = first.setdefault(send.msg_id, at_ns)
        if send.outcome == OK and bisect_left(times, at_ns) > bisect_left(times, before_ns):
            found.add(send.msg_id)
    return len(found)


def _with_error(*names: str) -> Callable[[History], int]:
    return lambda history: sum(op.error is not None and op.error.partition(":")[0] in names for op in history.ops)


COUNTS: Final[dict[str, Callable[[History], int]]] = {
    ANSWER_LOST: _answers_lost,
    SENT_AGAIN: _sent_again,
    AGAIN_AFTER_FAILOVER: _again_after_failover,
    FENCED: _with_error("ProducerStolenError", "ProducerFencedError"),
    OUTBID: lambda history: sum(op.f == "commit" and op.type == FAIL for op in history.ops),
    CHANGED_IN_COMMIT: _changed_in_commit,
    ROLLED_BACK_BY_CLUSTER: lambda history: sum(
        one.decision == "commit" and one.outcome == FAIL for one in history.transactions
    ),
    ROLLED_BACK: lambda history: sum(one.decision == "abort" for one in history.transactions),
    NEW_SESSION: lambda history: len({(read.reader, read.session) for read in history.reads if read.session > 0}),
}
