"""Consumer groups through another node: questions, answers, and readers in the name of a claim."""

from __future__ import annotations

import pytest

from node.partition.api import After, Earliest, Failed, ReaderClaim, ReadError
from node.partition.consumer_groups.group_state import Claim, Commit, Owned
from tests.batches import batch_of
from tests.unit.rpc.support import MemoryPartition, cluster_of, until

GROUP = 17


async def test_a_question_is_answered_by_the_other_node() -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = MemoryPartition()
        client = nodes[1].network.client(2)
        assert await client.ask(GROUP, Claim("g", "a", "a/x", 3)) == Owned(17, 4, -1)
        partition.failure = Failed("overloaded", True, "slow down")
        assert await client.ask(GROUP, Commit("g", 17, 5)) == partition.failure
        assert partition.questions == [Claim("g", "a", "a/x", 3), Commit("g", 17, 5)]


async def test_a_node_that_is_away_or_has_no_replica_did_nothing() -> None:
    async with cluster_of(1, 2) as nodes:
        for _ in range(2):
            failed = await nodes[1].network.client(2).ask(GROUP, Commit("g", 17, 5))
            assert isinstance(failed, Failed)
            assert (failed.kind, failed.retriable) == ("not_leader", True)
            await nodes[2].network.stop()


@pytest.mark.parametrize("owner", [None, ReaderClaim("g", 17), ReaderClaim("\x00link", 2**63)])
async def test_a_reader_says_in_whose_name_it_reads(owner: ReaderClaim | None) -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = MemoryPartition()
        reader = nodes[1].network.client(2).open_reader(GROUP, After(3), lambda: None, owner)
        await until(lambda: partition.readers, "the reader")
        assert partition.owners == [owner]
        reader.close()


@pytest.mark.parametrize("kind", ["stolen", "lapsed", "revoked", "damaged"])
async def test_of_what_a_reader_has_fetched_nothing_is_handed_out_once_another_one_owns_it(kind: str) -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = MemoryPartition()
        partition.append(batch_of([b"a", b"b"]), lambda outcome: None)
        reader = nodes[1].network.client(2).open_reader(GROUP, Earliest(), lambda: None, ReaderClaim("g", 17))
        await until(lambda: getattr(reader, "buffered_bytes", 0), "the events")
        partition.readers[0].error = ReadError(kind, "why", False)  # type: ignore[arg-type]
        partition.readers[0].wake()
        await until(lambda: reader.error, "the end")
        assert bool(reader.poll(10, 1000)) is (kind == "damaged")
        reader.close()
