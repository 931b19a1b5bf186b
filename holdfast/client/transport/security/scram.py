"""SCRAM (RFC 5802), the client's side, and the keys that a cluster keeps of a password.

Rule never broken: the server proves itself, too, before the login counts. Hashing is `LoginLater`.
"""

from __future__ import annotations

import base64
import hmac
import ssl
from collections.abc import Mapping
from typing import Any

from holdfast.amqp.framing.sasl import LoginLater
from holdfast.client.errors import ConfigurationError

SCRAM = ("SCRAM-SHA-512", "SCRAM-SHA-256")
BOUND = "-PLUS"
BINDING = "tls-server-end-point"

ITERATIONS = 20_000
"""Iterations for a new password: a login takes a node or a client some ten milliseconds, and a guess as long."""


def password_keys(password: str) -> dict[str, str]:
    """Keys that a cluster keeps of a password, by the names of the management protocol. The password stays here."""
    from scramp import ScramException, ScramMechanism

    found: dict[str, str] = {}
    for name in SCRAM:
        try:
            made = ScramMechanism(name).make_auth_info(password, iteration_count=ITERATIONS)
        except ScramException as error:
            raise ConfigurationError(f"the password cannot be used: {error}") from error
        salt, stored, server, iterations = made
        parts = (base64.b64encode(part).decode() for part in (salt, stored, server))
        found[name.lower().replace("-", "_")] = ":".join((str(iterations), *parts))
    return found


def is_password_of(keys: Mapping[str, str], password: str) -> bool:
    """True if `password_keys` made the keys of this password. False for keys that are none, or lack a mechanism."""
    from scramp import ScramException, ScramMechanism

    for name in SCRAM:
        told = keys.get(name.lower().replace("-", "_"), "")
        try:
            iterations, *rest = told.split(":")
            salt, stored, server = (base64.b64decode(part, validate=True) for part in rest)
            made = ScramMechanism(name).make_auth_info(password, iteration_count=int(iterations), salt=salt)
        except (ScramException, ValueError):
            return False
        if not (hmac.compare_digest(made[1], stored) and hmac.compare_digest(made[2], server)):
            return False
    return True


class ScramClientExchange:
    """One login by SCRAM. `tls`: the connection's, whose certificate the login is bound to if it can be."""

    def __init__(self, name: str, user: str, password: str, tls: ssl.SSLObject | None) -> None:
        # Imported here: most programs of one connection never need it.
        from scramp import ScramClient, ScramException

        self.name = name
        self._fault = ScramException
        self._proved = False
        try:
            self._scram: Any = ScramClient([name], user, password, _binding(tls, name))
        except ScramException as error:
            raise ValueError(f"the user's name or password cannot be used: {error}") from error

    def first(self) -> bytes | LoginLater:
        return bytes(self._scram.get_client_first().encode())

    def respond(self, challenge: bytes) -> bytes | LoginLater:
        if self._scram.stage == 1:
            return LoginLater(lambda: self._final(challenge))
        self._prove(challenge)
        return b""

    def _final(self, challenge: bytes) -> bytes:
        try:
            self._scram.set_server_first(challenge.decode())
            return bytes(self._scram.get_client_final().encode())
        except (self._fault, UnicodeDecodeError) as error:
            raise ValueError(f"the server's SASL message makes no sense: {error}") from error

    def succeeded(self, additional: bytes) -> None:
        if additional and not self._proved:
            self._prove(additional)
        if not self._proved:
            raise ValueError("the server lets us in without having proved that it knows the user")

    def _prove(self, message: bytes) -> None:
        try:
            self._scram.set_server_final(message.decode())
        except (self._fault, UnicodeDecodeError) as error:
            raise ValueError(f"the server has not proved that it knows the user: {error}") from error
        self._proved = True


def _binding(tls: ssl.SSLObject | None, name: str) -> tuple[str, Any] | None:
    from scramp import ScramException
    from scramp.core import CBindData

    der = None if tls is None else tls.getpeercert(binary_form=True)
    if der is None:
        return None
    try:
        return BINDING, bytes(CBindData.from_der(der))
    except ScramException as error:
        if name.endswith(BOUND):
            raise ValueError(f"the server's certificate cannot be bound to: {error}") from error
        return None
