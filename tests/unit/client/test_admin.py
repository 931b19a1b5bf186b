"""Administration: answers are typed, and a change is never repeated blindly."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from holdfast.client import AdminClient, AdminError, ConfigurationError, ConnectionLostError, HoldfastError
from holdfast.client.transport.address import Address
from holdfast.client.transport.log_info import OneMessage
from holdfast.client.transport.network import Network
from tests.unit.client.support.tiny_node import TinyNode

Answer = tuple[dict[str, Any], Any]


def done(body: Any) -> Answer:
    return {"status-code": 200, "status-description": "done"}, body


async def test_a_request_and_its_answer(node: TinyNode) -> None:
    seen: list[tuple[dict[str, Any], Any]] = []

    def manage(properties: dict[str, Any], arguments: Any) -> Answer:
        seen.append((properties, arguments))
        return done({"name": "orders", "partitions": [{"partition": "0", "leader": 1, "replicas": [1, 2]}]})

    node.manage = manage
    async with AdminClient(node.address) as admin:
        described = await admin.create_log("orders", partitions=1, replicas=2)
        await admin.alter_log("orders", retention_ms=None)
        await admin.create_log("ticks", compression="zstd")
        await admin.alter_log("ticks", compression="none")
    assert described == {"name": "orders", "partitions": [{"partition": "0", "leader": 1, "replicas": [1, 2]}]}
    assert seen[0] == ({"operation": "create", "type": "log", "name": "orders"}, {"partitions": 1, "replicas": 2})
    assert seen[1][1] == {"retention_ms": None}, "a bound that is lifted is said so"
    assert seen[2][1] == {"partitions": 1, "compression": "zstd"}
    assert seen[3][1] == {"compression": "none"}


@pytest.mark.parametrize(
    "wrong", [{"retention_ms": "7d"}, {"retention_ms": "7"}, {"retention_ms": 0.5}, {"retention_bytes": "1GiB"}]
)
async def test_a_bound_of_retention_is_a_number_in_the_unit_of_its_name(node: TinyNode, wrong: dict[str, Any]) -> None:
    def manage(properties: dict[str, Any], arguments: Any) -> Answer:
        raise AssertionError("asked a node")

    node.manage = manage
    async with AdminClient(node.address) as admin:
        for change in (admin.alter_log("orders", **wrong), admin.create_log("orders", **wrong)):
            with pytest.raises(ConfigurationError, match=r"is a whole number of (milliseconds|bytes), not"):
                await change


async def test_a_failure_is_typed(node: TinyNode) -> None:
    node.manage = lambda properties, arguments: (
        {"status-code": 409, "status-description": "orders exists", "error-code": "already-exists", "retriable": False},
        {},
    )
    async with AdminClient(node.address) as admin:
        with pytest.raises(AdminError, match="orders exists") as caught:
            await admin.create_log("orders")
    assert (caught.value.code, caught.value.status, caught.value.retriable) == ("already-exists", 409, False)
    assert caught.value.advice


async def test_what_certainly_was_not_done_is_asked_again(node: TinyNode) -> None:
    answers = iter([503, 503, 200])

    def manage(properties: dict[str, Any], arguments: Any) -> Answer:
        status = next(answers)
        if status == 200:
            return done({"name": "orders"})
        description = {"status-code": status, "status-description": "no leader"}
        return description | {"error-code": "unavailable", "retriable": True}, {}

    node.manage = manage
    async with AdminClient(node.address) as admin:
        assert await admin.create_log("orders") == {"name": "orders"}


async def test_a_change_whose_answer_got_lost_is_not_repeated(pair: tuple[TinyNode, TinyNode]) -> None:
    first, second = pair
    requests: list[str] = []

    def die(properties: dict[str, Any], arguments: Any) -> Answer:
        requests.append(properties["operation"])
        for connection in first.connections:
            connection.abort()
        return done({})

    first.manage = die
    second.manage = lambda properties, arguments: done({"logs": [{"name": "trades"}]})
    async with AdminClient([first.address, second.address]) as admin:
        with pytest.raises(AdminError, match="may or may not have been done") as caught:
            await admin.delete_log("trades")
        assert caught.value.code == "unknown"
        assert not caught.value.retriable
        assert requests == ["delete"]
        assert await admin.list_logs() == [{"name": "trades"}]  # a question is put to another node


async def test_a_node_that_does_not_answer_is_given_up(node: TinyNode) -> None:
    node.silent = True
    async with asyncio.timeout(20):
        async with AdminClient(node.address, timeout_s=0.3) as admin:
            with pytest.raises(HoldfastError):
                await admin.list_nodes()


async def test_a_question_whose_link_ends_before_anybody_waits_leaves_no_complaint(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answer = OneMessage()
    answer.on_closed(ConnectionLostError("the node went away"))
    with pytest.raises(ConnectionLostError):
        await answer.wait(1.0, "a question")
    unheard = OneMessage()
    unheard.on_closed(ConnectionLostError("the node went away"))
    del unheard
    gc.collect()
    assert not caplog.records


async def test_a_connection_that_fails_when_nobody_waits_any_more_leaves_no_complaint(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hang_up = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await hang_up.wait()
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
    network = Network(str(address))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await network.connection(address)
    (opening,) = network._opening.values()
    hang_up.set()
    await asyncio.wait([opening])
    network._opening.clear()
    del opening
    await asyncio.sleep(0)
    gc.collect()
    assert not caplog.records
    await network.close()
    server.close()


async def test_what_was_not_found_is_looked_for_by_the_command_for_its_kind(node: TinyNode) -> None:
    node.manage = lambda properties, arguments: (
        {"status-code": 404, "status-description": "there is none", "error-code": "not-found", "retriable": False},
        None,
    )
    async with AdminClient(node.address) as admin:
        for command, asked in (
            ("log list", admin.describe_log("x")),
            ("node list", admin.describe_node(9)),
            ("group list LOG", admin.describe_group("x", "g")),
            ("producer list LOG", admin.describe_producer("x", "0", 1)),
            ("txn list", admin.describe_transaction("x")),
            ("user list", admin.remove_user("x")),
            ("grant list", admin.remove_grant("ann", "publish", "log", "x")),
        ):
            with pytest.raises(AdminError) as failure:
                await asked
            assert f"`holdfast {command}`" in failure.value.advice
