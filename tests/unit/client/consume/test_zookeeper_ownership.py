"""Members of a group that divide the partitions through a real ZooKeeper, and read them from real nodes."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NotEmptyError

from holdfast.client import (
    AdminClient,
    ConfigurationError,
    ConsumerClient,
    ConsumerOptions,
    NetworkOptions,
    NotFoundError,
    OwnershipLostError,
    Start,
    UnreachableError,
    ZooKeeperLogin,
    ZooKeeperOwnership,
)
from holdfast.client import sync as threaded
from holdfast.client.consume.zookeeper import partition_locks
from tests.integration.clusters.proxied import proxy_server
from tests.unit.client.support import members
from tests.unit.client.support.members import TinyMember, filled
from tests.unit.client.support.real_cluster import Nodes
from tests.unit.listener.support.peer import eventually
from tests.zookeeper import LoopbackZooKeeper, Tls, missing

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.skipif(bool(missing()), reason=missing())]

LONG_S = 120.0
STEADY_SESSION_S = 30.0
"""Nobody loses it because the machine is busy: epochs can be counted."""
SESSION_S = 2.0
"""Where a test waits for its end."""
BRIEF = {"session_timeout_s": SESSION_S}

share = functools.partial(members.share, within_s=LONG_S)


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackZooKeeper]:
    server = LoopbackZooKeeper(tmp_path_factory.mktemp("zookeeper") / "server")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def own_zookeeper(tmp_path: Path) -> Iterator[LoopbackZooKeeper]:
    """One that the test may do anything to; not started."""
    server = LoopbackZooKeeper(tmp_path / "own-zookeeper")
    yield server
    server.kill()


def owned(address: str, **settings: Any) -> ZooKeeperOwnership:
    url = f"zk://{address}/owners"
    usual = {"session_timeout_s": STEADY_SESSION_S, "settle_s": 0.3, "hand_over_s": 5.0}
    return ZooKeeperOwnership(url, **usual | settings)


def member(nodes: Nodes, log: str, address: str, **more: Any) -> TinyMember:
    return TinyMember(nodes, log, ownership=owned(address, **more.pop("settings", {})), **more)


def session(one: TinyMember) -> Any:
    """(id, password) of its session with ZooKeeper; None without one."""
    locks = one.consumer._members._keeper._locks  # type: ignore[union-attr]
    return None if locks is None else locks._client.client_id


def revoked(one: TinyMember) -> int:
    return sum(what == "revoked" for what, _ in one.heard)


async def everything(count: int, *readers: TinyMember) -> None:
    """All offsets of four partitions were got, by one or the other."""

    def got() -> bool:
        for one in readers:
            assert one.error is None
        return all({at for one in readers for at in one.got[name]} == set(range(count)) for name in "0123")

    await eventually(got, LONG_S)


async def test_members_share_hand_over_and_go_on(nodes: Nodes, zookeeper: LoopbackZooKeeper) -> None:
    log = await filled(nodes, 4, 100)
    async with member(nodes, log, zookeeper.address) as first:
        await eventually(lambda: first.count == 400, LONG_S)
        assert first.consumer.epochs == dict.fromkeys("0123", 1)
        await first.consumer.commit()
        async with member(nodes, log, zookeeper.address) as second:
            await share([first, second], 2, 2)
            await filled(nodes, 4, 10, log)
            await eventually(lambda: first.count == 420 and second.count == 20, LONG_S)
            assert second.consumer.epochs == dict.fromkeys(second.partitions, 2)
            assert first.consumer.epochs == dict.fromkeys(first.partitions, 1)  # these have never stopped
            assert revoked(first) == 2
            await second.consumer.commit()
        await share([first], 4)
        await filled(nodes, 4, 10, log)
        await eventually(lambda: {offsets[-1] for offsets in first.got.values()} == {119}, LONG_S)
        assert sorted(first.consumer.epochs.values()) == [1, 1, 3, 3]


async def test_the_epoch_outlives_members_that_leave(nodes: Nodes, zookeeper: LoopbackZooKeeper) -> None:
    """Otherwise one that was replaced, and does not know it yet, could come back after its successor."""
    log = await filled(nodes, 1, 10)
    for epoch in (1, 2):
        async with member(nodes, log, zookeeper.address) as one:
            await eventually(lambda one=one: one.consumer.epochs == {"0": epoch}, LONG_S)  # noqa: B023
    for patience_s in (1.0, 10.0, LONG_S):  # a busy machine takes longer to find the leader
        stale = TinyMember(
            nodes, log, partitions=["0"], epoch=1, options=ConsumerOptions(reconnect_timeout_s=patience_s)
        )
        async with stale:
            await eventually(lambda stale=stale: stale.error, 2 * LONG_S)
            if "could not be reached" not in str(stale.error):
                break
    assert "epoch 1 is below 2" in str(stale.error)
    async with AdminClient(nodes.servers) as admin:
        assert (await admin.describe_group(log, "g"))["partitions"][0]["epoch"] == 2


async def test_a_partition_moves_when_its_events_are_worked_off(nodes: Nodes, zookeeper: LoopbackZooKeeper) -> None:
    """A slow program, that commits behind each batch: nothing comes twice although it is asked to hand over."""
    log = await filled(nodes, 2, 10)
    seen: list[tuple[str, int]] = []

    async def work(consumer: ConsumerClient) -> None:
        async for events in consumer.batches():
            await asyncio.sleep(1.0)
            seen.extend((event.partition, int(event.offset, 16)) for event in events)
            await consumer.commit()

    options = {"group": "g", "start": Start.earliest(), "ownership": owned(zookeeper.address)}
    async with ConsumerClient(nodes.servers, log, **options) as first:
        working = asyncio.create_task(work(first))
        await eventually(lambda: len(first.assignment) == 2, LONG_S)
        async with ConsumerClient(nodes.servers, log, **options) as second:
            also = asyncio.create_task(work(second))
            await eventually(lambda: len(first.assignment) == len(second.assignment) == 1 and len(seen) >= 20, LONG_S)
            await filled(nodes, 2, 5, log)
            await eventually(lambda: len(seen) >= 30, LONG_S)
            assert sorted(seen) == [(name, at) for name in "01" for at in range(15)]
            for task in (working, also):
                task.cancel()
            await asyncio.gather(working, also, return_exceptions=True)


async def test_a_program_that_does_not_end_its_work_is_not_waited_for_for_ever(
    nodes: Nodes, zookeeper: LoopbackZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    log = await filled(nodes, 1, 10)
    ownership = owned(zookeeper.address, hand_over_s=0.5)
    names = [f"member-{number}" for number in range(2)]
    [after] = [name for name in names if partition_locks.share(name, names, ["0"])]
    [before] = {*names} - {after}

    def named(name: str) -> ConsumerClient:
        options = ConsumerOptions(network=NetworkOptions(container_id=name))
        return ConsumerClient(
            nodes.servers, log, group="g", start=Start.earliest(), ownership=ownership, options=options
        )

    async with named(before) as first:
        events = await first.receive(5, timeout_s=LONG_S)
        async with named(after):
            await eventually(lambda: not first.assignment, LONG_S)
            assert "is handed over although the program still works on it" in caplog.text
            with pytest.raises(OwnershipLostError):
                await first.commit(events[-1])


async def test_a_session_that_was_ended_costs_a_member_its_partitions_and_not_its_membership(
    nodes: Nodes, zookeeper: LoopbackZooKeeper
) -> None:
    log = await filled(nodes, 4, 50)
    async with member(nodes, log, zookeeper.address) as first, member(nodes, log, zookeeper.address) as second:
        await share([first, second], 2, 2)
        await everything(50, first, second)
        before, ended, told = dict(first.consumer.epochs), session(first), revoked(first)

        def end_it() -> None:
            other = KazooClient(zookeeper.address, client_id=ended)
            other.start(timeout=30)
            other.stop()
            other.close()

        await asyncio.to_thread(end_it)
        # kazoo has a new session at once, before the member has heard of the end of the old one.
        await eventually(lambda: revoked(first) >= told + 2 and session(first) not in (None, ended), LONG_S)
        await share([first, second], 2, 2)

        def claimed_anew() -> bool:
            now = {**first.consumer.epochs, **second.consumer.epochs}
            return all(now.get(name, 0) > epoch for name, epoch in before.items())

        await eventually(claimed_anew, LONG_S)
        await filled(nodes, 4, 10, log)
        await everything(60, first, second)


async def test_who_is_cut_off_from_zookeeper_reads_until_it_is_replaced_and_is_told_by_whom(
    nodes: Nodes, zookeeper: LoopbackZooKeeper, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = await filled(nodes, 4, 50)
    with proxy_server(tmp_path) as proxies:
        way = proxies.way("zookeeper", zookeeper.address)
        async with (
            member(nodes, log, way.address, settings=BRIEF) as cut,
            member(nodes, log, zookeeper.address, settings=BRIEF) as other,
        ):
            await share([cut, other], 2, 2)
            await everything(50, cut, other)
            await cut.consumer.commit()
            before = dict(cut.consumer.epochs)
            last = {name: cut.consumer.positions[name] for name in before}
            with way.refusing():
                await filled(nodes, 4, 10, log)
                await everything(60, cut, other)  # before its session is over, and by those who had them
                await share([cut, other], 0, 4)
                now = other.consumer.epochs
                assert all(now[name] > epoch for name, epoch in before.items())
                assert last.keys() == before.keys()
                for name in before:
                    stolen = [text for text in caplog.messages if f"/{name}" in text or f"{name!r}" in text]
                    assert any(f"epoch {now[name]}" in text for text in stolen), caplog.messages
                await filled(nodes, 4, 10, log)
                await eventually(lambda: all(other.got[name] and other.got[name][-1] == 69 for name in "0123"), LONG_S)
                assert cut.error is None
            await share([cut, other], 2, 2)
            await filled(nodes, 4, 10, log)
            await everything(80, cut, other)


@pytest.mark.slow
async def test_while_zookeeper_is_away_all_read_on_and_nothing_changes_hands(
    nodes: Nodes, own_zookeeper: LoopbackZooKeeper
) -> None:
    await asyncio.to_thread(own_zookeeper.start)
    log = await filled(nodes, 4, 50)
    async with (
        member(nodes, log, own_zookeeper.address, settings=BRIEF) as first,
        member(nodes, log, own_zookeeper.address, settings=BRIEF) as second,
    ):
        await share([first, second], 2, 2)
        before, told = [first.consumer.epochs, second.consumer.epochs], revoked(first) + revoked(second)
        own_zookeeper.kill()
        away_until_s = time.monotonic() + 4 * SESSION_S  # so long that clients are made anew, too
        count = 50
        while time.monotonic() < away_until_s:
            await filled(nodes, 4, 10, log)
            count += 10
            await everything(count, first, second)
        assert revoked(first) + revoked(second) == told
        assert [first.consumer.epochs, second.consumer.epochs] == before
        await asyncio.to_thread(own_zookeeper.start)
        async with member(nodes, log, own_zookeeper.address, settings=BRIEF) as third:
            await share([first, second, third], 2, 1, 1)
            for one, epochs in zip((first, second), before, strict=True):  # back first: may have had more
                assert all(epochs.get(name, epoch) <= epoch for name, epoch in one.consumer.epochs.items())
            await third.consumer.commit()
        await share([first, second], 2, 2)


async def test_a_zookeeper_that_hangs_stops_nobody_and_members_are_members_afterwards(
    nodes: Nodes, own_zookeeper: LoopbackZooKeeper
) -> None:
    """Whichever sessions it takes for over when it goes on."""
    await asyncio.to_thread(own_zookeeper.start)
    log = await filled(nodes, 4, 50)
    async with (
        member(nodes, log, own_zookeeper.address, settings=BRIEF) as first,
        member(nodes, log, own_zookeeper.address, settings=BRIEF) as second,
    ):
        await share([first, second], 2, 2)
        epochs = {**first.consumer.epochs, **second.consumer.epochs}
        with own_zookeeper.silent():
            hangs_until_s = time.monotonic() + 2 * SESSION_S
            count = 50
            while time.monotonic() < hangs_until_s:
                await filled(nodes, 4, 10, log)
                count += 10
                await everything(count, first, second)
        async with member(nodes, log, own_zookeeper.address, settings=BRIEF) as third:
            await share([first, second, third], 2, 1, 1)
            await third.consumer.commit()
        await share([first, second], 2, 2)
        await filled(nodes, 4, 10, log)
        await everything(count + 10, first, second)
        now = {**first.consumer.epochs, **second.consumer.epochs}
        assert all(now[name] >= epoch for name, epoch in epochs.items())


async def test_a_zookeeper_that_lost_its_data_sets_no_epoch_back(
    nodes: Nodes, own_zookeeper: LoopbackZooKeeper
) -> None:
    await asyncio.to_thread(own_zookeeper.start)
    log = await filled(nodes, 4, 50)
    async with member(nodes, log, own_zookeeper.address, settings=BRIEF) as one:
        await share([one], 4)
        await everything(50, one)
        own_zookeeper.kill()
        shutil.rmtree(own_zookeeper.directory / "data")
        (own_zookeeper.directory / "data").mkdir()
        await asyncio.to_thread(own_zookeeper.start)

        def again() -> bool:
            """Whoever has lost a session once more has a higher one still."""
            return set(one.consumer.epochs) == set("0123") and min(one.consumer.epochs.values()) > 1

        await eventually(again, LONG_S)
        await filled(nodes, 4, 10, log)
        await everything(60, one)


async def test_members_whose_agreement_is_deleted_under_them_make_another(
    nodes: Nodes, zookeeper: LoopbackZooKeeper
) -> None:
    log = await filled(nodes, 4, 50)
    async with member(nodes, log, zookeeper.address) as first, member(nodes, log, zookeeper.address) as second:
        await share([first, second], 2, 2)
        before = {**first.consumer.epochs, **second.consumer.epochs}

        def delete() -> None:
            with zookeeper.client() as client:
                for part in ("party", "locks", "epochs"):
                    with contextlib.suppress(NotEmptyError):  # they are at work on the next one already
                        client.delete(f"/owners/groups/{log}/g/{part}", recursive=True)

        await asyncio.to_thread(delete)

        def anew() -> bool:
            now = {**first.consumer.epochs, **second.consumer.epochs}
            return set(now) == set("0123") and all(now[name] > before[name] for name in now)

        await eventually(anew, LONG_S)
        await share([first, second], 2, 2)
        await filled(nodes, 4, 10, log)
        await everything(60, first, second)


async def test_a_log_that_grows_is_shared_out_anew(nodes: Nodes, zookeeper: LoopbackZooKeeper) -> None:
    log = await filled(nodes, 2, 10)
    async with member(nodes, log, zookeeper.address) as first, member(nodes, log, zookeeper.address) as second:
        await share([first, second], 1, 1)
        async with AdminClient(nodes.servers) as admin:
            await admin.alter_log(log, partitions=4)
        await eventually(lambda: len(first.partitions) == len(second.partitions) == 2, LONG_S)
        assert first.partitions | second.partitions == set("0123")


async def test_who_claims_by_hand_is_left_alone_until_it_has_gone(nodes: Nodes, zookeeper: LoopbackZooKeeper) -> None:
    log = await filled(nodes, 2, 10)
    async with member(nodes, log, zookeeper.address) as one:
        await share([one], 2)
        async with TinyMember(nodes, log, partitions=["0"], epoch=100) as operator:
            await eventually(lambda: one.partitions == {"1"} and operator.partitions == {"0"}, LONG_S)
            await asyncio.sleep(6)  # it is looked at every 5 s: what must not happen has had its time
            assert (one.partitions, operator.partitions) == ({"1"}, {"0"})
            assert one.error is operator.error is None
        await eventually(lambda: one.partitions == {"0", "1"}, LONG_S)


async def test_who_stood_still_hands_nothing_out_before_the_cluster_has_said_whose_it_is(
    nodes: Nodes, zookeeper: LoopbackZooKeeper
) -> None:
    """The member's loop is blocked; the next thing that it does is to hand out what came before, for another has it."""
    log = await filled(nodes, 1, 100)
    options = {"group": "g", "start": Start.earliest()}
    one = await asyncio.to_thread(
        lambda: threaded.ConsumerClient(nodes.servers, log, ownership=owned(zookeeper.address, **BRIEF), **options)
    )
    try:
        await asyncio.to_thread(one.start)
        events = await asyncio.to_thread(one.receive, 10, LONG_S)
        assert len(events) == 10
        assert one._inner._arrived
        blocked, replaced = threading.Event(), threading.Event()

        def stand_still() -> None:
            """Until the other has the partition, and for longer than a session lasts."""
            until_s = time.monotonic() + 3 * SESSION_S
            blocked.set()
            replaced.wait(LONG_S)
            time.sleep(max(0.0, until_s - time.monotonic()))

        standing = asyncio.create_task(asyncio.to_thread(one._thread.call, stand_still))
        await asyncio.to_thread(blocked.wait)
        receiving = asyncio.create_task(asyncio.to_thread(one.receive, 10, 1.0))  # in line behind that
        async with ConsumerClient(nodes.servers, log, partitions=["0"], epoch=50, **options) as other:
            await eventually(lambda: other.assignment, LONG_S)
            replaced.set()
            await standing
            assert await receiving == []
            with pytest.raises(OwnershipLostError):
                await asyncio.to_thread(one.commit, events[-1])
        again = await asyncio.to_thread(one.receive, 10, LONG_S)
        assert again[0].offset == events[0].offset  # nobody has committed anything
    finally:
        await asyncio.to_thread(one.close)


