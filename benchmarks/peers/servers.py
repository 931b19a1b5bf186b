"""Base of clusters of other brokers: processes and homes in one temporary directory, and a clean end of both."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.peers.base import PeerSystem, TargetLog, end, end_on_signals

LOG_TAIL_BYTES = 3000
OUTPUT = "output"


class ServerCluster:
    """A cluster of brokers. `_bring_up` of a subclass puts brokers into `_servers`, others into `_helpers`."""

    name: str

    def __init__(self, directory: Path | None) -> None:
        self._parent = directory
        self._directory: Path | None = None
        self._servers: dict[str, subprocess.Popen[bytes]] = {}
        self._helpers: list[subprocess.Popen[bytes]] = []  # other processes; they end with the brokers
        self._created = 0

    def start(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix=f"{self.name}-", dir=self._parent)).resolve()
        self._bring_up()

    def _bring_up(self) -> None:
        """Start the cluster; return when it serves."""
        raise NotImplementedError

    def stop(self) -> None:
        # No graceful end is needed, since all data are deleted.
        end([*self._servers.values(), *self._helpers], signal.SIGKILL)
        self._servers.clear()
        self._helpers.clear()
        if self._directory:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    @property
    def _root(self) -> Path:
        assert self._directory is not None, "the cluster was not started"
        return self._directory

    def _home(self, number: int) -> Path:
        """Return the directory of a broker, by its number from 1 on."""
        return self._root / f"broker{number}"

    def _spawn(
        self, words: Sequence[str], number: int, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        home = self._home(number)
        with (home / OUTPUT).open("ab") as output:
            return subprocess.Popen(
                words, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True, cwd=home,
            )  # fmt: skip

    def _log_tail(self, number: int, *names: str) -> str:
        logs = [path for name in names or (OUTPUT,) if (path := self._home(number) / name).exists()]
        return "\n".join(path.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace") for path in logs)

    def _next_name(self, kind: str) -> str:
        self._created += 1
        return f"bench-{kind}-{self._created}"


def play(peer: PeerSystem, kinds: Iterable[str], reached_at: Callable[[TargetLog], str]) -> None:
    """Start a cluster, print its addresses, and end it at Ctrl-C."""
    end_on_signals()
    began_s = time.monotonic()
    try:
        peer.start()
        print(f"{peer.version()} after {time.monotonic() - began_s:.1f} s")
        for kind in kinds:
            target = peer.create(kind)
            print(f"{kind}: {reached_at(target)}  leader {target.leader}", flush=True)
        signal.pause()
    except KeyboardInterrupt:
        print("ending it")
    finally:
        peer.stop()
