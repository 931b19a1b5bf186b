"""Service managers that run the node on a host: supervisord or systemd, as the role has set it up."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import time
import xmlrpc.client
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

SERVICE = "holdfast-node"
UNITS = "/etc/systemd/system"
PROGRAMS = "/etc/holdfast/services"
SUPERVISORD = "/run/holdfast-supervisord.sock"
STOPS_WITHIN_S = 60.0


class Trouble(Exception):
    """A failure on the host. `kind` tells whose fault it is: rights, service, down, busy, proxies, failed."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class _Local(http.client.HTTPConnection):
    """HTTP connection to a Unix socket of this host."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=STOPS_WITHIN_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Manager(ABC):
    @abstractmethod
    def pid(self) -> int:
        """Return the process id of the node; 0 if it does not run."""

    @abstractmethod
    def kill(self) -> None:
        """Kill the node with SIGKILL; it stays down."""

    @abstractmethod
    def stop(self) -> None:
        """Stop the node as an operator would; return when it has ended."""

    @abstractmethod
    def start(self) -> None:
        """Start the node. Safe to repeat."""


class Supervisord(Manager):
    ENDED = ("STOPPED", "EXITED", "FATAL")
    NOT_RUNNING, ALREADY_STARTED = 70, 60

    def __init__(self, service: str = SERVICE, path: str = SUPERVISORD) -> None:
        self._service, self._path = service, path

    def _call(self, method: str, *arguments: Any) -> Any:
        body = xmlrpc.client.dumps((self._service, *arguments), f"supervisor.{method}")
        with contextlib.closing(_Local(self._path)) as connection:
            connection.request("POST", "/RPC2", body, {"Content-Type": "text/xml"})
            answer: Any = xmlrpc.client.loads(connection.getresponse().read())[0][0]
            return answer

    def pid(self) -> int:
        return int(self._call("getProcessInfo")["pid"])

    def kill(self) -> None:
        """Kill the node so that supervisord does not restart it.

        supervisord restarts a process that dies before it was told to stop it. So we pause the node, tell supervisord
        to stop it, then send SIGKILL. The paused node never handles supervisord's signal."""
        pid = self.pid()
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        try:
            self._stop(False)
        finally:  # whatever supervisord answers, no process stays paused
            if pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._until_ended()

    def stop(self) -> None:
        self._stop(True)
        self._until_ended()

    def _stop(self, wait: bool) -> None:
        try:
            self._call("stopProcess", wait)
        except xmlrpc.client.Fault as fault:
            if fault.faultCode != self.NOT_RUNNING:
                raise

    def _until_ended(self) -> None:
        until(lambda: self._state() in self.ENDED, f"{self._service} to end")

    def _state(self) -> str:
        return str(self._call("getProcessInfo")["statename"])

    def start(self) -> None:
        """Start the node once its old process has ended; do not wait until supervisord calls it stable."""
        until(lambda: self._state() != "STOPPING", f"{self._service} to end")
        try:
            self._call("startProcess", False)
        except xmlrpc.client.Fault as fault:
            if fault.faultCode != self.ALREADY_STARTED:
                raise


class Systemd(Manager):
    def __init__(self, service: str = SERVICE) -> None:
        self._service = service

    def _control(self, *words: str) -> str:
        command = ["systemctl", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=STOPS_WITHIN_S, check=False)
        if done.returncode != 0:
            raise Trouble("failed", f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout.strip()

    def pid(self) -> int:
        return int(self._control("show", "--property=MainPID", "--value", self._service) or 0)

    def kill(self) -> None:
        """Kill the node, then stop its unit before systemd restarts it (RestartSec)."""
        pid = self.pid()
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.stop()

    def stop(self) -> None:
        self._control("stop", self._service)

    def start(self) -> None:
        self._control("reset-failed", self._service)  # else systemd counts the starts of a run as too many
        self._control("start", self._service)


def manager(service: str = SERVICE) -> Manager:
    """Return the manager of a service on this host, by the files that the role has written."""
    unit, program = f"{UNITS}/{service}.service", f"{PROGRAMS}/{service}.ini"
    if os.path.exists(unit):
        return Systemd(service)
    if os.path.exists(program):
        if not os.path.exists(SUPERVISORD):
            raise Trouble("service", f"supervisord, which runs {service} here, does not run itself")
        return Supervisord(service)
    raise Trouble("service", f"there is no service {service}: neither {unit} nor {program} is here")


def until(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + STOPS_WITHIN_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise Trouble("failed", f"waited {STOPS_WITHIN_S:g} s in vain for {what}")
        time.sleep(0.02)
