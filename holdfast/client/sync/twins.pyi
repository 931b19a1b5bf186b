"""Bases of the synchronous clients, as the asyncio classes have their methods: change those.

Written by scripts/docs/sync_stub.py (make reference)."""

from collections.abc import Callable
from collections.abc import Generator
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from holdfast.client.blocks.event_block import EventBlock
from holdfast.client.consume.group_members import Callback
from holdfast.client.consume.range_receiver import RangeOptions
from holdfast.client.consume.zookeeper.ownership import ZooKeeperOwnership
from holdfast.client.errors import HoldfastError
from holdfast.client.events import Event
from holdfast.client.events import ReceivedEvent
from holdfast.client.options import ConsumerOptions
from holdfast.client.options import Isolation
from holdfast.client.options import PartitionPublishingOptions
from holdfast.client.options import PartitionPublishingProperties
from holdfast.client.options import ProducerOptions
from holdfast.client.produce.delivery import DeliveryResult
from holdfast.client.produce.delivery import Done
from holdfast.client.produce.event_batch import EventBatch
from holdfast.client.produce.partition_sender import ProducerStats
from holdfast.client.range_client import PartitionExtent
from holdfast.client.start_position import Start
from holdfast.client.sync.blocking_proxy import Block
from holdfast.client.sync.blocking_proxy import SyncClient
from holdfast.client.sync.blocking_proxy import Twin
from holdfast.client.sync.clients import ConsumerClient
from holdfast.client.sync.clients import Delivery
from holdfast.client.sync.clients import Transaction
from holdfast.client.transact.group_member import GroupNames
from holdfast.client.transact.transaction_manager import LastTransaction
from holdfast.client.transaction_group import Opened
from holdfast.client.transport.log_info import PartitionInfo
from holdfast.client.transport.network import NetworkOptions
from typing import Any
import holdfast.client

class DeliveryBase(Twin[holdfast.client.Delivery]):
    """See `holdfast.client.Delivery`."""
    @property
    def count(self) -> int:
        """Events of it."""
    @property
    def failed(self) -> int:
        """Events of it that were not stored, or may not be; once it is done."""
    @property
    def event(self) -> Event | None:
        """The object that an idempotent producer was given, and which learns its number; None: it was none."""
    @property
    def is_done(self) -> bool: ...
    @property
    def error(self) -> HoldfastError | None:
        """The error with which it failed; None: it has not."""
    @property
    def partition(self) -> str | None:
        """The partition of the first event."""
    @property
    def offset(self) -> int | None:
        """The offset of the first event; None: it is not done, or nobody told."""
    @property
    def sequence_number(self) -> int | None:
        """The number of the first event; None: it is not done, or its producer is not idempotent."""
    @property
    def offset_text(self) -> str | None:
        """The offset as consumers see it."""
    def result(self) -> DeliveryResult:
        """Return or raise the outcome of one that is done."""

