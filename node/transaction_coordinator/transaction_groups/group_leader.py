"""Transaction groups at the leader of a coordinator: its answers about them, and its own actions.

The rules: every answer was applied before. A commit is answered when every marker is written, or after a while as
decided, and the client asks again; groups and members expire by a command that the leader proposes.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from cluster.crash_points import crash_point
from node.transaction_coordinator.completion_waiters import CompletionWaiters
from node.transaction_coordinator.coordinator_queries import GroupQuestion
from node.transaction_coordinator.state_machine import CoordinatorMachine
from node.transaction_coordinator.transaction_groups.group_commands import (
    AbortGroup,
    CommitGroup,
    ExpireGroup,
    ExpireMember,
    ForgetWriter,
    GroupDecided,
    JoinGroup,
    OpenGroup,
    PrepareMember,
    member_name,
)
from node.transaction_coordinator.transaction_groups.group_queries import (
    LIST_LIMIT,
    ListWriters,
    MemberRow,
    Renewed,
    RenewLeases,
    WriterList,
    WriterRow,
)
from node.transaction_coordinator.transaction_groups.group_state import GroupRecord, WriterRecord
from node.transaction_coordinator.transaction_groups.group_transitions import MemberFate
from node.transaction_coordinator.transaction_groups.member_leases import Leases
from node.transaction_coordinator.transaction_groups.refusals import how_it_ended

log = logging.getLogger(__name__)

CLOSE_WAIT_S = 2.0
"""Time that a commit of a group waits for every marker; after it the answer is that the decision stands."""

_STEPS = {
    OpenGroup: "open-group",
    JoinGroup: "join-group",
    PrepareMember: "prepare-member",
    CommitGroup: "commit-group",
    AbortGroup: "abort-group",
    ForgetWriter: "forget-writer",
}
"""Steps of the questions, as names of crash points."""


class CoordinatorLeader(Protocol):
    """The coordinator's replica on this node, while it leads."""

    @property
    def what(self) -> str: ...
    @property
    def is_leader(self) -> bool: ...
    async def propose(self, command: Any, step: str) -> Any: ...
    def tell(self, command: Any, done: Callable[[object], None] | None = None) -> bool: ...


