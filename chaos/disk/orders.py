"""What the disk is told to do, while its process runs: the file that orders.c reads."""

from __future__ import annotations

import errno
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Call = Literal["read", "write", "sync", "sync-directory", "open", "rename", "unlink", "truncate"]

FOR_EVER = 0


@dataclass(frozen=True)
class Order:
    """See orders.c for what the words mean."""

    number: int
    call: Call
    pattern: str
    action: str
    value: int
    first: int
    every: int
    most: int

    def line(self) -> str:
        fields = (self.number, self.call, self.pattern, self.action, self.value, self.first, self.every, self.most)
        return "\t".join(map(str, fields)) + "\n"


class Orders:
    """What is counted each process counts anew; an order stands until it is withdrawn."""

    def __init__(self, side: Path) -> None:
        self._path, self._struck = side / "orders", side / "struck"
        self._numbers = itertools.count(1)
        self._orders: dict[int, Order] = {}

    def fail(
        self, call: Call, pattern: str, error: int = errno.EIO, *, first: int = 1, every: int = 1, most: int = 1
    ) -> int:
        """Of the calls that match from now on, the first-th ends with this error, and each every-th after it, `most`
        times altogether. A sync that fails so has lost what it was to write."""
        return self._give(call, pattern, "error", error, first, every, most)

    def shorten(self, pattern: str, at_most: int, *, first: int = 1, every: int = 1, most: int = 1) -> int:
        """A write writes so many bytes, and says so."""
        return self._give("write", pattern, "short", at_most, first, every, most)

    def delay(
        self, call: Call, pattern: str, seconds: float, *, first: int = 1, every: int = 1, most: int = FOR_EVER
    ) -> int:
        return self._give(call, pattern, "delay", int(seconds * 1e6), first, every, most)

    def kill_at(self, call: Call, pattern: str, first: int) -> int:
        """The process dies at the begin of that call."""
        return self._give(call, pattern, "kill", 0, first, 1, 1)

    def leave_room(self, pattern: str, count: int) -> int:
        """From now on files may grow by so many bytes, all together; then there is no space left."""
        return self._give("write", pattern, "room", count, 1, 1, FOR_EVER)

    def withdraw(self, *numbers: int) -> None:
        """Without numbers: all."""
        for number in numbers or tuple(self._orders):
            del self._orders[number]
        self._write()

    def struck(self, number: int) -> list[tuple[str, str]]:
        """Call and path, each time that this order has struck."""
        lines = self._struck.read_text().splitlines() if self._struck.exists() else []
        found = [line.split("\t") for line in lines]
        return [(call, path) for told, call, path in found if int(told) == number]

    def _give(self, call: Call, pattern: str, action: str, value: int, first: int, every: int, most: int) -> int:
        assert "\t" not in pattern
        number = next(self._numbers)
        self._orders[number] = Order(number, call, pattern, action, value, first, every, most)
        self._write()
        return number

    def _write(self) -> None:
        fresh = self._path.with_suffix(".new")
        fresh.write_text("".join(order.line() for order in self._orders.values()))
        fresh.replace(self._path)
