"""A command with a kind or a field of a later version stops a replica; one that is merely nonsense is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from cluster.raft import UnknownEntry
from node.partition.consumer_groups.group_state import Commit
from node.partition.partition_commands import encode_group_command, encode_transaction_command
from node.partition.state_machine import AppendRejected, PartitionMachine
from node.partition.transactions.transaction_commands import Prepare
from node.transaction_coordinator.coordinator_commands import Declined, ForgetIdle, encode
from node.transaction_coordinator.state_machine import CoordinatorMachine
from node.transaction_coordinator.transaction_groups.group_commands import ForgetWriter

COMMIT = encode_group_command(Commit("g", 0, 0, 5))
PREPARE = encode_transaction_command(Prepare(1, 2, 5))


def partition(data: bytes) -> Any:
    result, _ = PartitionMachine().apply(3, data)
    return result


def coordinator(data: bytes) -> Any:
    return CoordinatorMachine(7).apply(3, data)


WAYS: dict[str, tuple[Callable[[bytes], Any], bytes, bytes]] = {
    "group": (partition, COMMIT[:3], COMMIT[3:]),
    "transaction": (partition, PREPARE[:3], PREPARE[3:]),
    "coordinator": (coordinator, b"", encode(ForgetIdle(5))),
    "group of the coordinator": (coordinator, b"", encode(ForgetWriter("w", 5))),
}


@pytest.mark.parametrize("way", sorted(WAYS))
def test_a_kind_or_a_field_of_a_later_version_stops_the_replica(way: str) -> None:
    apply, head, body = WAYS[way]
    row = msgspec.msgpack.decode(body)
    for later in ([*row, 1], [99, *row[1:]], [99]):
        with pytest.raises(UnknownEntry, match=r"entry 3: .*command .*which this program does not know: install"):
            apply(head + msgspec.msgpack.encode(later))


@pytest.mark.parametrize("way", sorted(WAYS))
def test_nonsense_is_refused_and_the_replica_goes_on(way: str) -> None:
    apply, head, body = WAYS[way]
    row = msgspec.msgpack.decode(body)
    for nonsense in (body[:-1], b"\xc1", b"", msgspec.msgpack.encode(7), msgspec.msgpack.encode([]),
                     msgspec.msgpack.encode([row[0], *([{}] * (len(row) - 1))])):  # fmt: skip
        assert isinstance(apply(head + nonsense), AppendRejected | Declined), nonsense


@pytest.mark.parametrize("way", sorted(WAYS))
def test_what_is_of_this_version_is_carried_out(way: str) -> None:
    apply, head, body = WAYS[way]
    assert not isinstance(apply(head + body), AppendRejected)
