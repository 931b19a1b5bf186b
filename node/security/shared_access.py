"""Shared access: tokens that clients of Event Hubs sign with a rule's key, and the keys themselves as passwords.

A token names a resource, its end and a rule, under an HMAC-SHA256 of the first two. Rules never broken: the signature
is compared in constant time, with both keys of the rule; a token that has ended, or whose key was rotated away, allows
nothing from that moment on, also on links that are open; a token never allows more than its rule, nor more than the
resource that it names.

What a token names is read by its path: a client may have come by any of a cluster's host names. Names of logs are
compared without case here, since some SDKs write the resource in lower case.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from cluster.metadata import RuleRecord
from node.security.authorisation import Access, Need
from node.security.secret_box import CannotOpen, SecretBox
from node.security.tokens import TokenRefused

SCHEME = "SharedAccessSignature"
MAX_TOKEN_CHARACTERS = 4096
MAX_OPENED = 2000
"""Keys that are kept open: those of all rules that there can be."""

LATEST_END_S = 1 << 40
"""Latest end of a token, in seconds since 1970: some 35,000 years from now."""

GROUPS, PARTITIONS = "consumergroups", "partitions"

ALLOWED: Mapping[str, frozenset[tuple[str, str]]] = {
    "send": frozenset({("publish", "log"), ("describe", "log"), ("publish", "producer-group")}),
    "listen": frozenset({("consume", "log"), ("describe", "log"), ("consume", "group"), ("describe", "group")}),
    "manage": frozenset(
        {("create", "log"), ("alter", "log"), ("delete", "log"), ("alter", "group"), ("delete", "group")}
    ),
}
"""Claim -> what it allows. `manage` allows what the others do as well."""


class SharedAccessRefused(TokenRefused):
    """Raised for a token or key that is not believed. The client is told the reason, as by the service."""


@dataclass(frozen=True, slots=True)
class SharedAccess:
    """The right of a client that has shown that it knows a rule's key. `hub`, `group`: named by its token; "": all."""

    access: Access
    rule: str
    sealed: bytes  # the key, as the metadata has it
    hub: str = ""
    group: str = ""
    expires_ms: int | None = None

    def may(self, need: Need) -> bool:
        rule = self.access.rules.get(self.rule)
        if rule is None or self.sealed not in (rule.primary, rule.secondary):
            return False
        if self.expires_ms is not None and time.time() * 1000 >= self.expires_ms:
            return False
        claims = ALLOWED if "manage" in rule.claims else rule.claims
        if not any((need.operation, need.kind) in ALLOWED[claim] for claim in claims):
            return False
        if need.kind == "log":
            within = not self.hub or self.hub.lower() == (need.name or "").lower()
            return within and rule.scope in ("", need.name)
        return need.kind != "group" or not self.group or self.group.lower() == (need.name or "").lower()


