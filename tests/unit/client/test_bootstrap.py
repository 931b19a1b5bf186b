"""Finding a cluster's nodes in a real ZooKeeper, and what is said when they are not found. No node takes part."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from kazoo.security import make_digest_acl

from holdfast.cli import main
from holdfast.client import ConfigurationError, UnreachableError, ZooKeeperLogin, find_servers
from tests.zookeeper import LoopbackZooKeeper, missing

BOUND_S = 1.0
SLACK_S = 4.0
"""For a busy machine: to stop a client of kazoo's costs it some thread switches."""

needs_zookeeper = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackZooKeeper]:
    server = LoopbackZooKeeper(tmp_path_factory.mktemp("zookeeper") / "server")
    server.start()
    yield server
    server.kill()


class Registered:
    """A cluster of its own name, as nodes would have written it."""

    def __init__(self, server: LoopbackZooKeeper) -> None:
        self.path = f"/holdfast/c-{uuid.uuid4().hex[:8]}"
        self.url = f"zk://{server.address}{self.path}"
        self._server = server

    def write(self, *, acl: Any = None, **nodes: bytes | dict[str, str]) -> None:
        with self._server.client() as client:
            client.ensure_path(f"{self.path}/nodes")
            for name, listeners in nodes.items():
                data = listeners if isinstance(listeners, bytes) else json.dumps({"listeners": listeners}).encode()
                client.create(f"{self.path}/nodes/{name[1:]}", data)
            if acl is not None:
                client.set_acls(f"{self.path}/nodes", acl)


@pytest.fixture
def registered(zookeeper: LoopbackZooKeeper) -> Registered:
    return Registered(zookeeper)


@needs_zookeeper
async def test_the_addresses_of_the_listener_that_is_asked_for(registered: Registered) -> None:
    registered.write(
        n1={"default": "10.0.0.1:5672", "outside": "a.example:5672"},
        n2={"default": "10.0.0.2:5672"},
        n3=b"not written by a node",
    )
    assert sorted(await find_servers(registered.url)) == ["10.0.0.1:5672", "10.0.0.2:5672"]
    assert await find_servers(f"{registered.url}?listener=outside") == ["a.example:5672"]
    with pytest.raises(ConfigurationError, match=r"no node of .* has a listener 'moon'") as caught:
        await find_servers(f"{registered.url}?listener=moon")
    assert "default, outside" in caught.value.advice


@needs_zookeeper
async def test_a_cluster_that_nobody_has_begun(registered: Registered) -> None:
    """Also on an ensemble without anything."""
    with pytest.raises(ConfigurationError, match=f"knows no cluster {registered.path}"):
        await find_servers(registered.url)
    with pytest.raises(ConfigurationError, match="knows no cluster /elsewhere/c"):
        await find_servers(registered.url.replace(registered.path, "/elsewhere/c"))


@needs_zookeeper
async def test_a_cluster_whose_nodes_are_all_down(registered: Registered) -> None:
    registered.write()
    with pytest.raises(UnreachableError, match=r"no node of .* is registered") as caught:
        await find_servers(registered.url)
    assert caught.value.retriable


@needs_zookeeper
async def test_who_may_not_read_is_told_to_give_a_login(registered: Registered) -> None:
    registered.write(acl=[make_digest_acl("nodes", "secret", all=True)], n1={"default": "10.0.0.1:5672"})
    with pytest.raises(ConfigurationError, match="without credentials"):
        await find_servers(registered.url)
    assert await find_servers(registered.url, login=ZooKeeperLogin(auth="nodes:secret")) == ["10.0.0.1:5672"]


@needs_zookeeper
async def test_a_zookeeper_that_hangs_is_given_up_in_time(tmp_path: Path) -> None:
    server = LoopbackZooKeeper(tmp_path / "hanging")
    try:
        await asyncio.to_thread(server.start)
        with server.silent():
            begun_s = time.monotonic()
            with pytest.raises(UnreachableError, match="does not answer") as caught:
                await find_servers(f"zk://{server.address}/holdfast/prod", timeout_s=BOUND_S)
            assert time.monotonic() - begun_s < BOUND_S + SLACK_S
            assert caught.value.retriable
    finally:
        server.kill()


async def test_a_zookeeper_that_is_not_there_is_given_up_in_time() -> None:
    begun_s = time.monotonic()
    with pytest.raises(UnreachableError, match=r"ZooKeeper at 127\.0\.0\.1:1,127\.0\.0\.1:2 does not answer"):
        await find_servers("zk://127.0.0.1:1,127.0.0.1:2/holdfast/prod", timeout_s=BOUND_S)
    assert time.monotonic() - begun_s < BOUND_S + SLACK_S


@pytest.mark.parametrize(
    "url",
    ["zk://", "zk://h", "zk://h/", "zk:///a/b", "http://h/a/b", "zk://h/a?listner=x", "zk://h/a//b", "zk://[h/a/b", ""],
)
async def test_a_url_that_names_no_cluster(url: str) -> None:
    with pytest.raises(ConfigurationError, match="names no cluster in ZooKeeper"):
        await find_servers(url)


async def test_a_bound_is_more_than_nothing() -> None:
    with pytest.raises(ConfigurationError, match="timeout_s"):
        await find_servers("zk://h/a/b", timeout_s=0)


@needs_zookeeper
@pytest.mark.parametrize(
    ("where", "status", "said"),
    [
        ("zk://127.0.0.1:1/holdfast/prod", 4, "does not answer"),
        ("zk://SERVER/holdfast/nobody", 2, "knows no cluster /holdfast/nobody"),
        ("zk://SERVER", 2, "names no cluster in ZooKeeper"),
    ],
)
def test_the_command_line_says_the_same(zookeeper: LoopbackZooKeeper, where: str, status: int, said: str) -> None:
    server = where.replace("SERVER", zookeeper.address)
    done = CliRunner().invoke(main, ["log", "list", "--server", server, "--timeout-s", "1"])
    assert done.exit_code == status, done.output
    assert said in done.output
    assert "what to do:" in done.output
    assert "Traceback" not in done.output
