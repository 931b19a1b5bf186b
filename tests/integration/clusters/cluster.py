"""A real cluster for tests: node processes on loopback that a test may kill, stop, pause and start again.

Rules: a node is signalled through the handle of the process that we started, never by a number from elsewhere; whatever
happens to the test, its nodes end with it (the kernel ends them if the test process dies); a node that ended, or that
reported a bug of its own, while nobody asked for it fails the test that was running.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from chaos.clock import OffsetClock
from chaos.disk import FaultyDisk
from cluster import crash_points
from holdfast.cli.local_cluster import child_processes
from holdfast.client.admin import AdminClient
from holdfast.client.errors import HoldfastError
from holdfast.client.transport.log_info import PartitionInfo
from holdfast.client.transport.network import NetworkOptions
from holdfast.client.transport.security.credentials import Security
from tests.integration.clusters.forked import ForkedNode, nursery
from tests.ports import free_ports

T = TypeVar("T")

READY_WITHIN_S = 180.0
"""For what must happen at all, on a machine that is busy with other things; nothing is measured by it."""

STOP_WITHIN_S = 90.0
ASK_INTERVAL_S = 0.05
LOG_TAIL_LINES = 60

BUG_MARKS = (
    " CRITICAL ",
    "Traceback (most recent call last)",
    "a bug closes the connection",
    "the stop goes on without the end of",
)
"""What a node writes to its log only when it, and not a client or the test, is at fault."""


def wait_until(condition: Callable[[], Any], what: str, within_s: float = READY_WITHIN_S) -> Any:
    """The first true value of `condition`."""
    deadline = time.monotonic() + within_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {within_s:g} s in vain for: {what}")
        time.sleep(ASK_INTERVAL_S)
    return value


NodeProcess = subprocess.Popen[bytes] | ForkedNode


@dataclass
class NodeFiles:
    """What one node is configured with, and where its things are."""

    id: int
    directory: Path
    rpc: str
    amqp: dict[str, str]  # listener -> host:port
    data_dir: Path
    process: NodeProcess | None = None
    expected_dead: bool = True  # not running, and that is what the test wants
    log_read: int = 0  # bytes of the log that were judged before

    @property
    def config_path(self) -> Path:
        return self.directory / "node.toml"

    @property
    def log_path(self) -> Path:
        return self.directory / "node.log"


@dataclass
class ClusterSettings:
    """How a test's cluster differs from the plain one."""

    nodes: int = 3
    durability: str = "fsync"
    min_free_bytes: int | None = None
    storage: Mapping[str, Any] = field(default_factory=dict)  # further keys of that section
    listener: Mapping[str, Any] = field(default_factory=dict)  # further keys of every listener
    zookeeper: str | Mapping[int, str] = ""  # host:port,...: nodes are found there, not by a list; or one for each node
    data_dirs: Mapping[int, Path] = field(default_factory=dict)  # where not beside the node's other files
    clocks: Mapping[int, OffsetClock] = field(default_factory=dict)  # of nodes whose clock goes wrong on order
    crash_points: Path | None = None  # a directory in which places can be armed, see `cluster/crash_points.py`
    more: str = ""  # further sections of every node's configuration, as they stand there
    more_of: Mapping[int, str] = field(default_factory=dict)  # the same, of single nodes
    peer_tls: Path | None = None  # a directory with ca.pem, and node1.pem and node1.key for each node
    security: Security = field(default_factory=Security)  # of the administrator that the tests' own requests come from
    disks: Mapping[int, FaultyDisk] = field(
        default_factory=dict
    )  # of nodes whose data lie on a disk on order, in its `data`


