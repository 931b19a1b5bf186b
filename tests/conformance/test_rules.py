"""Every rule, by its id, on three nodes; and the page about it is what a run of the suite says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance import report
from tests.conformance.broker import Broker
from tests.conformance.rules import READINGS, RULES
from tests.conformance.suite import FAIL, NOT_APPLICABLE, PASS, Result, checks, judge
from tests.integration.cluster import Cluster

PAGE = Path(__file__).resolve().parents[2] / "docs" / "conformance.md"


@pytest.fixture
def broker(cluster: Cluster) -> Iterator[Broker]:
    made = Broker(cluster.address(1, "never")).prepare()
    yield made
    made.close()


@pytest.mark.cluster
@pytest.mark.parametrize("name", [*RULES, *READINGS])
def test_rule(broker: Broker, name: str) -> None:
    result = judge(name, broker)
    assert result.outcome != FAIL, f"{name} ({result.rule.text}): {result.reason}"


@pytest.mark.cluster
@pytest.mark.slow
def test_the_page_is_what_a_run_says(cluster: Cluster) -> None:
    command = [sys.executable, "-m", "tests.conformance", "--url", f"amqp://{cluster.address(1)}"]
    ran = subprocess.run(
        [*command, "--readings", "--markdown"], capture_output=True, text=True, timeout=250, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout == PAGE.read_text(encoding="utf-8"), "make it anew: see its first lines"


# ---------------------------------------------------------------- the suite itself


def test_every_rule_has_a_check() -> None:
    assert set(checks()) == {*RULES, *READINGS}
    assert len(RULES) == 59


def test_what_a_broker_does_wrong_is_a_failure_and_not_an_end() -> None:
    """Nobody listens there: every rule that needs a broker fails, none passes."""
    silent = Broker("amqp://127.0.0.1:1", log="nothing", timeout_s=0.2)
    results = [judge(name, silent) for name in ("ES-1", "ES-3", "ES-46", "ES-57")]
    assert [result.outcome for result in results] == [FAIL, FAIL, NOT_APPLICABLE, FAIL]


def test_the_page_says_what_was_found() -> None:
    results = [Result(RULES["ES-3"], PASS), Result(RULES["ES-4"], FAIL, "a | b"), Result(READINGS["D1"], PASS)]
    page = report.markdown(results)
    assert "1 pass, 1 fail, 0 not applicable." in page
    assert "| ES-3 | must | node | 3.1, 8 |" in page
    assert "fail: a \\| b" in page
    assert page.index("## Where") < page.index("| D1 |")
