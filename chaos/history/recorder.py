"""Recorder of the history of a run.

A call is noted at its begin and gets its row at its end, both in the loop of the workload. The thread of the faults
records faults. Lists grow by `append`, which needs no lock.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass

from chaos.history.history import History
from chaos.history.moments import moments
from chaos.history.tables import INFO, OK, FaultRow, OpRow


@dataclass(slots=True)
class Call:
    """A call that is under way."""

    op_id: int
    process: str
    node: int | None
    f: str
    t_inv_ns: int
    deadline_ns: int | None


class Recorder:
    def __init__(self) -> None:
        self.history = History()
        self.begun_ns = time.monotonic_ns()
        self._numbers = itertools.count(1)
        self._under_way: dict[int, Call] = {}

    # ---------------------------------------------------------------- calls

    def begin(self, process: str, f: str, *, node: int | None = None, within_s: float | None = None) -> Call:
        now_ns = time.monotonic_ns()
        deadline_ns = None if within_s is None else now_ns + int(within_s * 1e9)
        call = Call(next(self._numbers), process, node, f, now_ns, deadline_ns)
        self._under_way[call.op_id] = call
        return call

    def end(self, call: Call, outcome: str = OK, error: BaseException | str | None = None) -> OpRow:
        del self._under_way[call.op_id]
        row = self._row(call, outcome, time.monotonic_ns(), error)
        self.history.ops.append(row)
        return row

    def _row(self, call: Call, outcome: str, t_end_ns: int | None, error: BaseException | str | None) -> OpRow:
        text = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else error
        return OpRow(
            call.op_id, call.process, call.node, call.f, outcome, call.t_inv_ns, t_end_ns, text, None, call.deadline_ns
        )

    def fault(self, fault: FaultRow) -> None:
        self.history.faults.append(fault)

    # ---------------------------------------------------------------- the end

    def finish(self) -> History:
        """Return the history; calls that are still under way get rows without an end."""
        for call in self._under_way.values():
            self.history.ops.append(self._row(call, INFO, None, "under way when the run ended"))
        self._under_way.clear()
        self.history.ops.sort(key=lambda op: op.op_id)
        self.history.moments = moments(self.history)
        return self.history
