"""Users, grants and rules, as administrators see and change them.

Rules never broken: no key of a password leaves a node; a rule's keys are drawn here, told to administrators only, and
sealed before they are replicated; a password does not even come here, only what was made from it;
and a cluster with users has an administrator, so that its first user, or the one that closes it by a grant, has to be
one.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from cluster.metadata import (
    ADMIN_ROLE,
    CLAIMS,
    CommandProposer,
    GrantRecord,
    MetadataView,
    Refusal,
    RuleRecord,
    ScramKeys,
    grant_command,
    put_rule,
    put_user,
    remove_rule,
    remove_user,
    rotate_rule,
)
from cluster.metadata import metadata_pb2 as pb
from node.admin.errors import AdminRequestFailed
from node.routing_events import RoutingEvents
from node.security.secret_box import CannotOpen, SecretBox

OPERATIONS = frozenset(
    {"user.add", "user.password", "user.roles", "user.remove", "user.list", "grant.add", "grant.remove", "grant.list"}
    | {"rule.add", "rule.rotate", "rule.remove", "rule.list", "rule.keys"}
)

VISIBLE_WITHIN_S = 5.0
"""Time for a decision to arrive at this node: a user that was just made logs in here next."""

SECRET_BYTES = 32


class AccessAdministration:
    """`configured`: whether the nodes' own configuration names administrators."""

    def __init__(
        self,
        proposer: CommandProposer,
        view: MetadataView,
        routing_events: RoutingEvents,
        current: Callable[[], Awaitable[None]],
        *,
        configured: bool,
        box: SecretBox | None = None,
    ) -> None:
        self._proposer = proposer
        self._view = view
        self._routing_events = routing_events
        self._current = current
        self._configured = configured
        self._box = box

    async def run(self, operation: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """Run an operation. Raises AdminRequestFailed."""
        await self._current()
        if operation == "user.list":
            return {"users": [{"name": user.name, "roles": list(user.roles)} for user in self._users()]}
        if operation == "grant.list":
            return {"grants": [_told(grant) for grant in sorted(self._view.grants)]}
        if operation == "rule.list":
            return {"rules": [_shown(rule) for _, rule in sorted(self._view.rules.items())]}
        if operation == "rule.keys":
            return self._keys_of(str(args["name"]))
        command, answer = self._command(operation, args)
        before = self._view.access_revision
        result = await self._proposer.execute(command)
        if isinstance(result, Refusal):
            raise AdminRequestFailed(result.code, result.message)
        await self._routing_events.until(lambda: self._view.access_revision != before, VISIBLE_WITHIN_S)
        return answer

    def _users(self) -> list[Any]:
        return [user for _, user in sorted(self._view.users.items())]

    def _command(self, operation: str, args: Mapping[str, Any]) -> tuple[pb.Command, dict[str, Any]]:
        if operation.startswith("grant."):
            grant = _grant(args)
            remove = operation == "grant.remove"
            if not remove:
                self._needs_administrator(grant.principal, closes=True)
            return grant_command(grant, remove=remove), _told(grant)
        if operation.startswith("rule."):
            return self._rule_command(operation, args)
        name, roles = str(args["name"]), args.get("roles")
        if operation == "user.remove":
            self._keeps_administrator(name)
            return remove_user(name), {"name": name}
        keys = keys_from(args) if operation != "user.roles" else None
        if operation == "user.add":
            self._needs_administrator(name, closes=ADMIN_ROLE not in (roles or ()))
            secret = secrets.token_bytes(SECRET_BYTES)
            command = put_user(name, keys, is_new=True, roles=roles or (), secret=secret)
        elif operation == "user.password":
            command = put_user(name, keys, is_new=False)
        else:
            if ADMIN_ROLE not in (roles or ()):
                self._keeps_administrator(name)
            command = put_user(name, None, is_new=False, roles=roles or ())
        return command, {"name": name}

    def _rule_command(self, operation: str, args: Mapping[str, Any]) -> tuple[pb.Command, dict[str, Any]]:
        name = str(args["name"])
        if operation == "rule.remove":
            return remove_rule(name), {"name": name}
        if operation == "rule.rotate":
            return rotate_rule(name, self._sealed(name)), {"name": name}
        self._needs_administrator(name, closes=True)
        wanted = [str(claim).lower() for claim in args.get("claims") or ()]
        unknown = ", ".join(claim for claim in wanted if claim not in CLAIMS)
        if unknown:
            raise AdminRequestFailed("invalid-argument", f"claims: {unknown[:60]} is none of {', '.join(CLAIMS)}")
        claims = tuple(claim for claim in CLAIMS if claim in wanted)
        rule = RuleRecord(name, self._sealed(name), self._sealed(name), claims, str(args.get("scope") or ""))
        return put_rule(rule), _shown(rule)

    def _sealed(self, name: str) -> bytes:
        """A new key, sealed."""
        return self._secrets().seal(base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode(), name)

    def _secrets(self) -> SecretBox:
        if self._box is None:
            raise AdminRequestFailed(
                "not-allowed",
                "this node cannot seal the keys of rules: write a key into a file, the same for all nodes "
                "(`openssl rand -base64 32`), name it as security.secrets_file of each, and start them again",
            )
        return self._box

    def _keys_of(self, name: str) -> dict[str, Any]:
        rule, box = self._view.rules.get(name), self._secrets()
        if rule is None:
            raise AdminRequestFailed("not-found", f"there is no rule {name[:140]!r}; `rule list` shows those there are")
        try:
            primary, secondary = (box.open(sealed, name) for sealed in (rule.primary, rule.secondary))
        except CannotOpen as problem:
            raise AdminRequestFailed("not-allowed", str(problem)) from problem
        return {**_shown(rule), "primary": primary, "secondary": secondary}

    def _administrators(self) -> set[str]:
        return {user.name for user in self._view.users.values() if ADMIN_ROLE in user.roles}

    def _needs_administrator(self, who: str, *, closes: bool) -> None:
        if closes and not self._configured and not self._administrators():
            raise AdminRequestFailed(
                "not-allowed",
                f"{who}: this would close the cluster, and nobody could administer it; add an administrator first: "
                f"`holdfast user add NAME --role {ADMIN_ROLE}`",
            )

    def _keeps_administrator(self, name: str) -> None:
        if not self._configured and self._administrators() == {name}:
            raise AdminRequestFailed("not-allowed", f"{name!r} is the only administrator: add another one first")


def _grant(args: Mapping[str, Any]) -> GrantRecord:
    texts = [args.get(key) or "" for key in ("principal", "operation", "resource", "resource_name")]
    principal, operation, kind, name = map(str, texts)
    return GrantRecord(principal, not args.get("deny"), operation, kind, name, bool(args.get("prefix")))


def _told(grant: GrantRecord) -> dict[str, Any]:
    return {
        "principal": grant.principal,
        "effect": "allow" if grant.allow else "deny",
        "operation": grant.operation,
        "resource": grant.kind,
        "resource_name": grant.name,
        "prefix": grant.prefix,
    }


def _shown(rule: RuleRecord) -> dict[str, Any]:
    return {"name": rule.name, "claims": list(rule.claims), "scope": rule.scope}


def keys_from(args: Mapping[str, Any]) -> tuple[ScramKeys, ScramKeys]:
    """Read a user's SCRAM keys from the arguments. Raises AdminRequestFailed."""
    return _read(args, "scram_sha_256"), _read(args, "scram_sha_512")


def _read(args: Mapping[str, Any], key: str) -> ScramKeys:
    """`iterations:salt:stored key:server key`, the last three in base64."""
    parts = str(args.get(key) or "").split(":")
    try:
        iterations = int(parts[0])
        salt, stored, server = (base64.b64decode(part, validate=True) for part in parts[1:])
    except (ValueError, binascii.Error) as error:
        raise AdminRequestFailed(
            "invalid-argument", f"{key}: must be iterations:salt:stored-key:server-key, the last three in base64"
        ) from error
    if not 0 < iterations < 1 << 32:
        raise AdminRequestFailed("invalid-argument", f"{key}: iterations out of range")
    return ScramKeys(iterations, salt, stored, server)
