"""One node as a child process: start, kill, pause and stop it, and read its log."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from holdfast.cli.local_cluster import child_processes

READY_WITHIN_S = 120.0
"""Bound for steps that must happen at all, on a machine that is busy with other things."""
STOP_WITHIN_S = 60.0

BUG_MARKS = (
    " CRITICAL ",
    "Traceback (most recent call last)",
    "a bug closes the connection",
    "the stop goes on without the end of",
)
"""Texts that a node logs only if the node itself is to blame, not a client and not a fault."""

_LEADS = re.compile(r"^(?P<at>\S+ \S+) INFO \S+ group (?P<group>\d+) at node \d+: leads term (?P<term>\d+)", re.M)


class NodeFailed(Exception):
    """A node failed, and no fault of the run explains it."""

    def __init__(self, node: int, what: str) -> None:
        super().__init__(f"node {node} {what}")
        self.node = node


@dataclass
class ClusterNode:
    """One node as a child process. `defect`: the deliberate fault that it starts with (`chaos/defects`)."""

    id: int
    directory: Path
    data_dir: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    defect: str = ""
    process: subprocess.Popen[bytes] | None = None
    wanted_dead: bool = True
    is_paused: bool = False
    is_ready: bool = False
    complaints: list[str] = field(default_factory=list)
    _log_read: int = 0

    @property
    def config_path(self) -> Path:
        return self.directory / "node.toml"

    @property
    def log_path(self) -> Path:
        return self.directory / "node.log"

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    # ---------------------------------------------------------------- life

    def spawn(self, more: Mapping[str, str] | None = None) -> None:
        """Start the node; `wait_ready` waits until it says that it is ready."""
        assert not self.is_running, f"node {self.id} is running"
        program = ["-m", "chaos.defects", self.defect] if self.defect else ["-m", "node"]
        with self.log_path.open("ab") as log:
            self.process = child_processes.spawn(
                [sys.executable, *program, "--config", str(self.config_path)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=Path(__file__).resolve().parents[2],
                env={**os.environ, **self.environment, **(more or {})},
            )
        self.wanted_dead = self.is_paused = self.is_ready = False

    def ready_within(self, seconds: float) -> bool:
        """Wait for the node to be ready; False if it is not ready yet. Raises NodeFailed if it ended."""
        try:
            self.wait_ready(seconds)
        except NodeFailed:
            if self.is_running:
                return False
            raise
        return True

    def wait_ready(self, within_s: float = READY_WITHIN_S) -> None:
        if self.is_ready:
            return
        assert self.process is not None
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], within_s)[0]:
            raise NodeFailed(self.id, f"neither became ready nor ended within {within_s:g} s")
        line = self.process.stdout.readline()
        if not line:
            status = self.process.wait(STOP_WITHIN_S)
            raise NodeFailed(self.id, f"ended with status {status} while it started")
        json.loads(line)
        self.is_ready = True

    def kill(self) -> int:
        """Kill the node, and return its exit status; one that has ended by itself has its own."""
        return self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Stop the node as an operator would, and return its exit status."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        if self.process is None:
            return 0
        self.wanted_dead = True
        if self.is_running:
            self.process.send_signal(number)
            if self.is_paused:
                self.resume()
        status = self.process.wait(STOP_WITHIN_S)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.process, self.is_ready = None, False
        return status

    def pause(self) -> None:
        if self.is_running and self.process is not None:
            self.process.send_signal(signal.SIGSTOP)
            self.is_paused = True

    def resume(self) -> None:
        if self.process is not None and self.is_paused:
            self.process.send_signal(signal.SIGCONT)
        self.is_paused = False

    # ---------------------------------------------------------------- what it says

    def look(self) -> list[str]:
        """Find new failures of the node that no fault explains, and add them to its complaints."""
        found = []
        status = self.process.poll() if self.process is not None else None
        if status is not None and not self.wanted_dead:
            found.append(f"it ended by itself with status {status}")
            self.wanted_dead = True
        log = self.log_path.read_bytes() if self.log_path.exists() else b""
        fresh, self._log_read = log[self._log_read :].decode(errors="replace"), len(log)
        found += bugs_in(fresh)
        self.complaints += found
        return found

    def overlook(self) -> None:
        """Ignore its log so far and its end: a fault explains them."""
        self.wanted_dead = True
        kept = list(self.complaints)
        self.look()
        self.complaints = kept

    def leaderships(self, begun_ns: int) -> Iterator[tuple[int, int, int]]:
        """Yield group, term and time (monotonic) of each leadership that began since `begun_ns`."""
        text = self.log_path.read_text(errors="replace") if self.log_path.exists() else ""
        shift_s = time.monotonic() - time.time()
        for group, term, at in leaderships_in(text):
            at_ns = int((at.timestamp() + shift_s) * 1e9)
            if at_ns >= begun_ns:
                yield group, term, at_ns

    def say_tail(self, lines: int = 30) -> str:
        text = self.log_path.read_text(errors="replace") if self.log_path.exists() else ""
        return "\n".join(text.splitlines()[-lines:])


def leaderships_in(log: str) -> Iterator[tuple[int, int, datetime]]:
    """Yield group, term and time (by the node's wall clock) of each leadership in a log."""
    for said in _LEADS.finditer(log):
        yield int(said["group"]), int(said["term"]), datetime.strptime(said["at"], "%Y-%m-%d %H:%M:%S,%f")


def bugs_in(log: str) -> list[str]:
    """Return the lines of a log for which only the node is to blame."""
    return [line for line in log.splitlines() if any(mark in line for mark in BUG_MARKS)]


def configuration(values: Mapping[str, Any]) -> str:
    """Write sections as TOML; a list of mappings is an array of tables, a mapping in a section a table of its own."""
    lines: list[str] = []
    for section, content in values.items():
        for table in content if isinstance(content, list) else [content]:
            lines.append(f"[[{section}]]" if isinstance(content, list) else f"[{section}]")
            nested = {}
            for key, value in table.items():
                if isinstance(value, Mapping):
                    nested[key] = value
                else:
                    lines.append(f"{key} = {_toml(value)}")
            for key, inner in nested.items():
                lines.append(f"[{section}.{key}]")
                lines += [f'"{name}" = {_toml(value)}' for name, value in inner.items()]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        rows = (", ".join(f"{key} = {_toml(one)}" for key, one in row.items()) for row in value)
        return "[" + ", ".join(f"{{ {row} }}" for row in rows) + "]"
    return json.dumps(value)
