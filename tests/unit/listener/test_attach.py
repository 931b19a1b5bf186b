"""What an attach is answered: bound, agnostic, refused, redirected, or held until a leader is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.amqp import Coordinator, Described, LinkDetached, LinkOpened, Source, Target, symbol, uint, ulong
from node.listener import AmqpAddress
from tests.unit.listener.support.peer import Peer, eventually, message
from tests.unit.listener.support.single import SingleNode

STREAMS = "AMQP_EVENT_STREAMS_V1_0"
REDIRECT = "amqp:link:redirect"


async def test_the_capability_is_offered(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        assert STREAMS in peer.engine.remote_offered_capabilities
        assert peer.engine.remote_container == "single-1"


@pytest.mark.parametrize("partition", [None, "3"])
async def test_the_answer_names_the_effective_partition_of_bound_links_only(
    node: SingleNode, partition: str | None
) -> None:
    expected = {} if partition is None else {"event-streams-partition": "3"}
    async with Peer(node.port) as peer:
        assert dict((await peer.sender("wide", partition)).remote_properties) == expected
        assert dict((await peer.receiver("wide", partition)).remote_properties) == expected


@pytest.mark.parametrize(
    ("target", "partition", "condition"),
    [
        ("nowhere", None, "amqp:not-found"),
        ("wide", "4", "amqp:not-found"),
        ("wide/$info", None, "amqp:not-allowed"),
        (Target(address=""), None, "amqp:invalid-field"),
        (Target(dynamic=True), None, "amqp:not-implemented"),
        (Coordinator(("amqp:local-transactions",)), None, "amqp:not-implemented"),
    ],
    ids=repr,
)
async def test_senders_that_cannot_be_served_are_refused(
    node: SingleNode, target: Any, partition: str | None, condition: str
) -> None:
    async with Peer(node.port) as peer:
        properties = None if partition is None else {"event-streams-partition": symbol(partition)}
        error = await peer.refused(peer.engine.open_sender(target, properties=properties))
        assert error.condition == condition, error
        await peer.sender("wide")  # the connection is none the worse for it


@pytest.mark.parametrize(
    ("source", "properties", "condition"),
    [
        ("nowhere", {}, "amqp:not-found"),
        ("nowhere/$info", {}, "amqp:not-found"),
        ("wide", {"event-streams-partition": symbol("x")}, "amqp:not-found"),
        ("wide", {"event-streams-partition": 1}, "amqp:invalid-field"),
        ("wide", {"event-streams-epoch": 3}, "amqp:invalid-field"),
        ("wide", {"holdfast:until": symbol("0" * 16)}, "amqp:invalid-field"),
        ("wide", {"event-streams-partition": symbol("0"), "holdfast:until": symbol("soon")}, "amqp:invalid-field"),
        ("wide", {"event-streams-partition": symbol("0"), "holdfast:until": 7}, "amqp:invalid-field"),
        ("wide", {"event-streams-partition": symbol("0"), "event-streams-consumer-group": "g",
                  "holdfast:until": symbol("0" * 16)}, "amqp:invalid-field"),
        (Source(), {}, "amqp:invalid-field"),
        (Source(address="wide", filter={"f": Described(ulong(0x200), {"event-streams-offset": "@soon"})}), {},
         "amqp:invalid-field"),
        (Source(address="wide", filter={"f": Described(ulong(0x201), "TRUE OR")}), {}, "amqp:invalid-field"),
        (Source(address="wide", filter={"f": symbol("bare")}), {}, "amqp:invalid-field"),
    ],
    ids=repr,
)  # fmt: skip
async def test_receivers_that_cannot_be_served_are_refused(
    node: SingleNode, source: Any, properties: dict[str, Any], condition: str
) -> None:
    async with Peer(node.port) as peer:
        error = await peer.refused(peer.engine.open_receiver(source, properties=properties))
        assert error.condition == condition, error
        await peer.receiver("wide")


async def test_filters_in_force_are_echoed_and_ignored_ones_left_out(node: SingleNode) -> None:
    position = Described(ulong(0x200), {symbol("event-streams-offset"): symbol("@earliest")})
    colour = Described(symbol("example:colour"), "red")
    async with Peer(node.port) as peer:
        link = await peer.receiver(Source(address="wide", filter={"start": position, "colour": colour}))
        assert list(link.remote_source.filter) == ["start"]


# ------------------------------------------------------------------------------------------------- redirects

OTHER = AmqpAddress("other.example", "192.0.2.7", 5673)


async def attach_elsewhere(node: SingleNode, partition: str | None, desired: tuple[str, ...]) -> Any:
    """The error of a sender's attach to a partition that node 2 leads; None when it was accepted."""
    node.addresses[2] = OTHER
    node.lead_elsewhere("wide", "1", 2)
    async with Peer(node.port, desired=desired) as peer:
        properties = None if partition is None else {"event-streams-partition": symbol(partition)}
        link = peer.engine.open_sender("wide", properties=properties)
        await peer.flush()
        await peer.until(lambda: any(isinstance(event, LinkOpened | LinkDetached) for event in peer.history))
        found = [event.error for event in peer.history if isinstance(event, LinkDetached)]
        assert found or link.is_open
        return found[0] if found else None


