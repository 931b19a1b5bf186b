"""`$management` of a node that is cut off from the others: each request has its answer, and says what it can know.

Each is asked once: our client as a whole would ask again, elsewhere, what certainly was not done.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import pytest

from holdfast import protocol
from holdfast.client.errors import AdminError
from holdfast.client.transport.address import Address
from holdfast.client.transport.connection import ClientConnection
from holdfast.client.transport.management_requests import Exchange
from holdfast.client.transport.network import Network
from node.listener.attach.permissions import READS
from node.listener.management import PASSING
from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.clusters.cuts import PeerWays
from tests.integration.workloads.plain import send

pytestmark = pytest.mark.cluster

Key = tuple[str, str]
Requests = dict[Key, tuple[str | None, dict[str, Any]]]

ANSWERED_WITHIN_S = 180.0
"""A node answers within 30 s; this is for a machine that is busy."""

CUT_OFF = "this node is cut off: nodes "

OWN_WORD = {("node", "list"), ("node", "status"), ("node", "drain"), ("node", "resume"), ("cluster", "status"),
            ("user", "whoami")}  # fmt: skip
"""What a node knows by itself, so that one can look at it."""


def arguments(log: str, other: int) -> Requests:
    """Of every request: name and body, such that it would be done if the node were not cut off."""
    grant = {"principal": "a", "operation": "read", "resource": "log", "resource_name": "*"}
    found: Requests = {
        ("log", "create"): ("another", {"partitions": 1, "replicas": 3}),
        ("log", "alter"): (log, {"retention_bytes": 10**9}),
        ("log", "dump"): (log, {"partition": 0, "limit": 1}),
        ("producer", "list"): (log, {"partition": 0}),
        ("producer", "describe"): (log, {"partition": 0, "producer_id": 1}),
        ("group", "describe"): (log, {"group": "g"}),
        ("group", "commit"): (log, {"group": "g", "partition": 0, "offset": f"{0:016x}"}),
        ("group", "reset"): (log, {"group": "g", "partition": 0, "to": "@latest"}),
        ("group", "delete"): (log, {"group": "g"}),
        ("transaction", "describe"): ("t", {}),
        ("transaction", "abort"): ("t", {}),
        ("transaction-group", "open"): ("w", {"batch": 1, "run": "r", "query": "q", "timeout_ms": 60_000}),
        ("transaction-group", "commit"): ("w", {"batch": 1, "run": "r", "winners": []}),
        ("transaction-group", "abort"): ("w", {"batch": 1, "run": "r"}),
        ("transaction-group", "forget"): ("w", {}),
        ("transaction-group", "describe"): ("w", {}),
        ("node", "repair"): (None, {"raft_group": 1}),
        ("node", "describe"): (str(other), {}),
        ("node", "readmit"): (str(other), {"incarnation": 17}),
        ("node", "add"): ("9", {}),
        ("node", "remove"): (str(other), {}),
        ("node", "cancel"): (str(other), {}),
        ("log", "reassign"): (log, {"partition": 0, "to": "1,2,3"}),
        ("log", "cancel-moves"): (log, {"partition": 0}),
        ("user", "add"): ("somebody", {}),
        ("grant", "add"): (None, grant),
        ("grant", "remove"): (None, grant),
    }
    others = {key: (log if needs_name else None, {}) for key, (needs_name, _, _) in protocol.REQUESTS.items()}
    return others | found


@dataclass(frozen=True)
class Answer:
    took_s: float
    code: str  # "": done
    text: str


async def asked(connection: ClientConnection, key: Key, name: str | None, body: dict[str, Any]) -> Answer:
    """Once, over links of its own."""
    begun_s = time.monotonic()
    exchange = Exchange(connection, " ".join(key), ANSWERED_WITHIN_S)
    try:
        await exchange.run(*key, name, body)
    except AdminError as error:
        return Answer(time.monotonic() - begun_s, error.code, str(error))
    finally:
        await exchange.close()
    return Answer(time.monotonic() - begun_s, "", "")


async def every_answer(server: str, requests: Requests) -> dict[Key, Answer]:
    network = Network(server)
    try:
        connection = await network.connection(Address.parse(server))
        told = await asyncio.gather(*(asked(connection, key, *rest) for key, rest in requests.items()))
    finally:
        await network.close()
    return dict(zip(requests, told, strict=True))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("freezes", [False, True], ids=["bytes vanish", "bytes stand still"])
def test_a_node_that_is_cut_off_answers_every_request(
    ways: tuple[Cluster, PeerWays], log_name: str, measured: Any, freezes: bool
) -> None:
    """At once, while it does not know yet and asks the others in vain; and later, when it knows, and says so."""
    cluster, between = ways
    cluster.create(log_name, 1)
    node = cluster.leaders(log_name)["0"]
    send(cluster.address(node), log_name, ["one"], "0")
    every = arguments(log_name, node % 3 + 1)

    def look(requests: Requests) -> dict[Key, Answer]:
        return asyncio.run(every_answer(cluster.address(node), requests))

    describes: Requests = {("log", "describe"): (log_name, {})}
    with between.cut(node, hears=False, is_heard=False, freezes=freezes):
        at_once = look(every)
        wait_until(lambda: CUT_OFF in look(describes)["log", "describe"].text, "the node to know that it is cut off")
        later = look(every)
    all_told = [*at_once.items(), *later.items()]
    assert [one for one in all_told if one[1].code in ("internal-error", "not-implemented", "invalid-argument")] == []
    assert {key for key, one in later.items() if one.code == ""} == OWN_WORD
    refused = {key: one for key, one in later.items() if key not in OWN_WORD | {("node", "repair")}}
    assert {key: one for key, one in refused.items() if one.code not in PASSING or CUT_OFF not in one.text} == {}
    reads = {key: one for key, one in refused.items() if key[1] in READS}
    assert {key: one for key, one in reads.items() if one.code != "unavailable"} == {}, "a read is not perhaps done"
    longest_s = max(one.took_s for _, one in all_told)
    measured(f"$management of a node that is cut off: the slowest of {len(all_told)} answers after {longest_s:.1f} s")
