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
| Register, the same holder | as before, if unused      | it aborts: `busy`            | `busy`                     |
| AddPartitions             | it begins                 | the union                    | `ended`                    |
| EndTransaction            | as asked; the next epoch  | decided as asked             | the decision, or `ended`   |
| Complete                  | `ended`                   | `ended`                      | complete; the next epoch   |
| Expire                    | `ended`                   | it aborts, if it is time     | the decision               |

All with the present pair; with the pair before, EndTransaction hears how that one ended (a lost answer), and everything
else is `fenced`, or `ended` if nobody else has come since. The pair to go on with is for the holder alone: who was
succeeded, or is about to be, hears its own pair again, which is over.

A producer id is the number of the coordinator's group and a count: no other coordinator gives it out, since group
numbers are never used again. When the epochs of one are used up, the id goes on with a new one.

Rejected: blocks of producer ids from the metadata group (a second group to ask and to wait for, for the same
uniqueness); Kafka's fence in memory (a leader that dies in between has to fence again); an epoch that the marker
raises (partitions could not tell a late begin from an early one).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from node.coordinator.commands import (
    MAX_ID_CHARACTERS,
    Added,
    AddPartitions,
    Command,
    Complete,
    Decided,
    Declined,
    EndTransaction,
    Expire,
    ForgetIdle,
    Forgotten,
    How,
    LastEnd,
    Register,
    Registered,
    Result,
    decode,
)
from node.coordinator.transitions import DECIDED, IDLE, State, check

LAYOUT = 1

MAX_TIMEOUT_MS = 15 * 60 * 1000
"""The longest that a transaction may ask for: so long, committed readers may have to wait for it (Kafka's default)."""

MAX_IDS = 100_000
"""Transactional ids that one coordinator knows, about 150 bytes each in every checkpoint."""

MAX_PARTITIONS = 4096
"""Of one transaction: each gets a marker."""

FORGET_MS = 7 * 24 * 3600 * 1000
"""An id that was idle so long is forgotten, in lived time (Kafka's default)."""

EPOCHS = 32767
"""Of one producer id: 0 to 32766. The highest that fits, 32767, is never given to a client, as in Kafka."""

LONGEST_STEP_MS = 60_000
"""What passes from one entry to the next at most, whatever their clocks say: a leap of a leader's clock takes a minute
from a transaction, not days, and forgets nothing. A leader with open transactions proposes an entry more often."""

SERIALS = 1 << 32
"""Producer ids of one coordinator: group number * SERIALS + count."""

MAX_GROUP = (1 << 31) - 1
"""So that a producer id fits 63 bits."""

NEVER = -1


class TransactionalId(msgspec.Struct, array_like=True):
    """Fields are only ever added at the end."""

    name: str
    producer_id: int
    epoch: int  # of the transaction under way, or of the next one
    holder: str
    timeout_ms: int
    state: State = State.EMPTY
    groups: list[int] = []  # partitions of the transaction under way, in the order in which they were added
    started_ms: int = NEVER  # in lived time, as `touched_ms`
    touched_ms: int = 0
    how: How = "client"  # of the end that is decided
    last: LastEnd | None = None
    fresh: bool = True  # nothing was asked of it since it was registered
    registered_since: bool = False  # since the end of `last`: the present pair is not for the holder of that one

    @property
    def pair(self) -> tuple[int, int]:
        return self.producer_id, self.epoch

    @property
    def deadline_ms(self) -> int:
        return self.started_ms + self.timeout_ms


class CoordinatorState(msgspec.Struct, array_like=True):
    """What a checkpoint holds. Fields are only ever added at the end."""

    layout: int = LAYOUT
    applied_index: int = 0
    stamped_ms: int = 0  # the time in the last entry
    lived_ms: int = 0  # time that passed from entry to entry: what expires goes by it
    serial: int = 0  # producer ids given out
    ids: list[TransactionalId] = []  # by name; filled for a checkpoint only


class WrongCheckpoint(ValueError):
    """A checkpoint that this program cannot read."""


