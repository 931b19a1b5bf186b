"""Nodes as forks of one process that has imported what a node imports, and has done nothing else.

The problem: a run of the tests starts more than a thousand nodes, and importing is most of what a start costs. The
rule: a fork is as good as a process of its own only while its parent has one thread and no state; else nothing is
forked. What must be there when a process begins (a preload library, a crash point) does not come this way, nor do the
nodes of `holdfast cluster up`, of Ansible and of chaos: they start as users start them.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.cli.local_cluster import child_processes

ROOT = Path(__file__).resolve().parents[3]

ASKED = 256 * 1024
"""A request in bytes: above all the environment."""

PR_SET_PDEATHSIG = 1


class ForkedNode:
    """What `subprocess.Popen` is for a child, for a child of the nursery: signalled and awaited by a descriptor of the
    process, so that never another one is meant that has its number by then.
    """

    def __init__(self, pid: int, pidfd: int, status: int, stdout: int) -> None:
        self.pid = pid
        self.stdout = os.fdopen(stdout, "rb")
        self.returncode: int | None = None
        self._pidfd, self._status = pidfd, status
        self._lock = threading.Lock()  # descriptors are closed once, whichever threads look at the process

    def poll(self) -> int | None:
        if not self._lock.acquire(blocking=False):  # another thread is told of the end
            return self.returncode
        try:
            return self._returned(0)
        finally:
            self._lock.release()

    def wait(self, timeout: float | None = None) -> int:
        with self._lock:
            status = self._returned(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(f"node process {self.pid}", timeout or 0)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _returned(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            told = os.read(self._status, 16)
            self.returncode = int(told) if told else -signal.SIGKILL  # the nursery is gone, and its children with it
            os.close(self._status)
            os.close(self._pidfd)
        return self.returncode


class Nursery:
    """The test's side: asks for nodes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None

    def start_node(self, config: Path, log: Path, directory: Path, environment: Mapping[str, str]) -> ForkedNode:
        """A node that runs in `directory` and writes its log to the end of `log`."""
        out, theirs = os.pipe()
        with self._lock, log.open("ab") as errors:
            line = self._connected()
            asked = json.dumps([str(config), str(directory), dict(environment)]).encode()
            socket.send_fds(line, [asked], [theirs, errors.fileno()])
            os.close(theirs)
            answer, descriptors, _, _ = socket.recv_fds(line, 64, 2)
        if not answer:
            raise RuntimeError("the process that nodes are forked from has ended; its last words are above")
        pidfd, status = descriptors
        return ForkedNode(int(answer), pidfd, status, out)

    def _connected(self) -> socket.socket:
        if self._line is None:
            self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            for end in (self._line, theirs):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ASKED)
            with theirs:
                self._process = child_processes.spawn([sys.executable, "-m", __name__], stdin=theirs, cwd=ROOT)
        return self._line


nursery = Nursery()
"""Of this process of pytest."""


# -------------------------------------------------------------------------------------------- the nursery's own process


def _serve(line: socket.socket) -> list[str] | None:
    """Fork until the test's process is gone (None). In a child: the arguments of its node."""
    running: dict[int, tuple[int, int]] = {}  # pidfd -> process, descriptor for its status
    own = os.getpid()
    with selectors.DefaultSelector() as ready:
        ready.register(line, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fd != line.fileno():
                    ready.unregister(key.fd)
                    _bury(key.fd, *running.pop(key.fd))
                    continue
                asked, descriptors, _, _ = socket.recv_fds(line, ASKED, 2)
                if not asked:
                    return None
                config, directory, environment = json.loads(asked)
                answer, status = os.pipe()
                if (pid := os.fork()) == 0:
                    line.detach()
                    ready.close()
                    _become_a_node(own, descriptors, directory, environment)
                    return ["--config", config]
                pidfd = os.pidfd_open(pid)
                running[pidfd] = pid, status
                ready.register(pidfd, selectors.EVENT_READ)
                socket.send_fds(line, [str(pid).encode()], [pidfd, answer])
                for descriptor in (*descriptors, answer):
                    os.close(descriptor)


def _bury(pidfd: int, pid: int, status: int) -> None:
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(BrokenPipeError):  # nobody waits for it
        os.write(status, str(code).encode())
    os.close(status)
    os.close(pidfd)


def _become_a_node(parent: int, descriptors: list[int], directory: str, environment: dict[str, str]) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    out, errors = descriptors
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, descriptor in enumerate((nothing, out, errors)):
        os.dup2(descriptor, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)


def main() -> int:
    import gc

    gc.disable()
    import node.__main__
    import node.program

    gc.freeze()
    threads: list[Any] = os.listdir("/proc/self/task")
    if len(threads) != 1:
        print(f"importing a node starts {len(threads) - 1} threads: it cannot be forked", file=sys.stderr)
        return 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    arguments = _serve(socket.socket(fileno=0))
    if arguments is None:
        return 0
    sys.argv = ["python -m node", *arguments]
    return node.__main__.main()


if __name__ == "__main__":
    sys.exit(main())
