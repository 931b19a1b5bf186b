"""What `log dump` shows of a partition: batches, markers and commands, damaged ones, page by page."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.raft import Committed
from holdfast.records.record_batch import Attributes
from node.partition.api import Earliest, ProducerRequest
from node.partition.consumer_groups.group_state import Claim, Commit, Delete, EndClaim
from node.partition.entries import entry_dump
from node.partition.entries.entry_queries import DumpEntries, EntryList
from node.partition.partition_commands import Trim, encode_group_command, encode_transaction_command
from node.partition.transactions.transaction_commands import Begin, Prepare, StageOffset
from tests.batches import entry_of, numbered
from tests.unit.partition.support import Answers, PartitionNode
from tests.unit.partition.transactions.driving import marker

P = 1 << 40


@pytest.fixture
def node(tmp_path: Path) -> Iterator[PartitionNode]:
    with PartitionNode(tmp_path) as node:
        yield node


def propose(node: PartitionNode, entry: bytes) -> int:
    done: list[object] = []
    node.group.propose(entry, done.append)
    node.turns()
    (outcome,) = done
    assert isinstance(outcome, Committed)
    return outcome.index


def dump(node: PartitionNode, after: int = 0, limit: int = 100, offset: int = -1) -> EntryList:
    answer = asyncio.run(node.replica.ask(DumpEntries(after, limit, offset)))
    assert isinstance(answer, EntryList)
    return answer


def test_batches_show_their_head_and_markers_what_they_end(node: PartitionNode) -> None:
    node.append(b"plain", b"two")
    propose(node, encode_transaction_command(Begin(P, 4, 3, 60_000, node.now_ms)))
    node.replica.append(numbered([b"in it"], P, 4, 0, transactional=True), Answers())
    node.turns()
    propose(node, marker(P, 4, commit=False, now_ms=node.now_ms, term=9))
    propose(node, marker(P, 5, commit=True, now_ms=node.now_ms, term=9))
    first, *_ = dump(node).entries
    assert first.kind == "raft", "the leader's first entry"
    shown = [one for one in dump(node).entries if one.kind != "raft"]
    assert [one.kind for one in shown] == ["batch", "begin-transaction", "batch", "abort", "commit"]
    plain, begun, inside, aborted, _ = shown
    assert (plain.base_offset, plain.stored, plain.count, plain.producer_id) == (0, 2, 2, -1)
    assert plain.attributes == Attributes.APPEND_TIME
    assert (begun.count, begun.detail) == (0, f"producer {P}, epoch 4, coordinator group 3, 60000 ms")
    assert (inside.base_offset, inside.producer_id, inside.producer_epoch, inside.base_sequence) == (2, P, 4, 0)
    assert inside.attributes == Attributes.APPEND_TIME | Attributes.TRANSACTIONAL
    assert (aborted.base_offset, aborted.coordinator_epoch, aborted.producer_id) == (-1, 9, P)
    assert aborted.attributes == Attributes.APPEND_TIME | Attributes.TRANSACTIONAL | Attributes.CONTROL


def test_every_command_has_its_words(node: PartitionNode) -> None:
    now_ms = node.now_ms
    for entry in (
        encode_group_command(Claim("g", "me", "", 3, timestamp_ms=now_ms)),
        encode_group_command(Commit("g", 7, 0, now_ms)),
        encode_group_command(EndClaim("g", 7, 0, now_ms)),
        encode_group_command(Delete("g", now_ms)),
        encode_transaction_command(StageOffset(P, 0, "g", 7, 5, now_ms)),
        encode_transaction_command(Prepare(P, 0, now_ms)),
        Trim(1, 1, 1).encode(),
        b"\0\6\1 not a batch",
    ):
        propose(node, entry)
    asyncio.run(_open_producer(node))
    rows = [one for one in dump(node).entries if one.kind != "raft"]
    assert [one.kind for one in rows] == [
        "claim", "commit-offset", "end-claim", "delete-group", "stage-offset", "prepare", "trim", "damaged",
        "open-producer",
    ]  # fmt: skip
    assert all(one.detail for one in rows)


async def _open_producer(node: PartitionNode) -> None:
    opening = asyncio.ensure_future(node.replica.open_producer(ProducerRequest(5, 0, None)))
    await asyncio.sleep(0)
    node.turns()
    await opening


def test_pages_begin_behind_an_index_or_at_an_event(node: PartitionNode) -> None:
    for number in range(6):
        node.append(b"%d" % number, b"more")
    whole = dump(node)
    page = dump(node, limit=3)
    assert page.entries == whole.entries[:3]
    assert dump(node, after=page.entries[-1].index).entries == whole.entries[3:]
    assert page.last_index == whole.entries[-1].index
    assert dump(node, offset=7).entries[0].base_offset == 6
    assert dump(node, offset=12).entries == []
    assert dump(node, after=whole.entries[-1].index).entries == []


def test_an_answer_is_bounded_in_bytes_too(node: PartitionNode, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(5):
        node.append(bytes(1000))
    monkeypatch.setattr(entry_dump, "READ_BYTES", 2000)
    assert len([one for one in dump(node).entries if one.kind == "batch"]) == 2


def test_what_was_stored_before_is_not_shown_as_stored_again(node: PartitionNode) -> None:
    asyncio.run(_open_producer(node))
    for _ in range(2):
        node.replica.append(numbered([b"a"], 5, 0, 0, b"aaaa"), Answers())
        node.turns()
    once, again = [one for one in dump(node).entries if one.kind == "batch"]
    assert (once.base_offset, once.stored, once.count) == (0, 1, 1)
    assert (again.base_offset, again.stored, again.count) == (-1, 0, 1)


def test_a_batch_whose_records_are_damaged_is_shown_as_that_and_the_list_goes_on(node: PartitionNode) -> None:
    whole = entry_of([b"record"], node.now_ms)
    propose(node, whole[:-1] + bytes((whole[-1] ^ 1,)))
    node.append(b"behind")
    damaged, behind = [one for one in dump(node).entries if one.kind != "raft"]
    assert (damaged.kind, "checksum" in damaged.detail) == ("damaged", True)
    assert (behind.kind, behind.base_offset) == ("batch", 1)
    assert node.replica.open_reader(Earliest(), lambda: None).error is None
