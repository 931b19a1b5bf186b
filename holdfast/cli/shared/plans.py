"""Plans of where replicas should lie, shown and applied. Commands on nodes and on the cluster use them alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from holdfast.cli.shared.command_frame import CommandFrame, command_frame, run
from holdfast.cli.shared.errors import CliError
from holdfast.cli.shared.output import bytes_text, counted
from holdfast.cli.shared.retention import PACE

SHOWN = 20
"""Partitions of a plan that are shown without --all."""

TOLD = 3
"""Obstacles that an error names."""

Command = Callable[..., Any]


def plan_options(command: Command) -> Command:
    """Options of a command that makes a plan, and carries out one that it has shown."""
    for option in (
        click.option("--all", "show_all", is_flag=True, help="Show all partitions (otherwise: the first 20)."),
        click.option(
            "--apply", "digest", metavar="DIGEST", help="Do what the plan with this digest says, and nothing else."
        ),
        click.option("--dry-run", is_flag=True, help="Show the plan, and change nothing."),
    ):
        command = option(command)
    return command


def show_or_apply(
    frame: CommandFrame, again: str, digest: str | None, dry_run: bool, show_all: bool, **what: int | None
) -> dict[str, Any]:
    """Show a plan, or carry it out; return it. `again`: the command that applies it. `what`: arguments of
    `AdminClient`."""
    if digest is not None and dry_run:
        raise CliError("--dry-run and --apply contradict each other", advice="give one of them")

    async def work() -> dict[str, Any]:
        async with frame.admin() as admin:
            if digest is None:
                return await admin.plan_balance(**what)
            return await admin.apply_balance(digest, **what)

    plan = run(work())
    frame.output.result(plan)
    if plan["obstacles"] and not plan["partitions"]:
        raise CliError(
            "nothing can be moved: " + "; ".join(plan["obstacles"][:TOLD]),
            advice="mend that, and ask again; nothing was changed",
        )
    _show(frame, plan, show_all)
    for obstacle in plan["obstacles"]:
        frame.output.note(f"not in the plan: {obstacle}")
    if digest is not None:
        frame.output.say(f"plan {plan['digest']} is under way: watch it with `holdfast cluster moves`")
    elif plan["partitions"]:
        frame.output.say(f"nothing was changed; carry it out with `{again} --apply {plan['digest']}`")
    return plan


@click.command()
@click.option("--empty", type=click.IntRange(min=1), default=None, metavar="N", help="Move all replicas off node N.")
@plan_options
@command_frame()
def balance(frame: CommandFrame, empty: int | None, dry_run: bool, digest: str | None, show_all: bool) -> None:
    """Plan how replicas lie evenly, and carry out that plan.

    In this order: replicas of nodes that are lost or leave, disks above their mark, replicas in one rack, replicas,
    bytes and preferred leaders that nodes have more of than others. Without --apply it shows what would be moved. What
    is shown is what happens: a plan is carried out as it is, or refused when one of its partitions has changed.
    """
    again = "holdfast cluster balance" + ("" if empty is None else f" --empty {empty}")
    show_or_apply(frame, again, digest, dry_run, show_all, **({} if empty is None else {"remove": empty}))


@click.command()
@click.option(
    "--balance",
    type=click.Choice(["off", "repair", "on"]),
    default=None,
    help="Do by itself: nothing; replace lost nodes and empty those that leave; or all that `balance` does.",
)
@click.option("--replace-after-s", type=int, default=None, metavar="S", help="Replace a node that is away for so long.")
@click.option("--disk-high", type=int, default=None, metavar="PERCENT", help="Relieve disks that are fuller.")
@click.option("--disk-low", type=int, default=None, metavar="PERCENT", help="Relieve them down to this.")
@click.option("--disk-target", type=int, default=None, metavar="PERCENT", help="Fill no disk above this by moves.")
@click.option(
    "--pace",
    "pace_bytes_per_s",
    type=PACE,
    default=None,
    help="Move at most so much a second out of each node, and into it, for example 32MiB.",
)
@command_frame()
def settings(frame: CommandFrame, balance: str | None, **numbers: int | None) -> None:
    """Show the settings of balancing and of moves, and change those that are named."""

    async def work() -> dict[str, Any]:
        async with frame.admin() as admin:
            return await admin.balance_settings(balance, **numbers)

    now = run(work())
    frame.output.result(now)
    now["pace"] = f"{bytes_text(now.pop('pace_bytes_per_s'))}/s"
    frame.output.table("", ["setting", "value"], ([key.replace("_", " "), value] for key, value in now.items()))


def _show(frame: CommandFrame, plan: dict[str, Any], show_all: bool) -> None:
    moves = plan["moves"]
    if not moves:
        frame.output.say("there is nothing to move")
        return
    size = f"{counted(plan['partitions'], 'partition')}, {bytes_text(plan['bytes'])}"
    frame.output.say(f"plan {plan['digest']}: {size}, about {_time_text(plan['seconds'])}")
    listed = moves if show_all else moves[:SHOWN]
    rows = ([m["log"], m["partition"], _step(m), bytes_text(m["bytes"]), m["leader"], m["why"]] for m in listed)
    frame.output.table("", ["log", "partition>", "from -> to", "size>", "leader>", "why"], rows)
    if len(listed) < plan["partitions"]:
        frame.output.say(f"and {plan['partitions'] - len(listed)} more (--all shows up to 1,000; --json, too)")
    frame.output.table(
        "afterwards",
        ["node>", "replicas>", "preferred leader of>", "bytes>"],
        ([one["node"], one["replicas"], one["preferred"], bytes_text(one["bytes"])] for one in plan["after"]),
    )


def _time_text(seconds: int) -> str:
    """Time that copying takes at the configured pace; an estimate, so whole minutes do."""
    if seconds <= 60:
        return "a minute"
    minutes = -(-seconds // 60)
    return f"{minutes} minutes" if minutes < 120 else f"{minutes / 60:.1f} hours"


def _step(move: dict[str, Any]) -> str:
    if not move["to"]:
        return f"preferred: {move['preferred']}"
    return f"{_nodes(move['from'])} -> {_nodes(move['to'])}"


def _nodes(nodes: list[int]) -> str:
    return ", ".join(map(str, nodes))
