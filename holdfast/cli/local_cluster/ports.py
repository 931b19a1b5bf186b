"""Ports for local nodes: those asked for, or ones that are free now.

Rule never broken: a port that was asked for is used or refused with a reason, never silently replaced. Ports that we
choose lie below the range that the system hands to outgoing connections, so that a stopped node finds its port free
again.
"""

from __future__ import annotations

import random
import socket

from holdfast.cli.shared.errors import CliError

USUAL_AMQP_PORT = 5672
USUAL_RPC_PORT = 7101
_CHOOSE_FROM = range(20_000, 32_000)
_ATTEMPTS = 200


def is_free(port: int) -> bool:
    """Whether a listener on loopback could have the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def consecutive(first: int, count: int, usual: int, what: str) -> list[int]:
    """`count` ports from `first` on. first = 0: from `usual` on if they are free, else wherever there is room."""
    if first:
        ports = list(range(first, first + count))
        if ports[-1] > 65535:
            raise CliError(f"{what} ports {first}..{ports[-1]} do not exist; the last port is 65535")
        taken = [port for port in ports if not is_free(port)]
        if taken:
            raise CliError(
                f"{what} port {taken[0]} is in use", advice="choose other ports, or end what uses it (ss -ltnp)"
            )
        return ports
    starts = [usual] + random.sample(_CHOOSE_FROM[: -count or None], _ATTEMPTS)
    for start in starts:
        ports = list(range(start, start + count))
        if all(is_free(port) for port in ports):
            return ports
    raise CliError(f"no {count} consecutive free ports were found for {what}")
