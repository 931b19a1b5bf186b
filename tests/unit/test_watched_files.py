"""Files that are renewed, replaced, removed and brought back are noticed once each; others are not."""

from __future__ import annotations

import os
from pathlib import Path

from cluster.watched_files import WatchedFiles


def test_each_change_is_noticed_once(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("one")
    files = WatchedFiles([first, str(second)])
    assert not files.have_changed()

    def noticed_once() -> bool:
        return files.have_changed() and not files.have_changed()

    second.write_text("it was not there")
    assert noticed_once()
    os.utime(first, ns=(1, 1))  # written again, as long as before
    assert noticed_once()
    beside = tmp_path / "beside"
    beside.write_text("two")
    os.utime(beside, ns=(1, 1))
    beside.replace(first)  # of the same time and length
    assert noticed_once()
    with first.open("a") as file:
        file.write("longer")
    os.utime(first, ns=(1, 1))
    assert noticed_once()
    second.unlink()
    assert noticed_once()
