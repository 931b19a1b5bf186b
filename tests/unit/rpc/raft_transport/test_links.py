"""The streams between nodes: what is said arrives, in order; who does not belong stays out; who is gone is noticed."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cluster.raft import RaftMessage
from cluster.raft.replication.message_encoding import BESIDE_FROM_BYTES, MAX_ENTRIES_BESIDE, ReceivedAppend, Stamp
from cluster.rpc import AddressInUse, options
from cluster.rpc.handshake import hello_to
from cluster.rpc.raft_transport.frame_writer import FRAME_HELLO, FRAME_MESSAGES, submessage
from cluster.rpc.refusal_log import WHY
from tests.ports import free_port
from tests.unit.rpc.support import SOON_S, CutWire, TestNode, cluster_of, notice_no_silence, stream_to, until

ROOT = Path(__file__).resolve().parents[4]


def messages(first: int, count: int, payload: bytes = b"") -> list[RaftMessage]:
    return [RaftMessage(group=first + i, append={"entries": [payload]}) for i in range(count)]


async def test_messages_arrive_in_order_those_given_together_in_one_frame_and_those_that_wait_for_room_too() -> None:
    async with cluster_of(1, 2) as nodes:
        sender, receiver = nodes[1], nodes[2]
        sender.network.send(2, messages(0, 10))
        await until(lambda: len(receiver.heard) == 10, "one turn's messages")
        assert receiver.frames == 1
        connection = sender.network._links[2]._stream._connection
        connection.pause_writing()  # as if the peer took nothing
        sender.network.send(2, messages(0, 1))  # the pump has it, and waits
        await until(lambda: sender.network._links[2]._flying_bytes > 0, "the pump at work")
        for _ in range(39):
            sender.network.send(2, messages(0, 1))
        assert sender.network.status()[2]["backlog_bytes"] > 0
        connection.resume_writing()
        await until(lambda: len(receiver.heard) == 50, "what had waited")
        assert receiver.frames == 3, "what waited for room goes together"
        for turn in range(200):
            sender.network.send(2, messages(turn * 3, 3))
            if turn % 7 == 0:
                await asyncio.sleep(0)
        await until(lambda: len(receiver.heard) == 650, "all messages")
        assert [message.group for _, message in receiver.heard[50:]] == list(range(600))
        assert {node for node, _ in receiver.heard} == {1}


async def test_what_is_much_waits_where_it_is_counted_and_what_is_little_leaves_at_once() -> None:
    async with cluster_of(1, 2) as nodes:
        link = nodes[1].network._links[2]
        await until(lambda: not link.backlog, "what was said at the start")
        nodes[1].network.send(2, messages(1, 1))
        assert not link.backlog
        nodes[1].network.send(2, messages(2, 1, bytes(2 * options.WRITE_BUFFER_BYTES)))
        assert link.backlog > 2 * options.WRITE_BUFFER_BYTES
        await until(lambda: len(nodes[2].heard) == 2, "both")


@pytest.mark.parametrize("mebibytes", [2, 8, 33])
async def test_large_messages_pass(mebibytes: int) -> None:
    async with cluster_of(1, 2) as nodes:
        payload = bytes([7]) * (mebibytes << 20)
        nodes[1].network.send(2, messages(1, 1, payload))
        nodes[1].network.send(2, messages(2, 1))
        await until(lambda: len(nodes[2].heard) == 2, "a large message and its successor")
        assert nodes[2].heard[0][1].append.entries[0] == payload


async def test_large_entries_come_beside_their_append_and_in_its_place() -> None:
    async with cluster_of(1, 2) as nodes:
        large = [bytes([number]) * (BESIDE_FROM_BYTES + number) for number in range(5)]
        append = Stamp(7, 1).append_entries(3, 9, 1, (1, 0), large, [2, 2, 3, 3, 3])
        small = Stamp(8, 1).append_entries(3, 9, 1, (1, 0), [b"small"], [3])
        nodes[1].network.send(2, [*messages(1, 2), append, small, *messages(3, 1)])
        nodes[1].network.send(2, [append, *messages(4, 1)])
        await until(lambda: len(nodes[2].heard) == 7, "all of them")
        heard = [message for _, message in nodes[2].heard]
        assert [message.group for message in heard] == [1, 2, 7, 8, 3, 7, 4]
        for one in (heard[2], heard[5]):
            assert isinstance(one, ReceivedAppend)
            assert list(one.entries) == large
            assert (one.message.append.sequence, list(one.message.append.entry_terms)) == (9, [2, 2, 3, 3, 3])
        assert list(heard[3].append.entries) == [b"small"]


async def test_who_is_up_is_in_touch_at_once_and_not_at_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "TICK_S", 3600.0)
    async with cluster_of(1, 2) as nodes:
        assert nodes[1].network.in_touch(2)
        assert nodes[2].network.in_touch(1)


async def test_three_nodes_see_each_other_up_and_a_stop_is_told_once_and_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notice_no_silence(monkeypatch)
    async with cluster_of(1, 2, 3) as nodes:
        for node in (1, 3):
            assert sorted(nodes[node].events) == [("up", other) for other in (1, 2, 3) if other != node]
        await nodes[2].network.stop()
        await until(lambda: ("down", 2) in nodes[1].events and ("down", 2) in nodes[3].events, "down")
        await asyncio.sleep(2 * options.BACKOFF_MAX_S)  # long enough for anything that would be told twice
        assert nodes[1].events.count(("down", 2)) == nodes[3].events.count(("down", 2)) == 1
        assert not nodes[1].network.is_up(2)
        await until(lambda: "refused" in nodes[1].network.status()[2]["last_error"].lower(), "the reason")
        nodes[1].network.send(2, messages(0, 3))
        assert nodes[1].network.status()[2]["dropped_messages"] == 3, "nothing is kept for a node that is down"


async def test_a_peer_that_comes_back_is_found_soon() -> None:
    addresses = {1: f"127.0.0.1:{free_port()}", 2: f"127.0.0.1:{free_port()}"}
    first, second = TestNode(1, addresses), TestNode(2, addresses)
    await first.network.start()
    await asyncio.sleep(1.0)  # the backoff has grown to its bound
    try:
        for _ in range(2):
            await second.network.start()
            assert await until(lambda: first.network.is_up(2), "up") < SOON_S
            await second.network.stop()
            await until(lambda: not first.network.is_up(2), "down")
            second = TestNode(2, addresses)
        assert first.events == [("up", 2), ("down", 2)] * 2
    finally:
        await first.network.stop()
        await second.network.stop()


PEER_PROCESS = """
import asyncio, sys, uvloop
from tests.unit.rpc.support import TestNode
async def main():
    node = TestNode(2, {1: sys.argv[1], 2: sys.argv[2]})
    await node.network.start()
    await asyncio.Event().wait()
