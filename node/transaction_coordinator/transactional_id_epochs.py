"""Epochs of transactional ids: the pairs (producer id, epoch) that one coordinator gives out.

An id has a new epoch at each end of a transaction and at each registration, so a pair names one transaction for ever,
and what an earlier holder still sends is fenced. A producer id is the number of the coordinator's group and a count: no
other coordinator gives it out, since group numbers are never used again. When the epochs of one are used up, the
transactional id goes on with a new one.

Rejected: blocks of producer ids from the metadata group (a second group to ask and to wait for, for the same
uniqueness).
"""

from __future__ import annotations

from node.transaction_coordinator.state import CoordinatorState
from node.transaction_coordinator.transaction_groups.group_commands import SERIALS

Pair = tuple[int, int]

EPOCHS = 32767
"""Epochs of one producer id: 0 to 32766. The highest that fits, 32767, is never given to a client, as in Kafka."""

MAX_GROUP = (1 << 31) - 1
"""Highest group number with which a producer id fits 63 bits."""


class ProducerPairs:
    """Pairs of one coordinator, whose state counts the producer ids that were drawn."""

    def __init__(self, group: int, epochs: int) -> None:
        assert 0 < group <= MAX_GROUP
        self._group, self._epochs = group, epochs

    def following(self, pair: Pair) -> Pair | None:
        """The pair after this one; None: it has a producer id that is not drawn yet."""
        return (pair[0], pair[1] + 1) if pair[1] + 1 < self._epochs else None

    def next(self, pair: Pair, state: CoordinatorState) -> Pair:
        """The pair after this one, with a new producer id if the epochs of this one are used up."""
        return self.following(pair) or (self.draw(state), 0)

    def draw(self, state: CoordinatorState) -> int:
        """Draw a producer id. Serials start at 1, so that none is a multiple of SERIALS: those are easy to mistake."""
        state.serial += 1
        assert state.serial < SERIALS, "a coordinator has given out all of its producer ids"
        return self._group * SERIALS + state.serial
