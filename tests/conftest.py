"""For all tests: what they measured is shown at the end of the run, whichever process they ran in; no verdict of
hypothesis depends on how busy the machine is; and what takes longest begins first, so that nobody waits for it last.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

DEAR = "_spark"
"""The fixture of a Java that takes ten seconds of a core to start, and as many to become quick: one process has it."""


@pytest.hookimpl(trylast=True)  # after the plugin that shuffles
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With `--dist worksteal` each process gets an equal part of this list, from left to right, and whoever has done
    its part takes from the end of another's. So each part begins with its share of the long ones, the first one with
    the longest. What shares a thing that is dear to start begins the last part, behind them: from there nobody takes
    it away."""
    parts = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    early = [item for item in items if item.get_closest_marker("early") is not None]
    early.sort(key=lambda item: item.get_closest_marker("longest") is None)
    rest = [item for item in items if item.get_closest_marker("early") is None]
    dear = [item for item in rest if _is_dear(item)]
    dear.sort(key=lambda item: "cluster" in item.fixturenames)  # type: ignore[attr-defined] # its idle nodes take time
    rest = [item for item in rest if not _is_dear(item)]
    ends = [len(items) * (part + 1) // parts for part in range(parts)]
    items.clear()
    for part, end in enumerate(ends):
        items += early[part::parts]
        if part == parts - 1:
            items += dear
        taken = end - len(items) if part < parts - 1 else len(rest)
        items += rest[:taken]
        del rest[:taken]


def _is_dear(item: pytest.Item) -> bool:
    return DEAR in getattr(item, "fixturenames", ())


@pytest.fixture
def measured(request: pytest.FixtureRequest) -> Any:
    """`measured("p95 0.2 s")`: one line for the reader of the run. A figure, not a verdict: nothing is asserted."""

    def note(line: str) -> None:
        request.node.user_properties.append(("measured", line))

    return note


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, [])]
    lines = [
        f"{report.nodeid.rpartition('/')[2]}: {line}"
        for report in reports
        if report.when == "call"
        for name, line in report.user_properties
        if name == "measured"
    ]
    if lines:
        terminalreporter.section("measured")
        for line in sorted(lines):
            terminalreporter.line(line)
