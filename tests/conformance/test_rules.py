"""Every rule, by its id, on three nodes, and what the page says of it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance import report
from tests.conformance.broker import BrokerUnderTest
from tests.conformance.rules import READINGS, RULES
from tests.conformance.suite import FAIL, NOT_APPLICABLE, PASS, CaseResult, checks, judge
from tests.conformance.yesman import YesMan
from tests.integration.clusters.cluster import Cluster

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "conformance.md"


@pytest.fixture(scope="module")
def _brokers() -> Iterator[dict[str, BrokerUnderTest]]:
    made: dict[str, BrokerUnderTest] = {}
    yield made
    for broker in made.values():
        broker.close()


@pytest.fixture
def broker(cluster: Cluster, _brokers: dict[str, BrokerUnderTest]) -> BrokerUnderTest:
    """All rules share a log, as in a run of the suite; another cluster has another one."""
    address = cluster.address(1, "never")
    if address not in _brokers:
        _brokers[address] = BrokerUnderTest(address).prepare()
    return _brokers[address]


@pytest.mark.cluster
@pytest.mark.parametrize("name", [*RULES, *READINGS])
def test_rule(broker: BrokerUnderTest, name: str) -> None:
    result = judge(name, broker)
    assert result.outcome != FAIL, f"{name} ({result.rule.text}): {result.reason}"
    assert report.row(result) in PAGE.read_text(encoding="utf-8").splitlines(), "the page says something else"


def test_the_page_has_every_rule_once_and_counts_right() -> None:
    """What stands behind each, `test_rule` judges."""
    page = PAGE.read_text(encoding="utf-8")
    outcomes = {line.split(" | ")[0].strip("| "): line.rstrip("| ").split(" | ")[-1] for line in page.splitlines()}
    found = [CaseResult(rule, *outcomes[name].split(": ", 1)) for name, rule in [*RULES.items(), *READINGS.items()]]
    assert report.markdown(found) == page, "make it anew: see its first lines"


def test_the_readme_says_what_the_page_says() -> None:
    page = PAGE.read_text(encoding="utf-8")
    found = re.search(r"^(\d+) pass, 0 fail, (\d+) not applicable\.$", page, re.MULTILINE)
    assert found is not None, "rules fail"
    held, rest = map(int, found.groups())
    assert held + rest == len(RULES)
    claim = f"{held} of {len(RULES)} rules hold, {rest} do not apply"
    assert claim in (PAGE.parents[2] / "README.md").read_text(encoding="utf-8")


# ---------------------------------------------------------------- the suite itself


def test_every_rule_has_a_check() -> None:
    assert set(checks()) == {*RULES, *READINGS}
    assert len(RULES) == 59


def test_what_a_broker_does_wrong_is_a_failure_and_not_an_end() -> None:
    """Nobody listens there: every rule that needs a broker fails, none passes."""
    silent = BrokerUnderTest("amqp://127.0.0.1:1", log="nothing", timeout_s=0.2)
    results = [judge(name, silent) for name in ("ES-1", "ES-3", "ES-46", "ES-57")]
    assert [result.outcome for result in results] == [FAIL, FAIL, NOT_APPLICABLE, FAIL]


SEEN_THROUGH = [
    "ES-4", "ES-7", "ES-12", "ES-15", "ES-21", "ES-22", "ES-23", "ES-25", "ES-27", "ES-32", "ES-33", "ES-38", "ES-39",
    "ES-40", "ES-43", "ES-45", "ES-47", "ES-50", "ES-51", "ES-52", "ES-53", "ES-57", "ES-59", "D3",
    "D4", "D7", "D9", "D12",
]  # fmt: skip


@pytest.fixture(scope="module")
def yes_man() -> Iterator[BrokerUnderTest]:
    with YesMan() as serving:
        yield BrokerUnderTest(f"amqp://127.0.0.1:{serving.port}", log="log", timeout_s=2.0)


@pytest.mark.parametrize("name", SEEN_THROUGH)
def test_a_broker_that_says_yes_to_everything_is_seen_through(yes_man: BrokerUnderTest, name: str) -> None:
    result = judge(name, yes_man)
    assert result.outcome == FAIL
    assert "Timeout" not in result.reason or name in ("ES-33", "ES-40"), f"for another reason: {result.reason}"


def test_what_plain_amqp_does_is_granted_to_it(yes_man: BrokerUnderTest) -> None:
    """It is a plain broker, after all."""
    assert [judge(name, yes_man).outcome for name in ("ES-2", "ES-5", "ES-8", "ES-9")] == [PASS] * 4


@pytest.mark.parametrize(("name", "status", "shown"), [("ES-3", 0, "1 pass"), ("ES-45", 1, "1 fail"), ("ES-60", 2, "")])
def test_the_command_tells_by_its_exit_status(yes_man: BrokerUnderTest, name: str, status: int, shown: str) -> None:
    command = [sys.executable, "-m", "tests.conformance", "--url", f"{yes_man.url}/log", "--rule", name]
    ran = subprocess.run([*command, "--timeout", "2"], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == status, ran.stdout + ran.stderr
    assert shown in ran.stdout


def test_the_page_says_what_was_found() -> None:
    results = [
        CaseResult(RULES["ES-3"], PASS),
        CaseResult(RULES["ES-4"], FAIL, "a | b"),
        CaseResult(READINGS["D1"], PASS),
    ]
    page = report.markdown(results)
    assert "1 pass, 1 fail, 0 not applicable." in page
    assert "| ES-3 | must | node | 3.1, 8 |" in page
    assert "fail: a \\| b" in page
    assert page.index("## Where") < page.index("| D1 |")
