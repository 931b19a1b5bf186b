"""`holdfast produce`: each line of a file or of standard input becomes an event."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, get_args

import click

from holdfast.cli.shared.command_frame import CommandFrame, command_frame, exit_status, run
from holdfast.cli.shared.errors import EXIT_USAGE, CliError
from holdfast.cli.shared.input_lines import KeyColumn, lines, open_input
from holdfast.cli.shared.output import ProgressBar, counted, rate_text
from holdfast.client.errors import HoldfastError, TransactionRolledBackError
from holdfast.client.options import (
    MAX_GROUP_ID,
    MAX_OWNER_LEVEL,
    MAX_SEQUENCE,
    Compression,
    PartitionPublishingOptions,
    ProducerOptions,
)
from holdfast.client.produce.delivery import Delivery
from holdfast.client.producer import ProducerClient

TRANSACTION_EVENTS = 1000
"""Events of one transaction: enough that its commit costs little for each, and soon done."""


@dataclass(frozen=True)
class InputSource:
    """Source of the events, and where they go."""

    path: str
    key_column: KeyColumn | None
    key: str | None
    partition: str | None
    skip_header: bool
    transaction_events: int = TRANSACTION_EVENTS

    @property
    def name(self) -> str:
        return "standard input" if self.path == "-" else self.path

    @property
    def has_header(self) -> bool:
        """The first line is no event."""
        return self.skip_header or (self.key_column is not None and self.key_column.name != "")


@click.command()
@click.argument("log")
@click.argument("file", default="-")
@click.option(
    "--key-column", default=None, help="Take the key from this column: a number from 1, or a name in the first line."
)
@click.option("--delimiter", default=",", show_default=True, help="Split columns at this character.")
@click.option(
    "--skip-header", is_flag=True, help="Skip the first line, which is not an event (implied by a named key column)."
)
@click.option("--key", default=None, help="Give every event this key.")
@click.option("--partition", default=None, help="Publish every event to this partition.")
@click.option("--redirect/--no-redirect", default=True, help="Follow the node to the leaders (default), or stay.")
@click.option(
    "--idempotent/--no-idempotent",
    default=True,
    help="Number the events, so that none is stored twice (default), or not.",
)
@click.option("--producer-group", type=click.IntRange(0, MAX_GROUP_ID), default=None, help="Publish as this producer.")
@click.option(
    "--owner-level",
    type=click.IntRange(0, MAX_OWNER_LEVEL),
    default=None,
    help="Take the partition over from whoever publishes now, by a level above the producer's present one.",
)
@click.option(
    "--starting-sequence",
    type=click.IntRange(0, MAX_SEQUENCE),
    default=None,
    help="Go on behind the event with this number, the last one published.",
)
@click.option(
    "--transactional-id", default=None, help="Publish in transactions, as the holder of this id; who had it is fenced."
)
@click.option(
    "--transaction-size",
    type=click.IntRange(min=1),
    default=None,
    help=f"Publish so many events in one transaction of --transactional-id (default: {TRANSACTION_EVENTS}).",
)
@click.option(
    "--compression", type=click.Choice(get_args(Compression)), default="none", show_default=True,
    help="Compress events on their way to the node so; what the log keeps is compressed as the log's setting says.",
)  # fmt: skip
@command_frame()
def produce(
    frame: CommandFrame,
    log: str,
    file: str,
    key_column: str | None,
    delimiter: str,
    skip_header: bool,
    key: str | None,
    partition: str | None,
    redirect: bool,
    idempotent: bool,
    producer_group: int | None,
    owner_level: int | None,
    starting_sequence: int | None,
    transactional_id: str | None,
    transaction_size: int | None,
    compression: Compression,
) -> None:
    """Publish the lines of FILE (default: standard input; .gz is read as such) to LOG.

    Returns when every event is confirmed by a majority of its partition's replicas. Stops when one is not, and says up
    to which line all of them are.
    """
    if key is not None and key_column is not None:
        raise CliError("--key and --key-column exclude each other", exit_code=EXIT_USAGE)
    column = KeyColumn(key_column, delimiter) if key_column is not None else None
    own = PartitionPublishingOptions(producer_group, owner_level, starting_sequence)
    if not idempotent and own != PartitionPublishingOptions():
        raise CliError(
            "--producer-group, --owner-level and --starting-sequence are those of an idempotent producer",
            advice="leave out --no-idempotent",
            exit_code=EXIT_USAGE,
        )
    is_named = own != PartitionPublishingOptions()
    if is_named and (partition is None or key is not None or column is not None):
        raise CliError(
            "--producer-group, --owner-level and --starting-sequence are of one partition, and take no key",
            advice="give --partition, and no key",
            exit_code=EXIT_USAGE,
        )
    if transaction_size is not None and transactional_id is None:
        raise CliError(
            "--transaction-size is that of transactions", advice="give --transactional-id with it", exit_code=EXIT_USAGE
        )
    options = ProducerOptions(
        transactional_id=transactional_id,
        compression=compression,
        delivery_timeout_s=frame.timeout_s,
        network=frame.network(follow_redirects=redirect),
        idempotent=idempotent,
        partition_options={partition: own} if is_named and partition is not None else {},
    )
    source = InputSource(file, column, key, partition, skip_header, transaction_size or TRANSACTION_EVENTS)
    started_s = time.monotonic()
    producer_result = run(_publish(frame, log, source, options))
    took_s = time.monotonic() - started_s
    result: dict[str, Any] = {"log": log, **producer_result, "seconds": round(took_s, 3)}
    result["events_per_second"] = round(result["events"] / took_s) if took_s > 0 else 0
    frame.output.result(result)
    if not frame.output.as_json:
        copies = f"{result['resent']:,} sent again after a failure" if result["resent"] else ""
        more = ", ".join(filter(None, [rate_text(result["events"], took_s), copies]))
        said = f"{counted(result['events'], 'event')} confirmed in {took_s:.2f} s"
        frame.output.say(f"{said} ({more})" if more else said)
        if "producer_group_id" in result:
            frame.output.say(_to_go_on(result))


def _to_go_on(state: dict[str, Any]) -> str:
    return (
        f"to go on later: --producer-group {state['producer_group_id']} --owner-level {state['owner_level']} "
        f"--starting-sequence {state['last_sequence_number']}"
    )


async def _publish(frame: CommandFrame, log: str, source: InputSource, options: ProducerOptions) -> dict[str, Any]:
    async with ProducerClient(frame.servers, log, options) as producer:
        sink = Sink(producer, source) if options.transactional_id is None else TransactionSink(producer, source)
        try:
            await _publish_lines(frame, log, source, sink)
        except (HoldfastError, CliError) as error:
            stopped = await _stopped(sink, error, source)
            if producer.stats.accepted and (state := await _state(producer, source.partition)):
                frame.output.note(f"{producer.stats.accepted:,} events were confirmed; {_to_go_on(state)}")
            raise stopped from error.__cause__
        if isinstance(sink, TransactionSink):
            return {"events": sink.confirmed, "resent": 0, "transactions": sink.committed, "redone": sink.redone}
        stats = producer.stats
        told = {"events": stats.accepted, "resent": stats.resent + stats.released, "links_opened": stats.attached}
        return told | await _state(producer, source.partition)


async def _stopped(sink: Sink, error: HoldfastError | CliError, source: InputSource) -> CliError | HoldfastError:
    """Error that tells of a failure, of the cluster or of the input, and up to which line all is stored, once nothing
    is on its way any more."""
    if not sink.begun:
        return error
    await sink.settle()
    last, name = sink.stored_to, source.name
    told = f"every line of {name} up to line {last:,} is stored" if last else f"the first line of {name} is not stored"
    if sink.stored_behind:
        told += f", and {sink.stored_behind:,} of those behind the first that is missing"
    advice = f"{error.advice or ''}. Go on from line {last + 1}, as with `tail -n +{last + 1}`"
    if source.has_header and last:
        advice += ", and with the first line in front of that"
    return CliError(f"{error}; {told}", advice=advice.removeprefix(". "), exit_code=_status_of(error))


def _status_of(error: HoldfastError | CliError) -> int:
    return error.exit_code if isinstance(error, CliError) else exit_status(error)


class Sink:
    """Sink of the lines. It knows by their numbers which are stored."""

    def __init__(self, producer: ProducerClient, source: InputSource) -> None:
        self._producer, self._source = producer, source
        self.begun = False
        self.stored_to = 0  # all lines up to this one are stored, as last seen
        self._open: deque[tuple[int, Delivery]] = deque()  # those after it, with their numbers

    async def send(self, number: int, line: bytes, key: str | None) -> None:
        self.begun = True
        self._open.append((number, await self._producer.send(line, key=key, partition=self._source.partition)))

    @property
    def confirmed(self) -> int:
        return self._producer.stats.accepted

    def look(self) -> None:
        """Forget the first ones that are stored."""
        waiting = self._open
        while waiting and waiting[0][1].is_done and waiting[0][1].error is None:
            self.stored_to = waiting.popleft()[0]

    @property
    def stored_behind(self) -> int:
        """Lines that are stored after one that is not, or may not be."""
        return sum(delivery.is_done and delivery.error is None for _, delivery in self._open)

    async def flush(self) -> None:
        await self._producer.flush()
        self.look()

    async def settle(self) -> None:
        """Wait, after a failure, until the outcome of each line is known."""
        with contextlib.suppress(HoldfastError):
            await self.flush()
        self.look()


class TransactionSink(Sink):
    """Sink that makes so many lines one transaction. One that is rolled back, for a reason that passes, is done again:
    its lines are still here."""

    def __init__(self, producer: ProducerClient, source: InputSource) -> None:
        super().__init__(producer, source)
        self.committed = self.redone = self._events = self._last = 0
        self._lines: list[tuple[bytes, str | None]] = []

    async def send(self, number: int, line: bytes, key: str | None) -> None:
        self.begun, self._last = True, number
        self._lines.append((line, key))
        if len(self._lines) >= self._source.transaction_events:
            await self.flush()

    @property
    def confirmed(self) -> int:
        return self._events

    async def flush(self) -> None:
        if not self._lines:
            return
        deadline_s = time.monotonic() + self._producer.options.delivery_timeout_s
        while True:
            try:
                await self._attempt()
            except TransactionRolledBackError as error:
                if not error.retriable or time.monotonic() >= deadline_s:
                    raise
                self.redone += 1
            else:
                break
        self.committed += 1
        self._events += len(self._lines)
        self.stored_to = self._last
        self._lines.clear()

    async def settle(self) -> None:
        """A transaction that failed leaves nothing open."""

    async def _attempt(self) -> None:
        async with self._producer.transaction() as tx:
            for line, key in self._lines:
                await tx.send(line, key=key, partition=self._source.partition)


async def _state(producer: ProducerClient, partition: str | None) -> dict[str, Any]:
    """State of a named producer that it needs to go on. Empty if it never was open."""
    if not producer.options.partition_options or partition is None:
        return {}
    try:
        properties = await producer.get_partition_publishing_properties(partition)
    except HoldfastError:
        return {}
    return {
        "producer_group_id": properties.producer_group_id,
        "owner_level": properties.owner_level,
        "last_sequence_number": properties.last_published_sequence_number,
    }


async def _publish_lines(frame: CommandFrame, log: str, source: InputSource, sink: Sink) -> None:
    stream = open_input(source.path)
    column, header_due = source.key_column, source.has_header
    number = 0
    typed = source.path == "-" and stream.isatty()
    with stream, frame.output.progress(f"publishing to {log}", None, in_the_way=typed) as bar:
        started_s = time.monotonic()
        async for batch in lines(stream, source.name):
            for line in batch:
                number += 1
                if header_due:
                    header_due = False
                    if column is not None and column.needs_header:
                        column.read_header(line)
                    continue
                try:
                    key = column.key_of(line) if column is not None else source.key
                except CliError as error:
                    await sink.flush()
                    before = f"{counted(sink.confirmed, 'event')} before it stand in the log"
                    advice = "correct that line or --key-column, and publish again from there"
                    raise CliError(f"{error}; {before}", advice=advice) from error
                await sink.send(number, line, key)
            sink.look()
            _show(bar, sink.confirmed, started_s)
        await sink.flush()


def _show(bar: ProgressBar, count: int, started_s: float) -> None:
    bar.update(count, rate_text(count, time.monotonic() - started_s))
