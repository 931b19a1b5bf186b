"""Batches of producers that a gateway passes on whole: as they came, within bounds, and not by the gateway's word."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

from cluster.rpc import options
from cluster.rpc import rpc_pb2 as pb
from cluster.rpc.streams.frames import PartQueue
from holdfast.records.codec import Codec
from holdfast.records.joined_messages import table_of
from holdfast.records.packed_batch import PackedNumbers, digests_of, pack, pack_joined
from holdfast.records.packed_bodies import PackedBodies, packed_bodies
from holdfast.records.sealed_section import seal
from node.partition.api import Appended, Failed, Numbers
from tests.unit.rpc.support import MemoryPartition, TestNode, cluster_of, until

GROUP = 17
BODIES = [b"one", b"", b"three"]
DIGESTS = digests_of(BODIES)
SAID = PackedNumbers(7, 3, 40, DIGESTS)


def batch(bodies: list[bytes] = BODIES, codec: Codec = Codec.NONE, numbers: PackedNumbers | None = None) -> bytes:
    return pack_joined(table_of(bodies), (b"".join(bodies),), codec, bodies=True, numbers=numbers)


def unopened(packed: bytes) -> PackedBodies:
    found = packed_bodies(packed, 1 << 30)
    assert found is not None
    return found


class Forged(PackedBodies):
    """Its node has looked at one batch, and passes on another."""

    def __init__(self, packed: bytes) -> None:
        genuine = unopened(batch())
        super().__init__(genuine.packed(), genuine._outside)
        self._forged = packed

    def packed(self) -> bytes:
        return self._forged


class Replacing(PartQueue):
    """Of a node that says something else than it was asked to."""

    def __init__(self, other: pb.AppendRequest) -> None:
        super().__init__()
        self._other = other

    def push(self, field: int, messages: Any) -> None:
        for message in messages:
            self._other.id = message.id
            super().push(field, (self._other,))


async def asked(node: TestNode, records: Any, numbers: Numbers | None = None) -> Any:
    answers: list[Any] = []
    node.network.client(2).append(GROUP, records, answers.append, numbers)
    await until(lambda: answers, "the answer")
    return answers[0]


NUMBERS = Numbers(7, 3, 40, DIGESTS)
IN_A_TRANSACTION = Numbers(7, 3, 0, bytes(12), True, (9, 1000))


@pytest.mark.parametrize(
    ("says", "numbers"), [(None, None), (SAID, NUMBERS), (None, NUMBERS), (None, IN_A_TRANSACTION)]
)
async def test_a_batch_arrives_as_it_came_with_its_numbers(says: PackedNumbers | None, numbers: Numbers | None) -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = MemoryPartition()
        packed = batch(numbers=says)
        assert await asked(nodes[1], [b"before"]) == Appended(0, 1001)
        assert await asked(nodes[1], unopened(packed), numbers) == Appended(1, 1002)
        assert await asked(nodes[1], [b"behind"]) == Appended(4, 1003)
        (came,) = [records for records in partition.records if isinstance(records, PackedBodies)]
        assert came.packed() == packed
        assert partition.numbers == [None, numbers, None]


def head(count: int, *, codec: int = 0, form: int = 1, rest: bytes = b"") -> bytes:
    return seal(2, (struct.pack(">BBIqhi", codec, form, count, -1, -1, -1), rest))


@pytest.mark.parametrize(
    ("packed", "why"),
    [
        (b"nothing like it", "not one data section"),
        (batch()[:-1] + b"?", "checksum"),
        (head(1 << 31), "claims 2147483648 messages"),
        (head(2, rest=struct.pack(">II", 1, 5) + b"abc"), "should have 6 bytes, not 3"),
        (head(1, rest=struct.pack(">I", 1 << 31)), "at most 16842752 are taken"),
        (head(1, codec=3, rest=struct.pack(">I", 5)), "lz4"),
        (pack(BODIES), "holds messages"),
    ],
    ids=["no batch", "damaged", "count", "bytes missing", "bytes", "codec", "messages"],
)
async def test_what_is_no_such_batch_is_refused_and_what_follows_is_not(packed: bytes, why: str) -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = MemoryPartition()
        refused = await asked(nodes[1], Forged(packed))
        assert (refused.kind, refused.retriable, refused.certainly_not_appended) == ("malformed", False, True)
        assert why in refused.detail
        assert partition.requests == 0
        assert await asked(nodes[1], unopened(batch())) == Appended(0, 1001)


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (pb.AppendRequest(packed=batch(), records=[b"x"]), "beside it"),
        (pb.AppendRequest(packed=batch(numbers=SAID), numbers=pb.Numbers(producer_id=8)), "beside it"),
        (pb.AppendRequest(), "nothing"),
    ],
    ids=["records beside", "numbers beside", "neither"],
)
async def test_a_request_that_says_two_things_or_none_is_refused(request_: pb.AppendRequest, why: str) -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = MemoryPartition()
        assert await asked(nodes[1], [b"x"]) == Appended(0, 1001)
        answers: list[Any] = []
        stream = nodes[1].network.client(2)._appends[GROUP]
        stream._queue = Replacing(request_)
        stream.append([b"x"], answers.append)
        await until(lambda: answers, "the answer")
        assert isinstance(answers[0], Failed)
        assert (answers[0].kind, answers[0].retriable) == ("malformed", False)
        assert why in answers[0].detail
        assert partition.requests == 1


async def test_the_leader_opens_no_more_than_it_may_hold_however_small_it_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thousandth of its size on the wire, in one frame; also from a gateway that does not count as it should."""
    monkeypatch.setattr(options, "APPEND_UNANSWERED_BYTES", 1 << 20)
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = MemoryPartition()
        assert await asked(nodes[1], [b"x"]) == Appended(0, 1001)
        partition.held = []
        small = batch([bytes(600_000)], Codec.ZSTD)
        assert len(small) < 1000
        answers: list[Any] = []
        for _ in range(6):
            nodes[1].network.client(2).append(GROUP, Forged(small), answers.append)
        for taken in (2, 3, 4, 5, 6):
            await until(lambda taken=taken: partition.requests == 1 + taken, "the next ones to be taken")
            await asyncio.sleep(0.1)
            assert partition.requests == 1 + taken, "what is beyond the bound waits, in the same frame too"
            partition.held.pop(0)()
        partition.held.pop(0)()
        await until(lambda: len(answers) == 6, "all answers")


async def test_a_gateway_counts_what_a_batch_holds_when_it_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "APPEND_UNANSWERED_BYTES", 1 << 20)
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = MemoryPartition()
        partition.held = []
        answers: list[Any] = []
        for _ in range(2):
            small = unopened(batch([bytes(600_000)], Codec.ZSTD))
            nodes[1].network.client(2).append(GROUP, small, answers.append)
        assert [one.kind for one in answers] == ["overloaded"]
        await until(lambda: partition.held, "the first")
        partition.held.pop()()
        await until(lambda: len(answers) == 2, "its answer")


async def test_a_batch_waits_uncopied_for_its_frame() -> None:
    async with cluster_of(1, 2) as nodes:
        nodes[2].groups[GROUP] = MemoryPartition()
        packed = batch()
        answers: list[Any] = []
        nodes[1].network.client(2).append(GROUP, unopened(packed), answers.append)
        assert nodes[1].network.client(2)._appends[GROUP]._queue._parts[0][1] is packed
        await until(lambda: answers, "the answer")
