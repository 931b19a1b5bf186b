"""The replicated state of transaction groups: each writer's last committed batch, and the one that it has open.

The problem: a batch is written by many task attempts on many machines; any of them may run twice, die without a word or
come back as a zombie, and the client that commits the batch may do so again, since it died before it noted that it had.
The rules never broken:
 - of each (writer, batch) there is one decision at most: one applied command names the winners, and with it they
   commit, every other member aborts, and no member joins any more;
 - a batch at or below the last one that was committed is never written again: a run that opens it hears "already done";
 - a run that was succeeded stays so; what it opens, joins, commits or aborts is refused;
 - everything by which a repeated request is recognised is part of the state.

| asks              | nothing open; c was closed last           | open (b, r)                      | deciding b      |
| ----------------- | ----------------------------------------- | -------------------------------- | --------------- |
| open <= c         | "already done"                            | the same; a new run aborts b     | `busy`          |
| open > c          | opened                                    | r again: the same; r, a later    | `busy`          |
|                   |                                           | batch or a new run: b aborts     |                 |
| else, by an old run | `fenced`                                | `fenced`                         | `fenced`        |
| join b by r       | `fenced`                                  | a member                         | `fenced`        |
| prepare           | `fenced`                                  | prepared                         | as decided      |
| commit <= c       | done, whoever asks                        | done                             | done            |
| commit b by r     | `ended`, and why                          | decided, if all are prepared     | decided already |
| abort b by r      | done, if b > c                            | it aborts                        | `ended`         |
| time              |                                           | it aborts                        |                 |
| forget            | nothing of the writer is known any more   | `in-use`                         | `in-use`        |

A member is a transaction of its own, made here and kept by the coordinator's machine until every partition of it has
its marker; so partitions see no difference. Whether its lease is over is measured by the leader (`member_leases.py`):
no entry for each renewal.

A run is a name that is drawn at each start of a writer, so which of two is newer cannot be told from them: a name that
is new here is the newest, and one that was succeeded is remembered, the last `MAX_RUNS` of them.

Rejected: members named by the part of the batch that they write (two attempts of one part may both be alive, and only
the client that commits knows which was chosen); a group as one transaction with many writers (partitions number the
events of a transaction, so there would have to be one line of numbers for all of them); waiting with the next batch for
the markers of members that were aborted before (nothing of the next batch depends on them).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from node.transaction_coordinator.coordinator_commands import Code, Declined, How, Result
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
    Prepared,
    PrepareMember,
    WriterForgotten,
    WriterOpened,
    member_id,
)
from node.transaction_coordinator.transaction_groups.group_state import (
    NONE_CLOSED,
    AbortedGroup,
    GroupRecord,
    MemberRecord,
    WriterRecord,
)
from node.transaction_coordinator.transaction_groups.group_transitions import (
    GroupState,
    MemberFate,
    check_fate,
    check_group,
)
from node.transaction_coordinator.transaction_groups.refusals import (
    FATES,
    WHY,
    aborted,
    another_query,
    improper,
    improper_member,
    succeeded,
    unfit,
)

MAX_WRITERS = 10_000
"""Writers that one coordinator knows, some hundred bytes each in every checkpoint, and 40 more for each earlier run."""

MAX_MEMBERS = 4096
"""Members of one group: task attempts, failed ones included. The winners' names fit one request of a client."""

MAX_RUNS = 32
"""Earlier runs of a writer that are remembered: an older zombie would be taken for a new run. It could abort what is
open, and could still write no batch twice."""

FORGET_WRITER_MS = 90 * 24 * 3600 * 1000
"""Time after which a writer that opened nothing, in lived time, is forgotten, with its last batch."""

FORGET_ONCE_MS = 3600 * 1000
"""Time after which a writer whose name was drawn for one batch is forgotten. No query plans that batch again. All that
may come is the repetition of a commit whose answer got lost, which a client gives up after minutes, and a slow task
attempt: it would open the batch again, and no client would commit it."""


class Transactions(Protocol):
    """The coordinator's machine: the transactions of the members."""

    @property
    def now_ms(self) -> int:
        """The present, in lived time."""
        ...

    def make_member(self, writer: str, holder: str, timeout_ms: int) -> tuple[int, int] | None:
        """Make a member's transaction. Returns its producer id and epoch; None: there is no room for more
        transactions."""
        ...

    def end_member(self, member: str, *, commit: bool, how: How) -> bool:
        """Decide the member's transaction, if it is not decided. Returns whether markers are under way."""
        ...


