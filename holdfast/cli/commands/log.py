"""`holdfast log`: what there is, and changing it."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.shared.command_frame import CommandFrame, command_frame, run
from holdfast.cli.shared.errors import EXIT_USAGE, CliError
from holdfast.cli.shared.output import Output, bytes_text, duration_text
from holdfast.cli.shared.retention import DURATION, SIZE, Losses, retention_losses
from holdfast.client.consume.range_receiver import RangeOptions
from holdfast.client.errors import NotAuthorizedError
from holdfast.client.range_client import RangeClient

COMPRESSION = click.Choice(["none", "gzip", "zstd"])


@click.group()
def log() -> None:
    """Look after logs: create, list, describe, alter, delete, dump."""


@log.command("create")
@click.argument("name")
@click.option("--partitions", type=click.IntRange(min=1), default=1, show_default=True, help="Make so many partitions.")
@click.option(
    "--replicas",
    type=click.IntRange(min=1),
    default=None,
    help="Keep so many copies (default: three, or every node if fewer).",
)
@click.option("--retention", type=DURATION, default=None, help="Keep events so long, for example 7d.")
@click.option("--retention-bytes", type=SIZE, default=None, help="Keep so much per partition, for example 10GiB.")
@click.option(
    "--compression", type=COMPRESSION, default=None, help="Compress events where they are stored so (default: none)."
)
@command_frame()
def create_log(
    frame: CommandFrame,
    name: str,
    partitions: int,
    replicas: int | None,
    retention: int | str | None,
    retention_bytes: int | str | None,
    compression: str | None,
) -> None:
    """Create log NAME."""

    async def work() -> dict[str, Any]:
        async with frame.admin() as admin:
            return await admin.create_log(
                name,
                partitions=partitions,
                replicas=replicas,
                retention_ms=_bound(retention),
                retention_bytes=_bound(retention_bytes),
                compression=compression,
            )

    _show_log(frame.output, run(work()))


@log.command("list")
@command_frame()
def list_logs(frame: CommandFrame) -> None:
    """List all logs."""

    async def work() -> list[dict[str, Any]]:
        async with frame.admin() as admin:
            return await admin.list_logs()

    logs = run(work())
    frame.output.result({"logs": logs})
    frame.output.table(
        "",
        ["log", "partitions>", "replicas>", "keeps", "up to>", "compression"],
        (
            [
                entry["name"],
                entry["partitions"],
                entry.get("replicas"),
                duration_text(entry.get("retention_ms")),
                _size_text(entry.get("retention_bytes")),
                entry.get("compression"),
            ]
            for entry in logs
        ),
    )


@log.command("describe")
@click.argument("name")
@command_frame()
def describe_log(frame: CommandFrame, name: str) -> None:
    """Show the partitions of log NAME: leaders, replicas, how far they reach."""

    async def work() -> dict[str, Any]:
        async with frame.admin() as admin:
            description = await admin.describe_log(name)
            extents = {info.partition: info for info in await admin.log_info(name)}
            for entry in description["partitions"]:
                info = extents.get(str(entry["partition"]))
                if info is not None:
                    entry |= {"earliest_offset": info.earliest_offset, "latest_offset": info.latest_offset}
                    if info.stable_offset is not None:
                        entry |= {"stable_offset": info.stable_offset, "open_transactions": info.open_transactions}
                    entry |= {key: info.details[key] for key in ("events", "bytes") if key in info.details}
            return description

    _show_log(frame.output, run(work()))


@log.command("alter")
@click.argument("name")
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    default=None,
    help="Have so many partitions: more than now, never fewer.",
)
@click.option("--retention", type=DURATION, default=None, help="Keep events so long, for example 7d, or forever.")
@click.option(
    "--retention-bytes", type=SIZE, default=None, help="Keep so much per partition, for example 10GiB, or forever."
)
@click.option("--compression", type=COMPRESSION, default=None, help="Compress events that are yet to come so.")
@click.option(
    "--replicas",
    type=click.IntRange(min=1),
    default=None,
    help="Keep so many copies: they are made, or given up, while the log is used.",
)
@click.option("--yes", is_flag=True, help="Do not ask, though more events are deleted than kept.")
@command_frame()
def alter_log(
    frame: CommandFrame,
    name: str,
    partitions: int | None,
    retention: int | str | None,
    retention_bytes: int | str | None,
    compression: str | None,
    replicas: int | None,
    yes: bool,
) -> None:
    """Change log NAME. More partitions move keys: events of one key are then in two partitions. A shorter retention
    that would delete more events than it keeps asks first."""
    changes: dict[str, int | str | None] = {}
    if partitions is not None:
        changes["partitions"] = partitions
    if retention is not None:
        changes["retention_ms"] = _bound(retention)
    if retention_bytes is not None:
        changes["retention_bytes"] = _bound(retention_bytes)
    if compression is not None:
        changes["compression"] = compression
    if replicas is not None:
        changes["replicas"] = replicas
    if not changes:
        raise CliError(
            "nothing to change was given",
            advice="give --partitions, --retention, --retention-bytes, --compression or --replicas",
            exit_code=EXIT_USAGE,
        )
    if not yes and (retention is not None or retention_bytes is not None):
        _confirm(name, run(_losses(frame, name, _bound(retention), _bound(retention_bytes))))

    async def work() -> dict[str, Any]:
        async with frame.admin() as admin:
            return await admin.alter_log(name, **changes)

    _show_log(frame.output, run(work()))


async def _losses(frame: CommandFrame, name: str, retention_ms: int | None, retention_bytes: int | None) -> Losses:
    options = RangeOptions(reconnect_timeout_s=frame.timeout_s)
    async with (
        frame.admin() as admin,
        RangeClient(frame.servers, isolation="uncommitted", options=options, network=frame.network()) as ranges,
    ):
        present = await admin.describe_log(name)
        try:
            return await retention_losses(ranges, present, retention_ms, retention_bytes)
        except NotAuthorizedError as error:
            advice = "ask for the right to read the log, or give --yes"
            raise CliError(f"how much this deletes cannot be told: {error}", advice=advice) from error


def _confirm(name: str, losses: Losses) -> None:
    """Ask, where more goes than stays."""
    if losses.deleted > losses.kept:
        found = f"This deletes about {losses.deleted:,} of the {losses.deleted + losses.kept:,} events of log {name}"
        click.confirm(f"{found}, within seconds and for good. Change its retention?", abort=True, err=True)


@log.command("reassign")
@click.argument("partition", metavar="LOG/PARTITION")
@click.option("--to", "nodes", required=True, metavar="N,N,...", help="Keep it on these nodes, the leader first.")
@click.option("--allow-same-rack", is_flag=True, help="Allow replicas to share a rack while another one is free.")
@command_frame()
def reassign(frame: CommandFrame, partition: str, nodes: str, allow_same_rack: bool) -> None:
    """Move a partition to other nodes, while it is used. Returns at once: `holdfast cluster moves` shows how far it is,
    and `holdfast cluster settled` waits for it."""
    name, separator, number = partition.rpartition("/")
    wanted = [part.strip() for part in nodes.split(",")]
    if not separator or not number.isdecimal():
        raise CliError(f"{partition!r} names no partition", advice="write it as trades/0", exit_code=EXIT_USAGE)
    if not all(part.isdecimal() for part in wanted):
        raise CliError(f"{nodes!r} names no nodes", advice="write their numbers as 1,4,5", exit_code=EXIT_USAGE)

    async def work() -> dict[str, Any]:
        async with frame.admin() as admin:
            target = [int(part) for part in wanted]
            return await admin.reassign_partition(name, number, target, allow_same_rack=allow_same_rack)

    found = run(work())
    frame.output.result(found)
    if not frame.output.as_json:
        frame.output.say(f"{partition} goes to nodes {', '.join(wanted)}; see `holdfast cluster moves`")


@log.command("delete")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@command_frame()
def delete_log(frame: CommandFrame, name: str, yes: bool) -> None:
    """Delete log NAME with all its events."""
    if not yes:
        click.confirm(f"Delete log {name} with all its events?", abort=True, err=True)

    async def work() -> None:
        async with frame.admin() as admin:
            await admin.delete_log(name)

    run(work())
    frame.output.result({"name": name, "deleted": True})
    if not frame.output.as_json:
        frame.output.say(f"log {name} is deleted")


@log.command("dump")
@click.argument("name")
@click.option("--partition", default="0", show_default=True, help="Print that of this partition.")
@click.option("--offset", default=None, help="Begin at the entry that holds this event.")
@click.option("--after", type=click.IntRange(min=0), default=0, help="Begin behind this index of the Raft log.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="Print so many entries at most."
)
@command_frame()
def dump_log(frame: CommandFrame, name: str, partition: str, offset: str | None, after: int, limit: int) -> None:
    """Print the log of a partition of NAME, entry by entry: record batches with their attributes, markers of
    transactions, commands. The partition's leader is asked; committed or not makes no difference here."""

    async def work() -> dict[str, Any]:
        async with frame.admin() as admin:
            return await admin.dump_log(name, partition, after=after, offset=offset, limit=limit)

    found = run(work())
    frame.output.result({"log": name, **found})
    frame.output.table(
        f"log {name}, partition {partition}: entries {found['first_index']} to {found['last_index']}",
        _DUMP_COLUMNS,
        map(_dumped, found["entries"]),
    )
    entries = found["entries"]
    if not frame.output.as_json and entries and entries[-1]["index"] < found["last_index"]:
        frame.output.say(f"there is more: --after {entries[-1]['index']}")


