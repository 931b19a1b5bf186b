"""`holdfast group`: consumer groups, where they stand, and how to set them elsewhere."""

from __future__ import annotations

import datetime
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from holdfast.cli.shared.command_frame import CommandFrame, command_frame, run
from holdfast.cli.shared.errors import EXIT_USAGE, CliError
from holdfast.cli.shared.output import counted
from holdfast.client.admin import AdminClient

T = TypeVar("T")

LIST_COLUMNS = ["group", "members>", "active partitions>", "committed partitions>", "lag>"]
UNKNOWN = "unknown"
COLUMNS = ["partition", "active", "member", "epoch>", "committed offset", "lag>", "committed at"]


@click.group()
def group() -> None:
    """Look after consumer groups: list, describe, commit, reset, delete."""


def _with_admin(frame: CommandFrame, work: Callable[[AdminClient], Awaitable[T]]) -> T:
    async def whole() -> T:
        async with frame.admin() as admin:
            return await work(admin)

    return run(whole())


@group.command("list")
@click.argument("log")
@command_frame()
def list_groups(frame: CommandFrame, log: str) -> None:
    """List the consumer groups of LOG."""
    groups = _with_admin(frame, lambda admin: admin.list_groups(log))
    frame.output.result({"log": log, "groups": groups})
    names = ("group", "members", "active_partitions", "committed_partitions")
    rows = ([*(_shown(entry.get(name)) for name in names), _lag(entry)] for entry in groups)
    frame.output.table("", LIST_COLUMNS, rows)


@group.command("describe")
@click.argument("log")
@click.argument("name", metavar="GROUP")
@command_frame()
def describe_group(frame: CommandFrame, log: str, name: str) -> None:
    """Show who reads LOG for GROUP, how far it has come, and how far it is behind."""
    _show(frame, log, _with_admin(frame, lambda admin: admin.describe_group(log, name)))


@group.command("commit")
@click.argument("log")
@click.argument("name", metavar="GROUP")
@click.argument("partition")
@click.argument("offset")
@command_frame()
def commit_group(frame: CommandFrame, log: str, name: str, partition: str, offset: str) -> None:
    """Let GROUP go on behind the event at OFFSET of PARTITION; only while nobody reads it for the group."""
    done = _with_admin(frame, lambda admin: admin.commit_group(log, name, partition, offset))
    frame.output.result({"log": log, **done})
    if not frame.output.as_json:
        frame.output.say(f"group {name} goes on in partition {partition} behind {done.get('committed_offset')}")


@group.command("reset")
@click.argument("log")
@click.argument("name", metavar="GROUP")
@click.option(
    "--to",
    required=True,
    metavar="earliest|latest|none|OFFSET",
    help="Go on here; OFFSET: behind that event of --partition; none: forget the position.",
)
@click.option("--partition", default=None, help="Set it only in this partition.")
@command_frame()
def reset_group(frame: CommandFrame, log: str, name: str, to: str, partition: str | None) -> None:
    """Set GROUP elsewhere in LOG; only while nobody reads for it."""
    if to not in ("earliest", "latest", "none") and partition is None:
        raise CliError("offsets belong to one partition", advice="give --partition", exit_code=EXIT_USAGE)
    place = f"@{to}" if to in ("earliest", "latest") else to
    _show(frame, log, _with_admin(frame, lambda admin: admin.reset_group(log, name, place, partition=partition)))


@group.command("delete")
@click.argument("log")
@click.argument("name", metavar="GROUP")
@command_frame()
def delete_group(frame: CommandFrame, log: str, name: str) -> None:
    """Forget GROUP of LOG, with its positions and epochs; only while nobody reads for it."""
    _with_admin(frame, lambda admin: admin.delete_group(log, name))
    frame.output.result({"log": log, "deleted": name})
    if not frame.output.as_json:
        frame.output.say(f"group {name} of {log} is forgotten")


def _show(frame: CommandFrame, log: str, described: dict[str, Any]) -> None:
    frame.output.result({"log": log, **described})
    frame.output.table("", COLUMNS, map(_row, described["partitions"]))
    if not frame.output.as_json:
        frame.output.say(f"lag {_lag(described)}")
        nowhere = [row for row in described["partitions"] if row["lag"] is None]
        if nowhere:
            names = ", ".join(row["partition"] for row in nowhere)
            stored = sum(row["end_position"] - row["earliest_position"] for row in nowhere)
            frame.output.say(
                f"unknown: the group has no committed position in partition {names} ({counted(stored, 'event')} stored)"
            )


def _row(entry: dict[str, Any]) -> list[str]:
    committed_ms = entry.get("committed_ms")
    when = None if committed_ms is None else datetime.datetime.fromtimestamp(committed_ms / 1000)
    return [
        entry["partition"],
        "yes" if entry["active"] else "no",
        *(_shown(entry.get(name)) for name in ("member", "epoch", "committed_offset")),
        UNKNOWN if entry["lag"] is None else str(entry["lag"]),
        "-" if when is None else when.isoformat(" ", "seconds"),
    ]


def _lag(entry: dict[str, Any]) -> str:
    """The sum, and whether partitions are left out of it."""
    if not entry["unknown_partitions"]:
        return str(entry["lag"])
    known = f"{entry['known_lag']} + " if entry["known_lag"] else ""
    return f"{known}{UNKNOWN} in {counted(entry['unknown_partitions'], 'partition')}"


def _shown(value: Any) -> str:
    return "-" if value is None else str(value)
