"""A local cluster that nodes join and leave while it runs."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil

from benchmarks.peers.base import PeerFailed
from holdfast.cli.local_cluster.lifecycle import create, start
from holdfast.cli.local_cluster.processes import NodePlan
from holdfast.cli.shared.output import Output
from holdfast.client import AdminClient, HoldfastError
from holdfast.client.transport.security.credentials import Security

START_WAIT_S = 180.0
SETTLE_WAIT_S = 1800.0
LOOK_S = 0.25
"""Time between two looks at what is waited for. Nodes have to answer them beside what is measured."""
SHORT_LOOK_S = 0.05
"""The same where the time itself is measured."""


class ElasticCluster:
    def __init__(self, directory: Path, nodes: int, racks: Mapping[int, str] | None = None) -> None:
        self._local = create(directory / "cluster", nodes, None, 0, "bench", "fsync", usual_ports=False, tied=True)
        for node, rack in (racks or {}).items():
            self._write(node, self._text(node).replace("\n\n[cluster]", f'\nrack = "{rack}"\n\n[cluster]', 1))

    def put_data(self, node: int, directory: Path) -> None:
        """Let a node keep its data in another directory, before it is started."""
        own = self._local.node_directory(node) / "data"
        self._write(node, self._text(node).replace(str(own), str(directory)))

    def _text(self, node: int) -> str:
        return self._local.config_path(node).read_text(encoding="utf-8")

    def _write(self, node: int, text: str) -> None:
        self._local.node_directory(node).mkdir(parents=True, exist_ok=True)
        self._local.config_path(node).write_text(text, encoding="utf-8")

    @property
    def servers(self) -> list[str]:
        return self._local.plan.servers

    def start(self) -> None:
        start(self._local, Output(as_json=True, progress=False), START_WAIT_S, Security())

    def stop(self) -> None:
        self._local.stop()

    def kill(self, node: int) -> None:
        self._local.kill(node)

    def log_path(self, node: int) -> Path:
        return self._local.log_path(node)

    def cpu_s(self) -> float:
        """CPU time of all nodes so far."""
        return sum(sum(psutil.Process(one.pid).cpu_times()[:2]) for one in self._local.running().values())

    # ---- nodes

    async def restart(self, node: int) -> None:
        """Start a node that was killed, and wait until it is up."""
        starting = self._local.spawn(node)
        await asyncio.to_thread(starting.wait, time.monotonic() + START_WAIT_S)

    async def join(self, node: int) -> None:
        """Announce a node, start it with the first one's file, and wait until it is up."""
        first = self._local.plan.nodes[0]
        amqp, rpc = (f"127.0.0.1:{port}" for port in _free_ports(2))
        text = self._text(first.id).replace(first.amqp, amqp)
        text = text.replace("\n[cluster]\n", f'\n[cluster]\njoin = true\naddress = "{rpc}"\n')
        text = text.replace(f"/node{first.id}/", f"/node{node}/")
        self._write(node, re.sub(r"\[node\]\nid = \d+", f"[node]\nid = {node}", text))
        async with self.admin() as admin:
            await admin.add_node(node)
        starting = self._local.spawn(node)
        await asyncio.to_thread(starting.wait, time.monotonic() + START_WAIT_S)
        self._local.plan.nodes.append(NodePlan(id=node, amqp=amqp, rpc=rpc))

    async def leave(self, node: int) -> None:
        """Let a node leave, and wait until it has: it is emptied by a plan, and ends by itself."""
        async with self.admin() as admin:
            await admin.remove_node(node)
        [plan] = [one for one in self._local.plan.nodes if one.id == node]
        self._local.plan.nodes.remove(plan)
        await until(lambda: self._is_gone(node), f"the end of node {node}")

    async def _is_gone(self, node: int) -> bool:
        return self._local.process(node) is None

    # ---- moves

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[AdminClient]:
        async with AdminClient(self.servers) as admin:
            yield admin

    async def settled(self, admin: AdminClient, look_s: float = LOOK_S) -> None:
        """Wait until nothing moves any more."""

        async def is_settled() -> bool:
            return not (await admin.list_moves(limit=0))["moving"]

        await until(is_settled, "all moves to end", look_s=look_s)


async def until(
    condition: Callable[[], Awaitable[Any]], what: str, within_s: float = SETTLE_WAIT_S, *, look_s: float = LOOK_S
) -> float:
    """Ask until the answer is true. Returns the seconds that it took."""
    began = time.monotonic()
    while True:
        try:
            if await condition():
                return time.monotonic() - began
        except HoldfastError as error:
            if not error.retriable:
                raise
        if time.monotonic() - began > within_s:
            raise PeerFailed(f"waited {within_s:g} s for {what}")
        await asyncio.sleep(look_s)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()