_DUMP_COLUMNS = [
    *("index>", "term>", "kind", "base offset", "count>", "attributes"),
    *("producer>", "epoch>", "sequence>", "bytes>", "note"),
]


def _dumped(entry: dict[str, Any]) -> list[Any]:
    flags = [word for word in ("transactional", "control") if entry.get(word)]
    if entry.get("compression", "none") != "none":
        flags.append(entry["compression"])
    if entry.get("timestamp_type"):
        flags.append(f"{entry['timestamp_type']}-time")
    numbers = [entry.get(key, -1) for key in ("producer_id", "producer_epoch", "base_sequence")]
    note = entry.get("detail", "")
    if "coordinator_epoch" in entry:
        note = f"coordinator epoch {entry['coordinator_epoch']}"
    elif entry.get("count", 0) > entry.get("stored", 0):
        note = note or f"{entry['count'] - entry['stored']} were stored before, or not at all"
    return [
        str(entry["index"]),
        str(entry["term"]),
        entry["kind"],
        entry.get("base_offset"),
        str(entry["count"]) if "count" in entry else None,
        " ".join(flags),
        *(str(number) if number >= 0 else None for number in numbers),
        str(entry["bytes"]),
        note,
    ]


def _move_of(entry: dict[str, Any]) -> str:
    """The move of a partition, as the metadata have it."""
    move, target = entry.get("move"), cell(entry.get("target"))
    if move is None:
        return f"waits, to {target}" if target else ""
    return exchange_text(move) + (", cancel asked" if move.get("cancel_asked") else "")


