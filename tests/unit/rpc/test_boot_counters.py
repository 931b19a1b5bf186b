"""Older copies of a node's data, and two processes on the same: who is let in, and who is told what to do."""

from __future__ import annotations

from cluster.metadata import MetadataMachine, MetadataView, Ok, Refusal, encode_command, readmit_node, register_node
from cluster.rpc.boot_counters import Start, Starts
from cluster.rpc.handshake import Who
from tests.simulation.world.disk import SimBatch
from tests.unit.rpc.support import TestNode, cluster_of, until

INCARNATION = 77


def view_of(*commands: object) -> tuple[MetadataView, list[object]]:
    machine = MetadataMachine()
    results = [
        machine.apply(2 + index, 1, encode_command(command), SimBatch())  # type: ignore[arg-type]
        for index, command in enumerate(commands)
    ]
    return MetadataView(machine), results


def registration(boot: int, life: int, incarnation: int = INCARNATION) -> object:
    return register_node(3, "10.0.0.3:7000", {}, incarnation, (boot, life))


def who(node: int, view: MetadataView, incarnation: int, start: Start) -> Who:
    return Who(
        "prod", node, frozenset({1, 2, 3} - {node}), incarnation, (1, 2, 3), view.incarnation, lambda: False, start,
        view.start, view.readmitted_life,
    )  # fmt: skip


def test_only_a_later_start_or_the_same_process_may_be_the_latest() -> None:
    starts = Starts(lambda node: (7, 1000))
    assert starts.fault(3, INCARNATION, Start(7, 1000)) is None
    assert starts.fault(3, INCARNATION, Start(8, 1001)) is None
    assert "older copy" in str(starts.fault(3, INCARNATION, Start(6, 1002)))
    assert "works on a copy" in str(starts.fault(3, INCARNATION, Start(7, 1003)))
    starts.welcomed(3, INCARNATION, Start(9, 1004))
    assert "start 9 was here" in str(starts.fault(3, INCARNATION, Start(8, 1001)))
    assert starts.latest(3, INCARNATION + 1) == Start(7, 1000), "another directory's starts are its own"
    starts.is_a_copy(3, Start(10, 1005))
    assert starts.fault(3, INCARNATION, Start(10, 1005)) is not None
    assert starts.fault(3, INCARNATION, Start(10, 1006)) is None
    assert starts.fault(3, INCARNATION, Start()) is None, "tools and tests do not tell"


def test_the_metadata_remember_the_latest_start_and_refuse_an_older_one() -> None:
    view, results = view_of(
        registration(5, 50), registration(5, 50), registration(6, 60), registration(5, 50), registration(6, 61),
        registration(7, 70),
    )  # fmt: skip
    assert [type(result) for result in results] == [Ok, Ok, Ok, Refusal, Refusal, Ok]
    assert "older copy" in str(results[3])
    assert view.start(3) == (7, 70)


def test_an_older_copy_is_refused_by_all_and_refuses_who_expects_a_later_start() -> None:
    view, _ = view_of(registration(7, 70))
    old, _ = view_of(registration(4, 40))
    copy, peer = who(3, old, INCARNATION, Start(5, 51)), who(1, view, 11, Start(1, 1))
    refusal = str(peer.refusal(copy.hello_to(1)))
    assert "start 7 was here" in refusal
    assert "holdfast node readmit 3" in refusal
    assert peer.copies == {3: 51}
    assert "does not come with the latest" in str(copy.refusal(peer.hello_to(3)))
    latest = who(3, view, INCARNATION, Start(8, 80))
    assert peer.refusal(latest.hello_to(1)) is None
    peer.welcomed(latest.hello_to(1))
    assert peer.copies == {}
    assert latest.refusal(peer.hello_to(3)) is None


def test_a_copy_that_is_let_in_takes_another_incarnation() -> None:
    view, results = view_of(registration(7, 70), readmit_node(3, 99, 51))
    assert isinstance(results[1], Ok)
    assert view.nodes[3].former_incarnations == (INCARNATION,)
    assert view.start(3) == (0, 0)
    peer = who(1, view, 11, Start(1, 1))
    copy = who(3, view, INCARNATION, Start(5, 51))
    assert peer.refusal(copy.hello_to(1)) is not None, "not as what it was"
    assert peer.come_as(copy.hello_to(1)) == 99
    another = who(3, view, INCARNATION, Start(6, 52))
    assert peer.come_as(another.hello_to(1)) == 0, "another process was not meant"
    renamed = who(3, view, 99, Start(1, 51))
    assert peer.refusal(renamed.hello_to(1)) is None
    assert peer.come_as(renamed.hello_to(1)) == 0


def identified(node: TestNode, start: Start) -> TestNode:
    node.network._who.incarnation, node.network._who.start = INCARNATION + node.node, start
    return node


async def test_a_clone_beside_the_original_is_refused_as_long_as_that_speaks_and_its_life_for_good() -> None:
    async with cluster_of(1, 2, prepare=lambda node: identified(node, Start(4, 10 * node.node))) as nodes:
        addresses = dict(nodes[2].network._addresses)
        clone = identified(TestNode(2, {2: "127.0.0.1:0", **addresses}), Start(5, 50))
        await clone.network.start()
        told = clone.network._links[1]
        await until(lambda: "still heard here" in told.last_error, "the first word")
        await until(lambda: "while this one was there" in told.last_error, "the verdict")
        assert nodes[1].events == [("up", 2)], "the original noticed nothing"
        assert nodes[1].network.copy_of(2) == 50
        await nodes[2].network.stop()
        await until(lambda: ("down", 2) in nodes[1].events, "the end of the original")
        refusals = nodes[1].network._inbound._refused
        refusals.clear()
        await until(lambda: refusals, "another refusal of the clone")
        assert not clone.network.status()[1]["outbound"]
        await clone.network.stop()


async def test_a_process_that_follows_another_is_let_in_when_the_old_stream_ends() -> None:
    async with cluster_of(1, 2, prepare=lambda node: identified(node, Start(4, 10 * node.node))) as nodes:
        addresses = dict(nodes[2].network._addresses)
        next_one = identified(TestNode(2, {2: "127.0.0.1:0", **addresses}), Start(5, 50))
        await next_one.network.start()
        await until(lambda: "still heard here" in next_one.network._links[1].last_error, "the first word")
        await nodes[2].network.stop()
        await until(lambda: next_one.network.status()[1]["outbound"], "the welcome")
        assert nodes[1].network.copy_of(2) is None
        await next_one.network.stop()
