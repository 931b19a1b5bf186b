"""Idempotent producers as operators see them: asked of the partitions' leaders, on any node.

The rule: the answer is the leader's word, as it applied it; a partition whose leader cannot be asked makes the whole
answer "unavailable", never a list that looks complete. Lists are bounded: the next page begins where the last one
ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from cluster.raft import NotLeader
from node.admin.errors import AdminRequestFailed
from node.partition.api import PartitionHandle, ProducerInfo
from node.partition.idempotence.producer_state import MAX_PRODUCER_ID

LIST_LIMIT = 1000
"""Producers in one answer unless the request says otherwise: about 100 KiB."""

MAX_LIST_LIMIT = 10_000
"""Producers in one answer at most: a message of a MiB."""

OPERATIONS = frozenset({"producer.list", "producer.describe"})


async def run(
    operation: str,
    args: Mapping[str, Any],
    partitions: Sequence[str] | None,
    handle: Callable[[str], PartitionHandle],
) -> dict[str, Any]:
    """Run an operation. `partitions`: those of the log that was asked about, None when there is no such log. Raises
    AdminRequestFailed."""
    if partitions is None:
        raise AdminRequestFailed(
            "not-found", f"there is no log {args.get('name')!r}; `holdfast log list` shows those there are"
        )
    chosen = _partition(args, partitions)
    try:
        if operation == "producer.describe":
            return await _describe(args, chosen, handle)
        return {"producers": await _list(args, [chosen] if chosen is not None else partitions, handle)}
    except (ConnectionError, LookupError, NotLeader) as error:
        raise AdminRequestFailed(
            "unavailable", f"the leader of a partition could not be asked: {error}; try again"
        ) from error


async def _list(
    args: Mapping[str, Any], partitions: Sequence[str], handle: Callable[[str], PartitionHandle]
) -> list[dict[str, Any]]:
    limit = _number(args, "limit", 1, MAX_LIST_LIMIT, LIST_LIMIT)
    after = _number(args, "after", -1, MAX_PRODUCER_ID, -1)
    if after != -1 and len(partitions) != 1:
        raise AdminRequestFailed("invalid-argument", "after: goes on in one partition; name it")
    found: list[dict[str, Any]] = []
    for partition in partitions:
        for one in await handle(partition).producers(after, limit - len(found)):
            found.append(_row(partition, one))
        if len(found) >= limit:
            break
    return found


async def _describe(
    args: Mapping[str, Any], partition: str | None, handle: Callable[[str], PartitionHandle]
) -> dict[str, Any]:
    if partition is None:
        raise AdminRequestFailed("invalid-argument", "partition: name one; a producer belongs to a partition")
    if args.get("producer_id") is None:
        raise AdminRequestFailed("invalid-argument", "producer_id: name one; `producer list` shows those there are")
    producer_id = _number(args, "producer_id", 0, MAX_PRODUCER_ID, 0)
    for one in await handle(partition).producers(producer_id - 1, 1):
        if one.producer_id == producer_id:
            return _row(partition, one)
    raise AdminRequestFailed(
        "not-found", f"partition {partition} knows no producer {producer_id}: it never did, or it was silent too long"
    )


def _partition(args: Mapping[str, Any], partitions: Sequence[str]) -> str | None:
    wanted = args.get("partition")
    if wanted is None:
        return None
    if str(wanted) not in partitions:
        raise AdminRequestFailed(
            "not-found", f"log {args.get('name')!r} has no partition {wanted}; it has {len(partitions)}"
        )
    return str(wanted)


def _number(args: Mapping[str, Any], name: str, lowest: int, highest: int, default: int) -> int:
    value = args.get(name)
    if value is None:
        return default
    if not lowest <= value <= highest:
        raise AdminRequestFailed("invalid-argument", f"{name}: lies between {lowest} and {highest}, not at {value}")
    return int(value)


def _row(partition: str, info: ProducerInfo) -> dict[str, Any]:
    return {"partition": partition, **asdict(info)}
