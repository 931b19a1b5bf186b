"""A gateway's appends: pipelined, in order, each answered once, and never a wrong word about what was appended."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cluster.rpc import options
from node.partition.api import Appended, Failed
from tests.batches import batch_of
from tests.ports import free_port
from tests.unit.rpc.support import SOON_S, CutWire, MemoryPartition, TestNode, cluster_of, until

GROUP = 17


async def test_many_in_flight_are_appended_in_order_and_answered_with_their_offsets() -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = MemoryPartition()
        answers: list[Any] = []
        for number in range(5000):
            records = [b"%d/%d" % (number, i) for i in range(3)]
            nodes[1].network.client(2).append(GROUP, batch_of(records), answers.append)
            if number % 100 == 0:
                await asyncio.sleep(0)
        await until(lambda: len(answers) == 5000, "all answers")
        assert answers == [Appended(3 * number, 1001 + number) for number in range(5000)]
        assert [record for records in partition.records for record in records] == [
            b"%d/%d" % (number, i) for number in range(5000) for i in range(3)
        ]


@pytest.mark.parametrize("mebibytes", [2, 8, 16])
async def test_large_records_pass(mebibytes: int) -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = MemoryPartition()
        answers: list[Any] = []
        record = bytes(mebibytes << 20)
        nodes[1].network.client(2).append(GROUP, batch_of([record]), answers.append)
        await until(lambda: answers, "the answer")
        assert answers == [Appended(0, 1001)]
        assert partition.records[0] == [record]


async def test_failures_cross_the_wire_with_their_type() -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = MemoryPartition()
        for failure in (
            Failed("not_leader", True, "node 3 leads", 3),
            Failed("overloaded", True, "slow down"),
            Failed("unknown", True, "leadership lost"),
            Failed("too_large", False, "more than an entry holds"),
        ):
            partition.failure = failure
            answers: list[Any] = []
            nodes[1].network.client(2).append(GROUP, batch_of([b"x"]), answers.append)
            await until(lambda answers=answers: answers, "the failure")
            assert answers == [failure]


@pytest.mark.parametrize("kind", ["overloaded", "not_leader"])
async def test_what_was_sent_behind_a_refused_request_does_not_overtake_it(kind: Any) -> None:
    """The sender of both submits the first again; with the second in the log by then, its order would be lost."""
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = MemoryPartition()
        client = nodes[1].network.client(2)
        answers: list[Any] = []
        client.append(GROUP, batch_of([b"before"]), answers.append)
        await until(lambda: answers, "the stream to be open")

        partition.failure = Failed(kind, True, "not now")
        client.append(GROUP, batch_of([b"first"]), answers.append)
        requests = partition.requests
        stand_in = partition.append

        def refuse_once(records: list[bytes], done: Any, numbers: Any = None) -> None:
            stand_in(records, done)
            partition.failure = None

        partition.append = refuse_once  # type: ignore[method-assign]
        client.append(GROUP, batch_of([b"second"]), answers.append)
        await until(lambda: len(answers) == 3, "both answers")
        assert [answer.kind for answer in answers[1:]] == [kind, kind]
        assert partition.requests == requests + 1

        async def accepted(record: bytes) -> None:
            while not isinstance(answers[-1], Appended):
                answers.clear()
                client.append(GROUP, batch_of([record]), answers.append)
                await until(lambda: answers, "an answer")
            answers.append(None)

        await asyncio.wait_for(accepted(b"first"), 40)
        await asyncio.wait_for(accepted(b"second"), 40)
        assert [record for records in partition.records for record in records] == [b"before", b"first", b"second"]


async def test_what_was_sent_behind_a_request_whose_outcome_is_unknown_is_refused() -> None:
    """The first may be lost, and will be sent again by its producer: the second must not be in the log by then."""
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = MemoryPartition()
        partition.failure = Failed("unknown", True, "leadership lost")
        stand_in = partition.append

        def lose_once(records: list[bytes], done: Any, numbers: Any = None) -> None:
            stand_in(records, done)
            partition.failure = None  # it leads again

        partition.append = lose_once  # type: ignore[method-assign]
        client = nodes[1].network.client(2)
        answers: list[Any] = []
        client.append(GROUP, batch_of([b"first"]), answers.append)
        client.append(GROUP, batch_of([b"second"]), answers.append)
        await until(lambda: len(answers) == 2, "both answers")
        assert [answer.kind for answer in answers] == ["unknown", "not_leader"]
        client.append(GROUP, batch_of([b"again"]), answers.append)
        await until(lambda: len(answers) == 3, "the next stream")
        assert [record for records in partition.records for record in records] == [b"again"]


async def test_after_a_refusal_the_stream_takes_no_more_until_what_came_before_is_answered() -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = MemoryPartition()
        partition.held = []
        client = nodes[1].network.client(2)
        answers: list[Any] = []
        client.append(GROUP, batch_of([b"held"]), answers.append)
        await until(lambda: partition.requests == 1, "the request")
        partition.failure = Failed("overloaded", True, "not now")
        client.append(GROUP, batch_of([b"refused"]), answers.append)
        await until(lambda: answers, "the refusal")
        partition.failure = None
        client.append(GROUP, batch_of([b"later"]), answers.append)
        assert [answer.kind for answer in answers] == ["overloaded", "overloaded"]
        held, partition.held = partition.held, None
        held[0]()
        await until(lambda: len(answers) == 3, "the answer that was held back")
        client.append(GROUP, batch_of([b"again"]), answers.append)
        await until(lambda: len(answers) == 4, "the next stream")
        assert answers[2:] == [Appended(0, 1001), Appended(1, 1003)]


async def test_a_refusal_stands_at_both_ends_whatever_is_answered_after_it() -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = MemoryPartition()
        asked: list[Any] = []
        partition.append = lambda batch, done, begins=None: asked.append(done)  # type: ignore[method-assign]
        client = nodes[1].network.client(2)
        answers: list[Any] = []
        too_large = Failed("too_large", False, "more than an entry holds")
        for record in (b"first", b"second", b"third", b"fourth"):
            client.append(GROUP, batch_of([record]), answers.append)
        await until(lambda: len(asked) == 4, "the requests")
        asked[1](Failed("overloaded", True, "not now"))
        asked[0](too_large)
        client.append(GROUP, batch_of([b"sent before anything was heard"]), answers.append)
        await until(lambda: len(answers) == 3, "three refusals")
        asked[2](too_large)
        await until(lambda: len(answers) == 4, "another one, which is for good")
        client.append(GROUP, batch_of([b"not sent"]), answers.append)
        kinds = [answer.kind for answer in answers]
        assert kinds == ["overloaded", "too_large", "overloaded", "too_large", "overloaded"]
        asked[3](Appended(0, 1001))
        await until(lambda: len(answers) == 6, "the last answer")
        assert len(asked) == 4


async def test_a_group_that_the_node_does_not_host_is_not_led_there() -> None:
    async with cluster_of(1, 2) as nodes:
        answers: list[Any] = []
        nodes[1].network.client(2).append(99, batch_of([b"x"]), answers.append)
        await until(lambda: answers, "the answer")
        assert answers[0].kind == "not_leader"
        assert answers[0].retriable
        assert "no replica of group 99" in answers[0].detail


async def test_when_the_connection_breaks_what_was_sent_is_unknown() -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = MemoryPartition()
        partition.held = []
        answers: list[Any] = []
        for _ in range(10):
            nodes[1].network.client(2).append(GROUP, batch_of([b"x"]), answers.append)
        await until(lambda: partition.requests == 10, "the requests")
        for answer in partition.held[:4]:
            answer()
        await until(lambda: len(answers) == 4, "the answers that were given")
        await nodes[2].network.stop()
        await until(lambda: len(answers) == 10, "the others")
        assert [type(answer) for answer in answers] == [Appended] * 4 + [Failed] * 6
        assert {answer.kind for answer in answers[4:]} == {"unknown"}


async def test_what_never_left_was_certainly_not_appended() -> None:
    addresses = {1: f"127.0.0.1:{free_port()}", 2: f"127.0.0.1:{free_port()}"}  # nobody is at the second
    node = TestNode(1, addresses)
    await node.network.start()
    try:
        answers: list[Any] = []
        for _ in range(10):
            node.network.client(2).append(GROUP, batch_of([b"x"]), answers.append)
        took_s = await until(lambda: len(answers) == 10, "refusals")
        assert took_s < SOON_S
        assert {answer.kind for answer in answers} == {"not_leader"}
        assert all(answer.certainly_not_appended and answer.retriable for answer in answers)
        assert "not sent" in answers[0].detail
    finally:
        await node.network.stop()


@pytest.mark.silence
async def test_a_black_hole_ends_the_wait_within_seconds_and_the_next_append_finds_a_way() -> None:
    ports = {1: free_port(), 2: free_port()}
    addresses = {node: f"127.0.0.1:{port}" for node, port in ports.items()}
    async with CutWire(ports[2]) as wire:
        first, second = TestNode(1, addresses, dial={2: f"127.0.0.1:{wire.port}"}), TestNode(2, addresses)
        second.groups[GROUP] = MemoryPartition()
        await first.network.start()
        await second.network.start()
        try:
            answers: list[Any] = []
            first.network.client(2).append(GROUP, batch_of([b"before"]), answers.append)
            await until(lambda: answers, "the answer")
            wire.freeze()
            first.network.client(2).append(GROUP, batch_of([b"lost?"]), answers.append)
            took_s = await until(lambda: len(answers) == 2, "the end of the wait")
            assert took_s < SOON_S
            assert answers[1].kind == "unknown"
            wire.thaw()

            later: list[Any] = []

            def again(_: Any = None) -> None:
                if not (later and isinstance(later[-1], Appended)):
                    loop.call_later(0.05, first.network.client(2).append, GROUP, batch_of([b"after"]), answered)

            def answered(outcome: Any) -> None:
                later.append(outcome)
                again()

            loop = asyncio.get_running_loop()
            again()
            await until(lambda: later and isinstance(later[-1], Appended), "an append that succeeds")
        finally:
            await first.network.stop()
            await second.network.stop()


async def test_a_partition_that_answers_nothing_is_not_flooded() -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = MemoryPartition()
        other = nodes[2].groups[GROUP + 1] = MemoryPartition()
        partition.held = []
        answers: list[Any] = []
        for _ in range(80):
            nodes[1].network.client(2).append(GROUP, batch_of([bytes(1 << 20)]), answers.append)
            await asyncio.sleep(0)
        refused = len(answers)
        assert refused >= 80 - (options.APPEND_UNANSWERED_BYTES >> 20)
        assert {(answer.kind, answer.retriable) for answer in answers} == {("overloaded", True)}
        elsewhere: list[Any] = []
        nodes[1].network.client(2).append(GROUP + 1, batch_of([b"x"]), elsewhere.append)
        await until(lambda: elsewhere, "another partition, which is not held up")
        assert other.requests == 1
        await until(lambda: partition.requests == 80 - refused, "the accepted ones")
        held, partition.held = partition.held, None
        for answer in held:
            answer()
        await until(lambda: len(answers) == 80, "the answers")
        nodes[1].network.client(2).append(GROUP, batch_of([bytes(1 << 20)]), answers.append)
        await until(lambda: len(answers) == 81, "room again")
        assert isinstance(answers[-1], Appended)


async def test_an_idle_stream_is_closed_and_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "STREAM_IDLE_S", 0.2)
    async with cluster_of(1, 2) as nodes:
        nodes[2].groups[GROUP] = MemoryPartition()
        client: Any = nodes[1].network.client(2)
        answers: list[Any] = []
        client.append(GROUP, batch_of([b"x"]), answers.append)
        await until(lambda: answers and not client._appends, "the stream to be closed")
        client.append(GROUP, batch_of([b"x"]), answers.append)
        await until(lambda: len(answers) == 2, "the second answer")
        assert answers == [Appended(0, 1001), Appended(1, 1002)]


async def test_stopping_answers_everything() -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = MemoryPartition()
        partition.held = []
        answers: list[Any] = []
        nodes[1].network.client(2).append(GROUP, batch_of([b"x"]), answers.append)
        await until(lambda: partition.requests == 1, "the request")
        nodes[1].network.client(2).append(GROUP + 1, batch_of([b"x"]), answers.append)  # its stream has not begun yet
        await nodes[1].network.stop()
        assert len(answers) == 2
        assert answers[0].kind == "unknown"
        nodes[1].network.client(2).append(GROUP, batch_of([b"x"]), answers.append)
        assert answers[-1].kind == "not_leader"


async def test_a_new_address_is_used_from_then_on_and_the_old_connection_is_given_up() -> None:
    ports = {1: free_port(), 2: free_port()}
    addresses = {node: f"127.0.0.1:{port}" for node, port in ports.items()}
    async with CutWire(ports[2]) as wire:
        first, second = TestNode(1, addresses), TestNode(2, addresses)
        partition = second.groups[GROUP] = MemoryPartition()
        await first.network.start()
        await second.network.start()
        try:
            await first.up(2)
            answers: list[Any] = []
            first.network.client(2).append(GROUP, batch_of([b"x"]), answers.append)
            await until(lambda: answers, "the answer")
            partition.held = []
            first.network.client(2).append(GROUP, batch_of([b"x"]), answers.append)
            await until(lambda: partition.requests == 2, "the request")
            first.network.set_address(2, f"127.0.0.1:{wire.port}")
            await first.network.client(2).info(GROUP)
            await until(lambda: len(answers) == 2, "the request on the old connection")
            assert answers[1].kind == "unknown"
            assert wire.connections == 1
            with pytest.raises(KeyError, match="is not a peer"):
                first.network.set_address(9, "127.0.0.1:1")
        finally:
            await first.network.stop()
            await second.network.stop()
