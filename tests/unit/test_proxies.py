"""Ways that can be broken, through a real Toxiproxy."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.proxies import HOW_TO_GET, LOOPBACK, ProxyServer, find_server

OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")


@pytest.fixture
def proxies(tmp_path: Path) -> Iterator[ProxyServer]:
    program = find_server()
    if program is None:
        pytest.skip(HOW_TO_GET)
    with ProxyServer(program, tmp_path / "toxiproxy.log") as server:
        yield server


def knock(port: int) -> bool:
    with socket.socket() as door:
        return door.connect_ex((LOOPBACK, port)) == 0


def test_who_knocks_at_a_way_that_refuses_does_not_take_its_port(proxies: ProxyServer) -> None:
    """A port from the range of outgoing connections goes to one of them sooner or later, even to who knocks there."""
    way = proxies.way("door", f"{LOOPBACK}:1")
    port = int(way.address.rpartition(":")[2])
    assert port < int(OUTGOING.read_text().split()[0])
    with way.refusing():
        assert not any(knock(port) for _ in range(200))
    assert knock(port)
