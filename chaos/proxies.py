"""Breakable network paths between programs, each a proxy (`Way`) of a real Toxiproxy server.

A network can cut a connection, freeze it, or lose responses while requests arrive. Neither end of the connection can
imitate that without a change to the code under test.

Rules:
 - a way is broken for the duration of a `with` block and whole after it, whatever happened inside;
 - the server is our child process: we end it by its handle, and the kernel ends it if we die;
 - the caller draws everything random. Toxiproxy's own randomness (toxicity, jitter) cannot be repeated; we do not use
   it.

Rejected: a proxy of our own. The tests would then trust our own idea of what a broken network does.

The toxics of Toxiproxy 2.12 act as follows. `timeout` 0 swallows the bytes of one direction, and still accepts new
connections. When it is removed, the server closes the connections from which it swallowed bytes, so no stream goes on
with a hole in it. `bandwidth` 0 holds bytes back and loses none. `reset_peer` resets connections that begin while it is
active; older ones are closed. `limit_data` closes a connection after a count of bytes, in the middle of a frame.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from chaos.ports import free_port
from holdfast.cli.local_cluster import child_processes

Direction = Literal["upstream", "downstream"]
"""Direction of bytes: upstream is from the client to the server, downstream is back."""

VERSION = "2.12.0"
LOOPBACK = "127.0.0.1"
START_WITHIN_S = 20.0
STOP_WITHIN_S = 5.0
HOW_TO_GET = "run scripts/toxiproxy.sh (it needs Go), or name a toxiproxy-server by HOLDFAST_TOXIPROXY"


def find_server() -> Path | None:
    """Find the server's program: named by the environment, built by scripts/toxiproxy.sh, or installed."""
    named = os.environ.get("HOLDFAST_TOXIPROXY")
    if named:
        return Path(named)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    built = cache / "holdfast" / f"toxiproxy-{VERSION}" / "server"
    if built.exists():
        return built
    installed = shutil.which("toxiproxy-server")
    return Path(installed) if installed else None


class Way:
    """One proxy: a connection to `address` reaches `upstream` as long as the way is whole."""

    def __init__(self, proxy: Any) -> None:
        self._proxy = proxy
        self._names = itertools.count(1)
        self.name: str = proxy.name
        self.address: str = proxy.listen
        self.upstream: str = proxy.upstream

    def __repr__(self) -> str:
        return f"Way({self.name}: {self.address} -> {self.upstream})"

    @contextlib.contextmanager
    def _toxic(self, kind: str, direction: Direction, **attributes: int) -> Iterator[None]:
        name = f"{kind}-{next(self._names)}"
        self._proxy.add_toxic(type=kind, stream=direction, name=name, attributes=attributes)
        try:
            yield
        finally:
            self._proxy.destroy_toxic(name)

    def swallowing(self, direction: Direction) -> contextlib.AbstractContextManager[None]:
        """Drop all bytes of this direction. The connections end with the block."""
        return self._toxic("timeout", direction, timeout=0)

    def frozen(self, direction: Direction) -> contextlib.AbstractContextManager[None]:
        """Hold back all bytes of this direction until the block ends, then deliver them."""
        return self._toxic("bandwidth", direction, rate=0)

    def resetting(self, direction: Direction = "upstream") -> contextlib.AbstractContextManager[None]:
        """Reset connections, old ones at their next byte, new ones at their first."""
        return self._toxic("reset_peer", direction, timeout=0)

    def cutting_after(self, count: int, direction: Direction) -> contextlib.AbstractContextManager[None]:
        """Close each connection after `count` more bytes."""
        return self._toxic("limit_data", direction, bytes=count)

    def delayed(self, direction: Direction, latency_ms: int) -> contextlib.AbstractContextManager[None]:
        """Delay every byte of this direction by `latency_ms`; the order stays."""
        return self._toxic("latency", direction, latency=latency_ms, jitter=0)

    def narrowed(self, direction: Direction, kib_per_s: int) -> contextlib.AbstractContextManager[None]:
        """Limit the rate of this direction to `kib_per_s`."""
        assert kib_per_s > 0, "a rate of 0 is `frozen`"
        return self._toxic("bandwidth", direction, rate=kib_per_s)

    def sliced(self, direction: Direction, size_bytes: int = 200) -> contextlib.AbstractContextManager[None]:
        """Cut the bytes of this direction into pieces of about `size_bytes`."""
        return self._toxic("slicer", direction, average_size=size_bytes, size_variation=size_bytes // 2, delay=0)

    @contextlib.contextmanager
    def refusing(self) -> Iterator[None]:
        """Close connections and refuse new ones."""
        self._proxy.disable()
        try:
            yield
        finally:
            self._proxy.enable()


class ProxyServer:
    """A Toxiproxy process, at most one at a time: its client library keeps the address in a class."""

    _running: bool = False

    def __init__(self, program: Path, log: Path) -> None:
        self._program, self._log = program, log
        self._process: subprocess.Popen[bytes] | None = None
        self._api: Any = None

    def __enter__(self) -> ProxyServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        from toxiproxy import Toxiproxy  # an extra: only runs with proxies need it

        assert not ProxyServer._running, "a process drives one Toxiproxy at a time"
        port = free_port()
        with self._log.open("ab") as log:
            self._process = child_processes.spawn(
                [str(self._program), "-host", LOOPBACK, "-port", str(port)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        ProxyServer._running = True
        try:
            self._wait_for(port)
        except BaseException:
            self.stop()
            raise
        self._api = Toxiproxy()
        self._api.update_api_consumer(LOOPBACK, port)

    def _wait_for(self, port: int) -> None:
        assert self._process is not None
        deadline_s = time.monotonic() + START_WITHIN_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=1):
                return
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                said = self._log.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{self._program} did not start: {said}")
            time.sleep(0.02)

    def stop(self) -> None:
        """End the server and all its ways. Idempotent."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
        ProxyServer._running = False

    def way(self, name: str, upstream: str) -> Way:
        """Make a new way to `upstream` (host:port), on a port of its own."""
        return Way(self._api.create(upstream=upstream, name=name, listen=f"{LOOPBACK}:{free_port()}"))
