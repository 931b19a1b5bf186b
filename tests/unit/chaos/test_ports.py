"""No two processes are given the same port, however long they take to listen at it."""

from __future__ import annotations

import subprocess
import sys

from chaos.ports import free_port


def test_processes_take_ports_from_stretches_of_their_own() -> None:
    program = "from chaos.ports import free_port; print(*(free_port() for _ in range(40)), flush=True); input()"
    others = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    given = [[free_port() for _ in range(40)]]
    for other in others:
        assert other.stdout is not None
        given.append([int(port) for port in other.stdout.readline().split()])
    for other in others:
        other.communicate("\n")
    assert [len(ports) for ports in given] == [40, 40, 40]
    assert len({port for ports in given for port in ports}) == 120


def test_a_port_is_not_given_again_soon() -> None:
    given = [free_port() for _ in range(600)]
    assert all(len(set(given[first : first + 100])) == 100 for first in range(len(given) - 100))
