"""At work on a host of a cluster while a run lasts: hurts the node there as it is told to, and heals it in any case.

Its text is sent through SSH and run by the host's Python, as root, with nothing but the standard library. Orders come
as lines of JSON on standard input, {"order": name, ...}; each is answered by one line on standard output, {"ok": ...}
or {"trouble": kind, "text": ...}.

What was done is undone when standard input ends, when there was no order for SILENT_S (a dead network tells nobody),
and when this program is asked to end. A node that stands still has a guard besides: a process that lets it go on when
this one is gone, however it went, or after a bound.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
import xmlrpc.client
from collections.abc import Callable, Iterator
from typing import Any

from chaos.cluster.provisioned.on_host.guard import Guard
from chaos.cluster.provisioned.on_host.proxies import Proxies, api_of_proxies
from chaos.cluster.provisioned.on_host.services import SERVICE, STOPS_WITHIN_S, Manager, Trouble, manager

HOLDFAST = "/usr/local/bin/holdfast"
CONFIG = "/etc/holdfast/node.toml"
LOCK = "\0holdfast-chaos"
"""A name in the kernel, and no file: it is gone with whoever has it."""

SILENT_S = 30.0
ANSWERS_WITHIN_S = 5.0
LOG_PIECE = 1 << 20


class Agent:
    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._guard: Guard | None = None
        self._is_down = False
        self._undo: list[str] = []  # the words of a command
        self._proxies: Proxies | None = None
        self.held: socket.socket | None = None

    def obey(self, order: str, arguments: dict[str, Any]) -> Any:
        return getattr(self, f"order_{order}")(**arguments)

    def heal(self) -> None:
        """Whatever was done: its ways are whole, the node goes on, or is started again, and may lead."""
        self.order_resume()
        if self._proxies is not None:
            self._proxies.heal()
        if self._is_down:
            self.order_start()
        if self._undo:
            command, self._undo = self._undo, []
            subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=STOPS_WITHIN_S, check=True)

    def order_hello(self, again: bool = False) -> dict[str, Any]:
        """What the node is, by its own configuration. `again`: one before us may have been killed, and have left it
        stopped."""
        pid = self._manager.pid()
        if not pid and again:
            pid = self.order_start()
        if not pid:
            raise Trouble("down", f"{SERVICE} does not run")
        with open(CONFIG) as file:
            config = file.read()
        log = os.path.realpath(f"/proc/{pid}/fd/2")
        size = os.path.getsize(log) if os.path.isfile(log) else 0
        return {"pid": pid, "config": config, "log": log, "size": size, **self.order_ping()}

    def order_ping(self) -> dict[str, Any]:
        now_s = time.time()
        return {"now_s": now_s, "ahead_s": time.localtime(now_s).tm_gmtoff}

    def order_status(self, health: str) -> dict[str, Any]:
        why = self._why_not_ready(f"http://{health}/health/ready")
        return {"pid": self._manager.pid(), "ready": not why, "why": why}

    @staticmethod
    def _why_not_ready(url: str) -> str:
        """In the node's words; nothing: it is ready."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(url, timeout=ANSWERS_WITHIN_S):
                return ""
        except urllib.error.HTTPError as error:
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError, LookupError, TypeError):
                checks = json.loads(error.read())["checks"]
                if wrong := [f"{one['name']}: {one['detail']}" for one in checks if not one["ok"]]:
                    return "; ".join(wrong)
            return f"{url}: {error}"
        except (OSError, http.client.HTTPException) as error:
            return f"{url}: {error}"

    def order_pid(self) -> int:
        return self._manager.pid()

    def order_pause(self, bound_s: float) -> int:
        pid = self._manager.pid()
        if pid and self._guard is None:
            self._guard = Guard(pid, bound_s)
        return pid

    def order_resume(self) -> None:
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.release()
        elif pid := self._manager.pid():  # an agent before this one may have been killed, and its guard with it
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def order_kill(self) -> None:
        self._is_down = True
        self._manager.kill()
        self.order_resume()  # of a guard there is nothing left to guard

    def order_stop(self) -> None:
        self._is_down = True
        self.order_resume()
        self._manager.stop()

    def order_start(self) -> int:
        self._manager.start()
        self._is_down = False
        return self._manager.pid()

    def order_heal(self) -> None:
        self.heal()

    def order_drained(self, node: int, server: str, listener: str) -> None:
        """It will hand over what it leads; should nobody let it lead again, we do, as plays would."""
        files = [name for name in ("operator", "client") if os.path.exists(f"/etc/holdfast/{name}.toml")]
        words = ["env", f"HOLDFAST_CONFIG=/etc/holdfast/{files[0]}.toml"] if files else []
        self._undo = [*words, HOLDFAST, "node", "resume", str(node), "--server", server, "--listener", listener]

    def order_leads(self) -> None:
        """Somebody has let it."""
        self._undo = []

    def order_proxies(self, api: str | None = None) -> list[dict[str, Any]]:
        """All that are on this host."""
        if not (found := api_of_proxies() if api is None else api):
            return []
        self._proxies = Proxies(found)
        return self._proxies.listed()

    def order_toxic(self, proxy: str, toxic: dict[str, Any]) -> None:
        self._ways().add(proxy, toxic)

    def order_no_toxic(self, proxy: str, name: str) -> None:
        self._ways().remove(proxy, name)

    def order_enable(self, proxy: str, enabled: bool) -> None:
        self._ways().enable(proxy, enabled)

    def _ways(self) -> Proxies:
        if self._proxies is None:  # another one was asked for them: its connection broke
            self._proxies = Proxies(api_of_proxies())
        return self._proxies

    def order_log(self, path: str, position: int) -> dict[str, Any]:
        """A piece of it. One that was cut off meanwhile (logrotate does that) is given from its begin."""
        try:
            with open(path, "rb") as file:
                if os.fstat(file.fileno()).st_size < position:
                    position = 0
                file.seek(position)
                piece = file.read(LOG_PIECE)
        except FileNotFoundError:
            piece = b""
        return {"text": piece.decode("latin-1"), "position": position + len(piece)}


