"""Interface of a peer, and the process handling that peers share."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import psutil

from benchmarks.driver.link import LinkOptions
from benchmarks.driver.wire import Url

LOOPBACK = "127.0.0.1"
STOP_TIMEOUT_S = 10.0
POLL_S = 0.1


Driver = Literal["amqp", "amqp-reconnecting", "kafka", "nats", "nats-bench", "own"]
"""Load driver of a target: ours for AMQP 1.0, with or without reconnecting, those on the clients of Kafka, NATS and
Holdfast, or NATS' own program."""


class PeerUnavailable(Exception):
    """Raised if a peer cannot run on this machine; the message says what to install."""


class PeerFailed(Exception):
    """Raised if a peer did not start or refused a command; the message has the end of its log."""


@dataclass(frozen=True)
class TargetLog:
    """One log or queue, with the addresses and options for sending and receiving."""

    name: str
    send_url: Url
    send_options: LinkOptions
    receive_url: Url
    tail_options: LinkOptions
    start_options: LinkOptions
    leader: str  # process that leads it (or its first partition), a key of Peer.processes()
    driver: Driver = "amqp"
    keeps: bool = True  # False: a queue, which drops events that were read
    environment: Mapping[str, str] | None = None
    """In which our own client runs, in a process of its own; None: in this process."""


class PeerSystem(Protocol):
    name: str

    def start(self) -> None:
        """Start the cluster; return when it serves."""

    def stop(self) -> None:
        """End every process and remove every file. Safe to call twice and after a failed start."""

    def create(self, kind: str, partitions: int = 1) -> TargetLog:
        """Create a log (or queue, or stream: `kind`) with three replicas of each partition."""

    def delete(self, target: TargetLog) -> None: ...

    def processes(self) -> dict[str, psutil.Process]:
        """Return the broker processes by node name."""

    def version(self) -> str: ...


def free_ports(number: int) -> list[int]:
    """Find different ports that are free; all are held open until the last is found."""
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
    """Return the processes and all their descendants."""
    found: list[psutil.Process] = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = psutil.Process(process.pid)
            found += [parent, *parent.children(recursive=True)]
    return found


def end(processes: Iterable[subprocess.Popen[bytes]], first: signal.Signals = signal.SIGTERM) -> None:
    """End the processes and their descendants: by the `first` signal, then by SIGKILL."""
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
    """Let Ctrl-C and SIGTERM end the program through its `finally` blocks, even if its shell ignores SIGINT."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@contextlib.contextmanager
def running(peer: PeerSystem) -> Iterator[PeerSystem]:
    try:
        peer.start()
        yield peer
    finally:
        peer.stop()
