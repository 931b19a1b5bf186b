"""Tokens of an identity provider (JWT), and the keys that they are signed with.

Problem: a token says what it likes until its signature is checked, and by whose key; the header of the token, which
names the algorithm, is part of what it says.
Rules never broken: only algorithms of the configuration, and of those with a public key only; a token without an end is
refused; issuer and audience are compared when the configuration names them. Everything here may take a while (a file, a
key set by HTTP) and is called in a thread.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jwt

from node.security.principal import Principal

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]

LEEWAY_S = 30
"""Seconds by which the clocks of the provider and of nodes may differ."""

JWKS_TIMEOUT_S = 5.0
JWKS_LIFESPAN_S = 300.0
JWKS_AGAIN_S = 10.0
"""Least seconds between fetches of the key set for a token whose key is not in it; without one it is fetched again
after JWKS_LIFESPAN_S."""


MAX_NAME_CHARACTERS = 256


class TokenRefused(Exception):
    """Raised for a token that is refused; the reason is for the log, and the client is not told."""


@dataclass(frozen=True)
class TokenRules:
    keys_file: str = ""  # public keys in PEM, or a key set (JWKS) in JSON
    jwks_url: str = ""
    issuer: str = ""
    audience: str = ""
    algorithms: Sequence[Algorithm] = ("RS256", "ES256")
    user_claim: str = "sub"
    roles_claim: str = ""  # empty: tokens bring no roles


class TokenVerifier:
    def __init__(self, rules: TokenRules) -> None:
        self._rules = rules
        self._lock = threading.Lock()
        self._keys: list[tuple[str | None, Any]] = []
        self._seen: tuple[int, int] | None = None
        self._asked_s = -JWKS_AGAIN_S
        self._set: jwt.PyJWKClient | None = None
        if rules.jwks_url:
            self._set = jwt.PyJWKClient(rules.jwks_url, timeout=JWKS_TIMEOUT_S, lifespan=JWKS_LIFESPAN_S)

    def verify(self, token: str, how: str) -> Principal:
        """Verify a token, and return the principal that it names. Raises TokenRefused."""
        last = "no key fits"
        for key in self._candidates(token):
            try:
                claims = self._decode(token, key)
            except jwt.InvalidSignatureError:
                last = "its signature is of none of the keys"
                continue
            except (jwt.PyJWTError, TypeError, ValueError) as error:
                last = f"{type(error).__name__}: {error}"
                continue
            return self._principal(claims, how)
        raise TokenRefused(last)

    def _decode(self, token: str, key: Any) -> dict[str, Any]:
        rules = self._rules
        required = ["exp", rules.user_claim]
        return dict(
            jwt.decode(
                token,
                key,
                algorithms=list(rules.algorithms),
                audience=rules.audience or None,
                issuer=rules.issuer or None,
                leeway=LEEWAY_S,
                options={"require": required, "verify_aud": bool(rules.audience)},
            )
        )

    def _principal(self, claims: dict[str, Any], how: str) -> Principal:
        name = claims[self._rules.user_claim]
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARACTERS or not name.isprintable():
            raise TokenRefused(f"its {self._rules.user_claim} is no name")
        roles = claims.get(self._rules.roles_claim, []) if self._rules.roles_claim else []
        if isinstance(roles, str):
            roles = roles.split()
        if not isinstance(roles, list) or not all(isinstance(role, str) for role in roles):
            raise TokenRefused(f"its {self._rules.roles_claim} is no list of names")
        return Principal(name, how, frozenset(roles), int(claims["exp"]) * 1000)

    def _candidates(self, token: str) -> list[Any]:
        try:
            wanted = jwt.get_unverified_header(token).get("kid")
        except jwt.PyJWTError as error:
            raise TokenRefused(f"it is no token: {error}") from error
        keys = self._from_file() if self._set is None else self._from_set(self._set, wanted)
        return [key for name, key in keys if wanted is None or name is None or name == wanted]

    def _from_set(self, keys: jwt.PyJWKClient, wanted: str | None) -> list[tuple[str | None, Any]]:
        """Keys of the set. One that lacks the wanted key is fetched again, but not for every client that invents a
        key's name."""
        try:
            found = [(key.key_id, key.key) for key in keys.get_signing_keys()]
            with self._lock:
                now_s = time.monotonic()
                may_ask = now_s - self._asked_s >= JWKS_AGAIN_S
                anew = may_ask and wanted is not None and all(name != wanted for name, _ in found)
                if anew:
                    self._asked_s = now_s
            if anew:
                found = [(key.key_id, key.key) for key in keys.get_signing_keys(refresh=True)]
            return found
        except (jwt.PyJWTError, OSError, ValueError) as error:
            raise TokenRefused(f"its key is not had: {error}") from error

    def _from_file(self) -> list[tuple[str | None, Any]]:
        """The keys of the file as it is now."""
        path = Path(self._rules.keys_file)
        try:
            with self._lock:
                status = path.stat()
                seen = (status.st_mtime_ns, status.st_size)
                if seen != self._seen:
                    self._keys, self._seen = read_keys(path), seen
                return self._keys
        except (OSError, ValueError, jwt.PyJWTError) as error:
            raise TokenRefused(f"the keys cannot be read: {error}") from error


def read_keys(path: Path) -> list[tuple[str | None, Any]]:
    """(key id, key). Raises ValueError or OSError."""
    text = path.read_text(encoding="utf-8")
    if text.lstrip().startswith("{"):
        keys = jwt.PyJWKSet.from_dict(json.loads(text)).keys
        return [(key.key_id, key.key) for key in keys]
    end = "-----END PUBLIC KEY-----"
    parts = [part + end + "\n" for part in text.split(end)[:-1]]
    if not parts:
        raise ValueError(f"{path} holds neither public keys in PEM nor a key set in JSON")
    return [(None, part.lstrip()) for part in parts]