class TransactionGroupLeader:
    def __init__(
        self,
        leader: CoordinatorLeader,
        machine: CoordinatorMachine,
        now_ms: Callable[[], int],
        confirm: Callable[[], Awaitable[Any]],
    ) -> None:
        """`confirm`: confirms that this node still leads; returns the failure, or None."""
        self._leader = leader
        self._machine = machine
        self._now_ms = now_ms
        self._confirm = confirm
        self._leases = Leases()
        self._closed: CompletionWaiters[tuple[str, int]] = CompletionWaiters()
        self._expiring: set[str] = set()  # writers and members whose end is proposed

    # ------------------------------------------------------------ questions

    async def answer(self, question: GroupQuestion) -> Any:
        match question:
            case RenewLeases(members, silent):
                return self._renew(members, silent)
            case ListWriters():
                return await self._confirm() or self._list(question)
            case CommitGroup():
                return await self._commit(question)
        return await self._leader.propose(question, _STEPS[type(question)])

    async def _commit(self, question: CommitGroup) -> Any:
        answer = await self._leader.propose(question, _STEPS[CommitGroup])
        if not isinstance(answer, GroupDecided) or answer.complete:
            return answer
        if not self._is_closed(question.writer, question.batch) and self._leader.is_leader:
            await self._closed.wait((question.writer, question.batch), CLOSE_WAIT_S)
        return GroupDecided(True, self._is_closed(question.writer, question.batch))

    def _is_closed(self, writer: str, batch: int) -> bool:
        one = self._machine.writers.get(writer)
        return one is not None and one.closed >= batch

    def _renew(self, members: list[str], silent: list[str]) -> Renewed:
        """Renew the leases of members that live by one here. A deposed leader that does not know it renews nothing by
        that."""
        leased = {one.id for one in self._machine.writers.leased()}
        self._leases.renew(leased.intersection(members))
        return Renewed([one for one in [*members, *silent] if not self._lives(one)])

    def _lives(self, member: str) -> bool:
        found = self._machine.writers.member(member)
        return found is not None and found.fate in (MemberFate.JOINED, MemberFate.PREPARED)

    # ------------------------------------------------------------ what the leader does by itself

    def heed(self) -> None:
        """Tell waiting clients of groups that were closed. Called inside a turn, after an entry was applied."""
        for writer, batch in self._closed.awaited():
            if self._is_closed(writer, batch):
                self._closed.tell((writer, batch))

    def tick(self, now_s: float, now_ms: int) -> None:
        """End groups and members whose time is over, if this node leads."""
        writers = self._machine.writers
        for writer, group in writers.overdue(self._machine.lived_ms(now_ms)):
            command = ExpireGroup(writer.name, group.batch, now_ms)
            self._expire(command, writer.name, "group", f"the time of batch {group.batch} of {writer.name!r} is over")
        for member in self._leases.over(writers.leased(), now_s):
            text = f"the client of member {member.what} was silent for {member.lease_ms} ms"
            self._expire(ExpireMember(member.id, now_ms), member_name(member.id), "lease", text)

    def _expire(self, command: ExpireGroup | ExpireMember, key: str, step: str, text: str) -> None:
        if key in self._expiring:
            return
        crash_point(f"coordinator-before-expire-{step}")
        log.info("%s: %s", self._leader.what, text)
        self._expiring.add(key)
        if not self._leader.tell(command, lambda _: self._expiring.discard(key)):
            self._expiring.discard(key)

    def not_leading(self) -> None:
        self._leases.clear()
        self._expiring.clear()
        self._closed.give_up()

    # ------------------------------------------------------------ what is shown

    def groups(self) -> tuple[int, int]:
        """Number of open groups, and the age of their oldest member in milliseconds."""
        open_groups = self._machine.writers.open_groups()
        lived_ms = self._machine.lived_ms(self._now_ms())
        return len(open_groups), max((_oldest_ms(group, lived_ms) for _, group in open_groups), default=0)

    def _list(self, question: ListWriters) -> WriterList:
        writers = self._machine.writers
        limit = max(1, min(question.limit, LIST_LIMIT))
        if question.name:
            one = writers.get(question.name)
            return WriterList([] if one is None else [self._row(one, question.after_member, limit)])
        found = [one for one in writers.rows() if one.name > question.after]
        return WriterList([self._row(one, 0, 0) for one in found[:limit]])

    def _row(self, one: WriterRecord, after_member: int, limit: int) -> WriterRow:
        lived_ms = self._machine.lived_ms(self._now_ms())
        ended = "" if one.aborted is None else f"batch {one.aborted.batch} was aborted{how_it_ended(one.aborted.how)}"
        row = WriterRow(one.name, one.run, one.closed, one.query, ended)
        group = one.group
        if group is None:
            return row
        some = group.members[after_member : after_member + limit]
        return WriterRow(
            one.name, one.run, one.closed, one.query, ended, group.batch, group.state.name.lower(),
            lived_ms - group.opened_ms, group.timeout_ms, len(group.members),
            sum(member.fate is MemberFate.PREPARED for member in group.members), _oldest_ms(group, lived_ms),
            [
                MemberRow(
                    member.id, member.part, member.attempt, member.fate.name.lower(),
                    member.how if member.fate is MemberFate.ABORTED else "",
                    lived_ms - member.joined_ms, member.lease_ms, self._partitions(member.id),
                )
                for member in some
            ],
        )  # fmt: skip

    def _partitions(self, member: str) -> list[int]:
        one = self._machine.get(member_name(member))
        return [] if one is None else list(one.groups)


def _oldest_ms(group: GroupRecord, lived_ms: int) -> int:
    """Age of the oldest member that committed readers may wait for, in milliseconds; 0: there is none."""
    open_ms = (
        lived_ms - one.joined_ms for one in group.members if one.fate in (MemberFate.JOINED, MemberFate.PREPARED)
    )
    return max(open_ms, default=0)
