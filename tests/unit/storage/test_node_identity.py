"""Whose data a directory holds, and which directory it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from node.storage import NodeIdentity, Store
from node.storage.errors import ForeignData


def opened(path: Path, identity: NodeIdentity) -> NodeIdentity:
    with Store(path, identity) as disk:
        return disk.identity


def test_a_directory_keeps_its_incarnation_and_every_other_has_another(tmp_path: Path) -> None:
    who = NodeIdentity("dev", 1, (1, 2, 3))
    first = opened(tmp_path / "a", who)
    assert first.incarnation > 0
    assert opened(tmp_path / "a", who) == first
    assert opened(tmp_path / "b", who).incarnation != first.incarnation


@pytest.mark.parametrize("listed", [(1, 2), (1, 2, 4), (1, 2, 3, 4)])
def test_a_configuration_with_other_members_is_refused(tmp_path: Path, listed: tuple[int, ...]) -> None:
    opened(tmp_path / "a", NodeIdentity("dev", 1, (1, 2, 3)))
    with pytest.raises(ForeignData, match=r"nodes 1, 2, 3, but the configuration lists .*cluster\.peers"):
        Store(tmp_path / "a", NodeIdentity("dev", 1, listed))


def test_tools_may_look_without_a_configuration(tmp_path: Path) -> None:
    opened(tmp_path / "a", NodeIdentity("dev", 1, (1, 2, 3)))
    assert opened(tmp_path / "a", NodeIdentity("dev", 1)).members == (1, 2, 3)
