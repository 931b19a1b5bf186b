"""Real ZooKeeper servers, of Debian's package: alone, or an ensemble that elects a leader.

Nodes must survive ZooKeeper's failures: a session that expires, an election of a leader, a server that hangs. Only
ZooKeeper itself fails in its way.

A server is our child process and ends with us; it has a directory of its own. If Java or the package is missing,
`missing` says so, and how to get it.

Rejected: an imitation. It would test the nodes against our idea of ZooKeeper.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from chaos.ports import free_port
from holdfast.cli.local_cluster import child_processes

JAR = Path("/usr/share/java/zookeeper.jar")
NETTY = ("netty-codec.jar", "netty-resolver.jar", "netty-transport-native-unix-common.jar")
CLASSES = ":".join(str(JAR.with_name(name)) for name in (JAR.name, *NETTY))
"""The package's manifest names too few of netty's parts for TLS."""

MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
JVM_OPTIONS = ("-Xmx96m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dzookeeper.admin.enableServer=false")
TICK_MS = 200
"""Tick of the servers. Sessions last 2 ticks or more; short ones let runs see how sessions expire."""
MAX_SESSION_MS = 60_000
"""Longest session, for clients that must not lose theirs on a busy machine."""

WITHIN_S = 120.0
"""Bound for steps that must happen at all, on a machine that is busy with other things."""
ASK_AGAIN_S = 0.05

ATTEMPTS = 3
"""Starts of a server in all: one may end by itself in the middle of an election, and an operator would restart it."""

PASSWORD_BYTES = 16
PASSWORD_SEED = 0xB3415C00
"""ZooKeeper draws a session's password from Java's generator, seeded with the session id xor this."""


def missing() -> str:
    """Say why there is no ZooKeeper here; "" if there is."""
    if shutil.which("java") is None or not JAR.exists():
        return "no ZooKeeper: scripts/system-packages.sh zookeeper installs it"
    return ""


class ZooKeeperEnded(Exception):
    """A server ended by itself."""


class ZooKeeper:
    """One server of ZooKeeper. `more`: further lines of its configuration."""

    def __init__(self, directory: Path, port: int, more: Iterable[str] = ()) -> None:
        self.directory, self.port = directory, port
        self._process: subprocess.Popen[bytes] | None = None
        (directory / "data").mkdir(parents=True)
        lines = [
            f"tickTime={TICK_MS}",
            f"dataDir={directory / 'data'}",
            "clientPortAddress=127.0.0.1",
            f"clientPort={port}",
            "4lw.commands.whitelist=ruok,srvr",
            "maxClientCnxns=200",
            f"maxSessionTimeout={MAX_SESSION_MS}",
            *more,
        ]
        self._config = directory / "zoo.cfg"
        self._config.write_text("\n".join(lines) + "\n")

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        self.spawn()
        self.wait()

    def spawn(self) -> None:
        command = ["java", *JVM_OPTIONS, "-cp", CLASSES, MAIN, str(self._config)]
        with (self.directory / "log").open("ab") as log:
            self._process = child_processes.spawn(command, stdout=log, stderr=log)

    def wait(self) -> None:
        """Wait until the server answers. Raises ZooKeeperEnded."""

        def answers() -> bool:
            status = None if self._process is None else self._process.poll()
            if status is not None:
                said = (self.directory / "log").read_text(errors="replace")[-2000:]
                raise ZooKeeperEnded(f"the ZooKeeper at {self.address} ended with status {status}: {said}")
            return self.answers()

        _until(answers, f"the ZooKeeper at {self.address} to answer")

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def answers(self) -> bool:
        return self.mode() != ""

    def mode(self) -> str:
        """Ask for the server's mode: standalone, leader or follower; "" while it is none of them."""
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
        """Pause the server inside the block: it looks like one behind a network that drops everything."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    @contextlib.contextmanager
    def client(self, **more: Any) -> Iterator[Any]:
        with client_of(self.address, **more) as client:
            yield client


class Ensemble:
    """Servers that elect a leader."""

    def __init__(self, directory: Path, count: int = 3, port: Callable[[], int] = free_port) -> None:
        peers = [f"server.{number}=127.0.0.1:{port()}:{port()}" for number in range(1, count + 1)]
        lines = ["initLimit=20", "syncLimit=10", *peers]
        self.servers = [ZooKeeper(directory / f"zookeeper{number}", port(), lines) for number in range(1, count + 1)]
        for number, server in enumerate(self.servers, start=1):
            (server.directory / "data" / "myid").write_text(str(number))

    @property
    def address(self) -> str:
        return ",".join(server.address for server in self.servers)

    def start(self) -> None:
        """Start the servers that do not run, and wait until all answer. Raises ZooKeeperEnded."""
        for attempt in range(ATTEMPTS):
            for server in self.servers:
                if not server.running:
                    server.kill()
                    server.spawn()
            try:
                for server in self.servers:
                    server.wait()
            except ZooKeeperEnded:
                if attempt == ATTEMPTS - 1:
                    raise
            else:
                return

    def leader(self) -> ZooKeeper:
        def find() -> list[ZooKeeper]:
            return [server for server in self.servers if server.running and server.mode() == "leader"]

        found: list[ZooKeeper] = _until(find, "a leader of the ensemble")
        return found[0]

    def kill(self) -> None:
        for server in self.servers:
            server.kill()

    @contextlib.contextmanager
    def client(self) -> Iterator[Any]:
        with client_of(self.address) as client:
            yield client


def end_session(address: str, session: int, taken_up: Callable[[], None] = lambda: None) -> bool:
    """End a session as if its client had been silent for too long; return False if it was over before.

    Closing a session needs its password, which ZooKeeper derives from the session id. The session's own client notices
    that another client has taken it, and may take it back before we close it; then it lives on. So the session is over
    when ZooKeeper no longer gives it to us, not when we have closed it. `taken_up` is called while we hold it."""
    was_alive = False

    def over() -> bool:
        nonlocal was_alive
        with client_of(address, client_id=(session, password_of(session))) as client:
            given = client.client_id  # None: its own client has just taken it back
            if given is not None and given[0] != session:
                return True
            was_alive = True
            taken_up()
        return False

    _until(over, f"the end of session {session}")
    return was_alive


def password_of(session: int) -> bytes:
    """Compute a session's password as ZooKeeper does: Java's `new Random(session ^ PASSWORD_SEED).nextBytes`."""
    state = ((session ^ PASSWORD_SEED) ^ 0x5DEECE66D) & ((1 << 48) - 1)
    password = b""
    while len(password) < PASSWORD_BYTES:
        state = (state * 0x5DEECE66D + 0xB) & ((1 << 48) - 1)
        password += (state >> 16).to_bytes(4, "little")
    return password


@contextlib.contextmanager
def client_of(address: str, **more: Any) -> Iterator[Any]:
    """Open a client of ZooKeeper; its session ends with the block."""
    from kazoo.client import KazooClient

    client = KazooClient(address, timeout=3, **more)
    try:
        client.start(timeout=30)
        yield client
    finally:
        client.stop()
        client.close()


def _until(condition: Callable[[], Any], what: str) -> Any:
    """Wait for the first true value of `condition` and return it."""
    deadline_s = time.monotonic() + WITHIN_S
    while not (value := condition()):
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"waited {WITHIN_S:g} s in vain for {what}")
        time.sleep(ASK_AGAIN_S)
    return value
