"""Who a client is, once it is known."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Principal:
    """`how`: the SASL mechanism. `roles`: those that its token brought; a user's own are looked up when they count.
    `expires_ms`: since 1970, when its credential ends."""

    name: str
    how: str
    roles: frozenset[str] = frozenset()
    expires_ms: int | None = None

    @property
    def is_anonymous(self) -> bool:
        return self.how == "ANONYMOUS"

    @property
    def by_password(self) -> bool:
        """It exists as long as the cluster knows a user of that name."""
        return self.how == "PLAIN" or self.how.startswith("SCRAM-")


ANONYMOUS = Principal("anonymous", "ANONYMOUS")
