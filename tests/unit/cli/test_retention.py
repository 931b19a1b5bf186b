"""Retention as people write it: a number has a unit, and nobody deletes most of a log by a slip of the keyboard."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import click
import pytest
import pytest_asyncio
from click.testing import CliRunner, Result

from holdfast.cli.app import main
from holdfast.cli.shared.retention import DURATION, PACE, SIZE, Losses, Quantity, retention_losses
from holdfast.client import AdminClient, ConsumerClient, ConsumerOptions, ProducerClient, RangeClient, Start
from tests.unit.client.support.real_cluster import Nodes
from tests.unit.listener.support.cluster import ListenerCluster

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOUR_MS = 3_600_000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nodes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Nodes]:
    async with ListenerCluster(tmp_path_factory.mktemp("nodes")) as cluster:
        yield Nodes(cluster)


@pytest.mark.parametrize(
    ("kind", "text", "meant"),
    [
        (DURATION, "7d", 7 * 86_400_000), (DURATION, "90 min", 5_400_000), (DURATION, "1500ms", 1500),
        (DURATION, "2H", 2 * HOUR_MS), (DURATION, "1m", 60_000), (DURATION, "forever", "forever"),
        (SIZE, "10GiB", 10 << 30), (SIZE, "512 mib", 512 << 20), (SIZE, "100B", 100), (SIZE, "forever", "forever"),
        (PACE, "32MiB", 32 << 20), (PACE, "8388607TiB", 8_388_607 << 40),
    ],
)  # fmt: skip
async def test_a_quantity_is_a_number_and_a_unit(kind: Quantity, text: str, meant: int | str) -> None:
    assert kind.convert(text, None, None) == meant


@pytest.mark.parametrize(
    ("kind", "text", "advice"),
    [
        (DURATION, "7", "'7' has no unit; write 7d, 7h, 7min, 7s, 7ms or forever"),
        (SIZE, "1000", "'1000' has no unit; write 1000GiB, 1000MiB, 1000KiB, 1000B or forever"),
        (DURATION, "0", "a duration is more than 0"), (DURATION, "0d", "a duration is more than 0; write a number and"),
        (DURATION, "-1d", "a duration is more than 0"), (SIZE, "0B", "a size is more than 0"),
        (DURATION, "7 weeks", "a number and one of"), (DURATION, "7mo", "a number and one of"),
        (DURATION, "1M", "'1M' is not a duration: a number and one of ms, s, min, m, h, d; or forever"),
        (DURATION, "soon", "a number and one of"), (SIZE, "7d", "a number and one of"),
        (PACE, "forever", "'forever' is not a size: a number and one of B, KiB, MiB, GiB, TiB$"),
        (PACE, "32", "'32' has no unit; write 32MiB, 32GiB$"), (PACE, "0MiB", "a size is more than 0"),
        (PACE, "8388608TiB", "a size is less than 8388608TiB"), (SIZE, "9" * 5000 + "B", "a number and one of"),
    ],
)  # fmt: skip
async def test_what_is_no_bound_is_refused(kind: Quantity, text: str, advice: str) -> None:
    with pytest.raises(click.BadParameter, match=advice):
        kind.convert(text, None, None)


async def filled(nodes: Nodes, count: int = 100) -> str:
    log = await nodes.log(2)
    async with ProducerClient(nodes.servers, log) as producer:
        for number in range(count):  # an entry each, so that retention can cut between any two
            await (await producer.send(b"%04d" % number * 100, partition=str(number % 2)))
    return log


async def losses(nodes: Nodes, log: str, *, age_ms: int | None = None, size: int | None = None) -> Losses:
    async with AdminClient(nodes.servers) as admin, RangeClient(nodes.servers, isolation="uncommitted") as ranges:
        return await retention_losses(ranges, await admin.describe_log(log), age_ms, size)


async def test_what_a_change_would_delete_is_known_before(nodes: Nodes) -> None:
    log = await filled(nodes)
    assert await losses(nodes, log) == (0, 0)
    assert await losses(nodes, log, age_ms=HOUR_MS) == (0, 100)
    async with ConsumerClient(
        nodes.servers, log, start=Start.earliest(), options=ConsumerOptions(until_end=True)
    ) as consumer:
        events = [event async for event in consumer]
    newest_ms = max(event.timestamp_ms for event in events)
    await nodes.until(lambda: int(time.time() * 1000) - newest_ms > 50)
    assert await losses(nodes, log, age_ms=7) == (100, 0)
    async with RangeClient(nodes.servers) as ranges:
        extents = await ranges.extents(log)
    assert {extent.stored_events for extent in extents} == {50}
    half = extents[0].stored_bytes // 2
    deleted, kept = await losses(nodes, log, size=half)
    assert deleted + kept == 100
    assert 45 <= deleted <= 55
    assert await losses(nodes, log, size=1 << 30) == (0, 100)
    async with AdminClient(nodes.servers) as admin:
        await admin.alter_log(log, retention_ms=HOUR_MS)
    assert await losses(nodes, log, age_ms=2 * HOUR_MS) == (0, 0), "wider than it is"


async def alter(nodes: Nodes, log: str, *words: str, answer: str | None = None) -> Result:
    command = ["log", "alter", log, *words, *(word for server in nodes.servers for word in ("--server", server))]
    return await asyncio.to_thread(CliRunner().invoke, main, command, input=answer)


async def test_a_change_that_deletes_more_than_it_keeps_asks_first(nodes: Nodes) -> None:
    log = await filled(nodes)

    async def bound() -> int | None:
        async with AdminClient(nodes.servers) as admin:
            found: int | None = (await admin.describe_log(log))["retention_bytes"]
            return found

    small = ("--retention-bytes", "100B")
    for answer in ("n\n", None):
        refused = await alter(nodes, log, *small, answer=answer)
        assert refused.exit_code == 1
        assert "of the 100 events of log" in refused.stderr
        assert await bound() is None
    assert (await alter(nodes, log, "--retention", "7d")).exit_code == 0, "nothing is older"
    done = await alter(nodes, log, *small, "--yes")
    assert (done.exit_code, await bound()) == (0, 100), done.output
    assert (await alter(nodes, log, "--retention-bytes", "forever")).exit_code == 0
    again = await filled(nodes, 10)
    assert (await alter(nodes, again, *small, answer="y\n")).exit_code == 0
