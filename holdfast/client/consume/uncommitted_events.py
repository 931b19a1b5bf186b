"""Events that a member of a group has handed out and not committed, for the transaction that is to commit them.

Problem: a program makes something of events, and lets both count together. If their partition went to another member
meanwhile, that one works on them as well, and a transaction that simply left the partition out would count them twice.
Rule never broken: what was handed out is committed under the claim under which it came, or the transaction hears that
it cannot be, until the program has come for more after it was told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.client.errors import OwnershipLostError

Arguments = Callable[[str, str, int], dict[str, Any]]
"""Partition, offset and claim -> those of the request that commits it."""


@dataclass(frozen=True)
class HandedOut:
    """The last event of a partition that was handed out and is not committed, and the claim under which it came."""

    log: str
    partition: str
    claim: int
    offset: str
    arguments: dict[str, Any]
    heard: Callable[[str, str, int], None]

    def committed(self) -> None:
        self.heard(self.partition, self.offset, self.claim)


class HandedOutEvents:
    def __init__(self, log: str, arguments: Arguments, heard: Callable[[str, str, int], None]) -> None:
        """`heard`: told of what was committed, by partition, offset and claim."""
        self._log, self._arguments, self._heard = log, arguments, heard
        self._last: dict[str, tuple[int, str]] = {}  # by partition: the claim, and the last offset
        self._lost: set[str] = set()  # partitions that are not ours any more, with something not committed
        self._told = False

    def took(self, partition: str, claim: int, offset: str) -> None:
        before = self._last.get(partition)
        if before is not None and before[0] != claim:
            self._lost.add(partition)
        self._last[partition] = claim, offset

    def goes_on(self, partition: str, claim: int, new_claim: int) -> None:
        """Go on under our next claim: nobody else has read the partition in between."""
        last = self._last.get(partition)
        if last is not None and last[0] == claim:
            self._last[partition] = new_claim, last[1]

    def committed(self, partition: str, offset: str, claim: int) -> None:
        last = self._last.get(partition)
        if last is not None and last[0] == claim and last[1] <= offset:
            del self._last[partition]

    def came_for_more(self) -> None:
        """Note that the program is done with what it was given, and with what it was told."""
        if self._told:
            self._lost.clear()
            self._told = False

    def all(self, ours: set[tuple[str, int]]) -> list[HandedOut]:
        """The last events handed out. `ours`: the partitions that are read now, each with its claim. Raises
        OwnershipLostError."""
        for partition, (claim, _) in list(self._last.items()):
            if (partition, claim) not in ours:
                del self._last[partition]
                self._lost.add(partition)
        if self._lost:
            self._told = True
            names = ", ".join(sorted(self._lost))
            raise OwnershipLostError(
                f"events of partition {names} of {self._log!r} were handed out, and another member has it now",
                advice="let nothing count that was made of what was received last; then go on receiving",
            )
        return [
            HandedOut(self._log, partition, claim, offset, self._arguments(partition, offset, claim), self._heard)
            for partition, (claim, offset) in self._last.items()
        ]
