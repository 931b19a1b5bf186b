"""A coordinator's machine driven by hand."""

from __future__ import annotations

from node.transaction_coordinator.coordinator_commands import (
    Added,
    AddPartitions,
    Command,
    Complete,
    Declined,
    EndTransaction,
    Expire,
    FenceTransaction,
    ForgetIdle,
    NodeStart,
    Register,
    Registered,
    Result,
    encode,
)
from node.transaction_coordinator.state_machine import CoordinatorMachine
from node.transaction_coordinator.transaction_groups.group_commands import (
    AbortGroup,
    CommitGroup,
    ExpireGroup,
    ExpireMember,
    ForgetWriter,
    GroupDecided,
    Joined,
    JoinGroup,
    OpenGroup,
    PrepareMember,
    WriterOpened,
    member_name,
)
from node.transaction_coordinator.transaction_groups.group_state import GroupRecord
from node.transaction_coordinator.transitions import TransactionState

GROUP = 3
Pair = tuple[int, int]


class DrivenCoordinator:
    def __init__(self, *, epochs: int = 32767) -> None:
        self.epochs = epochs
        self.machine = CoordinatorMachine(GROUP, epochs=epochs)
        self.index = 0
        self.now_ms = 1_000_000

    def apply(self, command: Command) -> Result:
        self.index += 1
        return self.machine.apply(self.index, encode(command))

    def register(
        self,
        name: str = "t",
        holder: str = "h",
        timeout_ms: int = 60_000,
        succeeds: str = "",
        *,
        lost: Pair | None = None,
    ) -> Result:
        return self.apply(Register(name, holder, timeout_ms, self.now_ms, lost, succeeds))

    def registered(
        self, name: str = "t", holder: str = "h", timeout_ms: int = 60_000, *, lost: Pair | None = None
    ) -> Pair:
        result = self.register(name, holder, timeout_ms, lost=lost)
        assert isinstance(result, Registered), result
        return result.producer_id, result.epoch

    def add(self, pair: Pair, *groups: int, name: str = "t") -> Result:
        return self.apply(AddPartitions(name, *pair, list(groups), self.now_ms))

    def end(self, pair: Pair, *, commit: bool, name: str = "t") -> Result:
        return self.apply(EndTransaction(name, *pair, commit, self.now_ms))

    def complete(self, pair: Pair, name: str = "t") -> Result:
        return self.apply(Complete(name, *pair, self.now_ms))

    def expire(self, pair: Pair, name: str = "t", gone: NodeStart | None = None) -> Result:
        return self.apply(Expire(name, *pair, self.now_ms, gone))

    def fence(self, pair: Pair, name: str = "t", gone: NodeStart | None = None) -> Result:
        return self.apply(FenceTransaction(name, *pair, self.now_ms, gone))

    def forget_idle(self) -> Result:
        return self.apply(ForgetIdle(self.now_ms))

    # ------------------------------------------------------------ groups

    def open_group(
        self, batch: int = 0, run: str = "r", query: str = "", writer: str = "w", *, once: bool = False
    ) -> Result:
        return self.apply(OpenGroup(writer, batch, run, query, 60_000, self.now_ms, once))

    def forget_writer(self, writer: str = "w") -> Result:
        return self.apply(ForgetWriter(writer, self.now_ms))

    def join(self, part: str = "0", holder: str = "", batch: int = 0, run: str = "r", attempt: str = "0") -> Result:
        holder = holder or f"{part}/{attempt}"
        return self.apply(JoinGroup("w", batch, run, part, attempt, holder, 10_000, self.now_ms))

    def joined(self, part: str = "0", *groups: int, batch: int = 0, run: str = "r", attempt: str = "0") -> Joined:
        """A member that writes to these partitions."""
        result = self.join(part, batch=batch, run=run, attempt=attempt)
        assert isinstance(result, Joined), result
        if groups:
            added = self.write(result, *groups)
            assert isinstance(added, Added), added
        return result

    def write(self, member: Joined, *groups: int) -> Result:
        return self.add((member.producer_id, member.epoch), *groups, name=member_name(member.member))

    def prepare(self, *members: Joined) -> Result:
        """The last one's result."""
        return [self.apply(PrepareMember(one.member, self.now_ms)) for one in members][-1]

    def commit_group(self, *winners: Joined, batch: int = 0, run: str = "r") -> Result:
        return self.apply(CommitGroup("w", batch, run, [one.member for one in winners], self.now_ms))

    def abort_group(self, batch: int = 0, run: str = "r", *, by_operator: bool = False) -> Result:
        return self.apply(AbortGroup("w", batch, run, by_operator, self.now_ms))

    def expire_group(self, batch: int = 0) -> Result:
        return self.apply(ExpireGroup("w", batch, self.now_ms))

    def expire_member(self, member: Joined) -> Result:
        return self.apply(ExpireMember(member.member, self.now_ms))

    def mark_all(self) -> None:
        """Every partition of what is decided has its marker."""
        for one in self.machine.decided():
            self.complete(one.pair, one.name)

    @property
    def group(self) -> GroupRecord | None:
        writer = self.machine.writers.get("w")
        return None if writer is None else writer.group

    @property
    def closed(self) -> int | None:
        writer = self.machine.writers.get("w")
        return None if writer is None else writer.closed

    # ------------------------------------------------------------ time

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


# ---------------------------------------------------------------- groups

DONE = GroupDecided(True, True)


def opened(result: Result) -> WriterOpened:
    assert isinstance(result, WriterOpened), result
    return result


def state_of(coordinator: DrivenCoordinator, member: Joined) -> TransactionState | None:
    one = coordinator.machine.get(member_name(member.member))
    return None if one is None else one.state


def outcome(coordinator: DrivenCoordinator, member: Joined) -> bool | None:
    return coordinator.machine.outcome(member.producer_id, member.epoch)


def closed_at(coordinator: DrivenCoordinator, batch: int, run: str = "r", query: str = "") -> None:
    opened(coordinator.open_group(batch, run, query))
    assert coordinator.commit_group(batch=batch, run=run) == DONE
