"""The formats of version 14 as bytes: what a later program writes while 14 is active, and what it has to read.

A test that fails here tells of a changed format. Bring what is new with a version of its own instead
(docs/internals/formats.md, "A feature of a later version"). The bytes are kept in `frozen_14.json`; they change only
together with a version that nobody has released yet:

    python -m tests.unit.versions.test_frozen_formats
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.metadata import (
    GrantRecord,
    MetadataMachine,
    RuleRecord,
    ScramKeys,
    create_coordinators,
    create_log,
    encode_command,
    grant_command,
    put_rule,
    put_user,
    register_node,
    rotate_rule,
)
from cluster.raft.log.key_layout import FLAG_MUTE, encode_hard_state
from cluster.versions import VersionRange
from holdfast.records.codec import Codec
from node.partition.consumer_groups.group_state import (
    Claim,
    Commit,
    Delete,
    End,
    EndClaim,
    NoteCheckpoint,
    NoteOwner,
)
from node.partition.partition_commands import (
    OpenProducer,
    Trim,
    encode_group_command,
    encode_transaction_command,
)
from node.partition.raft_entry import join
from node.partition.state_machine import PartitionMachine
from node.partition.transactions.control_record import ControlType, Marker
from node.partition.transactions.transaction_commands import Begin, Prepare, StageOffset
from node.transaction_coordinator import coordinator_commands as coordinator
from node.transaction_coordinator.state_machine import CoordinatorMachine
from node.transaction_coordinator.transaction_groups import group_commands as members
from tests.batches import numbered, of_bodies
from tests.simulation.world.disk import SimBatch

VERSION = 14
KEPT = Path(__file__).with_name(f"frozen_{VERSION}.json")
NOW_MS = 1_700_000_000_000
KEYS = (ScramKeys(20_000, b"salt" * 4, b"k" * 32, b"s" * 32), ScramKeys(20_000, b"salt" * 4, b"k" * 64, b"s" * 64))
PRODUCER = (7 << 32) + 1
"""The first producer id of coordinator 7."""
START = coordinator.NodeStart(1, 77, 3)

METADATA = {
    "metadata: register a node": register_node(
        1, "a:7101", {"default": "a:5672"}, 77, cluster_id=99, versions=VersionRange(14, 14)
    ),
    "metadata: register another": register_node(2, "b:7101", {"default": "b:5672"}, 78, versions=VersionRange(14, 14)),
    "metadata: create a log": create_log(
        "orders", now_ms=NOW_MS, partitions=2, replicas=2, retention_ms=1000, retention_bytes=2000, compression="zstd"
    ),
    "metadata: create the coordinators": create_coordinators(now_ms=NOW_MS, nodes=2),
    "metadata: add a user": put_user("ann", KEYS, is_new=True, roles=["admin"], secret=b"x" * 32),
    "metadata: add a grant": grant_command(GrantRecord("ann", True, "consume", "log", "orders", True)),
    "metadata: add a rule": put_rule(RuleRecord("shop", b"p" * 60, b"s" * 60, ("send", "listen"), "orders")),
    "metadata: rotate a rule": rotate_rule("shop", b"n" * 60),
}

PARTITION = {
    "partition: open a producer": OpenProducer(5, 0, None, NOW_MS).encode(),
    "partition: append": join([of_bodies([b"one", b"two"]).stamped(NOW_MS)]),
    "partition: append compressed": join([of_bodies([b"x" * 200] * 3, Codec.GZIP).stamped(NOW_MS)]),
    "partition: append numbered": join([of_bodies([b"three"], numbers=(5, 0, 0)).stamped(NOW_MS)]),
    "partition: claim": encode_group_command(Claim("g", "m", "c/l", 7, True, False, -1, 0, NOW_MS)),
    "partition: commit": encode_group_command(Commit("g", 6, 3, NOW_MS)),
    "partition: end a claim": encode_group_command(EndClaim("other", 3, End.RELEASED, NOW_MS)),
    "partition: delete a group": encode_group_command(Delete("nobody", NOW_MS)),
    "partition: note an owner": encode_group_command(NoteOwner("hub", "processor", 0, False, NOW_MS)),
    "partition: note a checkpoint": encode_group_command(NoteCheckpoint("hub", 2, NOW_MS)),
    "partition: begin a transaction": encode_transaction_command(Begin(9, 1, 4, 60_000, NOW_MS)),
    "partition: append in a transaction": join([numbered([b"\x00\x53\x75\xa0\x04four"], 9, 1, 0, transactional=True)]),
    "partition: stage an offset": encode_transaction_command(StageOffset(9, 1, "g", 6, 4, NOW_MS)),
    "partition: prepare": encode_transaction_command(Prepare(9, 1, NOW_MS)),
    "partition: marker": Marker(10, 2, ControlType.COMMIT, 4, NOW_MS).encode(),
    "partition: trim": Trim(1, 2, 100).encode(),
}

COORDINATOR = {
    "coordinator: register": coordinator.Register("t", "h", 60_000, NOW_MS, None, "", START),
    "coordinator: add partitions": coordinator.AddPartitions("t", PRODUCER, 0, [3, 4], NOW_MS),
    "coordinator: end": coordinator.EndTransaction("t", PRODUCER, 0, True, NOW_MS, False),
    "coordinator: complete": coordinator.Complete("t", PRODUCER, 0, NOW_MS),
    "coordinator: expire": coordinator.Expire("t", PRODUCER, 1, NOW_MS, START),
    "coordinator: fence": coordinator.FenceTransaction("t", PRODUCER, 1, NOW_MS, START),
    "coordinator: forget": coordinator.ForgetIdle(NOW_MS),
    "coordinator: open a group": members.OpenGroup("w", 1, "run", "q", 60_000, NOW_MS),
    "coordinator: join": members.JoinGroup("w", 1, "run", "0", "a", "h", 5_000, NOW_MS),
    "coordinator: prepare a member": members.PrepareMember("nobody", NOW_MS),
    "coordinator: commit a group": members.CommitGroup("w", 1, "run", [], NOW_MS),
    "coordinator: abort a group": members.AbortGroup("w", 1, "run", False, NOW_MS),
    "coordinator: expire a group": members.ExpireGroup("w", 1, NOW_MS),
    "coordinator: expire a member": members.ExpireMember("nobody", NOW_MS),
    "coordinator: forget a writer": members.ForgetWriter("nobody", NOW_MS),
}


def _metadata(entries: dict[str, bytes]) -> tuple[Any, Callable[[], Any]]:
    machine = MetadataMachine()
    for index, entry in enumerate(entries.values(), start=2):
        machine.apply(index, 1, entry, SimBatch())
    return machine, MetadataMachine


def _others(machine: Any, entries: dict[str, bytes]) -> Any:
    for index, entry in enumerate(entries.values(), start=2):
        machine.apply(index, entry)
    return machine


def samples() -> dict[str, bytes]:
    """Bytes by name: each command, a checkpoint that all of its kind have made, a hard state."""
    metadata = {name: encode_command(command) for name, command in METADATA.items()}
    commands = {name: coordinator.encode(command) for name, command in COORDINATOR.items()}
    return {
        **metadata,
        **PARTITION,
        **commands,
        "metadata: checkpoint": _metadata(metadata)[0].checkpoint(VERSION),
        "partition: checkpoint": _others(PartitionMachine(), PARTITION).checkpoint(VERSION),
        "coordinator: checkpoint": _others(CoordinatorMachine(7), commands).checkpoint(VERSION),
        "hard state": encode_hard_state(VERSION, FLAG_MUTE, 3, 2, 10, 1, 1, 12),
    }


def kept() -> dict[str, bytes]:
    return {name: bytes.fromhex(text) for name, text in json.loads(KEPT.read_text(encoding="ascii")).items()}


@pytest.mark.parametrize("name", sorted(samples()))
def test_a_format_is_what_it_was(name: str) -> None:
    assert samples()[name].hex() == kept()[name].hex()


def test_nothing_is_kept_that_is_not_compared() -> None:
    assert samples().keys() == kept().keys()


def test_what_was_written_then_is_read_to_the_same() -> None:
    found = kept()
    for kind, machine in (("metadata", MetadataMachine()), ("partition", PartitionMachine()),
                          ("coordinator", CoordinatorMachine(7))):  # fmt: skip
        data = found[f"{kind}: checkpoint"]
        if isinstance(machine, MetadataMachine):
            machine.restore(40, data)
        else:
            machine.restore(data)
        assert machine.checkpoint(VERSION) == data, kind
    entries = {name: data for name, data in found.items() if name in METADATA}
    assert _metadata({name: entries[name] for name in METADATA})[0].checkpoint(VERSION) == found["metadata: checkpoint"]
    again = _others(PartitionMachine(), {name: found[name] for name in PARTITION})
    assert again.checkpoint(VERSION) == found["partition: checkpoint"]


if __name__ == "__main__":
    KEPT.write_text(json.dumps({name: data.hex() for name, data in samples().items()}, indent=1) + "\n")
