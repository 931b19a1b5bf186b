"""`holdfast cluster`: a cluster on this machine, for trying things out, for tests and for the main job."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import time
from pathlib import Path
from typing import Any

import click

from holdfast.cli.commands.log import cell, exchange_text
from holdfast.cli.local_cluster.lifecycle import MAX_NODES, NOT_LET_IN, create, metadata_leader, start
from holdfast.cli.local_cluster.processes import LocalCluster, NodePlan
from holdfast.cli.shared.command_frame import (
    CommandFrame,
    command_frame,
    run,
    terminate_like_interrupt,
)
from holdfast.cli.shared.errors import EXIT_NOT_FOUND, CliError
from holdfast.cli.shared.leaving import next_look_s
from holdfast.cli.shared.output import Output, bytes_text, counted
from holdfast.cli.shared.plans import balance, settings
from holdfast.client.admin import AdminClient
from holdfast.client.errors import HoldfastError
from holdfast.client.transport.network import NetworkOptions
from holdfast.client.transport.security.credentials import Security

WATCH_INTERVAL_S = 1.0  # in the foreground: how soon a node that died is noticed


class Directory(click.Path):
    """A directory by its name; the empty one, which means the present directory, is a slip of a script."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, file_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("the name is empty; write . for the present directory", param, ctx)
        return super().convert(value, param, ctx)


