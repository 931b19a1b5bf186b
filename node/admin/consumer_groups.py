"""Consumer groups as operators and clients manage them: asked of the partitions' leaders, through any node.

The rule: the answer is the leaders' word, as they applied it; a partition whose leader cannot be asked makes the whole
answer "unavailable", never a list that looks complete. A group is one name over all partitions of a log. It exists in a
partition where it has a claim or a position; no other partition knows of it.

Each request may be repeated: a commit sets what it says, a reset and a deletion find nothing left to do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast import protocol
from node.admin.errors import AdminRequestFailed
from node.client_transactions.transaction import StagedPosition
from node.partition.api import Answer, Failed, PartitionHandle, Question
from node.partition.consumer_groups.group_queries import LIST_LIMIT, GroupList, GroupRow, ListGroups
from node.partition.consumer_groups.group_state import (
    MAX_KEY_CHARACTERS,
    NOTHING,
    TERMINUS,
    Commit,
    Delete,
    DenialCode,
    Denied,
    Done,
    lag,
)

OPERATIONS = frozenset({"group.list", "group.describe", "group.commit", "group.reset", "group.delete"})

_OFFSET = re.compile(f"[0-9a-f]{{{protocol.OFFSET_DIGITS}}}")

_CODES: dict[DenialCode, str] = {
    "not-owner": "not-owner",
    "active": "group-active",
    "unknown-group": "not-found",
    "out-of-range": "invalid-argument",
    "too-many": "not-allowed",
    "deciding": "group-active",
}

Handles = Callable[[str], PartitionHandle]


async def run(
    operation: str, args: Mapping[str, Any], partitions: Sequence[str] | None, handle: Handles
) -> dict[str, Any]:
    """Run an operation. `partitions`: those of the log that was asked about, None when there is no such log. Raises
    AdminRequestFailed."""
    partitions = _existing(args, partitions)
    if operation == "group.list":
        return {"groups": await _list(str(args.get("after_group") or ""), partitions, handle)}
    group = _group(args)
    if operation == "group.describe":
        return await _describe(group, partitions, handle)
    if operation == "group.commit":
        return await _commit(group, args, partitions, handle)
    if operation == "group.reset":
        return await _reset(group, args, partitions, handle)
    return await _delete(group, partitions, handle)


def staged(
    args: Mapping[str, Any], partitions: Sequence[str] | None, raft_group: Callable[[str], int]
) -> tuple[StagedPosition, dict[str, Any]]:
    """The position that a commit stages in a transaction, and its answer. The partition judges the claim when that
    commits. Raises AdminRequestFailed."""
    group, (partition, claim, position) = _group(args), _wish(args, _existing(args, partitions))
    if not claim:
        raise AdminRequestFailed(
            "invalid-argument", "claim: a transaction moves a position in the name of a claim, always"
        )
    told = {"group": group, "partition": partition, "committed_offset": _text(position - 1)}
    return StagedPosition(raft_group(partition), group, claim, position), told


def _existing(args: Mapping[str, Any], partitions: Sequence[str] | None) -> Sequence[str]:
    if partitions is None:
        raise AdminRequestFailed(
            "not-found", f"there is no log {args.get('name')!r}; `holdfast log list` shows those there are"
        )
    return partitions


def _group(args: Mapping[str, Any]) -> str:
    group = args.get("group")
    if not isinstance(group, str) or not 0 < len(group) < MAX_KEY_CHARACTERS or group.startswith(TERMINUS):
        raise AdminRequestFailed("invalid-argument", "group: name one")
    return group


# ---------------------------------------------------------------- reading


async def _list(after: str, partitions: Sequence[str], handle: Handles) -> list[dict[str, Any]]:
    """List at most LIST_LIMIT groups, by name; the next page begins after the last one."""
    found: dict[str, list[tuple[GroupRow, GroupList]]] = {}
    for partition in partitions:
        answer = await _ask(handle(partition), ListGroups("", after, LIST_LIMIT))
        assert isinstance(answer, GroupList)
        for row in answer.groups:
            found.setdefault(row.key, []).append((row, answer))
    groups = []
    for key in sorted(found)[:LIST_LIMIT]:
        rows = found[key]
        lags = [_lag(row, ends) for row, ends in rows]
        groups.append(
            {
                "group": key,
                "members": len({row.member for row, _ in rows if row.active}),
                "active_partitions": sum(row.active for row, _ in rows),
                "committed_partitions": sum(lag is not None for lag in lags),
                **_sum(lags, len(partitions)),
            }
        )
    return groups


async def _describe(group: str, partitions: Sequence[str], handle: Handles) -> dict[str, Any]:
    rows = []
    for partition in partitions:
        answer = await _ask(handle(partition), ListGroups(group))
        assert isinstance(answer, GroupList)
        rows.append(_row(partition, answer.groups[0] if answer.groups else None, answer))
    if not any(row["known"] for row in rows):
        raise AdminRequestFailed(
            "not-found", f"no partition knows a group {group!r}: it never had a receiver or a position"
        )
    return {"group": group, **_sum([row["lag"] for row in rows], len(rows)), "partitions": rows}


def _sum(lags: Sequence[int | None], partitions: int) -> dict[str, int | None]:
    """Sums over partitions: `lag` of all, None while it is unknown in some; `known_lag` of the others."""
    known = [lag for lag in lags if lag is not None]
    unknown = partitions - len(known)
    return {"lag": None if unknown else sum(known), "known_lag": sum(known), "unknown_partitions": unknown}


def _row(partition: str, row: GroupRow | None, ends: GroupList) -> dict[str, Any]:
    known = row is not None
    row = row or GroupRow("", 0, 0, False, False, "", "", NOTHING, 0, 0)
    committed = row.position != NOTHING
    return {
        "partition": partition,
        "known": known,
        "active": row.active,
        "member": row.member if row.active else None,
        "owner": row.owner or None,
        "epoch": row.epoch,
        "claim": row.claim if row.active else None,
        "committed_offset": _text(row.position - 1) if row.position > 0 else None,
        "committed_position": row.position if committed else None,
        "committed_ms": row.position_ms if committed else None,
        "earliest_position": ends.start_offset,
        "end_position": ends.next_offset,
        "lag": _lag(row, ends),
    }


def _lag(row: GroupRow, ends: GroupList) -> int | None:
    return lag(row.position, ends.start_offset, ends.next_offset)


# ---------------------------------------------------------------- changing


async def _commit(group: str, args: Mapping[str, Any], partitions: Sequence[str], handle: Handles) -> dict[str, Any]:
    partition, claim, position = _wish(args, partitions)
    done = await _ask(handle(partition), Commit(group, claim, position))
    assert isinstance(done, Done)
    told = _text(done.position - 1) if done.position > 0 else None
    return {"group": group, "partition": partition, "committed_offset": told}


def _wish(args: Mapping[str, Any], partitions: Sequence[str]) -> tuple[str, int, int]:
    """(partition, claim, position) of a commit: everything below the position is done. Claim 0: an operator's word."""
    partition = _partition(args, partitions)
    if partition is None:
        raise AdminRequestFailed("invalid-argument", "partition: name one; a position belongs to a partition")
    offset = args.get("offset")
    if offset is None:
        raise AdminRequestFailed("invalid-argument", "offset: name the last event that is done")
    claim = args.get("claim")
    if claim is not None and (not isinstance(claim, int) or claim < 1):
        raise AdminRequestFailed(
            "invalid-argument", f"claim: {claim!r} is none; it is told with the answer to the attach"
        )
    return partition, claim or 0, _offset(offset) + 1


