"""`holdfast log dump` on a real cluster: what was sent is there, entry by entry, through any node, and page by page."""

from __future__ import annotations

from proton import Message

from tests.integration.clusters.cluster import Cluster
from tests.integration.operations.nodes.test_node_commands import holdfast
from tests.integration.workloads.plain import Batcher, send


def test_what_was_sent_is_shown_with_its_attributes(cluster: Cluster, log_name: str) -> None:
    cluster.create(log_name, 1)
    for number in range(3):
        send(cluster.address(1), log_name, [f"{number}-{place}" for place in range(4)], "0")
    for node in (1, 2, 3):  # one of them leads, the others ask it
        server = ("--server", cluster.address(node))
        status, said = holdfast("log", "dump", log_name, *server)
        assert status == 0
        batches = [entry for entry in said["entries"] if entry["kind"] == "batch"]
        assert sum(batch["stored"] for batch in batches) == 12
        assert [int(batch["base_offset"], 16) for batch in batches] == _running([batch["count"] for batch in batches])
        for batch in batches:
            assert (batch["compression"], batch["timestamp_type"]) == ("none", "append")
            assert (batch["transactional"], batch["control"], batch["producer_id"]) == (False, False, -1)
        page = holdfast("log", "dump", log_name, "--limit", "1", *server)[1]["entries"]
        rest = holdfast("log", "dump", log_name, "--after", str(page[0]["index"]), *server)[1]["entries"]
        assert page + rest == said["entries"]
        (holding,) = holdfast("log", "dump", log_name, "--offset", f"{5:016x}", "--limit", "1", *server)[1]["entries"]
        first = int(holding["base_offset"], 16)
        assert first <= 5 < first + holding["stored"]


def test_what_does_not_exist_is_named(cluster: Cluster, log_name: str) -> None:
    cluster.create(log_name, 1)
    sending = Batcher(cluster.address(1), log_name, [Message(body=1)], "0").begin()
    sending.join()
    server = ("--server", cluster.address(1))
    for arguments, words in (
        ((log_name, "--partition", "7"), "no partition 7"),
        ((f"no-{log_name}",), "no log"),
        ((log_name, "--offset", "5"), "no offset of this log"),
    ):
        status, said = holdfast("log", "dump", *arguments, *server)
        assert status != 0
        assert words in said["error"], said


def _running(counts: list[int]) -> list[int]:
    return [sum(counts[:place]) for place in range(len(counts))]
