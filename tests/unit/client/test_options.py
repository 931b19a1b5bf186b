"""Options that cannot be are refused when a client is made; of those that pass none hangs."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from holdfast.client import (
    ConfigurationError,
    ConsumerClient,
    ConsumerOptions,
    NetworkOptions,
    ProducerClient,
    ProducerOptions,
)
from holdfast.client.options import MAX_PREFETCH
from holdfast.client.transport.network import MAX_IDLE_TIMEOUT_S

NO_COUNTS: list[Any] = [0, -1, 1.5, 0.5, inf, nan, True, "5", None]
NO_TIMES: list[Any] = [0, -1, nan, -inf, "5", True]
COUNTS = ("window", "max_buffered_events", "max_buffered_bytes", "linger_bytes", "max_batch_bytes")


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
    for name in ("linger_s", "latency_target_s"):
        with pytest.raises(ConfigurationError, match=f"{name} must be a time"):
            ProducerOptions(**{name: value}).check()
    ProducerOptions(linger_s=0, latency_target_s=None, delivery_timeout_s=inf).check()


@pytest.mark.parametrize("value", [0, -1, nan, inf, 1e9, "5", None], ids=repr)
def test_an_idle_timeout_fits_into_a_frame(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="idle_timeout_s"):
        NetworkOptions(idle_timeout_s=value).check()
    NetworkOptions(idle_timeout_s=MAX_IDLE_TIMEOUT_S).check()
    with pytest.raises(ConfigurationError, match="container_id"):
        NetworkOptions(container_id=5).check()  # type: ignore[arg-type]


@pytest.mark.parametrize("log", ["", None, 7], ids=repr)
def test_a_log_has_a_name(log: Any) -> None:
    for client in (ProducerClient, ConsumerClient):
        with pytest.raises(ConfigurationError, match="a log is named by a string that is not empty"):
            client("127.0.0.1:1", log)
