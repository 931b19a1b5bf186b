"""Figures and call details of a run, ready to be drawn: `report.json`."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Any

from chaos.checkers.all import Judgement
from chaos.history.history import History
from chaos.history.tables import OK, OpRow
from chaos.run import ChaosRun

POINTS = 3000
"""Most single calls that the page draws as points."""
BOXES = 2500
"""Successful calls in the timeline, the first ones; calls that did not end well are all there."""
LOG_LINES = 400
_S = 1e9


def summarise(run: ChaosRun) -> dict[str, Any]:
    history, begun_ns = run.history, run.begun_ns
    return {
        **run.facts,
        "result": str(run.judgement.result),
        "why": run.judgement.why,
        "verdicts": _verdicts(run.judgement, begun_ns),
        "proofs": _proofs(run.judgement, history, begun_ns),
        "totals": _totals(history),
        "seconds": _per_second(history, begun_ns),
        "calls": _points(history, begun_ns),
        "timeline": _timeline(history, begun_ns),
        "faults": [
            {
                "id": fault.id, "kind": fault.kind, "target": fault.target,
                "from_s": _s(fault.t_injecting_ns, begun_ns), "in_force_s": _s(fault.t_injected_ns, begun_ns),
                "healing_s": _s(fault.t_healing_ns, begun_ns), "to_s": _s(fault.t_healed_ns, begun_ns),
            }
            for fault in sorted(history.faults, key=lambda fault: fault.t_injecting_ns)
        ],
        "leaders": [
            {"at_s": _s(row.t_ns, begun_ns), "partition": row.partition, "node": row.node, "term": row.term}
            for row in history.leaders
        ],
        "moments": {moment.name: moment.times for moment in history.moments},
        "logs": _logs(run.directory),
    }  # fmt: skip


def write(run: ChaosRun) -> Path:
    path = run.directory / "report.json"
    path.write_text(json.dumps(summarise(run), indent=1, ensure_ascii=False), encoding="utf-8")
    return path


def _s(at_ns: int | None, begun_ns: int) -> float | None:
    return None if at_ns is None else round((at_ns - begun_ns) / _S, 3)


def _verdicts(judgement: Judgement, begun_ns: int) -> list[dict[str, Any]]:
    found = []
    for verdict in judgement.verdicts:
        row = asdict(verdict)
        for anomaly in row["anomalies"]:
            anomaly["at_s"] = _s(anomaly.pop("t_ns"), begun_ns)
        found.append({**row, "result": str(verdict.result)})
    return found


def _proofs(judgement: Judgement, history: History, begun_ns: int) -> dict[str, str]:
    """Describe each call that an anomaly names."""
    named = {op for verdict in judgement.verdicts for anomaly in verdict.anomalies for op in anomaly.ops}
    sends: dict[int, list[str]] = defaultdict(list)
    for send in history.sends:
        if send.op_id in named:
            place = "" if send.offset is None else f" at {send.partition}/{send.offset}"
            sends[send.op_id].append(f"{send.msg_id} ({send.outcome}{place})")
    reads: dict[int, list[str]] = defaultdict(list)
    for read in history.reads:
        if read.op_id in named:
            reads[read.op_id].append(f"{read.partition}/{read.offset} {read.msg_id}")
    return {
        str(op.op_id): _told(op, begun_ns) + _list(" sent ", sends[op.op_id]) + _list(" got ", reads[op.op_id])
        for op in history.ops
        if op.op_id in named
    }


def _told(op: OpRow, begun_ns: int) -> str:
    until = "never ended" if op.t_end_ns is None else f"to {_s(op.t_end_ns, begun_ns)} s"
    error = f" ({op.error})" if op.error else ""
    return f"call {op.op_id}: {op.process} {op.f}, {op.type}{error}, {_s(op.t_inv_ns, begun_ns)} s {until};"


def _list(what: str, values: list[str]) -> str:
    shown = ", ".join(values[:8]) + (f" and {len(values) - 8} more" if len(values) > 8 else "")
    return what + shown if values else ""


def _totals(history: History) -> dict[str, int]:
    totals = {
        "calls": len(history.ops),
        "events acknowledged": sum(send.outcome == OK for send in history.sends),
        "sends without an answer": sum(send.outcome == "info" for send in history.sends),
        "events read": len(history.reads),
        "faults": sum(fault.t_injected_ns is not None for fault in history.faults),
        "elections": len(history.leaders),
    }
    if history.transactions:
        totals["transactions"] = len(history.transactions)
    return totals


def _per_second(history: History, begun_ns: int) -> list[dict[str, Any]]:
    """Count events by outcome and compute quantiles of the time to acknowledgement, for each second."""
    ops = {op.op_id: op for op in history.ops}
    counts: dict[int, dict[str, int]] = defaultdict(lambda: {"ok": 0, "fail": 0, "info": 0, "read": 0})
    took: dict[int, list[float]] = defaultdict(list)
    for send in history.sends:
        op = ops.get(send.op_id)
        if op is not None and op.t_end_ns is not None:
            second = int((op.t_end_ns - begun_ns) / _S)
            counts[second][send.outcome] += 1
            if send.outcome == OK:
                took[second].append((op.t_end_ns - op.t_inv_ns) / 1e6)
    for read in history.reads:
        op = ops.get(read.op_id)
        if op is not None and op.f == "poll" and op.t_end_ns is not None:
            counts[int((op.t_end_ns - begun_ns) / _S)]["read"] += 1
    if not counts:
        return []
    rows = []
    for second in range(min(counts), max(counts) + 1):
        ordered = sorted(took[second])
        quantiles = {f"p{q}": round(ordered[len(ordered) * q // 100], 1) for q in (50, 95, 99) if ordered}
        rows.append({"second": second, **counts[second], **quantiles})
    return rows


def _points(history: History, begun_ns: int) -> list[list[Any]]:
    """Sample calls evenly, as [end in s, duration in ms, outcome, call]."""
    calls = [op for op in history.ops if op.t_end_ns is not None and op.f not in ("poll", "drain")]
    step = max(1, len(calls) // POINTS)
    kept = [op for place, op in enumerate(calls) if place % step == 0 or op.type != OK][: 2 * POINTS]
    return [
        [_s(op.t_end_ns, begun_ns), round(((op.t_end_ns or 0) - op.t_inv_ns) / 1e6, 2), op.type, op.f] for op in kept
    ]


def _timeline(history: History, begun_ns: int) -> dict[str, list[list[Any]]]:
    """Collect the calls of each process, as [begin, end, outcome, description]."""
    rows: dict[str, list[list[Any]]] = defaultdict(list)
    kept = 0
    for op in history.ops:
        if kept < BOXES or op.type != OK:
            kept += 1
            rows[op.process.split(".")[0]].append(
                [_s(op.t_inv_ns, begun_ns), _s(op.t_end_ns, begun_ns), op.type, _told(op, begun_ns)]
            )
    return dict(sorted(rows.items()))


def _logs(directory: Path) -> dict[str, str]:
    found = {}
    for path in sorted(directory.glob("node*/node.log")):
        found[path.parent.name] = "\n".join(path.read_text(errors="replace").splitlines()[-LOG_LINES:])
    return found
