"""Links that take events away in a group's name, or for a durable terminus: egress with claims.

Problem: whether the link may read is decided elsewhere, and may change at any moment: it is outbid, asked to let go, or
its partition moves to another leader, and each must end, or go on, in its own way.
Rules never broken:
 - a link that was ousted is closed at once, with credit or without, and sends nothing more;
 - a link that is asked to let go sends nothing more, may settle what it was sent, and closes without an error (ES-36);
 - the claims end as the link did (`owned_partition.py`), unless its peer was told to attach again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from holdfast import protocol
from holdfast.amqp import SenderLink, Settlements, Source, offset_text, symbol
from holdfast.amqp.errors import CONNECTION_FORCED, DETACH_FORCED, LINK_REDIRECT
from node.client_transactions.transaction import StagedPosition
from node.listener import errors
from node.listener.attach.link_plan import LinkPlan
from node.listener.endpoint import EndpointHost
from node.listener.errors import Refused
from node.listener.outgoing.consumer_groups.durable_start import resumed
from node.listener.outgoing.consumer_groups.owned_partition import OwnedPartition
from node.listener.outgoing.consumer_groups.ownership_claims import claim_all, let_go
from node.listener.outgoing.outgoing_link import OutgoingLink
from node.listener.outgoing.partition_cursor import PartitionCursor
from node.partition.api import Earliest, Latest, ReaderClaim, ReadError, Start
from node.partition.consumer_groups.group_state import NOTHING, End

SETTLE_WAIT_S = 1.0
"""Time for a member that is asked to let go of a partition to settle its deliveries."""

LET_GO_S = 5.0
"""Time for it to answer that its link is closed; then the partition is given away all the same."""

ATTACH_AGAIN = frozenset({LINK_REDIRECT, DETACH_FORCED, CONNECTION_FORCED})
"""Errors that make a peer attach again: its claims wait for it."""

OWNERSHIP_LOST = ("stolen", "lapsed", "revoked")


class GroupLink(OutgoingLink):
    def __init__(
        self,
        host: EndpointHost,
        link: SenderLink,
        plan: LinkPlan,
        starts: dict[str, Start],
        held: Mapping[str, OwnedPartition],
    ) -> None:
        """`held`: the claim on each partition."""
        assert plan.membership is not None
        self._membership = plan.membership
        self._held = dict(held)
        self._letting_go: asyncio.TimerHandle | None = None
        self._patient = True
        self._claiming: set[str] = set()
        super().__init__(host, link, plan, starts)

    # ------------------------------------------------------------------------------------------------- what is told

    def _source(self) -> Source:
        source, asked = super()._source(), self.link.remote_source
        if not self._membership.durable or not isinstance(asked, Source):
            return source
        return replace(source, durable=asked.durable, expiry_policy=asked.expiry_policy, timeout_s=asked.timeout_s)

    def _properties(self) -> dict[str, object]:
        told = super()._properties()
        if self.plan.partition is None:
            return told
        owned = self._held[self.plan.partition]
        told[protocol.LINK_CLAIM] = owned.owner.claim
        if owned.continued:
            told[protocol.LINK_CONTINUED] = True
        if self._membership.group is not None:
            told[protocol.LINK_CONSUMER_GROUP] = self._membership.group
            told[protocol.LINK_EPOCH] = owned.epoch
        if owned.position > 0:
            told[protocol.LINK_POSITION] = symbol(offset_text(owned.position - 1))
        return told

    # ------------------------------------------------------------------------------------------------- reading

    def _owner(self, partition: str) -> ReaderClaim | None:
        return self._held[partition].owner

    def _cursor(self, partition: str, latest: Start | None) -> PartitionCursor:
        """A cursor that resumes at the position of the group or terminus, if resuming is asked for and the position is
        further. For a peer that returns to a durable source that position is `@latest`: the end at its first attach is
        done."""
        position = self._held[partition].start if self._membership.resume else None
        if position is not None and self._membership.durable and self._selection.needs_latest:
            latest = position
        cursor = super()._cursor(partition, latest)
        if position is not None:
            begin = self._selection.start  # where the filter begins, not where `@latest` was found to be
            cursor.start = resumed(begin if isinstance(begin, Latest) else cursor.start, position)
        return cursor

    def _partition_made(self, partition: str) -> None:
        if partition not in self._claiming:
            self._claiming.add(partition)
            self.host.spawn(self._claim_more(partition))

    async def _claim_more(self, partition: str) -> None:
        held: dict[str, OwnedPartition] = {}
        try:
            held = await claim_all(self.host, self.link, self.plan, [partition])
            if self._membership.durable and held[partition].position == NOTHING:
                await held[partition].fix_position(0)
        except KeyError:
            self.leave(errors.log_deleted(self.plan.log))
            return
        except Refused as refusal:
            let_go(held)
            self.leave(refusal.error)
            return
        if self.leaving or not self.link.alive:
            let_go(held)
            return
        self._held |= held
        self._cursors.append(self._cursor(partition, Earliest()))
        self._reopen()

    def _sent(self, cursor: PartitionCursor, numbers: range, runs: list[tuple[int, int]]) -> None:
        super()._sent(cursor, numbers, runs)
        self._held[cursor.partition].sent(numbers, runs, self.link.presettled)

    def on_settlements(self, event: Settlements) -> None:
        super().on_settlements(event)
        self.maybe_close()

    def _settled(self, numbers: Sequence[int]) -> None:
        super()._settled(numbers)
        for owned in self._held.values():
            owned.settled(numbers)

    def given_back(self, number: int) -> None:
        for owned in self._held.values():
            owned.given_back(number)

    def staged_positions(self, numbers: Sequence[int]) -> Iterable[StagedPosition]:
        for owned in self._held.values():
            position = owned.position_with(numbers)
            if position is not None:
                group = self.plan.broker.raft_group(self.plan.log, owned.partition)
                yield StagedPosition(group, owned.owner.key, owned.owner.claim, position)

    def committed(self, numbers: Sequence[int]) -> None:
        super().committed(numbers)
        for owned in self._held.values():
            owned.moved(numbers)
        self.maybe_close()

    # ------------------------------------------------------------------------------------------------- losing it

    def pump(self) -> bool:
        """Send, after looking at failed readers even without credit: an ousted link must go, and an owner must be seen
        at the new leader before its lease is over."""
        for cursor in list(self._ready):
            error = None if cursor.reader is None else cursor.reader.error
            if error is not None:
                self._reader_failed(cursor, error)
        return super().pump()

    def _reader_failed(self, cursor: PartitionCursor, why: ReadError) -> None:
        if why.kind not in OWNERSHIP_LOST:
            super()._reader_failed(cursor, why)
            return
        cursor.drop_reader()
        self._ready.pop(cursor, None)
        if why.kind == "stolen":
            self.leave(errors.stolen(why, self.plan.log, cursor.partition))
        elif why.kind == "lapsed":  # this node was out of touch for long
            self.leave(errors.lapsed(why, self.plan.log, cursor.partition))
        else:
            self._letting_go = asyncio.get_running_loop().call_later(SETTLE_WAIT_S, self._settled_enough)
            self.leave(None)

    def _settled_enough(self) -> None:
        self._letting_go = asyncio.get_running_loop().call_later(LET_GO_S, self._end_claims)
        self._patient = False
        self.maybe_close()

    @property
    def idle(self) -> bool:
        """True unless the link was asked to let go and may still settle its deliveries."""
        if not self._patient or self._letting_go is None:
            return True
        return all(owned.all_settled for owned in self._held.values())

    def _end_claims(self) -> None:
        how: End | None = self.ended
        if self.leaving:
            moving = not self._going
            again = self._farewell is not None and self._farewell.condition in ATTACH_AGAIN
            how = None if moving or again else End.RELEASED
        for owned in self._held.values():
            owned.end(how)

    def gone(self) -> None:
        self._end_claims()
        if self._letting_go is not None:
            self._letting_go.cancel()
        super().gone()
