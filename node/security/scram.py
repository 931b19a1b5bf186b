"""SCRAM (RFC 5802), the server's side, and the keys that it proves passwords by.

The rules: an unknown user looks like a known one up to the refusal, for its salt is made from the cluster's secret and
its name; a proof is compared in constant time (by `scramp`).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from typing import Any

from scramp import ScramException, ScramMechanism

from cluster.metadata import ScramKeys, UserRecord
from holdfast.amqp.framing.sasl import Answer, Challenge, LoginAccepted, LoginDenied
from node.security.principal import Principal

ITERATIONS = 20_000
"""Iterations sent for unknown users: as many as our own tools take for a new password, so that they do not reveal
whether a user exists."""

BINDING = "tls-server-end-point"
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

Find = Callable[[str], UserRecord | None]
Refused = Callable[[str, str, str], None]
"""Callback for a refusal: the claimed name, the mechanism and the reason."""


class Credentials:
    """Keys of users, and invented ones for unknown names."""

    def __init__(self, find: Find, secret: Callable[[], bytes]) -> None:
        self._find = find
        self._secret = secret

    def keys(self, name: str, algorithm: str) -> tuple[ScramKeys, bool]:
        """Keys of a name, and whether they are a user's."""
        user = self._find(name)
        if user is not None:
            return (user.sha256 if algorithm == "sha256" else user.sha512), True
        salt = self._invented(b"salt", name, algorithm)[:16]
        size = hashlib.new(algorithm).digest_size
        stored = self._invented(b"stored", name, algorithm)[:size]
        return ScramKeys(ITERATIONS, salt, stored, self._invented(b"server", name, algorithm)[:size]), False

    def _invented(self, what: bytes, name: str, algorithm: str) -> bytes:
        return hmac.digest(self._secret(), b"\0".join((what, algorithm.encode(), name.encode())), "sha512")


class Scram:
    """One login by SCRAM. `binding`: the hash of the certificate that the client was shown, if it can be bound to."""

    def __init__(self, name: str, credentials: Credentials, binding: bytes | None, refused: Refused) -> None:
        self._name = name
        self._algorithm = HASHES[name.removesuffix("-PLUS")]
        self._credentials = credentials
        self._refused = refused
        self._user = ""
        self._known = False
        channel = None if binding is None else (BINDING, binding)
        self._scram: Any = ScramMechanism(name).make_server(self._keys, channel_binding=channel)

    def _keys(self, user: str) -> tuple[bytes, bytes, bytes, int]:
        keys, self._known = self._credentials.keys(user, self._algorithm)
        self._user = user
        return keys.salt, keys.stored_key, keys.server_key, keys.iterations

    def respond(self, data: bytes) -> Answer:
        stage = self._scram.stage
        if stage is not None and stage >= 4:
            return LoginAccepted(Principal(self._user, self._name))  # the client has heard our proof
        try:
            text = data.decode()
            if stage is None:
                self._scram.set_client_first(text)
                return Challenge(self._scram.get_server_first().encode())
            self._scram.set_client_final(text)
            if not self._known:
                return self._deny("there is no such user")
            return Challenge(self._scram.get_server_final().encode())
        except (ScramException, UnicodeDecodeError) as error:
            return self._deny(str(error) if self._known or stage is None else "there is no such user")

    def _deny(self, why: str) -> LoginDenied:
        self._refused(self._user, self._name, why)
        return LoginDenied(f"{self._user!r}, {why}")
