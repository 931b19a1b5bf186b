"""Commands of the metadata group with values that cannot be: refused wherever they enter, and nothing changes."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import DecodeError

from cluster.metadata import (
    CommandProposer,
    InvalidRequest,
    MetadataMachine,
    Ok,
    Refusal,
    create_log,
    encode_command,
    from_request,
    readmit_node,
    register_node,
)
from cluster.metadata import metadata_pb2 as pb
from cluster.metadata.codec import CheckpointUnreadable, decode_checkpoint, decode_result
from cluster.metadata.command_validation import MAX_LISTENERS
from cluster.stale_copy_detection import DirectoryStart
from tests.simulation.world.disk import SimBatch

HIGHEST = (1 << 63) - 1


def named(command: pb.Command, request_id: bytes) -> pb.Command:
    command.request_id = request_id
    return command


def listening(count: int, address: str = "h:1") -> pb.Command:
    return register_node(1, "h:1", {f"l{number}": address for number in range(count)})


WRONG: dict[str, tuple[pb.Command, str]] = {
    "a time before all": (create_log("a", now_ms=-1, replicas=1), "CreateLog.now_ms is -1"),
    "a time after all": (create_log("a", now_ms=HIGHEST, replicas=1), f"CreateLog.now_ms is {HIGHEST}"),
    "a node": (pb.Command(readmit_node=pb.ReadmitNode(node=(1 << 32) - 1, incarnation=1)), "ReadmitNode.node"),
    "a count of starts": (register_node(1, "h:1", {}, 7, DirectoryStart((1 << 64) - 1, (1,))), "RegisterNode.boot"),
    "many starts": (register_node(1, "h:1", {}, 7, DirectoryStart(5000, (1,) * 5000)), "RegisterNode.marks are 5000"),
    "a long id": (named(create_log("a", now_ms=1, replicas=1), bytes(65)), "Command.request_id has 65 bytes"),
    "many listeners": (listening(MAX_LISTENERS + 1), "RegisterNode.listeners are 17"),
    "a long address": (listening(1, "h" * 301), "address"),
    "a long address of the node": (register_node(1, "h" * 301, {}), "address"),
    "a long name": (register_node(1, "h:1", {"l" * 201: "h:1"}), "name of a listener"),
}


@pytest.mark.parametrize(("command", "says"), WRONG.values(), ids=WRONG)
def test_the_state_machine_refuses_it_and_changes_nothing(command: pb.Command, says: str) -> None:
    machine = MetadataMachine()
    assert machine.apply(2, 1, encode_command(register_node(1, "h:1", {})), SimBatch()) == Ok()
    before = machine.checkpoint()
    result = machine.apply(3, 1, encode_command(command), SimBatch())
    assert isinstance(result, Refusal)
    assert result.code == "invalid-argument"
    assert says in result.message
    assert machine.checkpoint() == before


class NoGroup:
    """Leads, and must not be asked."""

    is_leader, leader = True, 1

    def propose(self, data: bytes, done: Any) -> int:
        raise AssertionError("proposed")


@pytest.mark.parametrize(("command", "says"), WRONG.values(), ids=WRONG)
async def test_neither_a_peer_nor_this_node_gets_it_proposed(command: pb.Command, says: str) -> None:
    async def nobody(*_: object) -> bytes:
        raise AssertionError("forwarded")

    proposer = CommandProposer(NoGroup(), 1, nobody)  # type: ignore[arg-type]
    for result in (
        await proposer.execute(command),
        decode_result(await proposer.execute_here(command.SerializeToString())),
    ):
        assert isinstance(result, Refusal)
        assert result.code == "invalid-argument"
        assert says in result.message


async def test_a_leader_that_answers_what_cannot_be_is_not_believed() -> None:
    class Follower(NoGroup):
        is_leader, leader = False, 2

    async def nonsense(*_: object) -> bytes:
        return pb.Result(log=pb.Log(name="a", created_ms=HIGHEST)).SerializeToString()

    result = await CommandProposer(Follower(), 1, nonsense).execute(create_log("a", now_ms=1), 0.3)  # type: ignore[arg-type]
    assert isinstance(result, Refusal)
    assert result.code == "unknown"
    assert "Log.created_ms" in result.message


@pytest.mark.parametrize("value", [1 << 63, -(1 << 63) - 1, 10**5000], ids=["beyond", "before", "enormous"])
@pytest.mark.parametrize("argument", ["partitions", "replicas", "retention_ms", "retention_bytes"])
def test_what_a_person_asks_for_is_refused_by_name(argument: str, value: int) -> None:
    with pytest.raises(InvalidRequest, match=f"{argument}: out of range"):
        from_request("log.create", {"name": "a", argument: value}, now_ms=1, nodes=3)


@pytest.mark.parametrize("incarnation", ["77", 1.5, True, -1, 1 << 64, None])
def test_an_incarnation_that_is_none_is_refused_by_name(incarnation: Any) -> None:
    with pytest.raises(InvalidRequest, match="incarnation"):
        readmit_node(3, incarnation)


def test_a_checkpoint_or_a_result_that_says_what_cannot_be_is_not_taken() -> None:
    machine = MetadataMachine()
    for index, command in enumerate((register_node(1, "h:1", {}), create_log("a", now_ms=1, replicas=1)), start=2):
        assert isinstance(machine.apply(index, 1, encode_command(command), SimBatch()), Ok)
    checkpoint = pb.Checkpoint.FromString(machine.checkpoint())
    decode_checkpoint(checkpoint.SerializeToString())
    checkpoint.logs[0].created_ms = HIGHEST
    with pytest.raises(CheckpointUnreadable, match=r"Log\.created_ms"):
        decode_checkpoint(checkpoint.SerializeToString())
    with pytest.raises(DecodeError, match=r"Partition\.group"):
        decode_result(pb.Result(log=pb.Log(partitions=[pb.Partition(group=1 << 63)])).SerializeToString())
