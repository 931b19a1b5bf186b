"""Receivers of clients that only name an address: browsers, their answers, and the end of a durable source by name."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import protocol
from holdfast.amqp import Described, Drained, LinkDetached, Source, Target, symbol
from node.listener.outgoing.consumer_groups import unsubscribe
from node.partition.consumer_groups.group_state import terminus_key
from tests.unit.listener.support.consuming import attached, durable, offsets, terms
from tests.unit.listener.support.peer import Peer, eventually
from tests.unit.listener.support.reading import fill
from tests.unit.listener.support.single import SingleNode

SELECTOR = Described(symbol("apache.org:selector-filter:string"), "TRUE")


def browser(address: str = "trades", **more: Any) -> Source:
    return Source(address=address, distribution_mode="copy", **more)


@pytest.mark.parametrize("more", [{}, {"filter": {"jms-selector": SELECTOR}}], ids=["all", "selected"])
async def test_a_browser_begins_at_the_earliest_event_and_is_told_the_end(node: SingleNode, more: Any) -> None:
    async with Peer(node.port) as peer:
        await fill(peer, 20)
        link = await peer.receiver(browser(**more))
        link.drain(100)
        await peer.flush()
        await peer.wait(Drained, lambda event: event.link is link)
        assert await offsets(peer, link, 20) == list(range(20))


@pytest.mark.parametrize("address", ["trades?start=latest", f"trades?start=offset:{9:016x}"])
async def test_a_browser_that_names_a_start_begins_there(node: SingleNode, address: str) -> None:
    async with Peer(node.port) as peer:
        await fill(peer, 20)
        link = await peer.receiver(browser(address))
        link.drain(100)
        await peer.flush()
        await peer.wait(Drained, lambda event: event.link is link)
        assert len(peer.received.get(link, [])) == (0 if address.endswith("latest") else 10)


async def test_a_peer_that_knows_the_extension_copies_from_now_on(node: SingleNode) -> None:
    """ES-8."""
    async with Peer(node.port, desired=(protocol.EVENT_STREAMS_CAPABILITY,)) as peer:
        await fill(peer, 5)
        link = await peer.receiver(browser(), credit=100)
        await fill(peer, 1)
        assert await offsets(peer, link, 1) == [5]


async def test_the_answer_says_outcomes_capabilities_and_the_settle_mode_in_force(node: SingleNode) -> None:
    """Second is not served: the answer says first, and deliveries are settled with the receiver's outcome."""
    async with Peer(node.port) as peer:
        asked = Source(address="trades", capabilities=("topic", "shared"), outcomes=("amqp:accepted:list", "x:other"))
        link = await peer.receiver(asked, rcv_settle_mode=1)
        assert link.remote_source.outcomes == ("amqp:accepted:list",)
        assert link.remote_source.capabilities == ("topic",)
        assert link.remote_rcv_settle_mode == 0
        plain = await peer.receiver("trades")
        assert len(plain.remote_source.outcomes) == 4
        assert plain.remote_source.capabilities == ()


# ------------------------------------------------------------------------------------------------- unsubscribing


async def subscribe(peer: Peer) -> None:
    """A durable source `mine` in all partitions, left in peace."""
    link = await attached(peer, terms(group=None, partition=None), durable("wide"), name="mine")
    link.detach()
    await peer.flush()
    await peer.wait(LinkDetached, lambda event: event.link is link)


def known(node: SingleNode) -> int:
    """Partitions that know the durable source."""
    key = terminus_key("a/mine")
    return sum(replica._machine.ownership.get(key) is not None for replica in node.logs["wide"].values())


def by_name(peer: Peer, name: str = "mine") -> Any:
    return peer.engine.open_receiver(None, name=name, target=Target())  # type: ignore[arg-type]


async def test_a_null_source_finds_a_durable_source_and_its_close_ends_it(node: SingleNode) -> None:
    async with Peer(node.port, container="a") as peer:
        await subscribe(peer)
        await eventually(lambda: known(node) == 4)
        found = by_name(peer)
        await peer._opened(found)
        assert (found.remote_source.address, found.remote_source.expiry_policy) == ("wide", "never")
        assert known(node) == 4
        found.close()
        await peer.flush()
        await eventually(lambda: known(node) == 0)
        assert (await peer.refused(by_name(peer))).condition == "amqp:not-found"


async def test_a_detach_that_does_not_close_ends_nothing(node: SingleNode) -> None:
    async with Peer(node.port, container="a") as peer:
        await subscribe(peer)
        found = by_name(peer)
        await peer._opened(found)
        found.detach()
        await peer.flush()
        await peer.wait(LinkDetached, lambda event: event.link is found)
        await peer._opened(by_name(peer))
        assert known(node) == 4


async def test_a_source_whose_reader_is_leaving_is_found(node: SingleNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a link is known in its partitions a moment after its detach."""
    monkeypatch.setattr(unsubscribe, "CONTINUE_WAIT_S", 60.0)
    async with Peer(node.port, container="a") as peer:
        link = await attached(peer, terms(group=None, partition=None), durable("wide"), name="mine")
        session = peer.engine.open_session()
        found = peer.engine.open_receiver(None, name="mine", target=Target(), session=session)  # type: ignore[arg-type]
        await peer.flush()
        link.detach()
        await peer._opened(found)
        assert found.remote_source.address == "wide"


async def test_what_is_read_or_belongs_to_another_is_left_alone(
    node: SingleNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unsubscribe, "CONTINUE_WAIT_S", 0.0)
    async with Peer(node.port, container="a") as peer, Peer(node.port, container="b") as other:
        await attached(peer, terms(group=None, partition=None), durable("wide"), name="mine")
        assert (await other.refused(by_name(other))).condition == "amqp:not-found"
        session = peer.engine.open_session()
        link = peer.engine.open_receiver(None, name="mine", target=Target(), session=session)  # type: ignore[arg-type]
        assert (await peer.refused(link)).condition == "amqp:resource-locked"
        assert known(node) == 4


# ------------------------------------------------------------------------------------------------- dynamic addresses


async def test_dynamic_targets_are_refused_and_dynamic_sources_take_answers_of_management(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        error = await peer.refused(peer.engine.open_sender(Target(dynamic=True)))
        assert error.condition == "amqp:not-implemented"
        assert "create a log" in (error.description or "")
        assert (await peer.receiver(Source(dynamic=True))).remote_source.address.startswith("$reply/")
