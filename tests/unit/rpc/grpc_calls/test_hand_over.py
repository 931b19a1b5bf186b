"""The order to hand leaderships over crosses the wire as it was given."""

from __future__ import annotations

from cluster.rpc import AwaitedMove
from tests.unit.rpc.support import cluster_of


async def test_who_is_asked_to_hand_over_hears_for_what_and_to_whom() -> None:
    async with cluster_of(1, 2) as nodes:
        moves = [AwaitedMove(group=7, index=50), AwaitedMove(group=8, index=60, leaving=3)]
        assert await nodes[1].network.client(2).hand_over(moves, [1, 3]) == [7, 8]
        assert nodes[2].asked_to_hand_over == [(moves, [1, 3])]
