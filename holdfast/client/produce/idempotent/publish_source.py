"""What an idempotent producer publishes, as the publisher of a partition sees it: a batch, or what is buffered.

Rule never broken: what was taken is either accepted, refused, or given up; each once, in order.
"""

from __future__ import annotations

from typing import Protocol

from holdfast.client.errors import RejectedError
from holdfast.client.produce.chunks.chunk import Run
from holdfast.client.produce.transfers import Room, Transfer


class PublishSource(Protocol):
    """What is published: a batch, or what is buffered."""

    one_by_one: bool
    """Its events are published each for itself: what is accepted stays so, what is refused is left out."""

    def check(self, most_bytes: int) -> None:
        """Before the first is taken: raise if something in it is larger than the node takes (0: anything goes)."""
        ...

    @property
    def has_more(self) -> bool: ...

    def take(self, room: Room, *, wait: bool) -> list[Transfer]:
        """The next events, in order, as many as there is room for; none only if there is no more. `wait`: or if it is
        better to wait for an answer to others, which will come."""
        ...

    def accepted(self, transfers: list[Transfer]) -> None: ...

    def refused(self, run: Run, error: RejectedError) -> None:
        """Only of sources that go `one_by_one`."""
        ...

    def given_up(self, runs: list[Run]) -> None:
        """Those taken that were not accepted, in order; they have no numbers any more."""
        ...
