"""Frames built by joining encoded parts are the protobuf messages they claim to be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cluster.raft import RaftMessage
from cluster.raft.replication.message_encoding import BESIDE_FROM_BYTES, ReceivedAppend, Stamp
from cluster.rpc import rpc_pb2 as pb
from cluster.rpc.raft_transport.frame_reader import FrameReader
from cluster.rpc.raft_transport.frame_writer import (
    FRAME_HELLO,
    FRAME_HINTS,
    FRAME_MESSAGES,
    PartQueue,
    submessage,
    varint,
)

messages = st.builds(
    lambda group, entries: RaftMessage(group=group, append={"entries": entries}),
    st.integers(0, 2**64 - 1),
    st.lists(st.binary(max_size=300), max_size=5),
)


@given(turns=st.lists(st.lists(messages, max_size=6), max_size=6), target=st.integers(1, 2000))
def test_what_is_pushed_comes_out_in_order_cut_into_frames(turns: list[list[RaftMessage]], target: int) -> None:
    queue = PartQueue()
    for turn in turns:
        queue.push(FRAME_MESSAGES, turn)
    total = queue.bytes
    seen: list[RaftMessage] = []
    while queue:
        frame, count, _ = queue.take(target)
        assert len(frame) <= target or count == 1
        total -= len(frame)
        parsed = pb.Frame.FromString(frame)
        assert len(parsed.messages) == count
        seen += parsed.messages
    assert seen == [message for turn in turns for message in turn]
    assert total == queue.bytes == 0


@given(st.integers(0, 2**63 - 1))
def test_varints_are_protobufs(value: int) -> None:
    assert pb.AppendFrame.FromString(b"\x08" + varint(value)).group == value


def test_kinds_mix_in_one_frame() -> None:
    queue = PartQueue()
    queue.push(FRAME_HINTS, [pb.LeaderHints(groups=[1], terms=[2], leaders=[3])])
    queue.push(FRAME_MESSAGES, [RaftMessage(group=5)])
    frame = pb.Frame.FromString(queue.take(1000)[0])
    assert frame.hints.leaders == [3]
    assert frame.messages[0].group == 5
    hello = pb.Hello(cluster="dev", node=1, dialled=2, protocol=1)
    assert pb.Frame.FromString(submessage(FRAME_HELLO, hello)).hello == hello


def test_a_part_larger_than_the_target_travels_alone() -> None:
    queue = PartQueue()
    queue.push(FRAME_MESSAGES, [RaftMessage(append={"entries": [b"x" * 500]})] * 3)
    assert [queue.take(100)[1] for _ in range(3)] == [1, 1, 1]


def test_the_number_of_parts_can_be_bounded_too() -> None:
    queue = PartQueue()
    queue.push(FRAME_MESSAGES, [RaftMessage(group=1)] * 5)
    assert [queue.take(1000, max_parts=2)[1] for _ in range(3)] == [2, 2, 1]


def test_what_several_peers_get_is_joined_once_for_all_of_them() -> None:
    append = Stamp(1, 1).append_entries(1, 1, 1, (1, 0), [b"x" * 500, b"y"], [1, 1])
    queues = PartQueue(), PartQueue()
    for queue in queues:
        queue.push(FRAME_MESSAGES, [append])
    one, other = (queue.take(1000).frame for queue in queues)
    assert one is other
    assert list(pb.Frame.FromString(one).messages[0].append.entries) == [b"x" * 500, b"y"]
    queues[0].push(FRAME_MESSAGES, [append, RaftMessage(group=5)])
    assert pb.Frame.FromString(queues[0].take(1000)[0]).messages[1].group == 5


def test_large_entries_follow_their_frame_as_they_are() -> None:
    large = [bytes([letter]) * BESIDE_FROM_BYTES for letter in b"xy"]
    append = Stamp(1, 1).append_entries(7, 1, 1, (1, 0), large, [6, 7])
    queue = PartQueue()
    queue.push(FRAME_MESSAGES, [RaftMessage(group=5), append, RaftMessage(group=6)])
    assert queue.bytes > 2 * BESIDE_FROM_BYTES
    taken = queue.take(4 * BESIDE_FROM_BYTES)
    assert taken.size > 2 * BESIDE_FROM_BYTES
    assert [entry is given for entry, given in zip(taken.beside, large, strict=True)] == [True, True]
    five, head = pb.Frame.FromString(taken.frame).messages
    assert (five.group, head.append.entries_beside, list(head.append.entries)) == (5, True, [])
    assert (head.term, list(head.append.entry_terms)) == (7, [6, 7])
    rest = queue.take(4 * BESIDE_FROM_BYTES)
    assert (pb.Frame.FromString(rest.frame).messages[0].group, list(rest.beside)) == (6, [])
    assert queue.bytes == 0

    queue.push(FRAME_MESSAGES, [RaftMessage(group=5), append])
    assert list(queue.take(BESIDE_FROM_BYTES).beside) == [], "the target counts them, too"
    assert len(queue.take(BESIDE_FROM_BYTES).beside) == 2


def test_entries_are_bytes_whatever_the_connection_read_them_into() -> None:
    large = [bytes([letter]) * BESIDE_FROM_BYTES for letter in b"xy"]
    append = Stamp(1, 1).append_entries(7, 1, 1, (1, 0), large, [6, 7])
    queue, reader = PartQueue(), FrameReader()
    queue.push(FRAME_MESSAGES, [append])
    taken = queue.take(4 * BESIDE_FROM_BYTES)
    *waiting, whole = [reader.add(bytearray(piece)) for piece in (taken.frame, *taken.beside)]
    assert waiting == [None, None]
    assert whole is not None
    [received] = whole[1]
    assert isinstance(received, ReceivedAppend)
    assert [type(entry) for entry in received.entries] == [bytes, bytes]
    assert received.entries == large
