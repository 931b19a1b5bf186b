"""The connections of a process of Spark's: made in it, kept between its tasks, shared by nobody else.

Problem: PySpark forks its workers, and a client's thread and sockets do not survive a fork; and a worker runs many
short tasks, each of which would connect anew.
Rules never broken: a client is used in the process that made it; each reading of Spark's (a batch, or a run of a
stream) has clients of its own, which stay with the log that was planned.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from typing import Final, Protocol

from holdfast.client import NetworkOptions, RangeOptions, Security, find_servers
from holdfast.client.sync import RangeClient

KEPT: Final = 4
"""Readings whose connections a worker keeps; it runs one task at a time, so what is closed is idle."""

FIRST_CONTACT_S: Final = 5.0
"""Time for the first server to answer. If none does, the address is wrong or the cluster down: people are told soon."""

_clients: OrderedDict[tuple[int, str], RangeClient] = OrderedDict()


class Connecting(Protocol):
    """The options of a source or a sink that say how the cluster is reached."""

    @property
    def servers(self) -> str: ...
    @property
    def timeout_s(self) -> float: ...
    @property
    def security(self) -> Security: ...


def network(options: Connecting) -> NetworkOptions:
    return NetworkOptions(first_contact_s=min(FIRST_CONTACT_S, options.timeout_s), security=options.security)


def open_client(options: Connecting, *, uncommitted: bool) -> RangeClient:
    return RangeClient(
        options.servers,
        isolation="uncommitted" if uncommitted else "committed",
        options=RangeOptions(reconnect_timeout_s=options.timeout_s),
        network=network(options),
    )


def client_of(reading: str, options: Connecting, *, uncommitted: bool) -> RangeClient:
    """The one that this process has for the reading."""
    name = (os.getpid(), reading)
    client = _clients.get(name)
    if client is None:
        for other in [other for other in _clients if other[0] != name[0]]:
            del _clients[other]  # the parent's: its thread is not in this process
        while len(_clients) >= KEPT:
            _clients.popitem(last=False)[1].close()
        client = _clients[name] = open_client(options, uncommitted=uncommitted)
    _clients.move_to_end(name)
    return client


def resolve(servers: str) -> str:
    """Addresses of servers; `zk://...` is looked up."""
    if not servers.startswith("zk://"):
        return servers
    return ",".join(asyncio.run(find_servers(servers)))
