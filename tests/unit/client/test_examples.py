"""The examples do what they say, run as a reader would run them."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from pathlib import Path

import pytest

from holdfast import client
from tests.unit.client.support.real_cluster import Nodes
from tests.zookeeper import LoopbackZooKeeper, missing

pytestmark = pytest.mark.asyncio(loop_scope="module")

EXAMPLES = Path(__file__).parents[3] / "examples"


async def run(nodes: Nodes, example: str, *arguments: str, status: int = 0) -> str:
    """What it says on either stream."""
    servers = [word for server in nodes.servers for word in ("--server", server)]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLES / example),
        *arguments,
        *servers,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=EXAMPLES.parent,
    )
    output, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == status, output.decode()
    return output.decode()


async def test_produce_and_consume(nodes: Nodes) -> None:
    said = await run(nodes, "produce_consume.py")
    assert "a batch of 100 events stands in partition" in said
    assert "calibrated, by ann" in said
    assert "read 1101 events; behind: 0" in said


async def test_the_synchronous_one(nodes: Nodes) -> None:
    assert "read 110 events" in await run(nodes, "synchronous.py")


async def test_the_idempotent_producer_goes_on_where_it_was_however_it_ended(nodes: Nodes, tmp_path: Path) -> None:
    log, file, state = await nodes.log(1), tmp_path / "lines", tmp_path / "state.json"
    lines = [f"line {number}".encode() for number in range(450)]
    file.write_bytes(b"\n".join(lines[:250]))
    arguments = (log, str(file), str(state))
    assert "0 lines are known to stand" in await run(nodes, "idempotent_producer.py", *arguments)
    saved = json.loads(state.read_text())
    assert saved["starting_sequence_number"] == 250

    # It died before it noted its last two batches; meanwhile the file has grown.
    state.write_text(json.dumps(saved | {"starting_sequence_number": 100}))
    file.write_bytes(b"\n".join(lines))
    said = await run(nodes, "idempotent_producer.py", *arguments)
    assert "100 lines are known to stand" in said
    assert await nodes.bodies(log) == lines

    # A file with other lines in the place of those is found out, not published.
    state.write_text(json.dumps(saved | {"starting_sequence_number": 300}))
    file.write_bytes(b"\n".join([*lines[:300], *(b"other " + line for line in lines[300:])]))
    assert "not the one of before" in await run(nodes, "idempotent_producer.py", *arguments, status=1)
    assert await nodes.bodies(log) == lines


async def test_members_of_a_group_share_the_work(nodes: Nodes) -> None:
    said = await run(nodes, "consumer_group.py")
    assert "2000 jobs are done" in said
    assert "ann has got partition" in said


async def test_consume_transform_produce_exactly_once(nodes: Nodes) -> None:
    said = await run(nodes, "transactions.py")
    assert "the first worker stops" in said
    assert "200 of 200 orders have their line, 0 have two" in said


@pytest.mark.skipif(bool(missing()), reason=missing())
async def test_members_share_the_work_through_zookeeper(nodes: Nodes, tmp_path: Path) -> None:
    zookeeper = LoopbackZooKeeper(tmp_path / "zookeeper")
    try:
        await asyncio.to_thread(zookeeper.start)
        said = await run(nodes, "ownership.py", "--zookeeper", zookeeper.address)
    finally:
        zookeeper.kill()
    assert "1000 jobs were read; the group is 0 behind" in said
    assert said.count("ann gives up partition") == 4
    assert "bob has got partition 0 with epoch 2" in said or "bob has got partition 0 with epoch 3" in said


async def test_the_pages_for_clients_name_everything_that_publishing_needs() -> None:
    pages = sorted((EXAMPLES.parent / "docs" / "clients").glob("*.md"))
    reference = "".join(page.read_text(encoding="utf-8") for page in pages)
    documented = (
        client.ProducerClient, client.EventBatch, client.DeliveryResult, client.ProducerOptions,
        client.PartitionPublishingOptions, client.PartitionPublishingProperties, client.NetworkOptions,
        client.ZooKeeperOwnership, client.Transaction, client.LastTransaction,
    )  # fmt: skip
    inside = {
        "check",
        "place",
        "lock",
        "unlock",
        "published",
        "contents",
        "try_add",
        "named",
        "doubted_as",
    }  # our own
    inside |= {"doubted_as", "answered", "settle", "fail", "of_encoded"}
    for kind in documented:
        assert kind.__name__ in reference
        fields = [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []
        public = [name for name in dir(kind) if not name.startswith("_")]
        missing = [name for name in {*public, *fields} - inside if name not in reference]
        assert not missing, f"docs/clients does not mention {missing} of {kind.__name__}"
    errors = [name for name in client.__all__ if name.endswith("Error")]
    assert not [name for name in errors if name not in reference and name != "HoldfastError"]
