"""What the attacks do to a node, as a table: `python -m tests.attacks.measure [NAME...] [--seconds 30]`.

One node; beside each attack an honest producer that sends one event after the other, and asks how long each took. Its
p99 without the attack is taken right before and right after in the same run; the ratio is to the smaller. Attackers,
node and honest producer share this machine, which in earnest they do not; so attackers are nice, and what they, the
node and everything else took of the processors is shown beside the times. Who has fewer free cores than the three need
sees in the ratio what the scheduler did, too.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from holdfast.cli.local_cluster import child_processes
from tests.attacks.table import ATTACKS
from tests.integration.clusters.cluster import Cluster, ClusterSettings
from tests.ports import free_ports
from tests.unit.listener.support.peer import Peer, message

CONNECTIONS = 4
NICE = 19
"""An attacker on a machine of its own takes nothing of the honest producer's processor."""

ALONE_S = 5.0


def one_node(directory: Path) -> tuple[Cluster, str]:
    port = next(iter(free_ports(1)))
    cluster = Cluster(directory, ClusterSettings(nodes=1, more=f'[monitoring]\nbind = "127.0.0.1:{port}"'))
    cluster.start()
    return cluster, f"http://127.0.0.1:{port}"


def metric(url: str, name: str) -> float:
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as page:
        for line in page.read().decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
    raise AssertionError(f"no metric {name}")


def rss_mib(pid: int) -> tuple[int, int]:
    """(now, at most) of a process."""
    found = dict(line.split(":") for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "Vm" in line)
    return int(found["VmRSS"].split()[0]) // 1024, int(found["VmHWM"].split()[0]) // 1024


def pid_of(cluster: Cluster) -> int:
    process = cluster.nodes[1].process
    assert process is not None
    return process.pid


async def honest(port: int, log: str, seconds: float) -> list[float]:
    """Milliseconds that each event took, in order of size."""
    took: list[float] = []
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(_send_one_by_one(port, log, seconds, took), seconds + 20)
    return sorted(took) or [float("inf")]


async def _send_one_by_one(port: int, log: str, seconds: float, took: list[float]) -> None:
    async with Peer(port, container="honest") as peer:
        sender = await peer.sender(log)
        end = time.monotonic() + seconds
        count = 0
        while time.monotonic() < end:
            began = time.monotonic()
            await peer.send(sender, [message(b"honest")])
            count += 1
            await peer.states(sender, count)
            took.append((time.monotonic() - began) * 1000)


def p50(values: list[float]) -> float:
    return values[len(values) // 2]


def p99(values: list[float]) -> float:
    return values[min(len(values) - 1, int(len(values) * 0.99))]


async def fill(port: int, log: str, events: int) -> None:
    async with Peer(port) as peer:
        sender = await peer.sender(log)
        sent = 0
        while sent < events:
            count = min(sender.credit, 1000, events - sent)
            await peer.send(sender, [message(b"0123456789" * 10)] * count)
            sent += count
            await peer.states(sender, sent)


def words(name: str, port: int, seconds: float, log: str) -> list[str]:
    """The command of an attack."""
    python = ["nice", "-n", str(NICE), sys.executable]
    return [*python, "-m", "tests.attacks", name, str(port), str(seconds), str(CONNECTIONS), log]


def cpu_s(pid: int) -> float:
    """That a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def machine_cpu_s() -> float:
    """That everybody has used."""
    user, nice, system = map(int, Path("/proc/stat").read_text().split()[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def measure(name: str, seconds: float, home: Path) -> str:
    cluster, url = one_node(home)
    try:
        for log in ("honest", "target"):
            cluster.create(log)
            cluster.wait_led(log)
        port, pid = int(cluster.address(1).rpartition(":")[2]), pid_of(cluster)
        asyncio.run(fill(port, "target", 25_000))
        before = asyncio.run(honest(port, "honest", ALONE_S))
        rss, _ = rss_mib(pid)
        node_s, all_s, own_s, began_s = cpu_s(pid), machine_cpu_s(), time.process_time(), time.monotonic()
        process = child_processes.spawn(words(name, port, seconds, "target"), stdout=subprocess.PIPE)
        beside = asyncio.run(honest(port, "honest", seconds + 1))
        said = process.communicate()[0].decode().split()
        node_s, all_s, own_s = cpu_s(pid) - node_s, machine_cpu_s() - all_s, time.process_time() - own_s
        lasted_s = time.monotonic() - began_s
        turn_s = metric(url, "holdfast_loop_longest_turn_ever_seconds")
        now, most = rss_mib(pid)
        after = asyncio.run(honest(port, "honest", ALONE_S))
        lines = len(cluster.nodes[1].log_path.read_text().splitlines())
    finally:
        cluster.close()
    attacker_s = float(said[-1])
    others_s = all_s - node_s - own_s - attacker_s
    ratio = p99(beside) / min(p99(before), p99(after))
    return (
        f"{name:20} p50 {p50(before):.1f} -> {p50(beside):.1f}, p99 {p99(before):.1f}, {p99(after):.1f} -> "
        f"{p99(beside):.1f} ms: {ratio:.1f} times ({len(beside)} events, longest {beside[-1]:.0f} ms)  "
        f"longest turn {turn_s * 1000:.0f} ms  RSS {rss} -> {most} MiB (now {now})  log lines {lines}  connections "
        f"{said[1]}  cores: node {node_s / lasted_s:.2f}, attackers {attacker_s / lasted_s:.2f}, honest "
        f"{own_s / lasted_s:.2f}, others {others_s / lasted_s:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=list(ATTACKS))
    parser.add_argument("--seconds", type=float, default=30.0)
    given = parser.parse_args()
    for name in given.names or list(ATTACKS):
        with tempfile.TemporaryDirectory() as home:
            print(measure(name, given.seconds, Path(home)), flush=True)


if __name__ == "__main__":
    main()
