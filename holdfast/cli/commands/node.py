"""`holdfast node`: the nodes of a cluster, each by its own word, and emptying one before it is stopped.

Problem: what one node says about the others is hearsay; a rolling upgrade needs to know that *each* is ready and that
nobody lacks replicas, before it takes the next one away.
Rule never broken: health is judged from the answers of all nodes, each asked at its own address; a node that does not
answer is a problem, never left out.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import click

from holdfast.cli.commands.log import cell, progress_text
from holdfast.cli.shared import leaving
from holdfast.cli.shared.command_frame import CommandFrame, command_frame, run
from holdfast.cli.shared.errors import EXIT_NOT_FOUND, CliError
from holdfast.cli.shared.output import counted
from holdfast.cli.shared.plans import plan_options, show_or_apply
from holdfast.client.admin import AdminClient
from holdfast.client.errors import HoldfastError
from holdfast.client.transport.network import NetworkOptions

ASK_AGAIN_S = 0.5
ANSWER_WITHIN_S = 5.0  # of one node, when all are asked: one that hangs must not hide the others

LISTENER = click.option(
    "--listener", default="default", show_default=True, help="Reach nodes by this listener's addresses."
)

NODE_COLUMNS = {
    "node": "node>",
    "up": "is up",
    "state": "state",
    "versions": "versions",
    "rack": "rack",
    "listeners": "listeners for clients",
    "catching_up": "replicas catching up>",
    "without_vote": "replicas without a vote>",
    "refused": "its data are refused",
}
"""Columns of `node list`; what else a node says of each is for programs, and in `node describe`."""


@click.group()
def node() -> None:
    """Look after nodes: list, add, remove, replace, cancel, status, health, drain, resume, readmit, and the like."""


@node.command("list")
@command_frame()
def list_nodes(frame: CommandFrame) -> None:
    """List all nodes as the node asked sees them, and whether any has refused them for the data that they came with."""

    async def work() -> tuple[list[dict[str, Any]], list[int]]:
        async with frame.admin() as admin:
            return await admin.list_nodes(), await admin.announced_nodes()

    nodes, announced = run(work())
    frame.output.result({"nodes": nodes, "announced": announced})
    to_come = [{"node": node, "state": "announced"} for node in announced]
    rows = ([cell(entry.get(key)) for key in NODE_COLUMNS] for entry in [*nodes, *to_come])
    frame.output.table("", list(NODE_COLUMNS.values()), rows)


class Incarnation(click.ParamType):
    """Sixteen hexadecimal digits, as a node's log tells them."""

    name = "hex"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return value if isinstance(value, int) else int(str(value), 16)
        except ValueError:
            self.fail(f"{value!r} is not a hexadecimal number", param, ctx)


@node.command("describe")
@click.argument("node_id", metavar="N", type=click.IntRange(min=1))
@command_frame()
def describe_node(frame: CommandFrame, node_id: int) -> None:
    """Show node N: its addresses, whether it is up, and how far its replicas are that are catching up."""

    async def work() -> dict[str, Any]:
        async with frame.admin() as admin:
            return await admin.describe_node(node_id)

    found = run(work())
    frame.output.result(found)
    replicas = found.pop("catching_up", None)
    found.pop("node", None)  # in the heading
    frame.output.table("", ["node", str(node_id)], ([key.replace("_", " "), cell(found[key])] for key in found))
    if replicas is None:
        frame.output.say("it does not answer: how its replicas are is not known")
    elif not replicas:
        frame.output.say("all its replicas follow their leaders")
    else:
        rows = ([row["log"], row["partition"], row["state"], progress_text(row)] for row in replicas)
        frame.output.table("replicas that are behind", ["log", "partition", "state", "fetched"], rows)


@node.command("add")
@click.argument("node_id", metavar="N", type=click.IntRange(min=1))
@command_frame()
def add_node(frame: CommandFrame, node_id: int) -> None:
    """Announce node N: it may join the cluster.

    Start it with an empty data directory, with cluster.join = true, and with some of the cluster's nodes in
    cluster.peers. The number of a node that was removed is not taken again.
    """
    done = run(_change(frame, "add", node_id))
    frame.output.result(done)
    frame.output.say(f"node {node_id} may join: start it with cluster.join = true and an empty data directory")


