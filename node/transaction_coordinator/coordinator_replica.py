"""A transaction coordinator on this node: the Raft state machine, and what its leader answers and does.

The problem: a decision is worth nothing until every partition has its marker, and the leader that decided may die in
between. The rules: every answer was applied before; markers leave only after the decision was applied, from the present
leader, and again from each next one until all partitions have confirmed theirs; ids and transactions expire by a
replicated command that the leader proposes.

A coordinator keeps nothing but its state: its log is cut below the checkpoint like that of the metadata group.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec

from cluster.crash_points import crash_point
from cluster.raft import ENTRY_REGULAR, DiskBatch, NotLeader, Overloaded
from node.partition.api import Failed, FailureKind
from node.partition.raft_group import GroupLike, confirm_leadership, propose
from node.transaction_coordinator import coordinator_commands
from node.transaction_coordinator.completion_waiters import CompletionWaiters
from node.transaction_coordinator.coordinator_commands import (
    AddPartitions,
    Command,
    Complete,
    Decided,
    Declined,
    EndTransaction,
    FenceTransaction,
    ForgetIdle,
    Forgotten,
    Register,
    Result,
)
from node.transaction_coordinator.coordinator_queries import (
    LIST_LIMIT,
    Abort,
    AskLost,
    AskOutcome,
    AwaitEnd,
    CoordinatorAnswer,
    CoordinatorQuestion,
    DecideTransaction,
    IdList,
    IdRow,
    ListIds,
    NoteAndEnd,
)
from node.transaction_coordinator.coordinator_queries import TransactionOutcome as TransactionOutcome
from node.transaction_coordinator.dead_nodes import GoneNodes, Sightings
from node.transaction_coordinator.marker_sender import AskGroup, MarkerSender
from node.transaction_coordinator.state import TransactionalId
from node.transaction_coordinator.state_machine import MAX_PARTITIONS, CoordinatorMachine
from node.transaction_coordinator.transaction_groups.group_commands import GroupCommand
from node.transaction_coordinator.transaction_groups.group_leader import TransactionGroupLeader
from node.transaction_coordinator.transaction_timeouts import Expiry
from node.transaction_coordinator.transitions import DECIDED, TransactionState

log = logging.getLogger(__name__)

KEPT_ENTRIES = 1000
"""Entries of the log that are kept at least, and twice as many at most while all nodes are there: 200 KiB. A replica
that was away for longer is sent the state."""

COMPLETE_WAIT_S = 2.0
"""Time that a client waits for the markers of a transaction. When a partition is down, it hears that they are not
everywhere, and asks again."""

QUIET_S = 60.0
"""Longest time without an entry while ids are known: expiry goes by the time between entries, of which a minute counts
(`state_machine.LONGEST_STEP_MS`)."""

QUIET_WHILE_OPEN_S = 10.0
"""Longest time without an entry while a transaction is open."""


_STEPS = {Register: "register", AddPartitions: "add", EndTransaction: "end"}
"""Steps of the commands, as names of crash points."""


class CoordinatorReplica:
    """`cluster.raft.StateMachine` of one coordinator. The node sets `on_role_change`."""

    def __init__(
        self, name: str, group_id: int, now_ms: Callable[[], int], ask: AskGroup, sightings: Sightings
    ) -> None:
        """`ask`: asks the leader of a partition, by Raft group. `sightings`: the other nodes, as this one sees them."""
        self.name = name
        self.group_id = group_id
        self.on_role_change: Callable[[CoordinatorReplica], None] | None = None
        self._machine = CoordinatorMachine(group_id)
        self._now_ms = now_ms
        self._group: GroupLike | None = None
        self._closed: Failed | None = None
        self._markers = MarkerSender(self.what, self._machine.get, ask, self._complete)
        self._marked: CompletionWaiters[tuple[int, int]] = (
            CompletionWaiters()
        )  # until the markers of a transaction are everywhere
        self._completed: CompletionWaiters[tuple[int, int]] = CompletionWaiters()  # until that is replicated
        self._desk = TransactionGroupLeader(self, self._machine, now_ms, self._confirm)
        self._ripe: dict[tuple[int, int], str] = {}  # pairs whose markers are everywhere -> the names of their ids
        self._completing: set[tuple[int, int]] = set()  # pairs whose `Complete` is proposed
        self._quiet_since_s: float | None = None
        self._gone = GoneNodes(group_id, sightings)
        self._expiry = Expiry(self, self._machine, self._gone, now_ms)

    @property
    def what(self) -> str:
        return f"coordinator {self.name} (group {self.group_id})"

    # ------------------------------------------------------------ life

    def bind(self, group: GroupLike) -> None:
        self._group = group
        group.on_role_change = self._role_changed

    @property
    def group(self) -> GroupLike:
        if self._group is None:
            raise RuntimeError(f"{self.what} was used before its Raft group was bound")
        return self._group

    def close(self, *, deleted: bool = False) -> None:
        """Close the replica. Idempotent."""
        if self._closed is None:
            kind: FailureKind = "deleted" if deleted else "not_leader"
            self._closed = Failed(kind, not deleted, f"{self.what} is closed on this node")
            self._not_leading()

    def _role_changed(self, _: object) -> None:
        if not self.group.is_leader:
            self._not_leading()
        if self.on_role_change is not None:
            self.on_role_change(self)

    def _not_leading(self) -> None:
        self._markers.stop()
        self._ripe.clear()
        self._completing.clear()
        self._quiet_since_s = None
        self._expiry.not_leading()
        self._marked.give_up()
        self._completed.give_up()
        self._desk.not_leading()

    @property
    def is_leader(self) -> bool:
        """True if this node leads, and has applied all that earlier leaders committed."""
        group = self._group
        return group is not None and self._closed is None and group.is_leader and group.ready

    @property
    def leader(self) -> int | None:
        return self._group.leader if self._group is not None else None

    def transactions(self) -> tuple[int, int, int]:
        """Numbers of ids, of open transactions, and of those whose markers are under way."""
        return len(self._machine), len(self._machine.ongoing()), len(self._machine.decided())

    def groups(self) -> tuple[int, int]:
        """Number of open transaction groups, and the age of their oldest member in milliseconds."""
        return self._desk.groups()

    # ------------------------------------------------------------ StateMachine

    def apply(self, index: int, term: int, data: bytes, batch: DiskBatch) -> Result:
        command = data[len(ENTRY_REGULAR) :]
        result = self._machine.apply(index, command)
        if isinstance(result, Forgotten) and result.writers:
            log.warning("%s: writers forgotten, with their last batches: %s", self.what, ", ".join(result.writers))
        if self._group is not None and self._group.is_leader:
            self._heed(command)
        return result

    def _heed(self, data: bytes) -> None:
        """Act as leader on a command that was applied. Called inside a turn."""
        try:
            command = coordinator_commands.decode(data)
        except msgspec.DecodeError:  # it was refused as such
            return
        if isinstance(command, GroupCommand):
            self._send_markers()
            self._desk.heed()
            return
        if not isinstance(command, ForgetIdle):
            self._send_marker(self._machine.get(command.transactional_id))
        if isinstance(command, Complete):
            crash_point("coordinator-after-complete")
            for waiters in (self._marked, self._completed):
                waiters.tell((command.producer_id, command.epoch))
            self._desk.heed()

    def _send_markers(self) -> None:
        for one in self._machine.decided():
            self._send_marker(one)

    def _send_marker(self, one: TransactionalId | None) -> None:
        if one is not None and one.pair not in self._ripe:
            self._markers.send(one.name, self.group.term)

    def checkpoint(self, version: int) -> bytes:
        return self._machine.checkpoint(version)

    def restore(self, index: int, data: bytes | None) -> None:
        self._machine.restore(data)
        assert self._machine.state.applied_index <= index, "a checkpoint from the future"

    # ------------------------------------------------------------ questions

    async def ask(self, question: Any) -> Any:
        """Answer a question with a `CoordinatorAnswer`, or Failed. Repeating one whose outcome is unknown does no
        harm."""
        if isinstance(question, AskLost) and self._closed is None:
            return self._gone.answer(question)
        if self._closed is not None or not self.is_leader:
            leader = self.leader
            return self._closed or Failed("not_leader", True, f"this node does not lead {self.what}", leader)
        if isinstance(question, CoordinatorQuestion):
            return await self._answer(question)
        return Failed("rejected", False, f"{self.what} cannot answer {type(question).__name__}")

    async def _answer(self, question: CoordinatorQuestion) -> CoordinatorAnswer | Failed:
        match question:
            case Register():
                return await self._propose(question)
            case AddPartitions():
                return await self._add(question)
            case EndTransaction():
                return await self._end(question)
            case DecideTransaction(name, producer_id, epoch, commit):
                return await self._propose(EndTransaction(name, producer_id, epoch, commit))
            case NoteAndEnd():
                return await self._note_and_end(question)
            case AwaitEnd():
                return await self._await_end(question)
            case AskOutcome():
                return await self._outcome(question)
            case ListIds():
                return await self._confirm() or await self._list(question)
            case Abort(name):
                one = self._machine.get(name)
                if one is None:
                    return Declined("unknown-id", f"{name!r} is not known here")
                if one.state is not TransactionState.ONGOING:
                    return Declined("ended", f"{name!r} has no transaction open")
                return await self._end(EndTransaction(name, *one.pair, commit=False, by_operator=True))
        answer: CoordinatorAnswer | Failed = await self._desk.answer(question)
        return answer

    async def _list(self, question: ListIds) -> IdList:
        self._complete_ripe()
        for pair in list(self._completing):
            await self._completed.wait(pair, COMPLETE_WAIT_S)
        return _list_ids(self._machine, question, self._now_ms())

    async def _outcome(self, question: AskOutcome) -> CoordinatorAnswer | Failed:
        pair = (question.producer_id, question.epoch)
        failed = await self._confirm()
        unbegun = self._machine.next_of(*pair) if failed is None else None
        if unbegun is None:
            return failed or TransactionOutcome(self._machine.outcome(*pair), self.group.term)
        name, at = unbegun.name, unbegun.at
        is_gone = at is not None and bool(await self._gone.among({at}, self.group))
        if is_gone or question.overdue:
            fenced = await self.propose(FenceTransaction(name, *pair, gone=at if is_gone else None), "fence")
            failed = fenced if isinstance(fenced, Failed) else None
        is_lost = at is not None and self._gone.is_lost(at.node)
        return failed or TransactionOutcome(self._machine.outcome(*pair), self.group.term, is_lost)

    async def _confirm(self) -> Failed | None:
        if await confirm_leadership(self.group):
            return None
        return Failed("not_leader", True, f"this node has just lost the leadership of {self.what}")

    async def _add(self, question: AddPartitions) -> CoordinatorAnswer | Failed:
        return await self._behind_the_last(question) or await self._propose(question)

    async def _behind_the_last(self, question: AddPartitions | NoteAndEnd) -> Declined | None:
        """Wait until the id's last transaction is complete in the log. A client that was told early may be faster than
        that entry; if it is not proposed yet, it goes with the question."""
        one = self._machine.get(question.transactional_id)
        pair = (question.producer_id, question.epoch)
        if one is not None and one.state in DECIDED and self._machine.following(one.pair) == pair:
            ended = one.pair
            self._complete_ripe()
            if ended not in self._completing:
                await self._completed.wait(ended, COMPLETE_WAIT_S)
            if one.pair == ended and ended not in self._completing:
                return Declined("busy", f"the last transaction of {one.name!r} is being ended; try again")
        return None

    async def _note_and_end(self, question: NoteAndEnd) -> CoordinatorAnswer | Failed:
        """Note partitions and end the transaction. The end follows the note in the log, so it cannot be there without
        it; and a reason that keeps the note from being applied keeps the end from deciding otherwise. Only the number
        of partitions is checked before."""
        name, pair, groups = question.transactional_id, (question.producer_id, question.epoch), question.groups
        one = self._machine.get(name)
        known = one.groups if one is not None and one.pair == pair else []
        if not groups or min(groups) <= 0 or len({*known, *groups}) > MAX_PARTITIONS:
            return Declined("invalid", f"a transaction writes to 1 to {MAX_PARTITIONS} partitions")
        busy = await self._behind_the_last(question)
        if busy is not None:
            return busy
        note, end = AddPartitions(name, *pair, groups), EndTransaction(name, *pair, question.commit)
        return await (self._propose(end, note) if question.decide else self._end(end, note))

    async def _end(self, question: EndTransaction, note: AddPartitions | None = None) -> CoordinatorAnswer | Failed:
        """Decide, and wait a while for the markers, so that a client that has ended it reads what it has written.
        Operators wait for the entry that says it is complete."""
        answer = await self._propose(question, note)
        if not isinstance(answer, Decided) or answer.complete:
            return answer
        name, pair = question.transactional_id, (question.producer_id, question.epoch)
        if not question.by_operator:
            return await self._marked_everywhere(name, pair) or answer
        if self._decided(name, pair) is not None and self.is_leader:
            await self._completed.wait(pair, COMPLETE_WAIT_S)
        return self._machine.completed(name, pair) or answer

    async def _await_end(self, question: AwaitEnd) -> CoordinatorAnswer | Failed:
        """Answer a holder that waits for the markers. A deposed leader that does not know it says nothing wrong: what
        it has applied is decided, what is marked stays so, and a pair is told to one holder, here or elsewhere."""
        name, pair = question.transactional_id, (question.producer_id, question.epoch)
        unknown = Declined("busy", f"it is not known here that the transaction {pair} of {name!r} is decided")
        return await self._marked_everywhere(name, pair) or self._decided(name, pair) or unknown

    async def _marked_everywhere(self, name: str, pair: tuple[int, int]) -> Decided | None:
        """Wait a while until every partition has its marker. Then nothing can keep the holder from the next pair, so
        the answer does not wait for the entry that says so. After a fence only that entry tells the next pair; then the
        answer is None, and the entry is proposed."""
        decided = self._decided(name, pair)
        if decided is None or not self.is_leader:
            return self._machine.completed(name, pair)
        following = self._machine.following(pair)
        if pair in self._ripe or await self._marked.wait(pair, COMPLETE_WAIT_S):
            if following is not None and decided.how != "fenced":
                return Decided(decided.committed, True, decided.how, *following)
            self._complete_ripe()
        return self._machine.completed(name, pair)

    def _decided(self, name: str, pair: tuple[int, int]) -> Decided | None:
        """The decision of a transaction whose markers are under way; None: it has none."""
        one = self._machine.get(name)
        if one is None or one.pair != pair or one.state not in DECIDED:
            return None
        return Decided(one.state is TransactionState.PREPARE_COMMIT, False, one.how, *pair)

    async def _propose(
        self, command: Register | AddPartitions | EndTransaction, note: AddPartitions | None = None
    ) -> Any:
        return await self.propose(command, _STEPS[type(command)], note)

    async def propose(self, command: Any, step: str, note: AddPartitions | None = None) -> Any:
        """Propose a client's command. Returns its result, or Failed. `step` names the crash point. `note`: the entry
        right before it, without which it is not proposed."""
        crash_point(f"coordinator-before-{step}")
        self._complete_ripe()
        if note is not None and not self._tell(coordinator_commands.stamped(note, self._now_ms())):
            return Failed("not_leader", True, f"this node can propose nothing to {self.what} now", self.leader)
        entry = _entry(coordinator_commands.stamped(command, self._now_ms()))
        result = await propose(self.group, entry, self.what)
        crash_point(f"coordinator-after-{step}")
        if isinstance(result, Result | Failed):
            return result
        return Failed("rejected", False, f"{self.what} did not do it: {result}")

    # ------------------------------------------------------------ what the leader does by itself

    def tick(self, now_s: float) -> None:
        """End what is overdue, and send markers that an earlier leader may not have sent, if this node leads. Called
        about twice a second."""
        if not self.is_leader:
            return
        now_ms = self._now_ms()
        self._complete_ripe()
        self._send_markers()
        self._desk.tick(now_s, now_ms)
        self._expiry.tick()
        self._keep_time(now_s, now_ms)

    def _keep_time(self, now_s: float, now_ms: int) -> None:
        writers = self._machine.writers
        is_open = bool(self._machine.ongoing() or writers.open_groups())
        if self._quiet_since_s is None or not (len(self._machine) or len(writers)):
            self._quiet_since_s = now_s
        elif now_s - self._quiet_since_s >= (QUIET_WHILE_OPEN_S if is_open else QUIET_S):
            self._quiet_since_s = now_s
            self._tell(ForgetIdle(now_ms))

    def _complete(self, name: str, pair: tuple[int, int]) -> None:
        """Note that every partition has its marker. Only groups and operators wait for the entry that says so: it goes
        with the next command, which most often is the end of the holder's next transaction, or with a tick."""
        crash_point("coordinator-before-complete")
        if not self.is_leader:
            return
        self._marked.tell(pair)
        self._ripe[pair] = name
        one = self._machine.get(name)
        if pair in self._completed.awaited() or (one is not None and one.writer):
            self._complete_ripe()

    def _complete_ripe(self) -> None:
        """Propose `Complete` for the transactions known to be complete; the next tick proposes what cannot be now."""
        for pair, name in list(self._ripe.items()):
            if pair in self._completing:
                continue
            self._completing.add(pair)
            if not self._tell(Complete(name, *pair, self._now_ms()), self._completion_heard(pair)):
                self._completing.discard(pair)

    def _completion_heard(self, pair: tuple[int, int]) -> Callable[[object], None]:
        """Callback for a proposed `Complete`. If the id is still decided then, its markers are sent again, and it is
        noted again."""

        def heard(_: object) -> None:
            self._ripe.pop(pair, None)
            self._completing.discard(pair)

        return heard

    def tell(self, command: Command, done: Callable[[Any], None] | None = None) -> bool:
        return self._tell(command, done)

    def _tell(self, command: Command, done: Callable[[Any], None] | None = None) -> bool:
        """Propose a command. Returns whether that succeeded; if not, the next tick, here or elsewhere, tries again."""
        try:
            self.group.propose(_entry(command), done or _unheard)
        except (NotLeader, Overloaded) as error:
            log.debug("%s: %s was not proposed: %s", self.what, command, error)
            return False
        return True


def _entry(command: Command) -> bytes:
    return ENTRY_REGULAR + coordinator_commands.encode(command)


def _unheard(_: object) -> None:
    """Ignore the outcome: no caller waits for it."""


def _list_ids(machine: CoordinatorMachine, question: ListIds, now_ms: int) -> IdList:
    """The transactional ids of a coordinator, as operators see them."""
    if question.name:
        one = machine.get(question.name)
        found = [] if one is None else [one]
    else:
        found = sorted((one for one in machine if one.name > question.after), key=lambda one: one.name)
    limit = max(1, min(question.limit, LIST_LIMIT))
    return IdList([_row(machine, one, now_ms) for one in found[:limit]])


def _row(machine: CoordinatorMachine, one: TransactionalId, now_ms: int) -> IdRow:
    under_way = one.state is TransactionState.ONGOING or one.state in DECIDED
    open_ms = machine.lived_ms(now_ms) - one.started_ms if under_way else -1
    return IdRow(
        one.name, one.state.name.lower(), one.producer_id, one.epoch, one.timeout_ms, open_ms, list(one.groups),
        one.last_end,
    )  # fmt: skip
