"""Export of a history in Jepsen's EDN format, so that Jepsen's checkers (Elle, its Kafka workload) can judge it, too.

Each call becomes two operations: its `:invoke`, and its completion `:ok`, `:fail` or `:info`. A send is
`[:send k [offset v]]`, a poll `[:poll {k [[offset v] ...]}]`; a transaction is one operation `:txn` with all of them.
Keys are partitions; values are numbered in the order in which they were sent first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from chaos.history.history import History
from chaos.history.tables import OK, OpRow, ReadRow, SendRow


def write(history: History, path: Path) -> int:
    """Write a history as EDN; return the count of operations."""
    with path.open("w", encoding="utf-8") as file:
        return sum(bool(file.write(line + "\n")) for line in lines(history))


def lines(history: History) -> Iterator[str]:
    told = _Told(history)
    processes = {name: number for number, name in enumerate(dict.fromkeys(op.process for op in history.ops))}
    events: list[tuple[int, str]] = []
    for op in history.ops:
        f = told.f(op)
        if f is None:
            continue
        asked, answered = told.invoked(op), told.completed(op)
        head = f":process {processes[op.process]}, :f :{f}"
        events.append((op.t_inv_ns, f":type :invoke, {head}, :value {asked}"))
        kind = op.type if op.t_end_ns is not None else "info"
        error = f', :error "{_quoted(op.error)}"' if op.error else ""
        events.append((op.t_end_ns or op.t_inv_ns + 1, f":type :{kind}, {head}, :value {answered}{error}"))
    for index, (at_ns, text) in enumerate(sorted(events, key=lambda event: event[0])):
        yield f"{{:index {index}, :time {at_ns}, {text}}}"


class _Told:
    def __init__(self, history: History) -> None:
        self._numbers = {name: number for number, name in enumerate(dict.fromkeys(s.msg_id for s in history.sends))}
        self._sends: dict[int, list[SendRow]] = defaultdict(list)
        self._of_transaction: dict[str, list[SendRow]] = defaultdict(list)
        for send in history.sends:
            if send.txn is None:
                self._sends[send.op_id].append(send)
            else:
                self._of_transaction[send.txn].append(send)
        self._reads: dict[int, list[ReadRow]] = defaultdict(list)
        for read in history.reads:
            self._reads[read.op_id].append(read)
        for one in history.transactions:
            self._sends[one.op_id] = self._of_transaction[one.txn]

    def f(self, op: OpRow) -> str | None:
        if op.f in ("poll", "drain"):
            return "poll"
        if op.f == "txn-commit" and self._sends[op.op_id]:
            return "txn"
        return "send" if op.f == "produce" and self._sends[op.op_id] else None

    def invoked(self, op: OpRow) -> str:
        if op.f in ("poll", "drain"):
            return "[[:poll]]"
        told = (f"[:send {send.partition} {self._number(send.msg_id)}]" for send in self._sends[op.op_id])
        return "[" + " ".join(told) + "]"

    def completed(self, op: OpRow) -> str:
        if op.f not in ("poll", "drain"):
            told = (
                f"[:send {send.partition} [{_place(send.offset)} {self._number(send.msg_id)}]]"
                for send in self._sends[op.op_id]
            )
            return "[" + " ".join(told) + "]" if op.type == OK else self.invoked(op)
        by_key: dict[int, list[str]] = defaultdict(list)
        for read in sorted(self._reads[op.op_id], key=lambda read: read.pos):
            by_key[read.partition].append(f"[{read.offset} {self._number(read.msg_id)}]")
        return "[[:poll {" + ", ".join(f"{key} [{' '.join(rows)}]" for key, rows in by_key.items()) + "}]]"

    def _number(self, msg_id: str) -> int:
        return self._numbers.setdefault(msg_id, len(self._numbers))


def _place(offset: int | None) -> str:
    return "nil" if offset is None else str(offset)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
