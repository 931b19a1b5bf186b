"""Which way what is written goes: by how much it is, how much is usual, and how fast the disk is."""

from __future__ import annotations

import pytest

from node.storage.wal.write_path import (
    CACHED_BYTES,
    DRAINED_FROM_BYTES,
    FAST_BYTES_PER_S,
    SYNCED_FROM_BYTES,
    TRIED_BYTES,
    WritePath,
)


@pytest.mark.parametrize(("is_synced", "much"), [(True, SYNCED_FROM_BYTES), (False, DRAINED_FROM_BYTES)])
def test_much_goes_past_the_page_cache_and_little_while_much_is_usual(is_synced: bool, much: int) -> None:
    path = WritePath(is_synced=is_synced)
    assert not path.is_direct(1000)
    assert not path.is_direct(much - 1)
    assert path.is_direct(much)
    assert not path.is_direct(1000), "once is not usually"
    for _ in range(10):
        assert path.is_direct(4 * much)
    assert path.is_direct(1000), "few bytes among many would have to be looked for in the page cache"
    for _ in range(100):
        path.is_direct(1000)
    assert not path.is_direct(1000)


def write(path: WritePath, size: int, bytes_per_s: float) -> bool:
    direct = path.is_direct(size)
    if direct:
        path.took(size, size / bytes_per_s)
    return direct


def test_a_slow_disk_is_let_be_and_tried_again_later() -> None:
    path, size = WritePath(is_synced=False), 4 * DRAINED_FROM_BYTES
    tried = 0
    while write(path, size, FAST_BYTES_PER_S / 2):
        tried += size
    assert TRIED_BYTES <= tried + size <= TRIED_BYTES + 2 * size
    cached = size
    while not write(path, size, 2 * FAST_BYTES_PER_S):
        cached += size
    assert CACHED_BYTES <= cached <= CACHED_BYTES + size
    assert all(write(path, size, 2 * FAST_BYTES_PER_S) for _ in range(100)), "it has become a fast one"


def test_whose_syncs_wait_for_the_disk_anyway_writes_to_a_slow_one_as_to_any() -> None:
    path = WritePath(is_synced=True)
    assert all(write(path, 4 * SYNCED_FROM_BYTES, FAST_BYTES_PER_S / 100) for _ in range(1000))


def test_a_disk_is_as_fast_as_half_of_the_bytes_are_written() -> None:
    """On a busy machine some writes wait for a processor: ten times as long as the disk takes."""
    path, size = WritePath(is_synced=False), 4 * DRAINED_FROM_BYTES
    for number in range(200):
        waits = number % 3 == 0
        assert write(path, size, FAST_BYTES_PER_S / 20 if waits else 2 * FAST_BYTES_PER_S)
    path = WritePath(is_synced=False)
    assert not all(
        write(path, size, FAST_BYTES_PER_S / 2 if number % 3 else 20 * FAST_BYTES_PER_S) for number in range(200)
    ), "what its own memory takes at once makes no disk fast"


def test_what_is_little_says_nothing_about_the_disk() -> None:
    path = WritePath(is_synced=False)
    for _ in range(50):
        assert write(path, 40 * DRAINED_FROM_BYTES, 2 * FAST_BYTES_PER_S)
    for _ in range(1000):
        assert write(path, 4 * DRAINED_FROM_BYTES, 2 * FAST_BYTES_PER_S)
        for _ in range(6):
            assert write(path, DRAINED_FROM_BYTES - 1, FAST_BYTES_PER_S / 2), "much is usual"


def test_a_disk_that_stands_still_again_and_again_is_a_slow_one() -> None:
    path, size = WritePath(is_synced=False), 4 * DRAINED_FROM_BYTES
    assert not all(
        write(path, size, FAST_BYTES_PER_S / 100 if number % 3 == 0 else 2 * FAST_BYTES_PER_S) for number in range(200)
    )
