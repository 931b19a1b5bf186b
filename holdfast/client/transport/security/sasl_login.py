"""The client's side of SASL: which mechanism, and its messages.

Rule never broken: what was given is what is used. With a password SCRAM comes before PLAIN, with TLS the variants that
are bound to the server's certificate before those that are not; ANONYMOUS is for a client without a credential. Hashing
is `LoginLater`.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence

from holdfast.amqp.framing.sasl import ClientExchange, FixedLogin, Login, LoginLater
from holdfast.client.errors import HoldfastError
from holdfast.client.transport.security.credentials import Security
from holdfast.client.transport.security.scram import BOUND, SCRAM, ScramClientExchange

TOKENS = ("OAUTHBEARER", "XOAUTH2")
ASKS_FOR_LOGIN = "this cluster asks for a login, and none was given"


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
            return ScramClientExchange(name, security.user, security.read_password(), tls)
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
