"""The journal: what is written is found again, in constant time; what is damaged is never guessed."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from cluster.raft import StateDamaged
from cluster.raft.log import log_store
from cluster.raft.log.entry_cache import EntryCache
from cluster.raft.log.key_layout import group_prefix
from cluster.raft.log.log_store import LogStore
from tests.simulation.world.disk import SimBatch, SimDisk


class Desk:
    """A journal with its batch, as a host would drive it."""

    def __init__(self, disk: SimDisk | None = None, group: int = 1, cache_bytes: int = 1 << 20) -> None:
        self.disk = disk or SimDisk()
        self.cache = EntryCache(cache_bytes)
        self.pending: SimBatch | None = None
        self.votes = self.entries = 0
        self.log_store = LogStore(group, self.disk, self.cache, self._batch, self._vote, self._entry)

    def _batch(self) -> SimBatch:
        if self.pending is None:
            self.pending = self.disk.batch()
        return self.pending

    def _vote(self) -> None:
        self.votes += 1

    def _entry(self) -> None:
        self.entries += 1

    def add(self, *terms: int) -> None:
        for term in terms:
            self.log_store.add(b"\0%d" % (self.log_store.last + 1), self.log_store.last + 1, term)

    def write(self) -> None:
        self.log_store.flush()
        if self.pending is not None:
            self.disk.write(self.pending)
            self.pending = None
        self.log_store.mark_written()
        self.cache.shrink()

    def again(self) -> Desk:
        self.write()
        return Desk(self.disk)

    def content(self) -> list[tuple[int, int, bytes]]:
        journal = self.log_store
        return [
            (index, journal.term_at(index), journal.data_at(index))
            for index in range(journal.base_index + 1, journal.last + 1)
        ]


def test_a_new_journal_is_what_the_library_expects() -> None:
    journal = Desk().log_store
    assert len(journal) == 1
    assert [journal[0][i] for i in range(3)] == [b"\x01", 1, 0]
    assert journal[-1][1] == 1
    assert journal.getVotedForNodeId() is None


def test_everything_comes_back() -> None:
    desk = Desk()
    desk.log_store.setCurrentTerm(1, 3)
    desk.add(1, 1)
    desk.log_store.setCurrentTerm(4, None)
    desk.add(4, 4, 4)
    desk.log_store.setRaftCommitIndex(4)
    again = desk.again()
    assert again.content() == desk.content()
    assert (again.log_store.term, again.log_store.vote, again.log_store.commit) == (4, 0, 4)
    assert again.log_store.durable == again.log_store.base_index, "after kill -9 nothing is known to be synced"


def test_slices_read_nothing_until_asked() -> None:
    desk = Desk(cache_bytes=0)
    desk.log_store.setCurrentTerm(1, 1)
    desk.add(*[1] * 100)
    desk.write()
    reads: list[bytes] = []
    get = desk.disk.get
    desk.disk.get = lambda key: (reads.append(key), get(key))[1]  # type: ignore[method-assign]
    tail = desk.log_store[10:]
    assert len(tail) == 91
    assert tail[5][2] == 1
    assert not desk.log_store[200:]
    assert reads == []
    assert tail[0][0] == b"\x0011"
    assert len(reads) == 1


def test_truncation_forgets_the_tail_and_its_terms() -> None:
    desk = Desk()
    desk.log_store.setCurrentTerm(5, None)
    desk.add(1, 1, 2, 3, 3)
    desk.write()
    desk.log_store.deleteEntriesFrom(3)
    assert (desk.log_store.last, desk.log_store.last_term) == (3, 1)
    desk.add(5, 5)
    again = desk.again()
    assert again.content() == [(2, 1, b"\x002"), (3, 1, b"\x003"), (4, 5, b"\x004"), (5, 5, b"\x005")]


def test_committed_entries_are_never_truncated() -> None:
    desk = Desk()
    desk.log_store.setCurrentTerm(1, None)
    desk.add(1, 1)
    desk.log_store.setRaftCommitIndex(3)
    with pytest.raises(AssertionError):
        desk.log_store.deleteEntriesFrom(2)


def test_the_commit_index_stays_within_the_log() -> None:
    desk = Desk()
    desk.log_store.setCurrentTerm(1, None)
    desk.add(1)
    with pytest.raises(AssertionError):
        desk.log_store.setRaftCommitIndex(3)


@pytest.mark.parametrize("upto", range(2, 9))
def test_trim_keeps_terms_and_survives_restart(upto: int) -> None:
    desk = Desk()
    desk.log_store.setCurrentTerm(9, None)
    desk.add(1, 1, 2, 2, 5, 5, 9)
    desk.log_store.setRaftCommitIndex(8)
    kept = [entry for entry in desk.content() if entry[0] > upto]
    base_term = desk.log_store.term_at(upto)
    desk.log_store.put_checkpoint(8, b"state")
    desk.log_store.trim(upto, 8)
    again = desk.again()
    assert again.content() == desk.content() == kept
    assert again.log_store.term_at(upto) == base_term
    assert again.log_store.load_checkpoint() == (8, b"state")
    again.add(9)
    assert again.again().log_store.last == 9
    with pytest.raises(KeyError):
        again.log_store.term_at(upto - 1)


def test_random_histories_match_a_plain_list() -> None:
    """The journal against a model: adds, truncations, trims, commits, restarts, in any order."""
    for seed in range(60):
        randomness = random.Random(seed)
        desk, model, base, commit, term = Desk(cache_bytes=200), [], 1, 1, 1
        desk.log_store.setCurrentTerm(term, None)
        for _ in range(120):
            action = randomness.choice(("add", "add", "add", "term", "cut", "trim", "commit", "write", "restart"))
            last = base + len(model)
            if action == "add":
                desk.add(term)
                model.append((last + 1, term, b"\0%d" % (last + 1)))
            elif action == "term":
                term += randomness.randint(1, 3)
                desk.log_store.setCurrentTerm(term, randomness.choice((None, 1, 2)))
            elif action == "cut" and last > commit:
                start = randomness.randint(commit + 1, last)
                desk.log_store.deleteEntriesFrom(start - base)
                del model[start - base - 1 :]
            elif action == "commit":
                commit = randomness.randint(commit, last)
                desk.log_store.setRaftCommitIndex(commit)
            elif action == "trim" and commit > base:
                upto = randomness.randint(base + 1, commit)
                desk.log_store.put_checkpoint(commit, b"s")
                desk.log_store.trim(upto, commit)
                del model[: upto - base]
                base = upto
            elif action == "write":
                desk.write()
            elif action == "restart":
                desk = desk.again()
            assert desk.content() == model, f"seed {seed} after {action}"
            assert desk.log_store.commit == commit, f"seed {seed} after {action}"


def test_every_crash_leaves_a_state_that_loads() -> None:
    for seed in range(100):
        randomness = random.Random(seed)
        desk = Desk()
        desk.log_store.setCurrentTerm(1, 2)
        for _ in range(30):
            desk.add(*[1] * randomness.randint(0, 3))
            if randomness.random() < 0.3 and desk.log_store.last > desk.log_store.commit:
                desk.log_store.deleteEntriesFrom(desk.log_store.last - desk.log_store.base_index)
            if randomness.random() < 0.5:
                desk.log_store.setRaftCommitIndex(randomness.randint(desk.log_store.commit, desk.log_store.last))
            desk.write()
            if randomness.random() < 0.3:
                desk.disk.sync()
        desk.disk.crash(randomness, lose_unsynced=True)
        journal = Desk(desk.disk).log_store
        assert journal.commit <= journal.last, f"seed {seed}"


def test_start_does_not_scan_the_log() -> None:
    desk = Desk()
    desk.log_store.setCurrentTerm(1, None)
    desk.add(*[1] * 5000)
    desk.write()
    seen = 0
    scan = desk.disk.scan

    def counting(start: bytes, end: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        nonlocal seen
        for pair in scan(start, end, reverse=reverse):
            seen += 1
            yield pair

    desk.disk.scan = counting  # type: ignore[method-assign]
    assert Desk(desk.disk).log_store.last == 5001
    assert seen < 5


def test_a_damaged_vote_is_not_forgotten_but_refused() -> None:
    desk = Desk()
    desk.log_store.setCurrentTerm(3, 2)
    desk.add(3)
    desk.write()
    key = group_prefix(b"h", 1)
    good = desk.disk.get(key) or b""
    for position in range(len(good)):
        batch = desk.disk.batch()
        batch.put(key, good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :])
        desk.disk.write(batch)
        with pytest.raises(StateDamaged, match="must not vote"):
            Desk(desk.disk)


def test_lost_pieces_are_refused() -> None:
    for lost, message in (
        (group_prefix(b"h", 1), "no hard state"),
        (group_prefix(b"e", 1) + (4).to_bytes(8), "last entry"),
        (group_prefix(b"t", 1) + (2).to_bytes(8), "terms"),
    ):
        desk = Desk()
        desk.log_store.setCurrentTerm(1, 1)
        desk.add(1, 1, 1)
        desk.write()
        batch = desk.disk.batch()
        batch.delete(lost)
        desk.disk.write(batch)
        with pytest.raises(StateDamaged, match=message):
            Desk(desk.disk)


def test_a_damaged_checkpoint_is_refused() -> None:
    desk = Desk()
    desk.log_store.setCurrentTerm(1, 1)
    desk.add(1, 1)
    desk.log_store.setRaftCommitIndex(3)
    desk.log_store.put_checkpoint(3, b"state")
    desk.write()
    key = group_prefix(b"c", 1)
    batch = desk.disk.batch()
    batch.put(key, (desk.disk.get(key) or b"")[:-1] + b"x")
    desk.disk.write(batch)
    with pytest.raises(StateDamaged, match="checkpoint"):
        Desk(desk.disk).log_store.load_checkpoint()


def test_the_cache_is_bounded_and_never_loses_what_is_not_on_disk() -> None:
    desk = Desk(cache_bytes=100)
    desk.log_store.setCurrentTerm(1, 1)
    for _ in range(100):
        desk.log_store.add(b"\0" + b"x" * 50, desk.log_store.last + 1, 1)
        assert desk.log_store.data_at(desk.log_store.last)
    desk.write()
    assert desk.cache.held_bytes <= 100
    assert len(desk.log_store._cached) <= 2
    assert desk.log_store.data_at(50) == b"\0" + b"x" * 50


def held(desk: Desk) -> list[int]:
    """The entries in memory, which are those that count."""
    assert len(desk.cache._sizes) == len(desk.log_store._cached)
    assert desk.cache.held_bytes == sum(desk.cache._sizes.values())
    return sorted(desk.log_store._cached)


def test_what_is_let_go_of_is_read_from_disk_and_what_is_not_written_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    desk.log_store.setCurrentTerm(1, 1)
    desk.add(1, 1, 1)
    desk.log_store.let_go(4)
    assert held(desk) == [2, 3, 4], "they are nowhere else"
    desk.write()
    desk.log_store.let_go(3)
    desk.log_store.let_go(2)
    assert held(desk) == [4]
    assert desk.content() == [(index, 1, b"\0%d" % index) for index in (2, 3, 4)]
    desk.log_store.deleteEntriesFrom(3)
    desk.add(1)
    desk.write()
    assert held(desk) == [4], "another one in its place"
    desk.log_store.let_go(4)
    assert held(desk) == []

    monkeypatch.setattr(log_store, "LET_GO_AT_ONCE", 3)
    desk.add(*[1] * 7)
    desk.write()
    for left in (range(8, 12), range(11, 12), range(0)):
        desk.log_store.let_go(11)
        assert held(desk) == list(left), "so many at a time"


def test_of_a_log_that_is_trimmed_replaced_closed_or_erased_nothing_counts() -> None:
    desk = Desk()
    desk.log_store.setCurrentTerm(1, 1)
    desk.add(*[1] * 8)
    desk.log_store.setRaftCommitIndex(5)
    desk.write()
    desk.log_store.trim(4, 4)
    desk.log_store.put_checkpoint(4, b"state")
    assert held(desk) == [5, 6, 7, 8, 9]
    desk.log_store.replace((9, 1), 12, [(10, 1)], 11)
    assert held(desk) == []
    desk.add(1)
    desk.write()
    desk.log_store.let_go(13)
    assert held(desk) == []
    for end in (desk.log_store.forget_cached, desk.log_store.erase):
        desk.add(1)
        assert held(desk) == [desk.log_store.last]
        end()
        assert held(desk) == []


def test_groups_do_not_see_each_other() -> None:
    disk = SimDisk()
    for group in (0, 1, 2**64 - 1):
        desk = Desk(disk, group)
        desk.log_store.setCurrentTerm(group % 7 + 1, None)
        desk.add(*[group % 7 + 1] * (group % 5 + 1))
        desk.write()
    for group in (0, 1, 2**64 - 1):
        desk = Desk(disk, group)
        assert desk.log_store.last == 1 + group % 5 + 1
    desk.log_store.erase()
    desk.write()
    assert Desk(disk, 2**64 - 1).log_store.last == 1
    assert Desk(disk, 1).log_store.last == 3


def test_an_entry_is_nothing_that_could_be_changed() -> None:
    desk = Desk(SimDisk())
    with pytest.raises(AssertionError, match="bytearray"):
        desk.log_store.add(bytearray(b"data"), 2, 1)
    assert desk.log_store.last == 1
