"""`holdfast consume`: events of a log on standard output, one per line."""

from __future__ import annotations

import asyncio
import base64
import datetime
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import click

from holdfast import protocol
from holdfast.cli.shared.command_frame import CommandFrame, command_frame, run
from holdfast.cli.shared.errors import EXIT_UNREACHABLE, EXIT_USAGE, CliError
from holdfast.cli.shared.output import counted, rate_text
from holdfast.client.consume.zookeeper.ownership import ZooKeeperOwnership
from holdfast.client.consumer import ConsumerClient
from holdfast.client.errors import OwnershipLostError
from holdfast.client.events import ReceivedEvent
from holdfast.client.options import ConsumerOptions
from holdfast.client.start_position import Start

RETRY_S = 0.2
AT_ONCE_S = 1.0
"""An answer that takes longer than this was waited for."""

FIRST_SHARE_S = 5.0
"""Time that a member of a group waits for its first partition; after that others have them all."""


@click.command()
@click.argument("log")
@click.option(
    "--from",
    "begin",
    default="latest",
    show_default=True,
    metavar="WHERE",
    help="Start at earliest, latest, offset:OFFSET (what follows it; needs --partition), or time:WHEN "
    "(ISO 8601, or milliseconds since 1970).",
)
@click.option("--partition", "partitions", multiple=True, help="Read only this partition; may be repeated.")
@click.option("--group", default=None, help="Read as a member of this group, from where it stands; else from --from.")
@click.option(
    "--epoch", type=click.IntRange(min=0), default=None, help="Claim the --partition for the --group with this epoch."
)
@click.option(
    "--ownership",
    default=None,
    metavar="zk://HOST:PORT,.../PATH",
    help="Share the partitions out among the members of --group through ZooKeeper.",
)
@click.option(
    "--where",
    default=None,
    metavar="CONDITION",
    help="Print only events for which it is true: key = 'ann' AND a.price > 100, with a. in front of application "
    "properties.",
)
@click.option(
    "--isolation",
    type=click.Choice(["committed", "uncommitted"]),
    default="committed",
    show_default=True,
    help="Print, with uncommitted, also events of transactions that are open or were rolled back.",
)
@click.option("--max", "most", type=click.IntRange(min=1), default=None, help="Stop after so many events.")
@click.option("--until-end", is_flag=True, help="Stop at what is the end of the log now.")
@click.option("--idle-s", type=click.FloatRange(min=0.01), default=None, help="Stop when nothing came for so long.")
@click.option(
    "--skip-damaged", is_flag=True, help="Go on past events that cannot be decoded; they are named on standard error."
)
@click.option(
    "--show",
    type=click.Choice(["body", "all"]),
    default="body",
    show_default=True,
    help="Print this of each event; of all the columns are named on standard error.",
)
@click.option("--redirect/--no-redirect", default=True, help="Follow the node to the leaders (default), or stay.")
@command_frame()
def consume(
    frame: CommandFrame,
    log: str,
    begin: str,
    partitions: tuple[str, ...],
    group: str | None,
    epoch: int | None,
    ownership: str | None,
    where: str | None,
    isolation: str,
    most: int | None,
    until_end: bool,
    idle_s: float | None,
    skip_damaged: bool,
    show: str,
    redirect: bool,
) -> None:
    """Read events of LOG and print them, until Ctrl-C or the end that is asked for. What a member of a group printed is
    committed."""
    start = parse_start(begin)
    if begin.startswith("offset:") and len(partitions) != 1:
        raise CliError("offsets belong to one partition", advice="give one --partition", exit_code=EXIT_USAGE)
    if epoch is not None and (group is None or not partitions):
        raise CliError(
            "an epoch is a claim on a partition, for a group",
            advice="give --group and --partition with it",
            exit_code=EXIT_USAGE,
        )
    options = ConsumerOptions(
        reconnect_timeout_s=frame.timeout_s,
        until_end=until_end,
        on_damaged=(lambda damaged: frame.output.note(f"{damaged}; skipped")) if skip_damaged else None,
        network=frame.network(follow_redirects=redirect),
    )
    shared = None if ownership is None else ZooKeeperOwnership(ownership, login=frame.zookeeper.login())
    consumer = {
        "start": start, "partitions": list(partitions) or None, "group": group, "epoch": epoch, "ownership": shared,
        "filter": where, "isolation": isolation, "options": options,
    }  # fmt: skip
    started_s = time.monotonic()
    count = 0

    async def work() -> None:
        nonlocal count
        async with ConsumerClient(frame.servers, log, **consumer) as reader:  # type: ignore[arg-type]
            with frame.output.progress(f"reading {log}", most, in_the_way=sys.stdout.isatty()) as bar:
                while most is None or count < most:
                    room = 1000 if most is None else min(1000, most - count)
                    before = reader.connected, reader.assignment
                    events = await reader.receive(room, idle_s)
                    if not events:
                        heard = before == (True, reader.assignment) and reader.connected
                        if not reader.assignment and time.monotonic() - started_s < FIRST_SHARE_S:
                            heard = False  # the nodes are about to give this member its partitions
                        if reader.at_end or (await _is_served(frame, log, partitions) and heard):
                            return
                        continue
                    if show == "all" and not count and not frame.output.as_json:
                        frame.output.note(HEADING)
                    _print(frame, events, show)
                    count += len(events)
                    if group is not None:
                        with suppress(OwnershipLostError):  # another member prints it again
                            await reader.commit(events[-1])
                    bar.update(count, rate_text(count, time.monotonic() - started_s))

    try:
        run(work())
    finally:
        if sys.stderr.isatty() and sys.stdout is not None:
            frame.output.note(f"{counted(count, 'event')} in {time.monotonic() - started_s:.1f} s")


