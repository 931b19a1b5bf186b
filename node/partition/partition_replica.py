"""One partition on this node: the Raft state machine, the way in, and the ways out.

The problem: what the pure machine decides has to meet a disk, callers and readers, without losing purity or speed. The
rules: `apply` writes the machine's effects into the batch of the turn and nothing else; all callers of one entry are
answered after it is applied; what this node may say as leader it says only while it leads.

The replica is made before its Raft group, which restores it: make it, give it to `MultiRaft.open_group`, then `bind`
the group. The node calls `flush` right before each turn, for the replicas that asked through `on_dirty`.

Rejected: keeping the records in a table of their own when they are applied (everything is written twice; the entry in
the Raft log *is* the data).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable

from cluster.features import Features
from cluster.raft import Disk, DiskBatch, NotLeader
from holdfast.records.codec import Codec
from holdfast.records.record_batch import Damaged, RecordBatch
from node.partition.api import (
    After,
    AfterTime,
    Answer,
    Earliest,
    Failed,
    Latest,
    PartitionDescription,
    ProducerInfo,
    ProducerOpened,
    ProducerRequest,
    Question,
    ReadError,
    ReadErrorKind,
    Start,
    Unconfirmed,
)
from node.partition.appender import REFUSALS, Appender
from node.partition.consumer_groups.group_queries import ListGroups, ReaderClaim
from node.partition.consumer_groups.group_state import Denied, GroupTable, Ousted, Owned
from node.partition.consumer_groups.ownership_leases import OwnershipLeases
from node.partition.entries.entry_dump import dump
from node.partition.entries.entry_queries import AskFate, DumpEntries
from node.partition.entries.unknown_outcome import fate
from node.partition.idempotence import producer_init
from node.partition.idempotence.producer_init import Watches
from node.partition.leader_queries import TransactionQuestion
from node.partition.limits import PartitionLimits
from node.partition.offset_index import IndexRow, OffsetIndex, group_range
from node.partition.partition_commands import Trim
from node.partition.raft_entry import batch_at
from node.partition.raft_group import GroupLike, confirm_leadership
from node.partition.reader import BatchCache, LocalReader
from node.partition.retention import Trimmer
from node.partition.state_machine import (
    AppendRejected,
    Fence,
    ForgetBelow,
    IndexBatch,
    PartitionMachine,
    Result,
    StableOffsetMoved,
)
from node.partition.transactions.participant import Participant
from node.partition.transactions.transaction_queries import ListTransactions
from node.storage.errors import StorageDamaged

log = logging.getLogger(__name__)


class PartitionReplica:
    """`cluster.raft.StateMachine` and `PartitionHandle` of one partition.

    `now_ms` is the leader's clock (milliseconds since 1970). `on_role_change` and `on_damaged` are the node's to set.
    """

    def __init__(
        self,
        partition: str,
        group_id: int,
        disk: Disk,
        now_ms: Callable[[], int],
        *,
        limits: PartitionLimits | None = None,
        on_dirty: Callable[[PartitionReplica], None] | None = None,
        features: Features | None = None,
    ) -> None:
        self.partition = partition
        self.group_id = group_id
        self.limits = limits or PartitionLimits()
        self.on_role_change: Callable[[PartitionReplica], None] | None = None
        self.on_damaged: Callable[[PartitionReplica, Exception], None] | None = None
        self.features = features or Features()
        """Features that a leader may use in what it proposes."""
        self._on_dirty = on_dirty
        self._machine = PartitionMachine()
        self._index = OffsetIndex(group_id, disk)
        self._group: GroupLike | None = None
        self._closed: Failed | None = None
        self._counted_time = False  # at the last tick; what is over by then has to be cleared away
        self._now_ms = now_ms
        self._watches = Watches()
        self.owning = OwnershipLeases(partition, lambda: self._machine.ownership, self.limits.owner_lease_s)
        self.taking_part = Participant(partition, lambda: self._machine, now_ms)
        self.cache = BatchCache(self.limits.cache_bytes)
        self._appender = Appender(
            partition, self.limits, now_ms, self.cache, self._dirty, self.taking_part.stands_in_the_way
        )
        self.append = self._appender.append  # events go there at once
        self._readers: set[LocalReader] = set()
        self._trimmer = Trimmer(partition, lambda: self._machine, self._index)

    # ------------------------------------------------------------ life

    def bind(self, group: GroupLike) -> None:
        """Attach the Raft group. It may have been restored with entries that it was already told to trim."""
        self._group = group
        self._appender.bind(group)
        group.on_role_change = self._role_changed
        trimmed = self._machine.state.trimmed_index
        if trimmed >= group.first_index:
            group.trim(trimmed)

    @property
    def group(self) -> GroupLike:
        if self._group is None:
            raise RuntimeError(f"partition {self.partition} was used before its Raft group was bound")
        return self._group

    def close(self, *, deleted: bool = False) -> None:
        """Close the replica. Idempotent. Callers that wait are told that the log is gone (`deleted`), or to look for
        another leader."""
        if self._closed is not None:
            return
        what = "was deleted" if deleted else "is being closed on this node"
        self._closed = Failed("deleted" if deleted else "not_leader", not deleted, f"partition {self.partition} {what}")
        self._appender.close(self._closed)
        self.taking_part.not_leading()
        self._end_readers(_read_error(self._closed))

    def _role_changed(self, _: object) -> None:
        group = self.group
        if not group.is_leader:
            failure = self._appender.not_leader(group.leader)
            self._appender.fail_waiting(failure)
            self._end_readers(_read_error(failure))
            self.owning.not_leading()
            self.taking_part.not_leading()
            self._trimmer.not_leading()
        if self.on_role_change is not None:
            self.on_role_change(self)

    def _end_readers(self, error: ReadError) -> None:
        for reader in list(self._readers):
            reader.fail(error)
        self._readers.clear()
        self.cache.clear()

    # ------------------------------------------------------------ StateMachine

    def apply(self, index: int, term: int, data: bytes, batch: DiskBatch) -> Result:
        result, effects = self._machine.apply(index, data)
        for effect in effects:
            if isinstance(effect, IndexBatch):
                self._index.put(effect, batch)
                if self._readers:
                    self._wake_readers()
            elif isinstance(effect, StableOffsetMoved):
                self._wake_readers()
            elif isinstance(effect, Fence):
                self._watches.tell(effect)
            elif isinstance(effect, Ousted):
                self.owning.ousted(effect)
            else:
                self._forget(effect, batch)
        if self.owning.has_guests and isinstance(result, Owned):
            self.owning.end_guests()
        for refused in result if isinstance(result, tuple) else (result,):
            if isinstance(refused, AppendRejected):
                level = logging.INFO if refused.code in REFUSALS else logging.WARNING  # a producer's fault, or ours
                where = (self.partition, self.group_id, term)
                log.log(level, "partition %s (group %d), term %d: %s", *where, refused.detail)
        return result

    def _forget(self, effect: ForgetBelow, batch: DiskBatch) -> None:
        self._index.forget(effect, batch)
        if self._group is not None:
            self._group.trim(effect.index)
        log.info(
            "partition %s (group %d): events %d to %d were trimmed", self.partition, self.group_id,
            effect.start_offset, effect.offset - 1,
        )  # fmt: skip

    def _wake_readers(self) -> None:
        for reader in list(self._readers):
            reader.more()

    def checkpoint(self, version: int) -> bytes:
        return self._machine.checkpoint(version)

    def rows(self) -> list[tuple[bytes, bytes]]:
        return [group_range(self.group_id)]

    def rows_copied(self, batch: DiskBatch) -> None:
        self._index.forget_below(self._machine.state.start_offset, batch)

    def restore(self, index: int, data: bytes | None) -> None:
        """Take in a checkpoint: when the group is made, and when a snapshot replaces this replica's state."""
        self._machine.restore(data)
        assert self._machine.state.applied_index <= index, "a checkpoint from the future"
        if self._group is not None:
            self._index.restored()
            if self._machine.state.trimmed_index >= self._group.first_index:
                self._group.trim(self._machine.state.trimmed_index)

    def digest(self) -> str:
        """Hash of the state, equal on all replicas that applied the same entries."""
        return hashlib.sha256(self._machine.checkpoint()).hexdigest()[:16]

    # ------------------------------------------------------------ who leads, how far

    @property
    def is_leader(self) -> bool:
        """True if this node leads, and has applied all that earlier leaders committed."""
        group = self._group
        return group is not None and self._closed is None and group.is_leader and group.ready

    @property
    def leader(self) -> int | None:
        return self._group.leader if self._group is not None else None

    @property
    def start_offset(self) -> int:
        return self._machine.state.start_offset

    @property
    def next_offset(self) -> int:
        return self._machine.state.next_offset

    @property
    def stable_offset(self) -> int:
        return self._machine.stable_offset

    def is_aborted(self, transaction: tuple[int, int], offset: int) -> bool:
        return self._machine.transactions.is_aborted(transaction, offset)

    @property
    def proposed_bytes(self) -> int:
        """Bytes of records in entries that have no outcome yet."""
        return self._appender.proposed_bytes

    @property
    def in_flight_bytes(self) -> int:
        """Bytes of records taken and not yet answered."""
        return self._appender.in_flight_bytes

    async def info(self) -> PartitionDescription:
        """Describe the partition. The leader's word includes all that was known before; another replica tells its own
        state, and the leader. Raises Unconfirmed when this node believes that it leads and no majority confirms it; or
        when it closes its replica, which then asks no other node."""
        if self._closed is not None:
            raise Unconfirmed(f"{self._closed.detail}; ask again")
        if self.group.is_leader and not await confirm_leadership(self.group):
            raise Unconfirmed(f"this node has just lost the leadership of partition {self.partition}; ask again")
        return self.info_now()

    @property
    def stored_bytes(self) -> int:
        """Bytes of the events that retention has left."""
        return self._machine.state.total_bytes - self._machine.state.trimmed_bytes

    def info_now(self) -> PartitionDescription:
        state = self._machine.state
        stored = state.next_offset - state.start_offset
        return PartitionDescription(
            partition=self.partition,
            earliest_offset=state.start_offset if stored else None,
            latest_offset=state.next_offset - 1 if stored else None,
            next_offset=state.next_offset,
            events=stored,
            bytes=self.stored_bytes,
            leader=self.leader,
            replicas=tuple(self.group.members),
            last_timestamp_ms=state.last_timestamp_ms if stored else None,
            stable_offset=self.stable_offset,
            open_transactions=len(self._machine.transactions.open()),
            aborted_transactions=self._machine.transactions.aborted,
        )

    # ------------------------------------------------------------ in

    def flush(self) -> None:
        """Propose the gathered batches. The node calls it right before a turn of the host."""
        self._appender.flush()

    def refuse_appends(self, reason: Failed | None) -> None:
        """Refuse appends, since the node has no room for more (`kind="disk_full"`), or take them again (None). Reading
        goes on."""
        self._appender.refuse = reason

    def compress(self, codec: Codec) -> None:
        """Set the log's compression for entries that are proposed from now on; older ones stay as they are."""
        self._appender.compression = codec

    def _dirty(self) -> None:
        if self._on_dirty is not None:
            self._on_dirty(self)

    # ------------------------------------------------------------ producers

    async def open_producer(self, wish: ProducerRequest) -> ProducerOpened | Failed:
        return self._closed or await producer_init.open_producer(self.group, wish, self._now_ms())

    def watch_producer(self, producer_id: int, stolen: Callable[[int], None]) -> Callable[[], None]:
        return self._watches.add(producer_id, stolen)

    async def producers(self, after: int, limit: int) -> list[ProducerInfo]:
        if not self.is_leader or not await confirm_leadership(self.group):
            raise NotLeader(self.leader)
        return producer_init.describe(self._machine.producers, after, limit)

    # ------------------------------------------------------------ consumer groups

    @property
    def groups(self) -> GroupTable:
        """Consumer groups as applied here; to be looked at, on the leader."""
        return self._machine.ownership

    def age_ms(self, offset: int) -> int:
        """Age of the event at an offset, or of the first later one that is stored, in milliseconds. Costs a read of the
        index."""
        rows = self._index.rows_from(max(offset, self.start_offset), 1)
        return max(0, self._now_ms() - rows[0].timestamp_ms) if rows else 0

    async def ask(self, question: Question) -> Answer | Failed:
        if self._closed is not None or not self.is_leader:
            return self._closed or self._appender.not_leader(self.group.leader)
        if _must_be_current(question) and not await confirm_leadership(self.group):
            return self._appender.not_leader(self.group.leader)
        if isinstance(question, AskFate):
            return fate(self.group, question)
        if isinstance(question, DumpEntries):
            return self._dump(question)
        if isinstance(question, TransactionQuestion):
            return await self.taking_part.ask(self.group, question)
        answer = await self.owning.ask(self.group, question, self._now_ms(), (self.start_offset, self.next_offset))
        if isinstance(answer, Denied) and answer.code == "deciding":
            self.taking_part.claim_waits(question.key)
        return answer

    def _dump(self, question: DumpEntries) -> Answer:
        state = self._machine.state

        def row_of(index: int, at: int) -> IndexRow | None:
            def reached(row: IndexRow) -> bool:
                return (row.entry_index, row.at) >= (index, at)

            return self._index.first_row(state.start_offset, state.next_offset, reached)

        if question.offset >= 0:
            rows = self._index.rows_from(max(question.offset, state.start_offset), 1)
            stored = rows and question.offset < state.next_offset
            after = rows[0].entry_index - 1 if stored else self.group.applied_index
            question = DumpEntries(max(question.after, after), question.limit)
        return dump(self.group, question, row_of)

    def tick(self, now_s: float) -> None:
        """End claims of silent owners, and ask about transactions that are open too long, if this node leads. Called
        about twice a second: most of many partitions have neither."""
        counts_time = self._machine.counts_time
        if (counts_time or self._counted_time) and self.is_leader:
            self._counted_time = counts_time
            self.owning.check(self.group, now_s, self._now_ms)
            self.taking_part.check(self.group, now_s)

    # ------------------------------------------------------------ out

    def open_reader(
        self, start: Start, wake: Callable[[], None], owner: ReaderClaim | None = None, *, uncommitted: bool = False
    ) -> LocalReader:
        """Open a reader, for which this node only has to believe that it leads. Only committed events are read, and
        none of them is passed over. So a leader that has not applied everything yet, or was deposed, delivers late and
        never wrongly: a reader that is to begin beyond its end waits there. What must not be old is asked of `info`
        before, which a majority confirms: where `@latest` is, and how far a drain goes. An owner's reader needs the
        claims of earlier leaders."""
        after_ms = start.timestamp_ms if isinstance(start, AfterTime) else None
        reader = LocalReader(self, self.seek(start, uncommitted=uncommitted), after_ms, wake, uncommitted=uncommitted)
        if self._closed is not None:
            reader.error = _read_error(self._closed)
        elif not self.group.is_leader or (owner is not None and not self.group.ready):
            reader.error = _read_error(self._appender.not_leader(self.group.leader))
        else:
            self._readers.add(reader)
            self.cache.is_used = True
            if owner is not None:
                self.owning.register(owner, reader)
        return reader

    def forget_reader(self, reader: LocalReader) -> None:
        self._readers.discard(reader)
        self.owning.forget(reader)
        if not self._readers:
            self.cache.clear()

    def seek(self, start: Start, *, uncommitted: bool = False) -> int:
        """The offset at which reading from `start` begins."""
        state = self._machine.state
        match start:
            case Earliest():
                return state.start_offset
            case Latest():
                return state.next_offset if uncommitted else self.stable_offset
            case After(offset):
                return max(state.start_offset, offset + 1)
            case AfterTime(timestamp_ms, offset):
                row = self._index.first_row(
                    state.start_offset, state.next_offset, lambda row: row.timestamp_ms > timestamp_ms
                )
                return max(offset + 1, state.next_offset if row is None else row.base_offset)

    def read(self, offset: int, max_bytes: int) -> list[RecordBatch]:
        """Replicated batches from `offset` on, whatever became of their transactions, or from the start offset if it
        lies below; [] at the tail.

        Raises:
            Damaged: a batch cannot be read on this node.
        """
        reader = LocalReader(self, offset, None, _nobody, uncommitted=True)
        found = reader.poll(1 << 62, max_bytes)
        if reader.error is not None:
            raise Damaged(reader.error.detail)
        return found

    def rows_from(self, offset: int) -> list[IndexRow]:
        return self._index.rows_from(offset, self.limits.rows_ahead)

    def load(self, row: IndexRow) -> RecordBatch | None:
        cached = self.cache.get(row.base_offset)
        if cached is not None:
            return cached
        try:
            _, entry = self.group.entry(row.entry_index)
            stored, wanted = batch_at(entry, row.at), row.skip + row.events
            if len(stored) != wanted:
                raise Damaged(f"a batch of entry {row.entry_index} holds {len(stored)} records, not {wanted}")
        except KeyError:
            return None
        except (Damaged, StorageDamaged) as error:
            raise self._damaged(f"entry {row.entry_index}", error) from error
        batch = stored.placed(row.base_offset - row.skip, row.timestamp_ms, row.skip, row.events)
        behind = self._machine.state.total_bytes - row.bytes_before
        if self.cache.is_used and behind <= self.limits.cache_bytes:  # others at the tail will want it too
            self.cache.add(batch)
        return batch

    def open(self, batch: RecordBatch) -> None:
        try:
            batch.open()
        except Damaged as error:
            raise self._damaged(f"event {batch.offset}", error) from error

    def _damaged(self, where: str, error: Damaged | StorageDamaged) -> Damaged:
        log.critical("partition %s (group %d), %s: %s", self.partition, self.group_id, where, error)
        if self.on_damaged is not None:
            self.on_damaged(self, error)
        return error if isinstance(error, Damaged) else Damaged(str(error))

    # ------------------------------------------------------------ retention

    def enforce_retention(self, now_ms: int, retention_ms: int | None, retention_bytes: int | None) -> Trim | None:
        """Propose a trim if this node leads and events are too old or too many. Cheap when there is nothing to do;
        called every few seconds."""
        if not self.is_leader:
            return None
        return self._trimmer.enforce(self.group, now_ms, retention_ms, retention_bytes)


def _must_be_current(question: Question) -> bool:
    """Tell whether the answer shows a state that others may have changed, if this node was deposed and does not know.
    An answer that an entry decides needs no confirmation, nor does the fate of one, which is final."""
    return isinstance(question, ListTransactions) or (isinstance(question, ListGroups) and question.confirm)


def _read_error(failure: Failed) -> ReadError:
    kind: ReadErrorKind = "deleted" if failure.kind == "deleted" else "not_leader"
    return ReadError(kind, failure.detail, failure.retriable, failure.leader)


def _nobody() -> None:
    """Do nothing: the reader of a single poll waits for nothing."""
