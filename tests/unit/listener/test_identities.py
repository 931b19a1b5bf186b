"""A client that says which log it means gets that one, or is refused: not one of its name in another cluster."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.amqp import Source
from holdfast.amqp.errors import DETACH_FORCED, INVALID_FIELD, RESOURCE_DELETED
from tests.unit.listener.support.peer import Peer
from tests.unit.listener.support.single import SingleNode

LOG = "holdfast:log"
OTHER = "00000000000000b2"
SAID = f"another cluster answers at this address: cluster {OTHER} is meant, and this is 00000000000000a1"


def attach(peer: Peer, kind: str, log: str, said: dict[str, Any]) -> Any:
    if kind == "sender":
        return peer.engine.open_sender(log, properties=said)
    return peer.engine.open_receiver(Source(f"{log}/$info" if kind == "info" else log), properties=said)


KINDS = pytest.mark.parametrize("kind", ["sender", "receiver", "info"])


@KINDS
async def test_who_asks_is_told_and_comes_back_with_that(node: SingleNode, kind: str) -> None:
    async with Peer(node.port) as peer:
        told = []
        for log in ("trades", "wide"):
            link = attach(peer, kind, log, {LOG: None})
            await peer._opened(link)
            told.append(link.remote_properties[LOG])
            again = attach(peer, kind, log, {LOG: told[-1]})
            await peer._opened(again)
            assert again.remote_properties[LOG] == told[-1]
        assert told[0] != told[1]
        assert {text.partition("/")[0] for text in told} == {node.cluster_id}
        mixed = attach(peer, kind, "wide", {LOG: told[0]})
        error = await peer.refused(mixed)
        assert error.condition == RESOURCE_DELETED
        assert "that is meant was deleted" in str(error.description)


@KINDS
async def test_who_does_not_ask_is_not_told(node: SingleNode, kind: str) -> None:
    async with Peer(node.port) as peer:
        link = attach(peer, kind, "trades", {})
        await peer._opened(link)
        assert LOG not in (link.remote_properties or {})


@KINDS
@pytest.mark.parametrize("log", ["trades", "of the first cluster only"])
async def test_a_log_of_another_cluster_is_not_here(node: SingleNode, kind: str, log: str) -> None:
    """Its number may be that of a log here, since each cluster counts its own."""
    async with Peer(node.port) as peer:
        ours = attach(peer, kind, "trades", {LOG: None})
        await peer._opened(ours)
        number = ours.remote_properties[LOG].partition("/")[2]
        error = await peer.refused(attach(peer, kind, log, {LOG: f"{OTHER}/{number}"}))
        assert error.condition == RESOURCE_DELETED
        assert SAID in str(error.description)


@KINDS
async def test_a_node_that_knows_no_cluster_yet_lets_nobody_back_in_and_tells_nothing(
    node: SingleNode, kind: str
) -> None:
    node.cluster_id = None
    async with Peer(node.port) as peer:
        error = await peer.refused(attach(peer, kind, "trades", {LOG: f"{OTHER}/1"}))
        assert error.condition == DETACH_FORCED, "it may be that one: try again"
        link = attach(peer, kind, "trades", {LOG: None})
        await peer._opened(link)
        assert LOG not in (link.remote_properties or {})


@KINDS
async def test_what_is_no_text_is_refused(node: SingleNode, kind: str) -> None:
    async with Peer(node.port) as peer:
        assert (await peer.refused(attach(peer, kind, "trades", {LOG: 7}))).condition == INVALID_FIELD
