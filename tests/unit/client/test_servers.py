"""Which of its servers a client turns to, when one has ended the connection."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

import pytest

from holdfast import protocol
from holdfast.amqp import Error, uint
from holdfast.client import AdminClient, ProducerClient
from holdfast.client.errors import (
    ConfigurationError,
    HoldfastError,
    ProtocolError,
    TimeoutExpiredError,
    UnreachableError,
)
from holdfast.client.transport import network
from holdfast.client.transport.address import Address
from holdfast.client.transport.connection import ClientConnection
from holdfast.client.transport.security.credentials import Security
from tests.ports import free_port
from tests.unit.client.support.tiny_node import TinyNode
from tests.unit.listener.support.peer import eventually


def by_force(node: TinyNode) -> None:
    for connection in list(node.connections):
        connection.engine.close(Error("amqp:connection:forced", "elsewhere"))
        connection.flush()


def stops(node: TinyNode, told: object) -> None:
    (connection,) = node.connections
    connection.engine.close(Error("amqp:connection:forced", "it stops", {protocol.OPEN_NODES: told}))
    connection.flush()


def without_a_word(node: TinyNode) -> None:
    for connection in list(node.connections):
        connection.transport.close()


def reset(node: TinyNode) -> None:
    for connection in list(node.connections):
        connection.abort()


@pytest.mark.parametrize(
    ("name", "means"),
    [
        ("10.0.0.1", "10.0.0.1:5672"),
        ("host:1", "host:1"),
        ("amqp://host:1", "host:1"),
        ("amqp://host/", "host:5672"),
        ("[::1]:7", "[::1]:7"),
        ("amqp://[::1]", "[::1]:5672"),
    ],
)
def test_a_server_may_be_named_as_a_url(name: str, means: str) -> None:
    assert str(Address.parse(name)) == means


@pytest.mark.parametrize(
    "name", ["", "host:", "host:0", "host:99999", "host:port", "::1", "a:b:1", "http://host:1", "amqp://host:1/trades",
             "amqp://ann:secret@host", "amqps://host", None, 5672, [b"host"], [None]],
)  # fmt: skip
def test_what_names_no_server_is_refused_at_once(name: object) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        network.Network(name)  # type: ignore[arg-type]
    assert refusal.value.advice
    assert "secret" not in str(refusal.value)


def test_tls_is_asked_for_by_a_url_only_where_it_is_given() -> None:
    network.Network("amqps://host", network.NetworkOptions(security=Security(tls=True)))


async def test_a_name_that_is_no_hosts_fails_at_once_unless_another_server_is_named(node: TinyNode) -> None:
    async with asyncio.timeout(60), AdminClient(["a..b:1", "c..d"], timeout_s=3600) as admin:
        with pytest.raises(UnreachableError, match="no host") as failure:
            await admin.list_logs()
    assert not failure.value.retriable
    async with asyncio.timeout(60), ProducerClient(["a..b:1", node.address], "trades") as producer:
        await producer.send_and_confirm(b"here", partition="0")


async def test_a_node_that_leaves_without_a_word_is_said_to_have_done_so(node: TinyNode) -> None:
    connection = await ClientConnection.open(Address.parse(node.address))
    lost: list[HoldfastError] = []
    connection.on_lost = lost.append
    without_a_word(node)
    await eventually(lambda: lost)
    assert str(lost[0]) == f"{node.address} ended the connection without a word"
    await connection.close()


ENDS = pytest.mark.parametrize("ends", [by_force, without_a_word, reset])


@ENDS
async def test_a_client_whose_connection_the_node_has_ended_turns_to_the_next_server(
    pair: tuple[TinyNode, TinyNode], ends: Callable[[TinyNode], None]
) -> None:
    first, second = pair
    first.lead()
    async with ProducerClient([first.address, second.address], "trades") as producer:
        await producer.send_and_confirm(b"here", partition="0")
        assert not second.attaches
        second.lead()
        ends(first)
        before = len(first.attaches)
        await producer.send_and_confirm(b"there", partition="0")
        assert second.attaches
        assert len(first.attaches) == before, "it listens still, and is passed over"


@ENDS
async def test_it_is_passed_over_also_when_a_redirect_had_named_it(
    pair: tuple[TinyNode, TinyNode], ends: Callable[[TinyNode], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under an address that looks different: with the name by which it is to be greeted."""
    first, second = pair
    monkeypatch.setattr(network, "LEFT_S", 0.0)  # so that nothing is held against the first connection, which is lost
    async with ProducerClient([first.address, second.address], "trades") as producer:
        first.lead()
        await producer.send_and_confirm(b"here", partition="0")
        (configured,) = first.connections
        second.lead()
        first.close_links(first.redirect_to(second))
        await producer.send_and_confirm(b"there", partition="0")
        configured.abort()
        monkeypatch.undo()
        first.lead()
        second.close_links(second.redirect_to(first))
        await producer.send_and_confirm(b"and back", partition="0")
        assert len(first.connections) == 1
        second.lead()
        before = len(first.attaches)
        ends(first)
        await producer.send_and_confirm(b"there", partition="0")
        assert len(first.attaches) == before


