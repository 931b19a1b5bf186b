"""A node that cannot do its work says so, says why, and ends with a status that a script can tell apart."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.clusters.repairing import EXIT_ADDRESS, EXIT_CONFIG, EXIT_STORAGE, flip, refused
from tests.integration.clusters.stores import kept
from tests.integration.conftest import number_from
from tests.integration.workloads.plain import Heartbeat, read, send
from tests.ports import free_ports

pytestmark = pytest.mark.cluster

EVENTS = 300


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ("colour = 'red'\n", "colour"),
        ("[storage]\ndurability = 'fsync'\ndurabilty = 'fsync'\n", "durabilty"),
        ("[storage]\ndurability = 'maybe'\n", "durability"),
        ("[nonsense]\n", "nonsense"),
        ("[log\n", "TOML"),
    ],
)
def test_a_wrong_configuration_is_refused(make_cluster: Callable[..., Cluster], wrong: str, word: str) -> None:
    cluster = make_cluster(nodes=1)
    path = cluster.nodes[1].config_path
    right = path.read_text()
    path.write_text(wrong + right if "[" not in wrong else right.split("[storage]")[0] + wrong)
    said = refused(cluster, 1, EXIT_CONFIG)
    assert word in said
    assert str(path) in said
    path.write_text(right)
    cluster.start(1)


def test_a_configuration_that_is_not_there(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(nodes=1)
    cluster.nodes[1].config_path.unlink()
    assert str(cluster.nodes[1].config_path) in refused(cluster, 1, EXIT_CONFIG)


@pytest.mark.parametrize("port", ["AMQP", "RPC"])
def test_an_address_that_is_taken_is_named(make_cluster: Callable[..., Cluster], port: str) -> None:
    cluster = make_cluster(nodes=1)
    node = cluster.nodes[1]
    address = node.rpc if port == "RPC" else node.amqp["default"]
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a connection of an earlier test may linger there
        taken.bind(("127.0.0.1", int(address.rpartition(":")[2])))
        taken.listen()
        assert address in refused(cluster, 1, EXIT_ADDRESS)
    cluster.start(1)


def test_the_data_of_another_node_or_cluster_is_refused(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    cluster.start()
    cluster.stop()
    own = cluster.nodes[1].data_dir
    aside = own.with_name("aside")
    own.rename(aside)
    shutil.copytree(cluster.nodes[2].data_dir, own)
    assert "node 2" in refused(cluster, 1, EXIT_STORAGE)
    shutil.rmtree(own)
    aside.rename(own)

    stranger = make_cluster(nodes=1)
    shutil.copytree(own, stranger.nodes[1].data_dir)
    assert cluster.name in refused(stranger, 1, EXIT_STORAGE)

    shutil.rmtree(stranger.nodes[1].data_dir)
    stranger.nodes[1].data_dir.mkdir()
    (stranger.nodes[1].data_dir / "holiday.jpg").write_bytes(b"not ours")
    assert "holiday.jpg" in refused(stranger, 1, EXIT_STORAGE)
    assert (stranger.nodes[1].data_dir / "holiday.jpg").read_bytes() == b"not ours"


def test_a_second_process_on_the_same_data_is_refused(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(nodes=1)
    cluster.start()
    second = make_cluster(nodes=1, data_dirs={1: cluster.nodes[1].data_dir})
    text = second.nodes[1].config_path.read_text()
    second.nodes[1].config_path.write_text(text.replace(second.name, cluster.name))
    assert "in use" in refused(second, 1, EXIT_STORAGE)
    cluster.create("still-served", 1)


def halve(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


DAMAGES: dict[str, Callable[[Path], None]] = {"flipped bytes": flip}
if number_from("HOLDFAST_FAULTS", 0):  # each takes as many starts as there are files; `make soak` has them all
    DAMAGES |= {"cut in half": halve, "removed": Path.unlink}


def test_a_node_that_finds_no_majority_can_be_stopped(make_cluster: Callable[..., Cluster]) -> None:
    """It is not ready, and says why; asked to stop, it stops; and alone it is no obstacle to the next start."""
    cluster = make_cluster()
    cluster.spawn(1)
    wait_until(lambda: "majority" in cluster.log(1), "a word on what is missing")
    cluster.stop(1)
    cluster.start()


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_files_are_found_at_start_and_nothing_is_lost(
    own_cluster: Cluster, log_name: str, damage: Callable[[Path], None]
) -> None:
    """Each file of the store is damaged in turn: the node refuses to start, or it still has everything.

    The others serve on meanwhile, out of its sight: once it has spoken to them its data of before are an older copy. A
    start that failed has spoken to nobody: given back its undamaged data, the node takes part again.
    """
    cluster = own_cluster
    cluster.create(log_name, 1)
    group = cluster.describe(log_name)["partitions"][0]["group"]
    send(cluster.address(1), log_name, [b"%d " % number + bytes(2000) for number in range(EVENTS)], "0")
    cluster.kill(3)
    data = cluster.nodes[3].data_dir
    aside = data.with_name("aside")
    shutil.copytree(data, aside)
    whole = kept(cluster, 3, group).records
    files = sorted(path.relative_to(aside) for path in aside.rglob("*") if path.is_file() and path.stat().st_size)
    refusals = 0
    present = cluster.nodes[3].config_path.read_text()
    cluster.nodes[3].config_path.write_text(_out_of_sight(cluster, 3, present))
    with Heartbeat(cluster.address(1), cluster.address(2), cluster.create(f"{log_name}-others", 1)):
        for file in files:
            shutil.rmtree(data)
            shutil.copytree(aside, data)
            damage(data / file)
            print(f"{file}, {(aside / file).stat().st_size} bytes")
            said = _refused_or_whole(cluster, 3, group, whole)
            if said:
                refusals += 1
                assert str(data) in said, f"{file}: the message does not name the place: {said}"
                assert "damaged" in said or "format" in said, f"{file}: {said}"
    assert refusals >= 3, "hardly any damage was noticed"
    cluster.nodes[3].config_path.write_text(present)
    shutil.rmtree(data)
    shutil.copytree(aside, data)
    damage(data / "synced")
    refused(cluster, 3, EXIT_STORAGE)  # in sight of the others
    shutil.rmtree(data)
    aside.rename(data)
    cluster.start(3)
    cluster.kill(1)
    send(cluster.address(3), log_name, ["marker"], "0")
    assert len(read(cluster.address(3), log_name, EVENTS + 1, "0")) == EVENTS + 1


def _out_of_sight(cluster: Cluster, node: int, config: str) -> str:
    """Its configuration, with addresses of the others where nobody is."""
    peers = [peer for peer in cluster.nodes.values() if peer.id != node]
    for peer, port in zip(peers, free_ports(len(peers)), strict=True):
        config = config.replace(peer.rpc, f"127.0.0.1:{port}")
    return config


def _refused_or_whole(cluster: Cluster, node: int, group: int, whole: list[bytes]) -> str:
    """What the node said when it refused to start; "" when it started, after a look that nothing is missing."""
    before = len(cluster.log(node))
    process = cluster.spawn(node)
    wait_until(lambda: process.poll() is not None or cluster.serves(node), "a start, or none")
    if process.poll() is None:
        cluster.stop(node)
        assert kept(cluster, node, group).records[: len(whole)] == whole, "it started without some of its events"
        return ""
    assert cluster.wait_exit(node) == EXIT_STORAGE, f"exit status {process.returncode}"
    said = cluster.log(node)[before:]
    cluster.nodes[node].log_read = len(cluster.log(node).encode())
    assert "Traceback" not in said, said
    return said
