"""Shared access rules: names and keys with which clients of Event Hubs sign their tokens.

The rules of the metadata's state machine hold here. Keys come sealed and stay so: what is replicated, and what lies in
checkpoints, opens nothing without the cluster's secret, which is in none of them. There are two keys, so that one can
be replaced while clients go on with the other.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from cluster.metadata import metadata_pb2 as pb
from cluster.metadata.types import CommandRefused, CommandResult, Ok, RuleRecord
from cluster.metadata.users_and_grants import USER_NAME, USER_NAME_RULE, AccessState

MAX_RULES = 1000
MIN_SEALED_BYTES, MAX_SEALED_BYTES = 16, 512

CLAIMS = ("send", "listen", "manage")
"""What a rule may allow."""


def put_rule(state: AccessState, command: pb.PutRule, logs: Container[str]) -> CommandResult:
    rule = rule_from_pb(command.rule)
    if not USER_NAME.fullmatch(rule.name):
        raise CommandRefused("invalid-argument", f"rule name {rule.name[:140]!r}: {USER_NAME_RULE}")
    if rule.name in state.rules:
        text = f"there is a rule {rule.name!r}; `rule rotate` replaces its key, `rule remove` removes it"
        raise CommandRefused("already-exists", text)
    if len(state.rules) >= MAX_RULES:
        raise CommandRefused("invalid-argument", f"there are {MAX_RULES} rules, and no room for more")
    if not rule.claims or rule.claims != _sorted(rule.claims):
        raise CommandRefused("invalid-argument", f"claims: one or more of {', '.join(CLAIMS)}, each once")
    if rule.scope and rule.scope not in logs:
        raise CommandRefused("not-found", f"there is no log {rule.scope[:220]!r} for the rule; `log list` shows them")
    _check_sealed(rule.primary, rule.secondary)
    state.rules[rule.name] = rule
    return Ok()


def rotate_rule(state: AccessState, command: pb.RotateRule) -> CommandResult:
    known = _existing(state, command.name)
    _check_sealed(command.primary)
    state.rules[known.name] = replace(known, primary=command.primary, secondary=known.primary)
    return Ok()


def remove_rule(state: AccessState, command: pb.RemoveRule) -> CommandResult:
    del state.rules[_existing(state, command.name).name]
    return Ok()


def _existing(state: AccessState, name: str) -> RuleRecord:
    if name not in state.rules:
        raise CommandRefused("not-found", f"there is no rule {name[:140]!r}; `rule list` shows those there are")
    return state.rules[name]


def _sorted(claims: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(claim for claim in CLAIMS if claim in claims)


def _check_sealed(*keys: bytes) -> None:
    if not all(MIN_SEALED_BYTES <= len(key) <= MAX_SEALED_BYTES for key in keys):
        raise CommandRefused("invalid-argument", "keys of a rule come sealed, from a node")


def rule_to_pb(rule: RuleRecord) -> pb.Rule:
    return pb.Rule(name=rule.name, primary=rule.primary, secondary=rule.secondary, claims=rule.claims, scope=rule.scope)


def rule_from_pb(rule: pb.Rule) -> RuleRecord:
    return RuleRecord(rule.name, rule.primary, rule.secondary, tuple(rule.claims), rule.scope)
