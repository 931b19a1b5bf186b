"""The identity of a client that is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


class Right(Protocol):
    """The right that a credential brings with it, whoever shows it."""

    @property
    def expires_ms(self) -> int | None: ...
    def may(self, need: Any) -> bool:
        """Tell whether it allows a `node.security.authorisation.Need`, now."""
        ...


@dataclass(frozen=True, slots=True)
class Principal:
    """Identity of a client. `how`: the SASL mechanism. `roles`: those that its token brought; a user's own are looked
    up when they count. `expires_ms`: end of its credential, in milliseconds since 1970."""

    name: str
    how: str
    roles: frozenset[str] = frozenset()
    expires_ms: int | None = None
    right: Right | None = None  # beside its grants

    @property
    def is_anonymous(self) -> bool:
        return self.how == "ANONYMOUS"

    @property
    def by_password(self) -> bool:
        """True if the login was by a user's password: it counts as long as the cluster has a user of that name."""
        return self.how == "PLAIN" or self.how.startswith("SCRAM-")


ANONYMOUS = Principal("anonymous", "ANONYMOUS")
