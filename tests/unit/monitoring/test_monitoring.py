"""What operators see of three real nodes: metrics, health, and leaderships that move away before a stop."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cluster.versions import NEWEST
from holdfast.client import AdminClient, ProducerClient, RejectedError, TransactionRolledBackError
from node.client_transactions.transaction_group_member import MemberTerms
from node.listener import AdminRequestFailed
from node.monitoring import group_lag
from node.monitoring.http_server import MAX_CONNECTIONS, MAX_HEAD_BYTES
from node.storage.data_versions import DataVersions
from scripts.docs import reference
from tests.batches import batch_of
from tests.unit.listener.support.cluster import ListenerCluster
from tests.unit.listener.support.peer import Peer, eventually
from tests.unit.listener.support.transacting import Control, send_under

SENTENCE = re.compile(r"(Counts|Tells|Is 1)\b[^.]+\.")
"""A verb first, a period at the end, and one of each."""


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ListenerCluster]:
    async with ListenerCluster(tmp_path) as three:
        await three.create("trades", partitions=3)
        yield three


async def ask(port: int, request: bytes) -> tuple[int, bytes]:
    """Status and body; (0, b"") when the node hung up without an answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        answer = await reader.read()
    except ConnectionError:
        return 0, b""
    finally:
        writer.close()
    if not answer:
        return 0, b""
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


async def get(port: int, path: str) -> tuple[int, bytes]:
    return await ask(port, f"GET {path} HTTP/1.1\r\nHost: node\r\n\r\n".encode())


async def numbers(port: int) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    status, body = await get(port, "/metrics")
    assert status == 200
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


async def problems(port: int) -> dict[str, str]:
    _, body = await get(port, "/health/ready")
    return {check["name"]: check["detail"] for check in json.loads(body)["checks"] if not check["ok"]}


async def test_the_numbers_of_a_scrape_are_those_of_the_node(cluster: ListenerCluster) -> None:
    leader = cluster.leader("trades", "1")
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    cluster.broker(leader).handle("trades", "1").append(
        batch_of([b"\x00Sw\xa1\x01a", b"\x00Sw\xa1\x01b"]), done.set_result
    )
    await done
    found = await numbers(cluster.monitoring[leader])
    partition = (("log", "trades"), ("partition", "1"))
    assert found["holdfast_partition_leader", partition] == 1
    assert found["holdfast_partition_events_total", partition] == 2
    assert found["holdfast_ready", ()] == 1
    assert found["holdfast_partitions_without_leader", ()] == 0
    assert found["holdfast_turns_total", ()] >= found["holdfast_syncs_total", ()] >= 1
    for other in cluster.nodes:
        if other != leader:
            assert found["holdfast_peer_up", (("peer", str(other)),)] == 1
            lag = ("holdfast_replica_lag_entries", (("log", "trades"), ("partition", "1"), ("replica", str(other))))
            assert found[lag] >= 0
    assert found["holdfast_listener_connections_open", (("listener", "default"),)] == 0


async def test_each_help_text_is_a_sentence(cluster: ListenerCluster) -> None:
    _, body = await get(cluster.monitoring[1], "/metrics")
    families = [f for f in text_string_to_metric_families(body.decode()) if f.name.startswith("holdfast_")]
    assert len(families) > 50
    wrong = [f"{f.name}: {f.documentation}" for f in families if not SENTENCE.fullmatch(f.documentation)]
    assert not wrong, "\n".join(wrong)
    counters = [f for f in families if f.type == "counter"]
    assert all(f.documentation.startswith("Counts ") for f in counters)
    told = {(name.removesuffix("_total"), kind, text) for name, kind, _, text in reference.families()}
    assert {(f.name, f.type, f.documentation) for f in families} == told, "docs/reference/metrics.md says other things"


