"""Where a server is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.client.errors import ConfigurationError

DEFAULT_PORT: Final = 5672


@dataclass(frozen=True, slots=True)
class Address:
    """A server's host and port. `hostname` is the name it is to be greeted by, when that is another one."""

    host: str
    port: int
    hostname: str = ""

    @staticmethod
    def parse(text: str) -> Address:
        """`host`, `host:port` or `[v6]:port`."""
        host, separator, port_text = text.strip().rpartition(":")
        if not separator or text.strip().endswith("]"):
            host, port_text = text.strip(), str(DEFAULT_PORT)
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port_text.isdigit() or not 0 < int(port_text) < 65536:
            raise ConfigurationError(f"{text!r} is not an address", advice="write host:port, like 127.0.0.1:5672")
        return Address(host, int(port_text))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
