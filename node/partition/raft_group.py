"""What a partition needs of its Raft group, which is a part of what a `cluster.raft.Group` can do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from cluster.raft import Outcome


class Proposer(Protocol):
    """What everything that makes commands needs."""

    @property
    def is_leader(self) -> bool: ...
    @property
    def leader(self) -> int | None: ...
    def propose(self, data: bytes, done: Callable[[Outcome], None]) -> int: ...


class GroupLike(Proposer, Protocol):
    """What a replica needs."""

    on_role_change: Callable[[Any], None] | None

    @property
    def ready(self) -> bool: ...
    @property
    def members(self) -> tuple[int, ...]: ...
    @property
    def first_index(self) -> int: ...
    def entry(self, index: int) -> tuple[int, bytes]: ...
    def trim(self, index: int) -> None: ...
    def safe_trim_index(self) -> int: ...
    def read_index(self, done: Callable[[int | None], None]) -> None: ...
