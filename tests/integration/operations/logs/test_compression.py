"""A log whose compression is altered while it is written: every leader learns of it, and every event is there as it
was sent, whatever it was stored as."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.operations.nodes.test_node_commands import holdfast
from tests.integration.workloads.plain import read, send

pytestmark = pytest.mark.cluster

PARTITIONS = ("0", "1", "2")
PAUSE_S = 0.05
"""Between ten events and the next: what is written while changes are looked for is read again by every node."""


def body(partition: str, number: int) -> str:
    return f"partition {partition}, event {number}: " + "bought 100 at 17.25, " * 40


class Writer(threading.Thread):
    """Writes to one partition until it is told to stop; each event is confirmed before the next."""

    def __init__(self, address: str, log: str, partition: str) -> None:
        super().__init__(daemon=True)
        self.address, self.log_name, self.partition = address, log, partition
        self.sent = 0
        self.error: Exception | None = None
        self.enough = threading.Event()
        self.start()

    def run(self) -> None:
        try:
            while not self.enough.is_set():
                bodies = [body(self.partition, self.sent + number) for number in range(10)]
                send(self.address, self.log_name, bodies, self.partition)
                self.sent += 10
                self.enough.wait(PAUSE_S)
        except Exception as error:  # noqa: BLE001  the test looks at it
            self.error = error


class Dump:
    """The record batches of a partition, as far as they were asked for."""

    def __init__(self, cluster: Cluster, log: str, partition: str) -> None:
        self.cluster, self.log_name, self.partition = cluster, log, partition
        self.after = 0
        self.batches: list[dict[str, Any]] = []

    def more(self) -> list[dict[str, Any]]:
        while True:
            found = self.cluster.call(
                lambda admin: admin.dump_log(self.log_name, self.partition, after=self.after, limit=1000)
            )
            if not found["entries"]:
                return self.batches
            self.after = found["entries"][-1]["index"]
            self.batches += [entry for entry in found["entries"] if entry["kind"] == "batch"]

    def ends_with(self, compression: str) -> bool:
        return bool(self.more()) and self.batches[-1]["compression"] == compression


@pytest.mark.slow
def test_a_log_is_altered_while_it_is_written(own_cluster: Cluster, log_name: str) -> None:
    cluster = own_cluster  # where the first log's partitions are led by one node each
    cluster.create(log_name, len(PARTITIONS), compression="gzip")
    server = ("--server", cluster.address(2))
    cluster.wait_settled(log_name)
    assert len(set(cluster.leaders(log_name).values())) == 3, "each node leads one, and so each has to learn of it"
    writers = [Writer(cluster.address(1), log_name, partition) for partition in PARTITIONS]
    dumps = [Dump(cluster, log_name, partition) for partition in PARTITIONS]
    stored = ["gzip"]
    try:
        for wanted in ("gzip", "zstd", "none", "zstd"):
            if wanted != stored[-1]:
                status, said = holdfast("log", "alter", log_name, "--compression", wanted, *server)
                assert (status, said["compression"]) == (0, wanted)
                stored.append(wanted)
            for dump in dumps:
                wait_until(
                    lambda dump=dump, wanted=wanted: dump.ends_with(wanted),
                    f"partition {dump.partition} to be written with compression {wanted}",
                )
    finally:
        for writer in writers:
            writer.enough.set()
        for writer in writers:
            writer.join()
    assert [writer.error for writer in writers] == [None] * 3
    assert cluster.describe(log_name)["compression"] == "zstd"
    listed = {entry["name"]: entry for entry in holdfast("log", "list", *server)[1]["logs"]}
    assert listed[log_name]["compression"] == "zstd"
    for writer, dump in zip(writers, dumps, strict=True):
        rows = dump.more()
        order = [row["compression"] for row in rows]
        changes = [one for one, before in zip(order, [None, *order], strict=False) if one != before]
        assert changes == stored, "each change is for all that comes behind it"
        sizes = {row["compression"]: row["bytes"] / row["count"] for row in rows}
        assert max(sizes["gzip"], sizes["zstd"]) * 3 < sizes["none"]
        for node in cluster.nodes:
            events = read(cluster.address(node), log_name, writer.sent, writer.partition)
            assert [event.message.body for event in events] == [body(writer.partition, n) for n in range(writer.sent)]


def test_compression_that_there_is_not_is_refused_by_the_cluster_too(cluster: Cluster, log_name: str) -> None:
    cluster.create(log_name, 1)
    for name in ("snappy", "lz4", "best"):
        with pytest.raises(Exception, match=f"compression '{name}'.*none, gzip, zstd"):
            cluster.call(lambda admin, name=name: admin.alter_log(log_name, compression=name))
    with pytest.raises(Exception, match="'compression' must be a string"):
        cluster.call(lambda admin: admin.alter_log(log_name, compression=4))
    assert cluster.describe(log_name)["compression"] == "none"
