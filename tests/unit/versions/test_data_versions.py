"""A directory says which versions its data are of; a program that does not know them touches nothing."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest

from cluster.raft import MultiRaft
from cluster.versions import UNSET, VersionRange
from node.startup.data_migration import DataMigration
from node.storage import NodeIdentity, OtherVersion, StorageDamaged, Store, data_versions
from node.storage.data_versions import DataVersions
from tests.unit.raft.cluster import HandClock, ListMachine

ME = NodeIdentity("dev", 1)
BOTH = VersionRange(14, 15)


def everything(path: Path) -> dict[str, str]:
    """All files below, with what is in them, and when they were changed."""
    return {
        str(file.relative_to(path)): f"{file.stat().st_mtime_ns} {hashlib.sha256(file.read_bytes()).hexdigest()}"
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


def made(path: Path, versions: DataVersions | None) -> Path:
    Store(path, ME, version=14).close()
    if versions is None:
        (path / "versions").unlink()
    else:
        data_versions.write(path, versions)
    return path


@pytest.mark.parametrize(
    ("holds", "knows", "says"),
    [
        (DataVersions(15, 15), VersionRange(14, 14), "holds data of version 15, and this program knows version 14: "
         "install the release that wrote them, or a later one"),
        (DataVersions(14, 15), VersionRange(14, 14), "holds data of versions 14 to 15, and this program knows"),
        (DataVersions(14, 15), VersionRange(15, 16), "this program knows versions 15 to 16: install an earlier release "
         "that knows version 14, and let it run until"),
        (None, VersionRange(15, 16), "holds data of version 14"),
    ],
)  # fmt: skip
def test_data_of_other_versions_are_refused_by_name_and_left_as_they_are(
    tmp_path: Path, holds: DataVersions | None, knows: VersionRange, says: str
) -> None:
    path = made(tmp_path / "data", holds)
    before = everything(path)
    with pytest.raises(OtherVersion, match=says):
        DataMigration(path, knows)
    assert everything(path) == before


def test_a_new_directory_and_one_that_was_not_completed_are_of_the_oldest_version(tmp_path: Path) -> None:
    assert DataMigration(tmp_path / "none", BOTH).versions == DataVersions(14, 14)
    path = made(tmp_path / "data", DataVersions(15, 15))
    (path / "format").unlink()
    assert DataMigration(path, VersionRange(14, 14)).versions == DataVersions(14, 14)


def test_a_file_that_says_something_else_is_damage(tmp_path: Path) -> None:
    path = made(tmp_path / "data", None)
    for text in (b"", b"holdfast-versions 14\n", b"holdfast-versions 15 14\n", b"holdfast-versions 14 14\nmore"):
        (path / "versions").write_bytes(text)
        with pytest.raises(StorageDamaged, match="it begins with"):
            DataMigration(path, BOTH)


def test_the_directory_names_a_version_before_it_is_active_and_remembers_it(tmp_path: Path) -> None:
    path = made(tmp_path / "data", DataVersions(14, 14))
    migration = DataMigration(path, BOTH)
    assert migration.features.version == 14
    seen: list[DataVersions | None] = []
    migration.features.on_rise.append(lambda _: seen.append(data_versions.read(path)))
    migration.features.rise(14)
    assert data_versions.read(path) == DataVersions(14, 14)
    migration.features.rise(15)
    assert seen == [DataVersions(14, 14), DataVersions(14, 15)]
    assert DataMigration(path, BOTH).features.version == 15, "before the metadata are read"


async def test_new_data_are_no_upgrade_until_they_are_of_one_version(tmp_path: Path) -> None:
    """A cluster that begins would tell a problem else: its nodes write before they hear of a version."""
    groups = Groups(tmp_path / "data")
    groups.turns()
    groups.migration.features.rise(15)
    assert groups.migration.is_of_new_data
    while not await groups.rewrite():
        groups.turns()
    assert not groups.migration.is_of_new_data
    groups.end()
    assert not DataMigration(tmp_path / "data", BOTH).is_of_new_data


def test_only_new_data_are_begun_in_the_version_in_which_nodes_join(tmp_path: Path) -> None:
    """A founder whose configuration says `join` too early would make its version that of the cluster."""
    founder = DataMigration(made(tmp_path / "data", DataVersions(14, 14)), BOTH)
    founder.begin_joining()
    assert (founder.features.version, founder.features.heard) == (14, UNSET)
    joining = DataMigration(tmp_path / "none", BOTH)
    (tmp_path / "none").mkdir()
    joining.begin_joining()
    assert joining.features.heard == 15


class Groups:
    """Two groups of a node in a real store."""

    def __init__(self, path: Path) -> None:
        self.migration = DataMigration(path, BOTH)
        self.store = Store(path, ME, version=14)
        features = self.migration.features
        self.multiraft = MultiRaft(
            1, self.store, HandClock(), random.Random(1), lambda *_: None, active_version=lambda: features.version
        )
        self.written: list[int] = []
        for group in (0, 5):
            self.multiraft.open_group(group, [1], Recording(self.written))

    def turns(self) -> None:
        while (turn := self.multiraft.turn()) is not None:
            self.multiraft.release(turn)

    async def rewrite(self) -> bool:
        return await self.migration._rewrite(self.multiraft, self.store, self.migration.features.version)

    def end(self) -> None:
        self.store.close()  # as after a kill: the groups write nothing more


class Recording(ListMachine):
    def __init__(self, versions: list[int]) -> None:
        super().__init__()
        self.versions = versions

    def checkpoint(self, version: int) -> bytes:
        self.versions.append(version)
        return super().checkpoint(version)


async def test_data_are_of_the_new_version_alone_when_every_group_was_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "data"
    groups = Groups(path)
    groups.turns()
    groups.migration.features.rise(15)
    groups.written.clear()
    assert not await groups.rewrite(), "they are asked to, and have not had their turn"
    groups.multiraft.groups[5].rewrite()
    groups.end()

    again = Groups(path)
    assert again.migration.versions == DataVersions(14, 15), "killed half way"
    assert again.migration.features.version == 15
    assert not await again.rewrite()
    again.turns()
    assert again.written == [15, 15]
    again.multiraft.quarantine(5, "in a test")
    again.multiraft.groups[5]._compaction.checkpoint_version = UNSET
    assert not await again.rewrite(), "one that is stopped is as it was"
    again.end()

    last = Groups(path)
    await last.rewrite()
    last.turns()
    assert await last.rewrite()
    last.end()
    assert data_versions.read(path) == DataVersions(15, 15)
    with pytest.raises(OtherVersion):
        DataMigration(path, VersionRange(14, 14))
    assert DataMigration(path, VersionRange(15, 16)).features.version == 15
