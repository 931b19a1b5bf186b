"""The header of PROXY protocol version 2, by which a proxy names the client that it connects.

Problem: behind a proxy all clients have its address, so that limits by address hit all of them, and audit lines and the
log name none. A header from anybody who sends one would let a client choose its address.
Rules never broken: only peers whose addresses the configuration names are believed, and these must begin with a header;
it is read up to its last byte and no further; its size has a bound, and its time is that of the whole handshake.

Version 1, a line of text, is refused: version 2 is as old as any proxy in use. Addresses of other families than IPv4
and IPv6, and the command LOCAL of a proxy's own checks, leave the address of the proxy.

Source: "The PROXY protocol", versions 1 & 2 (HAProxy), 2.2.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from struct import Struct

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
VERSION_1 = b"PROXY "
FIXED_BYTES = 16
MAX_REST_BYTES = 1024
"""Bytes behind the fixed part: 36 for addresses of IPv6, then what a proxy adds (a name, a certificate's facts)."""

_HEAD = Struct(">BBH")
_LOCAL, _PROXY = 0x20, 0x21
_TCP4, _TCP6 = 0x11, 0x21
_TCP4_BYTES, _TCP6_BYTES = 12, 36
_FAMILIES = range(4)
_PORT = Struct(">H")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class BadHeader(Exception):
    """The header cannot be followed; the text says why, for a log."""


def is_header(head: bytes) -> bool:
    """Tell whether a connection that begins so begins with a header of either version."""
    return head.startswith(VERSION_1) or (len(head) >= 8 and SIGNATURE.startswith(head[: len(SIGNATURE)]))


def is_among(address: str, networks: Collection[Network]) -> bool:
    """Tell whether a peer's address lies in one of the networks."""
    found = _unmapped(ipaddress.ip_address(address.partition("%")[0]))
    return any(found in network for network in networks)


def _unmapped(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The address of IPv4 that one of IPv6 stands for, as a socket for both shows it; else the address."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def rest_bytes(fixed: bytes) -> int:
    """Bytes behind the fixed part. Raises BadHeader."""
    if fixed.startswith(VERSION_1):
        raise BadHeader("a header of version 1: let the proxy send version 2")
    if not fixed.startswith(SIGNATURE):
        raise BadHeader("no header: let the proxy send one, of PROXY protocol version 2")
    command, family, size = _HEAD.unpack_from(fixed, len(SIGNATURE))
    if command not in (_LOCAL, _PROXY):
        raise BadHeader(f"a header of version {command >> 4} with command {command & 15}: version 2 has 0 and 1")
    if family >> 4 not in _FAMILIES or family & 15 > 2:
        raise BadHeader(f"a header of the unknown family 0x{family:02x}")
    if size > MAX_REST_BYTES:
        raise BadHeader(f"a header with {size} bytes behind the fixed ones; at most {MAX_REST_BYTES} are read")
    return int(size)


def client_of(fixed: bytes, rest: bytes) -> tuple[str, int] | None:
    """(address, port) of the client; None: the header names none. Raises BadHeader."""
    command, family, _ = _HEAD.unpack_from(fixed, len(SIGNATURE))
    if command == _LOCAL or family not in (_TCP4, _TCP6):
        return None
    length, size = (4, _TCP4_BYTES) if family == _TCP4 else (16, _TCP6_BYTES)
    if len(rest) < size:
        raise BadHeader(f"a header with {len(rest)} bytes of addresses, which take {size}")
    return str(_unmapped(ipaddress.ip_address(rest[:length]))), int(_PORT.unpack_from(rest, 2 * length)[0])
