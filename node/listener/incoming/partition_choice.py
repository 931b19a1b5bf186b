"""Which partition a message of a link goes to (ES-20 to 23, 43).

Problem: its annotations may name the partition, or a group key that is hashed to one; the link may be bound to one.
Rule: what contradicts the link, or names nothing that there is, is refused; it is never put somewhere else. What says
nothing goes to one partition after the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.amqp.partition_key import partition_index
from node.listener import errors
from node.listener.attach.link_plan import Plan
from node.listener.errors import Refused

GROUP_KEY_LIMIT = 4096
"""Characters. Hashing is Python: a key of a megabyte would stop the node for a second."""

GROUP_KEY_CACHED = 128
"""Characters. The cache of hashed keys is bounded by count, so only short ones may enter it."""


class PartitionChoice:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._known: Sequence[str] | None = None  # until something changes
        self._turn = 0  # of the round robin

    def changed(self) -> None:
        """The log may have other partitions now, or none."""
        self._known = None

    def all(self) -> Sequence[str]:
        """Of the log; none when it is gone."""
        known = self._known
        if known is None:
            view = self._plan.broker.describe(self._plan.log)
            known = self._known = () if view is None else view.partitions
        return known

    def next(self, partitions: Sequence[str]) -> str:
        """Whose turn it is."""
        self._turn += 1
        return partitions[self._turn % len(partitions)]

    def choose(self, target: str | None, key: str | None, partitions: Sequence[str]) -> str | None:
        """What the message's annotations say, or the link; None: nothing. Raises Refused."""
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
