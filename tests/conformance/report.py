"""What the suite found, for people: a table, and the page docs/reference/conformance.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tests.conformance.rules import READINGS
from tests.conformance.suite import FAIL, NOT_APPLICABLE, PASS, CaseResult

LEVELS = {"M": "must", "N": "must not", "S": "should", "O": "may", "-": ""}
_STYLES = {PASS: "green", FAIL: "red", NOT_APPLICABLE: "yellow"}

_HEAD = """# Conformance

The rules of the [OASIS Event Stream Extensions for AMQP 1.0](https://docs.oasis-open.org/amqp/event-streams/v1.0/csd01/),
committee specification draft 01, and what becomes of each on three Holdfast nodes. A stock client (python-qpid-proton)
drives them over the wire, with raw frames where it cannot express a case. Made by
`python -m tests.conformance --url amqp://host:port --readings --markdown`; a test keeps this page true. The suite runs
against any broker: `python -m tests.conformance --url amqp://host:port/address`.
"""

_READINGS = """## Where the text contradicts itself or is silent

What we chose, and whether the nodes do so. `--readings` includes these; they say nothing about other brokers.
"""


def totals(results: Sequence[CaseResult]) -> str:
    count = Counter(result.outcome for result in results)
    return f"{count[PASS]} pass, {count[FAIL]} fail, {count[NOT_APPLICABLE]} not applicable"


def show(results: Sequence[CaseResult], console: Console) -> None:
    table = Table("rule", "level", "binds", "outcome", "what", title=totals(results))
    for result in results:
        what = result.rule.text if result.outcome == PASS else f"{result.rule.text}\n{result.reason}"
        outcome = Text(result.outcome, _STYLES[result.outcome])
        table.add_row(result.rule.id, LEVELS[result.rule.level], result.rule.party, outcome, Text(what))
    console.print(table)


def markdown(results: Sequence[CaseResult]) -> str:
    rules = [result for result in results if result.rule.id not in READINGS]
    readings = [result for result in results if result.rule.id in READINGS]
    lines = [_HEAD, f"{totals(rules)}.", "", "| rule | level | binds | section | what | outcome |"]
    lines += ["| --- | --- | --- | --- | --- | --- |"]
    lines += map(row, rules)
    if readings:
        lines += ["", _READINGS, f"{totals(readings)}.", ""]
        lines += ["| | section | reading | outcome |", "| --- | --- | --- | --- |"]
        lines += map(row, readings)
    return "\n".join(lines) + "\n"


def row(result: CaseResult) -> str:
    """Of the page's table."""
    rule = result.rule
    outcome = result.outcome if result.outcome == PASS else f"{result.outcome}: {_cell(result.reason)}"
    cells = [rule.id, LEVELS[rule.level], rule.party, rule.section, _cell(rule.text), outcome]
    if rule.id in READINGS:  # they are ours, of the node, and all of them kept
        del cells[1:3]
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