class Cluster:
    """Each node has three listeners: `default` (redirects whom it can), `never` and `always` named by their policy."""

    def __init__(self, directory: Path, settings: ClusterSettings | None = None) -> None:
        self.directory = directory
        self.settings = settings or ClusterSettings()
        self.name = f"test-{directory.name}"[:60]
        count = self.settings.nodes
        ports = iter(free_ports(5 * count))
        self.monitoring: dict[int, str] = {}
        self.nodes: dict[int, NodeFiles] = {}
        for number in range(1, count + 1):
            home = directory / f"node{number}"
            home.mkdir(parents=True)
            amqp = {name: f"127.0.0.1:{next(ports)}" for name in ("default", "never", "always")}
            self.monitoring[number] = f"127.0.0.1:{next(ports)}"
            data_dir = self.settings.data_dirs.get(number, home / "data")
            if number in self.settings.disks:
                data_dir = self.settings.disks[number].root / "data"
            self.nodes[number] = NodeFiles(number, home, f"127.0.0.1:{next(ports)}", amqp, data_dir)
        self._handed_out: dict[str, Mapping[int, str]] = {}
        self._dialled: Mapping[tuple[int, int], str] = {}
        self._made: list[str] = []  # logs
        self.programs: dict[int, Path] = {}  # trees of nodes that do not run this one, from their next start on
        self._write_configs()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="admin-of-" + self.name, daemon=True)
        self._thread.start()

    def _write_configs(self) -> None:
        for node in self.nodes.values():
            node.config_path.write_text(self._toml(node), encoding="utf-8")

    def hand_out(self, listener: str, addresses: Mapping[int, str]) -> None:
        """Clients of this listener are told these addresses of the nodes. Before the nodes start."""
        assert not self.running, "a node reads its configuration when it starts"
        self._handed_out[listener] = addresses
        self._write_configs()

    def dial(self, addresses: Mapping[tuple[int, int], str]) -> None:
        """The first node of a pair reaches the second at this address. Before the nodes start."""
        assert not self.running, "a node reads its configuration when it starts"
        self._dialled = addresses
        self._write_configs()

    def _toml(self, node: NodeFiles) -> str:
        lines = [f"[node]\nid = {node.id}\ndata_dir = {json.dumps(str(node.data_dir))}", *self._found_by(node)]
        for name, address in node.amqp.items():
            policy = "auto" if name == "default" else name
            more = "".join(f"\n{key} = {json.dumps(value)}" for key, value in self.settings.listener.items())
            lines.append(f'[[listener]]\nname = "{name}"\nbind = "{address}"\nredirect = "{policy}"{more}')
            if name in self._handed_out:
                mapped = "\n".join(f'{peer} = "{where}"' for peer, where in self._handed_out[name].items())
                lines.append(f"[listener.address_map]\n{mapped}")
        storage = f'[storage]\ndurability = "{self.settings.durability}"'
        if self.settings.min_free_bytes is not None:
            storage += f"\nmin_free_bytes = {self.settings.min_free_bytes}"
        storage += "".join(f"\n{key} = {json.dumps(value)}" for key, value in self.settings.storage.items())
        return (
            "\n\n".join(
                [*lines, storage, '[log]\nlevel = "info"', self.settings.more, self.settings.more_of.get(node.id, "")]
            )
            + "\n"
        )

    def _found_by(self, node: NodeFiles) -> list[str]:
        named = f"[cluster]\nname = {json.dumps(self.name)}"
        if (tls := self.settings.peer_tls) is not None:
            files = {"ca": tls / "ca.pem", "cert": tls / f"node{node.id}.pem", "key": tls / f"node{node.id}.key"}
            named += "".join(f"\n{kind}_file = {json.dumps(str(path))}" for kind, path in files.items())
        if not self.settings.zookeeper:
            reached = {peer.id: self._dialled.get((node.id, peer.id), peer.rpc) for peer in self.nodes.values()}
            peers = ", ".join(f'{{ id = {peer}, address = "{address}" }}' for peer, address in reached.items())
            return [f"{named}\npeers = [{peers}]"]
        where = self.settings.zookeeper
        hosts = json.dumps((where if isinstance(where, str) else where[node.id]).split(","))
        section = f"hosts = {hosts}\ninitial_nodes = {len(self.nodes)}\nsession_timeout_s = 1.0"
        return [
            f'{named}\naddress = "{node.rpc}"',
            f'[discovery]\nkind = "zookeeper"\n[discovery.zookeeper]\n{section}',
            f'[monitoring]\nbind = "{self.monitoring[node.id]}"',
        ]

    # ------------------------------------------------------------------------------------------- addresses

    def address(self, node: int, listener: str = "default") -> str:
        return self.nodes[node].amqp[listener]

    @property
    def addresses(self) -> list[str]:
        return [self.address(node) for node in self.nodes]

    @property
    def running(self) -> list[int]:
        processes = [(node.id, node.process) for node in self.nodes.values()]  # another thread may end one meanwhile
        return [number for number, process in processes if process is not None and process.poll() is None]

    # ------------------------------------------------------------------------------------------- processes

    def start(self, *ids: int, wait: bool = True) -> None:
        """Start these nodes (default: all that are down); with `wait` return when each has said that it is ready."""
        wanted = list(ids) or [node for node in self.nodes if node not in self.running]
        for node in wanted:
            self.spawn(node)
        if wait:
            for node in wanted:
                self.wait_ready(node)

    def spawn(self, node_id: int) -> NodeProcess:
        node = self.nodes[node_id]
        assert node_id not in self.running, f"node {node_id} is running already"
        disk, clock = self.settings.disks.get(node_id), self.settings.clocks.get(node_id)
        ordered = {**(disk.environment() if disk else {}), **(clock.environment() if clock else {})}
        if node_id in self.programs:
            ordered["PYTHONPATH"] = str(self.programs[node_id])
        if self.settings.crash_points is not None:
            ordered[crash_points.VARIABLE] = str(self.settings.crash_points)
        if ordered:
            with node.log_path.open("ab") as log:
                node.process = child_processes.spawn(
                    [sys.executable, "-m", "node", "--config", str(node.config_path)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    cwd=node.directory,
                    env={**os.environ, **ordered},
                )
        else:
            node.process = nursery.start_node(node.config_path, node.log_path, node.directory, os.environ)
        node.expected_dead = False
        return node.process

    def wait_ready(self, node_id: int) -> None:
        """Until the node has said that it is ready."""
        process = self.nodes[node_id].process
        assert process is not None
        if not self.ready_or_dead(node_id):
            raise AssertionError(f"node {node_id} did not become ready (exit status {process.wait(STOP_WITHIN_S)})")

    def ready_or_dead(self, node_id: int) -> dict[str, Any] | None:
        """The node's own word that it is ready; None when it ended instead."""
        process = self.nodes[node_id].process
        assert process is not None
        assert process.stdout is not None
        if not select.select([process.stdout], [], [], READY_WITHIN_S)[0]:
            raise AssertionError(f"node {node_id} neither became ready nor ended within {READY_WITHIN_S:g} s")
        line = process.stdout.readline()
        return dict(json.loads(line)) if line else None

    def serves(self, node_id: int) -> bool:
        """Whether clients can connect: its start is over, up to finding a majority, which it may not."""
        host, _, port = self.address(node_id).rpartition(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0

    def kill(self, *ids: int) -> None:
        """kill -9, all at once."""
        self._end(ids or self.running, signal.SIGKILL)

    def stop(self, *ids: int) -> None:
        """Ask to end, as an operator would."""
        self._end(ids or self.running, signal.SIGTERM)

    def _end(self, ids: Iterable[int], number: signal.Signals) -> None:
        nodes = [self.nodes[node] for node in ids]
        for node in nodes:
            node.expected_dead = True
            if node.process is not None:
                node.process.send_signal(number)
        for node in nodes:
            if node.process is not None:
                status = node.process.wait(STOP_WITHIN_S)
                node.process.stdout and node.process.stdout.close()  # type: ignore[func-returns-value]
                node.process = None
                if number is signal.SIGTERM:
                    assert status == 0, f"node {node.id} was asked to stop and ended with status {status}"

    @contextlib.contextmanager
    def paused(self, node_id: int) -> Any:
        """SIGSTOP for the duration of the block: alive for the kernel, silent for everybody else."""
        process = self.nodes[node_id].process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def wait_exit(self, node_id: int, within_s: float = READY_WITHIN_S) -> int:
        """The status of a node that ends by itself, as the test expects it to."""
        node = self.nodes[node_id]
        assert node.process is not None
        node.expected_dead = True
        status = node.process.wait(within_s)
        node.process.stdout and node.process.stdout.close()  # type: ignore[func-returns-value]
        node.process = None
        return status

    def wait_any_exit(self, within_s: float = READY_WITHIN_S) -> int:
        """The node that ends by itself, as the test expects one of them to."""
        for node in self.nodes.values():
            node.expected_dead = True

        def ended() -> int | None:
            every = [(node.id, node.process) for node in self.nodes.values() if node.process is not None]
            return next((number for number, process in every if process.poll() is not None), None)

        found: int = wait_until(ended, "a node ends", within_s)
        self.wait_exit(found)
        for node in self.nodes.values():
            node.expected_dead = node.id == found
        return found

    def close(self) -> None:
        """Whatever state the nodes are in: gone afterwards."""
        for node in self.nodes.values():
            if node.process is not None:
                node.expected_dead = True
                node.process.kill()
                node.process.wait()
                if node.process.stdout is not None:
                    node.process.stdout.close()
                node.process = None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # ------------------------------------------------------------------------------------------- health

    def log(self, node_id: int) -> str:
        path = self.nodes[node_id].log_path
        return path.read_text(errors="replace") if path.exists() else ""

    def log_tail(self, node_id: int) -> str:
        return "\n".join(self.log(node_id).splitlines()[-LOG_TAIL_LINES:])

    def complaints(self, allowed: Iterable[str] = ()) -> list[str]:
        """What is wrong with the nodes, apart from what the test did to them; what was told once is not told again."""
        found = []
        for node in self.nodes.values():
            status = node.process.poll() if node.process is not None else None
            if not node.expected_dead and (node.process is None or status is not None):
                found.append(f"node {node.id} ended by itself with status {status}")
                node.expected_dead = True
            log = self.log(node.id).encode()
            fresh, node.log_read = log[node.log_read :].decode(), len(log)
            for line in fresh.splitlines():
                if any(mark in line for mark in BUG_MARKS) and not any(mark in line for mark in allowed):
                    found.append(f"node {node.id} reported: {line}")
        return found

    # ------------------------------------------------------------------------------------------- administration

    def call(
        self,
        work: Callable[[AdminClient], Coroutine[Any, Any, T]],
        servers: list[str] | None = None,
        timeout_s: float = 30.0,
    ) -> T:
        """Run an administrative coroutine from synchronous code."""

        async def run() -> T:
            known = servers or [self.address(node) for node in self.running]
            options = NetworkOptions(security=self.settings.security)
            async with AdminClient(known, timeout_s=timeout_s, options=options) as admin:
                return await work(admin)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(READY_WITHIN_S)

    def create(self, log: str, partitions: int = 1, replicas: int | None = None, **more: Any) -> str:
        """The log, led by those nodes that will go on to lead it."""
        count = replicas if replicas is not None else min(3, len(self.nodes))
        self.call(lambda admin: admin.create_log(log, partitions=partitions, replicas=count, **more))
        self._made.append(log)
        self.wait_settled(log)
        return log

    def discard_logs(self) -> None:
        """Those that were made by `create`. Who shares a cluster with a hundred tests would pay for the heartbeats of
        all their groups: 180 idle partitions cost two thirds of a core."""
        made, self._made = self._made, []

        async def delete(admin: AdminClient) -> None:
            known = {one["name"] for one in await admin.list_logs()}
            for log in known.intersection(made):
                await admin.delete_log(log)

        if made:
            self.call(delete)

    def describe(self, log: str) -> dict[str, Any]:
        return self.call(lambda admin: admin.describe_log(log))

    def info(self, log: str) -> dict[str, PartitionInfo]:
        return {entry.partition: entry for entry in self.call(lambda admin: admin.log_info(log))}

    def leaders(self, log: str, servers: list[str] | None = None) -> dict[str, int]:
        """Partition to leader, once every partition has one that runs."""
        found: dict[str, int] = wait_until(
            lambda: self._leaders(log, servers, self._led), f"leaders of all partitions of {log}"
        )
        return found

    def wait_led(self, log: str) -> None:
        """Every running node knows a leader for every partition."""
        for node in self.running:
            self.leaders(log, [self.address(node)])

    def wait_settled(self, log: str) -> None:
        """Every running node knows that every partition is led where it is preferred, if that node runs. On a busy
        machine another one may have won it first; seconds later it hands over, amid whatever the test does by then."""
        for node in self.running:
            servers = [self.address(node)]
            wait_until(
                lambda servers=servers: self._leaders(log, servers, self._settled),  # type: ignore[misc]
                f"node {node} to know all partitions of {log} where they are preferred",
            )

    def _led(self, entry: dict[str, Any]) -> bool:
        return entry["leader"] in self.running

    def _settled(self, entry: dict[str, Any]) -> bool:
        return entry["leader"] == entry["preferred"] or (entry["preferred"] not in self.running and self._led(entry))

    def _leaders(
        self, log: str, servers: list[str] | None, wanted: Callable[[dict[str, Any]], bool]
    ) -> dict[str, int] | None:
        """Partition to leader; None when a partition is not as wanted."""
        try:
            described = self.call(lambda admin: admin.describe_log(log), servers)
        except HoldfastError as error:
            # A node that has not heard of the log yet says so; it will within the time that is waited here.
            if not (error.retriable or getattr(error, "code", "") == "not-found"):
                raise
            return None
        entries = described["partitions"]
        return {str(entry["partition"]): entry["leader"] for entry in entries} if all(map(wanted, entries)) else None

    def other_than(self, node: int) -> int:
        """A running node that is not this one."""
        return next(other for other in self.running if other != node)
