"""State of consumer groups in a partition: the owner of each, its epoch and its position.

The problem: at most one receiver may be active for a partition and a group, whatever happens to the nodes and the
sockets in between; a receiver that was outbid must not come back; and the group's position must outlive all of them.
The rule never broken: a claim is decided here, when its entry is applied, from the state that earlier entries left. The
number of a claim is the index of that entry: later claims have higher numbers, none is given twice, and every action in
the name of a claim (a read, a commit, an end) is compared with the claim in force.

| a claim arrives while                               | and is                                                      |
| --------------------------------------------------- | ----------------------------------------------------------- |
| nobody is active, epoch absent or >= the counter    | granted                                                     |
| nobody is active, epoch below the counter           | refused, `behind`: it was outbid while it was away          |
| the same, Event Hubs' rule                          | granted: that rule knows only of receivers that are there   |
| another is active, epoch above the counter          | granted; the other one is ousted                            |
| another is active, the same epoch, Event Hubs' rule | granted; the other one is ousted                            |
| another is active, anything else                    | refused, `owned`                                            |
| the same link is active, and its leader saw it gone | granted: it continues                                       |

The counter starts at 0, never falls while an outbid owner may come back, and returns to 0 when the owner itself closes
its link for good. An owner whose socket died is not active any more, but its counter stays.

*Active* is what was replicated. Whether an active owner is alive, a leader sees by its reader (`ownership_leases.py`);
a new leader takes every owner for alive until a lease has passed, in its own time, and only then ends the claim by a
command.

A *durable terminus* is kept in the same table, under a key that no group can have: the identity of its link. It has one
owner by nature, so the same identity always takes it over.

Rejected: leases in replicated time (each owner would be an entry every second, and time stands still in a log without
writes); and forgetting epochs when the last link ends (a stale owner would be let back in).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice
from typing import Literal

import msgspec

MAX_GROUPS = 10_000
"""Groups and termini known to one partition: each costs some hundred bytes of every checkpoint."""

MAX_KEY_CHARACTERS = 512
"""Characters of a group's name, or of a link's identity."""

MAX_EPOCH = (1 << 63) - 1

FORGET_MS = 7 * 24 * 3600 * 1000
"""Time after which a group without commits, owner or news is forgotten, and its counter with it."""

NOTHING = -1
"""Value of a position that was not committed, or of an expiry that was not asked for."""

TERMINUS = "\x00"
"""First character of a durable terminus's key; no group has it."""


class End(IntEnum):
    CLOSED = 0  # closed by its receiver, for good: the counter starts again
    RELEASED = 1  # in peace, but not for good: the counter stays
    LOST = 2  # its socket or its node died: the counter stays


# ---------------------------------------------------------------- commands


class Claim(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=1):
    """Claim the partition. `gone`: the claim that the leader, as it proposed this, had no reader for. `equal_takes`:
    Event Hubs' rule. `steal`: for a terminus. `expiry_s`: how long a terminus outlives its link; NOTHING: for ever."""

    key: str
    member: str
    identity: str  # of the link; "": it has none, and cannot continue
    epoch: int | None = None
    equal_takes: bool = False
    steal: bool = False
    expiry_s: int = NOTHING
    gone: int = 0
    timestamp_ms: int = 0


class EndClaim(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=2):
    key: str
    claim: int
    how: int
    timestamp_ms: int = 0


class Commit(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=3):
    """Set the position: everything below is done. An owner's never goes back. Without a claim (an operator's commit)
    any position is set, NOTHING included, but only while no owner is active; the last owner can neither commit nor
    continue after it."""

    key: str
    claim: int
    position: int
    timestamp_ms: int = 0


class Delete(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=4):
    key: str
    timestamp_ms: int = 0


class NoteOwner(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=5):
    """Note the processor of Event Hubs that owns the partition, as its checkpoint store does. This decides among
    processors alone: readers are decided by claims. `expected`: the revision that the processor has read; 0: there must
    be none; NOTHING: any or none. `removed`: forget the ownership."""

    key: str
    owner: str
    expected: int
    removed: bool = False
    timestamp_ms: int = 0


class NoteCheckpoint(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=6):
    """Set the position to what a processor of Event Hubs has noted. It needs no claim, whoever is active, and may go
    back; NOTHING: the group has no position any more."""

    key: str
    position: int
    timestamp_ms: int = 0


