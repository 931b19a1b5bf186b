"""The last stable offset of a partition: where committed readers stop.

It is the first event of the oldest open transaction, or the end of the log. It follows from what was applied; it never
falls, since the events of a transaction that opens later are later.
"""

from __future__ import annotations

from collections.abc import Mapping, ValuesView

Transaction = tuple[int, int]
"""Producer id and epoch."""


class LastStableOffset:
    """First offsets of the open transactions that have written events. `begun`: those of a checkpoint."""

    def __init__(self, begun: Mapping[Transaction, int]) -> None:
        self._first = dict(sorted(begun.items(), key=lambda item: item[1]))  # the oldest comes first

    def offset(self, next_offset: int) -> int:
        """The last stable offset of a log that ends at `next_offset`."""
        return next(iter(self._first.values()), next_offset)

    def began(self, transaction: Transaction, first_offset: int) -> None:
        """Note the first event of a transaction; it is the newest event of the log."""
        self._first[transaction] = first_offset

    def ended(self, transaction: Transaction) -> None:
        self._first.pop(transaction, None)

    @property
    def first_offsets(self) -> ValuesView[int]:
        return self._first.values()