async def test_the_lag_of_groups_is_told_by_the_leader_and_an_unknown_one_is_absent(cluster: ListenerCluster) -> None:
    address = f"127.0.0.1:{cluster.ports[1]}"

    async def lags(kind: str) -> dict[tuple[str, str], float]:
        found = {}
        for port in cluster.monitoring.values():
            for (name, labels), value in (await numbers(port)).items():
                if name == f"holdfast_group_lag_{kind}":
                    told = dict(labels)
                    assert told["log"] == "trades"
                    assert (told["group"], told["partition"]) not in found, "one leader tells it"
                    found[told["group"], told["partition"]] = value
        return found

    async with ProducerClient(address, "trades") as producer, AdminClient(address) as admin:
        for number in range(3):
            await producer.send_and_confirm(b"%d" % number, partition="1")
        before = time.time()
        assert await lags("events") == {}
        await admin.commit_group("trades", "billing", "1", f"{0:016x}")
        await admin.commit_group("trades", "audit", "1", f"{2:016x}")
        assert await lags("events") == {("billing", "1"): 2, ("audit", "1"): 0}
        seconds = await lags("seconds")
        assert seconds["audit", "1"] == 0
        first = await lags("seconds")
        assert 0 < first["billing", "1"] < time.time() - before + 60
        await producer.send_and_confirm(b"3", partition="1")
        after = await lags("seconds")
        assert after["billing", "1"] > first["billing", "1"]
        assert after["billing", "1"] > after["audit", "1"], "each is behind an event of its own"
        await admin.reset_group("trades", "billing", "none")
        assert set(await lags("events")) == {("audit", "1")}


async def test_the_lag_of_groups_is_told_of_those_that_committed_last(
    cluster: ListenerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_lag, "MOST_SHOWN", 2)
    leader = cluster.leader("trades", "1")

    async def groups() -> tuple[set[str], float]:
        found = await numbers(cluster.monitoring[leader])
        shown = {dict(labels)["group"] for name, labels in found if name == "holdfast_group_lag_seconds"}
        return shown, found["holdfast_group_lag_left_out", ()]

    async with AdminClient(f"127.0.0.1:{cluster.ports[1]}") as admin:
        for name in ("a", "b", "c", "a"):
            await admin.reset_group("trades", name, "@earliest", partition="1")
        assert await groups() == ({"a", "c"}, 1)
        monkeypatch.setattr(group_lag, "MOST_LOOKED_AT", 1)
        assert await groups() == ({"a"}, 2)


async def test_a_node_without_a_majority_lives_but_is_not_ready(cluster: ListenerCluster) -> None:
    last = cluster.leader("trades", "0")
    assert (await get(cluster.monitoring[last], "/health/ready"))[0] == 200
    for number in [n for n in cluster.nodes if n != last]:
        await cluster.lose(number)
    await eventually(
        lambda: any(check.name == "metadata" and not check.ok for check in cluster.nodes[last]._health.ready(now_s=0.0))
    )
    assert (await get(cluster.monitoring[last], "/health/ready"))[0] == 503
    found = await problems(cluster.monitoring[last])
    assert "majority" in found["metadata"]
    assert (await get(cluster.monitoring[last], "/health/live"))[0] == 200


async def test_a_disk_that_does_not_answer_is_told_by_liveness(cluster: ListenerCluster) -> None:
    health = cluster.nodes[1]._health
    loop = cluster.nodes[1]._loop
    await eventually(lambda: loop.turn_started_s is None)
    loop.turn_started_s = 100.0
    (check,) = health.live(now_s=116.0)
    assert not check.ok
    assert "disk" in check.detail
    assert health.live(now_s=101.0)[0].ok


