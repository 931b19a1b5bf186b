"""The gate of one listener: the mechanisms that it offers a connection, and its questions to the policy.

Problem: the offer depends on the listener, on the connection, and on whether the cluster has users yet.
Rules never broken: ANONYMOUS is offered while the cluster is open, and beyond loopback only where the configuration
says so; and where there are rules, to clients that show their tokens later, and may do nothing before. PLAIN is offered
inside TLS, unless the configuration says otherwise. Hashing has a few threads and a bound of waiting work; beyond it
clients are told to come again.
"""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

from scramp import ScramException
from scramp.core import CBindData

from holdfast.amqp.framing.sasl import SYS_TEMP, LoginDenied, Mechanism, OneStep
from node.security.audit import AuditLog
from node.security.authorisation import Need, NoAccess, Policy
from node.security.principal import ANONYMOUS, Principal, Right
from node.security.sasl_mechanisms import BearerToken, External, Plain
from node.security.scram import HASHES, Credentials, Refused, Scram
from node.security.secret_box import SecretBox
from node.security.shared_access import SharedAccessKeys
from node.security.tls import ServerTls
from node.security.tokens import TokenRefused, TokenVerifier

THREADS = 2
WAITING = 256
"""Logins that hash or wait for it: some seconds of work. More would be refused by their own timeout."""

SAS, JWT = "sastoken", "jwt"
"""Types of tokens for `$cbs`; the first stands behind a prefix."""

NODE_URI = "holdfast://"
"""Prefix of names in nodes' certificates; no client has one."""

Anonymous = Literal["loopback", "never", "always"]


@dataclass(frozen=True, slots=True)
class Channel:
    """Facts about a connection before its peer says who it is."""

    peer: str = "?"
    tls: bool = False
    subject: str = ""  # the verified subject of its certificate; empty: it showed none
    binding: bytes | None = None  # hash of the certificate that it was shown


