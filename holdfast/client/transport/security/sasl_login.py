"""The client's side of SASL: which mechanism, and its messages.

Rule never broken: what was given is what is used. With a password SCRAM comes before PLAIN, with TLS the variants that
are bound to the server's certificate before those that are not; ANONYMOUS is for a client without a credential. Hashing
is `LoginLater`. With SCRAM the server proves itself, too, before the login counts.
"""

from __future__ import annotations

import base64
import hmac
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.amqp.framing.sasl import ClientExchange, FixedLogin, Login, LoginLater
from holdfast.client.errors import ConfigurationError, HoldfastError
from holdfast.client.transport.security.credentials import Security

SCRAM = ("SCRAM-SHA-512", "SCRAM-SHA-256")
BOUND = "-PLUS"
TOKENS = ("OAUTHBEARER", "XOAUTH2")
ASKS_FOR_LOGIN = "this cluster asks for a login, and none was given"
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


def login_of(security: Security, tls: Callable[[], ssl.SSLObject | None], host: str, port: int) -> Login:
    """Login for a connection. `tls`: that of the connection, once it is there."""

    def choose(offered: Sequence[str]) -> ClientExchange:
        wanted = _wanted(security, tls() is not None)
        names = [name for name in wanted if name in offered]
        if not names:
            if wanted == ["ANONYMOUS"] and offered:
                raise ValueError(ASKS_FOR_LOGIN)
            raise ValueError(
                f"the server offers {', '.join(offered) or 'no way to log in'}; with what was given here it would have "
                f"to be {' or '.join(wanted) or 'PLAIN, inside TLS or with mechanism PLAIN'}"
            )
        return _exchange(names[0], security, tls(), host, port)

    return choose


def _wanted(security: Security, inside_tls: bool) -> list[str]:
    """Mechanisms for what was given, the best first."""
    if security.mechanism:
        return [security.mechanism]
    if security.token:
        return list(TOKENS)
    if security.has_password:
        bound = [name + BOUND for name in SCRAM] if inside_tls else []
        return [*bound, *SCRAM, *(["PLAIN"] if inside_tls else [])]
    return ["EXTERNAL"] if security.cert else ["ANONYMOUS"]


def _exchange(name: str, security: Security, tls: ssl.SSLObject | None, host: str, port: int) -> ClientExchange:
    try:
        if name.removesuffix(BOUND) in SCRAM:
            return _Scram(name, security.user, security.read_password(), tls)
        if name == "PLAIN":
            return FixedLogin(name, f"\0{security.user}\0{security.read_password()}".encode())
        if name == "XOAUTH2":
            return _Token(name, f"user={security.user}\x01auth=Bearer {security.read_token()}\x01\x01")
        if name == "OAUTHBEARER":
            return _Token(name, f"n,,\x01host={host}\x01port={port}\x01auth=Bearer {security.read_token()}\x01\x01")
    except HoldfastError as error:
        raise ValueError(str(error)) from error
    return FixedLogin(name, b"")


class _Token(FixedLogin):
    """A refused token is explained in a challenge, which the client has to answer before it hears the outcome."""

    def __init__(self, name: str, response: str) -> None:
        super().__init__(name, response.encode())

    def respond(self, challenge: bytes) -> bytes | LoginLater:
        return b"\x01"


class _Scram:
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
