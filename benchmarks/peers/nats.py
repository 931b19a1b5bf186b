"""A cluster of three NATS servers with JetStream on loopback, in one temporary directory.

Two clusters are measured. With `sync_interval: always` each server syncs before it acknowledges, as Holdfast does with
`fsync`. By default a server syncs every two minutes, so an acknowledged event is in page caches, as with `replicated`.
A stream has three replicas in files. The limit of a payload is raised for bodies of 1 MiB.

    python -m benchmarks.peers.nats         # starts a cluster, prints its addresses, ends it at Ctrl-C
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import subprocess
from pathlib import Path
from typing import Any, Literal

import psutil

from benchmarks.driver.link import LinkOptions
from benchmarks.driver.wire import Url
from benchmarks.peers.base import (
    LOOPBACK,
    PeerFailed,
    PeerUnavailable,
    TargetLog,
    accepts,
    free_ports,
    wait_until,
)
from benchmarks.peers.servers import ServerCluster, play

NODES = 3
START_TIMEOUT_S = 60.0
REQUEST_TIMEOUT_S = 10.0
CREATE_TIMEOUT_S = 30.0
MAX_PAYLOAD_BYTES = 2 << 20
SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "nats.sh"
KINDS = ("stream", "bench")
"""Kinds of targets: a stream for the Python client, and one for NATS' own benchmark program."""


def programs() -> Path | None:
    """Return the directory with the server and its command line; None if scripts/nats.sh has not built them."""
    version = next(line.partition("=")[2] for line in SCRIPT.read_text().splitlines() if line.startswith("server="))
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    found = caches / "holdfast" / f"nats-{version}"
    return found if (found / "nats-server").exists() and (found / "nats").exists() else None


def program() -> Path:
    """Return NATS' command line. Raises PeerFailed if it is not there."""
    if (found := programs()) is None:
        raise PeerFailed(str(missing()))
    return found / "nats"


def missing() -> str | None:
    """Say why NATS cannot run here and how to mend that; None if it can."""
    lacking = [] if programs() else ["its server and command line (scripts/nats.sh)"]
    if importlib.util.find_spec("nats") is None:
        lacking.append("its client (pip install -r benchmarks/nats/requirements.lock)")
    return f"NATS' rows are left out; missing: {', '.join(lacking)}" if lacking else None


class Nats(ServerCluster):
    def __init__(self, sync: Literal["always", "default"], directory: Path | None = None) -> None:
        """Prepare a cluster whose servers sync at each write (`always`), or every two minutes (`default`)."""
        if (reason := missing()) is not None:
            raise PeerUnavailable(reason)
        self.name = f"nats-{sync}"
        super().__init__(directory)
        self._sync = sync
        found = programs()
        assert found is not None, "`missing` has looked"
        self._server = found / "nats-server"
        ports = free_ports(2 * NODES)
        self.ports, self._route_ports = ports[:NODES], ports[NODES:]

    def _bring_up(self) -> None:
        for number in range(1, NODES + 1):
            home = self._home(number)
            home.mkdir()
            (home / "server.conf").write_text(self.configuration(number))
            self._servers[f"server{number}"] = self._spawn([str(self._server), "-c", "server.conf"], number)
        wait_until(self._is_whole, "the start of NATS", START_TIMEOUT_S)

    def configuration(self, number: int) -> str:
        """Return the configuration of a server."""
        routes = ", ".join(f'"nats://{LOOPBACK}:{port}"' for port in self._route_ports)
        sync = "sync_interval: always" if self._sync == "always" else ""
        return "\n".join(
            [
                f"server_name: server{number}",
                f"listen: {LOOPBACK}:{self.ports[number - 1]}",
                f"max_payload: {MAX_PAYLOAD_BYTES}",
                f'jetstream {{ store_dir: "{self._home(number) / "data"}"\n{sync} }}',
                f"cluster {{ name: bench, listen: {LOOPBACK}:{self._route_ports[number - 1]}, routes: [{routes}] }}",
                "",
            ]
        )

    def _is_whole(self) -> bool:
        for node, server in self._servers.items():
            if server.poll() is not None:
                tail = self._log_tail(int(node.removeprefix("server")))
                raise PeerFailed(f"{node} ended with status {server.returncode}; its log ends: {tail}")
        if not all(accepts(port) for port in self.ports):
            return False
        from nats.errors import Error

        try:
            self._ask(lambda stream: stream.account_info())
        except (Error, TimeoutError):
            return False
        return True

    # streams

    def create(self, kind: str, partitions: int = 1) -> TargetLog:
        """Create a stream with three replicas. `kind`: the driver that it is for, see KINDS."""
        from nats.errors import Error
        from nats.js.api import StorageType, StreamConfig

        assert partitions == 1, "a stream has no partitions"
        name = self._next_name(kind)
        config = StreamConfig(name=name, subjects=[name], num_replicas=NODES, storage=StorageType.FILE)
        failure: list[str] = []

        def made() -> bool:
            try:
                self._ask(lambda stream: stream.add_stream(config))
            except (Error, TimeoutError) as error:  # a cluster that just began has too few servers for three replicas
                failure[:] = [str(error)]
                return False
            return True

        wait_until(made, f"the creation of {name} ({failure})", CREATE_TIMEOUT_S)
        leader: list[str] = []

        def led() -> bool:
            cluster = self._ask(lambda stream: stream.stream_info(name)).cluster
            if cluster is None or not cluster.leader or not all(replica.current for replica in cluster.replicas or ()):
                return False
            leader[:] = [cluster.leader]
            return True

        wait_until(led, f"the election of a leader for {name}", CREATE_TIMEOUT_S)
        url = Url(LOOPBACK, self.ports[int(leader[0].removeprefix("server")) - 1], name)
        return TargetLog(
            name, url, LinkOptions(), url, LinkOptions(start="latest"), LinkOptions(start="earliest"), leader[0],
            driver="nats" if kind == "stream" else "nats-bench",
        )  # fmt: skip

    def delete(self, target: TargetLog) -> None:
        from nats.errors import Error

        try:
            self._ask(lambda stream: stream.delete_stream(target.name))
        except (Error, TimeoutError) as error:
            raise PeerFailed(f"NATS did not delete {target.name}: {error}") from error

    def _ask(self, question: Any) -> Any:
        """Ask JetStream, by a connection of its own."""
        return asyncio.run(self._answer(question))

    async def _answer(self, question: Any) -> Any:
        import nats

        connection = await nats.connect(
            f"nats://{LOOPBACK}:{self.ports[0]}", allow_reconnect=False, max_reconnect_attempts=1
        )
        try:
            return await question(connection.jetstream(timeout=REQUEST_TIMEOUT_S))
        finally:
            await connection.close()

    def processes(self) -> dict[str, psutil.Process]:
        return {name: psutil.Process(server.pid) for name, server in self._servers.items()}

    def version(self) -> str:
        from importlib.metadata import version

        said = subprocess.run([str(self._server), "--version"], capture_output=True, text=True, check=True).stdout
        return f"{said.strip()}, sync {self._sync} (client: nats-py {version('nats-py')})"


if __name__ == "__main__":
    play(Nats("always"), KINDS, lambda target: f"{LOOPBACK}:{target.send_url.port} stream {target.name}")
