"""One address in front of a cluster, as a service name with a floating address is: whoever connects reaches a node that
runs. An SDK of Event Hubs knows one address only."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Self

CONNECT_S = 1.0


class FloatingAddress:
    """`nodes`: the addresses to try, in order, at each connection. `host`: on which it is."""

    def __init__(self, nodes: Callable[[], Sequence[str]], host: str = "127.0.0.1") -> None:
        self._nodes = nodes
        self._server = socket.create_server((host, 0))
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def address(self) -> str:
        return "{}:{}".format(*self._server.getsockname())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            node = self._reached()
            if node is None:
                client.close()
                continue
            for one, other in ((client, node), (node, client)):
                threading.Thread(target=_pass_on, args=(one, other), daemon=True).start()

    def _reached(self) -> socket.socket | None:
        for address in self._nodes():
            host, _, port = address.rpartition(":")
            with contextlib.suppress(OSError):
                return socket.create_connection((host, int(port)), CONNECT_S)
        return None


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    one.settimeout(None)
    with contextlib.suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)
    for end in (one, other):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
