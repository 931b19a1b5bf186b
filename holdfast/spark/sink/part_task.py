"""One task attempt of Spark's: it writes its part of a batch, and says so in a message that the driver may count.

Problem: nobody tells an attempt that it lost, and nobody cleans up after one that died; and while an attempt has
events in the log that are not decided, readers of committed events wait.
Rules never broken:
 - an attempt is a member of the batch's group; what it wrote counts if the driver names it, and else never;
 - it joins when it has something to write, and most often all of it, so that a slow query delays no reader; after that,
   an attempt that waits for its input for nearly as long as its lease lets go, fails, and is repeated by Spark;
 - a batch that was committed before is not written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import WriterCommitMessage

from holdfast.client import EventBatch, GroupMember, ProducerClient
from holdfast.client.produce.event_batch import MAX_BATCH_BYTES, MAX_BATCH_EVENTS
from holdfast.client.produce.send_api import Sending
from holdfast.client.transact.group_member import GroupNames
from holdfast.spark.errors import one_sentence
from holdfast.spark.sink.columns import Router
from holdfast.spark.sink.connections import SinkConnection, connection_of, forget
from holdfast.spark.sink.options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

HELD_BYTES: Final = 16 << 20
"""Input that an attempt holds before it joins. Most batches of a stream are smaller."""

SENT_ROWS: Final = 20_000
"""Encoded and sent together, about: enough that partitions are busy while the next ones are encoded."""

IDLE_SHARE: Final = 0.75
"""Share of a lease: an attempt whose input stalls for so long leaves by itself, before the nodes have to find out."""


@dataclass(frozen=True)
class PartWritten(WriterCommitMessage):
    """`member`: the one that wrote it, if there was something to write. `is_done`: the batch was committed before."""

    names: GroupNames
    part: str
    member: str | None = None
    is_done: bool = False
    events: int = 0


@dataclass(frozen=True)
class Attempt:
    """Identity of one attempt of a task of a batch. `query`: the query whose batches they are. `once`: the writer's
    name was drawn for this batch."""

    names: GroupNames
    part: int
    attempt: str
    query: str = ""
    once: bool = False


@dataclass
class _Sending:
    """Pieces under way, one at a time: rows of a partition keep their order."""

    connection: SinkConnection
    numbered: bool = False
    events: int = 0
    _under_way: Future[None] | None = field(default=None)

    def put(self, way: Sending, split: list[tuple[str, list[bytes]]]) -> None:
        """Send a piece, once the one before has arrived."""
        self.finish()
        self.events += sum(len(contents) for _, contents in split)
        self._under_way = self.connection.thread.start(lambda: self._send(way, split))

    async def _send(self, way: Sending, split: list[tuple[str, list[bytes]]]) -> None:
        """Send a piece; all of it is answered when this returns. Raises the first failure; the attempt ends with it."""
        await asyncio.gather(*(self._send_to(way, partition, contents) for partition, contents in split))

    async def _send_to(self, way: Sending, partition: str, contents: list[bytes]) -> None:
        for part in _batches(contents) if self.numbered else [contents]:
            await way.send_batch(EventBatch.of_encoded(partition, part))

    def finish(self) -> None:
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.result()


def _batches(contents: list[bytes]) -> Iterator[list[bytes]]:
    """Cut so that each can be published as a whole; the same each time, for the same events."""
    batch: list[bytes] = []
    size = 0
    for content in contents:
        if batch and (len(batch) == MAX_BATCH_EVENTS or size + len(content) > MAX_BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(content)
        size += len(content)
    yield batch


def write_exactly_once(options: SinkOptions, attempt: Attempt, rows: Iterator[pa.RecordBatch]) -> PartWritten:
    names, part = attempt.names, str(attempt.part)
    with one_sentence(), _forgotten_on_failure(names.run):
        held, rest = hold(rows, HELD_BYTES)
        if not held:
            return PartWritten(names, part)
        connection = connection_of(names.run, options)
        if connection.is_done(names, attempt.query, once=attempt.once):
            for _ in rest:
                pass  # Spark wants its rows to be taken
            return PartWritten(names, part, is_done=True)
        producer = connection.producer
        member = connection.thread.call(
            lambda: producer.member(
                writer=names.writer, batch=names.batch, run=names.run, part=part, attempt=attempt.attempt,
                lease_s=options.lease_s, idle_s=IDLE_SHARE * options.lease_s,
            )
        )  # fmt: skip
        with _joined(connection, member):
            sending = _Sending(connection)
            for piece in joined_up(held, rest, SENT_ROWS):
                sending.put(member, list(_router(options, producer, attempt.part).split(piece)))
            sending.finish()
            winner = connection.thread.run(member.prepare)
        return PartWritten(names, part, winner, events=sending.events)


@contextmanager
def _joined(connection: SinkConnection, member: GroupMember) -> Iterator[None]:
    connection.thread.run(member.begin)
    try:
        yield
    finally:
        connection.thread.run(member.abort)  # nothing, if it is prepared


def write_at_least_once(options: SinkOptions, attempt: Attempt, rows: Iterator[pa.RecordBatch]) -> PartWritten:
    """Write without a group. A failure within the attempt leaves no copies, since the producer is idempotent."""
    names, part = attempt.names, str(attempt.part)
    with one_sentence(), _forgotten_on_failure(names.run):
        held, rest = hold(rows, 0)
        if not held:
            return PartWritten(names, part)
        connection = connection_of(names.run, options)
        sending = _Sending(connection, numbered=True)
        for piece in joined_up(held, rest, SENT_ROWS):
            sending.put(connection.producer, list(_router(options, connection.producer, attempt.part).split(piece)))
        sending.finish()
        return PartWritten(names, part, events=sending.events)


@contextmanager
def _forgotten_on_failure(run: str) -> Iterator[None]:
    try:
        yield
    except BaseException:
        forget(run)
        raise


def _router(options: SinkOptions, producer: ProducerClient, part: int) -> Router:
    return Router(options.log, producer.partitions, producer.partition_of, part)


def hold(rows: Iterator[pa.RecordBatch], most_bytes: int) -> tuple[list[pa.RecordBatch], Iterator[pa.RecordBatch]]:
    """Take rows until they are more than that, or all; returns them and the rest."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in rows:
        if batch.num_rows:
            held.append(batch)
            size += batch.nbytes
            if size > most_bytes:
                break
    return held, rows


def joined_up(held: Sequence[pa.RecordBatch], rest: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield all rows, in pieces of so many rows or more."""
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    count = 0
    for batches in (held, rest):
        for batch in batches:
            waiting.append(batch)
            count += batch.num_rows
            if count >= rows:
                yield pa.concat_batches(waiting)
                waiting, count = [], 0
    if count:
        yield pa.concat_batches(waiting)
