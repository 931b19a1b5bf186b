"""Batches that a gateway passes on: as they came, uncopied, and not by the gateway's word."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cluster.rpc import options
from holdfast.records.codec import Codec
from holdfast.records.digests import digests_of
from holdfast.records.record_batch import Numbering, OpenBatch, RecordBatch
from node.partition.api import Appended, Begins
from tests.batches import batch_of
from tests.unit.rpc.support import MemoryPartition, TestNode, cluster_of, until

GROUP = 17
BODIES = [b"one", b"", b"three"]


def of_bodies(bodies: list[bytes] = BODIES, codec: Codec = Codec.NONE, digests: bytes = b"") -> RecordBatch:
    piece = OpenBatch()
    piece.extend(bodies, bodies=True)
    return piece.seal(codec, digests)


class Forged:
    """What a node passes on that says something else than it was given."""

    def __init__(self, data: bytes) -> None:
        self._data, self.size = data, len(data)

    def pieces(self) -> tuple[bytes, memoryview]:
        return self._data[:10], memoryview(self._data)[10:]


async def asked(node: TestNode, batch: Any, begins: Begins | None = None) -> Any:
    answers: list[Any] = []
    node.network.client(2).append(GROUP, batch, answers.append, begins)
    await until(lambda: answers, "the answer")
    return answers[0]


@pytest.mark.parametrize(
    ("batch", "begins"),
    [
        (of_bodies(), None),
        (of_bodies([b"a" * 1000, b"b" * 1000], Codec.ZSTD), None),
        (of_bodies(digests=digests_of(BODIES)).numbered(Numbering(7, 3, 40)), None),
        (of_bodies(digests=digests_of(BODIES)).numbered(Numbering(2**63 - 1, 2**15 - 1, 2**31 - 1)), None),
        (of_bodies().numbered(Numbering(7, 3, 0), transactional=True), (9, 1000)),
        (of_bodies().numbered(Numbering(7, 3, 0), transactional=True), (2**63 - 1, 4 * 3600 * 1000)),
    ],
)
async def test_a_batch_arrives_as_it_came_with_its_numbers(batch: RecordBatch, begins: Begins | None) -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = MemoryPartition()
        assert await asked(nodes[1], batch_of([b"before"])) == Appended(0, 1001)
        assert await asked(nodes[1], batch, begins) == Appended(1, 1002)
        assert await asked(nodes[1], batch_of([b"behind"])) == Appended(1 + len(batch), 1003)
        came = partition.appended[1]
        assert bytes(came) == bytes(batch)
        assert not came.is_own, "whoever stores it looks at it"
        assert partition.begins == [None, begins, None]


def longer(batch: RecordBatch) -> bytes:
    return bytes(batch) + b"?"


def damaged(batch: RecordBatch) -> bytes:
    head, content = batch.pieces()
    return head[:20] + bytes([head[20] ^ 1]) + head[21:] + content


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "too few for a record batch"),
        (b"nothing like it" * 5, "claims"),
        (damaged(of_bodies()), "checksum"),
        (bytes(of_bodies())[:-1], "claims"),
        (longer(of_bodies()), "behind a record batch"),
        (bytes(of_bodies()) * 2, "behind a record batch"),
    ],
    ids=["nothing", "no batch", "damaged head", "cut off", "a byte behind", "two"],
)
async def test_what_is_no_such_batch_is_refused_and_what_follows_is_not(data: bytes, why: str) -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = MemoryPartition()
        refused = await asked(nodes[1], Forged(data))
        assert (refused.kind, refused.retriable, refused.certainly_not_appended) == ("malformed", False, True)
        assert why in refused.detail
        assert partition.requests == 0
        assert await asked(nodes[1], of_bodies()) == Appended(0, 1001)


async def test_the_leader_holds_no_more_than_it_may_in_one_frame_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """From a gateway that does not count as it should."""
    monkeypatch.setattr(options, "APPEND_UNANSWERED_BYTES", 1 << 20)
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = MemoryPartition()
        assert await asked(nodes[1], batch_of([b"x"])) == Appended(0, 1001)
        partition.held = []
        answers: list[Any] = []
        large = Forged(bytes(of_bodies([bytes(600_000)])))
        large.size = 1
        for _ in range(6):
            nodes[1].network.client(2).append(GROUP, large, answers.append)
        for taken in (2, 3, 4, 5, 6):
            await until(lambda taken=taken: partition.requests == 1 + taken, "the next ones to be taken")
            await asyncio.sleep(0.1)
            assert partition.requests == 1 + taken, "what is beyond the bound waits, in the same frame too"
            partition.held.pop(0)()
        partition.held.pop(0)()
        await until(lambda: len(answers) == 6, "all answers")


async def test_a_batch_waits_uncopied_for_its_frame() -> None:
    async with cluster_of(1, 2) as nodes:
        nodes[2].groups[GROUP] = MemoryPartition()
        batch = of_bodies()
        answers: list[Any] = []
        nodes[1].network.client(2).append(GROUP, batch, answers.append)
        waiting = nodes[1].network.client(2)._appends[GROUP]._queue._parts[0][1]
        assert isinstance(waiting, memoryview)
        assert waiting.obj is batch.content.obj
        await until(lambda: answers, "the answer")