@pytest.mark.parametrize("desired", [(REDIRECT,), (STREAMS,)])
async def test_who_can_follow_is_redirected_with_everything_needed_to_connect(
    node: SingleNode, desired: tuple[str, ...]
) -> None:
    error = await attach_elsewhere(node, "1", desired)
    assert error.condition == "amqp:link:redirect"
    assert dict(error.info) == {
        "hostname": "other.example",
        "network-host": "192.0.2.7",
        "port": 5673,
        "address": "wide",
    }
    assert isinstance(error.info["port"], uint)


async def test_who_cannot_follow_and_who_asked_for_no_partition_is_served_here(node: SingleNode) -> None:
    assert await attach_elsewhere(node, "1", ()) is None
    assert await attach_elsewhere(node, None, (REDIRECT, STREAMS)) is None


@pytest.mark.parametrize(("policy", "desired", "redirected"), [("always", (), True), ("never", (REDIRECT,), False)])
async def test_the_policy_may_decide_for_everybody(
    tmp_path: Path, policy: str, desired: tuple[str, ...], redirected: bool
) -> None:
    node = await SingleNode(tmp_path, redirect=policy).start()
    await node.create("wide", 2)
    error = await attach_elsewhere(node, "1", desired)
    assert (error is not None) is redirected
    await node.stop()


async def test_info_and_management_are_never_redirected(tmp_path: Path) -> None:
    node = await SingleNode(tmp_path, redirect="always", leader_wait_s=0.3).start()
    await node.create("wide", 2)
    node.addresses[2] = OTHER
    for partition in ("0", "1"):
        node.lead_elsewhere("wide", partition, 2)
    async with Peer(node.port, desired=(REDIRECT,)) as peer:
        await peer.sender("$management")
        await peer.receiver("$management")
        info = await peer.receiver("wide/$info", credit=1)
        await peer.until(lambda: peer.received.get(info))
        assert b"available" in peer.received[info][0]  # false: node 2 does not exist
    await node.stop()


async def test_a_leader_without_an_address_for_our_clients_is_served_through_the_gateway(node: SingleNode) -> None:
    node.lead_elsewhere("wide", "1", 2)
    async with Peer(node.port, desired=(REDIRECT,)) as peer:
        sender = await peer.sender("wide", "1")
        node.ring()  # nor does any later change close it
        await peer.receiver("wide/$info", credit=1)
        assert sender.is_open


# ------------------------------------------------------------------------------------------------- elections


async def test_an_attach_is_held_until_the_leader_is_known(node: SingleNode) -> None:
    node.lead_elsewhere("wide", "1", None)
    async with Peer(node.port, desired=(REDIRECT,)) as peer:
        link = peer.engine.open_sender("wide", properties={"event-streams-partition": symbol("1")})
        await peer.flush()
        await peer.sender("wide", "0")  # the connection goes on meanwhile
        assert not link.is_open
        node.lead_here("wide", "1")
        await peer.wait(LinkOpened, lambda event: event.link is link)


