"""Values of peers are looked at where they enter: one wrong frame harms one message, or one group, never a process."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cluster.metadata import metadata_pb2
from cluster.metadata.command_validation import METADATA_RANGES
from cluster.raft import Committed, FetchReply, FetchRequest, RaftMessage, raft_pb2
from cluster.raft.replication.message_encoding import Stamp
from cluster.raft.replication.message_validation import (
    INTEGERS,
    MAX_TERM,
    MAX_TERM_LEAD,
    RAFT,
    RAFT_RANGES,
    RangeTable,
)
from cluster.rpc import rpc_pb2
from cluster.rpc.call_validation import RPC_RANGES, OutOfRange, parsed
from tests.unit.raft.cluster import GROUP, RaftStage

STAMP = Stamp(GROUP, 1)
BEYOND = (1 << 64) - 1


def integers_of(module: Any) -> set[str]:
    messages = module.DESCRIPTOR.message_types_by_name.values()
    return {f"{one.name}.{field.name}" for one in messages for field in one.fields if field.cpp_type in INTEGERS}


def test_every_integer_of_every_message_has_a_range() -> None:
    assert integers_of(raft_pb2) == set(RAFT_RANGES)
    assert integers_of(rpc_pb2) == set(RPC_RANGES)
    assert integers_of(metadata_pb2) == set(METADATA_RANGES)


def led_by_one(nodes: int = 3) -> RaftStage:
    stage = RaftStage(nodes)
    stage.elect(1)
    stage.run(0.05)
    return stage


def goes_on(stage: RaftStage) -> None:
    """The group has the leader that it had, and takes events."""
    outcomes = stage.propose(1, "goes on")
    stage.run(0.1)
    assert [type(outcome) for outcome in outcomes] == [Committed]
    assert stage.leader == 1
    assert all(stage.group(node).quarantined is None for node in stage.ids)


@pytest.mark.parametrize(
    "forged",
    [
        STAMP.stale_term(BEYOND),
        STAMP.stale_term(MAX_TERM + 1),
        STAMP.stale_term(MAX_TERM_LEAD + 2),
        STAMP.append(BEYOND, 1, 1, (1, 0)),
        STAMP.append(BEYOND, 1, 1, None, retained_from=BEYOND),
        STAMP.vote_request(BEYOND, (9, 9), transfer=True),
        STAMP.vote_request(2, (BEYOND, BEYOND), pre=True),
        STAMP.vote_request(2, (9, BEYOND), transfer=True),
        STAMP.timeout_now(BEYOND),
        STAMP.append_reply(1, 1, BEYOND, success=True, reset=False),
        STAMP.append(2, 1, BEYOND, (1, 0)),
        STAMP.append(2, 1, 1, (BEYOND, 0)),
        STAMP.append(2, 1, 1, (1, 0), release=(BEYOND, 7)),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_and_harms_nobody(forged: RaftMessage) -> None:
    stage = led_by_one()
    terms = [stage.group(node).term for node in stage.ids]
    for node in (1, 3):
        stage.inject(2, node, forged)
    stage.run(0.2)
    assert [stage.group(node).term for node in stage.ids] == terms
    assert stage.group(1).refused_messages == stage.group(3).refused_messages == 1
    goes_on(stage)


def test_terms_of_entries_are_looked_at() -> None:
    stage = led_by_one()
    last = stage.group(3).last_index
    forged = STAMP.append_entries(2, 1, 1, (last, 1), [b"\0x", b"\0y"], [2, BEYOND])
    stage.inject(2, 3, RaftMessage.FromString(forged.SerializeToString()))
    stage.run(0.1)
    assert stage.group(3).last_index == last
    goes_on(stage)


def test_a_term_that_elections_may_have_led_to_is_one_like_any_other() -> None:
    """A member that campaigned alone for long comes back: nobody is locked out."""
    stage = led_by_one()
    stage.inject(2, 1, STAMP.stale_term(MAX_TERM_LEAD))
    stage.until(lambda: stage.leader is not None and stage.group(stage.leader).term > MAX_TERM_LEAD, seconds=5.0)
    outcomes = stage.propose(stage.leader or 0, "a")
    stage.run(0.1)
    assert [type(outcome) for outcome in outcomes] == [Committed]


def test_an_empty_replica_takes_any_term_within_the_range() -> None:
    """It cannot tell what is too much; the group's own terms may be great."""
    stage = led_by_one()
    for _ in range(3):
        stage.inject(2, 1, STAMP.stale_term(stage.group(1).term + MAX_TERM_LEAD // 2))
        stage.run(3.0)
    assert stage.group(stage.leader or 0).term > MAX_TERM_LEAD
    lost = next(node for node in stage.ids if node != stage.leader)
    stage.wipe(lost)
    stage.until(lambda: stage.group(lost).has_vote(lost))


def test_requests_and_pieces_of_snapshots_are_looked_at() -> None:
    stage = led_by_one()
    reply = stage.multirafts[1].serve_fetch(2, FetchRequest(group=GROUP, version=1, number=1, entries_from=BEYOND))
    assert b"FetchRequest.entries_from" in reply.body
    assert RAFT.fault(FetchReply(group=BEYOND)) is not None
    goes_on(stage)


def test_random_integers_stop_nobody() -> None:
    """Bit patterns of all lengths in all fields, to a leader and to a follower: no exception, and no quarantine but for
    what is a lie within its range (a second leader of the term, entries that the leader never had)."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    randomness = random.Random(seed)
    for _ in range(150):
        stage = led_by_one()
        stage.may_quarantine = True
        for _ in range(4):
            message = RaftMessage(group=GROUP, version=1, term=randomness.getrandbits(randomness.randint(1, 64)))
            kind = randomness.choice([field.name for field in RaftMessage.DESCRIPTOR.oneofs[0].fields])
            body = getattr(message, kind)
            body.SetInParent()
            for field in body.DESCRIPTOR.fields:
                value = randomness.getrandbits(randomness.randint(1, 64))
                if field.cpp_type == field.CPPTYPE_BOOL:
                    setattr(body, field.name, bool(value & 1))
                elif field.cpp_type in INTEGERS and not field.is_repeated:
                    setattr(body, field.name, value)
            stage.inject(2, randomness.choice((1, 3)), message)
            stage.run(0.01)
        for multiraft in stage.multirafts.values():
            assert multiraft._broken is None


def test_bytes_of_calls_are_looked_at() -> None:
    with pytest.raises(OutOfRange, match=r"ReadOpen.after_offset is 18446744073709551615"):
        parsed(rpc_pb2.ReadRequest, rpc_pb2.ReadRequest(open=rpc_pb2.ReadOpen(after_offset=BEYOND)).SerializeToString())
    for place in (-2, (1 << 63) - 1):
        rows = rpc_pb2.AppendReplies(replies=[rpc_pb2.AppendReply(), rpc_pb2.AppendReply(base_offset=place)])
        with pytest.raises(OutOfRange, match=r"AppendReply.base_offset"):
            parsed(rpc_pb2.AppendReplies, rows.SerializeToString())
    hello = rpc_pb2.Hello(node=1, incarnation=BEYOND)
    assert parsed(rpc_pb2.Hello, hello.SerializeToString()) == hello


def test_a_field_without_a_range_is_a_defect_that_shows_at_once() -> None:
    with pytest.raises(KeyError, match=r"Manifest.base_index"):
        RangeTable({"Manifest.snapshot": (0, 1)}).fault(raft_pb2.Manifest())