class CoordinatorMachine:
    def __init__(self, group: int, *, epochs: int = EPOCHS) -> None:
        """`group`: the Raft group of this coordinator. `epochs`: of one producer id; less in tests."""
        assert 0 < group <= MAX_GROUP
        self._group = group
        self._epochs = epochs
        self.state = CoordinatorState()
        self._ids: dict[str, TransactionalId] = {}
        self._by_producer: dict[int, TransactionalId] = {}
        self._handlers: dict[type[Any], Callable[[Any], Result]] = {
            Register: self._register,
            AddPartitions: self._add,
            EndTransaction: self._end,
            Complete: self._complete,
            Expire: self._expire,
            ForgetIdle: self._forget_idle,
        }

    # ------------------------------------------------------------ what there is

    def get(self, name: str) -> TransactionalId | None:
        return self._ids.get(name)

    def __iter__(self) -> Iterator[TransactionalId]:
        return iter(self._ids.values())

    def decided(self) -> list[TransactionalId]:
        """Those whose markers are under way."""
        return [one for one in self._ids.values() if one.state in DECIDED]

    def overdue(self, now_ms: int) -> list[TransactionalId]:
        """By the clock of the leader: what an `Expire` that is proposed now would end."""
        lived_ms = self.state.lived_ms + self._step(now_ms)
        return [one for one in self._ids.values() if one.state is State.ONGOING and one.deadline_ms <= lived_ms]

    def _step(self, time_ms: int) -> int:
        return max(0, min(time_ms - self.state.stamped_ms, LONGEST_STEP_MS))

    def outcome(self, producer_id: int, epoch: int) -> bool | None:
        """What became of a transaction, for a partition that waits for its marker: True: it commits. False: it aborts,
        or nobody knows it (any more), and then it cannot have been committed with that partition: who commits it keeps
        it until each partition has its marker. None: it is not decided."""
        one = self._by_producer.get(producer_id)
        if one is None:
            return False
        if one.pair == (producer_id, epoch):
            if one.state in DECIDED:
                return one.state is State.PREPARE_COMMIT
            return None if one.state is State.ONGOING else False
        last = one.last
        return last is not None and (last.producer_id, last.epoch) == (producer_id, epoch) and last.committed

    # ------------------------------------------------------------ apply

    def apply(self, index: int, data: bytes) -> Result:
        """Nothing is raised out of it but an illegal transition, which is a defect, and stops the group."""
        assert index > self.state.applied_index, f"entry {index} came after entry {self.state.applied_index}"
        self.state.applied_index = index
        try:
            command: Command = decode(data)
        except msgspec.DecodeError as error:
            return Declined("invalid", f"entry {index} is no command of a coordinator: {error}")
        self.state.lived_ms += self._step(command.timestamp_ms)
        self.state.stamped_ms = command.timestamp_ms
        return self._handlers[type(command)](command)

    def _register(self, command: Register) -> Result:
        if not 0 < len(command.transactional_id) <= MAX_ID_CHARACTERS or not command.holder:
            return Declined("invalid", f"a transactional id has 1 to {MAX_ID_CHARACTERS} characters")
        if not 0 < command.timeout_ms <= MAX_TIMEOUT_MS:
            detail = f"a transaction is given 1 to {MAX_TIMEOUT_MS} ms, not {command.timeout_ms}"
            return Declined("invalid", detail)
        one = self._ids.get(command.transactional_id)
        if one is None:
            return self._create(command)
        if one.state is State.ONGOING:
            self._decide(one, commit=False, how="fenced")
        if one.state in DECIDED:
            return Declined("busy", f"the last transaction of {one.name!r} is being ended; try again")
        if not (one.fresh and one.holder == command.holder):
            self._next_epoch(one)
            one.state = check(one.state, State.EMPTY)
            one.registered_since = True
        one.holder, one.timeout_ms, one.fresh = command.holder, command.timeout_ms, True
        one.touched_ms = self.state.lived_ms
        return _registered(one)

    def _create(self, command: Register) -> Result:
        if len(self._ids) >= MAX_IDS:
            return Declined("too-many", f"this coordinator knows {MAX_IDS} transactional ids; use fewer, and name them")
        one = TransactionalId(command.transactional_id, self._new_producer(), 0, command.holder, command.timeout_ms)
        one.touched_ms = self.state.lived_ms
        self._ids[one.name] = self._by_producer[one.producer_id] = one
        return _registered(one)

    def _add(self, command: AddPartitions) -> Result:
        one = self._present(command)
        if isinstance(one, Declined):
            return one
        if one.state in DECIDED:
            return _ended(one)
        if not command.groups or min(command.groups) <= 0:
            return Declined("invalid", f"no partitions to add: {command.groups}")
        known = set(one.groups) if one.state is State.ONGOING else set()
        fresh = [group for group in dict.fromkeys(command.groups) if group not in known]
        if len(known) + len(fresh) > MAX_PARTITIONS:
            return Declined("too-many", f"a transaction writes to at most {MAX_PARTITIONS} partitions")
        if one.state is not State.ONGOING:
            one.groups, one.started_ms = [], self.state.lived_ms
        one.state = check(one.state, State.ONGOING)
        one.groups += fresh
        one.fresh, one.touched_ms = False, self.state.lived_ms
        return Added(one.timeout_ms)

    def _end(self, command: EndTransaction) -> Result:
        one = self._ids.get(command.transactional_id)
        last = None if one is None else one.last
        if one is not None and last is not None and (last.producer_id, last.epoch) == _pair(command):
            return self._repeated(one, last, command)
        found = self._present(command)
        if isinstance(found, Declined):
            return found
        if found.state in IDLE:
            return self._end_empty(found, commit=command.commit)
        if found.state is State.ONGOING:
            self._decide(found, commit=command.commit, how="client")
        if (found.state is State.PREPARE_COMMIT) != command.commit:
            return _ended(found)
        return Decided(command.commit, False, found.how, *found.pair)

    def _end_empty(self, one: TransactionalId, *, commit: bool) -> Result:
        """Nothing was written: there is nothing to undo, and nobody to tell. The pair is over all the same, or this
        request, if it comes again, would end the next transaction."""
        one.last = LastEnd(one.producer_id, one.epoch, commit, "client")
        one.registered_since = False
        one.state = check(one.state, State.EMPTY)
        one.fresh, one.touched_ms = False, self.state.lived_ms
        self._next_epoch(one)
        return Decided(commit, True, "client", *one.pair)

    def _repeated(self, one: TransactionalId, last: LastEnd, command: EndTransaction) -> Result:
        """Of a transaction that is over: who asks has not heard the answer."""
        if last.committed == command.commit:
            return _completed(one, last)
        if last.how == "fenced":
            return Declined("fenced", f"another holder has {one.name!r} now: the transaction was aborted")
        return Declined("ended", _how_it_ended(one.name, last))

    def _complete(self, command: Complete) -> Result:
        one = self._ids.get(command.transactional_id)
        if one is None or one.pair != _pair(command) or one.state not in DECIDED:
            return Declined("ended", f"no transaction {_pair(command)} of {command.transactional_id!r} is being ended")
        committed = one.state is State.PREPARE_COMMIT
        one.state = check(one.state, State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT)
        last = one.last = LastEnd(one.producer_id, one.epoch, committed, one.how)
        one.registered_since = False
        one.groups, one.started_ms = [], NEVER
        one.touched_ms = self.state.lived_ms
        self._next_epoch(one)
        return _completed(one, last)

    def _expire(self, command: Expire) -> Result:
        one = self._present(command)
        if isinstance(one, Declined):
            return one
        if one.state is State.ONGOING and one.deadline_ms <= self.state.lived_ms:
            self._decide(one, commit=False, how="timeout")
        if one.state in DECIDED:
            return Decided(one.state is State.PREPARE_COMMIT, False, one.how, *one.pair)
        return Declined("ended", f"nothing of {one.name!r} is overdue")

    def _forget_idle(self, _: ForgetIdle) -> Result:
        before = self.state.lived_ms - FORGET_MS
        idle = [one for one in self._ids.values() if one.state in IDLE and one.touched_ms < before]
        for one in idle:
            check(one.state, State.DEAD)
            del self._ids[one.name]
        if idle:
            self._index_producers()
        return Forgotten(len(idle))

    # ------------------------------------------------------------ steps

    def _present(self, command: AddPartitions | EndTransaction | Expire) -> TransactionalId | Declined:
        """The id, if the command speaks of its present transaction."""
        one = self._ids.get(command.transactional_id)
        if one is None:
            detail = f"{command.transactional_id!r} is not known (any more): register it again"
            return Declined("unknown-id", detail)
        if one.pair == _pair(command):
            return one
        last = one.last
        if last is not None and (last.producer_id, last.epoch) == _pair(command) and _goes_on(one, last):
            return Declined("ended", _how_it_ended(one.name, last))
        return Declined(
            "fenced", f"{one.name!r} was registered again since: {_pair(command)} is over, {one.pair} is on"
        )

    def _decide(self, one: TransactionalId, *, commit: bool, how: How) -> None:
        one.state = check(one.state, State.PREPARE_COMMIT if commit else State.PREPARE_ABORT)
        one.how, one.touched_ms = how, self.state.lived_ms

    def _next_epoch(self, one: TransactionalId) -> None:
        if one.epoch + 1 < self._epochs:
            one.epoch += 1
        else:
            one.producer_id, one.epoch = self._new_producer(), 0
            self._by_producer[one.producer_id] = one

    def _new_producer(self) -> int:
        """Serials start at 1, so that no producer id is a multiple of SERIALS: those are easy to mistake."""
        self.state.serial += 1
        assert self.state.serial < SERIALS, "a coordinator has given out all of its producer ids"
        return self._group * SERIALS + self.state.serial

    # ------------------------------------------------------------ checkpoint

    def checkpoint(self) -> bytes:
        """Equal bytes mean equal replicas."""
        ids = [self._ids[name] for name in sorted(self._ids)]
        return msgspec.msgpack.encode(msgspec.structs.replace(self.state, ids=ids))

    def restore(self, data: bytes | None) -> None:
        if data is None:
            self.state, self._ids, self._by_producer = CoordinatorState(), {}, {}
            return
        try:
            state = msgspec.msgpack.decode(data, type=CoordinatorState)
        except msgspec.DecodeError as error:
            raise WrongCheckpoint(f"the checkpoint of a coordinator cannot be read: {error}") from error
        if state.layout != LAYOUT:
            raise WrongCheckpoint(f"checkpoint layout {state.layout}; this program reads {LAYOUT}")
        self._ids = {one.name: one for one in state.ids}
        self._index_producers()
        self.state = msgspec.structs.replace(state, ids=[])

    def _index_producers(self) -> None:
        """Of the present transaction of each id, and of the one before it."""
        self._by_producer = {one.last.producer_id: one for one in self._ids.values() if one.last is not None}
        self._by_producer |= {one.producer_id: one for one in self._ids.values()}


