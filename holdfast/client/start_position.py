"""Start positions of a consumer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast import protocol
from holdfast.amqp.encoding.codec import (
    Described,
    symbol,
    timestamp,
    ulong,
)
from holdfast.amqp.messages.message import offset_text
from holdfast.client.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Start:
    """A place in a partition; made by the functions below. Exclusive: what lies *after* it is read."""

    offset: str | None = None
    timestamp_ms: int | None = None

    @staticmethod
    def earliest() -> Start:
        """The oldest event that retention has left."""
        return Start(offset=protocol.OFFSET_EARLIEST)

    @staticmethod
    def latest() -> Start:
        """The end: only events that come from now on are read."""
        return Start(offset=protocol.OFFSET_LATEST)

    @staticmethod
    def after(offset: str) -> Start:
        """The event that follows the one with this offset."""
        if isinstance(offset, int) and not isinstance(offset, bool) and 0 <= offset < 1 << 64:
            raise ConfigurationError(
                f"an offset is a string, as it came with an event, not {offset!r}",
                advice=f"the event of that number has the offset {offset_text(offset)!r}",
            )
        if not isinstance(offset, str) or not offset or offset.startswith("@") or not offset.isascii():
            raise ConfigurationError(f"{offset!r} is not an offset", advice="use one that came with an event")
        return Start(offset=offset)

    @staticmethod
    def from_time(timestamp_ms: int) -> Start:
        """The first event taken in at this time (milliseconds since 1970) or later."""
        if isinstance(timestamp_ms, datetime):
            raise ConfigurationError(
                "a time is a whole number of milliseconds since 1970, not a datetime",
                advice="write int(when.timestamp() * 1000)",
            )
        if not isinstance(timestamp_ms, int) or isinstance(timestamp_ms, bool) or not 0 <= timestamp_ms < 1 << 63:
            raise ConfigurationError(f"a time is a whole number of milliseconds since 1970, not {timestamp_ms!r}")
        return Start(timestamp_ms=timestamp_ms - 1)

    @property
    def is_latest(self) -> bool:
        return self.offset == protocol.OFFSET_LATEST

    def to_filter(self) -> dict[str, Any]:
        """The source filter that says so: values *greater than* the one given pass."""
        comparands: dict[Any, Any] = {}
        if self.offset is not None:
            comparands[symbol(protocol.ANNOTATION_OFFSET)] = symbol(self.offset)
        if self.timestamp_ms is not None:
            comparands[symbol(protocol.ANNOTATION_TIMESTAMP)] = timestamp(max(0, self.timestamp_ms))
        return {protocol.START_FILTER_NAME: Described(ulong(protocol.START_FILTER_CODE), comparands)}


def check_start(start: object) -> None:
    """Check a start, or one for each partition by name. Raises ConfigurationError."""
    if isinstance(start, Mapping):
        for name, one in start.items():
            if not isinstance(name, str):
                raise ConfigurationError(f"partitions are named by strings, not {name!r}", advice=f'write "{name}"')
            _check_one(one)
    else:
        _check_one(start)


def _check_one(start: object) -> None:
    if not isinstance(start, Start):
        raise ConfigurationError(
            f"{start!r} is no start",
            advice="write Start.earliest(), Start.latest(), Start.after(event.offset) or Start.from_time(milliseconds)",
        )
