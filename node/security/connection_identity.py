"""The peer of one connection: its identity and rights, from its first byte to its last."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from holdfast.amqp.errors import UNAUTHORIZED_ACCESS, Error
from holdfast.amqp.framing.sasl import Mechanism
from node.security.authentication import Channel, Gate
from node.security.authorisation import Need
from node.security.principal import ANONYMOUS, Principal, Right
from node.security.shared_access import SharedAccessRefused
from node.security.tokens import TokenRefused

SECRETS = frozenset({"scram_sha_256", "scram_sha_512"})
"""Arguments of requests that are never audited."""

WRITTEN_CHARACTERS = 256
"""Characters of a request's argument in the audit log, whose room is bounded: names of logs, users and groups are
shorter, and long nonsense must not wash away earlier lines."""


TOKEN_WITHIN_S = 30.0
"""Time for a peer without a credential to show a token: it holds a connection, and may do nothing. SDKs do so at once.
"""

MOST_TOKENS = 64
"""Tokens of one connection: SDKs show one for each of the consumer groups and hubs that they use on it."""


class Visitor:
    def __init__(self, gate: Gate) -> None:
        self.principal: Principal = ANONYMOUS
        self._gate = gate
        self._channel = Channel()
        self._rights = gate.policy.revision
        self._shown: dict[str, Right] = {}  # by audience: tokens shown after the login

    @property
    def peer(self) -> str:
        return self._channel.peer

    def arrived(self, transport: asyncio.BaseTransport, client: tuple[str, int] | None = None) -> None:
        """Note the connection. `client`: its address and port, if a proxy has said them."""
        self._channel = self._gate.channel(transport, client)

    def mechanisms(self) -> Mapping[str, Mechanism]:
        return self._gate.mechanisms(self._channel)

    def known(self, identity: Principal | None, container: str) -> float | None:
        """Note the peer's identity once it is known, or was not asked for. Returns the seconds until its credential
        ends; None: it does not end."""
        self.principal = identity or ANONYMOUS
        tls, mechanism = self._channel.tls, self.principal.how
        self._note("let-in", often=True, mechanism=mechanism, container=container[:200], tls=tls)
        if self.principal.right is not None:
            self._shown[""] = self.principal.right
        if self.must_show_token:
            return TOKEN_WITHIN_S
        expires_ms = self.principal.expires_ms
        return None if expires_ms is None else max(0.0, expires_ms / 1000 - time.time())

    @property
    def must_show_token(self) -> bool:
        """True for a peer without a credential, of a cluster that is not open, before its first token."""
        return self.principal.is_anonymous and not self._shown and not self._gate.policy.is_open

    def rights_changed(self) -> bool:
        """Tell whether rights have changed since the last call."""
        revision, before = self._gate.policy.revision, self._rights
        self._rights = revision
        return revision != before

    def may(self, need: Need) -> bool:
        if any(right.may(need) for right in self._shown.values()):
            return True
        if need.name is None:
            return self._gate.policy.may_some(self.principal, need.operation, need.kind)
        return self._gate.policy.may(self.principal, need.operation, need.kind, need.name)

    def refusal(self, need: Need) -> Error:
        """The error for a peer that may not do it; it is audited as well."""
        self._note("not-allowed", often=True, what=str(need))
        name = self.principal.name
        if self.principal.is_anonymous and not self._gate.policy.is_open:
            return Error(UNAUTHORIZED_ACCESS, f"without a credential nobody may {need}: log in, or show a token")
        told = f"{name!r} may not {need}; an administrator can allow it: {need.as_grant(name)}"
        return Error(UNAUTHORIZED_ACCESS, told)

    async def put_token(self, kind: str, audience: str, token: str) -> str | None:
        """Take a token for an audience, in place of the one before. Returns why it is not believed; None: it is."""
        if len(self._shown) >= MOST_TOKENS and audience not in self._shown:
            return f"{MOST_TOKENS} tokens for different audiences are the most on one connection"
        try:
            right = await self._gate.right_of(kind, audience, token)
        except TokenRefused as problem:
            self._note("refused", often=True, mechanism=kind[:40], audience=_cut(audience), reason=_cut(str(problem)))
            return str(problem) if isinstance(problem, SharedAccessRefused) else "the token is not accepted"
        if right is not None:
            self._shown[audience] = right
        self._note("let-in", often=True, mechanism=kind[:40], audience=_cut(audience))
        return None

    def next_end_s(self) -> float | None:
        """Seconds until the next of the tokens ends that were shown. Those that have ended are forgotten."""
        now_ms = time.time() * 1000
        ends = {audience: right.expires_ms for audience, right in self._shown.items() if right.expires_ms is not None}
        for audience, end_ms in ends.items():
            if end_ms <= now_ms:
                del self._shown[audience]
        left_ms = min((end_ms - now_ms for end_ms in ends.values() if end_ms > now_ms), default=None)
        return None if left_ms is None else left_ms / 1000

    def whoami(self) -> dict[str, Any]:
        return self._gate.whoami(self.principal)

    def administered(self, operation: str, arguments: Mapping[str, Any], outcome: str) -> None:
        """Audit a change that the peer has asked for, and its outcome."""
        said = {name: _cut(value) for name, value in arguments.items() if name not in SECRETS}
        self._note("administered", operation=operation, arguments=said, outcome=outcome)

    def _note(self, event: str, *, often: bool = False, **facts: object) -> None:
        self._gate.audit.note(event, often=often, user=self.principal.name, peer=self.peer, **facts)


def _cut(argument: Any) -> Any:
    """The text, or the texts of a list together, cut to WRITTEN_CHARACTERS, with a word about the rest."""
    if isinstance(argument, str):
        left_out = len(argument) - WRITTEN_CHARACTERS
        return argument if left_out <= 0 else f"{argument[:WRITTEN_CHARACTERS]}... and {left_out} characters"
    if not isinstance(argument, list):
        return argument
    written: list[Any] = []
    left = WRITTEN_CHARACTERS
    for one in argument:
        left -= max(1, len(one))
        if left < 0:
            return [*written, f"... and {len(argument) - len(written)} more"]
        written.append(one)
    return written