class SharedAccessKeys:
    """The rules of the cluster, and the box that opens their keys. `box` None: this node cannot open any."""

    def __init__(self, access: Access, box: SecretBox | None) -> None:
        self._access = access
        self._box = box
        self._opened: dict[tuple[str, bytes], str] = {}

    @property
    def are_known(self) -> bool:
        return bool(self._access.rules)

    def by_key(self, name: str, key: str) -> SharedAccess | None:
        """The right of a client that has shown a rule's name and one of its keys."""
        rule = self._access.rules.get(name)
        for sealed in () if rule is None else (rule.primary, rule.secondary):
            if hmac.compare_digest(self._key(name, sealed).encode(), key.encode()):
                return SharedAccess(self._access, name, sealed)
        return None

    def by_signature(self, name: str, made_by: Callable[[str], bool]) -> SharedAccess | None:
        """The right of a client that has signed with one of a rule's keys. `made_by` judges a key."""
        rule = self._access.rules.get(name)
        keys = () if rule is None else (rule.primary, rule.secondary)
        found = [sealed for sealed in keys if made_by(self._key(name, sealed))]
        return SharedAccess(self._access, name, found[0]) if found else None

    def by_token(self, token: str, audience: str, *, is_open: bool) -> SharedAccess | None:
        """The right that a token gives for an audience (a path). None: the cluster is open, and signatures of nobody's
        rules are not looked at. Raises SharedAccessRefused."""
        resource, signature, ends_s, name = _parts(token)
        if ends_s <= time.time():
            raise SharedAccessRefused(f"ExpiredToken: The token is expired. It ended at {ends_s}, seconds since 1970.")
        path = _path(resource)
        if not _covers(path, audience):
            text = f"InvalidAudience: The authorization header contains a token for '{path}', not for '{audience}'."
            raise SharedAccessRefused(text)
        if is_open:
            return None
        rule = self._access.rules.get(name)
        sealed = None if rule is None else self._signer(rule, resource, ends_s, signature)
        if sealed is None:
            raise SharedAccessRefused(
                f"InvalidSignature: The token has an invalid signature, or there is no rule '{name[:128]}'."
            )
        hub, group = _named(path)
        return SharedAccess(self._access, name, sealed, hub, group, ends_s * 1000)

    def _signer(self, rule: RuleRecord, resource: str, ends_s: int, signature: bytes) -> bytes | None:
        """The key that made the signature, sealed."""
        said = f"{resource}\n{ends_s}".encode()
        found = None
        for sealed in (rule.primary, rule.secondary):
            own = hmac.digest(self._key(rule.name, sealed).encode(), said, hashlib.sha256)
            if hmac.compare_digest(own, signature):
                found = sealed
        return found

    def _key(self, name: str, sealed: bytes) -> str:
        found = self._opened.get((name, sealed))
        if found is None:
            if self._box is None:
                raise SharedAccessRefused(
                    "this node has no security.secrets_file, and cannot check what a rule's key has signed"
                )
            try:
                found = self._box.open(sealed, name)
            except CannotOpen as problem:
                raise SharedAccessRefused(str(problem)) from None
            if len(self._opened) >= MAX_OPENED:
                self._opened.clear()
            self._opened[name, sealed] = found
        return found


def _parts(token: str) -> tuple[str, bytes, int, str]:
    """(resource as it was signed, signature, end in seconds since 1970, rule). Raises SharedAccessRefused."""
    scheme, _, rest = token.strip().partition(" ")
    fields = dict(part.split("=", 1) for part in rest.split("&") if "=" in part)
    if len(token) > MAX_TOKEN_CHARACTERS or scheme != SCHEME or not {"sr", "sig", "se", "skn"} <= fields.keys():
        raise SharedAccessRefused(f"MalformedToken: a token is written as {SCHEME} sr=...&sig=...&se=...&skn=...")
    try:
        signature = base64.b64decode(unquote(fields["sig"]), validate=True)
        ends_s = int(fields["se"])
    except ValueError:
        raise SharedAccessRefused("MalformedToken: sig is no base64, or se no number") from None
    if not 0 <= ends_s < LATEST_END_S:
        raise SharedAccessRefused("MalformedToken: se is no time in seconds since 1970")
    return fields["sr"], signature, ends_s, unquote(fields["skn"])


def _path(resource: str) -> str:
    text = unquote(resource)
    return (urlsplit(text).path if "://" in text else text).strip("/")


def _covers(path: str, audience: str) -> bool:
    """Tell whether a token for the path is one for the audience: the same, or something above it."""
    path, audience = path.lower(), audience.strip("/").lower()
    return not path or audience == path or audience.startswith(path + "/")


def _named(path: str) -> tuple[str, str]:
    """(hub, group) of a path."""
    words = path.split("/")
    for at in range(1, len(words) - 1):
        if words[at].lower() == GROUPS:
            rest = words[at + 1 :]
            if len(rest) > 2 and rest[-2].lower() == PARTITIONS:
                rest = rest[:-2]
            return "/".join(words[:at]), "/".join(rest)
    if len(words) > 2 and words[-2].lower() == PARTITIONS:
        words = words[:-2]
    return "/".join(words), ""
