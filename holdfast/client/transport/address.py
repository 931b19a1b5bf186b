"""Addresses of servers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast import protocol
from holdfast.client.errors import ConfigurationError, ProtocolError

DEFAULT_PORT: Final = 5672
FORM: Final = "write host:port, like 127.0.0.1:5672, or amqp://host:port; a log is named by itself"
SERVER: Final = re.compile(
    r"(amqps?://)?(\[(?P<v6>[0-9a-fA-F:.%]+)]|(?P<host>[^][:/@?#\s]+))(:(?P<port>[0-9]{1,5}))?/?"
)


def named_servers(servers: object) -> list[str]:
    """The names in a string with commas, or in several of them; at least one. Raises ConfigurationError."""
    given: list[object] = [servers]
    if isinstance(servers, Iterable) and not isinstance(servers, str):
        given = list(servers)
    texts = [text for text in given if isinstance(text, str)]
    if len(texts) < len(given):
        raise ConfigurationError(f"{servers!r} names no servers", advice=FORM)
    found = [part for text in texts for part in text.replace(",", " ").split()]
    if not found:
        raise ConfigurationError("no server was given", advice="give at least one host:port")
    return found


@dataclass(frozen=True, slots=True)
class Address:
    """A server's host and port. `hostname` is the name it is to be greeted by, when that is another one."""

    host: str
    port: int
    hostname: str = ""

    @staticmethod
    def parse(text: str) -> Address:
        """Parse `host`, `host:port` or `[v6]:port`, perhaps with `amqp://` in front."""
        if "@" in text:
            raise ConfigurationError(
                "a server is named without a user and a password", advice="give them apart: user and password_file"
            )
        found = SERVER.fullmatch(text.strip())
        port = int(found["port"] or DEFAULT_PORT) if found is not None else 0
        if found is None or not 0 < port < 65536:
            raise ConfigurationError(f"{text!r} is not an address", advice=FORM)
        return Address(found["host"] or found["v6"], port)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def told_addresses(told: object, by: Address) -> Sequence[Address]:
    """Read what a node tells of other nodes. Raises ProtocolError."""
    found: list[Address] = []
    for one in told if isinstance(told, list) else ():
        match one:
            case [str(host), int(port), str(hostname), *_] if host and 0 < port < 65536:
                found.append(Address(host, int(port), hostname))
    if not isinstance(told, list) or len(found) < len(told):
        raise ProtocolError(f"{by} tells of other nodes in a way that makes no sense: {told!r:.200}")
    return found[: protocol.TOLD_NODES]
