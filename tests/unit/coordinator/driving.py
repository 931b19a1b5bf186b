"""A coordinator's machine driven by hand."""

from __future__ import annotations

from node.coordinator.commands import (
    AddPartitions,
    Command,
    Complete,
    Declined,
    EndTransaction,
    Expire,
    ForgetIdle,
    Register,
    Registered,
    Result,
    encode,
)
from node.coordinator.machine import CoordinatorMachine

GROUP = 3
Pair = tuple[int, int]


class Coordinator:
    def __init__(self, *, epochs: int = 32767) -> None:
        self.epochs = epochs
        self.machine = CoordinatorMachine(GROUP, epochs=epochs)
        self.index = 0
        self.now_ms = 1_000_000

    def apply(self, command: Command) -> Result:
        self.index += 1
        return self.machine.apply(self.index, encode(command))

    def register(self, name: str = "t", holder: str = "h", timeout_ms: int = 60_000) -> Result:
        return self.apply(Register(name, holder, timeout_ms, self.now_ms))

    def registered(self, name: str = "t", holder: str = "h", timeout_ms: int = 60_000) -> Pair:
        result = self.register(name, holder, timeout_ms)
        assert isinstance(result, Registered), result
        return result.producer_id, result.epoch

    def add(self, pair: Pair, *groups: int, name: str = "t") -> Result:
        return self.apply(AddPartitions(name, *pair, list(groups), self.now_ms))

    def end(self, pair: Pair, *, commit: bool, name: str = "t") -> Result:
        return self.apply(EndTransaction(name, *pair, commit, self.now_ms))

    def complete(self, pair: Pair, name: str = "t") -> Result:
        return self.apply(Complete(name, *pair, self.now_ms))

    def expire(self, pair: Pair, name: str = "t") -> Result:
        return self.apply(Expire(name, *pair, self.now_ms))

    def forget_idle(self) -> Result:
        return self.apply(ForgetIdle(self.now_ms))

    def live(self, ms: int) -> None:
        """So much time passes, in entries that come often enough."""
        while ms > 0:
            step = min(ms, 60_000)
            ms -= step
            self.now_ms += step
            self.apply(Expire("nobody's", 0, 0, self.now_ms))

    def restart(self) -> None:
        data = self.machine.checkpoint()
        self.machine = CoordinatorMachine(GROUP, epochs=self.epochs)
        self.machine.restore(data)
        assert self.machine.checkpoint() == data


def code_of(result: object) -> str:
    assert isinstance(result, Declined), result
    return result.code
