"""Configurations beside the log: in the batch of their entry, and where that is cut off, trimmed or replaced."""

from __future__ import annotations

import pytest

from cluster.raft import InvariantBroken, StateDamaged, UnknownEntry, erase_group, forget_group
from cluster.raft.interfaces import ENTRY_CONFIGURATION
from cluster.raft.log.entry_cache import EntryCache
from cluster.raft.log.key_layout import births_over, decode_hard_state, group_prefix, group_range, stored_birth
from cluster.raft.log.log_store import LogStore
from cluster.raft.membership.configuration import (
    Configuration,
    Replica,
    ended,
    final,
    founding,
    joint,
    with_learner,
)
from cluster.raft.membership.configuration_codec import decode_entry, encode_entry
from tests.simulation.world.disk import SimBatch, SimDisk

GROUP = 7
V1 = founding([1, 2, 3])
L = with_learner(V1, Replica(4, 17), 9)
J = joint(L, 9, add=Replica(4, 17), remove=Replica(3, 1))
F = final(J)


class LogDesk:
    """A log store, written in batches."""

    def __init__(self, disk: SimDisk | None = None, members: Configuration | None = V1, birth: int = 1) -> None:
        self.disk = disk or SimDisk()
        self.batch: SimBatch = self.disk.batch()
        self.log = LogStore(
            GROUP, self.disk, EntryCache(1 << 20), lambda: self.batch, lambda: None, lambda: None,
            active_version=lambda: 15, founding=members, birth=birth,
        )  # fmt: skip
        self.told: list[str] = []
        self.log.configurations.on_change = lambda: self.told.append(str(self.log.configurations.latest))

    def add(self, *entries: Configuration | bytes) -> LogDesk:
        for entry in entries:
            data = entry if isinstance(entry, bytes) else encode_entry(entry)
            self.log.add(data, self.log.last + 1, 1)
        return self

    def write(self) -> LogDesk:
        self.log.flush()
        self.disk.write(self.batch)
        self.batch = self.disk.batch()
        return self

    def again(self, members: Configuration | None = V1) -> LogDesk:
        self.write()
        return LogDesk(self.disk, members)

    @property
    def latest(self) -> Configuration | None:
        return self.log.configurations.latest

    def rows(self) -> list[int]:
        return [int.from_bytes(key[-8:]) for key, _ in self.disk.scan(*group_range(b"g", GROUP))]


def led() -> LogDesk:
    desk = LogDesk()
    desk.log.setCurrentTerm(1, 1)
    return desk


def test_a_configuration_is_in_force_from_its_append_and_comes_back() -> None:
    desk = led().add(b"\0a", L, b"\0b", J, F)
    assert desk.told == [str(L), str(J), str(F)]
    assert desk.latest == F
    assert desk.log.configurations.latest_index == 6
    again = desk.again(members=None)
    assert again.latest == F, "whoever opens it need not know"
    assert [again.log.configurations.as_of(index) for index in range(1, 7)] == [V1, V1, L, L, J, F]


def test_row_and_entry_are_in_one_batch() -> None:
    desk = led().write()
    desk.add(L)
    assert LogDesk(desk.disk).latest == V1, "neither is written"
    assert desk.again().latest == L


def test_a_group_that_never_changed_is_stored_as_before() -> None:
    desk = led().add(b"\0a").write()
    row = desk.disk.get(group_prefix(b"h", GROUP))
    assert row is not None
    assert row[0] == 2, "the layout of version 14"
    assert desk.rows() == []
    assert desk.add(L).write().rows() == [1, 3]
    row = desk.disk.get(group_prefix(b"h", GROUP))
    assert row is not None
    assert row[0] == 3


def test_what_is_cut_off_is_in_force_no_more() -> None:
    desk = led().add(b"\0a", L, J, b"\0b").write()
    desk.log.deleteEntriesFrom(4 - desk.log.base_index)
    assert (desk.latest, desk.told[-1]) == (L, str(L))
    assert desk.again().latest == L
    desk.log.deleteEntriesFrom(2 - desk.log.base_index)
    again = desk.again(members=None)
    assert again.latest == V1, "with which it began was written down with the first change"
    assert again.rows() == [1]


def test_entries_without_configurations_are_cut_off_without_a_word() -> None:
    desk = led().add(b"\0a", L, b"\0b").write()
    desk.log.deleteEntriesFrom(4 - desk.log.base_index)
    assert (desk.latest, desk.told) == (L, [str(L)])