def serve(made: Callable[[], Agent], input_fd: int = 0, output_fd: int = 1) -> None:
    """Until there is no one any more who gives orders; then everything is healed. `made`: makes the agent, or says why
    it cannot."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(0)

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, end)
    agent: Agent | None = None
    try:
        for line in _lines(input_fd):
            try:
                agent = agent or made()
                order = json.loads(line)
                answer = {"ok": agent.obey(order.pop("order"), order)}
            except Trouble as trouble:
                answer = {"trouble": trouble.kind, "text": str(trouble)}
            except (OSError, ValueError, subprocess.SubprocessError, xmlrpc.client.Error) as error:
                answer = {"trouble": "failed", "text": f"{type(error).__name__}: {error}"}
            _say(output_fd, answer)
    finally:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        if agent is not None:
            agent.heal()


def _lines(input_fd: int) -> Iterator[bytes]:
    kept = b""
    while select.select([input_fd], [], [], SILENT_S)[0]:
        piece = os.read(input_fd, 1 << 16)
        if not piece:
            return
        *lines, kept = (kept + piece).split(b"\n")
        yield from lines


def _say(output_fd: int, answer: dict[str, Any]) -> None:
    data = json.dumps(answer).encode() + b"\n"
    while data:
        data = data[os.write(output_fd, data) :]


def only_one() -> socket.socket:
    """At a time on a host: two would undo each other's work."""
    held = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        held.bind(LOCK)
    except OSError:
        raise Trouble("busy", "another run is at work here, or one whose connection broke a moment ago") from None
    return held


def on_this_host() -> Agent:
    if os.geteuid() != 0:
        raise Trouble("rights", "who logs in here is not root, and did not become it")
    agent = Agent(manager())
    agent.held = only_one()
    return agent


def main() -> None:
    os.umask(0o077)
    serve(on_this_host)
