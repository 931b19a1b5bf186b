"""Number of deliveries that a disposition names, read from its bytes.

The problem: 23 bytes may name all 20,000 deliveries of a link, and as long as they do not settle them, say it again and
again; proton queues an event for each of them, each time. So deliveries are rationed, as frames are. The rule: a
disposition in an unusual encoding counts as more than fits into any ration.
"""

from __future__ import annotations

DISPOSITION = b"S\x15"
"""Descriptor of a disposition, after the zero."""

MANY = 1 << 32

_SMALL, _UINT, _ZERO, _NULL = 0x52, 0x70, 0x43, 0x40


def deliveries_named(data: bytes, at: int) -> int:
    """Count the deliveries of a disposition. `at`: where its list begins, after the descriptor. 1 if the data end
    before that can be told: the rest comes in a push of its own."""
    try:
        pos = at + (3 if data[at] == 0xC0 else 9)
        if data[at] not in (0xC0, 0xD0) or data[pos] not in (0x41, 0x42):
            return MANY
        first, pos = _number(data, pos + 1)
        count = data[at + 2] if data[at] == 0xC0 else int.from_bytes(data[at + 5 : at + 9], "big")
        if count < 3 or data[pos] == _NULL:
            return 1
        last, _ = _number(data, pos)
    except IndexError:
        return 1
    return MANY if first < 0 or last < 0 else (last - first) % MANY + 1


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A uint and the position after it; -1 if it is none."""
    code = data[at]
    if code == _SMALL:
        return data[at + 1], at + 2
    if code == _UINT:
        if at + 5 > len(data):
            raise IndexError
        return int.from_bytes(data[at + 1 : at + 5], "big"), at + 5
    return (0, at + 1) if code == _ZERO else (-1, at + 1)
