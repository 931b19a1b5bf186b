"""The checks of the suite, and how they are run.

A check is a function of the broker under test, registered under its rule; it returns when the rule holds, fails an
assertion when it does not, and raises `NotApplicable` with the sentence that says why it does not bind this broker.
Whatever else goes wrong in it (the broker hangs up, is silent, refuses a plain link) is a failure too: a rule passes
only when it was seen to hold.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from tests.conformance.broker import BrokerUnderTest
from tests.conformance.rules import READINGS, RULES, NotApplicable, Rule

PASS, FAIL, NOT_APPLICABLE = "pass", "fail", "not applicable"

Check = Callable[[BrokerUnderTest], None]

_checks: dict[str, Check] = {}
_MODULES = ("links", "routing", "groups", "epochs", "offsets", "filters", "info", "others")
REASON_CHARACTERS = 300
"""Of a failure: brokers may be talkative."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    rule: Rule
    outcome: str
    reason: str = ""


__all__ = ["FAIL", "NOT_APPLICABLE", "PASS", "CaseResult", "NotApplicable", "checks", "judge", "rule"]


def rule(name: str) -> Callable[[Check], Check]:
    """Registers the check of a rule."""
    assert name in RULES or name in READINGS, name

    def register(check: Check) -> Check:
        assert name not in _checks, f"{name} has two checks"
        _checks[name] = check
        return check

    return register


def checks() -> dict[str, Check]:
    for module in _MODULES:
        importlib.import_module(f"tests.conformance.checks.{module}")
    return _checks


def judge(name: str, broker: BrokerUnderTest) -> CaseResult:
    """What becomes of one rule."""
    found = RULES.get(name) or READINGS[name]
    check = checks().get(name)
    if check is None:
        return CaseResult(found, FAIL, "the suite has no check for it")
    try:
        check(broker)
    except NotApplicable as reason:
        return CaseResult(found, NOT_APPLICABLE, str(reason))
    except Exception as error:  # noqa: BLE001 - whatever a broker provokes is its result, and the next rule has its turn
        said = " ".join(f"{type(error).__name__}: {error}".split()).removeprefix("AssertionError: ")
        return CaseResult(found, FAIL, said[:REASON_CHARACTERS])
    return CaseResult(found, PASS)
