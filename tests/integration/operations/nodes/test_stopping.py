"""A node that is asked to stop ends, whatever of it does not: who stops it waits for its process."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.cli.local_cluster import child_processes
from tests.integration.clusters.cluster import ASK_INTERVAL_S, STOP_WITHIN_S, Cluster

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[4]

PROGRAM = """
import asyncio
import threading

from cluster.rpc import PeerNetwork
from node import program, server
from node.replica_manager import ReplicaManager


async def endless(_):
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


def leaves_much(run_until):
    async def run(node, stop):
        node.left = asyncio.create_task(endless(node))
        asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
        threading.Thread(target=threading.Event().wait).start()
        await run_until(node, stop)

    return run


server.STOP_STEP_S = 0.5
"""
RUN = "\nprogram.main()\n"

FAULTS = {
    "a step of its stop": ("PeerNetwork.stop = endless", "without the end of the network to other nodes"),
    "a task of its own": ("ReplicaManager.keep_time = endless", "without the end of task 'time'"),
    "a task and threads that are left": ("server.Node.run_until = leaves_much(server.Node.run_until)", "has stopped"),
}


@pytest.mark.parametrize("endless", FAULTS)
def test_a_node_ends_though_something_of_it_does_not(make_cluster: Callable[..., Cluster], endless: str) -> None:
    fault, told = FAULTS[endless]
    cluster = make_cluster(nodes=1)
    cluster.allowed = ["the stop goes on without the end of"]  # type: ignore[attr-defined]
    node = cluster.nodes[1]
    with node.log_path.open("ab") as log:
        node.process = child_processes.spawn(
            [sys.executable, "-c", PROGRAM + fault + RUN, "--config", str(node.config_path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=ROOT,
        )
    node.expected_dead = False
    cluster.wait_ready(1)
    cluster.create("kept", 1, 1)
    cluster.stop(1)
    assert told in cluster.log(1)
    cluster.start(1)
    cluster.describe("kept")


def test_a_node_that_is_asked_again_and_again_stops_as_asked(make_cluster: Callable[..., Cluster]) -> None:
    """Who is impatient does not interrupt its end."""
    cluster = make_cluster(nodes=1)
    cluster.start()
    process = cluster.nodes[1].process
    assert process is not None
    cluster.nodes[1].expected_dead = True
    while process.poll() is None:
        process.send_signal(signal.SIGTERM)
        time.sleep(ASK_INTERVAL_S / 50)
    assert process.wait(STOP_WITHIN_S) == 0
