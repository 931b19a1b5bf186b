"""Shared access rules in the state machine: what is taken, rotated and kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.metadata import MetadataMachine, MetadataView, Ok, Refusal, RuleRecord, put_rule, remove_rule, rotate_rule
from tests.unit.metadata.test_users_and_grants import Machine

RULE = RuleRecord("orders", b"p" * 60, b"s" * 60, ("send", "listen"))


def test_a_rule_comes_is_rotated_and_goes() -> None:
    machine = Machine()
    before = machine.view.access_revision
    assert machine.do(put_rule(RULE)) == Ok()
    assert machine.view.access_revision > before, "links are judged anew"
    assert machine.do(rotate_rule("orders", b"n" * 60)) == Ok()
    assert machine.view.rules["orders"] == replace(RULE, primary=b"n" * 60, secondary=b"p" * 60)
    assert machine.do(remove_rule("orders")) == Ok()
    assert dict(machine.view.rules) == {}


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (RULE, "already-exists"),
        (replace(RULE, name="a b"), "invalid-argument"),
        (replace(RULE, name="b", claims=()), "invalid-argument"),
        (replace(RULE, name="b", claims=("listen", "send")), "invalid-argument"),
        (replace(RULE, name="b", claims=("send", "send")), "invalid-argument"),
        (replace(RULE, name="b", claims=("own",)), "invalid-argument"),
        (replace(RULE, name="b", scope="nowhere"), "not-found"),
        (replace(RULE, name="b", primary=b"clear"), "invalid-argument"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(rule: RuleRecord, code: str) -> None:
    machine = Machine()
    machine.do(put_rule(RULE))
    refused = machine.do(put_rule(rule))
    assert isinstance(refused, Refusal)
    assert refused.code == code
    assert dict(machine.view.rules) == {"orders": RULE}


def test_what_is_not_there_is_neither_rotated_nor_removed() -> None:
    machine = Machine()
    for command in (rotate_rule("orders", b"n" * 60), remove_rule("orders")):
        refused = machine.do(command)
        assert isinstance(refused, Refusal)
        assert refused.code == "not-found"


def test_rules_are_in_the_checkpoint() -> None:
    machine = Machine()
    machine.do(put_rule(replace(RULE, name="b")))
    machine.do(put_rule(RULE))
    checkpoint = machine.machine.checkpoint()
    other = MetadataMachine()
    other.restore(1, checkpoint)
    assert dict(MetadataView(other).rules) == dict(machine.view.rules)
    assert other.checkpoint() == checkpoint
