"""A disk that fills up: refusals with a name while there is little room, a clean end when there is none, a way back.

The disk is a small tmpfs, which only root may mount.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from proton import Message

from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.judges.history import check
from tests.integration.judges.judging import read_partition
from tests.integration.workloads.plain import Batcher, read, send
from tests.integration.workloads.producers import OrderedProducer

MIB = 1 << 20
DISK_BYTES = 160 * MIB
KEPT_FREE_BYTES = 48 * MIB
PER_SECOND = 200
"""Of each producer: it goes on while a node starts three times, and all of it is read again at the end."""

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk"),
]


class SmallDisk:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "somebody-elses-file"

    def fill(self, leave_bytes: int) -> None:
        """Somebody else's file takes what there is, but for so much."""
        with self._filler.open("ab", buffering=0) as file:  # or what did not fit is tried again when it is closed
            while (room := self.free_bytes() - leave_bytes) > 0:
                try:
                    file.write(bytes(min(room, MIB)))
                except OSError:
                    return

    def free_bytes(self) -> int:
        status = os.statvfs(self.path)
        return status.f_bavail * status.f_frsize

    def empty(self) -> None:
        self._filler.unlink()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    path = tmp_path / "small"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(path)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.strip()}")
    yield SmallDisk(path)
    subprocess.run(["umount", "-l", str(path)], check=True)


def partition_led_by(cluster: Cluster, log: str, node: int) -> str:
    """Some partition that the node leads; on a busy machine another may have won it first, and gives it back."""

    def led() -> list[str]:
        return [partition for partition, leader in cluster.leaders(log).items() if leader == node]

    return wait_until(led, f"node {node} to lead a partition")[0]


def test_little_room_is_refused_by_name_until_there_is_more(
    small_disk: SmallDisk, make_cluster: Callable[..., Cluster], log_name: str
) -> None:
    cluster = make_cluster(min_free_bytes=KEPT_FREE_BYTES, data_dirs={1: small_disk.path / "data"})
    cluster.start()
    cluster.create(log_name, 3)
    there = partition_led_by(cluster, log_name, 1)
    elsewhere = partition_led_by(cluster, log_name, 2)
    small_disk.fill(leave_bytes=KEPT_FREE_BYTES - 16 * MIB)
    accepted: list[int] = []

    def refusal(node: int) -> str | None:
        """Sends one event; why it was refused, if it was."""
        number = len(accepted)
        sending = Batcher(cluster.address(node), log_name, [Message(body=number)], there).begin()
        sending.join()
        if sending.answers.outcomes[0] == "accepted":
            accepted.append(number)
            return None
        return f"{sending.answers.conditions[0]}: {sending.answers.descriptions[0]}"

    for node in (1, 2):  # at the leader, and through a gateway
        reason = wait_until(lambda node=node: refusal(node), "a refusal for lack of room")
        for word in ("amqp:resource-limit-exceeded", "disk", "node 1", "try again"):
            assert word in reason, reason
    send(cluster.address(1), log_name, ["elsewhere there is room"], elsewhere)
    small_disk.empty()
    wait_until(lambda: refusal(1) is None, "events to be taken again")
    bodies = [event.body for event in read(cluster.address(2), log_name, len(accepted), there)]
    assert bodies == accepted


def test_shorter_retention_makes_room(
    small_disk: SmallDisk, make_cluster: Callable[..., Cluster], log_name: str
) -> None:
    """As docs/operate/recover.md has it: the log itself has filled the disk up to what is kept free."""
    cluster = make_cluster(min_free_bytes=KEPT_FREE_BYTES, data_dirs={1: small_disk.path / "data"})
    cluster.start()
    cluster.create(log_name, 3)
    there = partition_led_by(cluster, log_name, 1)

    def outcome(events: int = 1) -> str:
        """Of the last of so many large events."""
        sending = Batcher(cluster.address(1), log_name, [Message(body=os.urandom(MIB))] * events, there).begin()
        sending.join()
        return str(sending.answers.outcomes[events - 1])

    for _ in range(DISK_BYTES // (8 * MIB)):
        if outcome(8) != "accepted":
            break
    assert outcome() == "rejected"
    assert small_disk.free_bytes() < KEPT_FREE_BYTES
    cluster.call(lambda admin: admin.alter_log(log_name, retention_bytes=4 * MIB))
    wait_until(lambda: outcome() == "accepted", "events to be taken again")
    assert small_disk.free_bytes() > KEPT_FREE_BYTES


def test_a_node_goes_on_with_its_data_on_another_disk(own_cluster: Cluster, log_name: str, tmp_path: Path) -> None:
    """Stopped, copied as it is, started with the copy: the same node."""
    own_cluster.create(log_name, 3)
    send(own_cluster.address(1), log_name, ["before"], "0")
    own_cluster.stop(1)
    node = own_cluster.nodes[1]
    shutil.copytree(node.data_dir, tmp_path / "larger")
    shutil.rmtree(node.data_dir)
    node.config_path.write_text(node.config_path.read_text().replace(str(node.data_dir), str(tmp_path / "larger")))
    send(own_cluster.address(2), log_name, ["meanwhile"], "0")
    own_cluster.start(1)
    own_cluster.kill(2)  # now node 1 is needed
    send(own_cluster.address(3), log_name, ["after"], "0")
    bodies = [event.body for event in read(own_cluster.address(1), log_name, 3, "0")]
    assert bodies == ["before", "meanwhile", "after"]


def test_a_full_disk_ends_the_node_and_not_the_cluster(
    small_disk: SmallDisk, make_cluster: Callable[..., Cluster], log_name: str
) -> None:
    cluster = make_cluster(min_free_bytes=0, data_dirs={1: small_disk.path / "data"})
    cluster.start()
    cluster.create(log_name, 3)
    addresses = [cluster.address(node) for node in cluster.nodes]
    producers = [
        OrderedProducer(addresses, log_name, str(partition), f"p{partition}", per_second=PER_SECOND, padding=2000)
        for partition in range(3)
    ]
    for producer in producers:
        producer.begin()
    for producer in producers:
        producer.wait_for(200)
    small_disk.fill(leave_bytes=0)
    assert cluster.wait_exit(1) == 3
    said = cluster.log(1)
    assert "no space left" in said
    assert "free space" in said
    cluster.nodes[1].log_read = len(said.encode())
    for producer in producers:
        producer.wait_for(500)

    cluster.spawn(1)
    assert cluster.wait_exit(1) == 3, "there is still no room"
    cluster.nodes[1].log_read = len(cluster.log(1).encode())
    small_disk.empty()
    cluster.start(1)
    for producer in producers:
        producer.wait_for(200)
    cluster.kill(2)  # now node 1 is needed, with everything that it missed
    for producer in producers:
        producer.wait_for(200)
        sent = producer.finish()
        check(sent, [event.body for event in read_partition(cluster, log_name, sent.producer[1:])])
