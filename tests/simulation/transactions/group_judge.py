"""What must hold of transaction groups, by what coordinators apply and drivers are told.

* Of each (writer, batch) there is one decision at most, and batches are decided in order: who opens one at or below the
  last hears "already done", and nobody else does.
* A run that was succeeded by another opens nothing.
* Winners were prepared, belong to the batch, and are of different parts; everybody else of the batch aborts.
* A member belongs to one group, is of a pair that nobody had, and does nothing more when its group is over.
* A driver that is told "done" finds a marker in every partition of each winner.

That nothing is visible before the decision, and all of it is afterwards, is seen by the judges of partitions: a marker
says "committed" only of what is decided so here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from node.transaction_coordinator.coordinator_commands import Added, AddPartitions, Decided, EndTransaction
from node.transaction_coordinator.transaction_groups.group_commands import (
    AbortGroup,
    CommitGroup,
    ExpireGroup,
    ExpireMember,
    GroupDecided,
    Joined,
    JoinGroup,
    OpenGroup,
    Prepared,
    PrepareMember,
    WriterOpened,
    coordinator_of,
)
from tests.simulation.checker import Violation

if TYPE_CHECKING:
    from tests.simulation.transactions.judge import Ledger, Pair


@dataclass
class JudgedBatch:
    batch: int
    run: str
    members: dict[str, Pair] = field(default_factory=dict)


class GroupLedger:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._open: dict[str, JudgedBatch] = {}  # by writer
        self._runs: dict[str, list[str]] = {}
        self._winners: dict[tuple[str, int], dict[str, Pair]] = {}
        self._last: dict[str, int] = {}
        self._part: dict[Pair, str] = {}
        self._known: dict[Pair, tuple[str, str]] = {}  # writer and member
        self._prepared: set[str] = set()

    def applied(self, command: Any, result: object) -> None:
        """By a coordinator, for the first time."""
        match command, result:
            case OpenGroup(), WriterOpened():
                self._opened(command, result)
            case JoinGroup(), Joined():
                self._joined(command, result)
            case PrepareMember(), Prepared():
                self._prepared.add(command.member)
            case CommitGroup(), GroupDecided():
                self._committed(command)
            case ((AbortGroup() | ExpireGroup()), GroupDecided(committed=False)):
                found = self._open.get(command.writer)
                if found is not None and found.batch == command.batch:
                    self._abort(command.writer)
            case ExpireMember(), GroupDecided():
                self._lose(command.member)
            case AddPartitions(), Added() if coordinator_of(command.transactional_id):
                self._writes((command.producer_id, command.epoch))
            case EndTransaction(), Decided() if coordinator_of(command.transactional_id):
                if result.committed:
                    raise Violation(f"member {command.transactional_id} has committed by itself")

    def _opened(self, command: OpenGroup, result: WriterOpened) -> None:
        last = self._last.get(command.writer, -1)
        if result.already_done != (command.batch <= last):
            raise Violation(f"{command} is told {result}; the last batch that was decided is {last}")
        runs = self._runs.setdefault(command.writer, [])
        if command.run in runs[:-1]:
            raise Violation(f"{command} is let in, and was succeeded by {runs[-1]}")
        if command.run not in runs:
            runs.append(command.run)
        found = self._open.get(command.writer)
        later = not result.already_done and found is not None and found.batch < command.batch
        if found is not None and (found.run != command.run or later):
            self._abort(command.writer)
        if not result.already_done:
            self._open.setdefault(command.writer, JudgedBatch(command.batch, command.run))

    def _joined(self, command: JoinGroup, result: Joined) -> None:
        pair = (result.producer_id, result.epoch)
        found = self._open.get(command.writer)
        if found is None or (found.batch, found.run) != (command.batch, command.run):
            raise Violation(f"{command} is let into a batch that is not open")
        if pair in self._known:
            if self._known[pair] != (command.writer, result.member) or result.member not in found.members:
                raise Violation(f"{pair} is given to {command}, and was another member's")
            return
        if pair in self._ledger.decisions:
            raise Violation(f"{pair} is decided, and is given to a member")
        self._known[pair] = (command.writer, result.member)
        self._part[pair] = command.part
        found.members[result.member] = pair

    def _writes(self, pair: Pair) -> None:
        writer, member = self._known[pair]
        found = self._open.get(writer)
        if found is None or member not in found.members or member in self._prepared:
            raise Violation(f"member {member} takes in a partition, and is over or prepared")

    def _committed(self, command: CommitGroup) -> None:
        key = (command.writer, command.batch)
        last = self._last.get(command.writer, -1)
        if key in self._winners or command.batch <= last:
            return  # decided before
        found = self._open.pop(command.writer, None)
        if found is None or (found.batch, found.run) != (command.batch, command.run):
            raise Violation(f"{command} decides a batch that is not open")
        strange = [one for one in command.winners if one not in found.members or one not in self._prepared]
        parts = [self._part[found.members[one]] for one in command.winners if one in found.members]
        if strange or len(set(parts)) < len(command.winners):
            raise Violation(f"{command}: {strange} are no members, or not prepared; parts {parts}")
        self._last[command.writer] = command.batch
        self._winners[key] = {one: found.members[one] for one in command.winners}
        for member, pair in found.members.items():
            if member in command.winners or pair not in self._ledger.decisions:
                self._ledger.decided(pair, committed=member in command.winners)

    def _abort(self, writer: str) -> None:
        found = self._open.pop(writer)
        for pair in found.members.values():
            self._ledger.decided(pair, committed=False)

    def _lose(self, member: str) -> None:
        for found in self._open.values():
            if member in found.members:
                self._ledger.decided(found.members[member], committed=False)

    # ---- drivers

    def told_done(self, writer: str, batch: int) -> None:
        """Complete, that is: whoever reads now finds it."""
        if batch > self._last.get(writer, -1):
            raise Violation(f"the driver of {writer} is told that batch {batch} is done")
        for member, pair in self._winners.get((writer, batch), {}).items():
            for group_id, records in self._ledger.sent.get(pair, {}).items():
                judge = self._ledger.partitions[group_id]
                if judge.ended.get(pair) is not True or judge.stored_by.get(pair, []) != records:
                    raise Violation(f"batch {batch} of {writer} is done, and group {group_id} lacks {member}")