async def _reset(group: str, args: Mapping[str, Any], partitions: Sequence[str], handle: Handles) -> dict[str, Any]:
    chosen, to = _partition(args, partitions), args.get("to")
    if not isinstance(to, str):
        raise AdminRequestFailed(
            "invalid-argument", f"to: an offset, {protocol.OFFSET_EARLIEST}, {protocol.OFFSET_LATEST} or none"
        )
    for partition in [chosen] if chosen is not None else partitions:
        await _ask(handle(partition), Commit(group, 0, await _position(to, handle(partition))))
    return await _describe(group, partitions, handle)


async def _position(to: str, handle: PartitionHandle) -> int:
    if to == "none":
        return NOTHING
    if to not in (protocol.OFFSET_EARLIEST, protocol.OFFSET_LATEST):
        return _offset(to) + 1
    ends = await _ask(handle, ListGroups(" "))
    assert isinstance(ends, GroupList)
    return ends.start_offset if to == protocol.OFFSET_EARLIEST else ends.next_offset


async def _delete(group: str, partitions: Sequence[str], handle: Handles) -> dict[str, Any]:
    """Delete the group in all partitions, or nothing while it has an active receiver that we can see."""
    described = await _describe(group, partitions, handle)
    active = [row["partition"] for row in described["partitions"] if row["active"]]
    if active:
        raise AdminRequestFailed(
            "group-active", f"group {group!r} is read in partitions {', '.join(active)}: stop its receivers first"
        )
    for row in described["partitions"]:
        if row["known"]:
            await _ask(handle(row["partition"]), Delete(group), missing_is_fine=True)
    return {"group": group}


# ---------------------------------------------------------------- asking


async def _ask(handle: PartitionHandle, question: Question, *, missing_is_fine: bool = False) -> Answer:
    answer = await handle.ask(question)
    if isinstance(answer, Failed):
        if answer.retriable:
            text = f"the leader of partition {handle.partition} could not be asked: {answer.detail}; try again"
            raise AdminRequestFailed("unavailable", text)
        raise AdminRequestFailed("internal-error", answer.detail)
    if isinstance(answer, Denied):
        if missing_is_fine and answer.code == "unknown-group":
            return Done(NOTHING)
        raise AdminRequestFailed(
            _CODES.get(answer.code, "not-allowed"), f"partition {handle.partition}: {answer.detail}"
        )
    return answer


def _partition(args: Mapping[str, Any], partitions: Sequence[str]) -> str | None:
    wanted = args.get("partition")
    if wanted is None:
        return None
    if str(wanted) not in partitions:
        raise AdminRequestFailed(
            "not-found", f"log {args.get('name')!r} has no partition {wanted}; it has {len(partitions)}"
        )
    return str(wanted)


def _offset(text: Any) -> int:
    if not isinstance(text, str) or not _OFFSET.fullmatch(text):
        raise AdminRequestFailed("invalid-argument", f"{text!r} is no offset of this log; give one as an event had it")
    return int(text, 16)


def _text(offset: int) -> str:
    return f"{offset:0{protocol.OFFSET_DIGITS}x}"
