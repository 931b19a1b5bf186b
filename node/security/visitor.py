"""The peer of one connection: who it is, and what it may do, from its first byte to its last."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from holdfast.amqp.errors import UNAUTHORIZED_ACCESS, Error
from holdfast.amqp.framing.sasl import Mechanism
from node.security.authorisation import Need
from node.security.gate import Channel, Gate
from node.security.principal import ANONYMOUS, Principal

SECRETS = frozenset({"scram_sha_256", "scram_sha_512"})
"""Arguments of requests that are never written down."""

WRITTEN_CHARACTERS = 256
"""Of an argument of a request in the audit log, which keeps what it has room for: the names of logs, users and groups
are shorter, and who asks for nonsense at length is not to wash away what came before."""


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
        """The peer has said who it is, and was believed; or it did not have to. For how long, in seconds."""
        self.principal = identity or ANONYMOUS
        tls, mechanism = self._channel.tls, self.principal.how
        self._note("let-in", often=True, mechanism=mechanism, container=container[:200], tls=tls)
        expires_ms = self.principal.expires_ms
        return None if expires_ms is None else max(0.0, expires_ms / 1000 - time.time())

    def rights_changed(self) -> bool:
        """Since the last time that this was asked."""
        revision, before = self._gate.policy.revision, self._rights
        self._rights = revision
        return revision != before

    def may(self, need: Need) -> bool:
        if need.name is None:
            return self._gate.policy.may_some(self.principal, need.operation, need.kind)
        return self._gate.policy.may(self.principal, need.operation, need.kind, need.name)

    def refusal(self, need: Need) -> Error:
        """What it is told when it may not; it is written down as well."""
        self._note("not-allowed", often=True, what=str(need))
        name = self.principal.name
        told = f"{name!r} may not {need}; an administrator can allow it: {need.as_grant(name)}"
        return Error(UNAUTHORIZED_ACCESS, told)

    def whoami(self) -> dict[str, Any]:
        return self._gate.whoami(self.principal)

    def administered(self, operation: str, arguments: Mapping[str, Any], outcome: str) -> None:
        """It has asked for a change, and this is what came of it."""
        said = {name: _cut(value) for name, value in arguments.items() if name not in SECRETS}
        self._note("administered", operation=operation, arguments=said, outcome=outcome)

    def _note(self, event: str, *, often: bool = False, **facts: object) -> None:
        self._gate.audit.note(event, often=often, user=self.principal.name, peer=self.peer, **facts)


def _cut(argument: Any) -> Any:
    """To WRITTEN_CHARACTERS, and a word about the rest: a text, or the texts of a list together."""
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
