"""Consumer groups at the leader: who is alive, who is cut off, who is given up."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from node.partition.api import Earliest, Failed, ReaderClaim
from node.partition.consumer_groups.group_queries import GroupList, ListGroups, Revoke
from node.partition.consumer_groups.group_state import (
    Claim,
    Commit,
    Denied,
    Done,
    End,
    EndClaim,
    Owned,
)
from node.peer_codec import decode_answer, decode_question, encode_answer, encode_question
from tests.unit.partition.support import PartitionNode, flat

LEASE_S = 5.0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[PartitionNode]:
    with PartitionNode(tmp_path) as one:
        one.append(b"a", b"b", b"c")
        yield one


def ask(node: PartitionNode, question: Any) -> Any:
    """The answer, turns and all."""
    return asyncio.run(_asked(node, node.replica.ask(question)))


async def _asked(node: PartitionNode, asking: Coroutine[Any, Any, Any]) -> Any:
    task = asyncio.ensure_future(asking)
    await asyncio.sleep(0)
    node.turns()
    return await task


def claim(node: PartitionNode, who: str = "a", epoch: int | None = None) -> Any:
    return ask(node, Claim("g", who, f"{who}/link", epoch))


def read(node: PartitionNode, owned: Owned) -> Any:
    return node.replica.open_reader(Earliest(), lambda: None, ReaderClaim("g", owned.claim))


def test_a_reader_is_cut_off_when_its_claim_is_outbid(node: PartitionNode) -> None:
    first = claim(node, "a", 1)
    reader = read(node, first)
    assert len(flat(reader.poll(1, 1000))) == 1
    second = claim(node, "b", 2)
    assert reader.poll(10, 1000) == []
    assert reader.error.kind == "stolen"
    assert "epoch 2" in reader.error.detail
    assert len(flat(read(node, second).poll(10, 1000))) == 3


def test_nobody_reads_in_the_name_of_a_claim_that_is_not_in_force(node: PartitionNode) -> None:
    first = claim(node)
    ask(node, EndClaim("g", first.claim, End.RELEASED))
    for reader in (read(node, first), read(node, Owned(999, 0, 0))):
        assert reader.error.kind == "lapsed"
        assert reader.poll(10, 1000) == []


def test_two_streams_for_one_claim_leave_one(node: PartitionNode) -> None:
    owned = claim(node)
    first, second = read(node, owned), read(node, owned)
    assert first.error.kind == "stolen"
    assert len(flat(second.poll(10, 1000))) == 3
    first.close()
    assert row(node).present


def row(node: PartitionNode) -> Any:
    answer = ask(node, ListGroups("g"))
    assert isinstance(answer, GroupList)
    assert (answer.start_offset, answer.next_offset) == (0, 3)
    return answer.groups[0]


def test_only_a_whole_lease_of_silence_ends_a_claim(node: PartitionNode) -> None:
    owned = claim(node, "a", 4)
    reader = read(node, owned)
    now_s = 0.0

    def pass_time(seconds: float) -> None:
        nonlocal now_s
        for _ in range(int(seconds * 2)):
            now_s += 0.5
            node.replica.tick(now_s)
            node.turns()

    pass_time(3 * LEASE_S)
    assert row(node).present
    reader.close()
    pass_time(LEASE_S - 1)
    assert row(node).active
    reader = read(node, owned)
    pass_time(LEASE_S)
    reader.close()
    pass_time(LEASE_S - 1)
    assert isinstance(claim(node, "b", 4), Denied)
    pass_time(2)
    assert not row(node).active
    assert row(node).epoch == 4
    assert isinstance(claim(node, "b", 3), Denied)
    assert claim(node, "b", 4).epoch == 4


def test_after_a_crash_the_owner_is_taken_for_alive_and_continues_under_its_old_claim(node: PartitionNode) -> None:
    owned = claim(node, "a", 4)
    node.crash()
    assert row(node).active
    assert not row(node).present
    for epoch in (None, 3, 4):
        assert isinstance(claim(node, "b", epoch), Denied)
    reader = read(node, owned)
    assert reader.error is None
    assert len(flat(reader.poll(10, 1000))) == 3


def test_after_a_crash_the_same_link_may_claim_again_unless_it_is_there_already(node: PartitionNode) -> None:
    first = claim(node, "a", 4)
    node.crash()
    again = claim(node, "a", 4)
    assert isinstance(again, Owned)
    assert read(node, first).error.kind == "stolen"
    read(node, again)
    assert isinstance(claim(node, "a", 4), Denied)


def test_an_owner_that_is_asked_to_let_go_hands_out_nothing_more(node: PartitionNode) -> None:
    owned = claim(node)
    reader = read(node, owned)
    assert ask(node, Revoke("g", owned.claim)) == Done(-1)
    assert reader.poll(10, 1000) == []
    assert reader.error.kind == "revoked"
    assert isinstance(ask(node, Revoke("g", owned.claim)), Denied)
    assert row(node).active  # until it has let go
    ask(node, EndClaim("g", owned.claim, End.RELEASED))
    assert isinstance(claim(node, "b"), Owned)


def test_positions_survive_a_crash_and_a_checkpoint(node: PartitionNode) -> None:
    owned = claim(node)
    assert ask(node, Commit("g", owned.claim, 2)) == Done(2)
    node.reopen()
    node.crash()
    ask(node, EndClaim("g", owned.claim, End.LOST))
    assert claim(node, "b").position == 2


def test_groups_are_listed_in_pages_without_termini(node: PartitionNode) -> None:
    for key in ("c", "a", "b", "\x00t"):
        ask(node, Commit(key, 0, 1))
    keys = [row.key for row in ask(node, ListGroups("", "", 2)).groups]
    assert keys == ["a", "b"]
    assert [row.key for row in ask(node, ListGroups("", "b", 2)).groups] == ["c"]


def test_who_does_not_lead_answers_nothing(node: PartitionNode) -> None:
    owned = claim(node)
    reader = read(node, owned)
    node.step_down()
    assert reader.error.kind == "not_leader"
    for question in (Claim("g", "b", "x", 9), ListGroups("g"), Revoke("g", owned.claim)):
        answer = ask(node, question)
        assert isinstance(answer, Failed)
        assert (answer.kind, answer.retriable) == ("not_leader", True)
    node.replica.tick(1e9)


def test_questions_and_answers_cross_a_network_unchanged(node: PartitionNode) -> None:
    for question in (Claim("g", "a", "x", 3), ListGroups("g"), Revoke("g", 4)):
        assert decode_question(encode_question(question)) == question
    claim(node)
    for answer in (Owned(1, 2, 3), Done(4), Denied("owned", "why"), ask(node, ListGroups())):
        assert decode_answer(encode_answer(answer)) == answer


def test_many_silent_owners_lose_their_claims_a_few_at_a_time(
    node: PartitionNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer with thousands of groups has gone: their ends do not all stand in front of everybody's entries."""
    monkeypatch.setattr("node.partition.consumer_groups.ownership_leases.ENDS_AT_ONCE", 2)
    for number in range(5):
        ask(node, Claim(f"g{number}", "a", f"a/{number}", None))
    node.replica.tick(0.0)
    active = []
    for look in range(3):
        node.replica.tick(LEASE_S + look)
        node.turns()
        groups = ask(node, ListGroups("", "", 100))
        assert isinstance(groups, GroupList)
        active.append(sum(row.active for row in groups.groups))
    assert active == [3, 1, 0]


def test_an_owner_is_sent_away_for_a_moment_by_a_leader_that_has_not_applied_the_claim(node: PartitionNode) -> None:
    owned = claim(node)
    node.disk.close()
    node._open(lead=False)
    while not node.group.is_leader:
        turn = node.multiraft.turn()
        if turn is not None:
            node.disk.sync()
            node.multiraft.release(turn)
        node.clock.now_s += 0.01
    assert not node.group.ready
    error = read(node, owned).error
    assert (error.kind, error.retriable) == ("not_leader", True)
    node.until_leading()
    assert read(node, owned).error is None
