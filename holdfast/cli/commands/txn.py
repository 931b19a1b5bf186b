"""`holdfast txn`: transactional ids, what they have open, and what hangs; and batches that are written by groups."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from holdfast.cli.shared.command_frame import CommandFrame, command_frame, run
from holdfast.client.admin import AdminClient

T = TypeVar("T")

LIST_COLUMNS = ["transactional id", "state", "producer>", "epoch>", "open for>", "timeout>", "partitions>"]
HANGING_COLUMNS = [
    "log", "partition", "transactional id", "coordinator", "producer>", "epoch>", "open for>", "timeout>",
    "first offset", "coordinator says",
]  # fmt: skip


GROUP_COLUMNS = [
    "writer", "committed up to>", "open batch>", "state", "run", "members>", "prepared>", "open for>", "timeout>",
    "oldest member>",
]  # fmt: skip
MEMBER_COLUMNS = ["member", "part", "attempt", "state", "open for>", "lease>", "partitions"]


@click.group()
def txn() -> None:
    """Look after transactions: list, describe, abort, hanging, groups."""


def _with_admin(frame: CommandFrame, work: Callable[[AdminClient], Awaitable[T]]) -> T:
    async def whole() -> T:
        async with frame.admin() as admin:
            return await work(admin)

    return run(whole())


@txn.command("list")
@click.option("--open", "only_open", is_flag=True, help="List only those with a transaction under way.")
@command_frame()
def list_transactions(frame: CommandFrame, only_open: bool) -> None:
    """List the transactional ids that the cluster knows."""
    found = _with_admin(frame, lambda admin: admin.list_transactions())
    if only_open:
        found = [one for one in found if one.get("open_ms") is not None]
    frame.output.result({"transactions": found})
    frame.output.table("", LIST_COLUMNS, map(_row, found))


@txn.command("describe")
@click.argument("transactional_id", metavar="ID")
@command_frame()
def describe_transaction(frame: CommandFrame, transactional_id: str) -> None:
    """Show what ID has open, and where; how its last transaction ended."""
    _show(frame, _with_admin(frame, lambda admin: admin.describe_transaction(transactional_id)))


@txn.command("abort")
@click.argument("transactional_id", metavar="ID")
@command_frame()
def abort_transaction(frame: CommandFrame, transactional_id: str) -> None:
    """Roll back the transaction that ID has open. Its producer hears of it at its commit."""
    _show(frame, _with_admin(frame, lambda admin: admin.abort_transaction(transactional_id)))
    if not frame.output.as_json:
        frame.output.say(f"what {transactional_id} had open was rolled back")


@txn.command("hanging")
@click.option(
    "--margin-s",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    help="List those that are open for so long beyond their timeout.",
)
@command_frame()
def hanging_transactions(frame: CommandFrame, margin_s: float) -> None:
    """List transactions that a partition holds open for longer than their timeout: committed readers wait for them."""
    found = _with_admin(frame, lambda admin: admin.hanging_transactions(margin_ms=round(margin_s * 1000)))
    frame.output.result({"transactions": found})
    if found:
        frame.output.table("", HANGING_COLUMNS, map(_hanging_row, found))
    elif not frame.output.as_json:
        frame.output.say("no transaction hangs")


@txn.group()
def groups() -> None:
    """Look after batches that many processes write and one commits: list, describe, abort, forget."""


@groups.command("list")
@click.option("--open", "only_open", is_flag=True, help="List only writers with a batch open.")
@command_frame()
def list_groups(frame: CommandFrame, only_open: bool) -> None:
    """List the writers that the cluster knows, and the batch that each has open."""
    found = _with_admin(frame, lambda admin: admin.list_transaction_groups())
    if only_open:
        found = [one for one in found if one.get("batch") is not None]
    frame.output.result({"writers": found})
    frame.output.table("", GROUP_COLUMNS, map(_group_row, found))


@groups.command("describe")
@click.argument("writer")
@command_frame()
def describe_group(frame: CommandFrame, writer: str) -> None:
    """Show what WRITER has committed last, what it has open, and who writes it."""
    found = _with_admin(frame, lambda admin: admin.describe_transaction_group(writer))
    frame.output.result(found)
    frame.output.table("", GROUP_COLUMNS, [_group_row(found)])
    if found["group_members"]:
        frame.output.table("", MEMBER_COLUMNS, map(_member_row, found["group_members"]))
    if found.get("aborted") and not frame.output.as_json:
        frame.output.say(f"the last one that was not committed: {found['aborted']}")


@groups.command("abort")
@click.argument("writer")
@command_frame()
def abort_group(frame: CommandFrame, writer: str) -> None:
    """Roll back the batch that WRITER has open. Whoever writes it hears of it at its commit."""
    _with_admin(frame, lambda admin: admin.abort_transaction_group(writer))
    frame.output.result({"writer": writer, "committed": False})
    if not frame.output.as_json:
        frame.output.say(f"the batch that {writer} had open was rolled back")


@groups.command("forget")
@click.argument("writer")
@click.option("--yes", is_flag=True, help="Do not ask.")
@command_frame()
def forget_group(frame: CommandFrame, writer: str, yes: bool) -> None:
    """Forget WRITER, and which batch it committed last. Only if it never comes again: it would write what it replays
    anew. Refused while it has a batch open."""
    if not yes:
        click.confirm(f"Forget {writer}? Were it to replay a batch, that would be written twice", abort=True, err=True)
    last = _with_admin(frame, lambda admin: admin.forget_transaction_group(writer))
    frame.output.result({"writer": writer, "last_committed": last})
    if not frame.output.as_json:
        committed = "nothing" if last is None else f"batch {last}"
        frame.output.say(f"{writer} is forgotten; it had committed {committed} last")


def _show(frame: CommandFrame, found: dict[str, Any]) -> None:
    frame.output.result(found)
    frame.output.table("", LIST_COLUMNS, [_row(found)])
    if found["partitions"]:
        frame.output.table("", ["log", "partition"], ([one["log"], one["partition"]] for one in found["partitions"]))
    if not frame.output.as_json:
        coordinator = found["coordinator"]
        leader = "nobody" if coordinator["leader"] is None else f"node {coordinator['leader']}"
        frame.output.say(f"decided by coordinator {coordinator['partition']}, which {leader} leads")
        if found.get("last"):
            frame.output.say(f"the last one: {found['last']}")


def _row(one: dict[str, Any]) -> list[Any]:
    return [
        one["transactional_id"], one["state"], one["producer_id"], one["epoch"], _seconds(one.get("open_ms")),
        _seconds(one["timeout_ms"]), one["partition_count"],
    ]  # fmt: skip


def _hanging_row(one: dict[str, Any]) -> list[Any]:
    return [
        one["log"], one["partition"], one.get("transactional_id"), one["coordinator"], one["producer_id"], one["epoch"],
        _seconds(one["open_ms"]), _seconds(one["timeout_ms"]), one.get("first_offset"), one["coordinator_says"],
    ]  # fmt: skip


def _group_row(one: dict[str, Any]) -> list[Any]:
    return [
        one["writer"], one.get("last_committed"), one.get("batch"), one["state"], one["run"], one["members"],
        one["prepared"], _seconds(one.get("open_ms")), _seconds(one.get("timeout_ms")),
        _seconds(one.get("oldest_member_ms")),
    ]  # fmt: skip


def _member_row(one: dict[str, Any]) -> list[Any]:
    places = sorted({f"{place['log']}/{place['partition']}" for place in one["partitions"]})
    state = one["state"] if not one.get("why") else f"{one['state']} ({one['why']})"
    return [
        one["member"], one["part"], one["attempt"], state, _seconds(one["open_ms"]), _seconds(one["lease_ms"]),
        ", ".join(places),
    ]  # fmt: skip


def _seconds(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else f"{milliseconds / 1000:.1f} s"
