"""Bytes on a socket, for peers that do what no library lets them do."""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

from proton import Data, Described, symbol, uint, ulong

SASL_HEADER = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER = b"AMQP\x00\x01\x00\x00"

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
SASL_INIT = 0x41

ANSWER_WITHIN_S = 60.0


def performative(code: int, fields: list[Any]) -> bytes:
    data = Data()
    data.put_described()
    data.enter()
    data.put_ulong(ulong(code))
    data.put_sequence(fields)
    data.exit()
    return bytes(data.encode())


def frame(code: int, fields: list[Any], payload: bytes = b"", channel: int = 0, kind: int = 0) -> bytes:
    body = performative(code, fields) + payload
    return struct.pack(">IBBH", len(body) + 8, 2, kind, channel) + body


class Raw:
    """A connection on which the test writes bytes, and collects whatever comes back."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=ANSWER_WITHIN_S)
        self.received = bytearray()

    def send(self, data: bytes) -> Raw:
        with contextlib.suppress(ConnectionError):  # the node may have hung up already: that is an answer too
            self.socket.sendall(data)
        return self

    def say_no_more(self) -> None:
        """The other direction stays open, unless the node has hung up already."""
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            if error.errno != errno.ENOTCONN:
                raise

    def read_until(self, wanted: bytes, within_s: float = ANSWER_WITHIN_S) -> bool:
        """Whether these bytes came."""
        deadline = time.monotonic() + within_s
        while wanted not in self.received:
            if not self._read(deadline):
                return False
        return True

    def read_to_end(self, within_s: float = ANSWER_WITHIN_S) -> bytes:
        """Everything until the node hangs up; fails when it does not."""
        deadline = time.monotonic() + within_s
        while self._read(deadline):
            pass
        if time.monotonic() >= deadline:
            raise AssertionError(
                f"the node did not hang up within {within_s:g} s; it said {bytes(self.received)[-200:]!r}"
            )
        return bytes(self.received)

    def _read(self, deadline: float) -> bool:
        self.socket.settimeout(max(0.01, deadline - time.monotonic()))
        try:
            data = self.socket.recv(65536)
        except (ConnectionError, TimeoutError):
            return False
        self.received += data
        return bool(data)

    def close(self) -> None:
        self.socket.close()

    # ------------------------------------------------------------------------------------------- well-behaved so far

    def opened(self, max_frame_size: int = 65536) -> Raw:
        """Header and open, answered."""
        self.send(AMQP_HEADER + frame(OPEN, ["raw", "localhost", uint(max_frame_size)]))
        assert self.read_until(b"\x00\x53\x10"), f"no open came back: {bytes(self.received)!r}"
        return self

    def begun(self) -> Raw:
        self.opened()
        self.send(frame(BEGIN, [None, uint(0), uint(2**31 - 1), uint(2**31 - 1)]))
        assert self.read_until(b"\x00\x53\x11"), f"no begin came back: {bytes(self.received)!r}"
        return self

    def attached(self, log: str, *, sends: bool, partition: str = "0", earliest: bool = True) -> Raw:
        """A link with handle 0 that sends to, or receives from, one partition."""
        self.begun()
        place = Described(ulong(0x200), {symbol("event-streams-offset"): symbol("@earliest")})
        filters = {symbol("start"): place} if earliest else None
        source = Described(ulong(0x28), [log, None, None, None, None, None, None, filters])
        target = Described(ulong(0x29), [log])
        fields = [
            "link", uint(0), not sends, None, None,
            Described(ulong(0x28), ["here"]) if sends else source,
            target if sends else Described(ulong(0x29), ["here"]),
            None, None, uint(0) if sends else None, None, None, None,
            {symbol("event-streams-partition"): symbol(partition)},
        ]  # fmt: skip
        self.send(frame(ATTACH, fields))
        assert self.read_until(b"\x00\x53\x12"), f"no attach came back: {bytes(self.received)!r}"
        return self


@contextlib.contextmanager
def raw(address: str) -> Iterator[Raw]:
    connection = Raw(address)
    try:
        yield connection
    finally:
        connection.close()