uvloop.run(main())
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_killed_process_is_noticed_at_once_and_a_stopped_one_soon(
    how: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how is signal.SIGKILL:
        notice_no_silence(monkeypatch)
    addresses = {1: f"127.0.0.1:{free_port()}", 2: f"127.0.0.1:{free_port()}"}
    node = TestNode(1, addresses)
    await node.network.start()
    process = subprocess.Popen([sys.executable, "-c", PEER_PROCESS, addresses[1], addresses[2]], cwd=ROOT)  # noqa: ASYNC220
    try:
        await node.up(2)
        process.send_signal(how)
        took_s = await until(lambda: ("down", 2) in node.events, f"down after {how.name}")
        assert took_s < SOON_S
        if how is signal.SIGSTOP:
            process.send_signal(signal.SIGCONT)
            await node.up(2)
            assert node.events == [("up", 2), ("down", 2), ("up", 2)]
    finally:
        process.kill()
        process.wait()
        await node.network.stop()


@pytest.mark.parametrize("frozen", ["dialled by 1", "dialled by 2", "both"])
async def test_a_black_hole_is_noticed_by_both_sides_and_healed(frozen: str) -> None:
    """Connections stay open and carry nothing, in one of the two streams or in both."""
    ports = {1: free_port(), 2: free_port()}
    addresses = {node: f"127.0.0.1:{port}" for node, port in ports.items()}
    async with CutWire(ports[2]) as to_second, CutWire(ports[1]) as to_first:
        first = TestNode(1, addresses, dial={2: f"127.0.0.1:{to_second.port}"})
        second = TestNode(2, addresses, dial={1: f"127.0.0.1:{to_first.port}"})
        await first.network.start()
        await second.network.start()
        try:
            await first.up(2)
            await second.up(1)
            wires = {"dialled by 1": [to_second], "dialled by 2": [to_first], "both": [to_second, to_first]}[frozen]
            for wire in wires:
                wire.freeze()
            took_s = await until(lambda: not (first.network.is_up(2) or second.network.is_up(1)), "down on both sides")
            assert took_s < SOON_S
            for wire in wires:
                wire.thaw()
            took_s = await until(lambda: first.network.is_up(2) and second.network.is_up(1), "up on both sides")
            assert took_s < SOON_S
        finally:
            await first.network.stop()
            await second.network.stop()


async def test_a_stream_at_rest_has_a_heartbeat_in_each_period(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster_of(1, 2) as nodes:
        monkeypatch.setattr(options, "HEARTBEAT_S", 3600.0)
        monkeypatch.setattr(options, "HINT_PERIOD_S", 3600.0)
        notice_no_silence(monkeypatch)
        link = nodes[1].network._links[2]
        await asyncio.sleep(2 * options.TICK_S)  # one that was due already
        link.heartbeat()
        await until(lambda: not link.backlog, "it to leave", SOON_S)
        stream, said = link._stream, 0
        put = stream.put

        def counted(*parts: bytes) -> None:
            nonlocal said
            said += 1
            put(*parts)

        monkeypatch.setattr(stream, "put", counted)
        for beats in range(1, 4):
            link.heartbeat()
            assert said == beats
        nodes[1].network.send(2, messages(1, 1))
        assert said == 4
        link.heartbeat()
        assert said == 4, "something else was said"
        link.heartbeat()
        assert said == 5


async def test_a_process_that_stood_still_does_not_blame_its_peers() -> None:
    async with cluster_of(1, 2) as nodes:
        time.sleep(2 * options.SILENCE_S)  # noqa: ASYNC251  the loop of both nodes stands still
        await asyncio.sleep(3 * options.TICK_S)
        assert nodes[1].events == [("up", 2)]
        assert nodes[2].events == [("up", 1)]


async def test_a_peer_that_takes_nothing_is_dropped_when_the_backlog_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    notice_no_silence(monkeypatch)  # the backlog must be what notices
    ports = {1: free_port(), 2: free_port()}
    addresses = {node: f"127.0.0.1:{port}" for node, port in ports.items()}
    async with CutWire(ports[2]) as wire:
        first, second = TestNode(1, addresses, dial={2: f"127.0.0.1:{wire.port}"}), TestNode(2, addresses)
        await first.network.start()
        await second.network.start()
        try:
            await first.up(2)
            wire.freeze()
            peak = 0
            for turn in range(400):
                first.network.send(2, messages(turn, 1, bytes(1 << 20)))
                peak = max(peak, first.network.status()[2]["backlog_bytes"])
                await asyncio.sleep(0)
                if ("down", 2) in first.events:
                    break
            assert first.events == [("up", 2), ("down", 2)]
            assert options.BACKLOG_BYTES - (8 << 20) < peak <= options.BACKLOG_BYTES + (8 << 20)
            assert first.network.status()[2]["backlog_bytes"] == 0
            await until(lambda: "takes nothing" in first.network.status()[2]["last_error"], "the reason")
            wire.thaw()
            await first.up(2)
            first.network.send(2, messages(999, 1))
            await until(lambda: second.heard and second.heard[-1][1].group == 999, "a message after the recovery")
        finally:
            await first.network.stop()
            await second.network.stop()


@pytest.mark.parametrize(
    ("node", "cluster", "dials", "says"),
    [
        (1, "prod", 2, "wrong cluster name"),
        (9, "dev", 2, "is not among the peers that node 2 was configured with"),
        (1, "dev", 3, "correct the address of node 3"),
    ],
)
async def test_who_does_not_belong_is_refused_and_told_where_it_stands_why(
    node: int, cluster: str, dials: int, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "holdfast.rpc")
    async with cluster_of(2, 3) as nodes:
        port = nodes[2].network.port
        here = f"127.0.0.1:{free_port()}"
        stranger = TestNode(node, {node: here, dials: f"127.0.0.1:{port}"}, cluster=cluster)
        await stranger.network.start()
        try:
            await until(lambda: WHY in stranger.network.status()[dials]["last_error"], "the refusal")
            told = stranger.network.status()[dials]["last_error"]
            assert re.fullmatch(f"refused: {WHY}[0-9a-f]{{8}}", told)
            reference = told[-8:]
            assert stranger.events == []
            assert nodes[2].events == [("up", 3)]
            said = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
            assert any(says in line and reference in line for line in said)
        finally:
            await stranger.network.stop()


async def test_a_newer_stream_of_a_node_replaces_the_older_one() -> None:
    """The dialler has given the old connection up, even when this side has not noticed yet."""
    async with cluster_of(1, 2) as nodes:
        node = nodes[1]
        call = stream_to(node.network.port)
        await call.write(submessage(FRAME_HELLO, hello_to(1, cluster="dev", self_id=2)))
        await call.is_let_in()
        await until(lambda: node.events[:3] == [("up", 2), ("down", 2), ("up", 2)], "down and up")
        call.hang_up()
        await node.up(2)  # the real one dials again


async def test_a_broken_frame_ends_its_stream_only() -> None:
    async with cluster_of(1, 2, 3) as nodes:
        node = nodes[1]
        call = stream_to(node.network.port)
        await call.write(submessage(FRAME_HELLO, hello_to(1, cluster="dev", self_id=2)))
        await call.is_let_in()
        await call.write(b"\xff\xff\xff")
        assert "broken frame" in str(await call.wait_over())
        await node.up(2)
        assert ("down", 3) not in node.events


async def test_a_defect_in_what_is_told_ends_its_stream_and_the_next_one_is_heard(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "holdfast.rpc")
    async with cluster_of(1, 2) as nodes:
        inbound = nodes[1].network._inbound
        tell = inbound._on_messages

        def fail(*_: object) -> None:
            inbound._on_messages = tell
            raise KeyError("a name that nobody knows")

        inbound._on_messages = fail
        nodes[2].network.send(1, messages(1, 1))
        await until(lambda: ("down", 2) in nodes[1].events, "the end of the stream", SOON_S)
        await nodes[1].up(2)
        await until(lambda: nodes[2].network.status()[1]["outbound"], "the welcome of the next one")
        assert any("link to node 1" in line and "a defect of node 1" in line for line in caplog.messages)
        nodes[2].network.send(1, messages(2, 1))
        await until(lambda: [one[1].group for one in nodes[1].heard] == [2], "what came after it")


@pytest.mark.parametrize(
    ("terms", "pieces", "says"),
    [
        (MAX_ENTRIES_BESIDE + 1, [], "entries come beside one append"),
        (3, [b"1", b"2"], ""),
        (3, [b"x" * 600, b"x" * 600], "more than 1000 bytes of entries"),
    ],
    ids=["too many", "too few", "too much"],
)
async def test_entries_that_are_not_what_their_frame_says_end_the_stream_and_are_not_heard(
    monkeypatch: pytest.MonkeyPatch, terms: int, pieces: list[bytes], says: str
) -> None:
    async with cluster_of(1, 2) as nodes:
        monkeypatch.setattr(options, "MAX_MESSAGE_BYTES", 1000)  # what was dialled before has larger limits
        heard = len(nodes[1].heard)
        call = stream_to(nodes[1].network.port)
        await call.write(submessage(FRAME_HELLO, hello_to(1, cluster="dev", self_id=2)))
        await call.is_let_in()
        message = RaftMessage(group=3, append={"entries_beside": True, "entry_terms": [1] * terms})
        await call.write(submessage(FRAME_MESSAGES, message))
        for piece in pieces:
            await call.write(piece)
        if says:
            assert re.search(rf"broken frame: .*{says}", str(await call.wait_over()))
        call.hang_up()
        assert [one for one in nodes[1].heard[heard:] if one[1].group == 3] == []
        await nodes[1].up(2)


@pytest.mark.parametrize("groups", [(3, 4), (4, 3)], ids=["two such appends", "one that is not the last message"])
async def test_entries_come_beside_the_last_message_only(groups: tuple[int, int]) -> None:
    """Else a frame of a few bytes could have any number of them held here."""
    async with cluster_of(1, 2) as nodes:
        call = stream_to(nodes[1].network.port)
        await call.write(submessage(FRAME_HELLO, hello_to(1, cluster="dev", self_id=2)))
        await call.is_let_in()
        first = RaftMessage(group=groups[0], append={"entries_beside": True, "entry_terms": [1]})
        other = RaftMessage(group=groups[1], append={"entries_beside": groups == (3, 4), "entry_terms": [1]})
        await call.write(submessage(FRAME_MESSAGES, first) + submessage(FRAME_MESSAGES, other))
        assert re.search(r"broken frame: .*not its last", str(await call.wait_over()))
        await nodes[1].up(2)
        assert not [one for one in nodes[1].heard if one[1].group in groups]


async def test_leaders_are_told_on_change_and_to_who_comes_later() -> None:
    async with cluster_of(1, 2) as nodes:
        nodes[1].network.set_leader(7, 3, 1)
        await until(lambda: nodes[2].network.leader_of(7) == 1, "the hint")
        nodes[1].network.set_leader(7, 4, 2)
        await until(lambda: nodes[2].network.leader_of(7) == 2, "the next hint")
        nodes[1].network.set_leader(7, 5, 1)
        await until(lambda: nodes[2].network.leader_of(7) == 1, "and back")
        await nodes[1].network.stop()
        await until(lambda: nodes[2].network.leader_of(7) is None, "a leader that is down is no leader")


async def test_a_taken_port_is_said_to_be_taken() -> None:
    async with cluster_of(1) as nodes:
        twin = TestNode(1, {1: f"127.0.0.1:{nodes[1].network.port}"})
        with pytest.raises(AddressInUse, match="Another process has the port"):
            await twin.network.start()
        await twin.network.stop()