class ClusterName(click.ParamType):
    """Name of a cluster as `node/config.py` takes it, checked before anything is written."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", value):
            self.fail(f"{value!r} must be 1-63 of A-Z a-z 0-9 . _ -, a letter or digit first", param, ctx)
        return str(value)


DIRECTORY = click.option(
    "--dir",
    "directory",
    type=Directory(),
    default=Path("var/cluster"),
    show_default=True,
    help="Keep the cluster's files here.",
)


@click.group()
def cluster() -> None:
    """Run a cluster on this machine."""


@cluster.command()
@DIRECTORY
@click.option("--nodes", type=click.IntRange(1, MAX_NODES), default=None, help="Make so many nodes (default: 3).")
@click.option(
    "--amqp-port",
    type=click.IntRange(0, 65535),
    default=None,
    help="Give node 1 this port for AMQP, and node 2 the next one (default, and 0: from 5672 if free, else others).",
)
@click.option("--rpc-port", type=click.IntRange(0, 65535), default=0, help="Give node 1 this port for other nodes.")
@click.option("--name", type=ClusterName(), default="dev", show_default=True, help="Name the cluster so.")
@click.option(
    "--durability",
    type=click.Choice(["fsync", "replicated"]),
    default=None,
    help="Acknowledge what is on a majority's disks (fsync, the default) or in their page caches (replicated).",
)
@click.option("--tls", is_flag=True, help="Connect the nodes by mutual TLS, by an authority made for them.")
@click.option(
    "--monitoring",
    is_flag=True,
    help="Serve each node's metrics and health by HTTP: node 1's on port 9101 if it and the next are free.",
)
@click.option("--detach", is_flag=True, help="Return when it is ready (otherwise: run until Ctrl-C).")
@click.option(
    "--wait-s",
    type=click.FloatRange(min=1),
    default=60.0,
    show_default=True,
    help="Wait so long at most until it is ready.",
)
@command_frame(servers=False)
def up(
    frame: CommandFrame,
    directory: Path,
    nodes: int | None,
    amqp_port: int | None,
    rpc_port: int,
    name: str,
    durability: str | None,
    tls: bool,
    monitoring: bool,
    detach: bool,
    wait_s: float,
) -> None:
    """Create a cluster, or start one that was stopped."""
    terminate_like_interrupt()
    if LocalCluster.exists(directory):
        local = LocalCluster.load(directory)
        _refuse_change(local, nodes, amqp_port, durability, tls, monitoring)
    else:
        local = create(
            directory, nodes or 3, amqp_port, rpc_port, name, durability or "fsync", tls=tls, monitoring=monitoring
        )
    start(local, frame.output, wait_s, frame.security)
    try:
        _describe(local, frame.output, detach)
    finally:
        if not detach:
            hold(local, frame.output)


def _refuse_change(
    local: LocalCluster,
    nodes: int | None,
    amqp_port: int | None,
    durability: str | None,
    tls: bool,
    monitoring: bool,
) -> None:
    """A cluster that exists is started as it is; asking for another shape is a mistake worth a word."""
    plan = local.plan
    port = int(plan.nodes[0].amqp.rpartition(":")[2])
    asked = [
        ("--nodes", nodes, len(plan.nodes)),
        ("--amqp-port", amqp_port or None, port),
        ("--durability", durability, plan.durability),
        ("--tls", tls or None, plan.tls),
        ("--monitoring", monitoring or None, bool(plan.nodes[0].monitoring)),
    ]
    for option, value, existing in asked:
        if value is not None and value != existing:
            raise CliError(
                f"{local.directory} holds a cluster with {option} {existing}, not {value}",
                advice="use another --dir, or leave the option out",
            )


def _describe(local: LocalCluster, output: Output, detach: bool) -> None:
    rows = _process_rows(local)
    output.result({"name": local.plan.name, "dir": str(local.directory), "nodes": rows})
    output.table(
        f"cluster {local.plan.name} is ready",
        ["node>", "AMQP address", "process>", "log"],
        ([row["node"], row["amqp"], row["pid"], row["log"]] for row in rows),
    )
    if output.as_json:
        return
    for node in local.plan.nodes:
        if node.monitoring:
            output.say(f"metrics of node {node.id}: http://{node.monitoring}/metrics")
    output.say(f"talk to it with: holdfast log list --server {local.directory}")
    if detach:
        output.say(f"stop it with: holdfast cluster down --dir {local.directory}")


def _process_rows(local: LocalCluster) -> list[dict[str, Any]]:
    running = local.running()
    return [
        {
            "node": node.id,
            "amqp": node.amqp,
            "rpc": node.rpc,
            "monitoring": node.monitoring or None,
            "pid": running[node.id].pid if node.id in running else None,
            "log": str(local.log_path(node.id)),
        }
        for node in local.plan.nodes
    ]


def hold(local: LocalCluster, output: Output) -> None:
    """Keep the cluster up until Ctrl-C (or SIGTERM), tell of nodes that die, then stop it."""
    try:
        run(_watch(local, output))
    except KeyboardInterrupt:
        output.note("interrupted")  # before the watch had begun to listen; the same thing is meant
    finally:
        for node_id, outcome in local.stop().items():
            output.say(f"node {node_id}: {outcome}")


async def _watch(local: LocalCluster, output: Output) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, ended.set)
    known = set(local.running())
    output.say("the cluster stays up until Ctrl-C")
    while not ended.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), WATCH_INTERVAL_S)
        now = set(local.running())
        for node_id in sorted(known - now):
            output.note(f"node {node_id} has ended; its log: {local.log_path(node_id)}")
        known = now


@cluster.command()
@DIRECTORY
@command_frame(servers=False)
def down(frame: CommandFrame, directory: Path) -> None:
    """Stop every node; the data stays."""
    local = LocalCluster.load(directory)
    outcome = local.stop()
    frame.output.result({"nodes": [{"node": node_id, "outcome": text} for node_id, text in outcome.items()]})
    frame.output.table("", ["node>", "outcome"], outcome.items())


@cluster.command()
@DIRECTORY
@command_frame(servers=False, login=True)
def status(frame: CommandFrame, directory: Path) -> None:
    """Show which nodes run, and what they say. Exit status 1 when one does not answer, or names a problem."""
    local = LocalCluster.load(directory)
    rows = _process_rows(local)
    answers = run(_ask_each(local, {row["node"] for row in rows if row["pid"] is not None}, frame.security))
    for row in rows:
        row["running"] = row["pid"] is not None
        answer = answers.get(row["node"])
        row["answers"] = isinstance(answer, dict)
        row["problems"] = answer["problems"] if isinstance(answer, dict) else []
    status_map = next((answer for answer in answers.values() if isinstance(answer, dict)), None)
    frame.output.result({"name": local.plan.name, "dir": str(local.directory), "nodes": rows, "status": status_map})
    frame.output.table(
        f"cluster {local.plan.name}",
        ["node>", "AMQP address", "process>", "state"],
        ([row["node"], row["amqp"], row["pid"], _state(row, answers)] for row in rows),
    )
    if status_map is not None and not frame.output.as_json:
        frame.output.say(
            f"identity: {status_map.get('cluster_id') or '(none yet)'}; "
            f"version {status_map.get('active_version', 0)}; "
            f"leader of the metadata group: node {metadata_leader(status_map) or '(none now)'}; "
            f"{counted(status_map.get('logs', 0), 'log')} with "
            f"{counted(status_map.get('partitions', 0), 'partition')}, "
            f"{status_map.get('partitions_without_leader', 0)} without a leader"
        )
    if wrong := _wrong(local, rows, answers):
        raise CliError("; ".join(wrong), advice="; ".join(wrong.values()))


@cluster.command()
@click.option(
    "--dry-run", is_flag=True, help="Say what is in the way, and change nothing. Exit status 1 if anything is."
)
@click.option(
    "--heard-s",
    type=click.IntRange(0, 86_400),
    default=60,
    show_default=True,
    metavar="S",
    help="Require that every node was heard for so many seconds without a break.",
)
@command_frame()
def finalize(frame: CommandFrame, dry_run: bool, heard_s: int) -> None:
    """Finalize an upgrade: activate the newest version that all nodes know.

    Until then every node can go back to the release before. Afterwards none can.
    """

    async def work() -> dict[str, Any]:
        async with frame.admin() as admin:
            return await admin.finalize_upgrade(dry_run=dry_run, heard_s=heard_s)

    done = run(work())
    frame.output.result(done)
    active, target = done["active_version"], done["target_version"]
    if done["obstacles"]:
        raise CliError(
            f"version {target} cannot be activated: {'; '.join(done['obstacles'])}",
            advice="mend that, then ask again; until then every node can go back",
        )
    if active == target:
        frame.output.say(f"version {active} is active; there is nothing newer that all nodes know")
    else:
        frame.output.say(f"version {target} can be activated (active now: {active}); run it without --dry-run")


@cluster.command("moves")
@click.option("--cancel", default=None, metavar="all|LOG|LOG/PARTITION", help="Ask for the end of these moves.")
@command_frame()
def moves(frame: CommandFrame, cancel: str | None) -> None:
    """Show the moves of replicas: under way, waiting, and what each waits for."""
    if cancel is not None:
        asked = run(cancel_moves(frame, cancel))
        frame.output.result({"cancelled": asked})
        if not frame.output.as_json:
            for row in asked:
                frame.output.say(f"{row['log']}/{row['partition']}: {row['outcome']}")
            if not asked:
                frame.output.say("nothing moves there")
        return
    found = run(_list_moves(frame))
    frame.output.result(found)
    frame.output.table("", ["log", "partition", "move", "state", "left", "waits for"], map(_move_row, found["moves"]))
    if not frame.output.as_json:
        if (left_out := found["moving"] - len(found["moves"])) > 0:
            frame.output.say(f"and {counted(left_out, 'partition')} more that wait")
        for reason in found["unsettled"]:
            frame.output.say(reason)


@cluster.command()
@click.option(
    "--wait-s", type=click.FloatRange(min=0), default=0.0, show_default=True, help="Wait so long at most for it."
)
@command_frame()
def settled(frame: CommandFrame, wait_s: float) -> None:
    """Say whether all is in order: no replica moves, none is missing or behind, and every partition has a leader.
    Exit status 1 when it is not."""
    found = run(_await_settled(frame, wait_s))
    frame.output.result({**found, "settled": not _unsettled(found)})
    if reasons := _unsettled(found):
        raise CliError("; ".join(reasons[:SHOWN_REASONS]), advice="holdfast cluster moves shows what moves wait for")
    frame.output.say("all is in order: nothing moves, and no replica is missing")


SHOWN_REASONS = 5
LOOK_EVERY_S = 0.25
CANCEL_WITHIN_S = 10.0
"""Time for a cancel to be in force. A group without a leader takes longer, and keeps it in mind."""


async def _list_moves(frame: CommandFrame) -> dict[str, Any]:
    async with frame.admin() as admin:
        return await admin.list_moves()


async def _await_settled(frame: CommandFrame, wait_s: float) -> dict[str, Any]:
    """Wait, and look the less often the longer that takes. While something moves, it is counted only."""
    begun = time.monotonic()
    async with frame.admin() as admin:
        while True:
            is_over = (waited_s := time.monotonic() - begun) >= wait_s
            if is_over or not (await admin.list_moves(limit=0))["moving"]:
                found = await admin.list_moves()
                if is_over or not _unsettled(found):
                    return found
            await asyncio.sleep(min(next_look_s(waited_s), max(0.0, wait_s - waited_s)))


def _unsettled(found: dict[str, Any]) -> list[str]:
    moving = [f"{one['log']}/{one['partition']} moves ({one['state']})" for one in found["moves"]]
    return moving + list(found["unsettled"])


async def cancel_moves(frame: CommandFrame, which: str) -> list[dict[str, Any]]:
    """Ask for the end of moves, and wait a moment for what became of each."""
    name, separator, number = which.rpartition("/")
    async with frame.admin() as admin:
        before = {(one["log"], one["partition"]): one for one in (await admin.list_moves())["moves"]}
        if which == "all":
            asked = (await admin.cancel_moves())["asked"]
        elif separator and number.isdecimal():
            asked = (await admin.cancel_moves(name, partition=number))["asked"]
        else:
            asked = (await admin.cancel_moves(which))["asked"]
        deadline = time.monotonic() + CANCEL_WITHIN_S
        under_way = {}
        while time.monotonic() < deadline:
            under_way = {(one["log"], one["partition"]): one for one in (await admin.list_moves())["moves"]}
            if not any((one["log"], one["partition"]) in under_way for one in asked):
                break
            await asyncio.sleep(LOOK_EVERY_S)
        outcomes = []
        for one in asked:
            key = (one["log"], one["partition"])
            outcome = await _outcome(admin, before.get(key), under_way.get(key))
            outcomes.append({"log": key[0], "partition": key[1], "outcome": outcome})
        return outcomes


async def _outcome(admin: AdminClient, move: dict[str, Any] | None, under_way: dict[str, Any] | None) -> str:
    if under_way is not None:
        return f"asked; waits for {under_way['waits_for'] or 'its leader'}"
    if move is None or (move["add"] is None and move["remove"] is None):
        return "cancelled, before it began"
    described = await admin.describe_log(move["log"])
    replicas = next(p["replicas"] for p in described["partitions"] if p["partition"] == move["partition"])
    came = move["add"] is None or move["add"] in replicas
    went = move["remove"] is None or move["remove"] not in replicas
    return "too late: it is done" if came and went else "cancelled"


def _move_row(move: dict[str, Any]) -> list[Any]:
    left = f"{bytes_text(move['bytes_left'])} of {move['entries_left']:,} entries" if move["entries"] else None
    exchange = f"to {cell(move['target'])}" if move["state"] == "queued" else exchange_text(move)
    state = move["state"] + (", cancel asked" if move["cancel_asked"] else "")
    return [move["log"], move["partition"], exchange, state, left, move["waits_for"] or None]


cluster.add_command(balance)
cluster.add_command(settings)


def _wrong(
    local: LocalCluster, rows: list[dict[str, Any]], answers: dict[int, dict[str, Any] | HoldfastError]
) -> dict[str, str]:
    """Faults of a cluster, each with what mends it."""
    wrong: dict[str, str] = {}
    stopped = [row["node"] for row in rows if not row["running"]]
    if len(stopped) == 1:
        wrong[f"node {stopped[0]} does not run"] = f"holdfast cluster start-node {stopped[0]} --dir {local.directory}"
    elif stopped:
        which = "no node runs" if len(stopped) == len(rows) else f"nodes {', '.join(map(str, stopped))} do not run"
        wrong[which] = f"holdfast cluster up --dir {local.directory} --detach"
    closed = [node_id for node_id, answer in answers.items() if isinstance(answer, NOT_LET_IN)]
    if closed:
        which = ", ".join(map(str, sorted(closed)))
        wrong[f"not every node lets you in (closed: {which})"] = "log in as somebody who is let in, with --user"
    for node_id, answer in answers.items():
        if isinstance(answer, HoldfastError) and node_id not in closed:
            at = f"{node_id} --dir {local.directory}"
            wrong[f"node {node_id} runs, and does not answer"] = (
                f"see {local.log_path(node_id)}; if it stands still: "
                f"holdfast cluster kill-node {at} && holdfast cluster start-node {at}"
            )
    for row in rows:
        for problem in row["problems"]:
            wrong[f"node {row['node']}: {problem}"] = "holdfast node health shows it again when that is mended"
    return wrong


def _state(row: dict[str, Any], answers: dict[int, dict[str, Any] | HoldfastError]) -> str:
    if not row["running"]:
        return "stopped"
    if not row["answers"]:
        return f"runs, but: {answers.get(row['node'])}"
    return "answers, and has problems" if row["problems"] else "answers"


async def _ask_each(
    local: LocalCluster, running: set[int], security: Security
) -> dict[int, dict[str, Any] | HoldfastError]:
    """Each running node's own status, or why there is none."""

    async def ask(node: NodePlan) -> tuple[int, dict[str, Any] | HoldfastError]:
        options = NetworkOptions(security=security)
        try:
            async with AdminClient([node.amqp], timeout_s=3.0, options=options) as admin:
                problems = (await admin.node_status(node.id))["problems"]
                return node.id, {**await admin.cluster_status(), "problems": problems}
        except HoldfastError as error:
            return node.id, error

    return dict(await asyncio.gather(*(ask(node) for node in local.plan.nodes if node.id in running)))


