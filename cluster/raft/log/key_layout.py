"""Keys of a group in the store, for its log store and for readers of groups that are not open.

Keys, each `kind + group as u64 big endian`: `e` + index (entries), `t` + index (first index of a term), `h` (hard
state), `c` (checkpoint), `s` (a snapshot under way, see `staging`). Entries lie in one of two spaces: in one of them
the highest bit of the group number is set, and the hard state says which one is the log. The other one belongs to a
snapshot that is being fetched.
"""

from __future__ import annotations

import struct
import zlib

from cluster.raft.interfaces import Disk, DiskBatch, GroupId
from cluster.versions import Layouts

_U64 = struct.Struct(">Q")
HARD = struct.Struct(">BBQQQQQQ")  # layout, flags, term, vote (0 = none), commit, base index, base term, last index
CHECK = struct.Struct(">I")  # CRC of what stands before it
LAYOUT = 2
LAYOUTS = Layouts({14: LAYOUT})
"""Of the hard state."""
FLAG_MUTE, FLAG_OTHER_SPACE = 1, 2
OTHER_SPACE = 1 << 63
BASE_OF_NEW_GROUP = (1, 1, 0)
"""Commit index, base index and base term."""


def group_prefix(kind: bytes, group: GroupId) -> bytes:
    """The first nine bytes of every key a group owns."""
    return kind + _U64.pack(group)


def group_range(kind: bytes, group: GroupId) -> tuple[bytes, bytes]:
    """Bounds of all keys of one kind of a group."""
    prefix = group_prefix(kind, group)
    return prefix, prefix + b"\xff" * 9


def stored_groups(disk: Disk) -> list[GroupId]:
    """Groups of which this package has stored something."""
    return [_U64.unpack(key[1:])[0] for key, _ in disk.scan(b"h", b"h" + b"\xff" * 9)]


def entries_stored_under(group: GroupId, disk: Disk) -> GroupId:
    """The group number in the keys of the group's entries: a snapshot changes it."""
    hard = disk.get(group_prefix(b"h", group))
    return group | OTHER_SPACE if hard is not None and hard[1] & FLAG_OTHER_SPACE else group


def encode_hard_state(version: int, *fields: int) -> bytes:
    """The row of a hard state, in the layout of a version. `fields`: those of HARD after the layout."""
    body = HARD.pack(LAYOUTS.at(version), *fields)
    return body + CHECK.pack(zlib.crc32(body))


def forget_group(group: GroupId, batch: DiskBatch, version: int) -> None:
    """The member begins anew: with nothing, and without a vote, from the same batch on (`elections/vote_recovery.py`).
    The group must not be open, and nothing of its earlier life may speak any more. `version`: the active one."""
    erase_group(group, batch)
    batch.put(
        group_prefix(b"h", group),
        encode_hard_state(version, FLAG_MUTE, 0, 0, *BASE_OF_NEW_GROUP, BASE_OF_NEW_GROUP[0]),
    )


def erase_group(group: GroupId, batch: DiskBatch) -> None:
    """Remove every trace that this package wrote of a group that is not open."""
    for kind in (b"e", b"t"):
        batch.delete_range(*group_range(kind, group))
    batch.delete_range(*group_range(b"e", group | OTHER_SPACE))
    for kind in (b"h", b"c", b"s"):
        batch.delete(group_prefix(kind, group))
