"""Connection to a host that carries orders to its agent: the user's own `ssh`, with the inventory's settings.

Everything has a bound.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import select
import shlex
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO

from chaos.cannot_run import BrokenOff, CannotRun
from chaos.cluster.provisioned.inventory import InventoryHost
from chaos.cluster.provisioned.on_host import agent, guard, keeper, lock, outliving, proxies, services
from holdfast.cli.local_cluster import child_processes

CONNECT_S = 15
OPENS_WITHIN_S = 60.0
"""Bound for a login on a busy host and the start of Python there."""
ANSWERS_WITHIN_S = 90.0
"""Bound for an answer, longer than all bounds of the agent."""
REOPENS_WITHIN_S = 45.0
"""Bound for a new connection: the old one's agent holds the host for up to `agent.SILENT_S`."""
PING_EVERY_S = 5.0
ENDS_WITHIN_S = 150.0
"""Bound for the agent to undo all faults."""

START = 'import json;exec(json.loads(open(0,"rb",0,closefd=False).readline()),{"__name__":"__main__"})'
"""Starts the agent from the first line of standard input; unbuffered, so that it reads no byte of the orders."""


class HostLost(BrokenOff):
    """A host can no longer be reached; its agent undoes the faults there by itself."""


class OrderFailed(Exception):
    """The agent answered that it cannot obey; `kind` is that of `services.Trouble`."""

    def __init__(self, host: str, kind: str, text: str) -> None:
        super().__init__(f"{host}: {text}")
        self.kind = kind


LOAD = """
import sys, types
for name, text in PARTS:
    words = name.split(".")
    for count in range(1, len(words)):
        sys.modules.setdefault(".".join(words[:count]), types.ModuleType(".".join(words[:count])))
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
"""
"""Loads our modules from text, since the host has no files of ours; each comes after those that it imports."""


def program(then: str = "module.main()") -> str:
    """Return the complete text of the agent."""
    parts = [
        (module.__name__, Path(str(module.__file__)).read_text(encoding="utf-8"))
        for module in (services, outliving, guard, keeper, lock, proxies, agent)
    ]
    return f"PARTS = {parts!r}\n{LOAD}\n{then}\n"


