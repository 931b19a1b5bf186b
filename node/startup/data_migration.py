"""Versions of this node's data: judged before they are opened, raised before anything newer is written, rewritten.

The rules: the directory names a version before anything of it is written there (`node/storage/data_versions.py`), so a
program that does not know it refuses the data untouched. Once a version is active for good, the checkpoint and the hard
state of each group are written again in its layouts, one group after the other; then the directory names no older
version any more. A process that dies in between leaves a directory that names both, and the next one begins anew.

Rejected: rewriting at the start of a later release. It would have to read what it no longer knows.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from cluster.features import Features
from cluster.raft import MultiRaft, stored_groups
from cluster.versions import MEMBERS_CHANGE_FROM, OURS, UNSET, VersionRange
from node.storage import Store, data_versions
from node.storage.data_versions import DataVersions

log = logging.getLogger("holdfast.node")

LOOK_PERIOD_S = 2.0
"""Seconds between looks for something to rewrite."""

PACE_S = 0.02
"""Pause after each group: fifty a second are not felt by clients, and a thousand partitions take twenty seconds."""


class DataMigration:
    def __init__(self, path: Path, known: VersionRange = OURS) -> None:
        """Raises OtherVersion, before anything is opened, if the program does not know all that is in the directory."""
        self.is_of_new_data = not (path / "format").exists()
        """The data were begun by this process, and are not of one version yet. What a node writes before it hears of a
        version is of the oldest one; that is no upgrade that anybody waits for."""
        found = data_versions.read(path)
        self.versions = found or DataVersions(known.oldest, known.oldest)
        self.versions.require(known.oldest, known.newest, path)
        self.features = Features(known, self.versions.newest if self.versions.newest > known.oldest else UNSET)
        self.features.on_rise.append(self._rise)
        self._path = path
        self._told = ""

    def begin_joining(self) -> None:
        """Write new data in the version from which nodes join on: the cluster that let this one in has it. Data that
        are there already say themselves what they are."""
        if self.is_of_new_data:
            self.features.rise(MEMBERS_CHANGE_FROM)

    def _rise(self, version: int) -> None:
        if version > self.versions.newest:
            self._note(DataVersions(self.versions.oldest, version))
            log.info("version %d is active: the data are of %s now", version, self.versions)

    def _note(self, versions: DataVersions) -> None:
        data_versions.write(self._path, versions)
        self.versions = versions

    async def run(self, multiraft: MultiRaft, disk: Store) -> None:
        """Rewrite what is of an older version than the active one, until cancelled."""
        while True:
            target = self.features.version
            if self.versions.oldest < target and await self._rewrite(multiraft, disk, target):
                log.info("all data are of version %d", target)
            await asyncio.sleep(LOOK_PERIOD_S)

    async def _rewrite(self, multiraft: MultiRaft, disk: Store, target: int) -> bool:
        """Rewrite all groups in the layouts of a version. Returns whether none of an older one is left."""
        for group_id in stored_groups(disk):
            group = multiraft.groups.get(group_id)
            if group is not None and group.quarantined is None and group.rewritten_version < target:
                group.rewrite()
                await asyncio.sleep(PACE_S)
        if left := [one for one in stored_groups(disk) if not _is_rewritten(multiraft, one, target)]:
            self._tell(left)
            return False
        await asyncio.to_thread(disk.sync)
        self._note(DataVersions(target, self.versions.newest))
        self.is_of_new_data = False
        return True

    def _tell(self, left: list[int]) -> None:
        told = (
            f"data of {self.versions} are left: groups {', '.join(map(str, left[:8]))} of {len(left)} are not rewritten"
        )
        if told != self._told:
            log.info("%s yet", told)
        self._told = told


def _is_rewritten(multiraft: MultiRaft, group_id: int, target: int) -> bool:
    group = multiraft.groups.get(group_id)
    return group is not None and group.quarantined is None and group.rewritten_version >= target