class Writers:
    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._writers: dict[str, WriterRecord] = {}
        self._members: dict[
            str, tuple[WriterRecord, GroupRecord, MemberRecord]
        ] = {}  # of the groups that are open or being decided
        self.handlers: dict[type[Any], Callable[[Any], Result]] = {
            OpenGroup: self._open,
            JoinGroup: self._join,
            PrepareMember: self._prepare,
            CommitGroup: self._commit,
            AbortGroup: self._abort,
            ExpireGroup: self._expire_group,
            ExpireMember: self._expire_member,
            ForgetWriter: self._forget,
        }

    # ------------------------------------------------------------ what there is

    def get(self, name: str) -> WriterRecord | None:
        return self._writers.get(name)

    def __iter__(self) -> Iterator[WriterRecord]:
        return iter(self._writers.values())

    def __len__(self) -> int:
        return len(self._writers)

    def open_groups(self) -> list[tuple[WriterRecord, GroupRecord]]:
        return [(one, one.group) for one in self._writers.values() if one.group is not None]

    def leased(self) -> list[MemberRecord]:
        """Members that live by their leases."""
        return [member for _, _, member in self._members.values() if member.fate is MemberFate.JOINED]

    def overdue(self, lived_ms: int) -> list[tuple[WriterRecord, GroupRecord]]:
        return [
            (writer, group)
            for writer, group in self.open_groups()
            if group.state is GroupState.OPEN and group.deadline_ms <= lived_ms
        ]

    def member(self, member: str) -> MemberRecord | None:
        found = self._members.get(member)
        return None if found is None else found[2]

    # ------------------------------------------------------------ a batch

    def _open(self, command: OpenGroup) -> Result:
        problem = improper(command)
        if problem:
            return Declined("invalid", problem)
        writer = self._writers.get(command.writer)
        if writer is None:
            return self._open_first(command)
        if command.run in writer.earlier_runs:
            return succeeded(writer, command.run)
        group, is_done = writer.group, command.batch <= writer.closed
        if group is not None and group.state is GroupState.DECIDING:
            return Declined("busy", f"batch {group.batch} of {writer.name!r} is decided, and its markers are under way")
        if is_done and command.query != writer.query:
            return Declined("another-query", another_query(writer, command))
        if group is not None and group.run == command.run:
            if group.batch == command.batch:
                return WriterOpened(False, writer.closed, True, group.timeout_ms)
            if is_done:
                return WriterOpened(True, writer.closed, True, group.timeout_ms)
            if command.batch < group.batch:
                detail = f"batch {group.batch} of {writer.name!r} is open, by the same run: {command.batch} is over"
                return Declined("fenced", detail)
        if group is not None:
            self._abort_all(writer, group, "fenced")
        self._begin_run(writer, command.run)
        if is_done:
            return WriterOpened(True, writer.closed, True, command.timeout_ms)
        return self._open_next(writer, command, known=True)

    def _open_first(self, command: OpenGroup) -> Result:
        if len(self._writers) >= MAX_WRITERS:
            return Declined(
                "too-many", f"this coordinator knows {MAX_WRITERS} writers; use fewer, and keep their names"
            )
        writer = self._writers[command.writer] = WriterRecord(command.writer, command.run, once=command.once)
        return self._open_next(writer, command, known=False)

    def _open_next(self, writer: WriterRecord, command: OpenGroup, *, known: bool) -> WriterOpened:
        state = check_group(GroupState.CLOSED, GroupState.OPEN)
        writer.group = GroupRecord(
            command.batch, command.run, command.query, command.timeout_ms, self._transactions.now_ms, state
        )
        writer.touched_ms = self._transactions.now_ms
        return WriterOpened(False, writer.closed, known, command.timeout_ms)

    def _begin_run(self, writer: WriterRecord, run: str) -> None:
        if writer.run != run:
            writer.earlier_runs = [*writer.earlier_runs, writer.run][-MAX_RUNS:]
            writer.run = run
        writer.touched_ms = self._transactions.now_ms

    def _group_of(self, command: JoinGroup | CommitGroup | AbortGroup) -> tuple[WriterRecord, GroupRecord] | Declined:
        """The open group of the command, in the name of the run that has it."""
        writer = self._writers.get(command.writer)
        if writer is None:
            return Declined("unknown-id", f"nothing of a writer {command.writer!r} is known (any more): open a batch")
        operator = isinstance(command, AbortGroup) and command.by_operator
        if command.run in writer.earlier_runs and not operator:
            return succeeded(writer, command.run)
        group = writer.group
        if group is None or (group.batch != command.batch and not (operator and command.batch == NONE_CLOSED)):
            return self._not_open(writer, command.batch)
        if group.run != command.run and not operator:
            return Declined("fenced", f"batch {group.batch} of {writer.name!r} is open by run {group.run!r}")
        return writer, group

    def _not_open(self, writer: WriterRecord, batch: int) -> Declined:
        if batch == NONE_CLOSED:
            return Declined("ended", f"{writer.name!r} has no batch open")
        if batch <= writer.closed:
            detail = f"batch {batch} of {writer.name!r} is closed: batch {writer.closed} was committed"
            return Declined("fenced", detail)
        aborted = writer.aborted
        if aborted is not None and aborted.batch == batch:
            code: Code = "expired" if aborted.how == "timeout" else "ended"
            return Declined(code, f"batch {batch} of {writer.name!r} was aborted{WHY.get(aborted.how, '')}")
        other = f"; batch {writer.group.batch} is" if writer.group is not None else ""
        return Declined("ended", f"batch {batch} of {writer.name!r} is not open{other}")

    def _commit(self, command: CommitGroup) -> Result:
        writer = self._writers.get(command.writer)
        if writer is not None and command.batch <= writer.closed:
            return GroupDecided(True, True)
        if writer is not None and _is_deciding(writer.group, command.batch):
            return GroupDecided(True, False)
        found = self._group_of(command)
        if isinstance(found, Declined):
            return found
        writer, group = found
        problem = unfit(group, command.winners)
        if problem is not None:
            return problem
        winners = set(command.winners)
        group.state = check_group(group.state, GroupState.DECIDING)
        for member in group.members:
            wins = member.id in winners
            group.pending += self._end(member, commit=wins, how="client" if wins else "group")
        writer.touched_ms = self._transactions.now_ms
        if not group.pending:
            self._close(writer, group)
        return GroupDecided(True, not group.pending)

    def _abort(self, command: AbortGroup) -> Result:
        writer = self._writers.get(command.writer)
        if writer is not None and writer.group is not None and writer.group.state is GroupState.DECIDING:
            batch = writer.group.batch
            if command.batch in (batch, NONE_CLOSED):
                return Declined("ended", f"batch {batch} of {writer.name!r} is decided: it commits")
        found = self._group_of(command)
        if isinstance(found, Declined):
            again = writer is not None and found.code in ("ended", "expired") and not command.by_operator
            return GroupDecided(False, True) if again else found
        self._abort_all(*found, "operator" if command.by_operator else "client")
        return GroupDecided(False, True)

    def _expire_group(self, command: ExpireGroup) -> Result:
        writer = self._writers.get(command.writer)
        group = None if writer is None else writer.group
        now_ms = self._transactions.now_ms
        if writer is None or group is None or group.batch != command.batch or group.state is not GroupState.OPEN:
            return Declined("ended", f"batch {command.batch} of {command.writer!r} is not open")
        if group.deadline_ms > now_ms:
            return Declined("ended", f"batch {command.batch} of {command.writer!r} is not overdue")
        self._abort_all(writer, group, "timeout")
        return GroupDecided(False, True)

    def _abort_all(self, writer: WriterRecord, group: GroupRecord, how: How) -> None:
        """Abort all members; the writer stays at the batch that it closed last."""
        for member in group.members:
            self._end(member, commit=False, how=how)
        group.state = check_group(group.state, GroupState.CLOSED)
        writer.aborted = AbortedGroup(group.batch, group.run, how)
        self._remove(writer, group)

    def _close(self, writer: WriterRecord, group: GroupRecord) -> None:
        group.state = check_group(group.state, GroupState.CLOSED)
        writer.closed, writer.query, writer.aborted = group.batch, group.query, None
        self._remove(writer, group)

    def _remove(self, writer: WriterRecord, group: GroupRecord) -> None:
        for member in group.members:
            self._members.pop(member.id, None)
        writer.group, writer.touched_ms = None, self._transactions.now_ms

    # ------------------------------------------------------------ a member

    def _join(self, command: JoinGroup) -> Result:
        problem = improper_member(command)
        if problem:
            return Declined("invalid", problem)
        found = self._group_of(command)
        if isinstance(found, Declined):
            return found if found.code == "unknown-id" else Declined("fenced", found.detail)
        writer, group = found
        if group.state is not GroupState.OPEN:
            return Declined("fenced", f"batch {group.batch} of {writer.name!r} is decided: nobody joins it any more")
        known = next((one for one in group.members if one.holder == command.holder), None)
        member = known or self._admit(writer, group, command)
        if isinstance(member, Declined):
            return member
        if member.fate is not MemberFate.JOINED:
            return Declined("fenced", f"member {member.what} is {FATES[member.fate]}{WHY.get(member.how, '')}")
        return Joined(member.id, member.producer_id, member.epoch, member.lease_ms, group.timeout_ms)

    def _admit(self, writer: WriterRecord, group: GroupRecord, command: JoinGroup) -> MemberRecord | Declined:
        if len(group.members) >= MAX_MEMBERS:
            return Declined("too-many", f"a group has {MAX_MEMBERS} members at most: write the batch in fewer parts")
        pair = self._transactions.make_member(writer.name, command.holder, group.timeout_ms)
        if pair is None:
            return Declined("too-many", "this coordinator has no room for more transactions now")
        now_ms = self._transactions.now_ms
        member = MemberRecord(
            member_id(*pair), *pair, command.part, command.attempt, command.holder, command.lease_ms, now_ms
        )
        group.members.append(member)
        self._members[member.id] = (writer, group, member)
        return member

    def _prepare(self, command: PrepareMember) -> Result:
        member = self.member(command.member)
        if member is None:
            # Who won, and how, is not remembered: its client has not heard that it was prepared, or is a zombie.
            detail = f"the group of member {command.member} is closed; whether it won is not known here"
            return Declined("forgotten", detail)
        if member.fate is MemberFate.ABORTED:
            return aborted(member)
        if member.fate is MemberFate.JOINED:
            member.fate = check_fate(member.fate, MemberFate.PREPARED)
        return Prepared(member.id)

    def may_write(self, name: str) -> Declined | None:
        """The refusal of more partitions for the member's transaction; None: it may write."""
        member = self.member(name)
        if member is None:
            return Declined("fenced", f"the group of member {name} is closed")
        if member.fate is MemberFate.ABORTED:
            return aborted(member)
        if member.fate is not MemberFate.JOINED:
            return Declined("ended", f"member {member.what} is {FATES[member.fate]}: it writes no more")
        return None

    def abort_member(self, name: str, how: How) -> Declined | None:
        """Abort the member, as its client or an operator asks. None: it is aborted, now or before."""
        member = self.member(name)
        if member is None:
            return Declined("fenced", f"the group of member {name} is closed")
        if member.fate in (MemberFate.PREPARED, MemberFate.COMMITTED):
            return Declined("ended", f"member {member.what} is {FATES[member.fate]}: its group decides about it")
        self._end(member, commit=False, how=how)
        return None

    def _expire_member(self, command: ExpireMember) -> Result:
        member = self.member(command.member)
        if member is None or member.fate is not MemberFate.JOINED:
            return Declined("ended", f"member {command.member} has no lease any more")
        self._end(member, commit=False, how="lease")
        return GroupDecided(False, False)

    def _end(self, member: MemberRecord, *, commit: bool, how: How) -> bool:
        """End a member. Returns whether its markers are under way."""
        if member.fate is not MemberFate.ABORTED:
            member.fate = check_fate(member.fate, MemberFate.COMMITTED if commit else MemberFate.ABORTED)
            member.how = how
        return self._transactions.end_member(member.id, commit=commit, how=how)

    def completed(self, member: str) -> None:
        """Note that every partition of the member has its marker."""
        found = self._members.get(member)
        if found is None:
            return
        writer, group, _ = found
        if group.state is GroupState.DECIDING:
            group.pending -= 1
            if not group.pending:
                self._close(writer, group)

    # ------------------------------------------------------------ time, checkpoint

    def forget_idle(self) -> list[str]:
        before, before_once = self._transactions.now_ms - FORGET_WRITER_MS, self._transactions.now_ms - FORGET_ONCE_MS
        idle = [
            one.name
            for one in self._writers.values()
            if one.group is None and one.touched_ms < (before_once if one.once else before)
        ]
        for name in idle:
            del self._writers[name]
        return idle

    def _forget(self, command: ForgetWriter) -> Result:
        """Forget a writer. The operator answers for it: a batch that is replayed afterwards is written again."""
        writer = self._writers.get(command.writer)
        if writer is None:
            return Declined("unknown-id", f"nothing of a writer {command.writer!r} is known (any more)")
        if writer.group is not None:
            detail = f"{writer.name!r} has batch {writer.group.batch} open: abort it first, or wait until it is closed"
            return Declined("in-use", detail)
        del self._writers[writer.name]
        return WriterForgotten(writer.closed)

    def rows(self) -> list[WriterRecord]:
        return [self._writers[name] for name in sorted(self._writers)]

    def restore(self, rows: list[WriterRecord]) -> None:
        self._writers = {one.name: one for one in rows}
        self._members = {
            member.id: (writer, group, member) for writer, group in self.open_groups() for member in group.members
        }


def _is_deciding(group: GroupRecord | None, batch: int) -> bool:
    return group is not None and group.batch == batch and group.state is GroupState.DECIDING