async def test_a_held_attach_is_redirected_when_the_new_leader_is_another(node: SingleNode) -> None:
    node.addresses[2] = OTHER
    node.lead_elsewhere("wide", "1", None)
    async with Peer(node.port, desired=(REDIRECT,)) as peer:
        link = peer.engine.open_receiver("wide", properties={"event-streams-partition": symbol("1")})
        await peer.flush()
        await peer.receiver("wide", "0")
        node.lead_elsewhere("wide", "1", 2)
        assert (await peer.refused(link)).condition == REDIRECT


async def test_an_attach_without_a_leader_is_refused_after_a_while_and_may_be_tried_again(tmp_path: Path) -> None:
    node = await SingleNode(tmp_path, leader_wait_s=0.1).start()
    await node.create("wide", 2)
    node.lead_elsewhere("wide", "1", None)
    async with Peer(node.port) as peer:
        for opener in (peer.engine.open_sender, peer.engine.open_receiver):
            error = await peer.refused(opener("wide", properties={"event-streams-partition": symbol("1")}))
            assert error.condition == "amqp:link:detach-forced"
            assert "again" in (error.description or "")
        error = await peer.refused(peer.engine.open_receiver("wide"))  # @latest of a partition nobody can ask
        assert error.condition == "amqp:link:detach-forced"
        node.lead_here("wide", "1")
        await peer.receiver("wide", "1")
    await node.stop()


async def test_a_held_attach_dies_with_its_connection_or_its_log(node: SingleNode) -> None:
    node.lead_elsewhere("wide", "1", None)
    async with Peer(node.port) as peer:
        peer.engine.open_sender("wide", properties={"event-streams-partition": symbol("1")})
        await peer.flush()
        link = peer.engine.open_receiver("wide", properties={"event-streams-partition": symbol("1")})
        await peer.flush()
        await peer.sender("trades")
        node.delete("wide")
        assert (await peer.refused(link)).condition == "amqp:resource-deleted"
    await eventually(lambda: not node.listener.counters.connections_open)


async def test_links_are_told_when_the_leader_moves_under_them(node: SingleNode) -> None:
    node.addresses[2] = OTHER
    async with Peer(node.port, desired=(REDIRECT,)) as peer:
        sender = await peer.sender("wide", "1")
        receiver = await peer.receiver("wide", "1", credit=10)
        await peer.send(sender, [message(b"%d" % number) for number in range(50)])
        assert len(await peer.states(sender, 50)) == 50
        node.lead_elsewhere("wide", "1", 2)
        for link in (sender, receiver):
            assert (await peer.refused(link)).condition == REDIRECT
        assert len(peer.received[receiver]) == 10


async def test_links_wait_for_the_new_leader_before_they_are_redirected(node: SingleNode) -> None:
    node.addresses[2] = OTHER
    async with Peer(node.port, desired=(STREAMS,)) as peer:
        sender = await peer.sender("wide", "1")
        await peer.send(sender, [message()])
        await peer.states(sender, 1)
        node.lead_elsewhere("wide", "1", None)
        await peer.sender("wide", "0")
        assert sender.is_open
        node.lead_elsewhere("wide", "1", 2)
        assert (await peer.refused(sender)).condition == REDIRECT


async def test_a_log_that_was_made_elsewhere_a_moment_ago_is_found(node: SingleNode) -> None:
    """This node hears of it when it asks how far the metadata go."""

    async def heard() -> bool:
        await node.create("fresh")
        return True

    node.current = heard  # type: ignore[method-assign]
    async with Peer(node.port) as peer:
        await peer.sender("fresh")


async def test_without_a_majority_nobody_is_told_that_a_log_is_not_there(node: SingleNode) -> None:
    node.knows_all = False
    async with Peer(node.port) as peer:
        error = await peer.refused(peer.engine.open_sender("nowhere"))
        assert error.condition == "amqp:link:detach-forced"
        assert "attach again later" in (error.description or "")
        await peer.sender("wide")
