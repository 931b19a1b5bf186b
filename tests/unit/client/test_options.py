"""Options that cannot be are refused when a client is made; of those that pass none hangs."""

from __future__ import annotations

from datetime import datetime
from math import inf, nan
from typing import Any

import pytest

from holdfast.client import (
    AdminClient,
    ConfigurationError,
    ConsumerClient,
    ConsumerOptions,
    HoldfastError,
    NetworkOptions,
    NotFoundError,
    ProducerClient,
    ProducerOptions,
    RangeClient,
    Start,
)
from holdfast.client.options import MAX_PREFETCH
from holdfast.client.transport.network import MAX_IDLE_TIMEOUT_S
from tests.unit.client.support.tiny_node import TinyNode

NO_COUNTS: list[Any] = [0, -1, 1.5, 0.5, inf, nan, True, "5", None]
NO_TIMES: list[Any] = [0, -1, nan, -inf, "5", True]
COUNTS = ("window", "max_buffered_events", "max_buffered_bytes", "max_batch_bytes")


@pytest.mark.parametrize("value", NO_COUNTS, ids=repr)
@pytest.mark.parametrize("name", COUNTS)
def test_counts_of_a_producer_are_whole_numbers(name: str, value: Any) -> None:
    """With inf as its bound a buffer never had room again: half of it is no number."""
    with pytest.raises(ConfigurationError, match=f"{name} must be a whole number"):
        ProducerOptions(**{name: value}).check()


@pytest.mark.parametrize("value", [*NO_COUNTS, 1 << 31], ids=repr)
def test_the_prefetch_of_a_consumer_fits_into_credit(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="prefetch must be a whole number"):
        ConsumerOptions(prefetch=value).check()
    ConsumerOptions(prefetch=MAX_PREFETCH, prefetch_bytes=1 << 60).check()


@pytest.mark.parametrize("value", NO_COUNTS, ids=repr)
def test_bytes_of_a_prefetch_are_a_whole_number(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="prefetch_bytes must be a whole number"):
        ConsumerOptions(prefetch_bytes=value).check()


@pytest.mark.parametrize("value", [*NO_TIMES, None], ids=repr)
def test_times_are_more_than_nothing(value: Any) -> None:
    for name in ("delivery_timeout_s", "transaction_timeout_s"):
        with pytest.raises(ConfigurationError, match=f"{name} must be a time"):
            ProducerOptions(**{name: value}).check()
    with pytest.raises(ConfigurationError, match="reconnect_timeout_s must be a time"):
        ConsumerOptions(reconnect_timeout_s=value).check()


@pytest.mark.parametrize("value", [-1, nan, "5", True], ids=repr)
def test_times_that_may_be_nothing(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="latency_target_s must be a time"):
        ProducerOptions(latency_target_s=value).check()
    for nothing in (0, None):
        ProducerOptions(latency_target_s=nothing, delivery_timeout_s=inf).check()


@pytest.mark.parametrize("value", [0, -1, nan, inf, 1e9, "5", None], ids=repr)
def test_an_idle_timeout_fits_into_a_frame(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="idle_timeout_s"):
        NetworkOptions(idle_timeout_s=value).check()
    NetworkOptions(idle_timeout_s=MAX_IDLE_TIMEOUT_S).check()
    with pytest.raises(ConfigurationError, match="container_id"):
        NetworkOptions(container_id=5).check()  # type: ignore[arg-type]


NOBODY = "127.0.0.1:1"


@pytest.mark.parametrize(
    "start",
    ["earliest", 5, {"0": "earliest"}, Start, Start.earliest, {"0": None}],
    ids=["text", "number", "text of a partition", "class", "not called", "none of a partition"],
)
def test_what_is_no_start_is_told_how_to_write_one(start: Any) -> None:
    with pytest.raises(ConfigurationError, match="is no start") as refusal:
        ConsumerClient(NOBODY, "trades", start=start)
    assert "Start.earliest()" in refusal.value.advice


def test_a_start_for_a_partition_that_is_no_name_is_not_passed_over() -> None:
    with pytest.raises(ConfigurationError, match="named by strings, not 0") as refusal:
        ConsumerClient(NOBODY, "trades", start={0: Start.earliest()})  # type: ignore[dict-item]
    assert refusal.value.advice == 'write "0"'


async def test_a_start_for_a_partition_that_does_not_exist_is_not_passed_over(node: TinyNode) -> None:
    consumer = ConsumerClient(node.address, "trades", start={"9": Start.earliest()})
    with pytest.raises(NotFoundError, match="no partition '9'"):
        await consumer.start()
    await consumer.close()


@pytest.mark.parametrize(
    ("partitions", "write"),
    [([0], '["0"]'), ("12", '["12"]'), (0, '["0"]'), ([], '["0"]'), ([None], '["0"]'), (["1", 2], '["1", "2"]')],
)
def test_partitions_are_a_list_of_names(partitions: Any, write: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        ConsumerClient(NOBODY, "trades", partitions=partitions)
    assert refusal.value.advice == f"write {write}"


def test_the_number_of_an_event_is_answered_with_its_offset() -> None:
    with pytest.raises(ConfigurationError) as refusal:
        Start.after(5)  # type: ignore[arg-type]
    assert "'0000000000000005'" in refusal.value.advice


@pytest.mark.parametrize("offset", [-1, 1 << 64, 5.0, b"0", True, None, "", "@latest"], ids=repr)
def test_what_is_no_offset_is_refused(offset: Any) -> None:
    with pytest.raises(ConfigurationError, match="is not an offset"):
        Start.after(offset)


@pytest.mark.parametrize("time", [-1, 1 << 63, 1.5, "now", None, True, datetime(2026, 1, 1)], ids=repr)
def test_what_is_no_time_is_refused(time: Any) -> None:
    with pytest.raises(ConfigurationError, match="milliseconds since 1970"):
        Start.from_time(time)


@pytest.mark.parametrize("name", [None, 5, "", b"trades"], ids=repr)
def test_a_log_is_named_by_a_string(name: Any) -> None:
    for client in (ProducerClient, ConsumerClient):
        with pytest.raises(ConfigurationError, match="a log is named by a string"):
            client(NOBODY, name)


def test_options_of_another_kind_are_not_passed_over() -> None:
    for options in ({}, {"prefetch": 5}, 0, NetworkOptions()):
        for client in (ProducerClient, ConsumerClient):
            with pytest.raises(ConfigurationError, match="options are"):
                client(NOBODY, "trades", options=options)  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="options are RangeOptions"):
            RangeClient(NOBODY, options=options)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["2", nan, True], ids=repr)
async def test_a_wait_is_a_time(node: TinyNode, value: Any) -> None:
    with pytest.raises(ConfigurationError, match="timeout_s must be a time"):
        AdminClient(node.address, timeout_s=value)
    async with ConsumerClient(node.address, "trades") as consumer:
        with pytest.raises(ConfigurationError, match="timeout_s must be a time"):
            await consumer.receive(timeout_s=value)
        with pytest.raises(HoldfastError, match="max_events must be a whole number"):
            await consumer.receive(value, timeout_s=0)
        assert await consumer.receive(timeout_s=-0.001) == [], "what is left of a time may be over"