class TransactionBase(Block[holdfast.client.Transaction]):
    """See `holdfast.client.Transaction`."""
    def send(
        self,
        event: Event | bytes | str,
        *,
        key: str | None = None,
        partition: str | None = None,
        properties: Mapping[str, Any] | None = None,
        done: Done | None = None,
    ) -> Delivery:
        """Buffer one event, waiting for room if need be. What became of it: await the `Delivery` that is returned, or
        give `done`: it is called with None (confirmed) or with the error. Under a transaction it counts with the
        commit, which waits for all. The next calls of a producer raise what failed where nobody asked, until `flush`
        has."""
    def send_nowait(
        self,
        event: Event | bytes | str,
        *,
        key: str | None = None,
        partition: str | None = None,
        properties: Mapping[str, Any] | None = None,
        done: Done | None = None,
    ) -> Delivery:
        """Buffer one event as `send` does, or raise `BufferFullError`: there is no room, or a transaction has to open
        its link to the partition first."""
    def send_and_confirm(
        self,
        event: Event | bytes | str,
        *,
        key: str | None = None,
        partition: str | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> DeliveryResult:
        """Send one event and return when it is stored; raises if it is not."""
    def send_many(
        self, events: Sequence[Event | bytes | str], *, key: str | None = None, partition: str | None = None
    ) -> Delivery:
        """Buffer these events, waiting for room if need be: what `send` of each does, in the same order, at a fraction
        of its cost where the events are `bytes`. What became of them all: await what is returned. They go to one
        partition, but for events with keys of their own, where none is named. Cancelled while it waits, it has taken
        in the first ones; a transaction that this happens to can only be rolled back."""
    def send_batch(
        self, batch: EventBatch | Sequence[Event | bytes | str], *, partition: str | None = None, key: str | None = None
    ) -> DeliveryResult:
        """Publish a batch, or a list of events, to one partition, and return when all of it is confirmed.

        An idempotent producer publishes it as a whole or raises; after a failure the same batch may be given again, and
        what had arrived is not stored twice. Another one may have stored single events (`UndeliveredError` tells how
        many). Under a transaction all of it counts, or nothing, as of all that is sent there."""
    @property
    def txn_id(self) -> bytes: ...
    @property
    def is_open(self) -> bool:
        """True while events can be sent."""
    @property
    def producer_id(self) -> int | None:
        """Producer id of the transaction; with `epoch`, its name in the cluster."""
    @property
    def epoch(self) -> int | None: ...
    def begin(self) -> None:
        """Begin the transaction; `async with` does it."""
    def abort(self) -> None:
        """Roll the transaction back: none of it counts when this returns."""
    def commit(self) -> None:
        """Commit the transaction: all of it counts when this returns.

        Raises TransactionRolledBackError (do the work again), ProducerFencedError (stop) or
        TransactionOutcomeUnknownError. Cancelling the call leaves the outcome open."""
    def commit_offsets(self, consumer: ConsumerClient) -> None:
        """Add the consumer's positions to the transaction: with its commit the group goes on after the events that the
        consumer has handed out.

        Raises OwnershipLostError if another member has one of the partitions by now, and works on the same events; then
        the transaction can only be rolled back."""

class GroupMember(Block[holdfast.client.GroupMember]):
    """See `holdfast.client.GroupMember`."""
    def send(
        self,
        event: Event | bytes | str,
        *,
        key: str | None = None,
        partition: str | None = None,
        properties: Mapping[str, Any] | None = None,
        done: Done | None = None,
    ) -> Delivery:
        """Buffer one event, waiting for room if need be. What became of it: await the `Delivery` that is returned, or
        give `done`: it is called with None (confirmed) or with the error. Under a transaction it counts with the
        commit, which waits for all. The next calls of a producer raise what failed where nobody asked, until `flush`
        has."""
    def send_nowait(
        self,
        event: Event | bytes | str,
        *,
        key: str | None = None,
        partition: str | None = None,
        properties: Mapping[str, Any] | None = None,
        done: Done | None = None,
    ) -> Delivery:
        """Buffer one event as `send` does, or raise `BufferFullError`: there is no room, or a transaction has to open
        its link to the partition first."""
    def send_and_confirm(
        self,
        event: Event | bytes | str,
        *,
        key: str | None = None,
        partition: str | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> DeliveryResult:
        """Send one event and return when it is stored; raises if it is not."""
    def send_many(
        self, events: Sequence[Event | bytes | str], *, key: str | None = None, partition: str | None = None
    ) -> Delivery:
        """Buffer these events, waiting for room if need be: what `send` of each does, in the same order, at a fraction
        of its cost where the events are `bytes`. What became of them all: await what is returned. They go to one
        partition, but for events with keys of their own, where none is named. Cancelled while it waits, it has taken
        in the first ones; a transaction that this happens to can only be rolled back."""
    def send_batch(
        self, batch: EventBatch | Sequence[Event | bytes | str], *, partition: str | None = None, key: str | None = None
    ) -> DeliveryResult:
        """Publish a batch, or a list of events, to one partition, and return when all of it is confirmed.

        An idempotent producer publishes it as a whole or raises; after a failure the same batch may be given again, and
        what had arrived is not stored twice. Another one may have stored single events (`UndeliveredError` tells how
        many). Under a transaction all of it counts, or nothing, as of all that is sent there."""
    @property
    def txn_id(self) -> bytes: ...
    @property
    def is_open(self) -> bool:
        """True while events can be sent."""
    @property
    def producer_id(self) -> int | None:
        """Producer id of the transaction; with `epoch`, its name in the cluster."""
    @property
    def epoch(self) -> int | None: ...
    def begin(self) -> None:
        """Join the group; `async with` does it. Raises GroupFencedError if it is closed or a newer run has it."""
    def abort(self) -> None:
        """Roll the member back, unless it is prepared. Idempotent."""
    def prepare(self) -> str:
        """Prepare the part, which then waits for the decision of its group; return the member's id for the commit.

        Call it when all of the part is written. Raises TransactionRolledBackError (write the part again, as another
        attempt) or GroupFencedError (stop)."""
    @property
    def prepared(self) -> str | None:
        """The member's id if it is prepared, else None."""

class ProducerClient(SyncClient[holdfast.client.ProducerClient]):
    """See `holdfast.client.ProducerClient`."""
    def __init__(
        self,
        servers: str | Sequence[str],
        log: str,
        options: ProducerOptions | None = None,
        *,
        idempotent: bool | None = None,
        partition_options: Mapping[str, PartitionPublishingOptions] | None = None,
        transactional_id: str | None = None,
    ) -> None:
        """`idempotent`, `partition_options`, `transactional_id`: those of `options`, for short."""
    def send(
        self,
        event: Event | bytes | str,
        *,
        key: str | None = None,
        partition: str | None = None,
        properties: Mapping[str, Any] | None = None,
        done: Done | None = None,
    ) -> Delivery:
        """Buffer one event, waiting for room if need be. What became of it: await the `Delivery` that is returned, or
        give `done`: it is called with None (confirmed) or with the error. Under a transaction it counts with the
        commit, which waits for all. The next calls of a producer raise what failed where nobody asked, until `flush`
        has."""
    def send_nowait(
        self,
        event: Event | bytes | str,
        *,
        key: str | None = None,
        partition: str | None = None,
        properties: Mapping[str, Any] | None = None,
        done: Done | None = None,
    ) -> Delivery:
        """Buffer one event as `send` does, or raise `BufferFullError`: there is no room, or a transaction has to open
        its link to the partition first."""
    def send_and_confirm(
        self,
        event: Event | bytes | str,
        *,
        key: str | None = None,
        partition: str | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> DeliveryResult:
        """Send one event and return when it is stored; raises if it is not."""
    def send_many(
        self, events: Sequence[Event | bytes | str], *, key: str | None = None, partition: str | None = None
    ) -> Delivery:
        """Buffer these events, waiting for room if need be: what `send` of each does, in the same order, at a fraction
        of its cost where the events are `bytes`. What became of them all: await what is returned. They go to one
        partition, but for events with keys of their own, where none is named. Cancelled while it waits, it has taken
        in the first ones; a transaction that this happens to can only be rolled back."""
    def send_batch(
        self, batch: EventBatch | Sequence[Event | bytes | str], *, partition: str | None = None, key: str | None = None
    ) -> DeliveryResult:
        """Publish a batch, or a list of events, to one partition, and return when all of it is confirmed.

        An idempotent producer publishes it as a whole or raises; after a failure the same batch may be given again, and
        what had arrived is not stored twice. Another one may have stored single events (`UndeliveredError` tells how
        many). Under a transaction all of it counts, or nothing, as of all that is sent there."""
    @property
    def log(self) -> str: ...
    @property
    def options(self) -> ProducerOptions: ...
    @property
    def stats(self) -> ProducerStats: ...
    def start(self) -> None:
        """Learn the log's partitions; raises `NotFoundError` when there is no such log. With a `transactional_id`:
        nobody else has it from now on, and what its last holder has left open is rolled back."""
    def close(self) -> None:
        """Take nothing more, wait until everything is confirmed (bounded by the delivery timeout), then let go. Raises
        what failed, and InvalidOperationError if a transaction is open: it is rolled back. Idempotent. A caller that is
        cancelled while it waits stops waiting, first for what is unconfirmed, then for the rest; all is let go
        nevertheless, and a second call waits for that."""
    def abandon(self) -> None:
        """Close without waiting: what is unconfirmed may or may not be stored, and its owners are told. Idempotent."""
    @property
    def partitions(self) -> list[str]:
        """The log's partitions, known after `start`."""
    def partition_of(self, key: str) -> str:
        """Return the partition of events with this key. Known after `start`."""
    @property
    def outstanding(self) -> int:
        """Events that are buffered or on their way, not yet confirmed."""
    @property
    def on_confirmed(self) -> Callable[[str, int], None] | None:
        """Called with a partition and the number of its events just confirmed. What it raises goes to the event loop's
        exception handler, and stops nothing."""
    @on_confirmed.setter
    def on_confirmed(self, callback: Callable[[str, int], None] | None) -> None: ...
    def flush(self) -> None:
        """Return when nothing is outstanding. Raises the first failure that the program has not seen; afterwards events
        are taken in again, and it is for the program to say whether they may stand behind the one that failed.

        Bounded: each event is confirmed, refused, or given up after the delivery timeout without any progress.
        """
    def create_batch(
        self, *, partition: str | None = None, key: str | None = None, max_bytes: int | None = None
    ) -> EventBatch:
        """An empty batch for one partition, for the partition of a key, or for whichever has its turn."""
    def transaction(self) -> Transaction:
        """A transaction, one at a time: `async with` begins it, and leaving the block commits it; an exception rolls it
        back."""
    def member(
        self,
        *,
        writer: str,
        batch: int,
        run: str,
        part: str,
        attempt: str = "",
        lease_s: float = 10.0,
        idle_s: float | None = None,
    ) -> GroupMember:
        """A member of a transaction group (`TransactionGroup`), which writes a part of the batch to this log, over a
        connection of its own; as many as are wanted at a time. `part`: of what has one winner; `attempt` is for people.
        `lease_s`: a process that hangs for so long loses what it has written. `idle_s`: so does a program that asks
        nothing of the member for so long; None: it may take its time."""
    @property
    def last_transaction(self) -> LastTransaction | None:
        """The last transaction of the `transactional_id` and its end, as the node told when the id was taken."""
    def get_partition_publishing_properties(self, partition: str) -> PartitionPublishingProperties:
        """Tell group, level and last published number of this producer in a partition."""

class TransactionGroupBase(SyncClient[holdfast.client.TransactionGroup]):
    """See `holdfast.client.TransactionGroup`."""
    def __init__(
        self,
        servers: str | Sequence[str],
        *,
        writer: str,
        batch: int,
        run: str,
        timeout_s: float = 60.0,
        options: NetworkOptions | None = None,
    ) -> None:
        """`writer`: the writer's name, which it keeps over restarts. `batch`: a number that grows. `run`: drawn anew at
        each start of the writer; the newest one that opens a batch has it. `timeout_s`: of each call."""
    @property
    def names(self) -> GroupNames: ...
    @property
    def is_new_writer(self) -> bool | None: ...
    @property
    def last_committed(self) -> int | None: ...
    def close(self) -> None:
        """Ends connections, and nothing else: the group stays as it is."""
    def open(self, *, query: str = "", group_timeout_s: float = 900.0, once: bool = False) -> Opened:
        """Open the batch, before it is written. What an earlier run of the writer, or an earlier batch, has left open
        is rolled back. "already done": it was committed before; write nothing, and a commit of it succeeds.

        `query`: whose batches these are, when the writer's name is somebody's choice; a batch that would be "already
        done" and is another query's raises WriterChangedError. `group_timeout_s`: a batch that is neither committed nor
        aborted for so long is rolled back. `once`: the writer's name was drawn for this batch, and will not come again:
        an hour after it is closed the nodes forget it, instead of after 90 days. Raises GroupFencedError: a newer run
        has the writer.
        """
    def member(self, producer: ProducerClient, *, part: str, attempt: str = "", lease_s: float = 10.0) -> GroupMember:
        """Make a member that writes a part of the batch to the producer's log: see `ProducerClient.member`."""
    def commit(self, winners: Iterable[str]) -> None:
        """Commit these members, and nothing else of the batch. They count when this returns; or, if a partition is down
        for longer than the timeout, when that is back. Call it again after any failure that is retriable; what was
        committed stays so. Raises NotPreparedError (nothing was decided), GroupFencedError, GroupAbortedError (it was
        rolled back)."""
    def abort(self) -> None:
        """Roll the batch back: nothing of it counts. Idempotent, also if nobody has opened it. Raises GroupFencedError:
        it was committed, or a newer run has it."""
    def describe(self) -> dict[str, Any]:
        """The writer, and what it has open: see `AdminClient.describe_transaction_group`."""

class ConsumerClientBase(SyncClient[holdfast.client.ConsumerClient]):
    """See `holdfast.client.ConsumerClient`."""
    def __init__(
        self,
        servers: str | Sequence[str],
        log: str,
        *,
        start: Start | Mapping[str, Start] | None = None,
        partitions: Sequence[str] | None = None,
        group: str | None = None,
        epoch: int | None = None,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        ownership: ZooKeeperOwnership | None = None,
        filter: str | None = None,
        isolation: Isolation = "committed",
        options: ConsumerOptions | None = None,
    ) -> None:
        """`start`: one for all partitions, or one for each by name. Without it: only what comes from now on.

        `group`: read in its name, from where it stands; `start` counts where it stands nowhere yet. Without
        `partitions` the nodes share them out among the members; with them, each is claimed, with `epoch` if one is
        given. The callbacks hear of each partition: before its first event, and when it is not ours any more.
        `ownership`: the members share the partitions out among themselves through ZooKeeper instead.
        `filter`: only events for which this condition is true, evaluated by the nodes (docs/clients/filters.md).
        `isolation`: "committed": no event of a transaction before it is committed; "uncommitted": all that is stored.
        """
    @property
    def log(self) -> str: ...
    @property
    def options(self) -> ConsumerOptions: ...
    def start(self) -> None:
        """Learn the partitions and begin to read them all; of a group, those that it gets as it gets them. Once is
        enough: a second time there is nothing to do."""
    def close(self) -> None:
        """Stop reading. Events not yet taken are dropped; their offsets were never handed out. Idempotent. Raises what
        `on_revoked` raises, when all is closed. If the caller is cancelled, it stops waiting, first for a
        callback, then for the rest; everything is released all the same, and a second call waits for that. Within a
        callback it returns at once: the consumer is closed when the callback has returned."""
    @property
    def positions(self) -> dict[str, str]:
        """The offset of the last event handed out, by partition: `Start.after` of it continues there."""
    @property
    def assignment(self) -> dict[str, int]:
        """The partitions that are read, each with the number of its claim (0 without a group)."""
    @property
    def epochs(self) -> dict[str, int]:
        """The partitions that are read for the group, each with the epoch of its claim."""
    def commit(self, event: ReceivedEvent | None = None) -> dict[str, str]:
        """Let the group go on after this event; without one, after all that was handed out. Where it stands then, by
        partition. Raises OwnershipLostError when another member has the partition by now."""
    @property
    def connected(self) -> bool:
        """True if every partition that is to be read has a link now; of a group whose partitions the nodes choose: each
        that it was given."""
    @property
    def links_opened(self) -> int:
        """Number of links that were opened, the first ones included."""
    @property
    def paused(self) -> set[str]:
        """The partitions that are not read now."""
    def pause(self, *partitions: str) -> None:
        """Hand out nothing more of these partitions (none named: of all), and ask for nothing more."""
    def resume(self, *partitions: str) -> None:
        """Go on where `pause` interrupted."""
    def lag(self) -> dict[str, int | None]:
        """Count the events that each partition holds after the last one handed out. None: unknown, because its leader
        cannot be asked, or because reading began at a time and nothing has come yet."""
    def receive(self, max_events: int = 1000, timeout_s: float | None = None) -> list[ReceivedEvent]:
        """The next events, all of one partition. `[]`: the timeout passed, or the end was reached (see `at_end`)."""
    @property
    def at_end(self) -> bool:
        """True with `until_end`, once everything up to the end was handed out."""
    def batches(self) -> Iterator[list[ReceivedEvent]]:
        """Events as they arrive, in lists of one partition each."""

class RangeClient(SyncClient[holdfast.client.RangeClient]):
    """See `holdfast.client.RangeClient`."""
    def __init__(
        self,
        servers: str | Sequence[str],
        *,
        isolation: Isolation = "committed",
        options: RangeOptions | None = None,
        network: NetworkOptions | None = None,
    ) -> None: ...
    def close(self) -> None: ...
    def extents(self, log: str, *, timeout_s: float | None = None) -> list[PartitionExtent]:
        """Ask how far each partition reaches now, by number; waits for partitions that have no leader."""
    def offset_at(self, log: str, partition: str, timestamp_ms: int, end: int) -> int:
        """The offset of the first event that was taken in at this time or later; `end` if there is none before it."""
    def identity(self, log: str) -> str | None:
        """Identity of the log that has answered under this name: no other one of any cluster has this text. None: none
        has yet, or the node does not tell. This client stays with it: another in its place raises LogDeletedError."""
    def read(
        self,
        log: str,
        partition: str,
        first: int,
        end: int,
        *,
        filter: str | None = None,
        publishers: bool = False,
        identity: str | None = None,
    ) -> Generator[EventBlock, None]:
        """The events with `first` <= offset < `end` for which the condition `filter` is true. What of the range lies
        before the start of the log is not there any more, and is passed over. `publishers`: the columns also tell
        which idempotent producer has published an event, under which number. `identity`: the log that the offsets are
        of; another one is not read."""
    def check(self, log: str, partition: str, filter: str) -> None:
        """Check a filter. Raises ConfigurationError if the nodes do not understand the filter, NotFoundError without
        such a log."""

class AdminClient(SyncClient[holdfast.client.AdminClient]):
    """See `holdfast.client.AdminClient`."""
    def __init__(
        self, servers: str | Sequence[str], *, timeout_s: float = 30.0, options: NetworkOptions | None = None
    ) -> None: ...
    def close(self) -> None:
        """Close the connections. Idempotent."""
    def create_log(
        self,
        name: str,
        *,
        partitions: int = 1,
        replicas: int | None = None,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
        compression: str | None = None,
    ) -> dict[str, Any]:
        """Create a log; answers its description. Retention None: keep for ever. `compression` of its events
        where they are stored: gzip, zstd or none."""
    def list_logs(self) -> list[dict[str, Any]]:
        """List all logs: name, partitions (how many), replicas, retention, compression."""
    def describe_log(self, name: str) -> dict[str, Any]:
        """Describe one log: its partitions with leader and replicas, its retention, its compression."""
    def alter_log(self, name: str, **changes: int | str | None) -> dict[str, Any]:
        """Change `partitions` (more, never fewer), `retention_ms`, `retention_bytes` (None: keep for ever),
        `compression` (of events that are yet to come), `replicas` (of each partition; they move, see `list_moves`).
        What a shorter retention excludes is deleted within seconds."""
    def reassign_partition(
        self,
        name: str,
        partition: str,
        to: Sequence[int],
        *,
        configuration_version: int = 0,
        allow_same_rack: bool = False,
    ) -> dict[str, Any]:
        """Let a partition move to these nodes, the preferred leader first. It goes there by moves of one replica each,
        which `list_moves` shows. `configuration_version`: refused if its replicas are those of another one; 0: any.
        `allow_same_rack`: not refused if replicas share a rack while a node of another one is free."""
    def list_moves(self, *, limit: int | None = None) -> dict[str, Any]:
        """List `moves` of replicas, under way and waiting, each with its state and what it waits for; `unsettled` names
        what else is not in order. `moving`, `under_way` and `stalled` count all; at most 1,000 are listed, and at most
        `limit`. 0: they are counted only, which is cheap."""
    def cancel_moves(self, name: str | None = None, *, partition: str | None = None) -> dict[str, Any]:
        """Ask for the end of moves: of a log, of one of its partitions, or of all. Those that are too far go on:
        `list_moves` and `describe_log` tell. Answers those that were `asked`."""
    def delete_log(self, name: str) -> None:
        """Delete a log with all its events."""
    def dump_log(
        self, name: str, partition: str = "0", *, after: int = 0, offset: str | None = None, limit: int = 100
    ) -> dict[str, Any]:
        """Dump `entries` of the partition's log as its leader stores them, after index `after`, or from the one that
        holds the event at `offset` on; at most `limit`. `last_index`: there is more while the last entry lies before
        it."""
    def list_producers(self, log: str, *, partition: str | None = None) -> list[dict[str, Any]]:
        """List the idempotent producers that a log's partitions remember, by partition and id: partition, producer_id
        (the producer group), epoch (the owner level), last_sequence, last_offset, last_active_ms, remembered."""
    def describe_producer(self, log: str, partition: str, producer_group_id: int) -> dict[str, Any]:
        """Describe what a partition remembers of one idempotent producer."""
    def list_groups(self, log: str) -> list[dict[str, Any]]:
        """List the consumer groups of a log, by name: group, members, active_partitions, committed_partitions, lag
        (None while a partition has no committed position), known_lag (of the others), unknown_partitions (how many)."""
    def describe_group(self, log: str, group: str) -> dict[str, Any]:
        """Describe a group, where it stands, its readers, and how far it is behind: group, lag, known_lag and
        unknown_partitions (see `list_groups`), partitions."""
    def commit_group(
        self, log: str, group: str, partition: str, offset: str, *, claim: int | None = None
    ) -> dict[str, Any]:
        """Commit a position: the event at `offset` and all before it are done. `claim`: in the name of a receiver;
        without it, only while nobody reads the partition for the group. Repeating it does no harm."""
    def reset_group(self, log: str, group: str, to: str, *, partition: str | None = None) -> dict[str, Any]:
        """Set a group that nobody reads for to `@earliest`, `@latest`, after an offset, or to `none`, in one partition
        or in all; where it stands then. Repeating it does no harm."""
    def delete_group(self, log: str, group: str) -> None:
        """Forget a group that nobody reads for, with its positions and its epochs."""
    def list_transactions(self) -> list[dict[str, Any]]:
        """List the transactional ids that the cluster knows, by name: transactional_id, state, producer_id, epoch,
        timeout_ms, open_ms (None: no transaction is under way), partition_count, last (how the one before ended)."""
    def describe_transaction(self, transactional_id: str) -> dict[str, Any]:
        """Describe a transactional id, with the partitions that take part, and its `coordinator`: raft_group, partition
        (of it) and leader, the node that decides."""
    def abort_transaction(self, transactional_id: str) -> dict[str, Any]:
        """Roll back what the id has open, whichever producer holds it; that one hears of it at its commit."""
    def hanging_transactions(self, *, margin_ms: int | None = None) -> list[dict[str, Any]]:
        """List transactions that partitions hold open beyond their timeout and a margin (10 s), the oldest first."""
    def list_transaction_groups(self) -> list[dict[str, Any]]:
        """List the writers of transaction groups that the cluster knows, by name: writer, run, last_committed (the
        batch), query, aborted (how the last one ended that was not committed); and of what is open: batch, state,
        open_ms, timeout_ms, members, prepared, oldest_member_ms (so long committed readers may have waited)."""
    def describe_transaction_group(self, writer: str) -> dict[str, Any]:
        """Describe a writer of transaction groups, with the members of what is open (`group_members`): member, part,
        attempt, state, why (it was aborted), open_ms, lease_ms, partitions."""
    def abort_transaction_group(self, writer: str) -> None:
        """Roll back what the writer has open, whichever run that is; it hears of it at its commit."""
    def forget_transaction_group(self, writer: str) -> int | None:
        """Forget a writer that will not come again, with its last batch that was committed, which is returned. Only
        then: what it replays afterwards is written again. Refused while it has a batch open."""
    def add_user(self, name: str, password: str, *, roles: Sequence[str] = ()) -> None:
        """Add a user. The password stays here: what is sent is what SCRAM needs to check it. The first user of a
        cluster must have the role `admin`; from then on nobody is let in without a credential."""
    def set_password(self, name: str, password: str) -> None:
        """Set a user's password; everybody may set their own. Repeating it does no harm."""
    def set_roles(self, name: str, roles: Sequence[str]) -> None:
        """Give a user these roles and no others. Repeating it does no harm."""
    def remove_user(self, name: str) -> None:
        """Remove a user. Its open links end. Grants to its name stay."""
    def list_users(self) -> list[dict[str, Any]]:
        """List users: name, roles."""
    def add_grant(
        self, principal: str, operation: str, resource: str, name: str = "", *, prefix: bool = False, deny: bool = False
    ) -> dict[str, Any]:
        """Allow (or deny, which wins) an operation on a resource of that name, or on all whose names begin so.
        `principal`: a name, `role:NAME`, or `*`. Repeating it does no harm."""
    def remove_grant(
        self, principal: str, operation: str, resource: str, name: str = "", *, prefix: bool = False, deny: bool = False
    ) -> dict[str, Any]:
        """Take back what was granted with these words. Links that are no longer allowed end."""
    def list_grants(self) -> list[dict[str, Any]]:
        """List grants: principal, effect (allow or deny), operation, resource, resource_name, prefix."""
    def add_rule(self, name: str, claims: Sequence[str], *, scope: str = "") -> dict[str, Any]:
        """Add a shared access rule, with two new keys. `claims`: of send, listen and manage. `scope`: the log that it
        is for; "": all. Returns name, claims, scope."""
    def rotate_rule(self, name: str) -> None:
        """Give a rule a new primary key. The primary key becomes the secondary one, and that one ends."""
    def remove_rule(self, name: str) -> None:
        """Remove a rule. Links that its keys allowed end."""
    def rule_keys(self, name: str) -> dict[str, Any]:
        """Read a rule with its keys: name, claims, scope, primary, secondary."""
    def list_rules(self) -> list[dict[str, Any]]:
        """List rules: name, claims, scope."""
    def whoami(self) -> dict[str, Any]:
        """Ask as whom the node knows this client: principal, mechanism, roles, open_cluster, expires_ms."""
    def describe_node(self, node: int) -> dict[str, Any]:
        """Describe one node: its addresses, whether it is up, and which of its replicas are catching up."""
    def readmit_node(self, node: int, *, incarnation: int | None = None) -> dict[str, Any]:
        """Let a node in that has lost its data and was started with an empty directory. Only for data that are lost for
        good: a node that comes back with its old data afterwards is refused. Repeating it does no harm."""
    def add_node(self, node: int) -> dict[str, Any]:
        """Announce a node: it may join the cluster from now on. Repeating it does no harm."""
    def remove_node(self, node: int, *, dry_run: bool = False) -> dict[str, Any]:
        """Let a node leave: it gets no new replicas, and is removed for good when it keeps none. Answers how many it
        keeps now, and its state. Repeating it does no harm. `dry_run`: change nothing, and raise if it may not
        leave."""
    def cancel_node(self, node: int) -> dict[str, Any]:
        """Take back that a node is to leave, or is to come."""
    def announced_nodes(self) -> list[int]:
        """List nodes that were announced and have not come yet."""
    def list_nodes(self) -> list[dict[str, Any]]:
        """List all nodes as the node asked sees them: addresses, whether each is up, and whether it was refused."""
    def node_status(self, node: int | None = None) -> dict[str, Any]:
        """Ask the node that answers for its own word; with `node`, an error when another one was reached."""
    def drain_node(self, node: int) -> dict[str, Any]:
        """Move the leaderships of the node that is connected to elsewhere; answers its status then. Safe to repeat."""
    def resume_node(self, node: int) -> dict[str, Any]:
        """Let a drained node lead again. Safe to repeat."""
    def repair_group(self, node: int, raft_group: int) -> dict[str, Any]:
        """Let the replica of a Raft group on the node that is connected to begin anew, empty and without a vote; what
        it had it gets from the others. Safe to repeat."""
    def cluster_status(self) -> dict[str, Any]:
        """Describe the cluster as the node asked sees it."""
    def finalize_upgrade(self, *, dry_run: bool = False, heard_s: int = 60) -> dict[str, Any]:
        """Activate the newest version that all nodes know, after which no node can go back to an earlier release.
        `heard_s`: seconds that every node must have been heard without a break. Answers `active_version`,
        `target_version`, `obstacles` (what is in the way, for people; without `dry_run` it is raised) and `nodes`.
        Repeating it does no harm."""
    def plan_balance(self, *, remove: int | None = None, successor: int | None = None) -> dict[str, Any]:
        """Plan how replicas should lie, and change nothing: evenly, or off the node `remove`, or all of those on the
        node `successor`. Answers `digest`, `partitions`, `bytes`, `seconds` (about, at the configured pace), `moves`
        (up to 1,000: `log`, `partition`, `from`, `to`, `replicas`, `preferred`, `leader`, `bytes`, `why`), `obstacles`
        (what cannot be done, for people) and `after` (of each node: `replicas`, `bytes`, `preferred`,
        `capacity_bytes`)."""
    def apply_balance(self, digest: str, *, remove: int | None = None, successor: int | None = None) -> dict[str, Any]:
        """Carry out the plan with that digest, exactly, or raise: it is stale when one of its partitions has changed.
        The other arguments are those with which it was shown. Answers as `plan_balance`; the moves go on afterwards."""
    def balance_settings(
        self,
        balance: str | None = None,
        *,
        replace_after_s: int | None = None,
        disk_high: int | None = None,
        disk_low: int | None = None,
        disk_target: int | None = None,
        pace_bytes_per_s: int | None = None,
    ) -> dict[str, Any]:
        """Settings of balancing and of moves, after those that are named are changed. `balance`: off, repair or on.
        Marks of disks are percentages; the pace is that of copies, out of a node and into one."""
    def log_info(self, name: str, *, complete: bool = False) -> list[PartitionInfo]:
        """Ask how far each partition reaches. `complete`: wait for partitions that have no leader now."""