def who() -> str:
    """Describe the owner of this run, for process lists on the host and for other runs that find the host busy."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # no entry for this user
        user = f"user {os.getuid()}"
    return f"{user}@{socket.gethostname()}, process {os.getpid()}, since {time.strftime('%Y-%m-%d %H:%M:%S %Z')}"


def command(host: InventoryHost, whose: str = "") -> list[str]:
    """Build the command that runs the agent on a host, as root, by sudo if necessary.

    It works with any login shell. Python is isolated, so it imports no files of the login directory."""
    words = ["ssh", "-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}"]
    words += ["-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"]
    for option, value in (("-p", host.port), ("-l", host.user), ("-i", os.path.expanduser(host.key_file))):
        if value:
            words += [option, value]
    python = shlex.join([host.python, "-I", "-u", "-c", START, whose])
    script = f'if [ "$(id -u)" = 0 ]; then exec {python}; else exec sudo -n {python}; fi'
    return [*words, *host.arguments, "--", host.address, shlex.join(["sh", "-c", script])]


class SshConnection:
    """The connection to one host. It carries one order at a time; a thread pings, so that the agent knows us alive."""

    def __init__(self, host: InventoryHost) -> None:
        self.host = host
        self._who = who()
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: BinaryIO | None = None
        self._kept = b""
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._pinging: threading.Thread | None = None

    def open(self, patience_s: float = 0.0) -> dict[str, Any]:
        """Connect, and return the agent's report of the host.

        `patience_s`: time for a host that is away or busy. Raises CannotRun, which says whose fault it is."""
        with self._lock:
            try:
                told = self._begin_within(patience_s)
            except (OrderFailed, CannotRun) as error:
                self._over.set()
                why = f"{error}{advice(error.kind)}" if isinstance(error, OrderFailed) else str(error)
                raise CannotRun(why) from error  # not BrokenOff: no run has begun
        if self._pinging is None:
            self._pinging = threading.Thread(target=self._ping, name=f"pings-{self.host.name}", daemon=True)
            self._pinging.start()
        return told

    def _begin(self, *, again: bool = False) -> dict[str, Any]:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        try:
            self._process = child_processes.spawn(
                command(self.host, self._who), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
                bufsize=0,
                start_new_session=True,  # a Ctrl-C must not end it: we need it to heal
            )  # fmt: skip
        except FileNotFoundError:
            raise CannotRun("there is no ssh on the PATH: install OpenSSH's client") from None
        self._kept = b""
        self._write(json.dumps(program()))
        self._write(json.dumps({"order": "hello", "again": again}))
        told: dict[str, Any] = self._answer(OPENS_WITHIN_S)
        return told

    def order(self, name: str, /, **arguments: Any) -> Any:
        """Send an order and return the answer. Raises OrderFailed, or HostLost if the host stays away."""
        with self._lock:
            if self._over.is_set():
                raise HostLost(f"{self.host.name}: its connection was closed")
            if self._process is None:
                self._begin_again()
            try:
                self._write(json.dumps({"order": name, **arguments}))
                return self._answer(ANSWERS_WITHIN_S)
            except HostLost:
                self._drop()
                self._begin_again()  # the old agent has undone everything, so this order is the first
                self._write(json.dumps({"order": name, **arguments}))
                return self._answer(ANSWERS_WITHIN_S)

    def _begin_within(self, seconds: float, *, again: bool = False) -> dict[str, Any]:
        deadline_s = time.monotonic() + seconds
        while True:
            try:
                return self._begin(again=again)
            except (CannotRun, OrderFailed) as error:
                self._drop()
                passes = isinstance(error, CannotRun) or error.kind in ("busy", "down")
                if time.monotonic() >= deadline_s or not passes:
                    raise
            if self._over.wait(1.0):
                raise HostLost(f"{self.host.name}: its connection was closed")

    def _begin_again(self) -> None:
        try:
            self._begin_within(REOPENS_WITHIN_S, again=True)
        except (CannotRun, OrderFailed) as error:
            raise HostLost(f"{self.host.name} was lost: its connection broke, and then: {error}") from error

    def _ping(self) -> None:
        while not self._over.wait(PING_EVERY_S):
            with contextlib.suppress(HostLost, OrderFailed), self._lock:
                if self._process is not None:
                    try:
                        self._write(json.dumps({"order": "ping"}))
                        self._answer(ANSWERS_WITHIN_S)
                    except HostLost:
                        self._drop()  # the next order connects again
                        raise

    def _write(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        data = memoryview(line.encode() + b"\n")
        try:
            while data:
                data = data[self._process.stdin.write(data) or 0 :]
        except OSError:
            raise self._lost() from None

    def _answer(self, within_s: float) -> Any:
        assert self._process is not None
        assert self._process.stdout is not None
        deadline_s = time.monotonic() + within_s
        while b"\n" not in self._kept:
            if not select.select([self._process.stdout], [], [], max(0.0, deadline_s - time.monotonic()))[0]:
                raise HostLost(f"{self.host.name}: no answer within {within_s:g} s")
            piece = os.read(self._process.stdout.fileno(), 1 << 16)
            if not piece:
                raise self._lost()
            self._kept += piece
        line, _, self._kept = self._kept.partition(b"\n")
        try:
            answer = json.loads(line)
        except ValueError:
            raise HostLost(
                f"{self.host.name}: its shell, or a banner, says {line[:100]!r} where an answer is due"
            ) from None
        if "trouble" in answer:
            raise OrderFailed(self.host.name, answer["trouble"], answer["text"])
        return answer["ok"]

    def _lost(self) -> HostLost:
        """Make the error for a lost connection, from ssh's exit status and its last words."""
        assert self._process is not None
        assert self._errors is not None
        status: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = self._process.wait(5.0)
        self._errors.seek(0)
        said = " ".join(self._errors.read().decode(errors="replace").split())[-400:]
        return HostLost(f"{self.host.name}: {_why(self.host, status, said)}")

    def _drop(self) -> None:
        """End the connection; its agent then heals and ends, too."""
        process, self._process = self._process, None
        if process is not None:
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
            process.kill()
            process.wait()
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    def close(self) -> str:
        """Close the connection; return "" if the agent has healed and ended, else what went wrong. Idempotent."""
        self._over.set()
        with self._lock:
            process = self._process
            if process is None:
                return ""
            told = ""
            assert process.stdin is not None
            with contextlib.suppress(OSError):
                process.stdin.close()
            try:
                status = process.wait(ENDS_WITHIN_S)
                if status != 0:
                    told = str(self._lost())
            except subprocess.TimeoutExpired:
                told = f"{self.host.name}: its agent did not end within {ENDS_WITHIN_S:g} s"
            self._drop()
            return told


def _why(host: InventoryHost, status: int | None, said: str) -> str:
    if "sudo:" in said:
        user = host.user or "the user"
        return f"{user} may not become root: {said}; allow it sudo without a password, or log in as root (ansible_user)"
    if status == 255:
        return (
            f"ssh does not reach it at {host.address}: {said or 'the connection ended'}; see to ansible_host, "
            "ansible_port, ansible_user and ansible_ssh_private_key_file in the inventory, or to what ssh is set to"
        )
    if status == 127 or "No such file" in said:
        return f"there is no {host.python} on it: {said}; name one by ansible_python_interpreter"
    return f"the program there ended with status {status}: {said}"


def advice(kind: str) -> str:
    return {
        "rights": "; log in as root (ansible_user), or as somebody who may use sudo without a password",
        "service": "; was this host provisioned by playbooks/site.yml?",
        "down": "; start it first: a run begins with a cluster that is whole",
        "busy": "; wait until that has ended",
        "proxies": "; make it whole first (toxiproxy-cli, or a restart of holdfast-toxiproxy)",
    }.get(kind, "")
