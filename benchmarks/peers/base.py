"""What the benchmark asks of every peer, and the process handling they share."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

import psutil

from benchmarks.driver.link import LinkOptions
from benchmarks.driver.wire import Url

LOOPBACK = "127.0.0.1"
STOP_TIMEOUT_S = 10.0
POLL_S = 0.1


Driver = Literal["amqp", "amqp-reconnecting", "kafka", "own"]
"""Which load generator speaks to a target: ours for AMQP 1.0, which may look for the broker that took over, the one for
Kafka's protocol, or Holdfast's client.
"""


class PeerUnavailable(Exception):
    """This peer cannot run on this machine; the message says what to install."""


class PeerFailed(Exception):
    """The peer did not come up or refused an order; the message holds the end of its log."""


@dataclass(frozen=True)
class TargetLog:
    """One log or queue as the driver reaches it: where to send to, where to receive from, with which options."""

    name: str
    send_url: Url
    send_options: LinkOptions
    receive_url: Url
    tail_options: LinkOptions
    start_options: LinkOptions
    leader: str  # the process that leads it (of several partitions: the first), a key of Peer.processes()
    driver: Driver = "amqp"
    keeps: bool = True  # what was read; else it is a queue


class Peer(Protocol):
    name: str

    def start(self) -> None:
        """Returns when the cluster serves."""

    def stop(self) -> None:
        """Ends every process and removes every file. Safe to call twice and after a failed start."""

    def create(self, kind: str, partitions: int = 1) -> TargetLog:
        """A fresh log (or queue, or stream: `kind`) with three replicas of each partition."""

    def delete(self, target: TargetLog) -> None: ...

    def processes(self) -> dict[str, psutil.Process]:
        """The broker processes by node name."""

    def version(self) -> str: ...


def free_ports(number: int) -> list[int]:
    """Ports that were free a moment ago, all different: held open together until the last is found."""
    with contextlib.ExitStack() as held:
        ports = []
        for _ in range(number):
            holder = held.enter_context(socket.socket())
            holder.bind((LOOPBACK, 0))
            ports.append(holder.getsockname()[1])
        return ports


def wait_until(reached: Callable[[], bool], what: str, timeout_s: float) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not reached():
        if time.monotonic() > deadline_s:
            raise PeerFailed(f"{what} did not happen within {timeout_s:g} s")
        time.sleep(POLL_S)


def accepts(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=1):
        return True
    return False


def tree(processes: Iterable[subprocess.Popen[bytes]]) -> list[psutil.Process]:
    """The given processes and everything they started."""
    found: list[psutil.Process] = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = psutil.Process(process.pid)
            found += [parent, *parent.children(recursive=True)]
    return found


def end(processes: Iterable[subprocess.Popen[bytes]], first: signal.Signals = signal.SIGTERM) -> None:
    """Ends the trees below the given processes: politely first, then not."""
    processes = list(processes)
    everything = tree(processes)
    for process in everything:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(first)
    _, alive = psutil.wait_procs(everything, timeout=STOP_TIMEOUT_S)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=STOP_TIMEOUT_S)
    for started in processes:
        started.wait()


def end_on_signals() -> None:
    """Makes Ctrl-C and SIGTERM end the program through its `finally` blocks, also where a shell started it with
    SIGINT ignored.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@contextlib.contextmanager
def running(peer: Peer) -> Iterator[Peer]:
    try:
        peer.start()
        yield peer
    finally:
        peer.stop()
