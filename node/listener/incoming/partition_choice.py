"""Choice of the partition for a message of a link (ES-20 to 23, 43).

Problem: its annotations may name the partition, or a group key that is hashed to one; the link may be bound to one.
Rule: a message that contradicts the link, or names a partition that does not exist, is refused; it is never put
somewhere else. Messages without routing go to one partition after the other, from any: a client that attaches anew for
each message spreads them, too.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from holdfast.amqp.key_partitioner import partition_index
from node.listener import errors
from node.listener.attach.address_form import GROUP_KEY_LIMIT
from node.listener.attach.link_plan import LinkPlan
from node.listener.errors import Refused

GROUP_KEY_CACHED = 128
"""Longest group key in the cache of hashed keys, in characters: the cache is bounded by count."""


class PartitionChoice:
    def __init__(self, plan: LinkPlan) -> None:
        self._plan = plan
        self._known: Sequence[str] | None = None  # until something changes
        self._turn = random.randrange(1 << 16)  # of the round robin

    def changed(self) -> None:
        """Forget the partitions: the log may have others now, or none."""
        self._known = None

    def all(self) -> Sequence[str]:
        """Partitions of the log; none when it is gone."""
        known = self._known
        if known is None:
            view = self._plan.broker.describe(self._plan.log)
            known = self._known = () if view is None else view.partitions
        return known

    def next(self, partitions: Sequence[str]) -> str:
        """The next partition of the round robin."""
        self._turn += 1
        return partitions[self._turn % len(partitions)]

    def choose(self, target: str | None, key: str | None, partitions: Sequence[str]) -> str | None:
        """The partition that the message's annotations or the link name; None: neither does. Raises Refused."""
        log, bound = self._plan.log, self._plan.partition
        if not partitions:
            raise Refused(errors.log_deleted(log))
        if target is not None:
            if bound is not None and target != bound:
                raise Refused(errors.wrong_partition(target, bound))
            if target not in partitions:
                raise Refused(errors.unknown_partition(log, target, len(partitions)))
            return target
        if bound is not None or key is None:
            return bound
        if len(key) > GROUP_KEY_LIMIT:
            raise Refused(errors.key_too_long(len(key), GROUP_KEY_LIMIT))
        hashed = partition_index if len(key) <= GROUP_KEY_CACHED else partition_index.__wrapped__
        return partitions[hashed(key, len(partitions))]
