"""Users, grants and tokens for tests."""

from __future__ import annotations

import base64
import time
from dataclasses import dataclass, field
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from cluster.metadata import GrantRecord, RuleRecord, ScramKeys, UserRecord
from holdfast.client.transport.security.scram import password_keys


def user(name: str, password: str, *roles: str) -> UserRecord:
    def keys(text: str) -> ScramKeys:
        iterations, *parts = text.split(":")
        return ScramKeys(int(iterations), *(base64.b64decode(part) for part in parts))

    made = password_keys(password)
    return UserRecord(name, keys(made["scram_sha_256"]), keys(made["scram_sha_512"]), roles)


def allow(principal: str, operation: str, kind: str, name: str = "", *, prefix: bool = False) -> GrantRecord:
    return GrantRecord(principal, True, operation, kind, name, prefix)


def deny(principal: str, operation: str, kind: str, name: str = "", *, prefix: bool = False) -> GrantRecord:
    return GrantRecord(principal, False, operation, kind, name, prefix)


@dataclass
class KnownUsers:
    """What a cluster knows of users and grants (`node.security.authorisation.Access`)."""

    users: dict[str, UserRecord] = field(default_factory=dict)
    grants: list[GrantRecord] = field(default_factory=list)
    rules: dict[str, RuleRecord] = field(default_factory=dict)
    access_secret: bytes = b"s" * 32
    access_revision: int = 0

    def change(self, *grants: GrantRecord, without: str = "") -> None:
        self.grants = list(grants)
        self.users.pop(without, None)
        self.access_revision += 1


class Provider:
    """Makes tokens, as an identity provider does."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())

    @property
    def public(self) -> bytes:
        return self._key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )

    def jwk(self, kid: str) -> dict[str, Any]:
        made = ECAlgorithm(ECAlgorithm.SHA256).to_jwk(self._key.public_key(), as_dict=True)
        return {**made, "kid": kid, "use": "sig", "alg": "ES256"}

    def token(self, name: str = "ann", *, lives_s: float = 3600, kid: str | None = None, **claims: Any) -> str:
        headers = None if kid is None else {"kid": kid}
        said = {"sub": name, "exp": time.time() + lives_s, **claims}
        return jwt.encode(said, self._key, algorithm="ES256", headers=headers)
