"""The replicated state of one coordinator: its transactional ids, and the one decision that each transaction gets.

The problem: a producer, its gateway, the coordinator's leader and the partitions each die, come back and repeat
themselves; all of them must agree on what was decided. The rules never broken:
 - a transaction (producer id, epoch) is decided by one applied command, and never again; markers leave only after it;
 - everything by which a repeated request is recognised is part of the state, so a new leader recognises it, too;
 - the epoch rises at each end and at each registration: what an earlier holder or an earlier transaction still sends
   names a pair that is over.

| asks                      | idle                      | ongoing                      | decided                    |
| ------------------------- | ------------------------- | ---------------------------- | -------------------------- |
| Register, another holder  | a new epoch               | it aborts: `busy`            | `busy`                     |
| Register, the same holder | as before, if unused      | `invalid`                    | `invalid`                  |
| ... that `lost` its pair  | a new epoch, if used      | it aborts: `busy`            | `busy`                     |
| Register, the last holder | `fenced`                  | `fenced`                     | `fenced`                   |
| AddPartitions             | it begins                 | the union                    | `ended`                    |
| EndTransaction            | as asked; the next epoch  | decided as asked             | the decision, or `ended`   |
| Complete                  | `ended`                   | `ended`                      | complete; the next epoch   |
| Expire                    | `ended`                   | it aborts, if it is time, or its node is gone | the decision |
| FenceTransaction          | aborted; the next epoch   | `ended`                      | `ended`                    |

All with the present pair; with the pair before, EndTransaction hears how that one ended (a lost answer), and everything
else is `fenced`, or `ended` if no other holder has come since. The pair to go on with is for the holder alone: a holder
that was succeeded, or is about to be, hears its own pair again, which is over.

Where pairs come from: `transactional_id_epochs.py`.

Rejected: Kafka's fence in memory (a leader that dies in between has to fence again); an epoch that the marker
raises (partitions could not tell a late begin from an early one).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from cluster.raft import UnknownEntry
from cluster.versions import INSTALL, UNSET
from node.partition.partition_commands import is_of_later_version
from node.partition.state_machine import WrongCheckpoint
from node.transaction_coordinator.coordinator_commands import (
    MAX_HOLDER_CHARACTERS,
    MAX_ID_CHARACTERS,
    Added,
    AddPartitions,
    Command,
    Complete,
    Decided,
    Declined,
    EndTransaction,
    Expire,
    FenceTransaction,
    ForgetIdle,
    Forgotten,
    How,
    LastEnd,
    Register,
    Result,
    decode,
)
from node.transaction_coordinator.repeated_requests import completed, ended, goes_on, over, registered, was_passed_over
from node.transaction_coordinator.state import LAYOUTS, NEVER, CoordinatorState, TransactionalId
from node.transaction_coordinator.transaction_groups.group_commands import (
    MEMBER_PREFIX,
    member_id,
    member_name,
)
from node.transaction_coordinator.transaction_groups.group_state_machine import Writers
from node.transaction_coordinator.transactional_id_epochs import EPOCHS, ProducerPairs
from node.transaction_coordinator.transitions import DECIDED, IDLE, TransactionState, check

MAX_TIMEOUT_MS = 15 * 60 * 1000
"""Longest timeout of a transaction: committed readers may have to wait so long (Kafka's default)."""

MAX_IDS = 100_000
"""Transactional ids that one coordinator knows, about 150 bytes each in every checkpoint."""

MAX_PARTITIONS = 4096
"""Partitions of one transaction: each gets a marker."""

FORGET_MS = 7 * 24 * 3600 * 1000
"""Time after which an idle id is forgotten, in lived time (Kafka's default)."""

LONGEST_STEP_MS = 60_000
"""Longest step of lived time from one entry to the next, whatever their clocks say: a leap of a leader's clock takes
a minute from a transaction, not days, and forgets nothing. A leader with open transactions proposes an entry more
often."""


class CoordinatorMachine:
    def __init__(self, group: int, *, epochs: int = EPOCHS) -> None:
        """`group`: the Raft group of this coordinator. `epochs`: those of one producer id; less in tests."""
        self._pairs = ProducerPairs(group, epochs)
        self.state = CoordinatorState()
        self._ids: dict[str, TransactionalId] = {}
        self._by_producer: dict[int, TransactionalId] = {}
        self._under_way: dict[str, TransactionalId] = {}  # those that are ongoing or decided
        self.writers = Writers(self)
        self._handlers: dict[type[Any], Callable[[Any], Result]] = {
            Register: self._register,
            AddPartitions: self._add,
            EndTransaction: self._end,
            Complete: self._complete,
            Expire: self._expire,
            FenceTransaction: self._fence,
            ForgetIdle: self._forget_idle,
            **self.writers.handlers,
        }

    # ------------------------------------------------------------ what there is

    def get(self, name: str) -> TransactionalId | None:
        return self._ids.get(name)

    def __iter__(self) -> Iterator[TransactionalId]:
        return iter(self._ids.values())

    def __len__(self) -> int:
        return len(self._ids)

    def decided(self) -> list[TransactionalId]:
        """Transactions whose markers are under way."""
        return [one for one in self._under_way.values() if one.state in DECIDED]

    def ongoing(self) -> list[TransactionalId]:
        return [one for one in self._under_way.values() if one.state is TransactionState.ONGOING]

    def overdue(self, now_ms: int) -> list[TransactionalId]:
        """Transactions that an `Expire` proposed now would end, by the leader's clock. The time of a member of a group
        is that of the group."""
        lived_ms = self.lived_ms(now_ms)
        return [one for one in self.ongoing() if one.deadline_ms <= lived_ms and not one.writer]

    def lived_ms(self, now_ms: int) -> int:
        """Lived time if an entry were applied now."""
        return self.state.lived_ms + self._step(now_ms)

    def _step(self, time_ms: int) -> int:
        return max(0, min(time_ms - self.state.stamped_ms, LONGEST_STEP_MS))

    def next_of(self, producer_id: int, epoch: int) -> TransactionalId | None:
        """The id whose next transaction this is, if no command has begun it; members of groups have no next one."""
        one = self._by_producer.get(producer_id)
        begins = one is not None and one.pair == (producer_id, epoch) and one.state in IDLE and not one.writer
        return one if begins else None

    def following(self, pair: tuple[int, int]) -> tuple[int, int] | None:
        """The next pair for the holder of this decided one; None: it has a producer id that is not drawn yet."""
        return self._pairs.following(pair)

    def completed(self, name: str, pair: tuple[int, int]) -> Decided | None:
        """The answer about a decided transaction of which every partition has its marker; None: it is not complete."""
        one = self._ids.get(name)
        last = None if one is None else one.last
        if one is None or last is None or (last.producer_id, last.epoch) != pair:
            return None
        return completed(one, last)

    def outcome(self, producer_id: int, epoch: int) -> bool | None:
        """Outcome of a transaction, for a partition that waits for its marker. True: it commits. False: it aborts, or
        it is over and each of its partitions has its marker. A partition that still waits has then forgotten the end,
        and a late message began it again; or the coordinator never heard of that partition, and nothing there was
        committed. None: it is not decided, or is the next one of an id: its holder may have been told of it, and a
        partition may have begun it while the coordinator's note is on its way (`FenceTransaction`)."""
        one = self._by_producer.get(producer_id)
        if one is None:
            return False
        if one.pair == (producer_id, epoch):
            if one.state in DECIDED:
                return one.state is TransactionState.PREPARE_COMMIT
            return None if one.state is TransactionState.ONGOING or not one.writer else False
        return None if one.state in DECIDED and self.following(one.pair) == (producer_id, epoch) else False

    # ------------------------------------------------------------ apply

    def apply(self, index: int, data: bytes) -> Result:
        """Apply an entry. It raises nothing but an illegal transition, which is a defect, and UnknownEntry; either
        stops the group."""
        assert index > self.state.applied_index, f"entry {index} came after entry {self.state.applied_index}"
        self.state.applied_index = index
        try:
            command: Command = decode(data)
        except msgspec.DecodeError as error:
            if is_of_later_version(data, Command):
                what = "a command of a coordinator, of a kind or with a field, which this program does not know"
                raise UnknownEntry(f"entry {index}: {what}: {INSTALL}") from error
            return Declined("invalid", f"entry {index} is no command of a coordinator: {error}")
        self.state.lived_ms += self._step(command.timestamp_ms)
        self.state.stamped_ms = command.timestamp_ms
        return self._handlers[type(command)](command)

    def _register(self, command: Register) -> Result:
        if not 0 < len(command.transactional_id) <= MAX_ID_CHARACTERS:
            return Declined("invalid", f"a transactional id has 1 to {MAX_ID_CHARACTERS} characters")
        if not 0 < len(command.holder) <= MAX_HOLDER_CHARACTERS:
            return Declined("invalid", f"the name of a holder has 1 to {MAX_HOLDER_CHARACTERS} characters")
        if command.transactional_id.startswith(MEMBER_PREFIX):
            return Declined("invalid", f"{command.transactional_id!r} is a member of a group: nobody else has it")
        if not 0 < command.timeout_ms <= MAX_TIMEOUT_MS:
            detail = f"a transaction is given 1 to {MAX_TIMEOUT_MS} ms, not {command.timeout_ms}"
            return Declined("invalid", detail)
        one = self._ids.get(command.transactional_id)
        if command.lost is not None and (one is None or one.holder != command.holder):
            return Declined("fenced", f"{command.transactional_id!r} is not this holder's any more")
        if command.succeeds and (one is None or one.holder not in (command.succeeds, command.holder)):
            return Declined("fenced", f"somebody else has {command.transactional_id!r} now, or it was forgotten")
        if one is None:
            return self._create(command)
        if one.former == command.holder:
            return Declined("fenced", f"somebody else has had {one.name!r} since this holder registered it")
        if one.holder == command.holder and not one.fresh and not _has_lost(one, command.lost):
            # It came late, and was answered.
            detail = f"this holder of {one.name!r} has used it since: whoever comes again is another holder"
            return Declined("invalid", detail)
        if one.state is TransactionState.ONGOING:
            self._decide(one, commit=False, how="fenced")
        if one.state in DECIDED:
            return Declined("busy", f"the last transaction of {one.name!r} is being ended; try again")
        if not (one.fresh and one.holder == command.holder):
            self._next_epoch(one)
            one.state = check(one.state, TransactionState.EMPTY)
            one.registered_since = True
        if one.holder != command.holder:
            one.before, one.former = one.last, one.holder
        one.holder, one.timeout_ms, one.fresh, one.at = command.holder, command.timeout_ms, True, command.at
        one.touched_ms = self.state.lived_ms
        return registered(one)

    def _create(self, command: Register) -> Result:
        if len(self._ids) >= MAX_IDS:
            return Declined("too-many", f"this coordinator knows {MAX_IDS} transactional ids; use fewer, and name them")
        producer_id = self._pairs.draw(self.state)
        one = TransactionalId(command.transactional_id, producer_id, 0, command.holder, command.timeout_ms)
        one.touched_ms, one.at = self.state.lived_ms, command.at
        self._ids[one.name] = self._by_producer[one.producer_id] = one
        return registered(one)

    def _add(self, command: AddPartitions) -> Result:
        one = self._present(command)
        if isinstance(one, Declined):
            return one
        refusal = self.writers.may_write(member_id(*one.pair)) if one.writer else None
        if refusal is not None:
            return refusal
        if one.state in DECIDED:
            return ended(one)
        if not command.groups or min(command.groups) <= 0:
            return Declined("invalid", f"no partitions to add: {command.groups}")
        known = set(one.groups) if one.state is TransactionState.ONGOING else set()
        fresh = [group for group in dict.fromkeys(command.groups) if group not in known]
        if len(known) + len(fresh) > MAX_PARTITIONS:
            return Declined("too-many", f"a transaction writes to at most {MAX_PARTITIONS} partitions")
        if one.state is not TransactionState.ONGOING:
            one.groups, one.started_ms = [], self.state.lived_ms
        one.state = check(one.state, TransactionState.ONGOING)
        self._under_way[one.name] = one
        one.groups += fresh
        one.fresh, one.touched_ms = False, self.state.lived_ms
        return Added(one.timeout_ms)

    def _end(self, command: EndTransaction) -> Result:
        one = self._ids.get(command.transactional_id)
        if command.transactional_id.startswith(MEMBER_PREFIX):
            return self._end_by_itself(command)
        for last in () if one is None else (one.last, one.before):
            if one is not None and last is not None and (last.producer_id, last.epoch) == _pair(command):
                return self._repeated(one, last, command)
        found = self._present(command)
        if isinstance(found, Declined):
            if found.code != "fenced" or (one is not None and was_passed_over(one, _pair(command))):
                return found
            return Declined("forgotten", f"{found.detail}; how it ended is not remembered")
        if found.state in IDLE:
            return self._end_empty(found, commit=command.commit, how="client")
        if found.state is TransactionState.ONGOING:
            self._decide(found, commit=command.commit, how="operator" if command.by_operator else "client")
        if (found.state is TransactionState.PREPARE_COMMIT) != command.commit:
            return ended(found)
        return Decided(command.commit, False, found.how, *found.pair)

    def _end_empty(self, one: TransactionalId, *, commit: bool, how: How) -> Result:
        """End a transaction without partitions: there are no markers to send. Its pair is over all the same; else this
        request, repeated, would end the next transaction."""
        one.last = LastEnd(one.producer_id, one.epoch, commit, how)
        one.registered_since = False
        one.state = check(one.state, TransactionState.EMPTY)
        one.fresh, one.touched_ms = False, self.state.lived_ms
        self._next_epoch(one)
        return Decided(commit, True, how, *one.pair)

    def _repeated(self, one: TransactionalId, last: LastEnd, command: EndTransaction) -> Result:
        """Answer a repeated end of a transaction that is over."""
        if last.committed == command.commit:
            return completed(one, last)
        if last.how == "fenced":
            return Declined("fenced", f"another holder has {one.name!r} now: the transaction was aborted")
        return over(one.name, last)

    def _end_by_itself(self, command: EndTransaction) -> Result:
        """End a member's transaction: it may only abort; the rest is for the group to decide."""
        if command.commit:
            return Declined("invalid", f"{command.transactional_id!r} is a member of a group: that commits it, or not")
        how: How = "operator" if command.by_operator else "client"
        refusal = self.writers.abort_member(member_id(*_pair(command)), how)
        complete = command.transactional_id not in self._ids
        return refusal or Decided(False, complete, how, command.producer_id, command.epoch)

    def _complete(self, command: Complete) -> Result:
        one = self._ids.get(command.transactional_id)
        if one is None or one.pair != _pair(command) or one.state not in DECIDED:
            return Declined("ended", f"no transaction {_pair(command)} of {command.transactional_id!r} is being ended")
        committed = one.state is TransactionState.PREPARE_COMMIT
        one.state = check(one.state, TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT)
        if one.writer:
            self._drop(one)
            self.writers.completed(member_id(*one.pair))
            return Decided(committed, True, one.how, *one.pair)
        last = one.last = LastEnd(one.producer_id, one.epoch, committed, one.how)
        one.registered_since = False
        one.groups, one.started_ms = [], NEVER
        one.touched_ms = self.state.lived_ms
        del self._under_way[one.name]
        self._next_epoch(one)
        return completed(one, last)

    def _expire(self, command: Expire) -> Result:
        one = self._present(command)
        if isinstance(one, Declined):
            return one
        if one.writer:
            return Declined("ended", f"the time of {one.name!r} is that of its group")
        is_gone = command.gone is not None and one.at == command.gone
        if one.state is TransactionState.ONGOING and (is_gone or one.deadline_ms <= self.state.lived_ms):
            self._decide(one, commit=False, how="node" if is_gone else "timeout")
        if one.state in DECIDED:
            return Decided(one.state is TransactionState.PREPARE_COMMIT, False, one.how, *one.pair)
        return Declined("ended", f"nothing of {one.name!r} is overdue, or held at a node that is gone")

    def _fence(self, command: FenceTransaction) -> Result:
        one = self._present(command)
        if isinstance(one, Declined):
            return one
        if command.gone is not None and one.at != command.gone:
            return Declined("ended", f"{one.name!r} is held at another start of a node")
        if one.state in IDLE and not one.writer:
            return self._end_empty(one, commit=False, how="timeout" if command.gone is None else "node")
        return Declined("ended", f"the transaction of {one.name!r} has begun, or its group decides about it")

    def _forget_idle(self, _: ForgetIdle) -> Result:
        before = self.state.lived_ms - FORGET_MS
        idle = [one for one in self._ids.values() if one.state in IDLE and one.touched_ms < before and not one.writer]
        for one in idle:
            check(one.state, TransactionState.DEAD)
            del self._ids[one.name]
        if idle:
            self._index_producers()
        return Forgotten(len(idle), self.writers.forget_idle())

    # ------------------------------------------------------------ members of groups

    @property
    def now_ms(self) -> int:
        """Lived time of the entry that is being applied."""
        return self.state.lived_ms

    def make_member(self, writer: str, holder: str, timeout_ms: int) -> tuple[int, int] | None:
        """Make a transaction of a group's member; None: there are too many ids. Its producer id is used again, with the
        next epoch, when it is over: partitions remember every producer that they have seen, for a while."""
        if len(self._ids) >= MAX_IDS:
            return None
        pair = self.state.spare.pop() if self.state.spare else (self._pairs.draw(self.state), 0)
        one = TransactionalId(member_name(member_id(*pair)), *pair, holder, timeout_ms, writer=writer)
        one.touched_ms = self.state.lived_ms
        self._ids[one.name] = self._by_producer[one.producer_id] = one
        return pair

    def end_member(self, member: str, *, commit: bool, how: How) -> bool:
        """Decide the member's transaction, if it is not decided. Returns whether its markers are under way."""
        one = self._ids.get(member_name(member))
        if one is None:
            return False
        if one.state is TransactionState.ONGOING:
            self._decide(one, commit=commit, how=how)
        if one.state not in DECIDED:
            self._drop(one)  # it has written nothing: no partition needs a marker
        return one.state in DECIDED

    def _drop(self, one: TransactionalId) -> None:
        """Drop a member's id: it has one transaction only."""
        del self._ids[one.name], self._by_producer[one.producer_id]
        self._under_way.pop(one.name, None)
        following = self.following(one.pair)
        if following is not None:
            self.state.spare.append(following)

    # ------------------------------------------------------------ steps

    def _present(
        self, command: AddPartitions | EndTransaction | Expire | FenceTransaction
    ) -> TransactionalId | Declined:
        """The id, if the command names its present transaction."""
        one = self._ids.get(command.transactional_id)
        if one is None and command.transactional_id.startswith(MEMBER_PREFIX):
            return Declined("fenced", f"{command.transactional_id!r} is over: its lease ended, or its group is closed")
        if one is None:
            detail = f"{command.transactional_id!r} is not known (any more): register it again"
            return Declined("unknown-id", detail)
        if one.pair == _pair(command):
            return one
        last = one.last
        if last is not None and (last.producer_id, last.epoch) == _pair(command) and goes_on(one, last):
            return over(one.name, last)
        return Declined(
            "fenced", f"{one.name!r} was registered again since: {_pair(command)} is over, {one.pair} is on"
        )

    def _decide(self, one: TransactionalId, *, commit: bool, how: How) -> None:
        one.state = check(one.state, TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT)
        one.how, one.touched_ms = how, self.state.lived_ms

    def _next_epoch(self, one: TransactionalId) -> None:
        before = one.producer_id
        one.producer_id, one.epoch = self._pairs.next(one.pair, self.state)
        if one.producer_id != before:
            self._by_producer.pop(before, None)
            self._by_producer[one.producer_id] = one

    # ------------------------------------------------------------ checkpoint

    def checkpoint(self, version: int = UNSET) -> bytes:
        """Encode the state in the layout of a version. Equal bytes mean equal replicas."""
        ids = [self._ids[name] for name in sorted(self._ids)]
        full = msgspec.structs.replace(self.state, layout=LAYOUTS.at(version), ids=ids, writers=self.writers.rows())
        return msgspec.msgpack.encode(full)

    def restore(self, data: bytes | None) -> None:
        if data is None:
            self.state, self._ids, self._by_producer, self._under_way = CoordinatorState(), {}, {}, {}
            self.writers.restore([])
            return
        try:
            state = msgspec.msgpack.decode(data, type=CoordinatorState)
        except msgspec.DecodeError as error:
            raise WrongCheckpoint(f"the checkpoint of a coordinator cannot be read: {error}") from error
        if state.layout not in LAYOUTS:
            raise WrongCheckpoint(f"checkpoint layout {state.layout}; this program reads {LAYOUTS}")
        self._ids = {one.name: one for one in state.ids}
        self._under_way = {one.name: one for one in state.ids if one.state not in IDLE}
        self._index_producers()
        self.writers.restore(state.writers)
        self.state = msgspec.structs.replace(state, ids=[], writers=[])

    def _index_producers(self) -> None:
        self._by_producer = {one.producer_id: one for one in self._ids.values()}


def _has_lost(one: TransactionalId, pair: tuple[int, int] | None) -> bool:
    """Tell whether the pair is the holder's present transaction, or its last, with no pair told since."""
    last = one.last
    over = last is not None and (last.producer_id, last.epoch) == pair and one.state in IDLE
    return one.pair == pair or over


def _pair(command: AddPartitions | EndTransaction | Complete | Expire | FenceTransaction) -> tuple[int, int]:
    return command.producer_id, command.epoch
