"""A client that sleeps hears of nodes that come and go, as long as one of those that it knows is there."""

from __future__ import annotations

import logging

import pytest

from holdfast import protocol
from holdfast.amqp import Error
from holdfast.client.transport import node_watch
from holdfast.client.transport.address import Address
from holdfast.client.transport.network import Network, NetworkOptions
from tests.unit.client.support.tiny_node import TinyLog, TinyNode
from tests.unit.listener.support.peer import eventually


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_watch, "PAUSE_S", 0.0)


def watches(node: TinyNode) -> int:
    """Links by which the node tells of the others now."""
    return sum(len(connection.watches) for connection in node.connections)


def all_told(node: TinyNode) -> bool:
    """Whether there is such a link, and the latest has been sent by each."""
    return watches(node) > 0 and all(all(connection.watches.values()) for connection in node.connections)


def known(client: Network) -> set[int]:
    return {address.port for address in client._nodes}


async def sleeping(node: TinyNode, options: NetworkOptions | None = None) -> Network:
    client = Network(node.address, options)
    await client.connection(Address.parse(node.address))
    return client


async def test_it_hears_of_a_node_that_comes(pair: tuple[TinyNode, TinyNode]) -> None:
    first, second = pair
    first.tell()
    client = await sleeping(first)
    await eventually(lambda: watches(first))
    assert known(client) == {first.port}
    first.tell(second)
    await eventually(lambda: known(client) == {first.port, second.port})
    first.tell()
    await eventually(lambda: known(client) == {first.port})
    await client.close()


@pytest.mark.parametrize("the_last_one", [0, 1, 2])
async def test_it_outlives_all_nodes_that_it_was_given_in_any_order(the_last_one: int) -> None:
    """It is connected to the first one only, and they die one after the other, each after its successor came."""
    log = TinyLog()
    nodes = [await TinyNode(log).start() for _ in range(6)]
    alive = nodes[:3]
    client = Network([node.address for node in alive])
    for node in alive:
        node.tell(*(other for other in alive if other is not node))
    await client.connection(Address.parse(nodes[0].address))
    order = [number for number in range(3) if number != the_last_one] + [the_last_one]
    for number in order:
        await eventually(lambda: sum(map(watches, alive)) == 1)
        alive.append(nodes[number + 3])
        for node in alive:
            node.tell(*(other for other in alive if other is not node))
        await eventually(lambda: known(client) == {node.port for node in alive})
        await nodes[number].crash()
        alive.remove(nodes[number])
        for node in alive:
            node.tell(*(other for other in alive if other is not node))
    await eventually(lambda: known(client) == {node.port for node in nodes[3:]})
    await client.close()
    for node in alive:
        await node.crash()


async def test_it_watches_one_node_by_a_connection_that_is_there(pair: tuple[TinyNode, TinyNode]) -> None:
    first, second = pair
    for one, other in ((first, second), (second, first)):
        one.tell(other)
    client = await sleeping(first)
    await client.connection(Address.parse(second.address))
    await eventually(lambda: watches(first) + watches(second))
    watched, other = (first, second) if watches(first) else (second, first)
    watched.close_links(None)
    await eventually(lambda: watches(first) + watches(second))
    await watched.crash()
    await eventually(lambda: watches(other) == 1)
    assert len(other.connections) == 1
    await client.close()


async def test_so_many_attempts_in_vain_are_the_last_until_it_connects_again(
    node: TinyNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(node_watch, "ATTEMPTS", 3)
    caplog.set_level(logging.INFO, "holdfast.client")
    node.tell()
    node.refuse = lambda address, partition: Error("amqp:internal-error", "not now")
    client = await sleeping(node)
    await eventually(lambda: client._watch._task is None)
    assert [address for _, address, _ in node.attaches] == [protocol.NODES_ADDRESS] * 3
    assert not caplog.messages, "it is no error of the program's"
    node.refuse = lambda address, partition: None
    lost = await client.connection(Address.parse(node.address))
    await lost.close()
    await client.connection(Address.parse(node.address))
    await eventually(lambda: watches(node))
    await client.close()


async def test_what_makes_no_sense_is_passed_over(node: TinyNode) -> None:
    node.tell()
    client = await sleeping(node)
    await eventually(lambda: all_told(node))
    node.properties[protocol.OPEN_NODES] = 7
    for connection in node.connections:
        connection.tell()
    await eventually(lambda: all_told(node))
    node.tell(node)
    await eventually(lambda: len(client._nodes) == 2)
    await client.close()


@pytest.mark.parametrize("way", ["tells of none", "is a gateway"])
async def test_who_hears_of_no_nodes_does_not_ask(node: TinyNode, way: str) -> None:
    if way == "is a gateway":
        node.tell()
    client = await sleeping(node, NetworkOptions(follow_redirects=way != "is a gateway"))
    assert client._watch._task is None
    await client.close()


async def test_a_close_ends_the_search(node: TinyNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_watch, "PAUSE_S", 3600.0)
    node.tell()
    client = await sleeping(node)
    searching = client._watch._task
    assert searching is not None
    await client.close()
    assert searching.cancelled()