async def _is_served(frame: CommandFrame, log: str, partitions: Sequence[str]) -> bool:
    """True if silence means that nothing came: the leaders of all that is read answer at once. Raises what hinders
    them. False: they had to be waited for, and the consumer may need a moment, too."""
    asked_s = time.monotonic()
    async with frame.admin() as admin:
        while True:
            infos = await admin.log_info(log)
            read = [one for one in infos if not partitions or one.partition in partitions]
            dumb = [one.partition for one in read if not one.available]
            took_s = time.monotonic() - asked_s
            if not dumb:
                return took_s < AT_ONCE_S
            if took_s > frame.timeout_s:
                raise CliError(
                    f"partition {', '.join(dumb)} of log {log!r} has no leader that answers: what it holds is unknown",
                    advice="check that the cluster has a majority (holdfast cluster status); then try again",
                    exit_code=EXIT_UNREACHABLE,
                )
            await asyncio.sleep(RETRY_S)


def parse_start(text: str) -> Start:
    """Start that `--from` names."""
    kind, _, value = text.partition(":")
    match kind:
        case "earliest" if not value:
            return Start.earliest()
        case "latest" if not value:
            return Start.latest()
        case "offset":
            return Start.after(parse_offset(value))
        case "time" if value:
            return Start.from_time(parse_time_ms(value))
    raise CliError(
        f"--from {text!r} is not a place", advice="write earliest, latest, offset:... or time:...", exit_code=EXIT_USAGE
    )


def parse_offset(text: str) -> str:
    """The 16 digits that stand with each event; or one decimal digit, which can mean only one event."""
    if len(text) == 1 and text in "0123456789":
        return text.zfill(protocol.OFFSET_DIGITS)
    if len(text) == protocol.OFFSET_DIGITS and not text.strip("0123456789abcdefABCDEF"):
        return text.lower()
    advice = "write it as it stands with an event"
    if text.isascii() and text.isdigit():
        advice += f": if {text} is a decimal number, offset:{int(text):0{protocol.OFFSET_DIGITS}x}"
    raise CliError(
        f"{text!r} is no offset: they have {protocol.OFFSET_DIGITS} hexadecimal digits",
        advice=f"{advice} (consume --show all, or --json)",
        exit_code=EXIT_USAGE,
    )


def parse_time_ms(text: str) -> int:
    """Milliseconds since 1970, or an ISO 8601 time; local time when it has no zone."""
    if text.isdigit():
        return int(text)
    try:
        return int(datetime.datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise CliError(
            f"{text!r} is not a time: {error}", advice="for example 2024-05-01T12:00:00Z", exit_code=EXIT_USAGE
        ) from error


HEADING = "part.\toffset\t\t\ttaken in at\t\t\tkey\tbody"
"""Heading for `--show all`; a terminal puts it above the columns."""


def _print(frame: CommandFrame, events: list[ReceivedEvent], show: str) -> None:
    if frame.output.as_json:
        for event in events:
            frame.output.line(_document(event))
        sys.stdout.flush()
        return
    out = sys.stdout.buffer
    for event in events:
        if show == "all":
            when = datetime.datetime.fromtimestamp(event.timestamp_ms / 1000, datetime.UTC)
            key = "-" if event.key is None else event.key
            taken_in = when.isoformat("T", "milliseconds")
            out.write(f"{event.partition}\t{event.offset}\t{taken_in}\t{key}\t".encode())
        out.write(event.body)
        out.write(b"\n")
    out.flush()


def _document(event: ReceivedEvent) -> dict[str, Any]:
    """An event as JSON: the body as text when it is UTF-8, else as `body_base64`."""
    document: dict[str, Any] = {
        "partition": event.partition,
        "offset": event.offset,
        "timestamp_ms": event.timestamp_ms,
        "key": event.key,
    }
    body = event.body
    try:
        document["body"] = body.decode("utf-8")
    except UnicodeDecodeError:
        document["body_base64"] = base64.b64encode(body).decode("ascii")
    return document
