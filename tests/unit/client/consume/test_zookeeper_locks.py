"""Shares, and the epochs that only the holder of a lock can get; on a real ZooKeeper where one is needed."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import pytest
from kazoo.exceptions import KazooException
from kazoo.recipe.lock import Lock

from holdfast.client import ConfigurationError, HoldfastError, ProtocolError, ZooKeeperLogin
from holdfast.client.consume.zookeeper.fencing_epochs import MAX_EPOCH, NotHeld
from holdfast.client.consume.zookeeper.partition_locks import PartitionLocks, node_name, share
from tests.integration.clusters.cluster import wait_until
from tests.zookeeper import LoopbackZooKeeper, missing

MEMBERS = ["ann", "bob", "cleo", "dora", "emil"]
PARTITIONS = [str(number) for number in range(23)]

needs_zookeeper = pytest.mark.skipif(bool(missing()), reason=missing())

# ---------------------------------------------------------------- shares


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("partitions", [0, 1, 4, 23])
def test_every_partition_is_in_one_share_and_shares_are_fair(count: int, partitions: int) -> None:
    for members in combinations(MEMBERS, count):
        shares = [share(member, members, PARTITIONS[:partitions]) for member in members]
        assert sorted(one for mine in shares for one in mine) == sorted(PARTITIONS[:partitions])
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_the_order_in_which_members_are_seen_does_not_matter() -> None:
    assert share("bob", reversed(MEMBERS), reversed(PARTITIONS)) == share("bob", MEMBERS, PARTITIONS)


def test_who_is_not_among_the_members_has_nothing() -> None:
    assert share("zoe", MEMBERS, PARTITIONS) == []


def test_most_partitions_stay_where_they_are_when_a_member_leaves() -> None:
    """By chance alone a fifth would stay."""
    stayed = had = 0
    for gone in MEMBERS:
        left = [member for member in MEMBERS if member != gone]
        for member in left:
            before = set(share(member, MEMBERS, PARTITIONS))
            had, stayed = had + len(before), stayed + len(before & set(share(member, left, PARTITIONS)))
    assert stayed / had > 0.6


@pytest.mark.parametrize("text", ["plain", "a/b", ".", "..", "zookeeper", "ü ", "%2E", "a\x00b"])
def test_any_name_is_the_name_of_one_node(text: str) -> None:
    name = node_name(text)
    assert "/" not in name
    assert "." not in name
    assert name.isascii()
    assert len({node_name(other) for other in (text, text + ".", "x" + text)}) == 3


# ---------------------------------------------------------------- epochs


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackZooKeeper]:
    server = LoopbackZooKeeper(tmp_path_factory.mktemp("zookeeper") / "server")
    server.start()
    yield server
    server.kill()


Make = Callable[..., PartitionLocks]


@pytest.fixture
def locks(zookeeper: LoopbackZooKeeper) -> Iterator[Make]:
    """Makes seats of one group that have settled on these partitions."""
    base, made = f"/seats-{uuid.uuid4().hex}", []  # what one test makes with a login, no other one needs

    def make(member: str, *partitions: str, login: ZooKeeperLogin | None = None) -> PartitionLocks:
        changed = threading.Event()
        one = PartitionLocks(
            zookeeper.address, login or ZooKeeperLogin(), base, member,
            session_timeout_s=2.0, settle_s=0.1, changed=changed.set,
        )  # fmt: skip
        made.append(one)
        one.begin()
        wait_until(lambda: one.connected, "a connection")
        one.join(partitions)
        return one

    yield make
    for one in made:
        one.close()


def settle(*seats: PartitionLocks) -> None:
    """As their keepers would, until all have what they expect."""

    def settled() -> bool:
        for one in seats:
            if one.must_release:
                one.release()
        return all(one.acquired is not None and set(one.acquired[1]) == set(one.expected()) for one in seats)

    wait_until(settled, "the locks")


@needs_zookeeper
def test_each_owner_of_a_partition_gets_a_greater_epoch_than_all_before_it(locks: Make) -> None:
    epochs = []
    for member in ("ann", "bob", "ann"):
        one = locks(member, "0")
        settle(one)
        epochs.append(one.lease("0", None, 0, False))
        one.close()
    assert epochs == [1, 2, 3]


@needs_zookeeper
def test_who_had_it_last_goes_on_under_its_epoch_and_nobody_else_does(locks: Make) -> None:
    ann = locks("ann", "0")
    settle(ann)
    assert ann.lease("0", None, 0, False) == 1
    assert ann.lease("0", 1, 1, True) == 1
    ann.release()
    settle(ann)
    assert ann.lease("0", 1, 1, True) == 1
    assert ann.lease("0", None, 1, False) == 2  # its link has ended meanwhile
    assert ann.lease("0", 1, 1, True) == 3  # somebody was given one since


@needs_zookeeper
def test_without_the_lock_there_is_no_epoch(locks: Make, zookeeper: LoopbackZooKeeper) -> None:
    ann, bob = locks("ann", "0", "1"), locks("bob", "0", "1")
    settle(ann, bob)
    (mine,), (others,) = ann.expected(), bob.expected()
    assert ann.lease(mine, None, 0, False) == 1
    with pytest.raises(NotHeld):
        ann.lease(others, None, 0, False)
    with zookeeper.client() as client:
        path = f"{ann.base}/locks/{mine}"
        for child in client.get_children(path):
            client.delete(f"{path}/{child}")
    with pytest.raises(NotHeld):
        ann.lease(mine, 1, 1, True)


@needs_zookeeper
def test_a_lock_that_the_partitioner_believes_to_have_is_not_believed(
    locks: Make, zookeeper: LoopbackZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kazoo takes an acquisition that ran out of time while the connection was away for one that succeeded."""
    holder = locks("holder", "0")
    settle(holder)
    monkeypatch.setattr(Lock, "acquire", lambda *_, **__: False)
    monkeypatch.setattr("holdfast.client.consume.zookeeper.partition_locks.share", lambda member, *_: ["0"])
    deluded = locks("deluded", "0")
    wait_until(lambda: deluded.acquired is not None and deluded.acquired[1] == ["0"], "the partitioner's word")
    with pytest.raises(NotHeld):
        deluded.lease("0", None, 0, False)


