"""A data directory that is a copy: an image that was put back."""

from __future__ import annotations

import shutil

import pytest

from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.clusters.repairing import holdfast, wait_caught_up
from tests.integration.workloads.plain import read, send

pytestmark = pytest.mark.cluster


def test_an_image_that_is_put_back_comes_in_without_a_vote(own_cluster: Cluster, log_name: str) -> None:
    """Node 3 acknowledges an event with one other node, and is put back to before: with the third node it would be a
    majority that never had the event."""
    cluster = own_cluster
    cluster.create(log_name, 1)
    send(cluster.address(1), log_name, ["a"], "0")
    cluster.kill(3)
    image = cluster.nodes[3].data_dir.with_name("image")
    shutil.copytree(cluster.nodes[3].data_dir, image)
    cluster.start(3)
    cluster.kill(2)
    send(cluster.address(1), log_name, ["by nodes 1 and 3"], "0")
    cluster.kill(3)
    shutil.rmtree(cluster.nodes[3].data_dir)
    shutil.copytree(image, cluster.nodes[3].data_dir)
    cluster.start(2)
    before = len(cluster.log(1))
    cluster.spawn(3)  # the same start as before the image was put back
    wait_until(lambda: "one of them works on a copy" in cluster.log(1)[before:], "the refusal")
    wait_until(lambda: "one of them works on a copy" in cluster.log(3), "what is wrong, and what to do")
    listed = cluster.call(lambda admin: admin.list_nodes(), [cluster.address(1)])
    assert [node["node"] for node in listed if node["refused"]] == [3]
    send(cluster.address(1), log_name, ["the others go on"], "0")

    holdfast(cluster, "node", "readmit", "3")
    cluster.wait_ready(3)
    assert "let in again without a memory" in cluster.log(3)
    wait_caught_up(cluster, 3)
    cluster.kill(1)
    send(cluster.address(3), log_name, ["with its vote"], "0")
    assert [event.body for event in read(cluster.address(2), log_name, 4, "0")] == [
        "a", "by nodes 1 and 3", "the others go on", "with its vote",
    ]  # fmt: skip
    cluster.kill(3)
    cluster.start(1)
    cluster.start(3)  # it goes on as what it has become
    wait_caught_up(cluster, 3)
    cluster.kill(3)
    shutil.rmtree(cluster.nodes[3].data_dir)
    shutil.copytree(image, cluster.nodes[3].data_dir)
    before = len(cluster.log(1))
    cluster.spawn(3)
    wait_until(lambda: "comes with other data" in cluster.log(1)[before:], "the refusal of what was given up")