@cluster.command("kill-node")
@click.argument("node_id", metavar="N", type=int)
@DIRECTORY
@command_frame(servers=False)
def kill_node(frame: CommandFrame, node_id: int, directory: Path) -> None:
    """End node N by kill -9, as a crash would."""
    local = LocalCluster.load(directory)
    local.plan.node(node_id)
    if not local.kill(node_id):
        raise CliError(f"node {node_id} does not run", exit_code=EXIT_NOT_FOUND)
    frame.output.result({"node": node_id, "outcome": "killed"})
    if not frame.output.as_json:
        again = f"holdfast cluster start-node {node_id} --dir {local.directory}"
        frame.output.say(f"node {node_id} was killed; start it again with: {again}")


@cluster.command("start-node")
@click.argument("node_id", metavar="N", type=int)
@DIRECTORY
@click.option(
    "--wait-s",
    type=click.FloatRange(min=1),
    default=60.0,
    show_default=True,
    help="Wait so long at most until it is ready.",
)
@command_frame(servers=False)
def start_node(frame: CommandFrame, node_id: int, directory: Path, wait_s: float) -> None:
    """Start node N again; returns when it is ready."""
    local = LocalCluster.load(directory)
    node = local.plan.node(node_id)
    local.spawn(node_id).wait(time.monotonic() + wait_s)
    process = local.process(node_id)
    frame.output.result({"node": node_id, "amqp": node.amqp, "pid": process.pid if process else None})
    if not frame.output.as_json:
        frame.output.say(f"node {node_id} is ready at {node.amqp}")