GroupCommand = Claim | EndClaim | Commit | Delete | NoteOwner | NoteCheckpoint

# ---------------------------------------------------------------- results and effects


class Owned(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Grant of a claim. `position`: where the group goes on; NOTHING: it has no position yet. `continued`: the same
    link had the claim before this one, so no other read in between."""

    claim: int
    epoch: int
    position: int
    continued: bool = False


class Done(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Success of a command. `position`: that of the group now."""

    position: int


class OwnerNoted(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Success of `NoteOwner`. `revision`: of the ownership now; 0: there is none."""

    revision: int
    noted_ms: int


DenialCode = Literal[
    "owned",
    "behind",
    "not-owner",
    "active",
    "unknown-group",
    "out-of-range",
    "too-many",
    "invalid",
    "revision-changed",  # another processor was faster
    "deciding",  # a transaction that moves the group's position is about to end: try again
]


class Denied(msgspec.Struct, frozen=True, array_like=True, tag=3):
    code: DenialCode
    detail: str


@dataclass(frozen=True, slots=True)
class Ousted:
    """A claim that is not in force any more. `epoch`: that of the claim that took over; None: none did."""

    key: str
    claim: int
    epoch: int | None


class ConsumerGroup(msgspec.Struct, array_like=True):
    """Row of a consumer group or terminus. Fields are only ever added at the end."""

    key: str
    epoch: int = 0
    claim: int = 0  # the last one made
    active: bool = False
    member: str = ""
    identity: str = ""
    position: int = NOTHING
    position_ms: int = 0
    touched_ms: int = 0
    expiry_s: int = NOTHING  # of a terminus
    due_ms: int = NOTHING  # when an inactive row is forgotten, by the time that the log has lived; NOTHING: never
    owner: str = ""  # the processor of Event Hubs
    owner_revision: int = 0  # index of the entry that noted it; 0: none did
    owner_ms: int = 0

    @property
    def is_terminus(self) -> bool:
        return self.key.startswith(TERMINUS)


def lag(position: int, start_offset: int, next_offset: int) -> int | None:
    """Number of events that are stored and not done; None: the group has no position."""
    return None if position == NOTHING else next_offset - min(next_offset, max(position, start_offset))


class GroupTable:
    def __init__(self, rows: Iterable[ConsumerGroup] = (), lived_ms: int = 0) -> None:
        self._lived_ms = lived_ms
        self._rows = {row.key: row for row in sorted(rows, key=lambda row: row.position_ms)}
        self._active = {row.key: row for row in self._rows.values() if row.active}
        self._next_due_ms: int | None = None  # nothing is due before; may be too early, never too late
        self._find_next_due()

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[ConsumerGroup]:
        return iter(self._rows.values())

    @property
    def active(self) -> Collection[ConsumerGroup]:
        return self._active.values()

    def get(self, key: str) -> ConsumerGroup | None:
        return self._rows.get(key)

    def latest(self, most: int) -> Iterator[ConsumerGroup]:
        """The rows that committed last, at most `most`."""
        return islice(reversed(self._rows.values()), most)

    def rows(self) -> list[ConsumerGroup]:
        """Rows by key: equal on equal replicas."""
        return sorted(self._rows.values(), key=lambda row: row.key)

    def holds(self, key: str, claim: int) -> bool:
        row = self._rows.get(key)
        return row is not None and row.active and row.claim == claim

    # ------------------------------------------------------------ apply

    def apply(
        self, command: GroupCommand, index: int, clock_ms: int, next_offset: int
    ) -> tuple[Owned | Done | OwnerNoted | Denied, Ousted | None]:
        if not 0 < len(command.key) <= MAX_KEY_CHARACTERS:
            return Denied("invalid", f"a group's name has 1 to {MAX_KEY_CHARACTERS} characters"), None
        match command:
            case Claim():
                return self._claim(command, index, clock_ms)
            case EndClaim():
                return self._end(command, clock_ms)
            case Commit():
                return self._commit(command, clock_ms, next_offset), None
            case Delete():
                return self._delete(command), None
            case NoteOwner():
                return self._note_owner(command, index, clock_ms), None
            case NoteCheckpoint():
                return self._note_checkpoint(command, clock_ms, next_offset), None

    def _claim(self, wish: Claim, index: int, clock_ms: int) -> tuple[Owned | Denied, Ousted | None]:
        epoch = wish.epoch
        if epoch is not None and not 0 <= epoch <= MAX_EPOCH:
            return Denied("invalid", f"an epoch lies between 0 and {MAX_EPOCH}, not at {epoch}"), None
        row = self._rows.get(wish.key)
        if row is None:
            if len(self._rows) >= MAX_GROUPS:
                return Denied("too-many", f"the partition knows {MAX_GROUPS} groups; delete some"), None
            row = self._rows[wish.key] = ConsumerGroup(wish.key)
        refusal = _judge(row, wish)
        if refusal is not None:
            return refusal, None
        ousted = None
        continued = bool(wish.identity) and wish.identity == row.identity
        if row.active:
            row.epoch = row.epoch if epoch is None else max(row.epoch, epoch)
            ousted = Ousted(row.key, row.claim, row.epoch)
        elif epoch is not None:
            row.epoch = epoch if wish.equal_takes else max(row.epoch, epoch)
        row.claim, row.active, row.member, row.identity = index, True, wish.member, wish.identity
        self._active[row.key] = row
        row.touched_ms, row.expiry_s, row.due_ms = clock_ms, wish.expiry_s, NOTHING
        return Owned(index, row.epoch, row.position, continued), ousted

    def _end(self, command: EndClaim, clock_ms: int) -> tuple[Done | Denied, Ousted | None]:
        row = self._rows.get(command.key)
        if row is None or not row.active or row.claim != command.claim:
            return Denied("not-owner", f"claim {command.claim} is not in force"), None
        row.active, row.touched_ms = False, clock_ms
        del self._active[row.key]
        position = row.position
        if command.how == End.CLOSED:
            row.epoch, row.identity = 0, ""
            if row.is_terminus or (row.position == NOTHING and not row.owner_revision):
                del self._rows[row.key]
            else:
                self._due_if_idle(row)
        elif row.is_terminus and row.expiry_s == 0:
            del self._rows[row.key]
        elif row.is_terminus and row.expiry_s != NOTHING:
            self._due(row, self._lived_ms + 1000 * row.expiry_s)
        elif not row.is_terminus and row.position == NOTHING:
            self._due(row, self._lived_ms + FORGET_MS)
        return Done(position), Ousted(command.key, command.claim, None)

    def _commit(self, command: Commit, clock_ms: int, next_offset: int) -> Done | Denied:
        if not (0 if command.claim else NOTHING) <= command.position <= next_offset:
            told, end = f"{command.position - 1:016x}", f"{next_offset:016x}"
            detail = f"no event of this partition has the offset {told}; the next one gets {end}"
            return Denied("out-of-range", detail)
        row = self._rows.get(command.key)
        if command.claim:
            if row is None or row.claim != command.claim:
                return Denied("not-owner", f"claim {command.claim} was succeeded by another, or let go for good")
            row.position = max(row.position, command.position)
        else:
            if row is not None and row.active:
                return _is_active(row)
            if row is None:
                if len(self._rows) >= MAX_GROUPS:
                    return Denied("too-many", f"the partition knows {MAX_GROUPS} groups; delete some")
                row = self._rows[command.key] = ConsumerGroup(command.key)
            row.position = command.position
            row.claim, row.identity = 0, ""  # later commits of the last owner must not undo it, nor may it go on
        self._committed(row, clock_ms)
        self._due_if_idle(row)
        return Done(row.position)

    def _note_owner(self, wish: NoteOwner, index: int, clock_ms: int) -> OwnerNoted | Denied:
        if len(wish.owner) > MAX_KEY_CHARACTERS:
            return Denied("invalid", f"an owner's name has at most {MAX_KEY_CHARACTERS} characters")
        row = self._rows.get(wish.key)
        revision = 0 if row is None else row.owner_revision
        if wish.expected not in (NOTHING, revision):
            return Denied("revision-changed", f"the ownership has revision {revision}, not {wish.expected}")
        if wish.removed:
            index = 0
        if row is None:
            if wish.removed:
                return OwnerNoted(0, clock_ms)
            if len(self._rows) >= MAX_GROUPS:
                return Denied("too-many", f"the partition knows {MAX_GROUPS} groups; delete some")
            row = self._rows[wish.key] = ConsumerGroup(wish.key)
        row.owner, row.owner_revision = ("" if wish.removed else wish.owner), index
        row.owner_ms = row.touched_ms = clock_ms
        self._due_if_idle(row)
        return OwnerNoted(index, clock_ms)

    def _note_checkpoint(self, command: NoteCheckpoint, clock_ms: int, next_offset: int) -> Done | Denied:
        if not NOTHING <= command.position <= next_offset:
            detail = (
                f"no event of this partition has the offset {command.position - 1}; the next one gets {next_offset}"
            )
            return Denied("out-of-range", detail)
        row = self._rows.get(command.key)
        if row is None:
            if len(self._rows) >= MAX_GROUPS:
                return Denied("too-many", f"the partition knows {MAX_GROUPS} groups; delete some")
            row = self._rows[command.key] = ConsumerGroup(command.key)
        row.position = command.position
        self._committed(row, clock_ms)
        self._due_if_idle(row)
        return Done(row.position)

    def _due_if_idle(self, row: ConsumerGroup) -> None:
        """Let a group without reader and position be forgotten in time."""
        if row.active or row.is_terminus:
            return
        if row.position == NOTHING:
            self._due(row, self._lived_ms + FORGET_MS)
        else:
            row.due_ms = NOTHING

    def commit_staged(self, key: str, claim: int, position: int, clock_ms: int) -> None:
        """Set a position that a committed transaction has staged. No other claim took over since it was prepared, but
        its owner may have let go for good: then the position is the transaction's, and the group has no owner. A
        terminus that is gone stays gone: nothing would come back for it, or ever forget it."""
        row = self._rows.get(key)
        if row is None:
            if key.startswith(TERMINUS):
                return
            row = self._rows[key] = ConsumerGroup(key, claim=claim)
        row.position = max(row.position, position)
        self._committed(row, clock_ms)
        if not row.active and not row.is_terminus:
            row.due_ms = NOTHING

    def _committed(self, row: ConsumerGroup, clock_ms: int) -> None:
        row.position_ms = row.touched_ms = clock_ms
        self._rows[row.key] = self._rows.pop(row.key)  # to the end, for `latest`

    def _delete(self, command: Delete) -> Done | Denied:
        row = self._rows.get(command.key)
        if row is None:
            return Denied("unknown-group", "the partition does not know the group")
        if row.active:
            return _is_active(row)
        del self._rows[command.key]
        return Done(NOTHING)

    # ------------------------------------------------------------ forgetting

    def expire(self, lived_ms: int) -> None:
        """Forget the rows that are due at this lived time of the log: cheap while none is."""
        self._lived_ms = lived_ms
        if self._next_due_ms is None or lived_ms < self._next_due_ms:
            return
        for row in list(self._rows.values()):
            if row.due_ms != NOTHING and row.due_ms <= lived_ms:
                del self._rows[row.key]
        self._find_next_due()

    def _due(self, row: ConsumerGroup, at_ms: int) -> None:
        row.due_ms = at_ms
        if self._next_due_ms is None or at_ms < self._next_due_ms:
            self._next_due_ms = at_ms

    def _find_next_due(self) -> None:
        self._next_due_ms = min((row.due_ms for row in self._rows.values() if row.due_ms != NOTHING), default=None)


def _judge(row: ConsumerGroup, wish: Claim) -> Denied | None:
    """The refusal of a claim; None: it is granted."""
    epoch = wish.epoch
    if epoch is not None and epoch < row.epoch and not wish.steal and (row.active or not wish.equal_takes):
        code: DenialCode = "owned" if row.active else "behind"
        return Denied(code, f"epoch {epoch} is below {row.epoch}, the one in force; claim with a greater one")
    if not row.active:
        return None
    if wish.identity and wish.identity == row.identity and (wish.steal or wish.gone == row.claim):
        return None
    if epoch is not None and (epoch > row.epoch or (wish.equal_takes and epoch == row.epoch)):
        return None
    return Denied("owned", f"{row.member or 'another receiver'} is active with epoch {row.epoch}")


def _is_active(row: ConsumerGroup) -> Denied:
    return Denied("active", f"{row.member or 'a receiver'} is reading for the group; stop the group's receivers first")


def terminus_key(identity: str) -> str:
    return TERMINUS + identity


# ---------------------------------------------------------------- bytes

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(GroupCommand)


def encode_command(command: GroupCommand) -> bytes:
    return _ENCODER.encode(command)


def decode_command(data: bytes) -> GroupCommand:
    """Decode a command. Raises msgspec.DecodeError."""
    return _DECODER.decode(data)