async def test_hosts_that_do_not_answer_keep_it_from_no_other_server(
    node: TinyNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "CONNECT_BOUND_S", 0.1)
    monkeypatch.setattr(network, "SUSPECT_S", 0.0)  # less than the bound, as it is
    monkeypatch.setattr(network.Network._suspect, "__defaults__", (0.0,))
    node.manage = lambda request, arguments: ({"status-code": 200}, {"logs": []})
    loop = asyncio.get_running_loop()
    silent = [await loop.create_server(asyncio.Protocol, "127.0.0.1", 0) for _ in range(2)]
    servers = ["{}:{}".format(*server.sockets[0].getsockname()) for server in silent]
    async with asyncio.timeout(60), AdminClient([*servers, node.address], timeout_s=3600) as admin:
        assert await admin.list_logs() == []
    for server in silent:
        server.close()


def cut_off_by_an_answer(node: TinyNode) -> None:
    answer = {"status-code": 503, "error-code": "unavailable", "status-description": CUT_OFF, "retriable": True}
    node.manage = lambda request, arguments: (answer, None)


def cut_off_by_an_end(node: TinyNode) -> None:
    def manage(request: dict[str, object], arguments: object) -> tuple[dict[str, object], object]:
        for connection in list(node.connections):
            connection.engine.close(Error("amqp:connection:forced", CUT_OFF))
            connection.flush()
        return {}, None

    node.manage = manage


CUT_OFF = "this node is cut off: nodes 2 and 3 do not answer"


