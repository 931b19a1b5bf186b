"""Owners of consumer groups at a partition's leader: their readers, their leases and their revocation.

The problem: `group_state.py` decides which claim may read, but not whether its owner is still alive; an entry a second
that says "alive" would cost too much. The rule never broken: a claim is ended for silence only by a leader that has
itself waited a whole lease for it, and the end is a command like any other. So after a failover every owner is taken
for alive; the owner's node opens its reader again in the name of its claim, or the owner attaches again by the same
link name, and goes on.

An owner is alive while it has a reader here. A gateway's reader depends on a stream from its node, and ends with it;
the node that serves a link reports a dead socket at once (`EndClaim`), so the lease is waited for only when a whole
node fell silent.

A reader is cut off in the same turn in which its claim stops being in force, before the new owner learns that it is
one. Until a deposed leader learns that it was deposed, it may hand out events that their owner cannot commit.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Awaitable, Callable

import msgspec

from cluster.raft import NotLeader, Outcome, Overloaded
from node.partition.api import Failed, ReadError
from node.partition.consumer_groups.group_queries import (
    Assign,
    Assigned,
    GroupAnswer,
    GroupList,
    GroupQuestion,
    GroupRow,
    ListGroups,
    ReaderClaim,
    Revoke,
)
from node.partition.consumer_groups.group_state import (
    Claim,
    Commit,
    ConsumerGroup,
    Delete,
    Denied,
    Done,
    End,
    EndClaim,
    GroupCommand,
    GroupTable,
    NoteCheckpoint,
    NoteOwner,
    Ousted,
    Owned,
    OwnerNoted,
)
from node.partition.partition_commands import encode_group_command
from node.partition.raft_group import Proposer, propose
from node.partition.reader import LocalReader

log = logging.getLogger(__name__)

ENDS_AT_ONCE = 64
"""Claims that the leader ends in one look, half a second after the other: a peer may have had ten thousand, and each is
an entry."""

ENDS_TOLD = 4
"""Ended claims of one look that are logged."""


class OwnershipLeases:
    def __init__(self, partition: str, ownership: Callable[[], GroupTable], lease_s: float) -> None:
        self._partition = partition
        self._ownership = ownership
        self._lease_s = lease_s
        self._readers: dict[int, LocalReader] = {}  # by claim
        self._claims: dict[LocalReader, int] = {}
        self._guests: dict[LocalReader, str] = {}  # without a claim, and the group that must have none
        self.on_assign: Callable[[Assign], Awaitable[Assigned | Failed]] | None = None
        """Adviser of the members of groups, see `node/partition/consumer_groups/assignor.py`; the node sets it."""
        self._silent_since: dict[int, float] = {}  # by claim, on the leader's own clock

    # ------------------------------------------------------------ readers

    def register(self, owner: ReaderClaim, reader: LocalReader) -> None:
        """Add a reader of a claim, or let it fail if the claim is not in force; a guest, if one is."""
        if not owner.claim:
            self._guests[reader] = owner.key
            self.end_guests()
            return
        if not self._ownership().holds(owner.key, owner.claim):
            row = self._ownership().get(owner.key)
            reader.fail(_stolen(owner.key, owner.claim, row.epoch if row is not None and row.active else None))
            return
        earlier = self._readers.pop(owner.claim, None)
        if earlier is not None:  # of a stream that has ended, as this node has yet to hear
            self.forget(earlier)
            earlier.fail(ReadError("stolen", f"claim {owner.claim} is read over another stream", False))
        self._readers[owner.claim] = reader
        self._claims[reader] = owner.claim
        self._silent_since.pop(owner.claim, None)

    @property
    def has_guests(self) -> bool:
        return bool(self._guests)

    def end_guests(self) -> None:
        """End the readers without a claim whose group has one now."""
        for reader, key in list(self._guests.items()):
            row = self._ownership().get(key)
            if row is not None and row.active:
                del self._guests[reader]
                reader.fail(_stolen(key, 0, row.epoch))

    def forget(self, reader: LocalReader) -> None:
        self._guests.pop(reader, None)
        claim = self._claims.pop(reader, None)
        if claim is not None and self._readers.get(claim) is reader:
            del self._readers[claim]

    def ousted(self, effect: Ousted) -> None:
        reader = self._readers.get(effect.claim)
        if reader is not None:
            self.forget(reader)
            reader.fail(_stolen(effect.key, effect.claim, effect.epoch))

    def not_leading(self) -> None:
        self._readers.clear()
        self._claims.clear()
        self._guests.clear()
        self._silent_since.clear()

    # ------------------------------------------------------------ questions

    async def ask(
        self, group: Proposer, question: GroupQuestion, now_ms: int, ends: tuple[int, int]
    ) -> GroupAnswer | Failed:
        """Answer as leader. `ends`: the partition's start offset and next offset."""
        match question:
            case ListGroups():
                return self._list(question, *ends)
            case Assign() if self.on_assign is not None:
                return await self.on_assign(question)
            case Revoke():
                return self._revoke(question)
            case Claim():
                row = self._ownership().get(question.key)
                gone = row.claim if row is not None and row.active and row.claim not in self._readers else 0
                return await _propose(group, msgspec.structs.replace(question, gone=gone, timestamp_ms=now_ms))
            case EndClaim() | Commit() | Delete() | NoteOwner() | NoteCheckpoint():
                return await _propose(group, msgspec.structs.replace(question, timestamp_ms=now_ms))
        return Failed("rejected", False, f"a partition cannot answer {question}")

    def _list(self, question: ListGroups, start_offset: int, next_offset: int) -> GroupList:
        ownership = self._ownership()
        if question.key:
            row = ownership.get(question.key)
            found = [] if row is None else [row]
        else:
            rows = [row for row in ownership.rows() if not row.is_terminus]
            first = bisect_right(rows, question.after, key=lambda row: row.key)
            found = rows[first : first + question.limit]
        return GroupList([self._row(row) for row in found], start_offset, next_offset)

    def _row(self, row: ConsumerGroup) -> GroupRow:
        return GroupRow(
            key=row.key,
            epoch=row.epoch,
            claim=row.claim,
            active=row.active,
            present=row.active and row.claim in self._readers,
            member=row.member,
            identity=row.identity,
            position=row.position,
            position_ms=row.position_ms,
            touched_ms=row.touched_ms,
            owner=row.owner,
            owner_revision=row.owner_revision,
            owner_ms=row.owner_ms,
        )

    def _revoke(self, question: Revoke) -> GroupAnswer:
        reader = self._readers.get(question.claim)
        if reader is None:
            return Denied("not-owner", f"claim {question.claim} has no reader here")
        self.forget(reader)
        self._silent_since.pop(question.claim, None)  # it has a lease to let go in
        detail = f"partition {self._partition!r} is given to another member of group {question.key!r}"
        reader.fail(ReadError("revoked", detail, False))
        return Done(-1)

    # ------------------------------------------------------------ silence

    def check(self, group: Proposer, now_s: float, now_ms: Callable[[], int]) -> None:
        """End the claims of owners that were silent for a lease. The leader calls it every half second or so."""
        silent = {row.claim: row for row in self._ownership().active if row.claim not in self._readers}
        for claim in [claim for claim in self._silent_since if claim not in silent]:
            del self._silent_since[claim]
        over = [c for c in silent if now_s - self._silent_since.setdefault(c, now_s) >= self._lease_s]
        for number, claim in enumerate(over[:ENDS_AT_ONCE]):
            row = silent[claim]
            self._silent_since[claim] = now_s
            if number < ENDS_TOLD:
                log.info(
                    "partition %s: %s is silent for %g s: its claim %d for %r ends, the first of %d",
                    self._partition, row.member, self._lease_s, claim, row.key, len(over) - number,
                )  # fmt: skip
            try:
                group.propose(encode_group_command(EndClaim(row.key, claim, End.LOST, now_ms())), _unheard)
            except (NotLeader, Overloaded) as error:  # the next lease, here or elsewhere, tries again
                log.debug("partition %s: the end of claim %d was not proposed: %s", self._partition, claim, error)


async def _propose(group: Proposer, command: GroupCommand) -> GroupAnswer | Failed:
    result = await propose(group, encode_group_command(command), "the partition")
    if isinstance(result, Owned | Done | OwnerNoted | Denied | Failed):
        return result
    return Failed("rejected", False, f"the partition did not do it: {result}")


def _stolen(key: str, claim: int, epoch: int | None) -> ReadError:
    if epoch is None:
        return ReadError("lapsed", f"claim {claim} for {key!r} has ended", False)
    return ReadError("stolen", f"{key!r} was claimed by another receiver, epoch {epoch}", False)


def _unheard(outcome: Outcome) -> None:
    """Ignore the outcome: no caller waits for it."""
