"""Rights of principals: grants of the cluster, and the rule that combines them.

Problem: rights are many and change while links are open; every node must decide alike.
Rules never broken: a denial wins over every permission; without a permission an action is denied; a principal that was
authenticated as a user that is gone may do nothing. A principal that may do something with a log may see that it is
there (`describe`).

A cluster without a user, a grant, a rule or a configured administrator is open: every client that is let in may do
everything there. The first of them closes it, at once, also for links that are open.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from cluster.metadata import ADMIN_ROLE, GrantRecord, RuleRecord, UserRecord
from node.security.principal import Principal

EVERYBODY = "*"
ROLE = "role:"

IMPLY_DESCRIBE = frozenset({"publish", "consume", "create", "alter", "delete", "transact"})


class Need(NamedTuple):
    operation: str
    kind: str
    name: str | None  # None: whichever; there is nothing to name

    def __str__(self) -> str:
        if self.kind == "cluster":
            return "administer the cluster" if self.operation == "cluster" else f"{self.operation} the cluster"
        verb = {"publish": "publish to", "consume": "read", "transact": "use"}.get(self.operation, self.operation)
        return f"{verb} {self.kind}" + (f" {self.name!r}" if self.name else "")

    def as_grant(self, principal: str) -> str:
        """The command by which an administrator allows it. Names that a shell does not show as they are leave only a
        word."""
        if not (principal.isprintable() and (self.name or "").isprintable()):
            return "holdfast grant add"
        resource = self.kind if self.kind == "cluster" else f"{self.kind}:{self.name or '*'}"
        return shlex.join(["holdfast", "grant", "add", principal, self.operation, resource])


class Access(Protocol):
    """Users and grants that the cluster knows (`cluster.metadata.MetadataView`)."""

    @property
    def users(self) -> Mapping[str, UserRecord]: ...
    @property
    def grants(self) -> Iterable[GrantRecord]: ...
    @property
    def rules(self) -> Mapping[str, RuleRecord]: ...
    @property
    def access_secret(self) -> bytes:
        """The cluster's secret; empty before its first user."""
        ...

    @property
    def access_revision(self) -> int:
        """Number that changes with users and grants, in this process."""
        ...


class NoAccess:
    """Access of a cluster without users and grants."""

    users: Mapping[str, UserRecord] = {}
    grants: Iterable[GrantRecord] = ()
    rules: Mapping[str, RuleRecord] = {}
    access_secret = b""
    access_revision = 0


class Policy:
    def __init__(self, access: Access, administrators: Iterable[str] = (), *, never_open: bool = False) -> None:
        self._access = access
        self._administrators = frozenset(administrators)
        self._never_open = never_open
        self._by_subject: dict[str, list[GrantRecord]] = {}
        self._revision: int | None = None

    @property
    def access(self) -> Access:
        return self._access

    @property
    def revision(self) -> int:
        return self._access.access_revision

    @property
    def is_open(self) -> bool:
        access = self._access
        known = self._administrators or access.users or access.rules or any(True for _ in access.grants)
        return not (known or self._never_open)

    def roles(self, principal: Principal) -> frozenset[str]:
        user = self._access.users.get(principal.name)
        own = frozenset() if user is None else frozenset(user.roles)
        configured = frozenset({ADMIN_ROLE}) if principal.name in self._administrators else frozenset()
        return principal.roles | own | configured

    def may(self, principal: Principal, operation: str, kind: str, name: str) -> bool:
        return self._decide(principal, operation, kind, lambda grant: _covers(grant, name))

    def may_some(self, principal: Principal, operation: str, kind: str) -> bool:
        """Tell whether the principal may do it to any resource of the kind. For things without a name, like a
        transaction that no other client can know."""
        return self._decide(principal, operation, kind, lambda grant: grant.allow or (grant.prefix and not grant.name))

    def _decide(self, principal: Principal, operation: str, kind: str, covers: object) -> bool:
        assert callable(covers)
        if self.is_open:
            return True
        if principal.is_anonymous or (principal.by_password and not self._known(principal.name)):
            return False
        roles = self.roles(principal)
        if ADMIN_ROLE in roles:
            return True
        allowed = False
        for grant in self._grants_of(principal.name, roles):
            if grant.kind != kind or not covers(grant):
                continue
            if not grant.allow and grant.operation == operation:
                return False
            implied = operation == "describe" and grant.operation in IMPLY_DESCRIBE
            allowed = allowed or (grant.allow and (implied or grant.operation == operation))
        return allowed

    def _known(self, name: str) -> bool:
        return name in self._access.users

    def _grants_of(self, name: str, roles: frozenset[str]) -> Iterable[GrantRecord]:
        if self._revision != self.revision:
            self._revision = self.revision
            self._by_subject = {}
            for grant in self._access.grants:
                self._by_subject.setdefault(grant.principal, []).append(grant)
        # A token or a certificate may name anybody, and must not come to a role's grants by its name.
        own = () if name == EVERYBODY or name.startswith(ROLE) else (name,)
        for subject in (*own, EVERYBODY, *(ROLE + role for role in sorted(roles))):
            yield from self._by_subject.get(subject, ())


def _covers(grant: GrantRecord, name: str) -> bool:
    return name.startswith(grant.name) if grant.prefix else name == grant.name
