"""`holdfast produce` at a failure: it stops, and says up to which line everything is stored."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.amqp import decode_message
from holdfast.amqp.links.delivery_states import ACCEPTED
from tests.unit.client.support.tiny_node import REJECTED, TinyLog, TinyNode
from tests.unit.listener.support.peer import eventually

BOUND_S = 90.0
IMPATIENT_S = "1"


@pytest.fixture
async def node() -> AsyncIterator[TinyNode]:
    one = await TinyNode(TinyLog()).start()
    one.lead()
    yield one
    await one.crash()


async def produce(node: TinyNode, *arguments: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    command = ("-m", "holdfast.cli", "produce", "trades", "--server", node.address, *arguments)
    return await asyncio.create_subprocess_exec(sys.executable, *command, stdin=pipe, stdout=pipe, stderr=pipe)


def lines(first: int, end: int) -> bytes:
    return b"".join(b"line %d\n" % number for number in range(first, end))


@pytest.mark.parametrize("how", ["plain", "idempotent"])
async def test_nothing_is_stored_behind_lines_that_were_given_up(node: TinyNode, how: str) -> None:
    numbered = ["--idempotent" if how == "idempotent" else "--no-idempotent"]
    async with asyncio.timeout(BOUND_S):
        process = await produce(node, "--partition", "0", "--timeout-s", IMPATIENT_S, *numbered)
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(lines(1, 301))
        await eventually(lambda: len(node.log.bodies("0")) == 300)
        node.after_transfers = lambda connection, partition, count: True
        process.stdin.write(lines(301, 401))
        assert b"trades, partition 0: 100 events were given up" in await process.stderr.readline()
        node.after_transfers = None
        process.stdin.write(lines(401, 501))
        _, said = await process.communicate()
    assert process.returncode == 1
    assert b"every line of standard input up to line 300 is stored\n" in said
    assert b"Go on from line 301, as with `tail -n +301`" in said
    assert node.log.bodies("0") == lines(1, 301).splitlines()


@pytest.mark.parametrize("header", [["--skip-header"], ["--key-column", "name"]], ids=["skipped", "names the key"])
async def test_a_refused_line_is_the_first_that_is_missing(node: TinyNode, tmp_path: Path, header: list[str]) -> None:
    node.answer = lambda payload: REJECTED if decode_message(payload).body == b"line 2000" else ACCEPTED
    file = tmp_path / "input.csv"
    file.write_bytes(b"name\n" + lines(2, 20_001))
    async with asyncio.timeout(BOUND_S):
        process = await produce(node, str(file), *header, "--json")
        _, said = await process.communicate()
    assert process.returncode == 1
    error = json.loads(said)
    told = re.fullmatch(
        r".*event [0-9]+ refused: .*; every line of (.*) up to line ([\d,]+) is stored"
        r"(?:, and ([\d,]+) of those behind the first that is missing)?",
        error["error"],
    )
    assert told is not None, error
    assert told[1] == str(file)
    missing = int(told[2].replace(",", "")) + 1
    assert missing <= 2000, "the refused line went with the batch that it was in"
    stored = {body for partition in node.log.partitions for body in node.log.bodies(partition)}
    assert len(stored) < 19_998
    assert set(lines(2, missing).splitlines()) <= stored
    assert b"line %d" % missing not in stored
    assert int((told[3] or "0").replace(",", "")) == len(stored) - (missing - 2)
    advice = f"Go on from line {missing}, as with `tail -n +{missing}`, and with the first line in front of that"
    assert advice in error["advice"]


async def test_a_first_line_that_is_refused_is_said_to_be_missing(node: TinyNode) -> None:
    node.answer = lambda payload: REJECTED
    async with asyncio.timeout(BOUND_S):
        process = await produce(node, "--partition", "0")
        _, said = await process.communicate(b"alone\n")
    assert process.returncode == 1
    assert b"; the first line of standard input is not stored\n" in said
    assert b"Go on from line 1," in said


async def test_an_input_that_breaks_off_is_stored_up_to_a_line_that_is_named(node: TinyNode, tmp_path: Path) -> None:
    file = tmp_path / "input.gz"
    file.write_bytes(gzip.compress(lines(1, 200_001))[:-100])
    async with asyncio.timeout(BOUND_S):
        process = await produce(node, str(file), "--partition", "0", "--json")
        _, said = await process.communicate()
    assert process.returncode == 1
    error = json.loads(said)
    told = re.fullmatch(r".* cannot be read: .*; every line of .* up to line ([\d,]+) is stored", error["error"])
    assert told is not None, error
    assert len(node.log.bodies("0")) == int(told[1].replace(",", "")) > 100_000