@needs_zookeeper
def test_an_epoch_is_above_the_one_that_the_cluster_has_in_force(locks: Make) -> None:
    """As when ZooKeeper has lost its data."""
    ann = locks("ann", "0")
    settle(ann)
    assert ann.lease("0", None, 41, False) == 42
    assert ann.lease("0", None, 7, False) == 43


@needs_zookeeper
def test_who_claimed_by_hand_is_left_alone_while_it_reads(locks: Make) -> None:
    ann = locks("ann", "0")
    settle(ann)
    assert ann.lease("0", None, 0, False) == 1
    assert ann.lease("0", None, 100, True) is None
    assert ann.lease("0", 1, 100, True) is None
    assert ann.lease("0", None, 100, False) == 101


@needs_zookeeper
def test_two_that_both_believe_to_have_the_lock_never_get_the_same_epoch(locks: Make) -> None:
    """One session; two of its threads."""
    ann = locks("ann", "0")
    settle(ann)
    given: list[Any] = []
    threads = [
        threading.Thread(target=lambda: given.extend(ann.lease("0", None, 0, False) for _ in range(20)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(given) == len(set(given)) == 40


@needs_zookeeper
@pytest.mark.parametrize("data", [b"", b"7", b'{"format": 2, "epoch": 1}', b'{"format": 1, "epoch": "x"}', b"\xff"])
def test_a_counter_that_is_none_of_ours_is_not_touched(locks: Make, zookeeper: LoopbackZooKeeper, data: bytes) -> None:
    ann = locks("ann", "0")
    settle(ann)
    with zookeeper.client() as client:
        client.create(f"{ann.base}/epochs/0", data, makepath=True)
        with pytest.raises(ProtocolError, match="not an epoch of this version"):
            ann.lease("0", None, 0, False)
        assert client.get(f"{ann.base}/epochs/0")[0] == data


@needs_zookeeper
def test_the_last_epoch_there_is(locks: Make) -> None:
    ann = locks("ann", "0")
    settle(ann)
    assert ann.lease("0", None, MAX_EPOCH - 1, False) == MAX_EPOCH
    with pytest.raises(ProtocolError, match="the last epoch"):
        ann.lease("0", None, 0, False)


@needs_zookeeper
def test_with_a_login_nobody_else_may_touch_what_members_write(locks: Make, zookeeper: LoopbackZooKeeper) -> None:
    ann = locks("ann", "0", login=ZooKeeperLogin(auth="members:secret"))
    settle(ann)
    assert ann.lease("0", None, 0, False) == 1
    with zookeeper.client() as stranger:
        for path in (f"{ann.base}/epochs/0", f"{ann.base}/locks/0"):
            with pytest.raises(KazooException):
                stranger.set(path, b"")
    with pytest.raises(KazooException):
        locks("bob", "0")


@pytest.mark.parametrize("auth", ["user", ":password"])
def test_a_login_is_a_user_and_a_password(auth: str) -> None:
    with pytest.raises(ConfigurationError, match="user:password"):
        PartitionLocks(
            "127.0.0.1:1", ZooKeeperLogin(auth=auth), "/x", "m", session_timeout_s=1, settle_s=1, changed=lambda: None
        )


def test_without_kazoo_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "kazoo.client", None)
    with pytest.raises(ConfigurationError, match="kazoo") as caught:
        PartitionLocks(
            "127.0.0.1:1", ZooKeeperLogin(), "/x", "m", session_timeout_s=1, settle_s=1, changed=lambda: None
        )
    assert isinstance(caught.value, HoldfastError)
    assert "holdfast[zookeeper]" in caught.value.advice