async def test_data_that_are_being_rewritten_are_a_problem_though_the_node_is_ready(cluster: ListenerCluster) -> None:
    node = cluster.nodes[1]
    async with AdminClient(f"127.0.0.1:{cluster.ports[1]}") as admin:
        await eventually(lambda: node._migration.versions == DataVersions(NEWEST, NEWEST))
        status = await admin.node_status(1)
        assert (status["data_versions"], status["problems"]) == ([NEWEST, NEWEST], [])
        node._migration.versions = DataVersions(NEWEST, NEWEST + 1)
        status = await admin.node_status(1)
        assert status["data_versions"] == [NEWEST, NEWEST + 1]
        (problem,) = status["problems"]
        assert problem.startswith(f"data: of versions {NEWEST} to {NEWEST + 1}, and being rewritten: install no later")
        assert status["ready"]
        node._migration.versions = DataVersions(NEWEST, NEWEST)


async def test_a_full_disk_is_a_problem_though_the_node_serves_readers(
    cluster: ListenerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = cluster.nodes[1]
    address = f"127.0.0.1:{cluster.ports[1]}"
    full = ("holdfast_disk_full", ())
    async with AdminClient(address) as admin, ProducerClient(address, "trades") as producer:
        assert (await admin.node_status(1))["problems"] == []
        assert (await numbers(cluster.monitoring[1]))[full] == 0
        assert node._disk._options.reserve_bytes == node._replicas._min_free_bytes > 0, "what cleaning leaves alone"
        monkeypatch.setattr(node._replicas, "_min_free_bytes", 1 << 62)
        await eventually(lambda: not node._health.room().ok)
        status = await admin.node_status(1)
        (problem,) = status["problems"]
        assert problem.startswith("disk: node 1 has ")
        assert "free space there or shorten the retention of logs" in problem
        assert status["ready"]
        assert (await get(cluster.monitoring[1], "/health/ready"))[0] == 200
        assert (await numbers(cluster.monitoring[1]))[full] == 1
        await cluster.move("trades", "0", 1)
        with pytest.raises(RejectedError, match="of disk left") as refused:
            await producer.send_and_confirm(b"too much", partition="0")
        assert "shorten the retention of logs" in refused.value.advice
        with pytest.raises(TransactionRolledBackError, match="of disk left") as rolled_back:
            async with producer.transaction() as tx:
                await tx.send(b"too much", partition="0")
        assert "shorten the retention of logs" in rolled_back.value.advice
        monkeypatch.undo()
        await eventually(lambda: node._health.room().ok)
        assert (await admin.node_status(1))["problems"] == []
        await producer.send_and_confirm(b"fits", partition="0")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /nothing HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
        (b"hello\r\n\r\n", 400),
        (b"HEAD /metrics HTTP/1.0\r\n\r\n", 200),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * MAX_HEAD_BYTES + b"\r\n\r\n", 0),
        (b"AMQP\x00\x01\x00\x00" + b"\r\n\r\n", 400),
    ],
)
async def test_anything_else_is_answered_or_cut(cluster: ListenerCluster, request_bytes: bytes, status: int) -> None:
    found, body = await ask(cluster.monitoring[1], request_bytes)
    assert found == status
    assert bool(body) == (status >= 400)
    assert (await get(cluster.monitoring[1], "/health/ready"))[0] == 200


async def test_silent_scrapers_do_not_add_up(cluster: ListenerCluster) -> None:
    """They are bounded, and whoever asks is answered: the one that has been silent longest makes room."""
    silent = [await asyncio.open_connection("127.0.0.1", cluster.monitoring[1]) for _ in range(MAX_CONNECTIONS + 8)]
    server = cluster.nodes[1]._monitoring
    await eventually(lambda: len(server._open) == MAX_CONNECTIONS)
    assert await silent[0][0].read() == b""
    for _ in range(3):
        assert (await get(cluster.monitoring[1], "/health/live"))[0] == 200
    for _, writer in silent:
        writer.close()
    await eventually(lambda: not server._open)
    assert (await get(cluster.monitoring[1], "/health/live"))[0] == 200