@node.command("remove")
@click.argument("node_id", metavar="N", type=click.IntRange(min=1))
@plan_options
@click.option(
    "--wait-s",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    help="Wait so long at most until it is removed.",
)
@command_frame()
def remove_node(
    frame: CommandFrame, node_id: int, dry_run: bool, digest: str | None, show_all: bool, wait_s: float
) -> None:
    """Let node N leave the cluster.

    Its replicas move to other nodes: as the plan says that --dry-run shows and --apply carries out, else as the
    cluster plans by itself. It gets no new ones. When it keeps none, and has no vote on metadata, it is removed for
    good: it stops, and its number is not taken again. Until then `node cancel` takes it back.
    """
    planned = dry_run or digest is not None
    if planned:
        run(_change(frame, "judge", node_id))
        plan = show_or_apply(frame, f"holdfast node remove {node_id}", digest, dry_run, show_all, remove=node_id)
        if dry_run:
            if not plan["partitions"]:
                frame.output.say(f"nothing was changed; it goes at once with `holdfast node remove {node_id}`")
            return
    done = run(_change(frame, "remove", node_id))
    if not planned:
        frame.output.result(done)
    frame.output.say(
        f"node {node_id} leaves, and keeps {counted(int(done['replicas']), 'replica')} still"
        + ("" if wait_s else "; watch it: holdfast node list")
    )
    if wait_s:
        leaving.watch(frame, node_id, int(done["replicas"]), wait_s)


@node.command("cancel")
@click.argument("node_id", metavar="N", type=click.IntRange(min=1))
@command_frame()
def cancel_node(frame: CommandFrame, node_id: int) -> None:
    """Take back that node N is to leave, or that it was announced."""
    done = run(_change(frame, "cancel", node_id))
    frame.output.result(done)
    stays = "stays" if done["state"] == "active" else "is not to come"
    frame.output.say(f"node {node_id} {stays}")


async def _change(frame: CommandFrame, what: str, node_id: int) -> dict[str, Any]:
    async with frame.admin() as admin:
        match what:
            case "add":
                return await admin.add_node(node_id)
            case "remove":
                return await admin.remove_node(node_id)
            case "judge":
                return await admin.remove_node(node_id, dry_run=True)
            case _:
                return await admin.cancel_node(node_id)


@node.command("readmit")
@click.argument("node_id", metavar="N", type=click.IntRange(min=1))
@click.option(
    "--incarnation",
    type=Incarnation(),
    default=None,
    help="Admit the directory with this incarnation (default: the one refused last).",
)
@command_frame()
def readmit_node(frame: CommandFrame, node_id: int, incarnation: int | None) -> None:
    """Let node N in again, which has lost its data for good.

    It must run, with an empty data directory. It copies its replicas from the others, and votes when nothing that it
    forgot matters. If it ever comes back with its old data, it is refused.
    """

    async def work() -> dict[str, Any]:
        async with frame.admin() as admin:
            return await admin.readmit_node(node_id, incarnation=incarnation)

    done = run(work())
    frame.output.result(done)
    frame.output.say(
        f"node {node_id} is a member again, with the data of incarnation {done['incarnation']}; "
        f"watch it catch up: holdfast node describe {node_id}"
    )


@node.command("replace")
@click.argument("node_id", metavar="OLD", type=click.IntRange(min=1))
@click.option(
    "--with", "successor", type=click.IntRange(min=1), required=True, metavar="NEW", help="Move them to this node."
)
@plan_options
@command_frame()
def replace_node(
    frame: CommandFrame, node_id: int, successor: int, dry_run: bool, digest: str | None, show_all: bool
) -> None:
    """Plan that node NEW takes all replicas of node OLD, and carry out that plan.

    OLD may be dead or alive. Without --apply it shows what would be moved. Remove OLD when it is empty.
    """
    again = f"holdfast node replace {node_id} --with {successor}"
    show_or_apply(frame, again, digest, dry_run, show_all, remove=node_id, successor=successor)


@node.command("status")
@click.argument("node_id", metavar="N", type=click.IntRange(min=1))
@LISTENER
@command_frame()
def node_status(frame: CommandFrame, node_id: int, listener: str) -> None:
    """Show node N by its own word."""
    _show(frame, run(_at_node(frame, node_id, listener, "status")))


@node.command("drain")
@click.argument("node_id", metavar="N", type=click.IntRange(min=1))
@LISTENER
@command_frame()
def drain(frame: CommandFrame, node_id: int, listener: str) -> None:
    """Move all leaderships of node N to others, before it is stopped.

    It leads nothing until it is restarted or resumed. Exit status 1 when some are left: no other member has what is
    committed.
    """
    status = run(_at_node(frame, node_id, listener, "drain"))
    _show(frame, status)
    if status.get("leads"):
        raise CliError(
            f"node {node_id} still leads {counted(status['leads'], 'group')}",
            advice="bring the other nodes up and in sync (`holdfast node health`), or `holdfast node resume` this one",
        )


@node.command("resume")
@click.argument("node_id", metavar="N", type=click.IntRange(min=1))
@LISTENER
@command_frame()
def resume(frame: CommandFrame, node_id: int, listener: str) -> None:
    """Let a drained node lead again."""
    _show(frame, run(_at_node(frame, node_id, listener, "resume")))


