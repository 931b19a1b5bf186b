"""Count of the values in some bytes, without making any of them.

The problem: 15 KB of empty lists are 15,000 Python objects, a megabyte and milliseconds, for each attach of a peer. So
control frames are counted before they are decoded. The rule: the count ends at its limit, whatever the sizes in the
bytes say; what is malformed is the decoder's to refuse, and counts as far as it could be read. Rejected: a limit in
the decoder itself, which would make each value of each message dearer.
"""

from __future__ import annotations

_FIXED = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
"""Bytes of a value of fixed size, by the high half of its constructor."""


def count_values(data: bytes, limit: int) -> int:
    """Count the values, to `limit + 1` at most. Lists, maps and descriptors count as well as their contents."""
    pos, end, count = 0, len(data), 0
    while pos < end and count <= limit:
        code = data[pos]
        pos += 1
        half = code >> 4
        if code == 0:  # a descriptor and a value follow
            continue
        count += 1
        if half in _FIXED:
            pos += _FIXED[half]
        elif half in (0xA, 0xB):
            pos = _behind(data, pos, half == 0xB)
        elif half in (0xC, 0xD):
            pos += 2 if half == 0xC else 8  # what is in it follows
        elif half in (0xE, 0xF):
            wide = half == 0xF
            at = pos + (4 if wide else 1)
            count += int.from_bytes(data[at : at + 4] if wide else data[at : at + 1], "big")
            pos = _behind(data, pos, wide)
        else:
            return count
    return min(count, limit + 1)


def _behind(data: bytes, pos: int, wide: bool) -> int:
    """The position after a value that says its size."""
    width = 4 if wide else 1
    return pos + width + int.from_bytes(data[pos : pos + width], "big")
