"""Watching a node that leaves, until the cluster has removed it. That changes nothing, and may stop at any time."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from holdfast.cli.shared.command_frame import CommandFrame, run
from holdfast.cli.shared.errors import CliError
from holdfast.cli.shared.output import bytes_text, counted
from holdfast.client.admin import AdminClient
from holdfast.client.errors import AdminError

LOOK_EVERY_S, SELDOM_S = 0.5, 5.0
SHOWN_REASONS = 5


def watch(frame: CommandFrame, node: int, replicas: int, wait_s: float) -> None:
    """Wait until the node is removed, with a bar on a terminal. Ctrl-C ends the watching, and nothing else."""
    try:
        left = run(_watch(frame, node, replicas, wait_s))
    except KeyboardInterrupt:
        frame.output.note(f"node {node} goes on leaving; `holdfast node cancel {node}` would take that back")
        raise
    if left is None:
        frame.output.say(f"node {node} is removed: it has stopped, and its number is not taken again")
        return
    reasons = run(_reasons(frame))
    raise CliError(
        f"node {node} keeps {counted(left, 'replica')} still" + "".join(f"; {one}" for one in reasons),
        advice=f"it goes on by itself: watch `holdfast cluster moves`, or take it back: holdfast node cancel {node}",
    )


def next_look_s(waited_s: float) -> float:
    """Seconds until the next look, after so many of waiting: a tenth more, so that hours cost little."""
    return min(SELDOM_S, max(LOOK_EVERY_S, waited_s / 10))


async def _watch(frame: CommandFrame, node: int, replicas: int, wait_s: float) -> int | None:
    """Replicas that are left when the time is over; None: the node is removed."""
    begun = time.monotonic()
    async with frame.admin() as admin:
        with frame.output.progress(f"emptying node {node}", replicas) as bar:
            while (left := await _kept(admin, node)) is not None:
                moves = (await admin.list_moves())["moves"]
                bar.update(max(0, replicas - left), f"{bytes_text(sum(one['bytes_left'] for one in moves))} left")
                if (waited_s := time.monotonic() - begun) >= wait_s:
                    return left
                await asyncio.sleep(min(next_look_s(waited_s), wait_s - waited_s))
    return None


async def _kept(admin: AdminClient, node: int) -> int | None:
    """Replicas that a node that leaves keeps; None: it is removed."""
    try:
        told = await admin.remove_node(node, dry_run=True)
    except AdminError as error:
        if error.code == "not-found":
            return None
        raise
    if told["state"] != "leaving":
        raise CliError(f"node {node} does not leave any more: somebody has taken that back")
    return int(told["replicas"])


async def _reasons(frame: CommandFrame) -> list[str]:
    """Moves under way, and what else is not in order."""
    async with frame.admin() as admin:
        found: dict[str, Any] = await admin.list_moves()
    waiting = [f"{one['log']}/{one['partition']}: {one['waits_for']}" for one in found["moves"] if one["waits_for"]]
    return [*waiting, *found["unsettled"]][:SHOWN_REASONS]