@node.command("repair-group")
@click.argument("node_id", metavar="N", type=click.IntRange(min=1))
@click.argument("raft_group", metavar="GROUP", type=click.IntRange(min=0))
@LISTENER
@command_frame()
def repair_group(frame: CommandFrame, node_id: int, raft_group: int, listener: str) -> None:
    """Let node N's replica of one Raft group begin anew, empty and without a vote.

    GROUP is the number that `node status` and `log describe` show. The other replicas must be whole: it gets everything
    from them. Group 0 are the metadata; of those it begins anew when the node is started again.
    """
    _show(frame, run(_at_node(frame, node_id, listener, "repair", raft_group)))


@node.command("health")
@click.option(
    "--nodes", type=click.IntRange(min=1), default=None, help="Require so many nodes (default: as registered)."
)
@click.option("--expect-version", default=None, metavar="V", help="Require this version of every node.")
@click.option("--wait-s", type=click.FloatRange(min=0), default=0.0, show_default=True, help="Ask again for so long.")
@LISTENER
@command_frame()
def health(frame: CommandFrame, nodes: int | None, expect_version: str | None, wait_s: float, listener: str) -> None:
    """Judge whether every node is ready, every partition led, and every replica in sync. Exit status 1 when not."""
    deadline = time.monotonic() + wait_s
    while True:
        statuses, problems = run(_judge(frame, nodes, expect_version, listener))
        if not problems or time.monotonic() >= deadline:
            break
        time.sleep(ASK_AGAIN_S)
    frame.output.result({"healthy": not problems, "nodes": statuses, "problems": problems})
    columns = ["node>", "version", "ready", "draining", "leads>", "replicas>"]
    keys = [column.rstrip(">") for column in columns]
    frame.output.table("", columns, ([cell(status.get(key)) for key in keys] for status in statuses))
    if problems:
        raise CliError(
            "the cluster is not healthy: " + "; ".join(problems),
            advice="start or mend what is named; with --wait-s N it is asked again, until all is well",
        )


async def _judge(
    frame: CommandFrame, nodes: int | None, expect_version: str | None, listener: str
) -> tuple[list[dict[str, Any]], list[str]]:
    try:
        async with frame.admin() as admin:
            registered = await admin.list_nodes()
    except HoldfastError as error:
        return [], [f"no node answers: {error}"]
    problems = []
    if nodes is not None and len(registered) != nodes:
        problems.append(f"{len(registered)} node(s) are registered, not {nodes}")
    answers = await asyncio.gather(*(_ask(frame, entry, listener) for entry in registered))
    statuses = []
    for entry, answer in zip(registered, answers, strict=True):
        if isinstance(answer, str):
            problems.append(f"node {entry['node']} does not answer: {answer}")
        else:
            statuses.append(answer)
            problems += _problems(answer, expect_version)
    return statuses, problems


def _problems(status: dict[str, Any], expect_version: str | None) -> list[str]:
    who = f"node {status['node']}"
    found = [f"{who}: {problem}" for problem in status["problems"]]
    if expect_version is not None and status["version"] != expect_version:
        found.append(f"{who} runs version {status['version']}, not {expect_version}")
    for item in status["behind"]:
        state = "lacks" if item["up"] else "is away and lacks"
        found.append(f"node {item['node']} {state} {item['entries']} entries of {item['partition']}")
    return found


async def _ask(frame: CommandFrame, entry: dict[str, Any], listener: str) -> dict[str, Any] | str:
    """The node's own status, or why there is none."""
    try:
        options = NetworkOptions(security=frame.security)
        where = [_address(entry, listener)]
        async with AdminClient(where, timeout_s=ANSWER_WITHIN_S, options=options) as admin:
            return await admin.node_status(int(entry["node"]))
    except (CliError, HoldfastError) as error:
        return str(error)


async def _at_node(frame: CommandFrame, node_id: int, listener: str, what: str, raft_group: int = 0) -> dict[str, Any]:
    async with frame.admin() as admin:
        known = {int(entry["node"]): entry for entry in await admin.list_nodes()}
    if node_id not in known:
        raise CliError(
            f"there is no node {node_id}; registered: {', '.join(map(str, sorted(known)))}", exit_code=EXIT_NOT_FOUND
        )
    async with frame.admin(_address(known[node_id], listener)) as admin:
        match what:
            case "drain":
                return await admin.drain_node(node_id)
            case "resume":
                return await admin.resume_node(node_id)
            case "repair":
                return await admin.repair_group(node_id, raft_group)
            case _:
                return await admin.node_status(node_id)


def _address(entry: dict[str, Any], listener: str) -> str:
    listeners: dict[str, str] = entry.get("listeners") or {}
    if listener not in listeners:
        raise CliError(
            f"node {entry['node']} has no listener {listener!r}; it has {', '.join(listeners) or 'none'}",
            advice="name one of them with --listener",
            exit_code=EXIT_NOT_FOUND,
        )
    return listeners[listener]


def _show(frame: CommandFrame, status: dict[str, Any]) -> None:
    frame.output.result(status)
    rows = ([key.replace("_", " "), cell(value)] for key, value in status.items() if key != "node")
    frame.output.table("", ["node", str(status["node"])], rows)