async def test_over_tls_with_a_login(nodes: Nodes, tmp_path: Path) -> None:
    tls = Tls(tmp_path / "tls")
    server = LoopbackZooKeeper(tmp_path / "zookeeper", tls=tls)
    try:
        await asyncio.to_thread(server.start)
        login = ZooKeeperLogin(
            auth="members:secret", ca_file=str(tls.ca), cert_file=str(tls.client), key_file=str(tls.client_key)
        )
        log = await filled(nodes, 2, 10)
        async with member(nodes, log, f"127.0.0.1:{server.secure_port}", settings={"login": login}) as one:
            await share([one], 2)
        stranger = ConsumerOptions(reconnect_timeout_s=LONG_S / 2)
        async with member(nodes, log, server.address, options=stranger) as other:
            await eventually(lambda: other.error, LONG_S)
            assert isinstance(other.error, ConfigurationError)
            assert "does not let this client use /owners" in str(other.error)
    finally:
        server.kill()


async def test_a_zookeeper_that_is_not_there_is_told_within_the_time_allowed(nodes: Nodes) -> None:
    log = await nodes.log(1)
    options = ConsumerOptions(reconnect_timeout_s=1.0)
    async with member(nodes, log, "127.0.0.1:1", options=options) as one:
        await eventually(lambda: one.error, LONG_S)
        assert isinstance(one.error, UnreachableError)
        assert "ZooKeeper at 127.0.0.1:1 does not answer" in str(one.error)


