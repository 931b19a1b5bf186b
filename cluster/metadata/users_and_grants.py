"""Users and grants: who may log in by a password, and who may do what.

The rules of the metadata's state machine hold here: pure, deterministic, and a command that cannot be carried out
changes nothing. What it keeps of a password are SCRAM's keys, with which nobody can log in. A grant is known by all
that it says: there is none twice, and to take one back is to say it again.

Rejected: rights inside the records of logs. A grant is for names, and there may be no log of that name yet.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from cluster.metadata import metadata_pb2 as pb
from cluster.metadata.types import CommandRefused, CommandResult, GrantRecord, Ok, RuleRecord, ScramKeys, UserRecord

MAX_USERS = 10_000
MAX_GRANTS = 10_000
MAX_ROLES_OF_A_USER = 64
"""Roles of one user. Each checkpoint holds all users and grants: about 300 bytes of a user, 50 of a grant."""

MIN_ITERATIONS, MAX_ITERATIONS = 15_000, 10_000_000
"""Fewer are guessed too fast from a stolen checkpoint; with more a login takes seconds."""

MIN_SALT_BYTES, MAX_SALT_BYTES = 12, 64
MIN_SECRET_BYTES, MAX_SECRET_BYTES = 32, 64

USER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}")
USER_NAME_RULE = "a name has 1 to 128 characters of A-Z a-z 0-9 . _ @ - and begins with a letter or digit"

PRINCIPAL = re.compile(r"(role:)?[!-~]{1,256}")
"""Names of tokens and certificates are what others have made up."""

MAX_RESOURCE_CHARACTERS = 512

OPERATIONS_ON: dict[str, tuple[str, ...]] = {
    "log": ("publish", "consume", "describe", "create", "alter", "delete"),
    "group": ("consume", "describe", "alter", "delete"),
    "transactional-id": ("transact", "describe"),
    "producer-group": ("publish",),
    "cluster": ("cluster", "describe"),
}
"""Kind of resource -> what can be allowed or denied on it."""


@dataclass
class AccessState:
    users: dict[str, UserRecord] = field(default_factory=dict)
    grants: dict[GrantRecord, None] = field(default_factory=dict)
    rules: dict[str, RuleRecord] = field(default_factory=dict)
    secret: bytes = b""  # of the cluster; no user knows it

    @property
    def is_empty(self) -> bool:
        return not (self.users or self.grants or self.rules or self.secret)


def put_user(state: AccessState, command: pb.PutUser) -> CommandResult:
    name, known = command.name, state.users.get(command.name)
    if not USER_NAME.fullmatch(name):
        raise CommandRefused("invalid-argument", f"user name {name[:140]!r}: {USER_NAME_RULE}")
    if command.is_new and known is not None:
        raise CommandRefused("already-exists", f"there is a user {name!r}; `user password` gives it another password")
    if not command.is_new and known is None:
        raise CommandRefused("not-found", f"there is no user {name!r}; `user list` shows those there are")
    if known is None and len(state.users) >= MAX_USERS:
        raise CommandRefused("invalid-argument", f"there are {MAX_USERS} users, and no room for more")
    if command.HasField("sha256") != command.HasField("sha512") or (known is None and not command.HasField("sha256")):
        raise CommandRefused("invalid-argument", "a password comes as keys of SCRAM-SHA-256 and of SCRAM-SHA-512")
    if known is None or command.HasField("sha256"):
        sha256, sha512 = _keys(command.sha256, 32), _keys(command.sha512, 64)
    else:
        sha256, sha512 = known.sha256, known.sha512
    roles = tuple(sorted(set(command.roles))) if command.set_roles or known is None else known.roles
    if len(roles) > MAX_ROLES_OF_A_USER or not all(USER_NAME.fullmatch(role) for role in roles):
        raise CommandRefused("invalid-argument", f"roles: at most {MAX_ROLES_OF_A_USER}, and of each, {USER_NAME_RULE}")
    if not state.secret:
        if not MIN_SECRET_BYTES <= len(command.secret) <= MAX_SECRET_BYTES:
            raise CommandRefused("invalid-argument", "the cluster's first user brings a secret of 32 to 64 bytes")
        state.secret = command.secret
    state.users[name] = UserRecord(name, sha256, sha512, roles)
    return Ok()


def remove_user(state: AccessState, command: pb.RemoveUser) -> CommandResult:
    """Remove a user. Its grants stay: they are for a name, which certificates and tokens may have, too."""
    if state.users.pop(command.name, None) is None:
        raise CommandRefused("not-found", f"there is no user {command.name[:140]!r}; `user list` shows those there are")
    return Ok()


def put_grant(state: AccessState, command: pb.PutGrant) -> CommandResult:
    grant = grant_from_pb(command.grant)
    fault = grant_fault(grant)
    if fault is not None:
        raise CommandRefused("invalid-argument", fault)
    if grant not in state.grants and len(state.grants) >= MAX_GRANTS:
        raise CommandRefused("invalid-argument", f"there are {MAX_GRANTS} grants: give them to roles, or by prefix")
    state.grants[grant] = None
    return Ok()


def remove_grant(state: AccessState, command: pb.RemoveGrant) -> CommandResult:
    grant = grant_from_pb(command.grant)
    if grant not in state.grants:
        raise CommandRefused("not-found", "there is no such grant; `grant list` shows those there are")
    del state.grants[grant]
    return Ok()


def grant_fault(grant: GrantRecord) -> str | None:
    """Fault of a grant, for people; None: it has none."""
    if not PRINCIPAL.fullmatch(grant.principal) or grant.principal == "role:":
        return f"principal {grant.principal[:140]!r}: write a user's name, role:NAME, or * for everybody"
    if grant.kind not in OPERATIONS_ON:
        return f"resource {grant.kind[:40]!r}: it is one of {', '.join(OPERATIONS_ON)}"
    if grant.operation not in OPERATIONS_ON[grant.kind]:
        return f"operation {grant.operation[:40]!r}: on a {grant.kind} it is {', '.join(OPERATIONS_ON[grant.kind])}"
    if grant.kind == "cluster" and (grant.name or grant.prefix):
        return "cluster: there is one, without a name"
    if grant.kind != "cluster" and not (grant.name or grant.prefix):
        return f"{grant.kind}: name one, or a prefix"
    if len(grant.name) > MAX_RESOURCE_CHARACTERS:
        return f"{grant.kind}: at most {MAX_RESOURCE_CHARACTERS} characters"
    return None


def _keys(keys: pb.ScramKeys, size: int) -> ScramKeys:
    if not MIN_ITERATIONS <= keys.iterations <= MAX_ITERATIONS:
        raise CommandRefused("invalid-argument", f"iterations {keys.iterations}: {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    salted = MIN_SALT_BYTES <= len(keys.salt) <= MAX_SALT_BYTES
    if not salted or len(keys.stored_key) != size or len(keys.server_key) != size:
        raise CommandRefused("invalid-argument", "keys of a password: salt, stored key or server key of a wrong size")
    return ScramKeys(keys.iterations, keys.salt, keys.stored_key, keys.server_key)


# --- protobuf


def keys_to_pb(keys: ScramKeys) -> pb.ScramKeys:
    return pb.ScramKeys(
        iterations=keys.iterations, salt=keys.salt, stored_key=keys.stored_key, server_key=keys.server_key
    )


def user_to_pb(user: UserRecord) -> pb.User:
    return pb.User(name=user.name, sha256=keys_to_pb(user.sha256), sha512=keys_to_pb(user.sha512), roles=user.roles)


def user_from_pb(user: pb.User) -> UserRecord:
    def keys(one: pb.ScramKeys) -> ScramKeys:
        return ScramKeys(one.iterations, one.salt, one.stored_key, one.server_key)

    return UserRecord(user.name, keys(user.sha256), keys(user.sha512), tuple(user.roles))


def grant_to_pb(grant: GrantRecord) -> pb.Grant:
    return pb.Grant(
        principal=grant.principal,
        deny=not grant.allow,
        operation=grant.operation,
        kind=grant.kind,
        name=grant.name,
        prefix=grant.prefix,
    )


def grant_from_pb(grant: pb.Grant) -> GrantRecord:
    return GrantRecord(grant.principal, not grant.deny, grant.operation, grant.kind, grant.name, grant.prefix)
