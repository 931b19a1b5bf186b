"""A plan, and its digest."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

DIGEST_DIGITS = 8


@dataclass(frozen=True, slots=True)
class Reassignment:
    """Target of one group, planned for one version of its configuration."""

    group: int
    configuration_version: int
    target: tuple[int, ...]
    """Replicas, preferred leader first."""
    why: str


@dataclass(frozen=True)
class BalancePlan:
    reassignments: tuple[Reassignment, ...] = ()
    obstacles: tuple[str, ...] = ()
    """What the plan could not do, and why; for people, and no part of the digest."""

    @cached_property
    def digest(self) -> str:
        """Name of exactly these targets in this order, in hexadecimal digits."""
        told = hashlib.sha256()
        for item in self.reassignments:
            told.update(repr((item.group, item.configuration_version, item.target, item.why)).encode())
        return told.hexdigest()[:DIGEST_DIGITS]
