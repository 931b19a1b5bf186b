"""Many connections at once to the port between nodes: gRPC crashed over it, and the node with it."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cluster.rpc.peer_tls import node_host
from tests.unit.rpc.raft_transport.test_peer_tls import CLUSTER, Hosts

HANDSHAKES = 8000
"""Of 8 clients in a loop. Where each got a configuration of its own, the server crashed after about 2,000."""
CLIENTS = 8

SERVER = f"""
import asyncio, grpc, sys
from cluster.rpc import PeerTls

async def main():
    server = grpc.aio.server()
    print(server.add_secure_port("127.0.0.1:0", PeerTls({CLUSTER!r}, *sys.argv[1:]).server_credentials()), flush=True)
    await server.start()
    await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


@pytest.mark.slow
def test_connections_that_come_together_do_not_end_the_process(tmp_path: Path) -> None:
    hosts = Hosts(tmp_path)
    cert, key = hosts.issue(2)
    context = ssl.create_default_context(cafile=hosts.ca)
    context.load_cert_chain(cert, key)
    context.set_alpn_protocols(["h2"])
    files = [hosts.ca, *hosts.issue(1)]
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, *files], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            port, done, failures = int(server.stdout.readline()), [0] * CLIENTS, list[OSError]()

            def connect(client: int) -> None:
                while done[client] < HANDSHAKES // CLIENTS and not failures:
                    try:
                        with (
                            socket.create_connection(("127.0.0.1", port), 60) as plain,
                            context.wrap_socket(plain, server_hostname=node_host(CLUSTER, 1)),
                        ):
                            done[client] += 1
                    except OSError as error:
                        failures.append(error)

            clients = [threading.Thread(target=connect, args=(client,)) for client in range(CLIENTS)]
            for one in clients:
                one.start()
            for one in clients:
                one.join()
            assert (failures, server.poll()) == ([], None), f"after {sum(done)} handshakes"
        finally:
            server.kill()
