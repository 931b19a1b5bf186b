"""Ports for servers of tests.

Problem: a port that the system gives out for "any" is free for a moment only: it lies where outgoing connections get
theirs, of which a test run makes thousands. Rule: ports are taken below that range, each process from a stretch of its
own, and none twice until all were given. They end where those of `holdfast cluster up` begin. The latest are held by a
name, too (an abstract socket, which ends with its process): other runs of the tests on this machine leave them alone
while their servers are down.
"""

from __future__ import annotations

import os
import random
import socket
from collections import deque

FIRST = 10_000
STRETCH = 1_250  # for each of pytest's processes
PROCESSES = 8

HELD = 200
"""By name. Each is an open file of the tests' process."""

_given: set[int] = set()
_names: deque[socket.socket] = deque()


def free_ports(count: int) -> list[int]:
    worker = int("".join(filter(str.isdigit, os.environ.get("PYTEST_XDIST_WORKER", ""))) or 0) % PROCESSES
    own = range(FIRST + STRETCH * worker, FIRST + STRETCH * (worker + 1))
    if len(_given) > STRETCH // 2:
        _given.clear()
    chosen: list[int] = []
    for port in random.SystemRandom().sample(own, STRETCH):
        if port not in _given and _is_free(port) and _is_named(port):
            chosen.append(port)
            if len(chosen) == count:
                _given.update(chosen)
                return chosen
    raise RuntimeError(f"no {count} free ports in {own}")


def free_port() -> int:
    return free_ports(1)[0]


def consecutive_ports(count: int) -> list[int]:
    """For commands that are given the first of a cluster's ports."""
    while True:
        first = free_port()
        rest = range(first + 1, first + count)
        if all(port not in _given and _is_free(port) and _is_named(port) for port in rest):
            _given.update(rest)
            return [first, *rest]


def cluster_ports(nodes: int) -> tuple[str, ...]:
    """Options of `holdfast cluster up` and `holdfast demo`. Without them a node that a test kills may find its port
    taken by the cluster of another test.
    """
    amqp, rpc = consecutive_ports(nodes)[0], consecutive_ports(nodes)[0]
    return "--amqp-port", str(amqp), "--rpc-port", str(rpc)


def _is_named(port: int) -> bool:
    """False: another run has it."""
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0holdfast-tests-port-{port}")
    except OSError:
        name.close()
        return False
    _names.append(name)
    if len(_names) > HELD:
        _names.popleft().close()
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
