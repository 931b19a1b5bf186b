"""Which of its servers a client turns to, when one has ended the connection."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.amqp import Error
from holdfast.client import ProducerClient
from holdfast.client.transport import network
from tests.unit.client.support.tiny_node import TinyNode


def by_force(node: TinyNode) -> None:
    for connection in list(node.connections):
        connection.engine.close(Error("amqp:connection:forced", "elsewhere"))
        connection.flush()


def without_a_word(node: TinyNode) -> None:
    for connection in list(node.connections):
        connection.transport.close()


def reset(node: TinyNode) -> None:
    for connection in list(node.connections):
        connection.abort()


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
