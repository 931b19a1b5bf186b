"""The types of the synchronous client as a program's type checker sees them: `make lint` judges it, nothing runs it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, assert_type

from holdfast.client import DeliveryResult, EventBatch, EventBlock, ProducerStats, ReceivedEvent, sync
from holdfast.client.transaction_group import Opened


def produced() -> None:
    with sync.ProducerClient("127.0.0.1:5672", "trades", transactional_id="t") as producer:
        assert_type(producer, sync.ProducerClient)
        assert_type(producer.send("1", key="IBM", done=print), sync.Delivery)
        assert_type(producer.send("1").result(5), DeliveryResult)
        assert_type(producer.send_nowait("1"), sync.Delivery)
        assert_type(producer.send_many(["1"]).count, int)
        assert_type(producer.create_batch(key="IBM"), EventBatch)
        assert_type(producer.partition_of("IBM"), str)
        assert_type(producer.partitions, list[str])
        assert_type(producer.stats, ProducerStats)
        with producer.transaction() as transaction:
            assert_type(transaction, sync.Transaction)
            assert_type(transaction.send("1"), sync.Delivery)
        producer.send(1)  # type: ignore[arg-type]
        producer.send("1", kye="IBM")  # type: ignore[call-arg]
        producer.partition_of()  # type: ignore[call-arg]
    sync.ProducerClient("127.0.0.1:5672")  # type: ignore[call-arg]


def consumed(consumer: sync.ConsumerClient, ranges: sync.RangeClient, transaction: sync.Transaction) -> None:
    assert_type(list(consumer), list[ReceivedEvent])
    assert_type(consumer.receive(timeout_s=1), list[ReceivedEvent])
    assert_type(consumer.lag(), dict[str, int | None])
    assert_type(ranges.read("trades", "0", 0, 9), Generator[EventBlock, None, None])
    transaction.commit_offsets(consumer)
    consumer.pause(0)  # type: ignore[arg-type]
    ranges.read("trades", 0, 0, 9)  # type: ignore[arg-type]


def grouped(group: sync.TransactionGroup, producer: sync.ProducerClient, admin: sync.AdminClient) -> None:
    assert_type(group.open(once=True), Opened)
    with group.member(producer, part="0") as member:
        assert_type(member, sync.GroupMember)
        assert_type(member.prepare(), str)
    group.member(producer)  # type: ignore[call-arg]
    closes: Callable[[], None] = admin.close
    assert_type(admin.describe_log("trades"), dict[str, Any])
    admin.create_log("trades", partitions="4")  # type: ignore[arg-type]
    closes()
