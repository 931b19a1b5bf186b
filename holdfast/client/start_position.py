"""Where a consumer begins to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast import protocol
from holdfast.amqp.encoding.codec import (
    Described,
    symbol,
    timestamp,
    ulong,
)
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
        """Only events that come from now on."""
        return Start(offset=protocol.OFFSET_LATEST)

    @staticmethod
    def after(offset: str) -> Start:
        """The event that follows the one with this offset."""
        if not offset or offset.startswith("@") or not offset.isascii():
            raise ConfigurationError(f"{offset!r} is not an offset", advice="use one that came with an event")
        return Start(offset=offset)

    @staticmethod
    def from_time(timestamp_ms: int) -> Start:
        """The first event taken in at this time (milliseconds since 1970) or later."""
        if timestamp_ms < 0:
            raise ConfigurationError(f"a time is not before 1970: {timestamp_ms}")
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