def test_of_a_trimmed_log_the_newest_one_stays() -> None:
    desk = led().add(b"\0a", L, J, F, b"\0b").write()
    desk.log.setRaftCommitIndex(6)
    desk.log.put_checkpoint(6, b"")
    desk.log.trim(4, 6)
    again = desk.again(members=None)
    assert again.rows() == [4, 5]
    assert (again.log.configurations.as_of(4), again.latest) == (J, F)
    again.log.put_checkpoint(6, b"")
    again.log.trim(6, 6)
    assert again.again(members=None).rows() == [5]
    assert again.again(members=None).latest == F


@pytest.mark.parametrize("carried", [J, None])
def test_a_snapshot_brings_its_own(carried: Configuration | None) -> None:
    desk = led().add(b"\0a", L).write()
    prefix = group_prefix(b"e", desk.log.other_space)
    desk.batch.put(prefix + (10).to_bytes(8), b"\0z")
    desk.log.replace((9, 1), 10, [(10, 1)], 10, carried)
    desk.log.put_checkpoint(10, b"")
    again = desk.again(members=None)
    assert again.latest == carried
    assert again.rows() == ([10] if carried else [])


def test_a_replica_that_knows_nothing_takes_the_first_that_comes() -> None:
    desk = LogDesk(members=None, birth=17)
    desk.log.setCurrentTerm(1, None)
    assert desk.latest is None
    desk.add(b"\0a", L)
    again = desk.again(members=None)
    assert (again.latest, again.log.birth) == (L, 17)


def test_a_step_that_is_none_stops_the_replica() -> None:
    with pytest.raises(InvariantBroken, match="may not follow v1"):
        led().add(J)


@pytest.mark.parametrize(
    "entry",
    [
        b"\x02+9",
        b"\x02",
        encode_entry(L) + b"\x78\x01",
        encode_entry(Configuration(2, frozenset())),
    ],
)
def test_an_entry_that_cannot_be_read_stops_the_replica(entry: bytes) -> None:
    with pytest.raises(UnknownEntry):
        led().add(entry)


def test_entries_are_read_as_they_are_written() -> None:
    for one in (V1, L, J, F, ended(L, 9, without=Replica(4, 17)), joint(V1, 3, add=None, remove=Replica(1, 1))):
        assert decode_entry(encode_entry(one)) == one
        assert encode_entry(one)[:1] == ENTRY_CONFIGURATION


def test_a_damaged_row_is_never_guessed() -> None:
    desk = led().add(L).write()
    key = group_prefix(b"g", GROUP) + (2).to_bytes(8)
    value = desk.disk.get(key)
    assert value is not None
    desk.batch.put(key, value[:-1] + bytes([value[-1] ^ 1]))
    with pytest.raises(StateDamaged, match="cannot tell who votes"):
        desk.again()


def test_a_row_of_an_entry_that_is_not_there_is_damage() -> None:
    desk = led().add(b"\0a", L).write()
    desk.log.deleteEntriesFrom(3 - desk.log.base_index)
    row = desk.log.configurations
    row._put(3, L)  # as if the truncation had forgotten it
    with pytest.raises(StateDamaged, match="of entry 3, and the last entry is 2"):
        desk.again()


def test_a_birth_is_on_disk_from_the_first_write_on() -> None:
    desk = LogDesk(members=None, birth=17).write()
    assert stored_birth(GROUP, desk.disk) == 17
    assert LogDesk(desk.disk, birth=1).log.birth == 17, "what is stored counts"


def test_a_replica_that_began_anew_keeps_its_birth() -> None:
    desk = LogDesk(birth=17).write()
    forget_group(GROUP, desk.batch, 15, 17)
    again = LogDesk(desk.write().disk)
    assert (again.log.birth, again.log.mute) == (17, True)
    assert again.log.term, "it is not taken for one that never was"
    row = desk.disk.get(group_prefix(b"h", GROUP))
    assert row is not None
    assert decode_hard_state(row) is not None
    assert decode_hard_state(row[:-1] + b"x") is None


def test_what_is_erased_leaves_the_birth_that_is_over() -> None:
    desk = led().add(L).write()
    desk.log.erase(over=1)
    desk.disk.write(desk.batch)
    assert births_over(GROUP, desk.disk) == 1
    assert stored_birth(GROUP, desk.disk) is None
    assert desk.rows() == []
    other = led().write()
    erase_group(GROUP, other.batch)
    other.disk.write(other.batch)
    assert births_over(GROUP, other.disk) == 0, "a group that was deleted is over anyway"
