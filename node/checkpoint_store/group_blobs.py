"""Blobs of processors, asked of the partitions' leaders and written there as state of the consumer group.

Rules never broken: of processors that claim a partition at the same time, the replicated state lets one succeed; what
was told as written is replicated. While a partition has no leader a request waits, and then fails as a busy service
does, which SDKs try again: an unexpected answer would make some of them believe that they own the partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cluster.metadata import INTERNAL_PREFIX, MetadataView
from node.checkpoint_store.blob_names import BlobName, Listed
from node.partition.api import Failed, PartitionHandle
from node.partition.consumer_groups.group_queries import GroupList, GroupRow, ListGroups
from node.partition.consumer_groups.group_state import NOTHING, Denied, Done, NoteCheckpoint, NoteOwner, OwnerNoted
from node.partition.leader_queries import Answer, Question

PATIENCE_S = 15.0
"""Time for a partition to find a leader. The SDKs wait longer for an answer."""

ASK_AGAIN_S = 0.1

MAX_ETAG_CHARACTERS = 16
"""Characters of an ownership's ETag: 0x, and a revision of 56 bits at most."""

OWNER, SEQUENCE, OFFSET = "ownerid", "sequencenumber", "offset"
"""Names of metadata."""


class BlobRefused(Exception):
    """Raised for a request that fails. `code`: Blob Storage's word, by which SDKs decide."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status, self.code = status, code


@dataclass(frozen=True, slots=True)
class Blob:
    """A blob as clients see it."""

    name: str
    etag: str
    modified_ms: int
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Condition:
    """Condition of a write. `etag`: the blob must have this one; `absent`: there must be none; `present`: any."""

    etag: str | None = None
    absent: bool = False
    present: bool = False


class GroupBlobs:
    def __init__(self, view: MetadataView, handle: Callable[[str, str], PartitionHandle]) -> None:
        self._view = view
        self._handle = handle

    def log_of(self, hub: str) -> str | None:
        """The log that a hub's name stands for, in whatever case. Raises BlobRefused if there are several: SDKs write
        names of blobs in lower case, and two logs must not share checkpoints."""
        wanted = hub.lower()
        found = [name for name in self._view.logs if name.lower() == wanted and not name.startswith(INTERNAL_PREFIX)]
        if len(found) > 1:
            detail = f"the logs {', '.join(sorted(found))} differ in case only, and so share the names of their blobs"
            raise BlobRefused(400, "InvalidResourceName", f"{detail}: give them other names to keep checkpoints here")
        return found[0] if found else None

    async def list(self, listed: Listed) -> list[Blob]:
        """List the blobs of a prefix. A hub that is not there has none."""
        log = self.log_of(listed.hub)
        record = None if log is None else self._view.log(log)
        if log is None or record is None:
            return []
        partitions = sorted(partition.name for partition in record.partitions)
        rows = await asyncio.gather(*(self._row(log, partition, listed.group) for partition in partitions))
        names = [BlobName(listed.text, listed.hub, listed.group, listed.kind, partition) for partition in partitions]
        return [blob for name, row in zip(names, rows, strict=True) if (blob := _blob(name, row)) is not None]

    async def get(self, name: BlobName) -> Blob:
        """Raises BlobRefused if the blob is not there."""
        blob = await self._find(name)
        if blob is None:
            raise BlobRefused(404, "BlobNotFound", "The specified blob does not exist.")
        return blob

    async def put(self, name: BlobName, metadata: Mapping[str, str], condition: Condition) -> Blob:
        """Write a blob, or only its metadata. Raises BlobRefused."""
        if name.kind == "ownership":
            return await self._put_ownership(name, metadata, condition)
        return await self._put_checkpoint(name, metadata, condition)

    async def delete(self, name: BlobName, condition: Condition) -> None:
        """Forget an ownership, or the group's position. Raises BlobRefused."""
        blob = await self.get(name)
        log = self._log(name)
        if name.kind == "checkpoint":
            _check(blob, condition)
            await self._ask(log, name.partition, NoteCheckpoint(name.group, NOTHING))
            return
        expected = NOTHING if condition.etag is None else _revision(condition.etag)
        answer = await self._ask(log, name.partition, NoteOwner(name.group, "", expected, removed=True))
        if isinstance(answer, Denied):
            raise _lost(answer.detail)

    async def _put_ownership(self, name: BlobName, metadata: Mapping[str, str], condition: Condition) -> Blob:
        if condition.present and condition.etag is None:
            await self.get(name)
        expected = 0 if condition.absent else NOTHING if condition.etag is None else _revision(condition.etag)
        owner = metadata.get(OWNER, "")
        if not owner.isascii():
            raise BlobRefused(400, "InvalidMetadata", f"{OWNER} must be ASCII")
        answer = await self._ask(self._log(name), name.partition, NoteOwner(name.group, owner, expected))
        if isinstance(answer, Denied):
            if condition.etag is not None and await self._find(name) is None:
                raise BlobRefused(404, "BlobNotFound", "The specified blob does not exist.")
            raise _exists() if condition.absent else _lost(answer.detail)
        assert isinstance(answer, OwnerNoted)
        return Blob(_text(name), _etag(answer.revision), answer.noted_ms, {OWNER: owner})

    async def _put_checkpoint(self, name: BlobName, metadata: Mapping[str, str], condition: Condition) -> Blob:
        if condition.present or condition.absent or condition.etag is not None:
            blob = await self._find(name)
            if blob is None and (condition.present or condition.etag is not None):
                raise BlobRefused(404, "BlobNotFound", "The specified blob does not exist.")
            if blob is not None:
                _check(blob, condition)
        position = _position(metadata)
        answer = await self._ask(self._log(name), name.partition, NoteCheckpoint(name.group, position))
        if isinstance(answer, Denied):
            raise BlobRefused(400, "InvalidMetadata", answer.detail)
        assert isinstance(answer, Done)
        return await self.get(name)

    async def _find(self, name: BlobName) -> Blob | None:
        log = self.log_of(name.hub)
        if log is None or self._view.partition(log, name.partition) is None:
            return None
        return _blob(name, await self._row(log, name.partition, name.group))

    def _log(self, name: BlobName) -> str:
        log = self.log_of(name.hub)
        if log is None or self._view.partition(log, name.partition) is None:
            detail = f"there is no hub {name.hub!r} with a partition {name.partition!r} here, so it has no checkpoints"
            raise BlobRefused(404, "ResourceNotFound", detail)
        return log

    async def _row(self, log: str, partition: str, group: str) -> GroupRow | None:
        answer = await self._ask(log, partition, ListGroups(group))
        if not isinstance(answer, GroupList):
            raise BlobRefused(500, "InternalError", f"partition {partition} of {log} did not list its groups")
        return answer.groups[0] if answer.groups else None

    async def _ask(self, log: str, partition: str, question: Question) -> Answer:
        """Ask the partition's leader; wait for one. Raises BlobRefused."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + PATIENCE_S
        while True:
            try:
                async with asyncio.timeout_at(deadline_s):
                    answer = await self._handle(log, partition).ask(question)
            except (ConnectionError, TimeoutError, KeyError) as error:
                detail = str(error)
            else:
                if isinstance(answer, Failed):
                    detail = answer.detail
                    if not answer.retriable:
                        raise BlobRefused(500, "InternalError", detail)
                elif isinstance(answer, Denied) and answer.code == "deciding":
                    detail = answer.detail
                else:
                    return answer
            if loop.time() >= deadline_s:
                raise BlobRefused(503, "ServerBusy", f"partition {partition} of {log} has no leader now: {detail}")
            await asyncio.sleep(ASK_AGAIN_S)  # paces the questions; the leader's coming ends them


def _text(name: BlobName) -> str:
    return f"{name.text}{name.partition}"


def _blob(name: BlobName, row: GroupRow | None) -> Blob | None:
    if row is None:
        return None
    if name.kind == "ownership":
        if not row.owner_revision:
            return None
        return Blob(_text(name), _etag(row.owner_revision), row.owner_ms, {OWNER: row.owner})
    if row.position <= 0:  # before the first event: no checkpoint says that
        return None
    last = str(row.position - 1)
    etag = f'"0x{row.position_ms:X}{row.position:X}"'
    return Blob(_text(name), etag, row.position_ms, {SEQUENCE: last, OFFSET: last})


def _position(metadata: Mapping[str, str]) -> int:
    for name in (SEQUENCE, OFFSET):
        text = metadata.get(name, "")
        if text.isascii() and text.isdigit() and len(text) < 20:
            return int(text) + 1
    detail = f"a checkpoint needs {SEQUENCE} or {OFFSET}, in decimal digits"
    raise BlobRefused(400, "InvalidMetadata", detail)


def _check(blob: Blob, condition: Condition) -> None:
    if condition.absent:
        raise _exists()
    if condition.etag not in (None, blob.etag):
        raise _lost(f"the checkpoint has the ETag {blob.etag}")


def _exists() -> BlobRefused:
    return BlobRefused(409, "BlobAlreadyExists", "The specified blob already exists.")


def _lost(why: str) -> BlobRefused:
    """The refusal of a write, for whatever reason: on any other answer some processors believe that they succeeded."""
    text = "The condition specified using HTTP conditional header(s) is not met."
    return BlobRefused(412, "ConditionNotMet", f"{text} ({why})")


def _etag(revision: int) -> str:
    return f'"0x{revision:X}"'


def _revision(etag: str) -> int:
    """The revision of an ownership's ETag. One that we did not make is none that a blob has now."""
    text = etag.strip().strip('"')
    try:
        return int(text, 16) if text.lower().startswith("0x") and len(text) <= MAX_ETAG_CHARACTERS else 1 << 62
    except ValueError:
        return 1 << 62
