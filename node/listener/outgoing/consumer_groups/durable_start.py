"""The start of a durable source: a position fixed in every partition at its first attach, before that is answered.

Problem: a subscriber that attaches, leaves and comes back must find all that was sent meanwhile, also in a partition
from which nothing was delivered to it, or settled.
Rules never broken:
 - "attached" is said only when every partition of the link has a replicated position;
 - a partition that the log got after the first attach begins at its start, since all of it came later;
 - which attach was the first is known from the log's first partition, whose position is fixed last: an attach that
   broke off half way has promised nothing, and the next one is the first again. The positions that it fixed stay: no
   peer was told otherwise, and too much is better than too little.

What the first attach's filter says is where it begins; a time is sought again at each attach, so of such a filter only
the offset is kept. Rejected: fixing the position with the first delivery (a quiet partition has none).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from node.listener.attach.link_plan import LinkPlan
from node.listener.outgoing.consumer_groups.owned_partition import OwnedPartition
from node.listener.outgoing.source_filters import Selection
from node.partition.api import After, AfterTime, Earliest, Latest, Start
from node.partition.consumer_groups.group_state import NOTHING


async def fix_positions(plan: LinkPlan, held: Mapping[str, OwnedPartition], starts: Mapping[str, Start]) -> None:
    """Replicate the positions of a first attach. `held`: all claims of the link, in the order of the log's partitions.
    `starts`: where `@latest` is. Raises Refused. The caller's timeout ends it."""
    membership, selection = plan.membership, plan.selection
    assert membership is not None
    assert selection is not None
    if not membership.durable and not membership.pin:
        return
    first, *others = held
    attached_before = plan.partition is None and held[first].position != NOTHING

    async def fix(partition: str) -> None:
        if held[partition].position == NOTHING:
            begin = 0 if attached_before else _position(selection, starts.get(partition))
            await held[partition].fix_position(begin)

    await asyncio.gather(*map(fix, others))
    await fix(first)


def _position(selection: Selection, latest: Start | None) -> int:
    end = latest.offset + 1 if isinstance(latest, After) else 0
    match selection.at(end).start if selection.needs_latest else selection.start:
        case Latest():
            return end
        case After(offset) | AfterTime(_, offset):
            return offset + 1
        case _:
            return 0


def resumed(begin: Start, position: Start) -> Start:
    """The later of two starts: the filter's, and the position's. `position` is an offset, or the beginning."""
    match begin, position:
        case Latest() | Earliest(), _:
            return position
        case After(offset), After(done):
            return After(max(offset, done))
        case AfterTime(time_ms, offset), After(done):
            return AfterTime(time_ms, max(offset, done))
        case _:
            return begin
