"""`$management` beyond what stock clients show: routing of answers, bad requests, bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from holdfast.amqp import ACCEPTED, Message, Source, Target, Value, decode_message, encode_message, ulong
from node.listener.management import ANSWERS_WAITING, REQUESTS_UNDER_WAY
from tests.unit.listener.support.peer import Peer, eventually
from tests.unit.listener.support.single import SingleNode


def request(kind: str, operation: str, **more: Any) -> bytes:
    properties = {"type": kind, "operation": operation} | ({"name": more.pop("name")} if "name" in more else {})
    more.setdefault("message_id", "m")
    return encode_message(Message(application_properties=properties, **more))


async def answers(peer: Peer, link: Any, count: int) -> list[Message]:
    await peer.until(lambda: len(peer.received.get(link, [])) >= count)
    return [decode_message(payload) for payload in peer.received[link]]


async def test_answers_go_where_reply_to_points_by_address_target_or_name(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        sender = await peer.sender("$management")
        by_session = await peer.receiver("$management", credit=10)
        dynamic = await peer.receiver(Source(dynamic=True), credit=10)
        by_target = await peer.receiver("$management", credit=10, target=Target(address="my-answers"))
        by_name = await peer.receiver("$management", credit=10, name="by-name")
        assert dynamic.remote_source.address.startswith("$reply/")
        wanted = {
            by_session: None,
            dynamic: dynamic.remote_source.address,
            by_target: "my-answers",
            by_name: "by-name",
        }
        for link, reply_to in wanted.items():
            await peer.send(sender, [request("log", "list", reply_to=reply_to, message_id=f"for {link.name}")])
        for link in wanted:
            (answer,) = await answers(peer, link, 1)
            assert answer.correlation_id == f"for {link.name}"
            assert answer.application_properties["status-code"] == 200
        assert set(await peer.states(sender, 4)) == {ACCEPTED}


async def test_the_correlation_keeps_its_type(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        sender = await peer.sender("$management")
        link = await peer.receiver("$management", credit=10)
        ids: list[Any] = ["text", 7, b"bytes"]
        await peer.send(sender, [request("log", "list", message_id=one) for one in ids])
        await peer.send(sender, [request("log", "list", message_id=None, correlation_id="old way")])
        found = [answer.correlation_id for answer in await answers(peer, link, 4)]
        assert sorted(map(repr, found)) == sorted(map(repr, ["text", ulong(7), b"bytes", "old way"]))


async def test_what_is_no_request_is_rejected_and_what_is_a_wrong_one_answered(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        sender = await peer.sender("$management")
        link = await peer.receiver("$management", credit=10)
        await peer.send(
            sender,
            [
                b"nonsense",
                request("log", "list", message_id=None),
                encode_message(Message(message_id="a")),
                request("log", "create", name="x", body=Value(["list"]), message_id="b"),
                request("log", "create", name="x", body=Value({"partitions": "four"}), message_id="c"),
                request("log", "create", name="x", body=Value({"partitions": True}), message_id="d"),
                request("log", "describe", name="nowhere", message_id="e"),
                request("LOG", "List", message_id="f"),
            ],
        )
        states = await peer.states(sender, 8)
        assert [getattr(getattr(state, "error", None), "condition", None) for state in states[:2]] == [
            "amqp:decode-error",
            "amqp:invalid-field",
        ]
        assert set(states[2:]) == {ACCEPTED}
        found = {str(answer.correlation_id): answer for answer in await answers(peer, link, 6)}
        status = {key: answer.application_properties["status-code"] for key, answer in sorted(found.items())}
        assert status == {"a": 400, "b": 400, "c": 400, "d": 400, "e": 404, "f": 200}
        assert found["e"].application_properties["error-code"] == "not-found"


async def test_a_failure_inside_the_node_is_an_answer_too(node: SingleNode) -> None:
    async def broken(operation: str, args: Mapping[str, Any]) -> dict[str, Any]:
        if operation == "node.list":
            return {"nodes": object()}
        raise ZeroDivisionError

    node.admin = broken  # type: ignore[method-assign]
    async with Peer(node.port) as peer:
        sender = await peer.sender("$management")
        link = await peer.receiver("$management", credit=10)
        await peer.send(sender, [request("log", "list"), request("node", "list"), request("tea", "make")])
        codes = sorted(a.application_properties["status-code"] for a in await answers(peer, link, 3))
        assert codes == [500, 500, 501]


async def test_requests_and_answers_that_wait_are_bounded(node: SingleNode) -> None:
    gate = asyncio.Event()
    under_way = 0

    async def slow(operation: str, args: Mapping[str, Any]) -> dict[str, Any]:
        nonlocal under_way
        under_way += 1
        await gate.wait()
        under_way -= 1
        return {}

    node.admin = slow  # type: ignore[method-assign]
    async with Peer(node.port) as peer:
        sender = await peer.sender("$management")
        link = await peer.receiver("$management")
        assert sender.credit == REQUESTS_UNDER_WAY
        await peer.send(sender, [request("log", "list")] * REQUESTS_UNDER_WAY)
        await eventually(lambda: under_way == REQUESTS_UNDER_WAY)
        assert sender.credit == 0
        gate.set()
        sent = REQUESTS_UNDER_WAY
        while sent < 3 * ANSWERS_WAITING:
            await peer.until(lambda: sender.credit > 0)
            sent += len(await peer.send(sender, [request("log", "list")] * sender.credit))
        await peer.states(sender, sent)
        await eventually(lambda: not under_way)
        await peer.grant(link, 10 * ANSWERS_WAITING)
        await answers(peer, link, ANSWERS_WAITING)
        await peer.send(sender, [request("log", "list", message_id="last")])
        found = await answers(peer, link, ANSWERS_WAITING + 1)
        assert len(found) == ANSWERS_WAITING + 1
        assert found[-1].correlation_id == "last"


async def test_info_comes_once_per_credit_and_is_spaced(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        link = await peer.receiver("wide/$info", credit=2)
        await peer.until(lambda: len(peer.received.get(link, [])) == 1)
        loop = asyncio.get_running_loop()
        first_s = loop.time()
        await peer.until(lambda: len(peer.received[link]) == 2)
        assert loop.time() - first_s > 0.8 * node.config.info_interval_s
        assert link.credit == 0