@pytest.mark.parametrize("says", [cut_off_by_an_answer, cut_off_by_an_end])
async def test_what_a_node_said_is_told_rather_than_that_others_are_down(
    node: TinyNode, says: Callable[[TinyNode], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    says(node)
    real = network.Network._suspect

    def suspect(self: network.Network, address: Address, for_s: float = 0.0) -> None:
        real(self, address, 3600.0 if str(address) == node.address else 0.0)

    monkeypatch.setattr(network.Network, "_suspect", suspect)  # it is tried once, and the other one until the end
    gone = f"127.0.0.1:{free_port()}"
    async with asyncio.timeout(60), AdminClient([node.address, gone], timeout_s=3.0) as admin:
        with pytest.raises(TimeoutExpiredError, match=CUT_OFF):
            await admin.list_logs()


async def test_what_a_node_said_is_not_told_when_it_is_down_itself(
    node: TinyNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashing: list[asyncio.Task[None]] = []

    def manage(request: dict[str, object], arguments: object) -> tuple[dict[str, object], object]:
        crashing.append(asyncio.get_running_loop().create_task(node.crash()))
        return {"status-code": 503, "status-description": CUT_OFF, "retriable": True}, None

    node.manage = manage
    async with asyncio.timeout(60), AdminClient(node.address, timeout_s=3.0) as admin:
        with pytest.raises(UnreachableError):
            await admin.list_logs()
    assert crashing


async def test_a_client_that_knows_one_node_outlives_it(pair: tuple[TinyNode, TinyNode]) -> None:
    """The second node is in no redirect: the first one has told of it when the client connected."""
    first, second = pair
    first.properties[protocol.OPEN_NODES] = [["127.0.0.1", uint(second.port), "second.example"]]
    first.lead()
    async with ProducerClient(first.address, "trades") as producer:
        await producer.send_and_confirm(b"here", partition="0")
        second.lead()
        await first.crash()
        await producer.send_and_confirm(b"there", partition="0")
        (connection,) = second.connections
        assert connection.engine.remote_hostname == "second.example"


async def test_a_client_forgets_nodes_that_are_no_longer_told_of(pair: tuple[TinyNode, TinyNode]) -> None:
    first, second = pair
    gone = free_port()
    first.properties[protocol.OPEN_NODES] = [["127.0.0.1", uint(gone), ""], ["127.0.0.1", uint(second.port), ""]]
    known = network.Network(first.address)
    await known.connection(Address.parse(first.address))
    assert [str(one) for one in known._nodes] == [f"127.0.0.1:{port}" for port in (first.port, gone, second.port)]
    second.properties[protocol.OPEN_NODES] = [["127.0.0.1", uint(first.port), ""]]
    await known.connection(Address.parse(second.address))
    assert [one.port for one in known._nodes] == [second.port, first.port]
    await known.close()


async def test_a_node_that_stops_tells_of_the_others_once_more(pair: tuple[TinyNode, TinyNode]) -> None:
    """The client sleeps, so it hears of nodes that came since it connected in no other way."""
    first, second = pair
    known = network.Network(first.address)
    await known.connection(Address.parse(first.address))
    stops(first, [["127.0.0.1", uint(second.port), ""]])
    await eventually(lambda: str(known._entry()) == second.address)
    await known.close()


async def test_last_words_that_make_no_sense_are_passed_over(node: TinyNode) -> None:
    connection = await ClientConnection.open(Address.parse(node.address))
    connection.on_told = lambda nodes: pytest.fail(f"nodes that were never told: {nodes}")
    stops(node, 7)
    await eventually(lambda: connection.is_closed)
    await connection.close()


async def test_a_lost_connection_does_not_bring_back_what_its_node_told_before(pair: tuple[TinyNode, TinyNode]) -> None:
    first, second = pair
    first.properties[protocol.OPEN_NODES] = [["127.0.0.1", uint(free_port()), ""]]
    second.properties[protocol.OPEN_NODES] = [["127.0.0.1", uint(free_port()), ""]]
    known = network.Network(first.address)
    lost = await known.connection(Address.parse(first.address))
    await known.connection(Address.parse(second.address))
    told = known._nodes
    without_a_word(first)
    await eventually(lambda: lost.is_closed)
    assert known._nodes == told
    await known.close()


@pytest.mark.parametrize(
    "told",
    [
        "here", 7, [7], [["host", uint(1)]], [["host", uint(0), ""]], [["host", 70000, ""]], [["", 1, ""]],
        [[b"host", 1, ""]], [["host", "1", ""]], [["host", 1, None]],
    ],
    ids=itertools.count(),
)  # fmt: skip
async def test_a_list_of_nodes_that_makes_no_sense_is_an_error_of_the_node(node: TinyNode, told: object) -> None:
    node.properties[protocol.OPEN_NODES] = told
    with pytest.raises(ProtocolError, match="tells of other nodes"):
        await ClientConnection.open(Address.parse(node.address))


async def test_what_a_later_node_tells_beyond_that_is_passed_over(node: TinyNode) -> None:
    node.properties[protocol.OPEN_NODES] = [["host", uint(1), "", "rack"]] * (protocol.TOLD_NODES + 1)
    connection = await ClientConnection.open(Address.parse(node.address))
    assert connection.other_nodes == [Address("host", 1)] * protocol.TOLD_NODES
    await connection.close()


async def test_a_client_that_follows_nobody_stays_with_its_servers(pair: tuple[TinyNode, TinyNode]) -> None:
    first, second = pair
    first.properties[protocol.OPEN_NODES] = [["127.0.0.1", uint(second.port), ""]]
    known = network.Network(first.address, network.NetworkOptions(follow_redirects=False))
    await known.connection(Address.parse(first.address))
    known._suspect(Address.parse(first.address))
    assert str(known._entry()) == first.address
    await known.close()
