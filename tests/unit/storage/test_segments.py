"""One segment of the write-ahead log after another: what stays open of those that are sealed, and what is read."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from node.storage.wal import write_ahead_log
from node.storage.wal.record_format import PUT, ValueLocation, WalPosition
from node.storage.wal.write_ahead_log import WriteAheadLog
from node.storage.wal.write_path import WritePath

MOST_OPEN = 3


def open_segments(directory: Path) -> Counter[int]:
    """Descriptors of this process for segments in the directory, by segment."""
    found: Counter[int] = Counter()
    for number in os.listdir("/proc/self/fd"):
        try:
            path = Path(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:  # of the listing itself
            continue
        if path.parent == directory and path.suffix == ".seg":
            found[int(path.stem)] += 1
    return found


@pytest.mark.parametrize("write_path", [None, WritePath(is_synced=True)], ids=["through the page cache", "past it"])
def test_of_many_sealed_segments_few_stay_open_and_all_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_path: WritePath | None
) -> None:
    monkeypatch.setattr(write_ahead_log, "MAX_OPEN_SEGMENTS", MOST_OPEN)
    wal = WriteAheadLog(tmp_path, write_path=write_path)
    written: dict[ValueLocation, bytes] = {}
    for number in range(1, 11):
        wal.begin()
        value = b"of segment %d" % number
        values = wal.segment.append([(PUT, b"key", value)])
        written[ValueLocation(number, values.offset, values.lengths[0], values.checksums[0])] = value
        sealed = {one: count for one, count in open_segments(tmp_path).items() if one != number}
        assert sealed == dict.fromkeys(range(max(1, number - MOST_OPEN), number), 1)
    for place, value in written.items():
        assert wal.read(place) == value
    assert open_segments(tmp_path).keys() == {7, 8, 9, 10}
    for number in (7, 1):
        wal.read(list(written)[number - 1])
    assert open_segments(tmp_path).keys() == {9, 7, 1, 10}, "the one that was read longest ago is closed"
    wal.sync()
    wal.close()
    assert not open_segments(tmp_path)
    again = WriteAheadLog(tmp_path)
    assert [record.end.segment for record in again.scan(WalPosition(0, 0), WalPosition(0, 0))] == list(range(1, 11))
    again.close()
