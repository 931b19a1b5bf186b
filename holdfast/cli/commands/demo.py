"""The main job: a day of trades goes in through one node and comes out through another, while a leader dies.

What it does, on a fresh three-node cluster on this machine:
 1. a log `trades` of four partitions, three replicas each;
 2. every trade is published, keyed by its symbol, with one node as the entry point;
 3. at the same time all of it is read back through *another* node, which serves what it does not lead as a gateway;
 4. on the way, the node that leads the busiest partition is ended by kill -9, and started again once the log flows;
 5. what came back is compared with what went in: count, order and checksum per symbol.

Rule never broken: a run in which anything is missing, out of order or different fails, and so does a run in which the
kill did not fall into the publishing: an untested claim is not a success. Every wait is bounded by the job's own
deadline.
"""

from __future__ import annotations

import asyncio
import shutil
import uuid
from pathlib import Path
from typing import Any

import click

from holdfast.amqp.key_partitioner import partition_index
from holdfast.cli.commands.cluster import hold
from holdfast.cli.local_cluster.lifecycle import create, start
from holdfast.cli.local_cluster.processes import LocalCluster
from holdfast.cli.main_job.job import (
    LOG,
    PARTITIONS,
    Job,
    run_job,
)
from holdfast.cli.shared.command_frame import (
    CommandFrame,
    command_frame,
    run,
    terminate_like_interrupt,
)
from holdfast.cli.shared.errors import CliError
from holdfast.cli.shared.output import Output, bad, good
from holdfast.client.transport.security.credentials import Security

DEFAULT_FILE = Path(__file__).parents[1] / "main_job" / "data" / "trades-2013-10-07.csv.gz"


@click.command()
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("var/run"),
    show_default=True,
    help="Keep the cluster here; an earlier run's cluster there is removed.",
)
@click.option(
    "--amqp-port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Give node 1 this port (0: 5672 if free, else another).",
)
@click.option(
    "--rpc-port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Give node 1 this port for other nodes (0: 7101 if free, else another).",
)
@click.option("--nodes", type=click.IntRange(3, 7), default=3, show_default=True, help="Make so many nodes.")
@click.option(
    "--durability",
    type=click.Choice(["fsync", "replicated"]),
    default="fsync",
    show_default=True,
    help="Acknowledge what is on a majority's disks (fsync) or in their page caches (replicated).",
)
@click.option(
    "--file",
    type=click.Path(path_type=Path, dir_okay=False),
    default=DEFAULT_FILE,
    help="Publish the trades of this file.",
)
@click.option(
    "--bound-s", type=click.FloatRange(min=10), default=300.0, show_default=True, help="Give the whole job so long."
)
@click.option("--once/--keep-running", default=False, help="Stop the cluster afterwards, or leave it up until Ctrl-C.")
@command_frame(servers=False)
def demo(
    frame: CommandFrame,
    directory: Path,
    amqp_port: int,
    rpc_port: int,
    nodes: int,
    durability: str,
    file: Path,
    bound_s: float,
    once: bool,
) -> None:
    """Run the main job: publish, kill a leader, read back, compare. Exit status 0 only if all of it is proven."""
    output = frame.output
    terminate_like_interrupt()
    _clear(directory, output)
    local = create(directory, nodes, amqp_port, rpc_port, "demo", durability)
    output.say(f"starting {nodes} nodes in {local.directory} (AMQP {', '.join(local.plan.servers)})")
    try:
        start(local, output, wait_s=60.0, security=Security())
        job = Job(uuid.uuid4().hex[:12], local, file)
        run(_bounded(job, output, bound_s))
        problems = _problems(job)
        _report(job, problems, output)
        if not once:
            _invite(local, output)
            hold(local, output)
    finally:
        local.stop()
    if problems:
        raise CliError(
            f"the main job failed: {problems[0]}",
            advice=f"the nodes' logs are in {local.directory}/node*/node.log",
        )


async def _bounded(job: Job, output: Output, bound_s: float) -> None:
    """The job within its bound; of several failures at once the first is told."""
    try:
        async with asyncio.timeout(bound_s):
            await run_job(job, output)
    except TimeoutError:
        raise CliError(
            f"the main job did not end within {bound_s:g} s: {job.stats.accepted:,} events confirmed, "
            f"{job.read_back.distinct:,} read back",
        ) from None
    except BaseExceptionGroup as group:
        raise _first(group) from None


def _first(group: BaseExceptionGroup[Any]) -> BaseException:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


