"""Whose data a directory holds, and which directory it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from node.storage import NodeIdentity, Store
from node.storage.errors import NodeRemoved, OlderCopy


def opened(path: Path, identity: NodeIdentity) -> NodeIdentity:
    with Store(path, identity) as disk:
        return disk.identity


def test_a_directory_keeps_its_incarnation_and_every_other_has_another(tmp_path: Path) -> None:
    who = NodeIdentity("dev", 1, (1, 2, 3))
    first = opened(tmp_path / "a", who)
    assert first.incarnation > 0
    assert opened(tmp_path / "a", who) == first
    assert opened(tmp_path / "b", who).incarnation != first.incarnation


def test_only_a_start_that_is_about_to_speak_counts_and_the_latest_marks_are_kept(tmp_path: Path) -> None:
    who = NodeIdentity("dev", 1, (1, 2, 3))
    assert opened(tmp_path / "a", who).boot == 0
    for expected in range(1, 6):
        with Store(tmp_path / "a", who) as disk:
            disk.count_start(3)
            assert disk.identity.boot == expected
    stored = opened(tmp_path / "a", who)
    assert stored.boot == 5
    assert len(set(stored.marks)) == 3


def test_data_that_were_found_to_be_a_copy_make_no_start_any_more(tmp_path: Path) -> None:
    with Store(tmp_path / "a", NodeIdentity("dev", 1)) as disk:
        disk.count_start(3)
        disk.note_copy("start 4 was here")
    with Store(tmp_path / "a", NodeIdentity("dev", 1)) as disk:
        with pytest.raises(OlderCopy, match=r"start 4 was here.*original data.*holdfast node readmit"):
            disk.count_start(3)
        assert disk.identity.boot == 1


@pytest.mark.parametrize("listed", [(), (1, 2), (1, 2, 4), (1, 2, 3, 4)])
def test_founders_stay_those_of_the_first_start_whatever_is_listed_later(
    tmp_path: Path, listed: tuple[int, ...]
) -> None:
    opened(tmp_path / "a", NodeIdentity("dev", 1, (1, 2, 3)))
    assert opened(tmp_path / "a", NodeIdentity("dev", 1, listed)).members == (1, 2, 3)
    opened(tmp_path / "joined", NodeIdentity("dev", 1))
    assert opened(tmp_path / "joined", NodeIdentity("dev", 1, listed)).members == ()


def test_data_of_a_removed_node_make_no_start_any_more(tmp_path: Path) -> None:
    with Store(tmp_path / "a", NodeIdentity("dev", 4)) as disk:
        disk.count_start(3)
        assert b"removed" not in disk.identity.encode(), "nothing new is stored for nothing"
        disk.note_removed()
    with Store(tmp_path / "a", NodeIdentity("dev", 4)) as disk:
        with pytest.raises(NodeRemoved, match=r"node 4 was removed from its cluster.*holdfast node add"):
            disk.count_start(3)
        assert disk.identity.boot == 1


def test_tools_may_look_without_a_configuration(tmp_path: Path) -> None:
    opened(tmp_path / "a", NodeIdentity("dev", 1, (1, 2, 3)))
    assert opened(tmp_path / "a", NodeIdentity("dev", 1)).members == (1, 2, 3)
