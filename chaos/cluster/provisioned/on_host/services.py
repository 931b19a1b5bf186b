"""Who runs the node on a host: supervisord or systemd, as the role has written it there."""

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
    """What is wrong, and whose it is by its kind: rights, service, down, busy, proxies, failed."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class _Local(http.client.HTTPConnection):
    """To a socket of this host."""

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
        """Of the node; 0: it does not run."""

    @abstractmethod
    def kill(self) -> None:
        """kill -9; it stays dead."""

    @abstractmethod
    def stop(self) -> None:
        """As an operator would; it has ended then."""

    @abstractmethod
    def start(self) -> None:
        """Safe to repeat."""


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
        """It starts again what dies before it was asked to stop it. So the node stands still while supervisord asks,
        for some milliseconds: it never sees that signal, it dies by the next one."""
        pid = self.pid()
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        try:
            self._stop(False)
        finally:  # whatever supervisord says, or does not say, nothing is left standing still
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
        """Without waiting until it is sure that it stays. What is still ending has to end first."""
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
        """systemd starts it again after a while (RestartSec), unless it is asked to stop it meanwhile."""
        pid = self.pid()
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.stop()

    def stop(self) -> None:
        self._control("stop", self._service)

    def start(self) -> None:
        self._control("reset-failed", self._service)  # else the starts of a run count as too many
        self._control("start", self._service)


def manager(service: str = SERVICE) -> Manager:
    """Who runs a service here, by what the role has written."""
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