async def test_a_drained_node_leads_nothing_until_it_is_resumed(cluster: ListenerCluster) -> None:
    await cluster.move("trades", "0", 1)
    status = await cluster.broker(1).admin("node.drain", {"node": 1})
    assert status["leads"] == 0
    assert not status["ready"]
    assert await problems(cluster.monitoring[1]) == {"draining": "being emptied"}
    assert 1 not in {cluster.broker(1).leader("trades", str(number)) for number in range(3)}

    # What falls to it all the same is handed on.
    await eventually(lambda: cluster.leaders("trades"))
    other = cluster.leader("trades", "0")
    group = cluster.broker(other).handle("trades", "0").group
    before = group.term
    group.transfer(1)
    await eventually(lambda: group.term >= before + 2 and cluster.leaders("trades") not in ([], [1]))

    status = await cluster.broker(1).admin("node.resume", {"node": 1})
    assert not status["draining"]
    await cluster.move("trades", "0", 1)
    assert (await get(cluster.monitoring[1], "/health/ready"))[0] == 200


async def test_a_node_that_stops_hands_its_leaderships_on_first(cluster: ListenerCluster) -> None:
    """Its successor leads in the next term by transfer, and so without waiting for a timeout."""
    await cluster.move("trades", "0", 2)
    group = cluster.broker(2).handle("trades", "0").group
    leaving = cluster.nodes.pop(2)
    await leaving.stop()
    assert not group.is_leader
    assert group.leader in (1, 3)


async def test_nobody_is_drained_by_mistake(cluster: ListenerCluster) -> None:
    with pytest.raises(AdminRequestFailed, match="this is node 1"):
        await cluster.broker(1).admin("node.drain", {"node": 2})
    assert not cluster.nodes[1]._drain.active


async def test_a_replica_that_is_away_is_told_by_its_leaders(cluster: ListenerCluster) -> None:
    gone = 3
    await cluster.move("trades", "0", 1)
    await cluster.lose(gone)
    await eventually(lambda: not cluster.nodes[1]._network.is_up(gone))
    status = await cluster.broker(1).admin("node.status", {})
    assert {item["node"] for item in status["behind"]} == {gone}
    assert "trades/0" in {item["partition"] for item in status["behind"]}


async def test_transactions_are_told_by_those_who_lead(cluster: ListenerCluster) -> None:
    async def total(name: str) -> float:
        scrapes = [await numbers(port) for port in cluster.monitoring.values()]
        return sum(value for scrape in scrapes for (found, _), value in scrape.items() if found == name)

    async def told(name: str, wanted: float) -> None:
        """Soon: the coordinator notes a partition beside the first events, and its end behind the answer."""
        async with asyncio.timeout(60):
            while await total(name) != wanted:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async with Peer(cluster.ports[1]) as peer:
        control = await Control.attach(peer)
        sender = await peer.sender("trades", "0")
        txn = await control.declare()
        await send_under(peer, sender, txn, [b"one", b"two"])
        await told("holdfast_transactions_ongoing", 1)
        await told("holdfast_partition_open_transactions", 1)
        await told("holdfast_partition_unstable_events", 2)
        await control.committed(txn)
        await told("holdfast_transactional_ids", 1)
        await told("holdfast_transactions_ongoing", 0)
        await told("holdfast_partition_unstable_events", 0)
        for number in range(2):  # of one producer, with no commit between: one range
            txn = await control.declare()
            await send_under(peer, sender, txn, [b"%d" % number])
            await control.aborted(txn)
        await told("holdfast_partition_aborted_ranges", len(cluster.nodes))
        await told("holdfast_transaction_groups_open", 0)
        given = {"name": "orders", "batch": 0, "run": "r"}
        await cluster.broker(1).admin("transaction-group.open", given)
        await cluster.broker(2).transactions.join(MemberTerms("orders", 0, "r", "0"))
        await told("holdfast_transaction_groups_open", 1)
        async with asyncio.timeout(60):
            while not await total("holdfast_transaction_groups_oldest_member_seconds"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await cluster.broker(3).admin("transaction-group.commit", {**given, "winners": []})
        await told("holdfast_transaction_groups_open", 0)
        await told("holdfast_transaction_groups_oldest_member_seconds", 0)
