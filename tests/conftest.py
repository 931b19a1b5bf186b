"""For all tests: what they measured is shown at the end of the run, whichever process they ran in; no verdict of
hypothesis depends on how busy the machine is; and what takes longest begins first, so that nobody waits for it last.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.hookimpl(trylast=True)  # after the plugin that shuffles
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("early") is None)


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
