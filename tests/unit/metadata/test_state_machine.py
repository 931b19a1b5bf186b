"""The metadata group's state machine: what commands do, and that every node does the same."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from cluster.metadata import (
    LogRecord,
    MetadataMachine,
    MetadataView,
    Ok,
    Refusal,
    alter_log,
    create_log,
    delete_log,
    encode_command,
    register_node,
)
from cluster.metadata import metadata_pb2 as pb
from cluster.metadata.codec import CHECKPOINT_VERSION, CheckpointUnreadable, decode_result, encode_result
from cluster.metadata.state import MAX_PARTITIONS_PER_LOG, REMEMBERED_REQUESTS
from cluster.raft import UnknownEntry


class NoBatch:
    """The machine keeps its state in checkpoints; it writes nothing."""

    def put(self, key: bytes, value: bytes) -> None:
        raise AssertionError("the metadata machine writes no keys")

    def delete(self, key: bytes) -> None:
        raise AssertionError("the metadata machine deletes no keys")

    def delete_range(self, start: bytes, end: bytes) -> None:
        raise AssertionError("the metadata machine deletes no keys")

    def extend(self, other: object) -> None:
        raise AssertionError("the metadata machine writes no keys")


class Cluster:
    """A machine with an index that counts."""

    def __init__(self, nodes: int = 0) -> None:
        self.machine = MetadataMachine()
        self.machine.restore(0, None)
        self.view = MetadataView(self.machine)
        self.index = 0
        for node in range(1, nodes + 1):
            self.do(register_node(node, f"10.0.0.{node}:7101", {"default": f"10.0.0.{node}:5672"}))

    def do(self, command: pb.Command) -> Any:
        return self.apply(encode_command(command))

    def apply(self, data: bytes) -> Any:
        self.index += 1
        return self.machine.apply(self.index, 1, data, NoBatch())

    def create(self, name: str, **options: Any) -> LogRecord:
        result = self.do(create_log(name, now_ms=1000, **options))
        assert isinstance(result, Ok), result
        assert result.log is not None
        return result.log


def test_a_log_is_created_with_its_partitions_placed_and_its_groups_numbered() -> None:
    cluster = Cluster(nodes=3)
    log = cluster.create("trades", partitions=4, replicas=3, retention_ms=86_400_000)
    assert [p.name for p in log.partitions] == ["0", "1", "2", "3"]
    assert [p.group for p in log.partitions] == [1, 2, 3, 4]
    assert all(sorted(p.replicas) == [1, 2, 3] for p in log.partitions)
    assert (log.retention_ms, log.retention_bytes, log.created_ms) == (86_400_000, None, 1000)
    assert cluster.view.log("trades") == log


def test_creating_it_again_is_refused_even_with_the_same_parameters() -> None:
    cluster = Cluster(nodes=3)
    cluster.create("trades", partitions=2)
    again = cluster.do(create_log("trades", partitions=2, now_ms=2000))
    assert isinstance(again, Refusal)
    assert again.code == "already-exists"
    assert "2 partitions" in again.message


def test_a_retry_of_the_same_request_gets_the_first_answer() -> None:
    cluster = Cluster(nodes=3)
    command = create_log("trades", partitions=2, now_ms=1000)
    command.request_id = b"r" * 16
    first = cluster.do(command)
    assert cluster.do(command) == first == Ok(cluster.view.log("trades"))
    assert cluster.view.log("trades") is not None

    refused = create_log("trades", partitions=9, now_ms=1000)
    refused.request_id = b"s" * 16
    answer = cluster.do(refused)
    cluster.do(delete_log("trades"))
    assert cluster.do(refused) == answer, "a retry is never a second attempt"
    assert cluster.view.log("trades") is None


def test_requests_are_remembered_across_a_checkpoint_and_forgotten_in_the_end() -> None:
    cluster = Cluster(nodes=1)
    command = create_log("trades", replicas=1, now_ms=1000)
    command.request_id = b"first"
    first = cluster.do(command)

    cluster.machine.restore(cluster.index, cluster.machine.checkpoint())
    assert cluster.do(command) == first

    for number in range(REMEMBERED_REQUESTS):
        other = delete_log("nothing")
        other.request_id = number.to_bytes(2, "big")
        cluster.do(other)
    assert isinstance(cluster.do(command), Refusal)
    assert len(cluster.machine.state.remembered) == REMEMBERED_REQUESTS


@pytest.mark.parametrize("name", ["", ".hidden", "$info", "a/b", "a b", "x" * 201, "ä", "a\n", "a\x00"])
def test_bad_names_are_refused(name: str) -> None:
    result = Cluster(nodes=1).do(create_log(name, replicas=1, now_ms=0))
    assert isinstance(result, Refusal)
    assert result.code == "invalid-argument"
    assert "characters" in result.message


@pytest.mark.parametrize("name", ["a", "trades", "A.b-c_9", "-", "_", "x" * 200])
def test_good_names_are_taken(name: str) -> None:
    assert isinstance(Cluster(nodes=1).do(create_log(name, replicas=1, now_ms=0)), Ok)


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        ({"partitions": 0}, "invalid-argument", "partitions 0"),
        ({"partitions": -5}, "invalid-argument", "partitions -5"),
        ({"partitions": MAX_PARTITIONS_PER_LOG + 1}, "invalid-argument", "1 to 1024"),
        ({"replicas": 0}, "invalid-argument", "replicas 0"),
        ({"replicas": 8}, "invalid-argument", "replicas 8"),
        ({"replicas": 4}, "not-enough-nodes", "registered: 1, 2, 3"),
        ({"retention_ms": -1}, "invalid-argument", "retention_ms -1"),
        ({"retention_bytes": 2**63 - 1}, "invalid-argument", "retention_bytes"),
    ],
)
def test_impossible_parameters_are_refused_with_the_reason(options: dict[str, int], code: str, says: str) -> None:
    cluster = Cluster(nodes=3)
    before = cluster.machine.checkpoint()
    result = cluster.do(create_log("trades", now_ms=0, **options))
    assert isinstance(result, Refusal)
    assert (result.code, says in result.message) == (code, True), result
    assert cluster.machine.checkpoint() == before, "a refused command changes nothing"


def test_partitions_can_be_added_and_never_removed() -> None:
    cluster = Cluster(nodes=3)
    before = cluster.create("trades", partitions=2)
    cluster.create("other", partitions=1)
    after = cluster.do(alter_log("trades", partitions=4)).log
    assert after.partitions[:2] == before.partitions
    assert [p.group for p in after.partitions] == [1, 2, 4, 5]
    assert cluster.do(alter_log("trades", partitions=4)) == Ok(after), "asking for what is there changes nothing"
    fewer = cluster.do(alter_log("trades", partitions=3))
    assert isinstance(fewer, Refusal)
    assert "only grow" in fewer.message


def test_retention_is_changed_alone_and_lifted_by_zero() -> None:
    cluster = Cluster(nodes=3)
    cluster.create("trades", partitions=2, retention_ms=5, retention_bytes=7)
    log = cluster.do(alter_log("trades", retention_bytes=9)).log
    assert (log.retention_ms, log.retention_bytes, len(log.partitions)) == (5, 9, 2)
    log = cluster.do(alter_log("trades", retention_ms=0)).log
    assert (log.retention_ms, log.retention_bytes) == (None, 9)


def test_compression_is_changed_alone_and_ended_by_none() -> None:
    cluster = Cluster(nodes=3)
    assert cluster.create("trades", retention_ms=5).compression == "none"
    assert cluster.create("ticks", compression="gzip").compression == "gzip"
    log = cluster.do(alter_log("trades", compression="zstd")).log
    assert (log.compression, log.retention_ms) == ("zstd", 5)
    log = cluster.do(alter_log("trades", retention_ms=6)).log
    assert (log.compression, log.retention_ms) == ("zstd", 6)
    for ended in ("", "none"):
        cluster.do(alter_log("trades", compression="gzip"))
        assert cluster.do(alter_log("trades", compression=ended)).log.compression == "none"


@pytest.mark.parametrize("name", ["snappy", "lz4", "ZSTD", "zstd ", "x" * 1000])
def test_compression_that_there_is_not_is_refused_by_name(name: str) -> None:
    cluster = Cluster(nodes=3)
    cluster.create("trades")
    before = cluster.machine.checkpoint()
    for command in (create_log("other", now_ms=0, compression=name), alter_log("trades", compression=name)):
        refused = cluster.do(command)
        assert isinstance(refused, Refusal)
        assert refused.code == "invalid-argument"
        assert name[:40] in refused.message
        assert "none, gzip, zstd" in refused.message
        assert len(refused.message) < 200
    assert cluster.machine.checkpoint() == before


OLD_COMMANDS = (
    "00121708011203683a311a0e0a0764656661756c741203683a32",  # register node 1
    "001a0b0a01611001180120053007",  # create log a: one partition, one replica, retention_ms 5, now_ms 7
    "0022050a01611805",  # alter log a: retention_ms 5
)
NOW_WRITTEN = (
    "080610021802221708011203683a311a0e0a0764656661756c741203683a32"  # node 1
    "2a120a016110011801200530073a050801120101"  # log a
)
"""The checkpoint after these commands."""


def test_commands_that_say_no_compression_leave_it_as_it_is() -> None:
    cluster = Cluster()
    for command in OLD_COMMANDS:
        assert isinstance(cluster.apply(bytes.fromhex(command)), Ok)
    assert cluster.view.logs["a"].compression == "none"
    assert cluster.machine.checkpoint().hex() == NOW_WRITTEN
    restored = Cluster()
    cluster.do(alter_log("a", compression="zstd"))
    restored.machine.restore(4, cluster.machine.checkpoint())
    assert restored.view.logs["a"].compression == "zstd"
    assert restored.apply(bytes.fromhex(OLD_COMMANDS[2])).log.compression == "zstd", "what it does not say stays"
    restored.do(alter_log("a", compression="none"))
    assert restored.machine.checkpoint().hex() == NOW_WRITTEN


@pytest.mark.parametrize("name", ["brotli", "none of these", "x" * 100])
def test_a_compression_of_the_future_is_not_taken_for_none(name: str) -> None:
    log = pb.Log(name="a", id=1, replicas=1, compression=name)
    with pytest.raises(CheckpointUnreadable, match=rf"Log\.compression of 'a' is '{name[:40]}'"):
        MetadataMachine().restore(1, pb.Checkpoint(version=CHECKPOINT_VERSION, logs=[log]).SerializeToString())
    with pytest.raises(DecodeError, match=r"Log\.compression"):
        decode_result(pb.Result(log=log).SerializeToString())


def test_a_deleted_log_is_gone_and_its_groups_are_never_used_again() -> None:
    cluster = Cluster(nodes=3)
    first = cluster.create("trades", partitions=2)
    assert cluster.do(delete_log("trades")) == Ok()
    assert cluster.do(delete_log("trades")).code == "not-found"
    assert cluster.do(alter_log("trades", partitions=3)).code == "not-found"
    second = cluster.create("trades", partitions=2)
    assert {p.group for p in first.partitions}.isdisjoint(p.group for p in second.partitions)
    assert first.id != second.id
    assert [cluster.view.was_deleted(group) for group in range(6)] == [False, True, True, False, False, False]


def test_nodes_register_again_with_other_addresses_but_not_more_than_can_vote() -> None:
    cluster = Cluster(nodes=7)
    assert cluster.do(register_node(3, "new:1", {"default": "new:2", "tls": "new:3"})) == Ok()
    assert cluster.view.nodes[3].rpc_address == "new:1"
    assert cluster.view.listener_address(3, "tls") == "new:3"
    assert cluster.view.listener_address(3, "absent") == "new:2"
    assert cluster.view.listener_address(99, "default") is None
    assert cluster.do(register_node(8, "x:1", {})).code == "invalid-argument"
    assert cluster.do(register_node(0, "x:1", {})).code == "invalid-argument"


@pytest.mark.parametrize(
    "data", [b"\0\xff\xff\xff", b"\0", b"", b"\0" + pb.Command(request_id=b"x").SerializeToString()]
)
def test_commands_that_ask_for_nothing_are_answers_not_exceptions(data: bytes) -> None:
    result = Cluster(nodes=1).apply(data)
    assert isinstance(result, Refusal)
    assert result.code == "invalid-argument"


@given(data=st.binary(max_size=64))
def test_no_bytes_whatever_raise(data: bytes) -> None:
    with contextlib.suppress(UnknownEntry):  # which stops this replica, by name
        assert isinstance(Cluster().apply(b"\0" + data), Ok | Refusal)


names = st.sampled_from(["a", "b", "c", "$bad"])
small = st.integers(-1, 6)
compressions = st.sampled_from(["", "none", "gzip", "zstd", "lz4"])
commands = st.one_of(
    st.builds(
        lambda node, drawn: register_node(node, f"h:{node}", {"default": f"h:{node + 1}"}, cluster_id=drawn),
        st.integers(0, 9),
        st.integers(0, 3),
    ),
    st.builds(lambda name, p, r: create_log(name, partitions=p, replicas=r, now_ms=p), names, small, small),
    st.builds(lambda name, how: create_log(name, replicas=1, now_ms=1, compression=how), names, compressions),
    st.builds(lambda name, how: alter_log(name, compression=how), names, compressions),
    st.builds(lambda name, p, r: alter_log(name, partitions=p, retention_ms=r), names, small, small),
    st.builds(delete_log, names),
)


@given(history=st.lists(st.tuples(commands, st.sampled_from([b"", b"1", b"2"])), max_size=30), cut=st.integers(0, 30))
def test_replicas_agree_to_the_byte_also_when_one_was_restored_on_the_way(
    history: list[tuple[pb.Command, bytes]], cut: int
) -> None:
    steady, restored = Cluster(), Cluster()
    for number, (command, request_id) in enumerate(history):
        command = pb.Command.FromString(command.SerializeToString())
        command.request_id = request_id
        if number == cut:
            checkpoint = restored.machine.checkpoint()
            restored.machine.restore(restored.index, checkpoint)
            assert restored.machine.checkpoint() == checkpoint
        assert steady.do(command) == restored.do(command)
        assert steady.machine.checkpoint() == restored.machine.checkpoint()
    groups = [p.group for log in steady.view.logs.values() for p in log.partitions]
    assert len(groups) == len(set(groups))
    assert 0 not in groups, "group 0 is the metadata group itself"


@given(history=st.lists(commands, max_size=20))
def test_every_answer_survives_the_wire(history: list[pb.Command]) -> None:
    cluster = Cluster(nodes=2)
    for command in history:
        result = cluster.do(command)
        assert decode_result(encode_result(result)) == result


def registration(node: int, drawn: int) -> pb.Command:
    return register_node(node, f"h:{node}", {"default": f"h:{node}0"}, cluster_id=drawn)


def test_a_cluster_gets_its_identity_with_its_first_node_and_keeps_it() -> None:
    cluster = Cluster()
    assert cluster.view.cluster_id is None
    assert cluster.do(registration(0, 5)).code == "invalid-argument"
    assert cluster.view.cluster_id is None, "what is refused changes nothing"
    for node, drawn in ((1, 6), (2, 7), (1, 8)):
        assert cluster.do(registration(node, drawn)) == Ok()
        assert cluster.view.cluster_id == f"{6:016x}"
    restored = Cluster()
    restored.machine.restore(9, cluster.machine.checkpoint())
    assert restored.view.cluster_id == f"{6:016x}"
    restored.do(registration(3, 9))
    assert restored.view.cluster_id == f"{6:016x}"


def test_a_checkpoint_of_another_version_or_damaged_stops_the_node() -> None:
    machine = MetadataMachine()
    for version in (5, 9):
        with pytest.raises(CheckpointUnreadable, match=f"version {version}"):
            machine.restore(1, pb.Checkpoint(version=version).SerializeToString())
    with pytest.raises(CheckpointUnreadable, match="damaged"):
        machine.restore(1, b"\xff\xff")
