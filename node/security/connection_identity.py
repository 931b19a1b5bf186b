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
from node.security.principal import ANONYMOUS, Principal

SECRETS = frozenset({"scram_sha_256", "scram_sha_512"})
"""Arguments of requests that are never audited."""

WRITTEN_CHARACTERS = 256
"""Characters of a request's argument in the audit log, whose room is bounded: names of logs, users and groups are
shorter, and long nonsense must not wash away earlier lines."""


class Visitor:
    def __init__(self, gate: Gate) -> None:
        self.principal: Principal = ANONYMOUS
        self._gate = gate
        self._channel = Channel()
        self._rights = gate.policy.revision

    @property
    def peer(self) -> str:
        return self._channel.peer

    def arrived(self, transport: asyncio.BaseTransport) -> None:
        self._channel = self._gate.channel(transport)

    def mechanisms(self) -> Mapping[str, Mechanism]:
        return self._gate.mechanisms(self._channel)

    def known(self, identity: Principal | None, container: str) -> float | None:
        """Note the peer's identity once it is known, or was not asked for. Returns the seconds until its credential
        ends; None: it does not end."""
        self.principal = identity or ANONYMOUS
        tls, mechanism = self._channel.tls, self.principal.how
        self._note("let-in", often=True, mechanism=mechanism, container=container[:200], tls=tls)
        expires_ms = self.principal.expires_ms
        return None if expires_ms is None else max(0.0, expires_ms / 1000 - time.time())

    def rights_changed(self) -> bool:
        """Tell whether rights have changed since the last call."""
        revision, before = self._gate.policy.revision, self._rights
        self._rights = revision
        return revision != before

    def may(self, need: Need) -> bool:
        if need.name is None:
            return self._gate.policy.may_some(self.principal, need.operation, need.kind)
        return self._gate.policy.may(self.principal, need.operation, need.kind, need.name)

    def refusal(self, need: Need) -> Error:
        """The error for a peer that may not do it; it is audited as well."""
        self._note("not-allowed", often=True, what=str(need))
        name = self.principal.name
        told = f"{name!r} may not {need}; an administrator can allow it: {need.as_grant(name)}"
        return Error(UNAUTHORIZED_ACCESS, told)

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
