"""The agent on a host: during a run it injects the faults that it is told to, and undoes them in any case.

SSH carries its text to the host, where Python runs it as root with the standard library only. Orders come as lines of
JSON on standard input, {"order": name, ...}. The agent answers each by one line on standard output, {"ok": ...} or
{"trouble": kind, "text": ...}.

The agent undoes all faults when standard input ends, when no order came for SILENT_S (a dead network sends no end),
when its answer is not taken for so long, and when it is told to end. If it is killed, a second process, the keeper,
undoes the faults that it had noted. A paused node also has a guard: a process that resumes it when the agent is gone,
or after a bound.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import xmlrpc.client
from collections.abc import Callable, Iterator
from typing import Any

from chaos.cluster.provisioned.on_host.guard import Guard
from chaos.cluster.provisioned.on_host.keeper import TRIES_S, UndoKeeper
from chaos.cluster.provisioned.on_host.lock import Lock
from chaos.cluster.provisioned.on_host.proxies import Proxies, api_of_proxies
from chaos.cluster.provisioned.on_host.services import SERVICE, STOPS_WITHIN_S, Manager, Trouble, manager

HOLDFAST = "/usr/local/bin/holdfast"
CONFIG = "/etc/holdfast/node.toml"
SILENT_S = 30.0
ANSWERS_WITHIN_S = 5.0
LOG_PIECE = 1 << 20

FAILURES = (
    Trouble, OSError, ValueError, LookupError, subprocess.SubprocessError, xmlrpc.client.Error,
    http.client.HTTPException,
)  # fmt: skip
"""Errors of the host, not of this program."""


class Agent:
    """State and orders of the agent. `is_kept`: a keeper undoes the faults if this process is killed."""

    def __init__(self, manager: Manager, *, is_kept: bool = True) -> None:
        self._manager = manager
        self._guard: Guard | None = None
        self._is_down = self._stands_still = False
        self._undo: list[str] = []  # the words of a command
        self._proxies: Proxies | None = None
        self._keeper = UndoKeeper(lambda done: healed(manager, done), FAILURES) if is_kept else None
        self.held: Lock | None = None

    def obey(self, order: str, arguments: dict[str, Any]) -> Any:
        return getattr(self, f"order_{order}")(**arguments)

    # ---------------------------------------------------------------- what is to be undone

    def _note(self) -> None:
        """Note the open faults with the keeper: before each begins, and when it was undone."""
        if self._keeper is None:
            return
        done: dict[str, Any] = {}
        if self._stands_still:  # its guard may be killed, too; healing begins with resuming
            done["stands_still"] = True
        if self._is_down:
            done["is_down"] = True
        if self._undo:
            done["undo"] = self._undo
        if self._proxies is not None and self._proxies.harm:
            done["harm"] = [self._proxies.api, self._proxies.harm]
        self._keeper.note(done)

    def remember(self, done: dict[str, Any]) -> None:
        """Take over the faults that another agent had noted."""
        self._is_down, self._undo = done.get("is_down", False), done.get("undo", [])
        if "harm" in done:
            api, harm = done["harm"]
            self._proxies = Proxies(api, self._note, [(proxy, toxic) for proxy, toxic in harm])

    def heal(self) -> None:
        """Undo all faults: resume the node, mend its ways, start it again, and let it lead.

        A step that fails does not stop the others. Raises the first of the `FAILURES` at the end."""
        failed: list[Exception] = []
        for step in (self.order_resume, self._mend_ways, self._start_what_is_down, self._let_lead):
            try:
                step()
            except FAILURES as error:
                failed.append(error)
        if failed:
            raise failed[0]

    def _mend_ways(self) -> None:
        if self._proxies is not None:
            self._proxies.heal()

    def _start_what_is_down(self) -> None:
        if self._is_down:
            self.order_start()

    def _let_lead(self) -> None:
        """Let the node lead again; restart it if no login on this host works, since a new process may lead."""
        if not self._undo:
            return
        try:
            subprocess.run(
                self._undo, stdin=subprocess.DEVNULL, capture_output=True, timeout=STOPS_WITHIN_S, check=True
            )
        except (OSError, subprocess.SubprocessError):
            self.order_stop()
            self.order_start()
        self.order_leads()

    def end(self) -> None:
        """Undo all faults, since no more orders come; the keeper goes on with those that cannot be undone yet."""
        try:
            self.heal()
        except FAILURES as error:
            raise SystemExit(f"not undone yet, and tried again for {TRIES_S:g} s: {error}") from error
        if self._keeper is not None:
            self._keeper.end()

    # ---------------------------------------------------------------- orders

    def order_hello(self, again: bool = False) -> dict[str, Any]:
        """Describe the node by its own configuration.

        `again`: an earlier agent and its keeper may have been killed, and have left the node stopped or paused."""
        pid = self._manager.pid()
        if again:
            self.order_resume()
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
        """Ask the node why it is not ready; "" if it is."""
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
            self._stands_still = True
            self._note()
            self._guard = Guard(pid, bound_s)
        return pid

    def order_resume(self) -> None:
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.release()
        elif pid := self._manager.pid():  # an earlier agent and its guard may have been killed
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        if self._stands_still:
            self._stands_still = False
            self._note()

    def order_kill(self) -> None:
        self._is_down = True
        self._note()
        self._manager.kill()
        self.order_resume()  # releases the guard, which is not needed any more

    def order_stop(self) -> None:
        self._is_down = True
        self._note()
        self.order_resume()
        self._manager.stop()

    def order_start(self) -> int:
        self._manager.start()
        self._is_down = False
        self._note()
        return self._manager.pid()

    def order_drained(self, node: int, server: str, listener: str) -> None:
        """Note that the node hands over its leaderships; if no one lets it lead again, healing does, as plays do."""
        files = [name for name in ("operator", "client") if os.path.exists(f"/etc/holdfast/{name}.toml")]
        words = ["env", f"HOLDFAST_CONFIG=/etc/holdfast/{files[0]}.toml"] if files else []
        self._undo = [*words, HOLDFAST, "node", "resume", str(node), "--server", server, "--listener", listener]
        self._note()

    def order_leads(self) -> None:
        """Note that the node may lead again."""
        self._undo = []
        self._note()

    def order_proxies(self, api: str | None = None) -> list[dict[str, Any]]:
        """List the proxies of this host."""
        if not (found := api_of_proxies() if api is None else api):
            return []
        self._proxies = Proxies(found, self._note)
        return self._proxies.listed()

    def order_toxic(self, proxy: str, toxic: dict[str, Any]) -> None:
        self._ways().add(proxy, toxic)

    def order_no_toxic(self, proxy: str, name: str) -> None:
        self._ways().remove(proxy, name)

    def order_enable(self, proxy: str, enabled: bool) -> None:
        self._ways().enable(proxy, enabled)

    def _ways(self) -> Proxies:
        if self._proxies is None:  # an earlier agent listed them; its connection broke
            self._proxies = Proxies(api_of_proxies(), self._note)
        return self._proxies

    def order_log(self, path: str, position: int) -> dict[str, Any]:
        """Read a piece of a log. A log that was truncated meanwhile (by logrotate) is read from its begin."""
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
    """Obey orders until no more can come, then undo all faults. `made` makes the agent, or raises Trouble."""

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
            except FAILURES as error:
                answer = {"trouble": "failed", "text": f"{type(error).__name__}: {error}"}
            if not _say(output_fd, answer):
                return
    finally:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        if agent is not None:
            agent.end()


def healed(manager: Manager, done: dict[str, Any]) -> None:
    """Undo the faults that a dead agent had noted."""
    agent = Agent(manager, is_kept=False)
    agent.remember(done)
    agent.heal()


def _lines(input_fd: int) -> Iterator[bytes]:
    kept = b""
    while select.select([input_fd], [], [], SILENT_S)[0]:
        piece = os.read(input_fd, 1 << 16)
        if not piece:
            return
        *lines, kept = (kept + piece).split(b"\n")
        yield from lines


def _say(output_fd: int, answer: dict[str, Any]) -> bool:
    """Write an answer; False if it is not taken within SILENT_S.

    Behind a dead network the pipe stays full, and an agent that waited for ever would never undo anything."""
    data = json.dumps(answer).encode() + b"\n"
    while data:
        if not select.select([], [output_fd], [], SILENT_S)[1]:
            return False
        try:
            data = data[os.write(output_fd, data[: select.PIPE_BUF]) :]
        except OSError:
            return False
    return True


def on_this_host(who: str) -> Agent:
    if os.geteuid() != 0:
        raise Trouble("rights", "who logs in here is not root, and did not become it")
    service = manager()
    lock = Lock(who)  # before the keeper forks: it shares the lock until all is undone
    agent = Agent(service)
    agent.held = lock
    return agent


def main() -> None:
    os.umask(0o077)
    serve(lambda: on_this_host(" ".join(sys.argv[1:])))
