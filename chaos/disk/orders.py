"""Orders for a faulty disk while its process runs, in the file that orders.c reads."""

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
    """One order; orders.c explains the fields."""

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
    """The orders for a disk. An order is valid until it is withdrawn; each process counts its calls from zero."""

    def __init__(self, side: Path) -> None:
        self._path, self._struck = side / "orders", side / "struck"
        self._numbers = itertools.count(1)
        self._orders: dict[int, Order] = {}

    def fail(
        self, call: Call, pattern: str, error: int = errno.EIO, *, first: int = 1, every: int = 1, most: int = 1
    ) -> int:
        """Let the `first`-th matching call fail, then each `every`-th one after it, at most `most` times in all.

        A sync that fails so has lost the bytes that it was to write."""
        return self._give(call, pattern, "error", error, first, every, most)

    def shorten(self, pattern: str, at_most: int, *, first: int = 1, every: int = 1, most: int = 1) -> int:
        """Let a write take only `at_most` bytes and return that count."""
        return self._give("write", pattern, "short", at_most, first, every, most)

    def delay(
        self, call: Call, pattern: str, seconds: float, *, first: int = 1, every: int = 1, most: int = FOR_EVER
    ) -> int:
        return self._give(call, pattern, "delay", int(seconds * 1e6), first, every, most)

    def kill_at(self, call: Call, pattern: str, first: int) -> int:
        """Kill the process at the begin of that call."""
        return self._give(call, pattern, "kill", 0, first, 1, 1)

    def leave_room(self, pattern: str, count: int) -> int:
        """Let files grow by `count` bytes in all from now on; then there is no space left."""
        return self._give("write", pattern, "room", count, 1, 1, FOR_EVER)

    def withdraw(self, *numbers: int) -> None:
        """Withdraw these orders, or all without numbers."""
        for number in numbers or tuple(self._orders):
            del self._orders[number]
        self._write()

    def struck(self, number: int) -> list[tuple[str, str]]:
        """Return call and path for each time that this order has struck."""
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
