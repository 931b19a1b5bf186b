"""HTML page of one run, made from `report.json` alone."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

from chaos.report import charts

STYLE = """
:root{color-scheme:light dark;--ink:#1d2530;--soft:#5b6675;--line:#dfe3e8;--paper:#fbfaf7;--card:#fff}
@media(prefers-color-scheme:dark){:root{--ink:#e8eaee;--soft:#9aa5b4;--line:#333b46;--paper:#14181e;--card:#1b2129}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);margin:0}
main{max-width:1120px;margin:0 auto;padding:28px 20px 80px}
h1{font-size:26px;margin:0 0 4px}h2{font-size:18px;margin:34px 0 10px}
.sub{color:var(--soft)}.badge{display:inline-block;padding:2px 12px;border-radius:99px;color:#fff;font-weight:600}
.PASSED{background:#2f7d5b}.FAILED{background:#c0392b}.UNKNOWN{background:#7768ae}.NODATA{background:#8a94a0}
code,pre{font:13px/1.45 ui-monospace,monospace}pre{white-space:pre-wrap;word-break:break-word;background:var(--card);
border:1px solid var(--line);border-radius:8px;padding:10px 12px;max-height:420px;overflow:auto}
.cards{display:flex;flex-wrap:wrap;gap:10px;margin:18px 0}.card{background:var(--card);border:1px solid var(--line);
border-radius:10px;padding:8px 14px;min-width:112px}.card b{display:block;font-size:21px}.card span{color:var(--soft)}
table{border-collapse:collapse;width:100%;background:var(--card);border:1px solid var(--line);border-radius:10px}
td,th{text-align:left;padding:6px 10px;border-top:1px solid var(--line);vertical-align:top}
th{border:0;color:var(--soft)}
td.n{text-align:right;font-variant-numeric:tabular-nums}svg{width:100%;height:auto;background:var(--card);
border:1px solid var(--line);border-radius:10px;margin:0 0 14px;display:block}
.grid{stroke:var(--line)}.tick{font:11px system-ui;fill:var(--soft)}.title{font:12.5px system-ui;fill:var(--ink)}
.fault{font:bold 10px system-ui}.leader{stroke:#1f6feb;stroke-width:1;stroke-dasharray:2 3}
details{margin:8px 0}summary{cursor:pointer}.anomaly{border-left:3px solid #c0392b;padding-left:10px;margin:8px 0}
"""

HOPES = (
    "<p class=sub>Rare things that put a promise to the test: only when an event was sent again, for example, can it "
    "be seen that it is stored once. They are counted in what the clients recorded. Each workload is there for some of "
    "them; if one of these never happened in a run of two minutes or more, the run proves nothing, and its result is "
    "NODATA. In shorter runs the counts are told, and decide nothing.</p>"
)


def write(directory: Path) -> Path:
    """Write `report.html` from the `report.json` of a run's directory, and return its path."""
    summary = json.loads((directory / "report.json").read_text(encoding="utf-8"))
    path = directory / "report.html"
    path.write_text(page(summary), encoding="utf-8")
    return path


def page(summary: dict[str, Any]) -> str:
    plan = summary["plan"]
    title = f"{plan['workload']} under {', '.join(plan['faults'])}, seed {plan['seed']}"
    when = datetime.fromtimestamp(summary["begun_s"], UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    time = charts.Time(_end_s(summary))
    body = [
        f"<h1>{escape(title)} <span class='badge {summary['result']}'>{summary['result']}</span></h1>",
        f"<p class=sub>{escape(summary['why'])}. {when}, {plan['nodes']} nodes, {plan['partitions']} partitions, "
        f"durability {escape(plan['durability'])}.</p>",
        f"<pre>{escape(summary['command'])}</pre>",
        _cards(summary["totals"]),
        "<h2>Verdicts</h2>", _verdicts(summary),
        "<h2>Over time</h2>",
        "<p class=sub>Bands: faults, from when they are being made until they are healed. Dotted blue lines: a node "
        "began to lead. Point at anything to read what it is.</p>",
        charts.throughput(time, summary), charts.latency(time, summary), charts.timeline(time, summary),
        "<h2>Faults</h2>", _faults(summary["faults"]),
        *(_moments(summary["moments"]) if summary["moments"] else []),
        "<h2>Logs of the nodes</h2>", *_logs(summary["logs"]),
    ]  # fmt: skip
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{escape(title)}: {summary['result']}</title><style>{STYLE}</style><main>{''.join(body)}</main></html>"
    )


def _end_s(summary: dict[str, Any]) -> float:
    ends = [row["second"] + 1 for row in summary["seconds"]] + [fault["to_s"] or 0 for fault in summary["faults"]]
    return float(max(ends, default=1) or 1)


def _cards(totals: dict[str, int]) -> str:
    cards = "".join(
        f"<div class=card><b>{value:,}</b><span>{escape(name)}</span></div>" for name, value in totals.items()
    )
    return f"<div class=cards>{cards}</div>"


def _verdicts(summary: dict[str, Any]) -> str:
    order = {"FAILED": 0, "UNKNOWN": 1, "PASSED": 2}
    told = sorted((one for one in summary["verdicts"] if one["result"] in order), key=lambda one: order[one["result"]])
    empty = [one for one in summary["verdicts"] if one["result"] not in order]
    found = _verdict_table(told, summary["proofs"]) if told else ""
    if empty:
        many = f"{len(empty)} checker{'s' if len(empty) != 1 else ''}"
        heading = f"<summary>{many} had nothing to judge (NODATA)</summary>"
        found += f"<details>{heading}{_verdict_table(empty, summary['proofs'])}</details>"
    return found


def _verdict_table(verdicts: list[dict[str, Any]], proofs: dict[str, str]) -> str:
    rows = "".join(_verdict(one, proofs) for one in verdicts)
    return (
        "<table><tr><th>checker</th><th>promise</th><th>verdict</th><th>judged</th><th>violations</th></tr>"
        f"{rows}</table>"
    )


def _verdict(one: dict[str, Any], proofs: dict[str, str]) -> str:
    figures = "; ".join(f"{name} {value:g}" for name, value in one["figures"].items())
    notes = "".join(f"<div class=sub>{escape(text)}</div>" for text in (figures, one["error"]) if text)
    for anomaly in one["anomalies"]:
        proof = "\n".join(proofs.get(str(op), f"call {op}") for op in anomaly["ops"])
        at = "" if anomaly["at_s"] is None else f" at {anomaly['at_s']:.2f} s"
        where = "" if anomaly["partition"] is None else f"partition {anomaly['partition']}{at}: "
        told = f"<details><summary>its proof</summary><pre>{escape(proof)}</pre></details>" if proof else ""
        notes += f"<div class=anomaly>{escape(where)}{escape(anomaly['what'])}{told}</div>"
    return (
        f"<tr><td><b>{one['checker']}</b></td><td>{escape(one['title'])}{notes}</td>"
        f"<td><span class='badge {one['result']}'>{one['result']}</span></td>"
        f"<td class=n>{one['judged']:,}</td><td class=n>{one['violations']:,}</td></tr>"
    )


def _faults(faults: list[dict[str, Any]]) -> str:
    def told(at_s: float | None) -> str:
        return "" if at_s is None else f"{at_s:.2f}"

    rows = "".join(
        f"<tr><td>{escape(fault['kind'])}</td><td>{escape(fault['target'])}</td>"
        f"<td class=n>{told(fault['from_s'])}</td>"
        f"<td class=n>{told(fault['in_force_s'])}</td><td class=n>{told(fault['healing_s'])}</td>"
        f"<td class=n>{told(fault['to_s'])}</td></tr>"
        for fault in faults
    )
    head = "<tr><th>fault</th><th>whom</th><th>from, s</th><th>in force</th><th>healing</th><th>healed</th></tr>"
    return f"<table>{head}{rows}</table>" if faults else "<p class=sub>None.</p>"


def _moments(moments: dict[str, int]) -> list[str]:
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td class=n>{count}</td></tr>" for name, count in sorted(moments.items())
    )
    return ["<h2>What a run hopes for</h2>", HOPES, f"<table><tr><th>happened</th><th>times</th></tr>{rows}</table>"]


def _logs(logs: dict[str, str]) -> list[str]:
    return [
        f"<details><summary>{escape(name)}, its last lines</summary><pre>{escape(text)}</pre></details>"
        for name, text in logs.items()
    ]
