"""One node on a remote host; the agent there injects and undoes its faults."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from chaos.cannot_run import BrokenOff
from chaos.cluster.nodes import READY_WITHIN_S, NodeFailed, bugs_in, leaderships_in
from chaos.cluster.provisioned.ssh import OrderFailed, SshConnection

PAUSE_AT_MOST_S = 60.0
"""Longest pause; then the guard on the host resumes the node, even if we are gone."""
ASK_AGAIN_S = 0.1
EPOCH = datetime(1970, 1, 1)
_S = 1e9


@dataclass
class RemoteNode:
    """One node on a remote host.

    `health`: the address of its readiness, asked from its own host. `advertised`: its address for clients. `log`,
    `log_from`: path of its log, and the position at which the run begins. `shift_s`: from the host's wall clock to our
    monotonic clock. `pid`: the expected process; 0: none. `first_listener`: name and address by which commands on the
    host reach the node."""

    id: int
    connection: SshConnection
    health: str
    advertised: str
    log: str
    log_from: int
    shift_s: float
    pid: int
    directory: Path
    first_listener: tuple[str, str]
    is_paused: bool = False
    complaints: list[str] = field(default_factory=list)

    def order(self, name: str, /, **arguments: Any) -> Any:
        """Send an order to the host. Raises BrokenOff, since a failure of the host is not the node's fault."""
        try:
            return self.connection.order(name, **arguments)
        except OrderFailed as error:
            raise BrokenOff(f"{error} (asked to {name}): the run was broken off") from error

    @property
    def is_running(self) -> bool:
        return bool(self.order("pid"))

    # ---------------------------------------------------------------- life

    def spawn(self) -> None:
        self.pid = int(self.order("start"))

    def ready_within(self, seconds: float) -> bool:
        deadline_s = time.monotonic() + seconds
        while not self.order("status", health=self.health)["ready"]:
            if time.monotonic() > deadline_s:
                return False
            time.sleep(ASK_AGAIN_S)
        return True

    def unready(self) -> str:
        """Ask the node why it is not ready; "" if it is."""
        return str(self.order("status", health=self.health)["why"])

    def wait_ready(self, within_s: float = READY_WITHIN_S) -> None:
        if not self.ready_within(within_s):
            raise NodeFailed(self.id, f"did not become ready within {within_s:g} s")

    def kill(self) -> None:
        self.look()
        self.pid = 0
        self.order("kill")
        self.is_paused = False

    def stop(self) -> None:
        """Stop the node as an operator would; it stays down until it is started."""
        self.look()
        self.pid = 0
        self.order("stop")
        self.is_paused = False

    def pause(self) -> None:
        self.is_paused = bool(self.order("pause", bound_s=PAUSE_AT_MOST_S))

    def resume(self) -> None:
        self.order("resume")
        self.is_paused = False

    # ---------------------------------------------------------------- what it says

    def look(self) -> list[str]:
        """Find an end of the node that no fault explains; its service manager then starts another process."""
        now = int(self.order("pid"))
        found = []
        if self.pid and now != self.pid:
            found.append(f"process {self.pid} ended by itself" + (f", and {now} was started" if now else ""))
        self.pid = now
        self.complaints += found
        return found

    def fetch_log(self) -> None:
        """Copy the node's log since the begin of the run into the run's directory."""
        self.directory.mkdir(parents=True, exist_ok=True)
        position = self.log_from
        with self.log_path.open("wb") as file:
            while True:
                piece = self.order("log", path=self.log, position=position)
                file.write(piece["text"].encode("latin-1"))
                position = piece["position"]
                if not piece["text"]:
                    break
        self.complaints += bugs_in(self._said())

    @property
    def log_path(self) -> Path:
        return self.directory / "node.log"

    def _said(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def leaderships(self, begun_ns: int) -> Iterator[tuple[int, int, int]]:
        """Yield group, term and time (monotonic) of each leadership in the fetched log, which begins with the run."""
        for group, term, at in leaderships_in(self._said()):
            seconds = (at - EPOCH).total_seconds()
            yield group, term, max(begun_ns, int((seconds + self.shift_s) * _S))
