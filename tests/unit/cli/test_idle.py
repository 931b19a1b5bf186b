"""`consume --idle-s`: silence ends it well only where somebody could have spoken."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.app import main
from holdfast.cli.shared import command_frame
from holdfast.client import ProducerClient
from tests.ports import free_port
from tests.unit.client.support.real_cluster import Nodes
from tests.unit.listener.support.cluster import ListenerCluster

IDLE = ("--idle-s", "0.3", "--from", "earliest")


async def consume(servers: list[str], log: str, *words: str) -> Result:
    command = ["consume", log, *words, *(word for server in servers for word in ("--server", server))]
    return await asyncio.to_thread(CliRunner().invoke, main, command)


@pytest.mark.parametrize("more", [(), ("--group", "g"), ("--group", "g", "--partition", "0")])
async def test_a_cluster_that_is_down_is_no_silence(more: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_frame, "FIRST_CONTACT_S", 0.5)
    done = await consume([f"127.0.0.1:{free_port()}"], "trades", *IDLE, *more)
    assert done.exit_code == 4
    assert "cannot be reached" in done.stderr


async def test_silence_and_a_majority_that_is_down(tmp_path: Path) -> None:
    async with ListenerCluster(tmp_path) as cluster:
        nodes = Nodes(cluster)
        log = await nodes.log(2)
        async with ProducerClient(nodes.servers, log) as producer:
            await (await producer.send(b"one", partition="0"))
        for more in ((), ("--group", "g"), ("--group", "h", "--partition", "1"), ("--partition", "0")):
            done = await consume(nodes.servers, log, *IDLE, *more)
            wanted = "" if "1" in more else "one\n"
            assert (done.exit_code, done.stdout) == (0, wanted), done.stderr
        for number in list(cluster.nodes)[1:]:
            await cluster.lose(number)
        done = await consume(nodes.servers, log, *IDLE, "--group", "g", "--timeout-s", "3")
        assert done.exit_code in (4, 5), done.output
        assert "what to do" in done.stderr