def _clear(directory: Path, output: Output) -> None:
    """Remove an earlier run's cluster, and only that: a directory without a cluster.json is not ours."""
    if LocalCluster.exists(directory):
        earlier = LocalCluster.load(directory)
        if earlier.running():
            output.say(f"stopping the cluster of an earlier run in {directory}")
            earlier.stop()
        for node in earlier.plan.nodes:
            shutil.rmtree(earlier.node_directory(node.id), ignore_errors=True)
        (directory / "cluster.json").unlink()
    elif directory.exists() and any(directory.iterdir()):
        raise CliError(f"{directory} is not empty and holds no cluster", advice="choose another --dir")


# ---------------------------------------------------------------- the verdict


def _problems(job: Job) -> list[str]:
    """Reasons why the run is not a success; nothing when it is one."""
    found = job.read_back.differences(job.published)
    failover = job.failover
    if job.stats.accepted != job.published.count:
        found.append(f"{job.published.count} events were published, {job.stats.accepted} confirmed")
    if failover is None or not failover.killed_s:
        found.append("no leader was killed")
    elif failover.gap_s is None:
        found.append("no event was confirmed after the leader's death: the failover was not shown")
    elif failover.restarted_after_s is None:
        found.append(f"node {failover.victim} did not come back")
    return found


def _report(job: Job, problems: list[str], output: Output) -> None:
    summary = _summary(job, problems)
    output.result(summary)
    rows = []
    for symbol in sorted(job.published.symbols):
        sent, back = job.published.symbols[symbol], job.read_back.symbols.get(symbol)
        same = back is not None and (back.count, back.checksum) == (sent.count, sent.checksum)
        rows.append(
            [
                symbol,
                partition_index(symbol, PARTITIONS),
                f"{sent.count:,}",
                f"{back.count:,}" if back else None,
                sent.checksum,
                good("equal, in order") if same else bad(f"differs: {back.checksum if back else 'nothing'}"),
            ]
        )
    output.table("per symbol", ["symbol", "partition>", "published>", "read back>", "checksum", "came back"], rows)
    gap_s = job.failover.gap_s if job.failover is not None else None
    publish_rate, read_rate = summary["publish"]["events_per_second"], summary["read_back"]["events_per_second"]
    output.table(
        "the main job",
        ["", ""],
        [
            ["published", f"{job.published.count:,} events in {job.publish_s:.1f} s: {publish_rate:,} events/s"],
            ["read back", f"{job.read_back.distinct:,} events in {job.read_s:.1f} s: {read_rate:,} events/s"],
            ["failover gap", "not measured" if gap_s is None else f"{gap_s * 1000:.0f} ms without a confirmation"],
            ["sent again", f"{summary['publish']['sent_again']:,} events whose outcome was unknown or refused"],
            ["copies", f"{job.read_back.copies:,} in the log, dropped by the reader by their numbers"],
            ["verdict", good("every event came back, in order") if not problems else bad(problems[0])],
        ],
    )
    if not output.as_json:
        for problem in problems[1:]:
            output.say(f"also: {problem}")


def _summary(job: Job, problems: list[str]) -> dict[str, Any]:
    failover = job.failover
    gap_s = failover.gap_s if failover is not None else None
    return {
        "ok": not problems,
        "problems": problems,
        "publish": {
            "through_node": job.entry_node,
            "events": job.published.count,
            "confirmed": job.stats.accepted,
            "seconds": round(job.publish_s, 3),
            "events_per_second": round(job.published.count / job.publish_s) if job.publish_s else 0,
            "sent_again": job.stats.resent + job.stats.released,
        },
        "read_back": {
            "through_node": job.exit_node,
            "events": job.read_back.events,
            "distinct": job.read_back.distinct,
            "copies": job.read_back.copies,
            "seconds": round(job.read_s, 3),
            "events_per_second": round(job.read_back.distinct / job.read_s) if job.read_s else 0,
            "links_opened": job.reader_links,
        },
        "failover": {
            "killed_node": failover.victim if failover else None,
            "partitions": failover.partitions if failover else [],
            "gap_ms": None if gap_s is None else round(gap_s * 1000),
            "restarted_after_s": failover.restarted_after_s if failover else None,
        },
        "symbols": {
            symbol: {"published": sent.count, "checksum": sent.checksum}
            for symbol, sent in sorted(job.published.symbols.items())
        },
    }


def _invite(local: LocalCluster, output: Output) -> None:
    server = local.directory
    output.say(
        f"\nThe cluster is yours: any AMQP 1.0 client, at {', '.join(local.plan.servers)}. For example:\n"
        f"  .venv/bin/holdfast log describe {LOG} --server {server}\n"
        f"  .venv/bin/holdfast consume {LOG} --from earliest --max 5 --show all --server {server}\n"
        f"  echo hello | .venv/bin/holdfast produce {LOG} --key me --server {server}"
    )