def _pair(command: AddPartitions | EndTransaction | Complete | Expire) -> tuple[int, int]:
    return command.producer_id, command.epoch


def _goes_on(one: TransactionalId, last: LastEnd) -> bool:
    """Whether the holder of the transaction before has the present one, too."""
    return last.how != "fenced" and not one.registered_since


def _completed(one: TransactionalId, last: LastEnd) -> Decided:
    following = one.pair if _goes_on(one, last) else (last.producer_id, last.epoch)
    return Decided(last.committed, True, last.how, *following)


def _registered(one: TransactionalId) -> Registered:
    return Registered(one.producer_id, one.epoch, one.timeout_ms, one.last)


def _ended(one: TransactionalId) -> Declined:
    """The present transaction is decided already."""
    if one.how == "fenced":
        return Declined("fenced", f"another holder wants {one.name!r}: the transaction is being aborted")
    last = LastEnd(one.producer_id, one.epoch, one.state is State.PREPARE_COMMIT, one.how)
    return Declined("ended", _how_it_ended(one.name, last))


def _how_it_ended(name: str, last: LastEnd) -> str:
    what = "was committed" if last.committed else "was aborted"
    why = ", since its time was over" if last.how == "timeout" else ""
    return f"the transaction of producer {last.producer_id}, epoch {last.epoch}, of {name!r} {what}{why}"
