"""The synchronous twin: the same names and arguments, the same outcomes, a thread that ends."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import threading
from collections.abc import Callable
from typing import TypeVar

import pytest

import holdfast.client as asynchronous
from holdfast.client import (
    ClosedError,
    ConfigurationError,
    ConsumerOptions,
    InvalidOperationError,
    NotFoundError,
    PartitionPublishingOptions,
    ProducerOptions,
    RejectedError,
    Start,
    TimeoutExpiredError,
    sync,
)
from holdfast.client.produce.delivery import Delivery
from holdfast.client.sync.blocking_proxy import SyncClient, Twin
from tests.unit.client.support.tiny_node import REJECTED, TinyNode

T = TypeVar("T")


async def program(function: Callable[[], T]) -> T:
    """Run a synchronous program while the node works."""
    return await asyncio.to_thread(function)


TWINS = [name for name in sync.__all__ if issubclass(getattr(sync, name), Twin)]

NOT_FOR_PROGRAMS = {
    "ConsumerClient": {"deliver", "drop", "fail", "reader_finished", "handed_out"},
    "Transaction": {"answered", "settle", "fail"},
    "GroupMember": {"answered", "settle", "fail"},
    "Delivery": {"of"},
}
"""Names that other parts of the client call."""

SET_BY_INSTANCES = {"is_new_writer", "last_committed", "log", "names", "options", "stats", "txn_id"}
"""Attributes, which are no properties of the asyncio class."""


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize("name", TWINS)
def test_a_twin_has_all_public_names(name: str) -> None:
    original, twin = getattr(asynchronous, name), getattr(sync, name)
    wanted = public(original) - NOT_FOR_PROGRAMS.get(name, set())
    missing = sorted(wanted - public(twin))
    assert not missing, f"holdfast.client.sync.{name} lacks {', '.join(missing)}"
    assert public(twin) - wanted <= SET_BY_INSTANCES


@pytest.mark.parametrize("name", TWINS)
def test_a_twin_is_found_where_it_says(name: str) -> None:
    """By `help()`, by a traceback, and by another process that is given the class."""
    twin = getattr(sync, name)
    assert twin.__module__.startswith("holdfast.client.sync.")
    assert pickle.loads(pickle.dumps(twin)) is twin


@pytest.mark.parametrize("name", TWINS)
def test_each_name_of_a_twin_is_described_and_called_as_the_asyncio_one(name: str) -> None:
    original, twin = getattr(asynchronous, name), getattr(sync, name)
    names = public(twin) - SET_BY_INSTANCES - ({"result"} if original is Delivery else set())
    for member in names | ({"__init__"} if issubclass(twin, SyncClient) else set()):
        one, other = getattr(original, member), getattr(twin, member)
        assert isinstance(other, property) == isinstance(one, property), member
        assert other.__doc__ or member not in WRITTEN_OUT, member
        if isinstance(other, property):
            assert member in WRITTEN_OUT or inspect.getdoc(other) == inspect.getdoc(one), member
            continue
        is_described = other.__doc__ == one.__doc__ or inspect.getdoc(other) == inspect.getdoc(one)
        assert member in WRITTEN_OUT or is_described, member
        assert not inspect.iscoroutinefunction(other), member
        assert not inspect.isasyncgenfunction(other), member
        given, expected = inspect.signature(other), inspect.signature(one)
        if member in WRITTEN_OUT:
            assert list(given.parameters) == list(expected.parameters), member
        else:
            returns = expected.return_annotation.removeprefix("Async")
            assert given == expected.replace(return_annotation=returns), member


WRITTEN_OUT = {"commit_offsets"}
"""It has a consumer of the other kind."""


async def test_publishing_and_reading(node: TinyNode) -> None:
    def work() -> list[tuple[bytes, str | None]]:
        with sync.ProducerClient(node.address, "trades") as producer:
            deliveries = [producer.send(f"{n}", key="IBM") for n in range(100)]
            producer.flush()
            assert all(delivery.is_done for delivery in deliveries)
            assert producer.outstanding == 0
            assert producer.send_and_confirm(b"100", key="IBM").count == 1
            batch = producer.create_batch(key="IBM")
            batch.add("101")
            assert producer.send_batch(batch).count == 1
            assert producer.send_nowait("102", key="IBM").result(5).partition == deliveries[0].partition
            assert producer.stats.accepted == 103
        assert deliveries[0].result().partition is not None, "outcomes can be asked for after the end"
        options = ConsumerOptions(until_end=True)
        with sync.ConsumerClient(node.address, "trades", start=Start.earliest(), options=options) as consumer:
            found = [(event.body, event.key) for event in consumer]
            assert consumer.at_end
            assert sum(lag or 0 for lag in consumer.lag().values()) == 0
        return found

    assert await program(work) == [(f"{n}".encode(), "IBM") for n in range(103)]


async def test_idempotent_publishing(node: TinyNode) -> None:
    def work() -> None:
        options = {"0": PartitionPublishingOptions(producer_group_id=3)}
        with sync.ProducerClient(node.address, "trades", idempotent=True, partition_options=options) as producer:
            assert producer.send_batch(["1", "2"], partition="0").sequence_number == 1
            delivery = producer.send("3", partition="0")
            assert delivery.result().sequence_number == delivery.sequence_number == 3
            properties = producer.get_partition_publishing_properties("0")
            assert (properties.producer_group_id, properties.last_published_sequence_number) == (3, 3)
            with pytest.raises(ConfigurationError):
                producer.send("4", key="IBM")

    await program(work)
    assert node.log.numbers("0") == [1, 2, 3]


async def test_errors_are_the_same_and_the_thread_ends_whatever_happens(node: TinyNode) -> None:
    def threads() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name.startswith("holdfast ")}

    earlier = threads()  # left by tests that this process ran before

    def work() -> None:
        with pytest.raises(NotFoundError):
            sync.ProducerClient(node.address, "nothing").__enter__()
        with pytest.raises(ConfigurationError):
            sync.ProducerClient(node.address, "trades", ProducerOptions(window=0))
        with pytest.raises(NotFoundError), sync.ConsumerClient(node.address, "nothing"):
            pass
        node.answer = lambda payload: REJECTED
        producer = sync.ProducerClient(node.address, "trades")
        producer.start()
        delivery = producer.send("unwanted", partition="0")
        with pytest.raises(RejectedError):
            delivery.result()
        producer.send("unwanted", partition="0")
        with pytest.raises(RejectedError):
            producer.close()
        producer.close()
        for use in (lambda: producer.send("x"), producer.flush, producer.start):
            with pytest.raises(ClosedError):
                use()
        assert threads() <= earlier

    await program(work)


async def test_waiting_has_bounds(node: TinyNode) -> None:
    node.after_transfers = lambda connection, partition, count: True

    def work() -> None:
        try:
            with sync.ProducerClient(node.address, "trades") as producer:
                delivery = producer.send("never answered", partition="0")
                with pytest.raises(TimeoutExpiredError):
                    delivery.result(0.05)
                raise KeyError("other worries")
        except KeyError:
            pass
        with sync.ConsumerClient(node.address, "trades") as consumer:
            consumer.pause("0")
            assert consumer.paused == {"0"}
            consumer.resume()
            assert consumer.receive(timeout_s=0.05) == []

    await program(work)


async def test_a_callback_that_calls_its_client_is_refused_instead_of_waiting_for_ever(node: TinyNode) -> None:
    caught: list[BaseException] = []

    def work() -> None:
        with sync.ProducerClient(node.address, "trades") as producer:

            def done(error: Exception | None) -> None:
                for call in (lambda: producer.send("again", partition="0"), producer.close):
                    try:
                        call()
                    except InvalidOperationError as refusal:
                        caught.append(refusal)

            producer.send("once", partition="0", done=done).result()
            producer.send("still there", partition="0").result()

    await program(work)
    assert len(caught) == 2


@pytest.mark.parametrize("end", [SystemExit(3), KeyboardInterrupt()])
async def test_a_callback_that_wants_the_program_to_end_ends_the_client_and_nobody_waits_for_ever(
    node: TinyNode, end: BaseException
) -> None:
    def leave(_: object) -> None:
        raise end

    def send_for_ever(producer: sync.ProducerClient) -> None:
        while True:
            producer.send("event", partition="0", done=leave)
            producer.flush()

    def work() -> None:
        with sync.ProducerClient(node.address, "trades") as producer:
            producer.send("event", partition="0", done=leave)
            with pytest.raises(ClosedError, match="ended by a callback") as told:
                send_for_ever(producer)
            assert told.value.__cause__ is end

    await program(work)


async def test_several_threads_may_share_a_client(node: TinyNode) -> None:
    def work() -> None:
        with sync.ProducerClient(node.address, "trades") as producer:

            def produce(name: int) -> None:
                for n in range(50):
                    producer.send(f"{name}:{n}", partition="0")

            threads = [threading.Thread(target=produce, args=(name,)) for name in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    await program(work)
    bodies = node.log.bodies("0")
    for name in range(4):
        own = [body for body in bodies if body.startswith(b"%d:" % name)]
        assert own == [b"%d:%d" % (name, n) for n in range(50)]


async def test_a_callback_hears_what_is_confirmed(node: TinyNode) -> None:
    heard: list[tuple[str, int]] = []

    def work() -> None:
        with sync.ProducerClient(node.address, "trades") as producer:
            producer.on_confirmed = lambda partition, events: heard.append((partition, events))
            assert producer.on_confirmed is not None
            producer.send_and_confirm("event", partition="0")

    await program(work)
    assert heard == [("0", 1)]


async def test_a_member_is_made_without_the_thread_of_its_group(node: TinyNode) -> None:
    """Else a callback of the producer that makes one would wait for itself."""

    def work() -> None:
        group = sync.TransactionGroup(node.address, writer="w", batch=0, run="r")
        group.close()
        with sync.ProducerClient(node.address, "trades") as producer:
            assert isinstance(group.member(producer, part="0"), sync.GroupMember)
            with pytest.raises(InvalidOperationError, match="own thread"):
                producer._thread.call(lambda: group.member(producer, part="1"))

    await program(work)


async def test_administration(node: TinyNode) -> None:
    node.manage = lambda properties, arguments: ({"status-code": 200}, {"logs": [{"name": "trades"}]})

    def work() -> None:
        with sync.AdminClient(node.address) as admin:
            assert admin.list_logs() == [{"name": "trades"}]
            assert len(admin.log_info("trades")) == 4

    await program(work)