def exchange_text(move: dict[str, Any]) -> str:
    """Nodes that a move takes a replica from and brings one to."""
    add, remove = move.get("add"), move.get("remove")
    if add is None:
        return f"{remove} leaves"
    return f"{add} comes" if remove is None else f"{remove} -> {add}"


def progress_text(state: dict[str, Any]) -> str:
    if "entries" not in state:
        return ""
    done = f"{state['entries_fetched']} of {state['entries']} entries, {bytes_text(state['received_bytes'])}"
    return f"{done}, {state['refused_pieces']} damaged" if state.get("refused_pieces") else done


def _behind(entry: dict[str, Any]) -> str:
    """Replicas of a partition that are not simply following."""
    odd = [state for state in entry.get("replica_states", ()) if state["state"] != "follows"]
    return "; ".join(" ".join(filter(None, (f"{one['node']}:", one["state"], progress_text(one)))) for one in odd)


def _show_log(output: Output, description: dict[str, Any]) -> None:
    output.result(description)
    keeps = duration_text(description.get("retention_ms"))
    limit = _size_text(description.get("retention_bytes"))
    partitions = description.get("partitions", [])
    columns = ["partition", "leader>", "replicas"]
    optional = [
        key for key in ("earliest_offset", "latest_offset", "events", "bytes") if any(key in p for p in partitions)
    ]
    right = {"events", "bytes"}
    behind = [_behind(entry) for entry in partitions]
    moves = [_move_of(entry) for entry in partitions]
    compression = description.get("compression", "none")
    packed = "" if compression == "none" else f", compressed with {compression}"
    output.table(
        f"log {description.get('name')} (keeps events {keeps}, up to {limit} per partition{packed})",
        columns
        + [key.replace("_", " ") + (">" if key in right else "") for key in optional]
        + (["not following"] if any(behind) else [])
        + (["move"] if any(moves) else []),
        (
            [entry["partition"], entry.get("leader"), cell(entry.get("replicas"))]
            + [bytes_text(entry[key]) if key == "bytes" and key in entry else cell(entry.get(key)) for key in optional]
            + ([text] if any(behind) else [])
            + ([move] if any(moves) else [])
            for entry, text, move in zip(partitions, behind, moves, strict=True)
        ),
    )


def cell(value: Any) -> str | None:
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {item}" for name, item in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return None if value is None else str(value)


def _size_text(count: int | None) -> str:
    return "any size" if count is None else bytes_text(count)


def _bound(value: int | str | None) -> int | None:
    return value if isinstance(value, int) else None
