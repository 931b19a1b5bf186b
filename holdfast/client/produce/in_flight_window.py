"""A window: what was sent in order, until it is decided what became of it.

Problem: answers come in any order, some of them ask for a repeat, and a link may end with half of them missing; what is
sent again must stand in its old order all the same, or a later event overtakes an earlier one.
Rules never broken:
 - whatever is not settled is taken back in the order in which it was sent, whether it was answered or not;
 - once something has come back, nothing is sent behind it until all of it was taken back;
 - an answer to what is not here any more changes nothing.
Rejected: to send again, at once, what an answer asks for. It would stand behind what was sent after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")
Why = TypeVar("Why")
"""The reason that an answer gives for sending something back."""


class InFlightWindow(Generic[Item, Why]):
    """Items by the numbers that their link gave them, in the order of sending."""

    __slots__ = ("_items", "_returned")

    def __init__(self) -> None:
        self._items: dict[int, Item] = {}  # not settled
        self._returned: dict[int, Why | None] = {}  # of those, the ones that came back

    def __len__(self) -> int:
        """The number of those that are not settled."""
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        """Every item that is not settled, in the order of sending."""
        return iter(self._items.values())

    @property
    def first(self) -> Item | None:
        """The oldest one that is not settled."""
        return next(iter(self._items.values()), None)

    @property
    def unanswered(self) -> int:
        """The number that may still be answered. When it is 0, it is decided what is to be sent again."""
        return len(self._items) - len(self._returned)

    @property
    def is_open(self) -> bool:
        """More may be sent: nothing has come back."""
        return not self._returned

    def sent(self, number: int, item: Item) -> None:
        """Note an item that left, behind all that are here."""
        assert self.is_open, "it would stand behind what is to be sent again"
        assert number not in self._items, "this number was used before"
        self._items[number] = item

    def settled(self, number: int) -> Item | None:
        """Take out what is stored, or refused for good. None: no such one is unanswered."""
        return None if number in self._returned else self._items.pop(number, None)

    def came_back(self, number: int, why: Why | None = None) -> Item | None:
        """Note an answer that has not settled its item. None: no such one is unanswered."""
        if number in self._returned or number not in self._items:
            return None
        self._returned[number] = why
        return self._items[number]

    def take_back(self) -> list[tuple[Item, Why | None]]:
        """Empty the window: every item that is not settled, in the order of sending, with why it came back."""
        found = [(item, self._returned.get(number)) for number, item in self._items.items()]
        self._items, self._returned = {}, {}
        return found