async def test_a_log_that_is_not_there(nodes: Nodes, zookeeper: LoopbackZooKeeper) -> None:
    async with member(nodes, "no-such-log", zookeeper.address) as one:
        await eventually(lambda: one.error, LONG_S)
        assert isinstance(one.error, NotFoundError)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"group": None}, "share all partitions out"),
        ({"partitions": ["0"]}, "share all partitions out"),
        ({"ownership": "zk://x/y"}, "ownership is a ZooKeeperOwnership"),
        ({"ownership": ZooKeeperOwnership("http://x/y")}, "names no place in ZooKeeper"),
        ({"ownership": ZooKeeperOwnership("zk://x")}, "names no place in ZooKeeper"),
        ({"ownership": ZooKeeperOwnership("zk://x/y?listener=a")}, "names no place in ZooKeeper"),
        ({"ownership": ZooKeeperOwnership("zk://x/y//z")}, "names no place in ZooKeeper"),
        ({"ownership": ZooKeeperOwnership("zk://x/../y")}, "names no place in ZooKeeper"),
        ({"ownership": ZooKeeperOwnership("zk://x/y", session_timeout_s=0)}, "session_timeout_s"),
        ({"ownership": ZooKeeperOwnership("zk://x/y", hand_over_s=float("nan"))}, "hand_over_s"),
    ],
)
async def test_what_cannot_work_is_refused_at_once(arguments: dict[str, Any], complaint: str) -> None:
    given = {"group": "g", "ownership": ZooKeeperOwnership("zk://127.0.0.1:2181/owners")} | arguments
    with pytest.raises(ConfigurationError, match=complaint):
        ConsumerClient("127.0.0.1:5672", "trades", **given)


