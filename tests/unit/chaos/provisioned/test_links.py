"""Which proxy is whose way follows from where nodes dial; what was done to it is undone with the connection."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from chaos.cannot_run import CannotRun
from chaos.cluster.links import CLIENTS, NODES, Links, NetworkLink
from chaos.cluster.provisioned.inventory import InventoryHost
from chaos.cluster.provisioned.links import Endpoints, RemoteProxy, links_between, missing
from chaos.cluster.provisioned.ssh import OrderFailed, SshConnection
from chaos.proxies import HOW_TO_GET, find_server
from holdfast.cli.local_cluster import child_processes
from tests.integration.clusters.cluster import wait_until
from tests.ports import free_ports
from tests.unit.chaos.provisioned.test_agent import Told, make, told

__all__ = ["make", "told"]

TOXIC = {"type": "timeout", "stream": "upstream", "name": "ours", "attributes": {"timeout": 0}}


class Server:
    """A real Toxiproxy with two proxies."""

    def __init__(self, api: str, process: subprocess.Popen[bytes]) -> None:
        self.api, self.process = api, process

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        with closing(http.client.HTTPConnection(self.api, timeout=60)) as connection:
            connection.request(method, path, None if body is None else json.dumps(body))
            told = connection.getresponse().read()
        return json.loads(told) if told else None

    def toxics(self, proxy: str) -> list[str]:
        return [one["name"] for one in self.ask("GET", f"/proxies/{proxy}")["toxics"]]

    def is_up(self) -> bool:
        try:
            return self.ask("GET", "/version") is not None
        except OSError:
            return False


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    if (program := find_server()) is None:
        pytest.skip(f"there is no Toxiproxy server: {HOW_TO_GET}")
    port, *listen = free_ports(3)
    words = [str(program), "-host", "127.0.0.1", "-port", str(port)]
    process = child_processes.spawn(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    server = Server(f"127.0.0.1:{port}", process)
    try:
        wait_until(server.is_up, "Toxiproxy")
        for name, one in zip(("to-n2", "to-n3"), listen, strict=True):
            server.ask("POST", "/proxies", {"name": name, "listen": f"127.0.0.1:{one}", "upstream": "127.0.0.1:1"})
        yield server
    finally:
        process.kill()
        process.wait()


def test_what_was_done_to_proxies_is_undone_when_the_connection_ends(told: Told, server: Server) -> None:
    listed = told.order("proxies", api=server.api)["ok"]
    assert [(one["name"], one["upstream"]) for one in listed] == [("to-n2", "127.0.0.1:1"), ("to-n3", "127.0.0.1:1")]
    server.ask("POST", "/proxies/to-n2/toxics", {**TOXIC, "name": "theirs"})
    assert told.order("toxic", proxy="to-n2", toxic=TOXIC) == {"ok": None}
    assert told.order("enable", proxy="to-n3", enabled=False) == {"ok": None}
    assert sorted(server.toxics("to-n2")) == ["ours", "theirs"]
    assert told.leave() == 0
    assert server.toxics("to-n2") == ["theirs"]
    assert server.ask("GET", "/proxies/to-n3")["enabled"]


def test_what_was_done_to_proxies_is_undone_when_the_agent_is_killed(told: Told, server: Server) -> None:
    told.order("proxies", api=server.api)
    told.order("toxic", proxy="to-n2", toxic=TOXIC)
    told.order("enable", proxy="to-n3", enabled=False)
    told.process.kill()
    wait_until(lambda: server.toxics("to-n2") == [], "the toxic to go")
    wait_until(lambda: server.ask("GET", "/proxies/to-n3")["enabled"], "the proxy to be enabled")


def test_a_node_is_healed_though_its_proxies_cannot_be(told: Told, server: Server) -> None:
    told.order("proxies", api=server.api)
    told.order("toxic", proxy="to-n2", toxic=TOXIC)
    told.order("kill")
    server.process.kill()
    server.process.wait()
    assert told.process.stdin is not None
    told.process.stdin.close()
    wait_until(lambda: len(told.started) >= 2, "the node to be started")


def test_one_proxy_is_healed_though_another_one_cannot_be_and_that_one_later(told: Told, server: Server) -> None:
    listed = told.order("proxies", api=server.api)["ok"]
    host, _, port = listed[0]["listen"].rpartition(":")
    assert listed[0]["name"] == "to-n2"
    told.order("enable", proxy="to-n2", enabled=False)
    told.order("enable", proxy="to-n3", enabled=False)
    with socket.create_server((host, int(port))):
        assert told.leave() != 0
        assert server.ask("GET", "/proxies/to-n3")["enabled"]
        assert not server.ask("GET", "/proxies/to-n2")["enabled"]
    wait_until(lambda: server.ask("GET", "/proxies/to-n2")["enabled"], "the keeper to enable it")


def test_a_proxy_that_somebody_took_away_needs_no_healing(told: Told, server: Server) -> None:
    told.order("proxies", api=server.api)
    told.order("enable", proxy="to-n2", enabled=False)
    told.order("enable", proxy="to-n3", enabled=False)
    server.ask("DELETE", "/proxies/to-n2")
    assert told.leave() == 0
    assert server.ask("GET", "/proxies/to-n3")["enabled"]


def test_a_toxic_of_somebody_else_is_left_where_ours_was_refused_for_its_name(told: Told, server: Server) -> None:
    told.order("proxies", api=server.api)
    server.ask("POST", "/proxies/to-n2/toxics", TOXIC)
    assert told.order("toxic", proxy="to-n2", toxic=TOXIC)["trouble"] == "failed"
    assert told.leave() == 0
    assert server.toxics("to-n2") == ["ours"]


def test_a_proxy_may_have_any_name(told: Told, server: Server) -> None:
    [port] = free_ports(1)
    server.ask("POST", "/proxies", {"name": "to n4?", "listen": f"127.0.0.1:{port}", "upstream": "127.0.0.1:1"})
    told.order("proxies", api=server.api)
    assert told.order("toxic", proxy="to n4?", toxic=TOXIC) == {"ok": None}
    assert server.toxics("to%20n4%3F") == ["ours"]
    assert told.leave() == 0
    assert server.toxics("to%20n4%3F") == []


def test_what_was_undone_by_order_is_undone_once(told: Told, server: Server) -> None:
    told.order("proxies", api=server.api)
    told.order("toxic", proxy="to-n2", toxic=TOXIC)
    assert told.order("no_toxic", proxy="to-n2", name="ours") == {"ok": None}
    assert server.toxics("to-n2") == []
    server.ask("POST", "/proxies/to-n2/toxics", TOXIC)  # somebody else's now
    assert told.leave() == 0
    assert server.toxics("to-n2") == ["ours"]


def test_proxies_that_are_not_whole_are_refused(told: Told, server: Server) -> None:
    server.ask("POST", "/proxies/to-n3/toxics", TOXIC)
    answer = told.order("proxies", api=server.api)
    assert answer == {"trouble": "proxies", "text": "proxy to-n3 is not whole: it has toxics, or refuses"}


def test_a_proxy_that_is_not_there_is_told(told: Told, server: Server) -> None:
    told.order("proxies", api=server.api)
    answer = told.order("toxic", proxy="to-n9", toxic=TOXIC)
    assert answer["trouble"] == "failed"
    assert "/proxies/to-n9/toxics" in answer["text"]


def ends(node: int, others: list[int], **listeners: str) -> Endpoints:
    """Each dials by proxies on its loopback; clients by one on its address."""
    connection = SshConnection(InventoryHost(f"n{node}", f"n{node}"))
    found = Endpoints(node, connection, {other: f"127.0.0.1:{17100 + other}" for other in others}, "chaos", {
        "default": f"n{node}:5672", "chaos": f"n{node}:15673", **listeners,
    })  # fmt: skip
    for listen in (*found.dials.values(), f"n{node}:15673"):
        found.proxies[listen] = RemoteProxy(connection, f"at-{listen}", listen, "somewhere")
    return found


@pytest.fixture
def three() -> dict[int, Endpoints]:
    return {node: ends(node, [other for other in (1, 2, 3) if other != node]) for node in (1, 2, 3)}


def test_what_a_node_says_travels_on_its_proxy_and_back_on_the_others(three: dict[int, Endpoints]) -> None:
    assert missing(three) == ""
    links = Links()
    links_between(three, links)
    parts = {(way.name, direction) for way, direction in links.parts(links.between_nodes(1, 2))}
    assert parts == {("n1/at-127.0.0.1:17102", "upstream"), ("n2/at-127.0.0.1:17101", "downstream")}
    assert len({way.name for way in links.ways.values()}) == 9
    assert len([link for link in links.all if link.protocol == NODES]) == 6
    [(way, direction)] = links.parts(NetworkLink("producers", "3", CLIENTS))
    assert (way.name, direction) == ("n3/at-n3:15673", "upstream")


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda one: one.proxies.pop("127.0.0.1:17103"), "node 2 reaches node 3 at 127.0.0.1:17103, and no proxy"),
        (lambda one: one.dials.clear(), "node 2 has not been told where the others are"),
        (lambda one: one.proxies.pop("n2:15673"), "no proxy on the host of node 2 stands before listener chaos"),
    ],
)
def test_which_way_has_no_proxy_is_said(
    three: dict[int, Endpoints], spoil: Callable[[Endpoints], object], why: str
) -> None:
    spoil(three[2])
    assert missing(three).startswith(why)


def test_what_must_not_be_disturbed_goes_past_the_proxies(three: dict[int, Endpoints]) -> None:
    assert three[1].past_proxies == "n1:5672"
    three[1].proxies.pop("n1:15673")
    assert three[1].past_proxies == "n1:15673", "no proxy stands before the listener of the clients"


def test_proxies_that_cannot_be_told_end_a_run_without_a_verdict() -> None:
    class Failing:
        def order(self, name: str, /, **arguments: Any) -> None:
            raise OrderFailed("n1", "failed", "Toxiproxy is gone")

    proxy = RemoteProxy(cast(SshConnection, Failing()), "to-n2", "127.0.0.1:17102", "n2:7101")
    with pytest.raises(CannotRun, match="n1: Toxiproxy is gone: the run was broken off"):
        proxy.disable()


def test_a_proxy_is_told_over_the_connection_to_its_host() -> None:
    orders: list[tuple[str, dict[str, Any]]] = []

    class Noting:
        def order(self, name: str, /, **arguments: Any) -> None:
            orders.append((name, arguments))

    proxy = RemoteProxy(cast(SshConnection, Noting()), "to-n2", "127.0.0.1:17102", "n2:7101")
    proxy.add_toxic(type="latency", stream="upstream", name="late", attributes={"latency": 5})
    proxy.destroy_toxic("late")
    proxy.disable()
    proxy.enable()
    toxic = {"type": "latency", "stream": "upstream", "name": "late", "attributes": {"latency": 5}}
    assert orders == [
        ("toxic", {"proxy": "to-n2", "toxic": toxic}),
        ("no_toxic", {"proxy": "to-n2", "name": "late"}),
        ("enable", {"proxy": "to-n2", "enabled": False}),
        ("enable", {"proxy": "to-n2", "enabled": True}),
    ]
