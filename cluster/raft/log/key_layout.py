"""Keys of a group in the store, for its log store and for readers of groups that are not open.

Keys, each `kind + group as u64 big endian`: `e` + index (entries), `t` + index (first index of a term), `g` + index
(configurations), `h` (hard state), `c` (checkpoint), `s` (a snapshot under way, see `staging`), `b` (births of replicas
that were erased here). Entries lie in one of two spaces: in one of them the highest bit of the group number is set, and
the hard state says which one is the log. The other one belongs to a snapshot that is being fetched.

A replica is one life on its node, and its birth stands in its hard state from the first write on: metadata that are
behind must never have it opened as the one that was there before, with a vote which that one gave away. Births of
founding replicas need not be told, and are not, so that a group that never moved is stored as in version 14.
"""

from __future__ import annotations

import struct
import zlib

from cluster.raft.interfaces import Disk, DiskBatch, GroupId
from cluster.raft.membership.configuration import FOUNDING_BIRTH
from cluster.versions import MEMBERS_CHANGE_FROM, Layouts

_U64 = struct.Struct(">Q")
HARD = struct.Struct(">BBQQQQQQ")  # layout, flags, term, vote (0 = none), commit, base index, base term, last index
CHECK = struct.Struct(">I")  # CRC of what stands before it
LAYOUT = 2
LAYOUTS = Layouts({14: LAYOUT})
"""Of the hard state."""
LAYOUT_OF_MOVED = 3
"""Of a group that changed its members, or of a replica that is no founding one: the birth follows the fields."""
FLAG_MUTE, FLAG_OTHER_SPACE = 1, 2
FLAG_HAS_FORGOTTEN = 4
"""Written from version 15 on."""
OTHER_SPACE = 1 << 63
BASE_OF_NEW_GROUP = (1, 1, 0)
"""Commit index, base index and base term."""
TERM_OF_FORGOTTEN = 1
"""Lower than any later one, and not that of a group which is new."""


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


def encode_hard_state(version: int, *fields: int, birth: int | None = None) -> bytes:
    """The row of a hard state, in the layout of a version. `fields`: those of HARD after the layout. `birth`: of the
    replica, if it must be told."""
    if birth is None:
        body = HARD.pack(LAYOUTS.at(version), *fields)
    else:
        assert version >= MEMBERS_CHANGE_FROM, version
        body = HARD.pack(LAYOUT_OF_MOVED, *fields) + _U64.pack(birth)
    return body + CHECK.pack(zlib.crc32(body))


def decode_hard_state(row: bytes) -> tuple[tuple[int, ...], int] | None:
    """(fields of HARD after the layout, birth); None: the row does not match its checksum, or has another layout."""
    body = row[: -CHECK.size]
    sizes = {**dict.fromkeys(LAYOUTS.numbers, HARD.size), LAYOUT_OF_MOVED: HARD.size + _U64.size}
    if not row or CHECK.pack(zlib.crc32(body)) != row[-CHECK.size :] or sizes.get(row[0]) != len(body):
        return None
    birth = _U64.unpack(body[HARD.size :])[0] if row[0] == LAYOUT_OF_MOVED else FOUNDING_BIRTH
    return HARD.unpack(body[: HARD.size])[1:], birth


def stored_birth(group: GroupId, disk: Disk) -> int | None:
    """Birth of the replica that is stored; None: nothing is, or it cannot be read."""
    row = disk.get(group_prefix(b"h", group))
    found = None if row is None else decode_hard_state(row)
    return None if found is None else found[1]


def is_stored(group: GroupId, disk: Disk) -> bool:
    """Tell whether a replica is stored, readable or not."""
    return disk.get(group_prefix(b"h", group)) is not None


def births_over(group: GroupId, disk: Disk) -> int:
    """Replicas up to this birth were erased here, and are never opened again; 0: none was."""
    row = disk.get(group_prefix(b"b", group))
    return 0 if row is None else int(_U64.unpack(row)[0])


def forget_group(group: GroupId, batch: DiskBatch, version: int, birth: int = FOUNDING_BIRTH) -> None:
    """The member begins anew: with nothing, and without a vote, from the same batch on (`elections/vote_recovery.py`).
    The group must not be open, and nothing of its earlier life may speak any more. The member has a term, so nobody
    takes it for one that never was. `version`: the active one."""
    erase_group(group, batch)
    fields = (FLAG_MUTE, TERM_OF_FORGOTTEN, 0, *BASE_OF_NEW_GROUP, BASE_OF_NEW_GROUP[0])
    told = birth if birth != FOUNDING_BIRTH else None
    batch.put(group_prefix(b"h", group), encode_hard_state(version, *fields, birth=told))


def erase_group(group: GroupId, batch: DiskBatch, over: int = 0) -> None:
    """Remove every trace that this package wrote of a group that is not open. `over`: the group lives on elsewhere, and
    its replica with this birth is over here for ever."""
    if over:
        batch.put(group_prefix(b"b", group), _U64.pack(over))
    for kind in (b"e", b"t", b"g"):
        batch.delete_range(*group_range(kind, group))
    batch.delete_range(*group_range(b"e", group | OTHER_SPACE))
    for kind in (b"h", b"c", b"s"):
        batch.delete(group_prefix(kind, group))
