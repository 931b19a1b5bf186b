"""A data directory that is a copy: an image that was put back, a clone beside the original, images of all."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.clusters.repairing import (
    EXIT_STORAGE,
    empty,
    holdfast,
    readmit,
    refused,
    wait_caught_up,
    wait_level,
)
from tests.integration.workloads.plain import read, send
from tests.ports import free_ports

pytestmark = pytest.mark.cluster


def image_of(cluster: Cluster, node: int, name: str = "image") -> Path:
    """A copy of its data directory as it is now."""
    data = cluster.nodes[node].data_dir
    shutil.copytree(data, data.with_name(name))
    return data.with_name(name)


def put_back(cluster: Cluster, node: int, image: Path) -> None:
    empty(cluster, node)
    shutil.copytree(image, cluster.nodes[node].data_dir)


def ended_as_copy(cluster: Cluster, node: int) -> str:
    """Starts a node that must not be let in; what it said."""
    before = len(cluster.log(node))
    cluster.spawn(node)
    assert cluster.wait_exit(node) == EXIT_STORAGE
    said = cluster.log(node)[before:]
    cluster.nodes[node].log_read = len(cluster.log(node).encode())  # it was asked for
    assert "Traceback" not in said, said
    return said


@pytest.mark.timeout(300)
def test_an_image_that_is_put_back_has_no_say_and_an_empty_directory_is_the_way_back(
    own_cluster: Cluster, log_name: str
) -> None:
    """Node 3 acknowledges an event with one other node, and is put back to before: with the third node it would be a
    majority that never had the event."""
    cluster = own_cluster
    cluster.create(log_name, 1)
    send(cluster.address(1), log_name, ["a"], "0")
    cluster.kill(3)
    image = image_of(cluster, 3)
    cluster.start(3)
    cluster.kill(2)
    send(cluster.address(1), log_name, ["by nodes 1 and 3"], "0")
    cluster.kill(3)
    put_back(cluster, 3, image)
    cluster.start(2)
    before = {node: len(cluster.log(node)) for node in (1, 2)}
    said = ended_as_copy(cluster, 3)
    for words in ("is a copy", "original data", "readmit", str(cluster.nodes[3].data_dir)):
        assert words in said, said
    others = [cluster.log(node)[start:] for node, start in before.items()]
    assert any("does not come with the latest of its data" in log for log in others), "whoever it met first refused it"
    assert not any("node 3 is up" in log for log in others)
    assert refused_by_word_of(cluster, 1) == [3]
    send(cluster.address(1), log_name, ["the others go on"], "0")
    assert "is a copy" in refused(cluster, 3, EXIT_STORAGE), "it knows by now"

    empty(cluster, 3)
    before = len(cluster.log(1))
    cluster.spawn(3)
    wait_until(lambda: "comes with other data" in cluster.log(1)[before:], "the refusal of the empty directory")
    readmit(cluster, 3)
    wait_caught_up(cluster, 3)
    cluster.kill(1)
    send(cluster.address(3), log_name, ["with its vote"], "0")
    bodies = ["a", "by nodes 1 and 3", "the others go on", "with its vote"]
    assert [event.body for event in read(cluster.address(2), log_name, len(bodies), "0")] == bodies


@contextlib.contextmanager
def apart(cluster: Cluster, node: int, peer: int) -> Iterator[None]:
    """A node that is started in the block does not reach the peer, at whose port it is told that nobody listens."""
    path, text = cluster.nodes[node].config_path, cluster.nodes[node].config_path.read_text()
    path.write_text(text.replace(json.dumps(cluster.nodes[peer].rpc), json.dumps(f"127.0.0.1:{free_ports(1)[0]}")))
    assert path.read_text() != text
    yield
    path.write_text(text)


def refused_by_word_of(cluster: Cluster, node: int) -> list[int]:
    """The nodes that were refused, by any, as an operator hears who asks this one."""
    listed = cluster.call(lambda admin: admin.list_nodes(), [cluster.address(node)])
    return [entry["node"] for entry in listed if entry["refused"]]


def refused_by(cluster: Cluster, node: int) -> list[int]:
    """As far as this node knows by itself."""
    status = cluster.call(lambda admin: admin.cluster_status(), [cluster.address(node)])
    return [entry["node"] for entry in status["nodes"] if entry["refused"]]


@pytest.mark.timeout(300)
def test_a_copy_that_has_met_one_node_only_is_known_as_refused_to_whoever_is_asked(own_cluster: Cluster) -> None:
    """And to nobody, once another node lets the original in: the one that refused the copy is out of its reach."""
    cluster = own_cluster
    cluster.kill(3)
    image = image_of(cluster, 3)
    cluster.start(3)
    cluster.kill(3)
    original = image_of(cluster, 3, "original")
    put_back(cluster, 3, image)
    with apart(cluster, 3, 1):
        ended_as_copy(cluster, 3)
    assert ["does not come with the latest" in cluster.log(node) for node in (1, 2)] == [False, True]
    assert [refused_by_word_of(cluster, node) for node in (1, 2)] == [[3], [3]]
    described = cluster.call(lambda admin: admin.describe_node(3), [cluster.address(1)])
    assert (described["up"], described["refused"]) == (False, True)
    assert [refused_by(cluster, node) for node in (1, 2)] == [[], [3]]

    put_back(cluster, 3, original)
    with apart(cluster, 3, 2):
        cluster.spawn(3)
        wait_until(lambda: refused_by_word_of(cluster, 1) == [], "node 1 to let the original in")
        assert refused_by_word_of(cluster, 2) == []
        assert refused_by(cluster, 2) == [3], "it has not met the original"


@pytest.mark.timeout(300)
def test_a_copy_that_is_started_again_and_again_does_not_overtake_the_original(
    own_cluster: Cluster, log_name: str
) -> None:
    """Nobody is there to refuse it meanwhile, and its peers remember although they were killed."""
    cluster = own_cluster
    cluster.create(log_name, 1)
    cluster.kill(3)
    image = image_of(cluster, 3)
    for _ in range(2):
        cluster.start(3)
        send(cluster.address(1), log_name, ["later"], "0")
        cluster.kill(3)
    cluster.kill(1, 2)
    put_back(cluster, 3, image)
    for _ in range(4):
        cluster.spawn(3)
        wait_until(lambda: cluster.serves(3), "a start that finds nobody")
        cluster.kill(3)
    cluster.start(1, 2)
    assert "another process has made start" in ended_as_copy(cluster, 3)
    assert len(read(cluster.address(1), log_name, 2, "0")) == 2


@pytest.mark.timeout(300)
def test_a_clone_beside_the_original_is_found_and_the_original_notices_nothing(
    own_cluster: Cluster, make_cluster: Callable[..., Cluster], log_name: str
) -> None:
    cluster = own_cluster
    cluster.create(log_name, 1)
    with cluster.paused(3):
        image = image_of(cluster, 3)
    wait_until(lambda: all(node["up"] for node in holdfast(cluster, "node", "list")["nodes"]), "node 3 to be back")
    before = {node: len(cluster.log(node)) for node in cluster.nodes}
    clone = make_cluster(nodes=1, data_dirs={1: image})
    text = cluster.nodes[3].config_path.read_text()
    text = text.replace(json.dumps(str(cluster.nodes[3].data_dir)), json.dumps(str(image)))
    own = [cluster.nodes[3].rpc, *cluster.nodes[3].amqp.values()]
    for address, port in zip(own, free_ports(len(own)), strict=True):
        text = text.replace(address, f"127.0.0.1:{port}")
    clone.nodes[1].config_path.write_text(text)
    assert "went on speaking beside it" in ended_as_copy(clone, 1)
    for node, begin in before.items():
        said = cluster.log(node)[begin:]
        assert "is down" not in said, f"node {node}: {said}"
    send(cluster.address(3), log_name, ["as if nothing had been"], "0")
    cluster.kill(3)
    cluster.start(3)
    wait_level(cluster, log_name)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("nodes", [2, 3])
def test_a_whole_cluster_that_goes_back_to_one_image_is_what_it_was_then(
    make_cluster: Callable[..., Cluster], log_name: str, nodes: int
) -> None:
    """Nobody is left who could tell: it is the operator's word that nothing since then counts."""
    cluster = make_cluster(nodes=nodes)
    cluster.start()
    cluster.create(log_name, 1)
    send(cluster.address(1), log_name, ["before"], "0")
    cluster.stop()
    images = {node: image_of(cluster, node) for node in cluster.nodes}
    cluster.start()
    send(cluster.address(1), log_name, ["since"], "0")
    cluster.stop()
    for node, image in images.items():
        put_back(cluster, node, image)
    cluster.start()
    send(cluster.address(1), log_name, ["again"], "0")
    assert [event.body for event in read(cluster.address(2), log_name, 2, "0")] == ["before", "again"]
    for _ in range(2):
        cluster.kill()
        cluster.start()
    assert len(read(cluster.address(2), log_name, 2, "0")) == 2
