"""Filters by which a receiver names its start; each peer has its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import cproton
from cproton import lib

from benchmarks.driver.wire import put_symbol_map

EVENT_STREAMS_FILTER = 0x200  # code of the delivery-annotations filter
RABBITMQ_STREAM_FILTER = "rabbitmq:stream-offset-spec"

FilterKind = Literal["none", "event-streams", "rabbitmq-stream"]


def _event_streams_filter(data: Any, start: str) -> None:
    """Start at an offset (exclusive) or at @earliest, by the filter of the event stream extensions.

    No filter means the tail.
    """
    if start == "latest":
        return
    comparand = "@earliest" if start == "earliest" else start
    lib.pn_data_put_map(data)
    lib.pn_data_enter(data)
    cproton.pn_data_put_symbol(data, "start")
    lib.pn_data_put_described(data)
    lib.pn_data_enter(data)
    lib.pn_data_put_ulong(data, EVENT_STREAMS_FILTER)
    put_symbol_map(data, {"event-streams-offset": comparand})
    lib.pn_data_exit(data)
    lib.pn_data_exit(data)


def _rabbitmq_filter(data: Any, start: str) -> None:
    """Start at `first`, `next` or a number in a RabbitMQ stream.

    RabbitMQ 3.10 needs the bare value. It silently ignores a described one, which the AMQP standard asks for, and reads
    from the tail.
    """
    spec = {"earliest": "first", "latest": "next"}.get(start, start)
    lib.pn_data_put_map(data)
    lib.pn_data_enter(data)
    cproton.pn_data_put_symbol(data, RABBITMQ_STREAM_FILTER)
    if spec.isdigit():
        lib.pn_data_put_ulong(data, int(spec))
    else:
        cproton.pn_data_put_string(data, spec)
    lib.pn_data_exit(data)


FILTERS: dict[str, Callable[[Any, str], None]] = {
    "none": lambda data, start: None,
    "event-streams": _event_streams_filter,
    "rabbitmq-stream": _rabbitmq_filter,
}