async def test_the_synchronous_twin(nodes: Nodes, zookeeper: LoopbackZooKeeper) -> None:
    log = await filled(nodes, 2, 10)

    def read() -> dict[str, int]:
        ownership = owned(zookeeper.address)
        with threaded.ConsumerClient(
            nodes.servers, log, group="g", start=Start.earliest(), ownership=ownership
        ) as consumer:
            events = 0
            while events < 20:
                events += len(consumer.receive(timeout_s=LONG_S))
            consumer.commit()
            return consumer.epochs

    assert await asyncio.to_thread(read) == {"0": 1, "1": 1}


async def test_callbacks_that_fail_keep_nothing_from_others(nodes: Nodes, zookeeper: LoopbackZooKeeper) -> None:
    log = await filled(nodes, 4, 10)
    told: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context["exception"]))
    heard: list[str] = []

    def fail(partition: str) -> None:
        heard.append(partition)
        raise ValueError("own fault")

    try:
        ours = owned(zookeeper.address, hand_over_s=0.1)
        consumer = ConsumerClient(
            nodes.servers, log, group="g", start=Start.earliest(), ownership=ours, on_revoked=fail
        )
        await consumer.start()
        await eventually(lambda: len(consumer.assignment) == 4, LONG_S)
        async with member(nodes, log, zookeeper.address) as second:
            await eventually(lambda: len(second.partitions) == 2, LONG_S)
            assert [str(error) for error in told] == ["own fault"] * 2
            assert second.partitions == set(heard)
        await eventually(lambda: len(consumer.assignment) == 4, LONG_S)
        with pytest.raises(ValueError, match="own fault"):
            await consumer.close()
        assert sorted(heard[2:]) == ["0", "1", "2", "3"]
        async with member(nodes, log, zookeeper.address) as last:
            await eventually(lambda: len(last.partitions) == 4, LONG_S)
    finally:
        asyncio.get_running_loop().set_exception_handler(None)


async def test_close_within_a_callback_of_a_hand_over(nodes: Nodes, zookeeper: LoopbackZooKeeper) -> None:
    log = await filled(nodes, 4, 10)
    ours = owned(zookeeper.address, hand_over_s=0.1)

    async def revoked(partition: str) -> None:
        await consumer.close()

    consumer = ConsumerClient(nodes.servers, log, group="g", start=Start.earliest(), ownership=ours, on_revoked=revoked)
    await consumer.start()
    await eventually(lambda: len(consumer.assignment) == 4, LONG_S)
    async with member(nodes, log, zookeeper.address) as second:
        await eventually(lambda: len(second.partitions) == 4, LONG_S)
    await asyncio.wait_for(consumer.close(), LONG_S)
