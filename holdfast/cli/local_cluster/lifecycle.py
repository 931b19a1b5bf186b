"""The life of a local cluster: created, then started until it has a leader."""

from __future__ import annotations

import asyncio
import contextlib
import time
from itertools import zip_longest
from pathlib import Path
from typing import Any

from holdfast.cli.local_cluster import ports
from holdfast.cli.local_cluster.processes import LOOPBACK, ClusterPlan, LocalCluster, NodePlan, ready
from holdfast.cli.shared.errors import EXIT_TIMEOUT, CliError
from holdfast.cli.shared.output import Output
from holdfast.client.admin import AdminClient
from holdfast.client.errors import AdminError, AuthenticationError, HoldfastError, NotAuthorizedError, ProtocolError
from holdfast.client.loop_thread import LoopThread
from holdfast.client.transport.network import NetworkOptions
from holdfast.client.transport.security.credentials import Security

MAX_NODES = 31  # what a node accepts
FEW_NODES = 7
NODE_BYTES = 160 * 1024 * 1024  # of memory: an idle node takes 100 MiB
ASK_INTERVAL_S = 0.1
NOT_LET_IN = (AuthenticationError, NotAuthorizedError, AdminError, ProtocolError)
"""Answers of a node to a caller with another credential, or with TLS where there is none."""


def _require_memory(nodes: int) -> None:
    """Refuse a large cluster that this machine has no memory for: the system would end some of its processes."""
    free = _available_bytes()
    if nodes > FEW_NODES and free is not None and nodes * NODE_BYTES > free:
        raise CliError(
            f"{nodes} nodes need {nodes * NODE_BYTES >> 20} MiB of memory, and {free >> 20} MiB are free here",
            advice=f"take {max(FEW_NODES, free // NODE_BYTES)} at most",
        )


def _available_bytes() -> int | None:
    """Memory that processes could have, by Linux's own estimate. None: another system, which does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return None
    told = (line.split() for line in lines if line.startswith("MemAvailable:"))
    return next((int(words[1]) * 1024 for words in told), None)


def create(
    directory: Path,
    nodes: int,
    amqp_port: int | None,
    rpc_port: int,
    name: str,
    durability: str,
    *,
    tls: bool = False,
    monitoring: bool = False,
    checkpoint_port: int = 0,
    usual_ports: bool = True,
    tied: bool = False,
    bind: str = LOOPBACK,
) -> LocalCluster:
    """Write the files of a new cluster; nothing is started.

    Args:
        amqp_port, rpc_port: ports of node 1; None or 0: chosen, the usual ones first if `usual_ports` is true.
        checkpoint_port: port of node 1 for checkpoints of Event Hubs' processors; 0: none has one.
        tied: nodes end with this process, however it ends (Linux).
        bind: where clients are served: LOOPBACK, or EVERYWHERE, with everybody let in.
    """
    _require_memory(nodes)
    amqp = ports.consecutive(amqp_port or 0, nodes, ports.USUAL_AMQP_PORT if usual_ports else None, "AMQP")
    rpc = ports.consecutive(rpc_port, nodes, ports.USUAL_RPC_PORT if usual_ports else None, "RPC")
    if set(amqp) & set(rpc):
        raise CliError("the AMQP and RPC ports overlap", advice="leave a gap of at least --nodes between them")
    http = ports.consecutive(0, nodes, ports.USUAL_MONITORING_PORT, "monitoring") if monitoring else []
    doors = ports.consecutive(checkpoint_port, nodes, None, "checkpoint") if checkpoint_port else []
    plan = ClusterPlan(
        name=name,
        durability=durability,
        nodes=[
            NodePlan(
                id=number,
                amqp=f"{LOOPBACK}:{a}",
                rpc=f"{LOOPBACK}:{r}",
                monitoring=f"{LOOPBACK}:{h}" if h else "",
                checkpoints=f"{LOOPBACK}:{c}" if c else "",
                bind=bind,
            )
            for number, (a, r, h, c) in enumerate(zip_longest(amqp, rpc, http, doors), start=1)
        ],
        tls=tls,
    )
    local = LocalCluster(directory, plan, tied=tied)
    try:
        local.write()
    except OSError as error:
        raise CliError(f"{directory} cannot be written: {error}") from error
    return local


def start(local: LocalCluster, output: Output, wait_s: float, security: Security) -> None:
    """Start what does not run, and wait until every node answers and the cluster has a leader. The leader is asked for
    as `security` says; nodes that do not let us in stay, since each has said itself that it is ready."""
    deadline = time.monotonic() + wait_s
    running = local.running()
    wanted = [node.id for node in local.plan.nodes if node.id not in running]
    starting = []
    try:
        for node_id in wanted:
            starting.append(local.spawn(node_id))
        with output.progress(f"starting {len(wanted)} nodes", len(wanted)) as bar:
            for done, _ in enumerate(ready(starting, deadline), start=1):
                bar.update(done)
        # On a thread of its own: the caller may have a loop that runs.
        with contextlib.closing(LoopThread("holdfast start")) as thread:
            thread.run(lambda: _leader_known(local.plan.servers, deadline, security))
    except NOT_LET_IN as error:
        output.note(f"the nodes are ready, but do not tell whom they follow: {error}")
    except (CliError, HoldfastError, KeyboardInterrupt):
        # Half a cluster is worse than none: those that we started go again. Their logs stay.
        for node in starting:
            local.kill(node.node_id)
        raise


async def _leader_known(servers: list[str], deadline: float, security: Security) -> None:
    """Wait until every node answers and names the same leader of the metadata group."""
    last: Exception | str = "no node answered"
    while (left_s := deadline - time.monotonic()) > 0:
        try:
            statuses = await asyncio.gather(*(_status_of(server, min(5.0, left_s), security) for server in servers))
            leaders = {metadata_leader(status) for status in statuses}
            if len(leaders) == 1 and None not in leaders:
                return
            last = f"the nodes name these leaders: {leaders}"
        except HoldfastError as error:
            if not error.retriable:
                raise
            last = error
        await asyncio.sleep(ASK_INTERVAL_S)
    raise CliError(f"the cluster elected no leader in time ({last})", exit_code=EXIT_TIMEOUT)


def metadata_leader(status: dict[str, Any]) -> int | None:
    """The leader of the metadata group, as the node that gave this status knows it."""
    leader = (status.get("metadata") or {}).get("leader")
    return int(leader) if leader is not None else None


async def _status_of(server: str, timeout_s: float, security: Security) -> dict[str, Any]:
    async with AdminClient([server], timeout_s=timeout_s, options=NetworkOptions(security=security)) as admin:
        return await admin.cluster_status()
