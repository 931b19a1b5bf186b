"""The order to hand leaderships over crosses the wire as it was given."""

from __future__ import annotations

import pytest

from cluster.raft.replication.message_validation import GROUP, INDEX, NODE
from cluster.rpc import AwaitedMove, Unavailable
from node.movement.lagging_leaders import MAX_ASKED
from tests.unit.rpc.support import cluster_of


async def test_who_is_asked_to_hand_over_hears_for_what_and_to_whom() -> None:
    async with cluster_of(1, 2) as nodes:
        moves = [AwaitedMove(group=7, index=50), AwaitedMove(group=8, index=60, leaving=3)]
        assert await nodes[1].network.client(2).hand_over(moves, [1, 3]) == [7, 8]
        assert nodes[2].asked_to_hand_over == [(moves, [1, 3])]


async def test_the_longest_question_is_heard_and_a_longer_one_refused() -> None:
    longest = AwaitedMove(group=GROUP[1], index=INDEX[1], leaving=NODE[1])
    successors = [NODE[1]] * 31
    async with cluster_of(1, 2) as nodes:
        client = nodes[1].network.client(2)
        assert len(await client.hand_over([longest] * MAX_ASKED, successors)) == MAX_ASKED
        with pytest.raises(Unavailable, match="ask about fewer"):
            await client.hand_over([longest] * 3 * MAX_ASKED, successors)
        assert len(nodes[2].asked_to_hand_over) == 1
