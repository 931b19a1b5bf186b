"""Security of a client's connections: its own credential, and the check of the server's identity.

Problem: a password that is given to the wrong server, or a program that believes it is logged in while it is anonymous,
is worse than an error.
Rules never broken: with TLS the server's certificate and name are always checked; a client that was given a credential
never goes on without it; a password leaves this process in clear (PLAIN) only inside TLS, or where the caller named
that mechanism.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.client.errors import ConfigurationError

ALPN = ["amqp"]


@dataclass(frozen=True)
class Security:
    """Security of a client's connections. Nothing given: plain TCP, and anonymous.

    `tls` follows from `ca` or `cert`. One credential at most: a user with a password, a token (or a function that makes
    one at each connection), or a certificate alone. `mechanism` names the SASL mechanism; empty: the best that is
    offered.
    """

    tls: bool = False
    ca: str = ""  # a file of certificates in PEM, the authorities to trust; empty: the system's
    cert: str = ""  # a file in PEM, shown to the server
    key: str = ""  # empty: it is in `cert`
    user: str = ""
    password: str = field(default="", repr=False)
    password_file: str = ""  # its first line is the password, read at each connection
    token: str | Callable[[], str] = field(default="", repr=False)
    mechanism: str = ""

    @property
    def uses_tls(self) -> bool:
        return self.tls or bool(self.ca or self.cert)

    @property
    def has_password(self) -> bool:
        return bool(self.password or self.password_file)

    def check(self) -> None:
        """Check the combination of what was given. Raises ConfigurationError."""
        if self.key and not self.cert:
            raise ConfigurationError("a key was given without the certificate that it belongs to", advice="give cert")
        if self.password and self.password_file:
            raise ConfigurationError("a password and a file with one were given", advice="give one of them")
        if self.has_password != bool(self.user):
            lacks = "a password" if self.user else "the user whose password it is"
            raise ConfigurationError(f"{lacks} is missing", advice="give user with password or password_file")
        if self.token and self.user:
            raise ConfigurationError("a user and a token were given", advice="give one of them")

    def read_password(self) -> str:
        return _first_line(self.password_file, "password") if self.password_file else self.password

    def read_token(self) -> str:
        return self.token() if callable(self.token) else self.token

    def context(self) -> ssl.SSLContext | None:
        """Make the TLS context. None: no TLS. The files are read each time, so that renewed ones are taken. Raises
        ConfigurationError."""
        if not self.uses_tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.set_alpn_protocols(ALPN)
            if self.cert:
                context.load_cert_chain(self.cert, self.key or None, password=_no_password)
        except (OSError, ssl.SSLError) as error:
            names = ", ".join(name for name in (self.ca, self.cert, self.key) if name)
            raise ConfigurationError(f"the certificates cannot be used ({names or 'the system'}): {error}") from error
        return context


def token_in(path: str) -> str:
    """The file's first line, without white space around it. With `functools.partial` it makes a `Security.token`, read
    at each connection: tokens end, and are renewed."""
    return _first_line(str(Path(path).expanduser()), "token").strip()


def _first_line(path: str, what: str) -> str:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
    if not lines or not lines[0].strip():
        raise ConfigurationError(f"{path} holds no {what} in its first line")
    return lines[0]


def _no_password() -> str:
    raise ConfigurationError("the key is encrypted", advice="give one that is not")
