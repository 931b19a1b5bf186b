"""`$management` beyond what stock clients show: routing of answers, bad requests, bounds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from holdfast.amqp import ACCEPTED, LinkDetached, Message, Source, Target, Value, decode_message, encode_message, ulong
from node.listener.management import (
    ANSWERS_WAITING,
    ANSWERS_WAITING_BYTES,
    CORRELATION_BYTES,
    FAILURE_CHARACTERS,
    REQUEST_VALUES,
    REQUESTS_UNDER_WAY,
)
from node.security.audit import AuditLog
from node.security.authentication import Gate
from node.security.connection_identity import WRITTEN_CHARACTERS
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


async def test_an_answer_goes_to_the_session_of_its_request_and_elsewhere_when_nothing_there_takes_it(
    node: SingleNode,
) -> None:
    async with Peer(node.port) as peer:
        other = peer.engine.open_session()
        elsewhere = await peer.receiver("$management", credit=10, name="one-name", session=other)
        here = await peer.receiver("$management", credit=10, name="one-name")
        sender = await peer.sender("$management")
        for reply_to in (None, "one-name"):
            await peer.send(sender, [request("log", "list", reply_to=reply_to)])
        assert len(await answers(peer, here, 2)) == 2
        assert elsewhere not in peer.received
        here.close()
        await peer.flush()
        await peer.wait(LinkDetached, lambda event: event.link is here)
        for reply_to in (None, "one-name"):
            await peer.send(sender, [request("log", "list", reply_to=reply_to)])
        assert len(await answers(peer, elsewhere, 2)) == 2
        elsewhere.close()
        await peer.flush()
        await peer.wait(LinkDetached, lambda event: event.link is elsewhere)
        (connection,) = node.listener._connections
        assert not connection._replies._links, "nothing is remembered of those that are gone"


class Walked(dict[Any, Any]):
    """Counts how often all of it is looked at."""

    times = 0

    def values(self) -> Any:
        self.times += 1
        return super().values()


async def test_an_answer_does_not_look_at_all_links_of_its_connection(node: SingleNode) -> None:
    """A connection may have thousands, and ask as often."""
    async with Peer(node.port) as peer:
        links = [await peer.receiver("$management", credit=10, name=f"reply-{number}") for number in range(20)]
        sender = await peer.sender("$management")
        (connection,) = node.listener._connections
        connection.endpoints = walked = Walked(connection.endpoints)
        for link in links:
            await peer.send(sender, [request("log", "list", reply_to=link.name, message_id=link.name)])
            assert [answer.correlation_id for answer in await answers(peer, link, 1)] == [link.name]
        assert walked.times == 0


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
                request("log", "create", name="", message_id="g"),
            ],
        )
        states = await peer.states(sender, 9)
        assert [getattr(getattr(state, "error", None), "condition", None) for state in states[:2]] == [
            "amqp:decode-error",
            "amqp:invalid-field",
        ]
        assert set(states[2:]) == {ACCEPTED}
        found = {str(answer.correlation_id): answer for answer in await answers(peer, link, 7)}
        status = {key: answer.application_properties["status-code"] for key, answer in sorted(found.items())}
        assert status == {"a": 400, "b": 400, "c": 400, "d": 400, "e": 404, "f": 200, "g": 400}
        assert found["e"].application_properties["error-code"] == "not-found"
        assert found["g"].application_properties["status-description"] == (
            "application property 'name' is empty; say what is meant"
        )


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


async def test_answers_that_wait_are_bounded_in_bytes_and_belong_to_the_budget(node: SingleNode) -> None:
    """Of all reply links of a connection together; a single one is taken whatever its size."""
    size = ANSWERS_WAITING_BYTES // 4

    async def wordy(operation: str, args: Mapping[str, Any]) -> dict[str, Any]:
        return {"text": "x" * (8 * size if operation == "node.drain" else size)}

    node.admin = wordy  # type: ignore[method-assign]
    async with Peer(node.port) as peer:
        sender = await peer.sender("$management")
        links = [await peer.receiver("$management", name=f"r{number}") for number in range(4)]
        (connection,) = node.listener._connections
        before = node.listener.accounts.node.held
        asked = [
            request("cluster", "status", reply_to=f"r{number % 4}", message_id=f"{number}") for number in range(12)
        ]
        await peer.send(sender, asked)
        await peer.until(lambda: sender.credit == REQUESTS_UNDER_WAY)
        assert connection.answer_bytes == pytest.approx(3 * size, rel=0.01)
        await eventually(lambda: node.listener.accounts.node.held - before > 2 * size)
        for link in links:
            await peer.grant(link, 10)
        await peer.until(lambda: sum(map(len, peer.received.values())) == 3)
        assert connection.answer_bytes == 0
        await peer.send(
            sender, [request("cluster", "status", reply_to="r3", message_id=f"again {n}") for n in range(9)]
        )
        await answers(peer, links[3], 9)  # who gives credit may have more than that at once
        last = await peer.receiver("$management", name="last")
        await peer.send(sender, [request("node", "drain", reply_to="last")])
        await eventually(lambda: connection.answer_bytes > ANSWERS_WAITING_BYTES)
        last.close()
        await peer.flush()
        await eventually(lambda: connection.answer_bytes == 0)


async def test_what_is_wrong_is_shown_cut(node: SingleNode) -> None:
    """An answer that waits says what the peer said, and may not be as long."""
    long = "\U000e0001" * 5000
    wrong = [
        request("log", long),
        request(long, "list"),
        request("log", "create", name="x", body=Value({long: 1})),
        request("log", "create", name="x", body=Value({"compression": [long]})),
        request("transaction-group", "commit", name="x", body=Value({"winners": long})),
        request("log", "create", name="x", body=Value({"partitions": long})),
        request("transaction-group", "open", name="x", body=Value({"once": long})),
        request("log", "describe", name="x" * 20_000),
        request("log", "list", reply_to=long),
    ]
    async with Peer(node.port) as peer:
        sender = await peer.sender("$management")
        link = await peer.receiver("$management", credit=20)
        await peer.send(sender, wrong)
        found = await answers(peer, link, len(wrong) - 1)
        assert all(answer.application_properties["status-code"] >= 400 for answer in found)
        assert max(map(len, peer.received[link])) < 2 * FAILURE_CHARACTERS


@pytest.mark.parametrize("long", ["x" * CORRELATION_BYTES, b"x" * CORRELATION_BYTES], ids=["text", "bytes"])
async def test_a_message_id_too_long_to_be_told_again_is_refused(node: SingleNode, long: Any) -> None:
    async with Peer(node.port) as peer:
        sender = await peer.sender("$management")
        link = await peer.receiver("$management", credit=10)
        await peer.send(sender, [request("log", "list", message_id=long)])
        await peer.send(sender, [request("log", "list", message_id=None, correlation_id=long)])
        await peer.send(sender, [request("log", "list", message_id=long[:-10])])
        refused = (await peer.states(sender, 3))[:2]
        assert [state.error.condition for state in refused] == ["amqp:invalid-field"] * 2
        (answer,) = await answers(peer, link, 1)
        assert answer.correlation_id == long[:-10]


async def test_a_request_of_more_values_than_one_can_need_is_not_decoded(node: SingleNode) -> None:
    def crowded(values: int) -> bytes:
        return request("transaction-group", "commit", name="x", body=Value({"winners": [[]] * values}))

    async with Peer(node.port) as peer:
        sender = await peer.sender("$management")
        link = await peer.receiver("$management", credit=10)
        names = [f"writer-{number}" for number in range(4096)]
        good = request("transaction-group", "commit", name="x", body=Value({"winners": names}))
        await peer.send(sender, [crowded(REQUEST_VALUES), crowded(REQUEST_VALUES // 2), good])
        refused, *taken = await peer.states(sender, 3)
        assert refused.error.condition == "amqp:resource-limit-exceeded"
        assert str(REQUEST_VALUES) in refused.error.description
        assert taken == [ACCEPTED] * 2
        assert len(await answers(peer, link, 2)) == 2
        assert node.requests[-1][1]["winners"] == names


async def test_info_comes_once_per_credit_and_is_spaced(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        link = await peer.receiver("wide/$info", credit=2)
        await peer.until(lambda: len(peer.received.get(link, [])) == 1)
        loop = asyncio.get_running_loop()
        first_s = loop.time()
        await peer.until(lambda: len(peer.received[link]) == 2)
        assert loop.time() - first_s > 0.8 * node.config.info_interval_s
        assert link.credit == 0


async def test_what_the_audit_log_keeps_of_a_request_is_cut(tmp_path: Path) -> None:
    """A flood of long ones would wash away what came before."""
    audit = AuditLog(str(tmp_path / "audit.jsonl"))
    node = await SingleNode(tmp_path / "data", Gate(audit=audit)).start()
    async with Peer(node.port) as peer:
        sender = await peer.sender("$management")
        link = await peer.receiver("$management", credit=10)
        long, winners = "x" * 100_000, [f"winner-{number}" for number in range(4096)]
        asked = (
            request("log", "create", name=long),
            request("transaction-group", "commit", name="writer", body=Value({"batch": ulong(1), "winners": winners})),
            request("user", "roles", name="ann", body=Value({"roles": ["readers", "auditors"]})),
        )
        for one in asked:
            await peer.send(sender, [one])
        await answers(peer, link, len(asked))
    await node.stop()
    lines = (tmp_path / "audit.jsonl").read_text().splitlines()
    written = [one for one in map(json.loads, lines) if one["event"] == "administered"]
    kept = {one["operation"]: one["arguments"] for one in written}
    told = f"... and {len(long) - WRITTEN_CHARACTERS} characters"
    assert kept["log.create"]["name"] == long[:WRITTEN_CHARACTERS] + told
    *first, rest = kept["transaction-group.commit"]["winners"]
    assert first == winners[: len(first)]
    assert rest == f"... and {len(winners) - len(first)} more"
    assert kept["user.roles"]["roles"] == ["readers", "auditors"], "what people ask for stands there whole"
    assert max(map(len, lines)) < 1000
