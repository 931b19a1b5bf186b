"""Real ZooKeeper servers for tests: Debian's package, a directory and a free port of the test's own.

A server ends with the test process, whatever happens to it. Where Java or the package is missing the tests that need it
are skipped, with the command that installs them.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from chaos import processes
from tests.integration.clusters.cluster import wait_until
from tests.ports import free_ports

JAR = Path("/usr/share/java/zookeeper.jar")
NETTY = ("netty-codec.jar", "netty-resolver.jar", "netty-transport-native-unix-common.jar")
CLASSES = ":".join(str(JAR.with_name(name)) for name in (JAR.name, *NETTY))
"""The package's manifest names too few of netty's parts for TLS."""

MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
JVM_OPTIONS = ("-Xmx96m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dzookeeper.admin.enableServer=false")
TICK_MS = 200
"""Sessions last 2 ticks or more: short ones, so that tests can wait for their end ..."""
MAX_SESSION_MS = 60_000
"""... and long ones for tests that must not lose them on a busy machine."""


def missing() -> str:
    """Why there is no ZooKeeper here; empty when there is."""
    if shutil.which("java") is None or not JAR.exists():
        return "no ZooKeeper: scripts/system-packages.sh zookeeper installs it"
    return ""


class ZooKeeper:
    """`more`: further lines of its configuration."""

    def __init__(self, directory: Path, *, tls: Tls | None = None, more: Iterable[str] = ()) -> None:
        self.directory = directory
        self.port, self.secure_port = free_ports(2)
        self.tls = tls
        self._process: subprocess.Popen[bytes] | None = None
        (directory / "data").mkdir(parents=True)
        lines = [
            f"tickTime={TICK_MS}",
            f"dataDir={directory / 'data'}",
            "clientPortAddress=127.0.0.1",
            f"clientPort={self.port}",
            "4lw.commands.whitelist=ruok,srvr",
            "maxClientCnxns=200",
            f"maxSessionTimeout={MAX_SESSION_MS}",
        ]
        if tls is not None:
            lines += [
                "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
                f"secureClientPort={self.secure_port}",
                f"ssl.keyStore.location={tls.server}",
                f"ssl.trustStore.location={tls.ca}",
            ]
        lines += more
        self._config = directory / "zoo.cfg"
        self._config.write_text("\n".join(lines) + "\n")

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        self.spawn()
        wait_until(self.answers, "ZooKeeper to answer")

    def spawn(self) -> None:
        command = ["java", *JVM_OPTIONS, "-cp", CLASSES, MAIN, str(self._config)]
        with (self.directory / "log").open("ab") as log:
            self._process = processes.spawn(command, stdout=log, stderr=log)

    @property
    def running(self) -> bool:
        return self._process is not None

    def answers(self) -> bool:
        return self.mode() != ""

    def mode(self) -> str:
        """standalone, leader or follower; empty while it is none of them."""
        assert self._process is not None
        assert self._process.poll() is None, (self.directory / "log").read_text()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as connection:
            connection.sendall(b"srvr")
            connection.settimeout(2)
            said = b""
            while more := connection.recv(4096):
                said += more
            found = re.search(r"^Mode: (\w+)", said.decode(), re.MULTILINE)
            return found[1] if found else ""
        return ""

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """As behind a network that swallows everything."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    @contextlib.contextmanager
    def client(self, **more: Any) -> Iterator[Any]:
        client = KazooClient(self.address, timeout=3, **more)
        client.start(timeout=30)
        try:
            yield client
        finally:
            client.stop()
            client.close()


class Ensemble:
    """Servers that elect a leader."""

    def __init__(self, directory: Path, count: int = 3) -> None:
        ports = iter(free_ports(2 * count))
        peers = [f"server.{number}=127.0.0.1:{next(ports)}:{next(ports)}" for number in range(1, count + 1)]
        lines = ["initLimit=20", "syncLimit=10", *peers]
        self.servers = [ZooKeeper(directory / f"zookeeper{number}", more=lines) for number in range(1, count + 1)]
        for number, server in enumerate(self.servers, start=1):
            (server.directory / "data" / "myid").write_text(str(number))

    @property
    def address(self) -> str:
        return ",".join(server.address for server in self.servers)

    def start(self) -> None:
        """Those that do not run; all answer afterwards."""
        for server in self.servers:
            if not server.running:
                server.spawn()
        for server in self.servers:
            wait_until(server.answers, f"the ZooKeeper at {server.address} to answer")

    def leader(self) -> ZooKeeper:
        def find() -> list[ZooKeeper]:
            return [server for server in self.servers if server.running and server.mode() == "leader"]

        return wait_until(find, "a leader of the ensemble")[0]  # type: ignore[no-any-return]

    def kill(self) -> None:
        for server in self.servers:
            server.kill()

    @contextlib.contextmanager
    def client(self) -> Iterator[Any]:
        with contextlib.closing(KazooClient(self.address, timeout=3)) as client:
            client.start(timeout=30)
            try:
                yield client
            finally:
                client.stop()


class Tls:
    """A certificate authority, a server and a client."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.ca, self._ca_key = directory / "ca.pem", directory / "ca.key"
        self.server, self.client, self.client_key = (
            directory / "server.pem", directory / "client.crt", directory / "client.key",
        )  # fmt: skip
        openssl = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout"]
        _run([*openssl, str(self._ca_key), "-out", str(self.ca), "-subj", "/CN=test ca"])
        server_key, server_crt = directory / "server.key", directory / "server.crt"
        self._sign("127.0.0.1", server_key, server_crt)
        self._sign("client", self.client_key, self.client)
        self.server.write_text(server_key.read_text() + server_crt.read_text())

    def _sign(self, name: str, key: Path, certificate: Path) -> None:
        _run([
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
            "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE",
            "-CA", str(self.ca), "-CAkey", str(self._ca_key), "-keyout", str(key), "-out", str(certificate),
        ])  # fmt: skip


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
