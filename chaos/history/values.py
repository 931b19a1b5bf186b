"""Values that workloads send: `writer:number`, the target partition, and a checksum over all of it.

Two values are never equal. A reader can tell from a value alone whether a byte was changed, and whether the value is in
the partition that it was sent to.
"""

from __future__ import annotations

from typing import NamedTuple

from crc32c import crc32c

DAMAGED = "?"
"""Name of a value whose bytes do not contain one."""

_CRC_DIGITS = 8


class DecodedValue(NamedTuple):
    msg_id: str
    partition: int  # -1: the bytes do not contain it
    crc_ok: bool
    crc: int


def body_of(msg_id: str, partition: int, size_bytes: int = 0) -> bytes:
    """Encode a value as the body of an event, filled up to `size_bytes`."""
    head = f"{msg_id} {partition} ".encode()
    body = head.ljust(size_bytes - _CRC_DIGITS, b".")
    return body + f"{crc32c(body):0{_CRC_DIGITS}x}".encode()


def read_value(body: bytes) -> DecodedValue:
    content, told = body[:-_CRC_DIGITS], body[-_CRC_DIGITS:]
    crc = crc32c(content)
    intact = f"{crc:0{_CRC_DIGITS}x}".encode() == told
    name, _, rest = content.decode("latin-1").partition(" ")
    partition = rest.partition(" ")[0]
    return DecodedValue(name or DAMAGED, int(partition) if partition.isdecimal() else -1, intact, crc32c(body))


def writer_of(msg_id: str) -> str:
    return msg_id.rpartition(":")[0]


def number_of(msg_id: str) -> int:
    """Return a value's number among those of its writer; -1 if the name has none."""
    number = msg_id.rpartition(":")[2]
    return int(number) if number.isdecimal() else -1
