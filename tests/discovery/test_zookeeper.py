"""What can happen to registrations in a real ZooKeeper: it goes, hangs, forgets; sessions end; ids are taken."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import NoAuthError
from kazoo.security import make_digest_acl

from chaos.cluster.zookeeper import end_session
from cluster.discovery import DiscoveryError, InUse, OtherCluster, RememberedCluster, SecondRegistration
from tests.discovery.conftest import ADDRESSES, SESSION_S, Found
from tests.discovery.test_conformance import joined
from tests.unit.listener.support.peer import eventually
from tests.zookeeper import LoopbackZooKeeper, Tls, missing

LONG_S = 60.0
"""For what must happen at all: ZooKeeper is a JVM, on a machine busy with other things."""


def registered(found: Found, number: int) -> dict[str, Any] | None:
    """What a stranger reads in ZooKeeper."""
    assert found.server is not None
    with found.server.client() as client:
        path = f"/holdfast/{found.cluster}/nodes/{number}"
        if client.exists(path) is None:
            return None
        data, stat = client.get(path)
        return {**json.loads(data), "session": stat.ephemeralOwner}


def session(node: Any) -> int | None:
    """The number of its session; None while it has none."""
    return None if node._client.client_id is None else int(node._client.client_id[0])


async def test_a_cluster_begins_when_enough_nodes_are_there(by_zookeeper: Found) -> None:
    one, two = by_zookeeper.node(1), by_zookeeper.node(2)
    joining = [asyncio.ensure_future(node.join()) for node in (one, two)]
    await eventually(lambda: "registered: 1, 2" in one.waiting_for, LONG_S)
    assert "3 nodes" in one.waiting_for
    assert not any(task.done() for task in joining)
    await by_zookeeper.node(3).join()
    assert await asyncio.gather(*joining) == [ADDRESSES] * 2


async def test_a_registration_is_ephemeral_and_holds_an_address_per_listener(by_zookeeper: Found) -> None:
    one, *_ = await joined(by_zookeeper, 1, 2, 3)
    entry = await asyncio.to_thread(registered, by_zookeeper, 1)
    assert entry is not None
    assert entry["session"] == session(one)
    assert entry["listeners"] == {"default": "10.0.0.1:5672"}
    await one.close()
    assert await asyncio.to_thread(registered, by_zookeeper, 1) is None


async def test_a_node_whose_session_ended_registers_again_and_once(by_zookeeper: Found) -> None:
    one, two, _ = await joined(by_zookeeper, 1, 2, 3)
    before = await asyncio.to_thread(registered, by_zookeeper, 1)
    assert before is not None
    assert by_zookeeper.server is not None
    await asyncio.to_thread(end_session, by_zookeeper.server.address, before["session"])

    def again() -> bool:
        return one._client.connected and session(one) not in (None, before["session"]) and one.waiting_for == ""

    await eventually(again, LONG_S)
    await eventually(lambda: set(two.members()) == {1, 2, 3}, LONG_S)
    after = await asyncio.to_thread(registered, by_zookeeper, 1)
    assert after is not None
    assert (after["token"], after["session"]) == (before["token"], session(one))


def test_a_session_is_over_even_if_its_client_takes_it_back(zookeeper: LoopbackZooKeeper) -> None:
    """It would live on, were it said to be over once it was closed by who had lost it again."""
    victim = KazooClient(zookeeper.address, timeout=LONG_S)
    back, over = threading.Event(), threading.Event()
    taken_up = []

    def heard(state: str) -> None:
        if state == KazooState.CONNECTED:
            back.set()
        elif state == KazooState.LOST:
            over.set()

    def once_taken_back() -> None:
        taken_up.append(back.wait(LONG_S) if not taken_up else True)

    victim.start(timeout=LONG_S)
    try:
        victim.add_listener(heard)
        assert end_session(zookeeper.address, victim.client_id[0], once_taken_back)
        assert over.wait(LONG_S)
        assert all(taken_up)
    finally:
        victim.stop()
        victim.close()


async def test_a_registration_that_somebody_deleted_is_made_again(by_zookeeper: Found) -> None:
    await joined(by_zookeeper, 1, 2, 3)

    def delete() -> None:
        assert by_zookeeper.server is not None
        with by_zookeeper.server.client() as client:
            client.delete(f"/holdfast/{by_zookeeper.cluster}/nodes/2")

    await asyncio.to_thread(delete)
    async with asyncio.timeout(LONG_S):
        while await asyncio.to_thread(registered, by_zookeeper, 2) is None:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.05)


async def test_after_a_crash_a_node_takes_its_own_registration_over_at_once(by_zookeeper: Found) -> None:
    """Its session still lives; its data directory proves that the registration is its own."""
    one, *_ = await joined(by_zookeeper, 1, 2, 3)
    one._closed = True  # a crash says no goodbye
    one._task.cancel()
    by_zookeeper.memories[0].close()
    (again,) = await joined(by_zookeeper, 1)
    entry = await asyncio.to_thread(registered, by_zookeeper, 1)
    assert entry is not None
    assert entry["session"] == session(again)
    one._closed = False


async def test_a_second_process_under_the_same_id_is_refused_and_the_first_keeps_its_place(by_zookeeper: Found) -> None:
    one, *_ = await joined(by_zookeeper, 1, 2, 3)
    impostor = by_zookeeper.node(1, data="copied-config", address="10.6.6.6:7101")
    async with asyncio.timeout(LONG_S):
        with pytest.raises(SecondRegistration, match="an id of its own"):
            await impostor.join()
    entry = await asyncio.to_thread(registered, by_zookeeper, 1)
    assert entry is not None
    assert entry["rpc"] == ADDRESSES[1]
    assert one.waiting_for == ""


async def test_a_second_process_on_the_same_data_is_refused_before_it_says_anything(tmp_path: Path) -> None:
    first = RememberedCluster(tmp_path / "data")
    with pytest.raises(InUse, match="in use"):
        RememberedCluster(tmp_path / "data")
    first.close()
    RememberedCluster(tmp_path / "data").close()


async def test_another_cluster_under_the_same_name_is_refused(by_zookeeper: Found) -> None:
    """As when discovery.zookeeper names the wrong ensemble."""
    await joined(by_zookeeper, 1, 2, 3)
    strange = by_zookeeper.node(1, data="of-another-cluster")
    by_zookeeper.memories[-1].remember("another-id", ADDRESSES)
    with contextlib.suppress(IndexError):
        await by_zookeeper.made[0].close()
    async with asyncio.timeout(LONG_S):
        with pytest.raises(OtherCluster, match="another-id"):
            await strange.join()


async def test_a_zookeeper_that_lost_everything_is_told_again(by_own_zookeeper: Found) -> None:
    server = by_own_zookeeper.server
    assert server is not None
    await asyncio.to_thread(server.start)
    nodes = await joined(by_own_zookeeper, 1, 2, 3)
    before = nodes[0].cluster_id

    sessions = {session(node) for node in nodes}
    server.kill()
    shutil.rmtree(server.directory / "data")
    (server.directory / "data").mkdir()
    await asyncio.to_thread(server.start)

    def all_back() -> bool:
        return all(
            session(node) not in sessions and not node.waiting_for and set(node.members()) == {1, 2, 3}
            for node in nodes
        )

    await eventually(all_back, LONG_S)

    def described() -> Any:
        with server.client() as client:
            return json.loads(client.get(f"/holdfast/{by_own_zookeeper.cluster}/cluster")[0])

    assert (await asyncio.to_thread(described))["id"] == before


async def test_a_node_started_while_zookeeper_is_away_waits_and_says_so(
    by_own_zookeeper: Found, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = [by_own_zookeeper.node(number) for number in (1, 2, 3)]
    joining = asyncio.gather(*(node.join() for node in nodes))
    await eventually(lambda: all("a connection to ZooKeeper at" in node.waiting_for for node in nodes), LONG_S)
    assert "node 1 waits for a connection to ZooKeeper at" in caplog.text
    assert by_own_zookeeper.server is not None
    await asyncio.to_thread(by_own_zookeeper.server.start)
    async with asyncio.timeout(LONG_S):
        assert await joining == [ADDRESSES] * 3


@pytest.mark.slow
async def test_registrations_survive_a_zookeeper_that_hangs_and_one_that_dies(by_own_zookeeper: Found) -> None:
    server = by_own_zookeeper.server
    assert server is not None
    await asyncio.to_thread(server.start)
    nodes = await joined(by_own_zookeeper, 1, 2, 3)
    with server.silent():
        await eventually(lambda: all(node.waiting_for for node in nodes), LONG_S)
        await asyncio.sleep(2 * SESSION_S)  # the sessions are over, and nobody could say so

    def settled() -> bool:
        return all(not node.waiting_for and set(node.members()) == {1, 2, 3} for node in nodes)

    await eventually(settled, LONG_S)
    server.kill()
    await eventually(lambda: all(node.waiting_for for node in nodes), LONG_S)
    assert set(nodes[0].members()) == {1, 2, 3}  # what was heard last
    await asyncio.to_thread(server.start)
    await eventually(settled, LONG_S)


async def test_a_new_address_is_told_to_the_others(by_zookeeper: Found) -> None:
    one, two, _ = await joined(by_zookeeper, 1, 2, 3)
    heard: list[str] = []
    two.subscribe(lambda members: heard.append(members[1].rpc_address if 1 in members else ""))
    await one.close()
    by_zookeeper.memories[0].close()
    moved = by_zookeeper.node(1, address="10.0.7.1:7101")
    voters = await moved.join()
    assert voters[1] == "10.0.7.1:7101"
    await eventually(lambda: heard and heard[-1] == "10.0.7.1:7101", LONG_S)


async def test_with_credentials_only_nodes_write_and_others_may_read(by_zookeeper: Found) -> None:
    root = f"/acl-{by_zookeeper.cluster}"
    await joined(by_zookeeper, 1, 2, 3, root=root, auth="node:secret")

    def stranger() -> bytes:
        assert by_zookeeper.server is not None
        with by_zookeeper.server.client() as client:
            path = f"{root}/{by_zookeeper.cluster}/nodes/1"
            with pytest.raises(NoAuthError):
                client.set(path, b"{}")
            return bytes(client.get(path)[0])

    assert b"10.0.0.1" in await asyncio.to_thread(stranger)
    wrong = by_zookeeper.node(4, data="wrong", root=root, auth="node:guess")
    async with asyncio.timeout(LONG_S):
        with pytest.raises(DiscoveryError, match="auth_file"):
            await wrong.join()


async def test_a_root_that_belongs_to_somebody_else_is_refused(by_zookeeper: Found) -> None:
    def take() -> None:
        assert by_zookeeper.server is not None
        with by_zookeeper.server.client(auth_data=[("digest", "other:x")]) as client:
            client.create(f"/taken-{by_zookeeper.cluster}", acl=[make_digest_acl("other", "x", all=True)])

    await asyncio.to_thread(take)
    node = by_zookeeper.node(1, root=f"/taken-{by_zookeeper.cluster}")
    async with asyncio.timeout(LONG_S):
        with pytest.raises(DiscoveryError, match="refuses access"):
            await node.join()


async def test_zookeeper_over_tls_with_certificates_on_both_sides(tmp_path: Path) -> None:
    if missing():
        pytest.skip(missing())
    tls = Tls(tmp_path / "tls")
    server = LoopbackZooKeeper(tmp_path / "secure", tls=tls)
    found = Found("zookeeper", tmp_path, server)
    try:
        await asyncio.to_thread(server.start)
        files = {"ca_file": str(tls.ca), "cert_file": str(tls.client), "key_file": str(tls.client_key)}
        secure = {"hosts": f"127.0.0.1:{server.secure_port}", "tls": True, **files}
        one, *_ = await joined(found, 1, 2, 3, **secure)
        assert set(one.members()) <= {1, 2, 3}
        bare = found.node(1, data="no-certificate", **{**secure, "cert_file": "", "key_file": ""})
        joining = asyncio.ensure_future(bare.join())
        await eventually(lambda: "a connection to ZooKeeper" in bare.waiting_for, LONG_S)
        joining.cancel()
    finally:
        await found.close()
        server.kill()


async def test_the_loop_is_never_held_by_kazoo(by_zookeeper: Found) -> None:
    """Every call into it is made from another thread than the loop's."""
    nodes = [by_zookeeper.node(number) for number in (1, 2, 3)]
    threads: set[int] = set()
    for node in nodes:
        original = node._steps._wait
        node._steps._wait = lambda result, original=original: (threads.add(threading.get_ident()), original(result))[1]
    await asyncio.gather(*(node.join() for node in nodes))
    assert threads
    assert threading.get_ident() not in threads