class LoginThreads:
    """Threads for logins, shared by all listeners of a node."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="login")
        self._under_way = 0

    async def run(self, work: Callable[[], object]) -> object:
        if self._under_way >= WAITING:
            return LoginDenied("too many logins are under way", SYS_TEMP)
        self._under_way += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        finally:
            self._under_way -= 1

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def lets_anonymous_in(anonymous: Anonymous, bind_host: str) -> bool:
    """Tell whether an open cluster takes clients without a credential at an address."""
    return anonymous == "always" or (anonymous == "loopback" and is_loopback(bind_host))


class Gate:
    def __init__(
        self,
        policy: Policy | None = None,
        *,
        bind_host: str = "127.0.0.1",
        anonymous: Anonymous = "loopback",
        plain_without_tls: bool = False,
        tls: ServerTls | None = None,
        tokens: TokenVerifier | None = None,
        box: SecretBox | None = None,
        audit: AuditLog | None = None,
        threads: LoginThreads | None = None,
    ) -> None:
        self.policy = policy or Policy(NoAccess())
        self.audit = audit or AuditLog()
        self._anonymous = lets_anonymous_in(anonymous, bind_host)
        self._plain_without_tls = plain_without_tls
        self._tls = tls
        self._tokens = tokens
        self._threads = threads
        self._rules = SharedAccessKeys(self.policy.access, box)
        self._credentials = Credentials(self.policy.access.users.get, lambda: self.policy.access.access_secret)

    def channel(self, transport: asyncio.BaseTransport, client: tuple[str, int] | None = None) -> Channel:
        """Facts about a connection. `client`: its address and port, if a proxy has said them."""
        peer = str(client or transport.get_extra_info("peername"))
        inside: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        if inside is None:
            return Channel(peer)
        der = None if self._tls is None else self._tls.certificate(inside.context)
        return Channel(peer, True, subject_of(inside.getpeercert()), _binding(der))

    def mechanisms(self, channel: Channel) -> dict[str, Mechanism]:
        """Mechanisms by name, preferred ones first."""
        offered: dict[str, Mechanism] = {}
        credentials, policy = self._credentials, self.policy

        def refused(user: str, how: str, why: str) -> None:
            self.audit.note("refused", often=True, user=user, mechanism=how, reason=why, peer=channel.peer)

        if channel.subject:
            offered["EXTERNAL"] = lambda: External(channel.subject, refused)
        if policy.access.users:
            for name in reversed(HASHES):
                if channel.binding is not None:
                    offered[name + "-PLUS"] = _scram(name + "-PLUS", credentials, channel.binding, refused)
                offered[name] = _scram(name, credentials, channel.binding, refused)
        if (policy.access.users or self._rules.are_known) and (channel.tls or self._plain_without_tls):
            offered["PLAIN"] = lambda: Plain(credentials, self._rules, refused)
        if self._tokens is not None and (channel.tls or self._plain_without_tls):
            verifier = self._tokens
            for name in ("OAUTHBEARER", "XOAUTH2"):
                offered[name] = _token(name, verifier, refused)
        if (self._anonymous and policy.is_open) or self._rules.are_known:
            for name in ("ANONYMOUS", "MSSBCBS"):  # the same by another name, which SDKs of Event Hubs look for
                offered[name] = lambda: OneStep(lambda _: ANONYMOUS)
        return offered

    async def right_of(self, kind: str, audience: str, token: str) -> Right | None:
        """The right that a token shown to `$cbs` brings. None: the cluster is open, and everybody has every right.
        Raises TokenRefused."""
        if kind.endswith(SAS):
            return self._rules.by_token(token, audience, is_open=self.policy.is_open)
        if kind != JWT:
            raise TokenRefused(
                f"a token of type {kind[:60]!r} is not known here: {JWT}, or servicebus.windows.net:{SAS}"
            )
        if self._tokens is None:
            if self.policy.is_open:
                return None
            raise TokenRefused("no identity provider is configured here (security.token): show a token of a rule")
        verifier = self._tokens
        found = await self.run(lambda: _verified(verifier, token))
        if isinstance(found, Principal):
            return TokenRight(self.policy, found)
        raise TokenRefused(found.why if isinstance(found, LoginDenied) else str(found))

    async def run(self, work: Callable[[], object]) -> object:
        """Run a step of a login that takes a while."""
        if self._threads is None:
            return await asyncio.to_thread(work)
        return await self._threads.run(work)

    @property
    def is_barred(self) -> bool:
        """True if no client could log in here now, whatever it has."""
        by_certificate = self._tls is not None and self._tls.asks_for_certificates
        known = self._tokens is not None or by_certificate or bool(self.policy.access.users) or self._rules.are_known
        return not known and not (self._anonymous and self.policy.is_open)

    def whoami(self, principal: Principal) -> dict[str, Any]:
        return {
            "principal": principal.name,
            "mechanism": principal.how,
            "roles": sorted(self.policy.roles(principal)),
            "open_cluster": self.policy.is_open,
            "expires_ms": principal.expires_ms,
        }


@dataclass(frozen=True, slots=True)
class TokenRight:
    """The rights of the principal that a token names."""

    policy: Policy
    principal: Principal

    @property
    def expires_ms(self) -> int | None:
        return self.principal.expires_ms

    def may(self, need: Need) -> bool:
        if self.expires_ms is not None and time.time() * 1000 >= self.expires_ms:
            return False
        if need.name is None:
            return self.policy.may_some(self.principal, need.operation, need.kind)
        return self.policy.may(self.principal, need.operation, need.kind, need.name)


def _verified(verifier: TokenVerifier, token: str) -> Principal | TokenRefused:
    try:
        return verifier.verify(token, "JWT")
    except TokenRefused as problem:
        return problem


def _scram(name: str, credentials: Credentials, binding: bytes | None, refused: Refused) -> Mechanism:
    return lambda: Scram(name, credentials, binding, refused)


def _token(name: str, verifier: TokenVerifier, refused: Refused) -> Mechanism:
    return lambda: BearerToken(name, verifier, refused)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def subject_of(certificate: Any) -> str:
    """The last common name; empty for a node's certificate, and where there is none."""
    if not certificate:
        return ""
    others: Sequence[tuple[str, str]] = certificate.get("subjectAltName", ())
    if any(kind == "URI" and value.startswith(NODE_URI) for kind, value in others):
        return ""
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return names[-1] if names else ""


def _binding(certificate: bytes | None) -> bytes | None:
    """Hash of the certificate to bind to. None also for certificates whose signature names no hash: both sides could
    not agree on one."""
    if certificate is None:
        return None
    try:
        return bytes(CBindData.from_der(certificate))
    except ScramException:
        return None
