"""Reading metadata, and making commands from requests."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.metadata import InvalidRequest, alter_log, delete_log, from_request
from tests.unit.metadata.test_state_machine import Cluster


def test_partitions_are_found_by_name_by_group_and_by_node() -> None:
    cluster = Cluster(nodes=3)
    trades = cluster.create("trades", partitions=3, replicas=2)
    view = cluster.view
    assert view.partition("trades", "2") == trades.partitions[2]
    for unknown in ("3", "-1", "00", "x", "", "²", "1.0"):
        assert view.partition("trades", unknown) is None
    assert view.partition("none", "0") is None
    assert view.group(2) == (trades, trades.partitions[1])
    assert view.group(99) is None
    assert [p for _, p in view.hosted_by(1)] == [p for p in trades.partitions if 1 in p.replicas]


def test_the_index_by_group_follows_changes() -> None:
    cluster = Cluster(nodes=3)
    cluster.create("trades", partitions=1)
    assert cluster.view.group(2) is None
    cluster.do(alter_log("trades", partitions=2))
    assert cluster.view.group(2) is not None
    cluster.do(delete_log("trades"))
    assert cluster.view.group(1) is None


def test_changes_are_told_and_refusals_are_not() -> None:
    cluster = Cluster(nodes=1)
    told: list[int] = []
    end = cluster.view.on_change(lambda: told.append(cluster.view.revision))
    cluster.create("trades", replicas=1)
    cluster.do(delete_log("nothing"))
    assert len(told) == 1
    end()
    cluster.do(delete_log("trades"))
    assert len(told) == 1


def test_describe_has_the_form_that_the_command_line_prints() -> None:
    cluster = Cluster(nodes=3)
    cluster.create("trades", partitions=2)
    described = cluster.view.describe("trades", {1: 3}.get)
    assert described is not None
    assert described["name"] == "trades"
    assert described["compression"] == "none"
    first, second = described["partitions"]
    assert (first["partition"], first["leader"], first["replicas"]) == ("0", 3, [1, 2, 3])
    assert (second["partition"], second["leader"]) == ("1", None)
    assert cluster.view.describe("none", {}.get) is None
    assert [log["name"] for log in cluster.view.list_logs()] == ["trades"]
    assert [node["node"] for node in cluster.view.list_nodes()] == [1, 2, 3]


def test_requests_become_commands() -> None:
    create = from_request("log.create", {"name": "a", "partitions": 4, "retention_ms": None}, now_ms=5, nodes=2)
    assert (create.create_log.partitions, create.create_log.replicas, create.create_log.now_ms) == (4, 2, 5)
    alter = from_request("log.alter", {"name": "a", "retention_bytes": None}, now_ms=5, nodes=2).alter_log
    assert (alter.HasField("partitions"), alter.HasField("retention_ms")) == (False, False)
    assert (alter.HasField("retention_bytes"), alter.retention_bytes) == (True, 0)
    assert (create.create_log.compression, alter.HasField("compression")) == ("", False)
    packed = {"name": "a", "compression": "zstd"}
    assert from_request("log.create", packed, now_ms=5, nodes=2).create_log.compression == "zstd"
    assert from_request("log.alter", packed, now_ms=5, nodes=2).alter_log.compression == "zstd"
    ended = from_request("log.alter", {"name": "a", "compression": None}, now_ms=5, nodes=2).alter_log
    assert (ended.HasField("compression"), ended.compression) == (True, "")
    assert from_request("log.delete", {"name": "a"}, now_ms=5, nodes=2).delete_log.name == "a"


@pytest.mark.parametrize(
    ("operation", "args", "says"),
    [
        ("log.create", {}, "name"),
        ("log.create", {"name": 7}, "name"),
        ("log.create", {"name": "a", "partitions": "4"}, "partitions"),
        ("log.create", {"name": "a", "partitions": True}, "partitions"),
        ("log.create", {"name": "a", "partitions": None}, "partitions"),
        ("log.create", {"name": "a", "partitions": 2**70}, "range"),
        ("log.create", {"name": "a", "compression": 4}, "compression"),
        ("log.alter", {"name": "a", "compression": ["zstd"]}, "compression"),
        ("log.alter", {"name": "a", "compression": "\ud800"}, "surrogates|UTF"),
        ("log.create", {"name": "\ud800"}, "surrogates|UTF"),
        ("log.explode", {"name": "a"}, "log.explode"),
    ],
)
def test_requests_of_the_wrong_type_are_refused(operation: str, args: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        from_request(operation, args, now_ms=0, nodes=3)
